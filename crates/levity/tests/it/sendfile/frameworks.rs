//! Frameworks that leave files to the server, unmodified, behind it.

use super::assert_no_talk;
use crate::support::{Answer, App, Client, Launch, Server, Tree, assert_same, sha256};

/// More than one chunk.
const FILE_BYTES: usize = 700_003;

struct Files {
    tree: Tree,
    bytes: Vec<u8>,
}

impl Files {
    fn new() -> Self {
        let tree = Tree::new();
        let bytes = tree.filled("some file.bin", FILE_BYTES);
        Self { tree, bytes }
    }

    fn folder(&self) -> String {
        self.tree.path().display().to_string()
    }

    /// Its path as a value in a query.
    fn path(&self) -> String {
        self.folder() + "/some%20file.bin"
    }

    /// A server in front of `app` that may send them.
    fn behind(&self, app: &App, protocol: &str, site: &str) -> Server {
        let (to, folder) = (app.address(), self.folder());
        Launch::run(&format!(
            "[server]\nworkers = 1\n[[listen]]\naddress = \"127.0.0.1:0\"\n\
             [[upstream]]\nname = \"app\"\nprotocol = \"{protocol}\"\nto = [\"{to}\"]\n\
             sendfile_roots = [\"{folder}\"]\nconnections = 1\n\
             [[site]]\nproxy = \"app\"\n{site}\n\
             [[site.route]]\npath = \"/protected/*\"\nroot = \"{folder}\"\nstrip_prefix = \"/protected\"\ninternal = true\n"
        ))
        .start()
    }

    /// The file, whole and in part, as often as one likes on one connection to the application.
    #[track_caller]
    fn assert_sent(&self, client: &mut Client, target: &str) -> Answer {
        for _ in 0..3 {
            let whole = client.get(target);
            whole.assert_status(200);
            assert_eq!(sha256(&whole.body), sha256(&self.bytes));
            assert_no_talk(&whole);
            let part = client.get_with(target, &[("Range", "bytes=700000-")]);
            part.assert_status(206);
            assert_same(&part.body, &self.bytes[700_000..]);
            assert_eq!(part.field("content-range"), "bytes 700000-700002/700003");
        }
        let whole = client.get(target);
        let etag = whole.field("etag");
        client
            .get_with(target, &[("If-None-Match", etag)])
            .assert_status(304);
        let head = client.head(target);
        assert_eq!((head.status, head.length()), (200, Some(FILE_BYTES)));
        whole
    }
}

#[test]
fn django() {
    let (app, files) = (App::gunicorn(), Files::new());
    let server = files.behind(&app, "http", "");
    let mut client = server.client();
    for backend in ["xsendfile", "nginx"] {
        let folder = files.folder();
        let target = format!("/django?backend={backend}&root={folder}&path=some%20file.bin");
        let answer = files.assert_sent(&mut client, &target);
        assert_eq!(answer.field("content-type"), "application/octet-stream");
    }
}

#[test]
fn flask() {
    let (app, files) = (App::gunicorn(), Files::new());
    let server = files.behind(&app, "http", "");
    let target = format!("/flask?path={}", files.path());
    let answer = files.assert_sent(&mut server.client(), &target);
    assert!(
        answer
            .field("content-disposition")
            .contains("some file.bin")
    );
}

/// WSGI has no other way to send such a name than in Latin-1.
#[test]
fn flask_with_a_name_beyond_ascii() {
    let (app, files) = (App::gunicorn(), Files::new());
    for name in ["ü x.txt", "ü"] {
        files.tree.file(name, name);
    }
    let server = files.behind(&app, "http", "");
    let mut client = server.client();
    for (name, escaped) in [("ü x.txt", "%C3%BC%20x.txt"), ("ü", "%C3%BC")] {
        let answer = client.get(&format!("/flask?path={}/{escaped}", files.folder()));
        assert_eq!((answer.status, answer.text()), (200, name.to_owned()));
    }
}

#[test]
fn rack() {
    let (app, files) = (App::puma(), Files::new());
    let server = files.behind(&app, "http", "");
    let mut client = server.client();
    let target = format!("/file?path={}", files.path());
    let whole = client.get(&target);
    whole.assert_status(200);
    assert_same(&whole.body, &files.bytes);
    assert_eq!(whole.field("x-kept-type"), "X-Sendfile");
    assert_no_talk(&whole);
    // Rack cuts ranges itself.
    let part = client.get_with(&target, &[("Range", "bytes=700000-")]);
    assert_eq!(
        (part.status, &part.body[..]),
        (206, &files.bytes[700_000..])
    );
    let head = client.head(&target);
    assert_eq!((head.status, head.length()), (200, Some(FILE_BYTES)));
    // A client cannot choose.
    let evil = [
        ("X-Sendfile-Type", "X-Accel-Redirect"),
        ("X-Accel-Mapping", "/=/protected/"),
    ];
    let whole = client.get_with(&target, &evil);
    assert_eq!(
        (whole.status, whole.field("x-kept-type")),
        (200, "X-Sendfile")
    );
}

#[test]
fn symfony() {
    let (app, files, php) = (App::php_fpm(), Files::new(), App::php());
    let site = format!(
        "root = \"{}\"\nscript_suffix = \".php\"",
        php.path().display()
    );
    let server = files.behind(&app, "fastcgi", &site);
    let target = format!("/symfony.php?path={}", files.path());
    let answer = files.assert_sent(&mut server.client(), &target);
    assert!(answer.field("content-type").starts_with("text/x-symfony"));
}

#[test]
fn plain_php() {
    let (app, files, php) = (App::php_fpm(), Files::new(), App::php());
    let site = format!(
        "root = \"{}\"\nscript_suffix = \".php\"",
        php.path().display()
    );
    let server = files.behind(&app, "fastcgi", &site);
    let mut client = server.client();
    for wish in [
        format!("X-Sendfile:%20{}", files.path()),
        format!("X-LIGHTTPD-send-file:%20{}", files.path()),
        "X-Accel-Redirect:%20/protected/some%2520file.bin".to_owned(),
    ] {
        let disposition = "Content-Disposition:%20attachment;%20filename=a.bin";
        let target = format!("/answer.php?header[]={wish}&header[]={disposition}&zeros=100000");
        let answer = files.assert_sent(&mut client, &target);
        assert_eq!(
            answer.field("content-disposition"),
            "attachment; filename=a.bin"
        );
    }
}
