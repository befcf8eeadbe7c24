//! Files as they are loaded, and the paths in them.

use super::*;

#[test]
fn a_tilde_is_no_home() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levity.toml");
    let help = |root: &str| {
        std::fs::write(&file, format!("[[site]]\nroot = \"{root}\"\n")).unwrap();
        let problems = load(&file).expect_err(root).problems;
        problems.into_iter().next().unwrap().help
    };
    let reports = help("~/www").expect("a hint");
    assert!(reports.contains("is not expanded"), "{reports}");
    assert_eq!(help("absent"), None);
    std::fs::create_dir_all(folder.path().join("~/www")).unwrap();
    std::fs::write(&file, "[[site]]\nroot = \"~/www\"\n").unwrap();
    assert!(load(&file).is_ok());
}

#[test]
fn paths_are_taken_from_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levity.toml");
    for name in ["www", "logs"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let text = "[log]\naccess = \"logs/a\"\n[admin]\nlisten = \"unix:admin\"\n[[listen]]\naddress = \"unix:clients\"\n\
                [[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/*\"\nroot = \"/\"\n";
    std::fs::write(&file, text).unwrap();
    let config = load(&file).unwrap();
    assert_eq!(
        config.log.access,
        AccessLog::File(folder.path().join("logs/a"))
    );
    assert_eq!(
        config.admin.map(|admin| admin.listen),
        Some(Address::Unix(folder.path().join("admin")))
    );
    assert_eq!(
        config.listen,
        [Listen::from(Address::Unix(folder.path().join("clients")))]
    );
    assert_eq!(
        config.sites[0].location.root,
        Some(folder.path().join("www"))
    );
    assert_eq!(
        config.sites[0].routes[0].location.root.as_deref(),
        Some(Path::new("/"))
    );
}

/// What is said of `text` as the file `levity.toml` of `folder`.
fn messages(folder: &Path, text: &str) -> Vec<String> {
    let file = folder.join("levity.toml");
    std::fs::write(&file, text).unwrap();
    let problems = load(&file).unwrap_err().problems;
    problems.into_iter().map(|one| one.message).collect()
}

#[test]
fn roots_must_exist_and_be_folders() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        "[[site]]\nroot = \"absent\"\n[[site.route]]\npath = \"/*\"\nroot = \"levity.toml\"\n";
    let messages = messages(folder.path(), text);
    let shown = folder.path().display();
    assert_eq!(
        messages,
        [
            format!("`root`: {shown}/absent does not exist"),
            format!("`root`: {shown}/levity.toml is not a folder")
        ]
    );
    assert!(parse(text).is_ok());
}

/// The server makes these files, but not the folders around them.
#[test]
fn folders_of_logs_and_sockets_must_exist() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[log]\naccess = \"absent/a\"\n[admin]\nlisten = \"unix:absent/b\"\n\
                [[listen]]\naddress = \"unix:levity.toml/c\"\n[[site]]\nroot = \".\"\n";
    let messages = messages(folder.path(), text);
    let shown = folder.path().display();
    assert_eq!(
        messages,
        [
            format!("`access`: {shown}/absent does not exist"),
            format!("`listen`: {shown}/absent does not exist"),
            format!("`address`: {shown}/levity.toml is not a folder"),
        ]
    );
    assert!(parse(text).is_ok());
}

#[test]
fn addresses_that_cannot_be_had_together() {
    assert_problems_beside(
        "[[listen]]\naddress = \"8080\"\n[[listen]]\naddress = \"0.0.0.0:8080\"\n[[listen]]\naddress = \"[::1]:81\"\n\
         [admin]\nlisten = \"[::]:81\"",
        &[
            "4:11 `address`: 0.0.0.0:8080 conflicts with [::]:8080: one of them is every address of the machine \
             [that is on line 2]",
            "8:10 `listen`: [::]:81 conflicts with [::1]:81: one of them is every address of the machine",
        ],
    );
}

#[test]
fn files_that_are_no_text() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levity.toml");
    let refused = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        load(&file).unwrap_err().problems[0].message.clone()
    };
    assert_eq!(refused(b"a = 1\n\xff"), "the file is not UTF-8");
    assert_eq!(
        refused(&vec![b'\n'; FILE_BYTES_MAX as usize + 1]),
        "the file has more than 1048576 bytes"
    );
    assert_eq!(
        refused(&vec![b'\n'; FILE_BYTES_MAX as usize]),
        "no site is configured"
    );
    assert!(
        load(folder.path()).unwrap_err().problems[0]
            .message
            .starts_with("cannot read the file: ")
    );
}

#[test]
fn the_spool_must_exist_when_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levity.toml");
    let spool = |line: &str| {
        std::fs::write(&file, format!("[disk]\n{line}\n[[site]]\nroot = \".\"")).unwrap();
        load(&file).map(|config| config.disk.spool)
    };
    assert_eq!(spool("").unwrap(), Path::new("/var/tmp"));
    assert_eq!(spool("spool = \".\"").unwrap(), folder.path().join("."));
    let problems = spool("spool = \"absent\"").unwrap_err().problems;
    assert!(problems[0].message.ends_with("/absent does not exist"));
}
