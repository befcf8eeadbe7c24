//! WordPress, as Debian has it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::clients::curl;
use crate::compress::{self, accepting, assert_coded, assert_identity};
use crate::support::{App, CODINGS, Server, Tree, assert_same, content, in_front_of, multipart};

const SOURCES: &str = "/usr/share/wordpress";

/// What docs/tasks/php.md says.
const KEYS: &str = "index = [\"index.php\", \"index.html\"]\ntry = [\"file\", \"proxy\"]\n\
    script_suffix = \".php\"\nscript_index = \"index.php\"\nbody_bytes = \"64MiB\"\n";
const UPLOADS: &str = "[[site.route]]\npath = \"/wp-content/uploads/*\"\ntry = [\"file\"]";

/// A document root with the scripts of the package, and a configuration of its own. A script looks for the others in
/// its own folder, which for the target of a link would be that of the package.
fn root(database: &App) -> Tree {
    let tree = Tree::new();
    for entry in fs::read_dir(SOURCES).expect("the package wordpress") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        let is_script = path.extension().is_some_and(|extension| extension == "php");
        if is_script && name != "wp-config.php" {
            tree.file(name, fs::read(&path).expect("read"));
        }
    }
    for folder in ["wp-admin", "wp-includes", "wp-content"] {
        copy(&Path::new(SOURCES).join(folder), &tree, folder.as_ref());
    }
    let socket = database.address().trim_start_matches("unix:");
    let config = format!(
        "<?php\n\
         define('DB_NAME', 'wordpress');\ndefine('DB_USER', 'wordpress');\ndefine('DB_PASSWORD', '');\n\
         define('DB_HOST', 'localhost:{socket}');\ndefine('DB_CHARSET', 'utf8mb4');\n\
         define('DISABLE_WP_CRON', true);\ndefine('WP_HTTP_BLOCK_EXTERNAL', true);\n\
         define('WP_DEFAULT_THEME', 'twentytwentythree');\n\
         $table_prefix = 'wp_';\n\
         if (!defined('ABSPATH')) define('ABSPATH', __DIR__ . '/');\n\
         require_once ABSPATH . 'wp-settings.php';\n"
    );
    tree.file("wp-config.php", config);
    let uploads = tree.folder("wp-content/uploads");
    fs::set_permissions(uploads, Permissions::from_mode(0o777)).expect("chmod");
    tree
}

/// Links of the package lead out of it.
fn copy(from: &Path, tree: &Tree, to: &Path) {
    tree.folder(to);
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let to = to.join(path.file_name().expect("a name"));
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => copy(&path, tree, &to),
            Ok(_) => drop(tree.file(to, fs::read(&path).expect("read"))),
            // A link to what is in a recommended package.
            Err(_) => {}
        }
    }
}

#[track_caller]
fn install(server: &Server) {
    let form = "weblog_title=Levity&user_name=admin&admin_password=secret&admin_password2=secret&pw_weak=1\
                &admin_email=admin%40example.org&blog_public=0&Submit=Install";
    let mut client = server.client();
    client.send(format!(
        "POST /wp-admin/install.php?step=2 HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    ));
    let answer = client.receive();
    let page = answer.text();
    assert!(answer.status == 200 && page.contains("Success!"), "{page}");
}

/// WordPress behind a server, installed.
struct Blog {
    server: Server,
    root: Tree,
    _php: App,
    _database: App,
}

impl Blog {
    fn new(keys: &str) -> Self {
        let database = App::mariadb();
        let (php, root) = (App::large_php_fpm(), root(&database));
        let upstream = "buffer_requests = true";
        let to = [php.address()];
        let server = in_front_of(&to, "fastcgi", upstream, &root, keys).start();
        install(&server);
        Self {
            server,
            root,
            _php: php,
            _database: database,
        }
    }
}

/// Somebody with a browser, who keeps cookies and follows redirects. The installation takes its URL from the first
/// request, which was for `localhost`.
struct Visitor<'a> {
    server: &'a Server,
    own: Tree,
}

impl Visitor<'_> {
    #[track_caller]
    fn page(&self, path: &str, more: &[&str]) -> String {
        let to = format!("::{}", self.server.address());
        let url = format!("http://localhost{path}");
        let arguments = ["--cookie", "jar", "--cookie-jar", "jar", "--location"];
        let page = curl(
            &[&arguments[..], &["--connect-to", &to], more, &[&url]].concat(),
            self.own.path(),
        );
        String::from_utf8_lossy(&page).into_owned()
    }

    #[track_caller]
    fn form(&self, path: &str, fields: &str) -> String {
        self.page(path, &["--data", fields])
    }

    /// The number by which WordPress knows that a form is its own.
    #[track_caller]
    fn nonce(&self, path: &str) -> String {
        let page = self.page(path, &[]);
        between(&page, "name=\"_wpnonce\" value=\"", "\"").to_owned()
    }
}

#[track_caller]
fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start}: {text}"));
    rest.split_once(end).expect("an end").0
}

/// An administrator logs in, sets permalinks and uploads a film, of which a visitor gets parts.
#[test]
#[ignore = "slow: starts a database, and installs WordPress"]
fn an_administrator_works() {
    let blog = Blog::new(&format!("{KEYS}{UPLOADS}"));
    let server = &blog.server;
    let own = Tree::new();
    let visitor = Visitor { server, own };
    assert!(
        visitor
            .page("/wp-admin/", &[])
            .contains("Lost your password?")
    );
    let dashboard = visitor.form(
        "/wp-login.php",
        "log=admin&pwd=secret&testcookie=1&wp-submit=Log+In",
    );
    assert!(dashboard.contains("<title>Dashboard "), "{dashboard}");

    let nonce = visitor.nonce("/wp-admin/options-permalink.php");
    let names = "%2Fread%2F%25postname%25%2F";
    visitor.form(
        "/wp-admin/options-permalink.php",
        &format!("_wpnonce={nonce}&selection={names}&permalink_structure={names}"),
    );
    let post = server.get("/read/hello-world/");
    post.assert_status(200);
    assert!(post.text().contains("Welcome to WordPress"), "{post:?}");
    let moved = server.get("/?p=1");
    moved.assert_status(301);
    assert_eq!(
        moved.field("location"),
        "http://localhost/read/hello-world/"
    );
    assert!(
        server
            .get("/wp-json/wp/v2/posts")
            .text()
            .contains("Hello world!")
    );
    server.get("/read/none/").assert_status(404);

    let film = [b"\0\0\0\x18ftypmp42", &content(1, 1_500_000)[..]].concat();
    visitor.own.file("film.mp4", &film);
    let nonce = visitor.nonce("/wp-admin/media-new.php");
    let fields = [
        "action=upload-attachment",
        &format!("_wpnonce={nonce}"),
        "name=film.mp4",
        "async-upload=@film.mp4;type=video/mp4",
    ];
    let fields: Vec<_> = fields.iter().flat_map(|field| ["--form", field]).collect();
    let uploaded = visitor.page("/wp-admin/async-upload.php", &fields);
    let url = between(&uploaded, "\"url\":\"", "\"").replace("\\/", "/");
    let path = url.strip_prefix("http://localhost").expect("a URL");
    assert!(path.starts_with("/wp-content/uploads/"), "{path}");
    assert_is_a_film(server, path, &film);

    // What was uploaded is neither run nor sent if it is a script.
    blog.root
        .file("wp-content/uploads/x.php", "<?php echo 'run';");
    server.get("/wp-content/uploads/x.php").assert_status(404);
}

#[track_caller]
fn assert_is_a_film(server: &Server, path: &str, film: &[u8]) {
    let mut client = server.client();
    let whole = client.get(path);
    assert_eq!(whole.field("content-type"), "video/mp4");
    assert_same(&whole.body, film);
    let etag = whole.field("etag").trim_start_matches("W/");
    let known = format!("\"other\", {etag}");
    let again = client.get_with(path, &[("If-None-Match", &known)]);
    again.assert_status(304);
    let part = client.get_with(path, &[("Range", "bytes=1000000-")]);
    part.assert_status(206);
    assert_same(&part.body, &film[1_000_000..]);
    let both = client.get_with(path, &[("Range", "bytes=0-999,500000-500999")]);
    let parts = multipart::parts(&both);
    assert_eq!(parts.len(), 2);
    for part in parts {
        assert_same(&part.bytes, &film[part.first..=part.last]);
    }
}

#[test]
#[ignore = "slow: starts a database, and installs WordPress"]
fn pages_are_the_same_after_decoding() {
    let blog = Blog::new(&format!("{KEYS}{}", compress::KEYS));
    let mut client = blog.server.client();
    for (path, shown) in [
        ("/", "Hello world!"),
        ("/?p=1", "Welcome to WordPress"),
        ("/?feed=rss2", "<rss version=\"2.0\""),
        ("/wp-login.php", "Lost your password?"),
        ("/wp-includes/css/dashicons.css", "@font-face"),
    ] {
        let plain = client.get(path);
        plain.assert_status(200);
        assert!(plain.text().contains(shown), "{path}: {}", plain.text());
        assert_identity(&plain, &plain.body);
        for coding in CODINGS {
            let answer = accepting(&mut client, path, coding);
            answer.assert_status(200);
            assert_coded(&answer, coding, &plain.body);
        }
    }
}
