//! Files as they are on the disk, and how many there may be.

use super::*;

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
