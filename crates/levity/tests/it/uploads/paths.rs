//! Which names may be written.

use std::os::unix::fs::symlink;

use super::*;

#[test]
fn links_lead_nowhere() {
    let (root, outside) = (writable(), writable());
    outside.file("file", "outside");
    root.file("inside/file", "inside");
    symlink(outside.path(), root.at("out")).expect("symlink");
    symlink(outside.at("file"), root.at("file-link")).expect("symlink");
    symlink("inside", root.at("in")).expect("symlink");
    symlink("absent", root.at("dangling")).expect("symlink");
    let keys = format!("{ALL}, create_folders = true");
    for symlinks in ["beneath", "follow"] {
        let upload = format!("symlinks = \"{symlinks}\"\nupload = {{ {keys} }}\n");
        let server = Launch::site(root.path(), "", &upload).start();
        for path in [
            "/out/new",
            "/out/file",
            "/file-link",
            "/in/file",
            "/in/new",
            "/dangling",
        ] {
            put_new(&server, path, b"1").assert_status(403);
            let status = server.client().request("DELETE", path, &[]).status;
            assert_eq!(status, 403, "{path}");
        }
        let made = server.client().request("MKCOL", "/out/folder", &[]);
        made.assert_status(403);
        server
            .client()
            .request("DELETE", "/in", &[])
            .assert_status(403);
    }
    assert_eq!(fs::read(outside.at("file")).expect("a file"), b"outside");
    assert_eq!(names(outside.path()), ["file"]);
    assert_eq!(names(&root.at("inside")), ["file"]);
}

#[test]
fn names_that_no_request_may_have() {
    let root = writable();
    root.file("secret.bak", "1");
    let keys = "hide = [\"*.bak\"]\nshow = [\".shown\"]\n";
    let keys = format!("{keys}upload = {{ {ALL}, create_folders = true }}\n");
    let server = Launch::site(root.path(), "", &keys).start();
    let long = "a".repeat(255);
    put_new(&server, &format!("/{long}"), b"1").assert_status(201);
    let deep = "/b".repeat(2049);
    for (path, status) in [
        ("/../file", 400),
        ("/a%2fb", 400),
        ("/a%00b", 400),
        ("/.hidden", 403),
        ("/.hidden/file", 403),
        ("/secret.bak", 403),
        ("/new.bak", 403),
        (&format!("/{long}a"), 414),
        (&deep, 414),
        ("/", 409),
        ("/.shown", 201),
        ("/.well-known/file", 201),
        ("/a/./b//c", 201),
    ] {
        let found = put_new(&server, path, b"1").status;
        assert_eq!(found, status, "{path}");
        if status != 201 && path != "/" {
            let made = server.client().request("MKCOL", path, &[]);
            assert_eq!(made.status, status, "MKCOL {path}");
        }
    }
    assert_eq!(
        names(root.path()),
        [".shown", ".well-known", "a", &long, "secret.bak"]
    );
    assert_eq!(fs::read(root.at("a/b/c")).expect("a file"), b"1");
    let removed = server.client().request("DELETE", "/secret.bak", &[]);
    removed.assert_status(403);
}

/// An application's sources are not served, and none is planted.
#[test]
fn scripts_are_not_written() {
    let root = writable();
    let config = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\n[[upstream]]\nname = \"php\"\nprotocol = \"fastcgi\"\nto = [\"127.0.0.1:1\"]\n\
         [[site]]\nroot = \"{}\"\nupload = {{}}\n\
         [[site.route]]\npath = \"/app/*\"\nproxy = \"php\"\n",
        root.path().display()
    );
    let server = Launch::run(&config).start();
    put_new(&server, "/shell.php", b"1").assert_status(403);
    put_new(&server, "/a.txt", b"1").assert_status(201);
    assert_eq!(names(root.path()), ["a.txt"]);
}

#[test]
fn another_file_system_beneath_the_root_is_refused_before_the_body() {
    if !crate::support::is_root() {
        return;
    }
    let root = writable();
    let mount = super::limits::Mounted::tmpfs(root.folder("mounted"), "1M");
    let server = taking(root.path(), &format!("{ALL}, create_folders = true")).start();
    for path in ["/mounted/file", "/mounted/new/file"] {
        let mut client = server.client();
        let headers = [("Content-Length", "9"), ("Expect", "100-continue")];
        client.send(head("PUT", path, &headers));
        client.receive().assert_status(409);
    }
    root.file("mounted/file", "1");
    fs::create_dir(root.at("mounted/folder")).expect("a folder");
    for (method, path) in [
        ("MKCOL", "/mounted/new"),
        ("DELETE", "/mounted/file"),
        ("DELETE", "/mounted/folder"),
        ("DELETE", "/mounted"),
    ] {
        let answer = server.client().request(method, path, &[]);
        assert_eq!(answer.status, 409, "{method} {path}");
    }
    assert_eq!(names(&root.at("mounted")), ["file", "folder"]);
    drop(server);
    drop(mount);
}

#[test]
fn folders_have_a_maximum_depth() {
    const FOLDERS_MAX: usize = 64;
    let root = writable();
    // The folders, one that is too deep, and two files.
    let quota = 10_000 + (FOLDERS_MAX + 3) * NAME_BYTES;
    let keys = format!("{ALL}, create_folders = true, quota_bytes = \"{quota}B\"");
    let server = taking(root.path(), &keys).start();
    let deepest = "/d".repeat(FOLDERS_MAX);
    let deeper = format!("{deepest}/d");
    put_new(&server, &format!("{deepest}/file"), &content(1, 4000)).assert_status(201);
    let file = format!("{deeper}/file");
    let answer = put_new(&server, &file, b"1");
    answer.assert_status(400);
    assert!(answer.text().contains("64 folders"), "{answer:?}");
    let mut client = server.client();
    client.request("MKCOL", &deeper, &[]).assert_status(201);
    client.request("MKCOL", &file, &[]).assert_status(400);
    client.request("DELETE", &file, &[]).assert_status(400);
    drop(server);
    // What another program has put deeper is not counted.
    root.file(&file[1..], content(1, 9000));
    let server = taking(root.path(), &keys).start();
    put_new(&server, "/more", &content(2, 6001)).assert_status(507);
    put_new(&server, "/exact", &content(2, 6000)).assert_status(201);
}

/// With a final slash, its path is too long to be opened.
#[test]
fn a_folder_with_the_longest_path_does_not_keep_a_quota_from_being_counted() {
    let root = writable();
    let keys = format!("{ALL}, quota_bytes = \"1MiB\"");
    let names = vec!["n".repeat(255); 16];
    let mut path = String::new();
    let server = taking(root.path(), &keys).start();
    let mut client = server.client();
    for name in &names {
        path = format!("{path}/{name}");
        client.request("MKCOL", &path, &[]).assert_status(201);
    }
    assert_eq!(path.len(), 1 + 4095);
    drop(server);
    let server = taking(root.path(), &keys).start();
    put_new(&server, "/file", b"1").assert_status(201);
}

#[test]
fn gates_come_first() {
    let root = writable();
    root.file("file", "old");
    let hash = "$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC";
    let users = Tree::new();
    users.file("users", format!("a:{hash}\n"));
    let users = users.at("users").display().to_string();
    for gate in [
        "deny = [\"all\"]\n".to_owned(),
        format!("basic_auth = {{ users = \"{users}\" }}\n"),
        "signed_url = { secret = \"0123456789abcdef\" }\n".to_owned(),
    ] {
        let keys = format!("{gate}upload = {{ {ALL} }}\n");
        let server = Launch::site(root.path(), "", &keys).start();
        for method in ["DELETE", "MKCOL"] {
            let status = server.client().request(method, "/file", &[]).status;
            assert!(matches!(status, 401 | 403), "{method}: {status}");
        }
        // The refusal is that of the gate also for a body that is too long to be dropped.
        for bytes in [1, 2_000_000] {
            let answer = put_new(&server, "/file", &content(1, bytes));
            assert!(matches!(answer.status, 401 | 403), "{answer:?}");
        }
        let mut client = server.client();
        let headers = [("Content-Length", "9000000"), ("Expect", "100-continue")];
        client.send(head("PUT", "/file", &headers));
        let status = client.receive().status;
        assert!(matches!(status, 401 | 403), "{status}");
    }
    assert_eq!(fs::read(root.at("file")).expect("a file"), b"old");
    assert_eq!(names(root.path()), ["file"]);
}

/// The client is told as little as possible, and the operator why: modes do not show what a file system in user space allows.
#[test]
fn the_log_says_why_the_server_may_not_write() {
    let tree = writable();
    tree.folder("closed");
    let closed = Permissions::from_mode(0o555);
    fs::set_permissions(tree.at("closed"), closed).expect("chmod");
    let server = taking(tree.path(), ALL).start();
    put_new(&server, "/closed/a", b"x").assert_status(403);
    server.says("closed/a beneath ");
    assert!(
        server.stderr().contains("Permission denied"),
        "{}",
        server.stderr()
    );
}
