//! One configuration in many files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;
use crate::absent_roots::AbsentRoots;
use crate::files::{BYTES_MAX, FILES_MAX};

/// A folder with a configuration.
struct Folder(tempfile::TempDir);

impl Folder {
    /// With a main file.
    fn new(main: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a folder"));
        folder.write("levity.toml", main);
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn load(&self) -> Result<Config, Errors> {
        load(&self.at("levity.toml"))
    }

    fn loaded(&self) -> Config {
        self.load().unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// The hosts of all sites, in their order.
    fn hosts(&self) -> Vec<String> {
        let sites = self.loaded().sites.into_iter();
        sites.flat_map(|site| site.hosts).collect()
    }

    fn errors(&self) -> Errors {
        self.load().expect_err("errors")
    }

    /// Each problem as `FILE:LINE:COLUMN MESSAGE [HELP]`, with names relative to the folder.
    fn problems(&self) -> Vec<String> {
        let problem = |problem: &Problem| {
            let file = problem.file.as_ref();
            let file = file.map_or("-".into(), |file| file.display().to_string());
            let at = problem.position.as_ref();
            let at = at.map(|at| format!(":{}:{}", at.line, at.column));
            let at = format!("{file}{} ", at.unwrap_or_default());
            let help = problem.help.as_ref();
            let help = help.map_or(String::new(), |help| format!(" [{help}]"));
            self.relative(&format!("{at}{}{help}", problem.message))
        };
        self.errors().problems.iter().map(problem).collect()
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.loaded().note_texts();
        notes.iter().map(|note| self.relative(note)).collect()
    }

    fn relative(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.0.path().display()), "")
    }
}

fn site(host: &str) -> String {
    format!("[[site]]\nhosts = [\"{host}\"]\nrespond = {{}}\n")
}

const ALL: &str = "include = [\"sites.d/*.toml\"]\n";

#[test]
fn files_come_in_the_order_of_the_patterns_and_their_bytes() {
    let folder = Folder::new(&format!(
        "include = [\"z.toml\", \"sites.d/*.toml\", \"a.toml\"]\n{}",
        site("main.test")
    ));
    for (name, host) in [
        ("a", "last"),
        ("z", "z"),
        ("sites.d/10", "10"),
        ("sites.d/9", "9"),
        ("sites.d/B", "b"),
        ("sites.d/a", "a"),
        ("sites.d/\u{e4}", "umlaut"),
    ] {
        folder.write(&format!("{name}.toml"), site(&format!("{host}.test")));
    }
    let expected = ["main", "z", "10", "9", "b", "a", "umlaut", "last"];
    assert_eq!(folder.hosts(), expected.map(|name| format!("{name}.test")));
    let config = folder.loaded();
    let names = config.files.names().take(3);
    let names: Vec<_> = names
        .map(|name| folder.relative(&name.to_string_lossy()))
        .collect();
    assert_eq!(names, ["levity.toml", "z.toml", "sites.d/10.toml"]);
    assert_eq!(folder.notes(), [""; 0]);
}

#[test]
fn only_names_with_the_end_count() {
    let folder = Folder::new("include = [\"sites.d/*\"]\n");
    folder.write("sites.d/a.toml", site("a.test"));
    for name in [
        ".b.toml",
        "c.toml~",
        "d.toml.bak",
        "e.toml.dpkg-new",
        "f.toml.swp",
        "g",
        "h.conf",
        "i.TOML",
    ] {
        folder.write(&format!("sites.d/{name}"), "nonsense");
    }
    assert_eq!(folder.hosts(), ["a.test"]);
}

#[test]
fn a_pattern_may_have_stars_in_each_part() {
    let folder = Folder::new("include = [\"./s?tes/*/*.toml\"]\n");
    folder.write("sites/b/x.toml", site("bx.test"));
    folder.write("sites/a/y.toml", site("ay.test"));
    folder.write("sites/.c/z.toml", "nonsense");
    folder.write("sites/d.toml", "nonsense");
    assert_eq!(folder.hosts(), ["ay.test", "bx.test"]);
}

#[test]
fn a_name_behind_a_star_need_not_be_in_each_folder() {
    let folder = Folder::new("include = [\"sub/*/site.toml\"]\n");
    folder.write("sub/a/site.toml", site("a.test"));
    folder.write("sub/b/other.toml", "nonsense");
    folder.write("sub/c/site.toml", site("c.test"));
    assert_eq!(folder.hosts(), ["a.test", "c.test"]);
    assert_eq!(folder.notes(), [""; 0]);
    // Somebody means it to be there.
    symlink("none", folder.at("sub/b/site.toml")).expect("a link");
    assert_eq!(
        folder.problems(),
        ["levity.toml:1:12 cannot read sub/b/site.toml: No such file or directory (os error 2)"]
    );
}

#[test]
fn folders_of_a_pattern_are_bounded() {
    let folder = Folder::new(&format!("include = [\"sub/*/site.toml\"]\n{SITE_ALONE}"));
    let add = |number: usize| {
        let path = folder.at(&format!("sub/{number}"));
        fs::create_dir_all(path).expect("a folder");
    };
    (0..FILES_MAX).for_each(add);
    assert_eq!(folder.loaded().sites.len(), 1);
    add(FILES_MAX);
    assert_eq!(
        folder.problems(),
        ["-:1:12 `sub/*/site.toml` looks into more than 4096 folders"]
    );
}

#[test]
fn a_name_has_to_be_there_and_a_pattern_not() {
    // What is absent may be in that file.
    let folder = Folder::new("include = [\"none.toml\"]\n");
    assert_eq!(
        folder.problems(),
        ["-:1:12 cannot read none.toml: No such file or directory (os error 2)"]
    );
    let notes = |pattern: &str| {
        let main = format!("include = [\"{pattern}\"]\n{SITE_ALONE}");
        folder.write("levity.toml", main);
        folder.notes()
    };
    for pattern in ["none.d/*.toml", "none.d/*/a.toml"] {
        let note = format!("line 1: no file matches `{pattern}`: there is no none.d");
        assert_eq!(notes(pattern), [note]);
    }
    // Nobody has put files there yet.
    folder.write("empty.d/sub/x", "");
    for pattern in [
        "*.none.toml",
        "empty.d/*.toml",
        "empty.d/*/a.toml",
        "empty.d/*/none/*.toml",
    ] {
        assert_eq!(notes(pattern), [""; 0], "{pattern}");
    }
}

const SITE_ALONE: &str = "[[site]]\nrespond = {}\n";

#[test]
fn strings_that_name_no_file() {
    for (value, expected) in [
        ("[\"\"]", "-:1:12 `` is not the path of a file"),
        ("[\"/\"]", "-:1:12 `/` is not the path of a file"),
        ("[\"a/\"]", "-:1:12 `a/` is not the path of a file"),
        ("[\"*/\"]", "-:1:12 `*/` is not the path of a file"),
        ("[\"..\"]", "-:1:12 `..` is not the path of a file"),
        (
            "[\"a.toml\\u0000\"]",
            "-:1:12 `a.toml\u{0}` is not the path of a file",
        ),
        (
            "[\"a.conf\"]",
            "-:1:12 `a.conf` does not end in `.toml`: only such files are included",
        ),
        (
            "[\"*/a.conf\"]",
            "-:1:12 `*/a.conf` does not end in `.toml`: only such files are included",
        ),
        (
            "[\"a/*.conf\"]",
            "-:1:12 `a/*.conf` does not end in `.toml`: only such files are included",
        ),
        (
            "[\"~/a.toml\"]",
            "-:1:12 `~/a.toml` begins with `~`, which is not expanded: write the path in full",
        ),
        (
            "[\"a/**/*.toml\"]",
            "-:1:12 `a/**/*.toml` has `**`: `*` stands for text within one name; name each depth by itself, as in `a/*.toml` and \
             `a/*/*.toml`",
        ),
        (
            "[\"[ab].toml\"]",
            "-:1:12 `[ab].toml` has brackets, which stand for nothing here: `*` stands for any text within a name, `?` for one character",
        ),
        (
            "[\"{a,b}*.toml\"]",
            "-:1:12 `{a,b}*.toml` has brackets, which stand for nothing here: `*` stands for any text within a name, `?` for one \
             character",
        ),
        (
            "[\"levity.toml/*.toml\"]",
            "-:1:12 cannot list levity.toml: Not a directory (os error 20)",
        ),
        (
            "\"a.toml\"",
            "-:1:11 expected an array of strings, found string [write [\"a.toml\"]]",
        ),
        (
            "[1]",
            "-:1:12 expected a string, found integer [write \"1\"]",
        ),
    ] {
        let folder = Folder::new(&format!("include = {value}\n{SITE_ALONE}"));
        assert_eq!(folder.problems(), [expected], "{value}");
    }
}

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

#[test]
fn only_files_are_read() {
    let folder = Folder::new(ALL);
    folder.write("sites.d/a.toml", site("a.test"));
    fs::create_dir(folder.at("sites.d/b.toml")).expect("a folder");
    // Nobody writes to it.
    mkfifoat(CWD, folder.at("sites.d/c.toml"), Mode::RUSR).expect("a pipe");
    assert_eq!(
        folder.problems(),
        [
            "sites.d/b.toml cannot read the file: it is no regular file",
            "sites.d/c.toml cannot read the file: it is no regular file",
        ]
    );
}

#[test]
fn a_folder_that_cannot_be_listed_is_an_error() {
    let folder = Folder::new(ALL);
    folder.write("sites.d/a.toml", site("a.test"));
    fs::set_permissions(folder.at("sites.d"), fs::Permissions::from_mode(0o0)).expect("a mode");
    // Root may list any.
    if rustix::process::geteuid().is_root() {
        return assert_eq!(folder.hosts(), ["a.test"]);
    }
    assert_eq!(
        folder.problems(),
        ["-:1:12 cannot list sites.d: Permission denied (os error 13)"]
    );
}

#[test]
fn what_others_may_write_to_is_noted() {
    let folder = Folder::new(&format!("{ALL}{SITE_ALONE}"));
    folder.write("sites.d/a.toml", site("a.test"));
    let set = |name: &str, mode: u32| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(folder.at(name), mode).expect("a mode");
    };
    for name in ["levity.toml", "sites.d/a.toml"] {
        set(name, 0o644);
    }
    set("sites.d", 0o755);
    assert_eq!(folder.notes(), [""; 0]);
    let who = "everyone may change it, and with it what this server does";
    set("levity.toml", 0o646);
    assert_eq!(folder.notes(), [who]);
    set("levity.toml", 0o644);
    set("sites.d/a.toml", 0o602);
    set("sites.d", 0o757);
    let expected = ["sites.d", "sites.d/a.toml"];
    let line = |name: &str| format!("line 1 of levity.toml: {name}: {who}");
    assert_eq!(folder.notes(), expected.map(line));
}

#[test]
fn files_with_another_end_are_noted() {
    let folder = Folder::new(&format!("{ALL}{SITE_ALONE}"));
    for name in [
        "README.md",
        ".hidden",
        "b~",
        "c.bak",
        "d.conf.dpkg-old",
        "e.toml.off",
        "#f.toml#",
        "g/h.conf",
    ] {
        folder.write(&format!("sites.d/{name}"), "# nothing\n");
    }
    folder.write("sites.d/a.toml", site("a.test"));
    assert_eq!(folder.notes(), [""; 0]);
    folder.write("sites.d/shop.conf", "");
    let note = "line 1 of levity.toml: sites.d/shop.conf is not included: its name does not end in `.toml`";
    assert_eq!(folder.notes(), [note]);
    folder.write("sites.d/shop", "");
    let note = "line 1 of levity.toml: sites.d/shop and 1 more there are not included: their names do not end in `.toml`";
    assert_eq!(folder.notes(), [note]);
    // One that the configuration names is meant for something else.
    let logged = format!(
        "[log]\naccess = \"{}\"\n",
        folder.at("sites.d/shop").display()
    );
    folder.write("sites.d/b.toml", logged);
    let note = "line 1 of levity.toml: sites.d/shop.conf is not included: its name does not end in `.toml`";
    assert_eq!(folder.notes(), [note]);
    // Beside the main file are others that it names.
    folder.write("users", "");
    folder.write(
        "levity.toml",
        format!("include = [\"*.toml\"]\n{SITE_ALONE}"),
    );
    assert!(
        folder.notes().iter().all(|note| !note.contains("users")),
        "{:?}",
        folder.notes()
    );
    // Other names are not meant.
    let main = ALL.replace("*.toml", "a*.toml");
    folder.write("levity.toml", format!("{main}{SITE_ALONE}"));
    assert_eq!(folder.notes(), [""; 0]);
}

#[test]
fn files_and_bytes_are_bounded() {
    let folder = Folder::new(&format!("{ALL}{SITE_ALONE}"));
    for number in 0..FILES_MAX {
        folder.write(&format!("sites.d/{number:05}.toml"), "");
    }
    assert_eq!(folder.loaded().files.names().count(), FILES_MAX + 1);
    folder.write("sites.d/x.toml", "");
    assert_eq!(
        folder.problems(),
        ["-:1:12 more than 4096 files are included"]
    );
    // Each alone may have so many.
    folder.write(
        "levity.toml",
        format!("include = [\"sites.d/0*.toml\", \"sites.d/x.toml\"]\n{SITE_ALONE}"),
    );
    assert_eq!(
        folder.problems(),
        ["-:1:31 more than 4096 files are included"]
    );
}

#[test]
fn all_files_together_are_bounded() {
    let main = format!("{ALL}{SITE_ALONE}");
    let folder = Folder::new(&main);
    let long = vec![b'#'; FILE_BYTES_MAX as usize];
    let count = BYTES_MAX / long.len();
    for number in 0..count {
        folder.write(&format!("sites.d/{number:02}.toml"), &long);
    }
    let last = format!("sites.d/{:02}.toml", count - 1);
    folder.write(&last, &long[..long.len() - main.len()]);
    assert_eq!(folder.loaded().files.names().count(), count + 1);
    folder.write(&last, &long[..=long.len() - main.len()]);
    let bytes = "levity.toml:1:12 the files have more than 16777216 bytes together";
    assert_eq!(folder.problems(), [bytes]);
    folder.write(&last, vec![b'#'; long.len() + 1]);
    fs::remove_file(folder.at("sites.d/00.toml")).expect("removed");
    let message = format!("{last} the file has more than 1048576 bytes");
    assert_eq!(folder.problems(), [message]);
}

#[test]
fn texts_are_read_again_as_they_were() {
    let folder = Folder::new(ALL);
    folder.write("sites.d/a.toml", site("a.test"));
    let config = folder.loaded();
    folder.write("sites.d/a.toml", "nonsense");
    folder.write("sites.d/b.toml", "nonsense");
    let again =
        load_again(&config.files, &Variables::default(), AbsentRoots::None).expect("as before");
    assert_eq!(again, config);
}

#[test]
fn names_are_those_of_the_command_line() {
    let folder = Folder::new(&format!("include = [\"{}\"]\n", "${FILES}/*.toml"));
    folder.write("secret-place/a.toml", "x = 1\n");
    let place = folder.at("secret-place");
    let variables = [("FILES", place.to_str().expect("text"))];
    let errors = crate::load(&folder.at("levity.toml"), &Variables::of(&variables));
    let errors = errors.expect_err("errors");
    // The file itself is named: whoever mends it has to find it.
    let file = &errors.problems[1].file;
    assert_eq!(file.as_deref(), Some(&*place.join("a.toml")));
    assert_eq!(errors.file, folder.at("levity.toml"));
}

#[test]
fn the_default_site_is_named() {
    let default = |lines: &str| {
        format!(
            "[[site]]\nhosts = [\"a.test\"]\nrespond = {{}}\n{lines}\n{}",
            site("b.test")
        )
    };
    let config = parse(&default("default = true")).expect("valid");
    assert_eq!(config.default_site(), Some(0));
    let config = parse(&default("default = false")).expect("valid");
    assert_eq!(config.default_site(), None);
    let config = parse(&format!("{}{SITE_ALONE}", site("a.test"))).expect("valid");
    assert_eq!(config.default_site(), Some(1));
    let config = parse(&format!("{SITE_ALONE}default = true\n")).expect("valid");
    assert_eq!(config.default_site(), Some(0));
    assert_problems(
        &format!("{}default = true\n", default("default = true")),
        &["8:11 `default`: a second site answers for all other names [the first is on line 4]"],
    );
    assert_problems(
        &format!("{SITE_ALONE}{}", default("default = true")),
        &[
            "1:1 a site without `hosts` beside one with `default`, which would never be asked [`default = true` is on line 6]",
        ],
    );
    let folder = Folder::new(&format!("{ALL}{}default = true\n", site("a.test")));
    folder.write(
        "sites.d/b.toml",
        format!("{}default = true\n", site("b.test")),
    );
    assert_eq!(
        folder.problems(),
        [
            "sites.d/b.toml:4:11 `default`: a second site answers for all other names [the first is on line 5 of levity.toml]"
        ]
    );
}

#[test]
fn the_order_of_files_chooses_no_certificate() {
    let tls = |host: &str| format!("{}tls = \"internal\"\n", site(host));
    let listen = "[[listen]]\naddress = \"443\"\n";
    let chosen = |main: &str, included: &[&str]| {
        let folder = Folder::new(main);
        for (number, text) in included.iter().enumerate() {
            folder.write(&format!("sites.d/{number}.toml"), text);
        }
        folder.loaded().default_tls_site()
    };
    let (a, b) = (tls("a.test"), tls("b.test"));
    let alone = format!("{listen}{}{a}{b}", site("c.test"));
    assert_eq!(chosen(&alone, &[]), None, "in one file");
    let main = format!("{ALL}{listen}");
    assert_eq!(chosen(&main, &[&a]), Some(0), "the only one");
    assert_eq!(chosen(&main, &[&site("c.test"), &a]), Some(1));
    assert_eq!(chosen(&main, &[&a, &b]), None);
    let default = format!("{b}default = true\n");
    assert_eq!(chosen(&main, &[&a, &default]), Some(1));
    let open = "[[site]]\nrespond = {}\ntls = \"internal\"\n";
    assert_eq!(chosen(&main, &[&a, open, &b]), Some(1));
    let plain = format!("{}default = true\n", site("c.test"));
    assert_eq!(chosen(&main, &[&plain, &a]), Some(1));
    assert_eq!(chosen(&main, &[&plain, &a, &b]), None);
}

#[test]
fn the_order_of_files_chooses_no_port() {
    let listen = |ports: &[u16]| {
        let listen = ports.iter().map(|port| Listen {
            tls: true,
            ..listen_at(&port.to_string())
        });
        redirect_port(&listen.collect::<Vec<_>>())
    };
    for (ports, expected) in [
        (&[][..], None),
        (&[0], None),
        (&[29443, 28443], Some(28443)),
        (&[28443, 29443], Some(28443)),
        (&[0, 29443], Some(29443)),
        (&[81, 443], None),
        (&[443, 81], None),
    ] {
        assert_eq!(listen(ports), expected, "{ports:?}");
    }
}

#[test]
fn a_site_for_all_names_has_one_error_at_one_place() {
    let open = "[[site]]\nrespond = {}\n";
    assert_problems(
        &format!("{open}{open}{}default = true\n", site("a.test")),
        &[
            "1:1 a site without `hosts` beside one with `default`, which would never be asked [`default = true` is on line 8]",
            "3:1 a site without `hosts` beside one with `default`, which would never be asked [`default = true` is on line 8]",
        ],
    );
    assert_problems(
        &format!("{open}default = true\n{open}default = true\n"),
        &["6:11 `default`: a second site answers for all other names [the first is on line 3]"],
    );
}

#[test]
fn a_note_says_what_clients_of_a_site_without_tls_get() {
    let listen = "[[listen]]\naddress = \"443\"\n";
    let tls = |host: &str| format!("{}tls = \"internal\"\n", site(host));
    let note = |sites: &str| {
        let config = parse(&format!("{listen}{}{sites}", site("plain.test"))).expect("valid");
        config.note_texts().join("\n")
    };
    let start = "line 3: the site has no `tls`: over TLS, clients that ask for `plain.test`";
    let other = format!("{start} get the certificate of another site, and refuse it");
    assert_eq!(note(&tls("a.test")), other);
    let (a, b) = (tls("a.test"), tls("b.test"));
    assert_eq!(note(&format!("{a}{b}default = true\n")), other);
    assert_eq!(note(&format!("{a}{b}")), format!("{start} are refused"));
}

#[test]
fn the_places_of_a_server_are_read_or_reported() {
    let places = |main: &str, other: &str| {
        let folder = Folder::new(main);
        folder.write("sites.d/a.toml", other);
        let is_enough = |places: &AdminPlaces| places.control.is_some();
        let main = folder.at("levity.toml");
        let places = load_admin(&main, &Variables::default(), is_enough);
        let control = places.map(|places| places.control);
        control.map_err(|errors| shown(&errors.problems))
    };
    let unset = "[admin]\ncontrol = \"unix:${NONE_SUCH}\"\n";
    let site = "[[site]]\nroot = \"${NONE_SUCH}\"\n";
    let named = "[admin]\ncontrol = \"unix:/run/s\"\n";
    for (main, other, expected) in [
        ("", "", Ok(None)),
        (ALL, site, Ok(None)),
        (ALL, "[admin] junk", Err("1:9 ")),
        ("[admin]\nlisten = \"127.0.0.1:1\"\n", "", Ok(None)),
        (unset, "", Err("`${NONE_SUCH}` is not set")),
        (ALL, unset, Err("`${NONE_SUCH}` is not set")),
        (
            "[admin]\nlisten = \"${NONE_SUCH}\"\n",
            "",
            Err("`${NONE_SUCH}` is not set"),
        ),
        ("admin = 1\n", "", Err("expected a table, found integer")),
        (
            "include = [\"none.toml\"]\n",
            "",
            Err("/none.toml: No such file"),
        ),
        (
            "include = [\"${NONE_SUCH}\"]\n",
            "",
            Err("`${NONE_SUCH}` is not set"),
        ),
        (ALL, named, Ok(Some("/run/s"))),
        (
            &format!("include = [\"none.toml\"]\n{named}{site}"),
            "",
            Ok(Some("/run/s")),
        ),
    ] {
        match (places(main, other), expected) {
            (Ok(control), Ok(expected)) => {
                assert_eq!(control.as_deref(), expected.map(Path::new), "{main}")
            }
            (Err(problems), Err(expected)) => {
                assert!(problems[0].contains(expected), "{problems:?}")
            }
            (found, _) => panic!("{main}{other}: {found:?}"),
        }
    }
}
