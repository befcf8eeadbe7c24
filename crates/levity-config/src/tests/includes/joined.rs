//! What the texts are together.

use super::*;

#[test]
fn all_problems_of_all_files_are_reported() {
    let folder = Folder::new(&format!(
        "include = [\"none.toml\", \"sites.d/*.toml\"]\n[disk]\nenigne = 1\n{}",
        site("a.test")
    ));
    folder.write(
        "sites.d/a.toml",
        "[[site]]\nrespond = {}\nhosts = [\"b.test\"\n",
    );
    folder.write("sites.d/b.toml", b"a = 1\nb = \"\xff\"\n");
    folder.write("sites.d/c.toml", "include = [\"d.toml\"]\n");
    folder.write("sites.d/d.toml", site("a.test"));
    folder.write("sites.d/e.toml", "server {\n    listen 80;\n}\n");
    folder.write(
        "sites.d/f.toml",
        "# two\n\n[[site]]\nrespond = { status = 1 }\nhosts = [\"f.test\"]\n",
    );
    assert_eq!(
        folder.problems(),
        [
            "levity.toml:1:12 cannot read none.toml: No such file or directory (os error 2)",
            "sites.d/b.toml:2:6 the file is not UTF-8",
            "levity.toml:3:1 unknown key `enigne` [did you mean `engine`?]",
            "sites.d/a.toml:3:9 unclosed bracket [nothing below closes it]",
            "sites.d/c.toml:1:1 an included file includes no others [name its files in `include` of the main file]",
            "sites.d/d.toml:2:10 host `a.test` is given twice [the first is on line 5 of levity.toml]",
            "sites.d/e.toml:1:1 this is a configuration of nginx, not one for Levity [a file for Levity is TOML, and as little as \
             `[[site]]` with `root = \"/srv/www\"` beneath it will do]",
            "sites.d/f.toml:4:22 `status` must be from 200 to 599",
        ]
    );
    let shown = folder.relative(&folder.errors().render(false));
    assert!(
        shown.contains("\n  --> sites.d/f.toml:4:22\n   |\n 4 | respond = { status = 1 }\n"),
        "{shown}"
    );
    let not_text = "\n  --> sites.d/b.toml:2:6\n   |\n 2 | b = \"\u{fffd}\"\n   |      ^\n";
    assert!(shown.contains(not_text), "{shown}");
    let json = folder.errors().to_json();
    let files = json["problems"].as_array().expect("problems").iter();
    let files: Vec<_> = files
        .map(|one| folder.relative(one["file"].as_str().expect("a name")))
        .collect();
    for (number, file) in [
        (1, "sites.d/b.toml"),
        (2, "levity.toml"),
        (7, "sites.d/f.toml"),
    ] {
        assert_eq!(files[number], file);
    }
    assert_eq!(json["problems"][1]["line"], 2);
}

#[test]
fn lists_are_joined_and_tables_are_not() {
    let folder = Folder::new(&format!(
        "{ALL}[server]\nworkers = 2\n[[listen]]\naddress = \"1\"\n[acme]\n"
    ));
    folder.write(
        "sites.d/a.toml",
        format!("[[listen]]\naddress = \"2\"\n{}", site("a.test")),
    );
    folder.write(
        "sites.d/b.toml",
        "[[upstream]]\nname = \"u\"\nto = [\"a:1\"]\n[[mailbox]]\nname = \"m\"\n",
    );
    let config = folder.loaded();
    let listen = ["1", "2"].map(listen_at);
    assert_eq!(config.listen, listen);
    assert_eq!((config.upstreams.len(), config.mailboxes.len()), (1, 1));
    folder.write(
        "sites.d/c.toml",
        "[disk]\nqueue = 99\n[server.headers]\nset = { A = \"1\" }\n",
    );
    folder.write(
        "sites.d/d.toml",
        "disk = 1\nsite = {}\n[acme.dns]\nserver = \"1.2.3.4:53\"\n[none]\n",
    );
    folder.write("sites.d/e.toml", "[none]\n");
    let problems = folder.problems();
    let known = format!("{problems:?}");
    for expected in [
        "sites.d/c.toml:3:2 `[server]` stands in two files [the first is on line 2 of levity.toml]",
        "sites.d/d.toml:1:1 `[disk]` stands in two files [the first is on line 1 of sites.d/c.toml]",
        "sites.d/d.toml:2:8 expected an array of tables, found table [write `[[site]]`]",
        "sites.d/d.toml:3:2 `[acme]` stands in two files [the first is on line 6 of levity.toml]",
        "sites.d/e.toml:1:2 `none` stands in two files [the first is on line 5 of sites.d/d.toml]",
    ] {
        assert!(
            problems.iter().any(|one| one == expected),
            "{expected} {known}"
        );
    }
    assert!(
        known.contains("sites.d/d.toml:5:2 unknown key `none`"),
        "{known}"
    );
    assert_eq!(problems.len(), 6, "{known}");
}

#[test]
fn an_included_file_has_relative_paths_of_its_own() {
    let folder = Folder::new(&format!(
        "{ALL}[[site]]\nhosts = [\"a.test\"]\nroot = \"www\"\n"
    ));
    folder.write("www/x", "");
    folder.write("sites.d/www/x", "");
    folder.write("users", "u:x\n");
    folder.write("sites.d/users", format!("u:$2y$04${}\n", "a".repeat(53)));
    let text = "[[listen]]\naddress = \"unix:s\"\n[[upstream]]\nname = \"u\"\nto = [\"unix:app\"]\n\
                [[site]]\nhosts = [\"b.test\"]\nroot = \"www\"\nlog = { access = \"./log\" }\nproxy = \"u\"\n\
                basic_auth = { users = \"users\" }\n[[site.route]]\npath = \"/x/*\"\nroot = \"../www\"\n";
    folder.write("sites.d/b.toml", text);
    let config = folder.loaded();
    let root = |site: usize| config.sites[site].location.root.clone();
    assert_eq!(root(0), Some(folder.at("www")));
    assert_eq!(root(1), Some(folder.at("sites.d/www")));
    let location = &config.sites[1].location;
    assert_eq!(
        config.sites[1].routes[0].location.root,
        Some(folder.at("sites.d/../www"))
    );
    assert_eq!(
        location.log.as_ref().map(|log| &log.access),
        Some(&AccessLog::File(folder.at("sites.d/./log")))
    );
    let users = location.gates.basic_auth.as_ref().map(|gate| &gate.file);
    assert_eq!(users, Some(&folder.at("sites.d/users")));
    assert_eq!(
        config.listen,
        [Listen::from(Address::Unix(folder.at("sites.d/s")))]
    );
    let backend = config.upstreams[0].to[0].at.address();
    assert_eq!(backend, Some(Address::Unix(folder.at("sites.d/app"))));
}

#[test]
fn files_are_sent_to_nobody() {
    let folder = Folder::new(&format!(
        "{ALL}[[site]]\nhosts = [\"a.test\"]\nroot = \".\"\n"
    ));
    folder.write("sites.d/b.toml", site("b.test"));
    let config = folder.loaded();
    for name in ["levity.toml", "sites.d/b.toml"] {
        assert!(config.secrets.contains(&folder.at(name)), "{name}");
    }
    let notes = folder.notes().join("\n");
    assert!(
        notes.contains("sites.d/b.toml lies beneath a `root`, at `/sites.d/b.toml`"),
        "{notes}"
    );
}

#[test]
fn a_file_counts_once() {
    let folder = Folder::new(&format!(
        "include = [\"*.toml\", \"a.toml\", \"link/*.toml\"]\n{SITE_ALONE}"
    ));
    folder.write("a.toml", site("a.test"));
    assert_eq!(folder.hosts(), ["a.test"]);
    assert_eq!(
        folder.notes(),
        ["line 1 of levity.toml: no file matches `link/*.toml`: there is no link"]
    );
    symlink("levity.toml", folder.at("z.toml")).expect("a link");
    symlink("a.toml", folder.at("b.toml")).expect("a link");
    symlink(".", folder.at("link")).expect("a link");
    assert_eq!(folder.hosts(), ["a.test"]);
    assert_eq!(
        folder.notes(),
        [
            "line 1 of levity.toml: b.toml is a.toml, which counts once",
            "line 1 of levity.toml: z.toml is levity.toml, which counts once",
            "line 1 of levity.toml: link/a.toml is a.toml, which counts once",
            "line 1 of levity.toml: link/b.toml is a.toml, which counts once",
            "line 1 of levity.toml: link/levity.toml is levity.toml, which counts once",
            "line 1 of levity.toml: link/z.toml is levity.toml, which counts once",
        ]
    );
}

#[test]
fn links_lead_to_folders_and_files() {
    let folder = Folder::new(ALL);
    folder.write(
        "available/a.toml",
        "[[site]]\nhosts = [\"a.test\"]\nroot = \"www\"\n",
    );
    folder.write("enabled/www/x", "");
    symlink("../available/a.toml", folder.at("enabled/a.toml")).expect("a link");
    symlink("enabled", folder.at("sites.d")).expect("a link");
    // Paths are relative to the name, as those of nginx.
    let root = folder.loaded().sites[0].location.root.clone();
    assert_eq!(root, Some(folder.at("sites.d/www")));
    symlink("none", folder.at("enabled/b.toml")).expect("a link");
    assert_eq!(
        folder.problems(),
        ["levity.toml:1:12 cannot read sites.d/b.toml: No such file or directory (os error 2)"]
    );
}

#[test]
fn texts_of_any_form() {
    let folder = Folder::new(&format!("\u{feff}{ALL}"));
    folder.write("sites.d/0.toml", "");
    folder.write("sites.d/1.toml", "\u{feff}");
    folder.write("sites.d/2.toml", format!("\u{feff}{}", site("bom.test")));
    folder.write("sites.d/3.toml", site("crlf.test").replace('\n', "\r\n"));
    folder.write("sites.d/4.toml", format!("{}# no end", site("end.test")));
    folder.write(
        "sites.d/5.toml",
        "[[site]]\r\nhosts = [\"a b\"]\r\nrespond = {}",
    );
    assert_eq!(
        folder.problems(),
        [
            "sites.d/5.toml:2:10 `a b` is not a host name [letters, digits, `-`, `_` and `~!$&'()+=`, with dots between; a star only as \
          `*.` at the start]"
        ]
    );
    fs::remove_file(folder.at("sites.d/5.toml")).expect("removed");
    assert_eq!(folder.hosts(), ["bom.test", "crlf.test", "end.test"]);
    // An editor may be about to write them, and clients miss their sites.
    let note = |name: &str| format!("line 1 of sites.d/{name}.toml: the file has no table");
    assert_eq!(folder.notes(), ["0", "1"].map(note));
}

#[test]
fn a_value_in_place_of_a_list_harms_no_other_file() {
    let folder = Folder::new(ALL);
    folder.write("sites.d/a.toml", "[site]\nhosts = [\"a.test\"]\n");
    folder.write("sites.d/b.toml", site("b.test"));
    folder.write("sites.d/c.toml", format!("{}none = 1\n", site("c.test")));
    folder.write("sites.d/d.toml", "site = 3\n");
    assert_eq!(
        folder.problems(),
        [
            "sites.d/a.toml:1:1 expected an array of tables, found table [write `[[site]]`]",
            "sites.d/c.toml:4:1 unknown key `none` [did you mean `zone` of `[acme.dns]`?]",
            "sites.d/d.toml:1:8 expected an array of tables, found integer [write `[[site]]`]",
        ]
    );
}

#[test]
fn a_damaged_list_hides_no_errors_of_other_files() {
    let folder = Folder::new(ALL);
    folder.write("sites.d/a.toml", "[[site]] junk\nrespond = {}\n");
    folder.write("sites.d/b.toml", format!("{}none = 1\n", site("b.test")));
    folder.write("sites.d/c.toml", "[[site]] junk\nrespond = {}\n");
    let problems = folder.problems();
    let places: Vec<_> = problems
        .iter()
        .filter_map(|one| one.split(' ').next())
        .collect();
    assert_eq!(
        places,
        [
            "sites.d/a.toml:1:10",
            "sites.d/b.toml:4:1",
            "sites.d/c.toml:1:10"
        ],
        "{problems:?}"
    );
}

#[test]
fn nothing_is_absent_if_a_file_may_be_missing() {
    let when =
        "[[site]]\nrespond = {}\n[[site.route]]\nrespond = {}\nwhen = { listen = [\"8443\"] }\n";
    for (include, expected) in [
        ("[\"${NONE_SUCH}\"]", "`${NONE_SUCH}` is not set"),
        ("[1]", "expected a string, found integer"),
        ("\"a.toml\"", "expected an array of strings, found string"),
        (
            "[\"a.toml\"]",
            "cannot read a.toml: No such file or directory (os error 2)",
        ),
    ] {
        for rest in ["[[listen]]\naddress = \"443\"\n", when] {
            let folder = Folder::new(&format!("include = {include}\n{rest}"));
            let problems = folder.problems();
            assert!(problems[0].contains(expected), "{problems:?}");
            assert_eq!(problems.len(), 1, "{problems:?}");
        }
    }
}

#[test]
fn a_socket_is_one_whatever_the_name_of_its_folder() {
    let folder = Folder::new("include = [\"own/../own/*.toml\"]\n");
    let route = "[[site.route]]\npath = \"/x\"\nrespond = {}\nwhen = { listen = [\"unix:s\"] }\n";
    let text = format!(
        "[[listen]]\naddress = \"unix:s\"\n{}{route}",
        site("a.test")
    );
    folder.write("own/a.toml", text);
    let config = folder.loaded();
    let socket = Address::Unix(folder.at("own/s"));
    assert_eq!(config.listen, [Listen::from(socket.clone())]);
    assert_eq!(config.sites[0].routes[0].matcher().when.listen, [socket]);
    let twice = format!(
        "include = [\"own/../own/*.toml\"]\n[[listen]]\naddress = \"unix:{}\"\n",
        folder.at("own/s").display()
    );
    folder.write("levity.toml", twice);
    let problems = folder.problems();
    assert!(
        problems[0].contains("is given twice [the first is on line 3 of levity.toml]"),
        "{problems:?}"
    );
    // A path is that of a link, and what is above its folder is above where it leads.
    folder.write("real/deep/x", "");
    folder.write("real/b.toml", site("b.test"));
    symlink("real/deep", folder.at("link")).expect("a link");
    folder.write("levity.toml", "include = [\"link/../b.toml\"]\n");
    let paths: Vec<_> = folder.loaded().files.paths().map(Path::to_owned).collect();
    assert_eq!(paths[1], folder.at("real/b.toml"));
}
