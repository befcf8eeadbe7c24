//! WordPress, as Debian has it.

use std::fs;
use std::path::Path;

use super::{KEYS, accepting, assert_coded, assert_identity};
use crate::support::{App, CODINGS, Server, Tree, in_front_of};

const SOURCES: &str = "/usr/share/wordpress";

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

#[test]
#[ignore = "slow: starts a database, and installs WordPress"]
fn pages_are_the_same_after_decoding() {
    let database = App::mariadb();
    let (php, root) = (App::large_php_fpm(), root(&database));
    let keys = format!(
        "try = [\"file\", \"proxy\"]\nscript_suffix = \".php\"\nscript_index = \"index.php\"\n{KEYS}"
    );
    let server = in_front_of(&[php.address()], "fastcgi", "", &root, &keys).start();
    install(&server);
    let mut client = server.client();
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
