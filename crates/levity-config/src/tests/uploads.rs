//! `upload`: where clients may write.

use super::*;
use crate::{Upload, UploadMethod};

const SITE: &str = "[[upstream]]\nname = \"a\"\nto = [\"127.0.0.1:1\"]\n[[site]]\n";

fn at(location: &Location) -> Option<&Upload> {
    location.upload.as_ref()
}

#[test]
fn values_and_defaults() {
    let site = |lines: &str| {
        let text = format!("[[site]]\nroot = \"/srv\"\n[site.upload]\n{lines}");
        let site = parse(&text).expect("a configuration").sites.remove(0);
        site.location.upload.expect("an upload")
    };
    let defaults = site("");
    let expected = Upload {
        methods: vec![UploadMethod::Put],
        max_file_bytes: 100 << 20,
        quota_bytes: None,
        overwrite: true,
        create_folders: false,
        fsync: false,
        resume: Duration::from_secs(3600),
        resume_parts: 64,
    };
    assert_eq!(defaults, expected);
    let all = site(
        "methods = [\"MKCOL\", \"DELETE\"]\nmax_file_bytes = \"1KiB\"\nquota_bytes = \"1GiB\"\noverwrite = false\n\
         create_folders = true\nfsync = true\nresume = \"0s\"\nresume_parts = 3\n",
    );
    let expected = Upload {
        methods: vec![UploadMethod::Mkcol, UploadMethod::Delete],
        max_file_bytes: 1024,
        quota_bytes: Some(1 << 30),
        overwrite: false,
        create_folders: true,
        fsync: true,
        resume: Duration::ZERO,
        resume_parts: 3,
    };
    assert_eq!(all, expected);
}

#[test]
fn routes_inherit_it_without_a_root_of_their_own() {
    let text = "[[site]]\nroot = \"/srv\"\nupload = { max_file_bytes = \"1KiB\" }\n\
        [[site.route]]\npath = \"/same/*\"\n\
        [[site.route]]\npath = \"/other/*\"\nroot = \"/srv/other\"\n\
        [[site.route]]\npath = \"/off/*\"\nupload = false\n\
        [[site.route]]\npath = \"/own/*\"\nupload = { methods = [\"DELETE\"] }\n\
        [[site.route]]\npath = \"/internal/*\"\ninternal = true\n";
    let site = parse(text).expect("a configuration").sites.remove(0);
    let found = site
        .locations()
        .map(|location| at(location).map(|upload| (upload.methods.clone(), upload.max_file_bytes)));
    let of_site = Some((vec![UploadMethod::Put], 1024));
    let own = Some((vec![UploadMethod::Delete], 100 << 20));
    let expected = [of_site.clone(), None, None, own, None, of_site];
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn tables_that_could_write_nothing() {
    for (lines, expected) in [
        ("proxy = \"a\"\nupload = {}\n", "there is no `root`"),
        (
            "root = \"/srv\"\nproxy = \"a\"\nupload = {}\n",
            "all requests go to the upstream",
        ),
        (
            "root = \"/srv\"\nupload = {}\nredirect = { to = \"/b\" }\n",
            "`upload`: `redirect` answers every request here",
        ),
        (
            "root = \"/srv\"\nupload = { methods = [] }\n",
            "`methods`: it is empty",
        ),
        (
            "root = \"/srv\"\nupload = { methods = [\"PUT\", \"PUT\"] }\n",
            "given twice",
        ),
        (
            "root = \"/srv\"\nupload = { methods = [\"POST\"] }\n",
            "POST",
        ),
        ("root = \"/srv\"\nupload = true\n", "expected"),
        (
            "root = \"/srv\"\n[[site.route]]\npath = \"/a/*\"\ninternal = true\nupload = {}\n",
            "nothing is written at internal routes",
        ),
    ] {
        let problems = messages(&format!("{SITE}{lines}"));
        let found = problems.iter().filter(|problem| problem.contains(expected));
        assert_eq!(found.count(), 1, "{lines}: {problems:?}");
    }
    let proxied = "root = \"/srv\"\nproxy = \"a\"\ntry = [\"file\", \"proxy\"]\nupload = {}\n";
    parse(&format!("{SITE}{proxied}")).expect("files answer too");
}

#[test]
fn roots_of_uploads_do_not_lie_in_each_other() {
    let two = |first: &str, second: &str| {
        let text = format!(
            "[[site]]\nroot = \"{first}\"\nupload = {{}}\n\
             [[site.route]]\npath = \"/a/*\"\nroot = \"{second}\"\nupload = {{}}\n"
        );
        parse(&text).map_err(|problems| problems[0].message.clone())
    };
    for (first, second) in [
        ("/srv", "/srv/a"),
        ("/srv/a/b", "/srv"),
        ("/srv/../srv", "/srv/x"),
    ] {
        let message = two(first, second).expect_err("nested roots");
        assert!(
            message.contains("lies in") && message.contains("on line 3"),
            "{message}"
        );
    }
    for (first, second) in [("/srv", "/srv"), ("/srv/a", "/srv/ab")] {
        two(first, second).expect("apart");
    }
}

/// A link is no way around it.
#[test]
fn roots_are_compared_as_they_are_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("levity.toml");
    std::fs::create_dir_all(folder.path().join("www/inner")).unwrap();
    std::os::unix::fs::symlink("www", folder.path().join("link")).unwrap();
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        load(&file).map_err(|errors| errors.problems[0].message.clone())
    };
    let message = load(
        "[[site]]\nroot = \"link/inner\"\nupload = {}\n\
         [[site.route]]\npath = \"/a/*\"\nroot = \"www\"\nupload = {}\n",
    );
    let message = message.expect_err("nested roots");
    assert!(message.contains("lies in"), "{message}");
}

#[test]
fn notes_say_who_may_write() {
    let notes = |gate: &str| {
        let text = format!("[[site]]\nroot = \"/srv\"\n{gate}upload = {{}}\n");
        parse(&text).expect("a configuration").note_texts()
    };
    let open = notes("");
    assert!(open.len() == 1 && open[0].contains("everyone"), "{open:?}");
    let signed = notes("signed_url = { secret = \"0123456789abcdef\" }\n");
    assert!(
        signed.len() == 1 && signed[0].contains("every method"),
        "{signed:?}"
    );
    for gate in [
        "allow = [\"10.0.0.0/8\"]\n",
        "basic_auth = { users = \"users\" }\n",
    ] {
        assert_eq!(notes(gate), [""; 0], "{gate}");
    }
}
