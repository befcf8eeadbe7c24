//! What a client gets after its upload.

use super::*;

/// The new content, whichever worker answers, and although the old one was in every cache.
#[test]
fn no_worker_answers_with_the_old_content() {
    for (tables, engine) in [("", "auto"), ("[disk]\nwatch = \"inotify\"\n", "threads")] {
        let ttl = match tables {
            "" => "[disk]\nentry_ttl = \"1h\"\n",
            watch => watch,
        };
        let root = writable();
        for name in ["index.html", "file", "page.html"] {
            root.file(name, "0");
        }
        crate::support::settle();
        let keys =
            format!("listing = true\ntry = [\"file\", \"file.html\"]\nupload = {{ {ALL} }}\n");
        let server = Launch::site(root.path(), ttl, &keys)
            .engine(engine)
            .workers(4)
            .start();
        let mut readers: Vec<_> = (0..24).map(|_| server.client()).collect();
        let mut writer = server.client();
        for round in 1..=5 {
            for (put_at, get_at) in [
                ("/index.html", "/"),
                ("/file", "/file"),
                ("/page.html", "/page"),
            ] {
                // So that it is in the cache of each worker.
                for reader in &mut readers {
                    reader.get(get_at).assert_status(200);
                }
                let body = round.to_string();
                put(&mut writer, put_at, &[], body.as_bytes()).assert_status(204);
                for reader in &mut readers {
                    assert_eq!(reader.get(get_at).text(), body, "{get_at} in round {round}");
                }
            }
        }
        for reader in &mut readers {
            reader.get("/new").assert_status(404);
        }
        put(&mut writer, "/new", &[], b"1").assert_status(201);
        for reader in &mut readers {
            assert_eq!(reader.get("/new").text(), "1");
        }
        writer.request("DELETE", "/new", &[]).assert_status(204);
        for reader in &mut readers {
            reader.get("/new").assert_status(404);
        }
    }
}

/// A listing that is shared by its clients is not that of before.
#[test]
fn listings_have_what_is_there() {
    let root = writable();
    for number in 0..3000 {
        root.file(format!("many/{number:05}-with-a-name-of-some-length"), "");
    }
    fs::set_permissions(root.at("many"), Permissions::from_mode(0o777)).expect("chmod");
    let server = with(root.path(), "[disk]\nentry_ttl = \"1h\"\n", ALL)
        .workers(2)
        .start();
    let mut client = server.client();
    let mut readers = [server.client(), server.client(), server.client()];
    for round in 0..4 {
        let name = format!("new-{round}");
        let path = format!("/many/{name}");
        put(&mut client, &path, &[], b"1").assert_status(201);
        for reader in &mut readers {
            assert!(reader.get("/many/").text().contains(&name), "{name}");
        }
        client.request("DELETE", &path, &[]).assert_status(204);
        for reader in &mut readers {
            assert!(!reader.get("/many/").text().contains(&name), "{name}");
        }
    }
}

/// Another route, without uploads, has the same files.
#[test]
fn other_routes_with_the_root_get_the_new_content_too() {
    let root = writable();
    root.file("a/file", "0");
    fs::set_permissions(root.at("a"), Permissions::from_mode(0o777)).expect("chmod");
    crate::support::settle();
    let keys = "[[site.route]]\npath = \"/write/*\"\nstrip_prefix = \"/write\"\nupload = {}\n";
    let ttl = "[disk]\nentry_ttl = \"1h\"\n";
    let server = Launch::site(root.path(), ttl, keys).workers(2).start();
    let mut readers = [server.client(), server.client(), server.client()];
    for round in 1..4 {
        for reader in &mut readers {
            reader.get("/a/file").assert_status(200);
        }
        let body = round.to_string();
        put_new(&server, "/write/a/file", body.as_bytes()).assert_status(204);
        put_new(&server, "/a/file", body.as_bytes()).assert_status(405);
        for reader in &mut readers {
            assert_eq!(reader.get("/a/file").text(), body);
        }
    }
}

/// Other sites have the folder of the uploads, a folder around it, and one within it.
#[test]
fn roots_within_each_other_get_the_new_content_too() {
    let root = writable();
    let kept = root.at("kept");
    root.file("kept/a/file", "0");
    for folder in ["kept", "kept/a"] {
        fs::set_permissions(root.at(folder), Permissions::from_mode(0o777)).expect("chmod");
    }
    std::os::unix::fs::symlink("kept", root.at("link")).expect("a link");
    crate::support::settle();
    let site = |host: &str, folder: &str| {
        let root = root.at(folder);
        format!(
            "[[site]]\nhosts = [\"{host}\"]\nroot = \"{}\"\n",
            root.display()
        )
    };
    let keys = [
        format!("upload = {{ {ALL} }}\n"),
        site("around", ""),
        site("link", "link"),
        site("within", "kept/a"),
    ];
    let ttl = "[disk]\nentry_ttl = \"1h\"\n";
    let server = Launch::site(&kept, ttl, &keys.concat()).workers(2).start();
    let mut readers = [server.client(), server.client(), server.client()];
    let get = |reader: &mut Client, name: &str| {
        let places = [("around", "/kept/a"), ("link", "/a"), ("within", "")];
        places.map(|(host, folder)| reader.get_for(host, &format!("{folder}/{name}")))
    };
    for round in 1..4 {
        for reader in &mut readers {
            get(reader, "file")
                .iter()
                .for_each(|answer| answer.assert_status(200));
        }
        let body = round.to_string();
        put_new(&server, "/a/file", body.as_bytes()).assert_status(204);
        for reader in &mut readers {
            for answer in get(reader, "file") {
                assert_eq!(answer.text(), body);
            }
        }
    }
    for reader in &mut readers {
        get(reader, "new")
            .iter()
            .for_each(|answer| answer.assert_status(404));
    }
    put_new(&server, "/a/new", b"1").assert_status(201);
    for reader in &mut readers {
        get(reader, "new")
            .iter()
            .for_each(|answer| answer.assert_status(200));
    }
}
