//! What clients write: a precompressed form is that of its original, and a name is that of a folder.

use std::fs;

use crate::support::{Server, Tree};

use super::{ANN, Faults, Headers, USERS, VERSIONS, answer, open_to_all, route, started};

/// A site that takes all uploads.
const ALL: &str = "precompressed = [\"gzip\"]\n\
    upload = { methods = [\"PUT\", \"DELETE\", \"MKCOL\"] }\n";

/// Rules, and the status of what they refuse to write.
const RULES: [(&str, u16); 4] = [
    ("upload = false", 405),
    ("deny = [\"all\"]", 403),
    ("respond = { status = 403 }", 403),
    ("basic_auth = { users = \"{root}/.users\" }", 401),
];

/// A tree in which the server may write, with a file `.users`.
fn writable(folders: &[&str]) -> Tree {
    let tree = Tree::new();
    tree.file(".users", USERS);
    for folder in folders {
        tree.folder(folder);
    }
    for folder in [&[""], folders].concat() {
        open_to_all(&tree, folder);
    }
    tree
}

/// Expects these statuses over both versions of HTTP, one after another.
#[track_caller]
fn assert_writes(server: &Server, headers: Headers, expected: &[(&str, &str, u16)]) {
    let mut faults = Faults::default();
    for version in VERSIONS {
        for (method, path, status) in expected {
            let reply = answer(server, version, method, path, headers);
            faults.note(reply.status == *status, || {
                format!("{version:?} {method} {path}: not {status}, but {reply:?}")
            });
        }
    }
    faults.assert_none();
}

#[test]
fn a_precompressed_form_is_written_only_where_its_original_may_be() {
    for (rule, status) in RULES {
        let tree = writable(&["ro", "rw"]);
        for name in ["ro/app.js", "ro/app.js.gz", "rw/app.js"] {
            tree.file(name, "old");
        }
        let guarded =
            ["app.js", "gone.js"].map(|name| route(&format!("path = \"/ro/{name}\"\n{rule}")));
        let server = started(&tree, &format!("{ALL}{}", guarded.concat()));
        let refused = ["PUT", "DELETE"].map(|method| {
            let paths = [
                "/ro/app.js",
                "/ro/app.js.gz",
                "/ro/gone.js",
                "/ro/gone.js.gz",
            ];
            paths.map(|path| (method, path, status))
        });
        assert_writes(&server, &[], &refused.concat());
        for name in ["ro/app.js", "ro/app.js.gz"] {
            assert_eq!(fs::read(tree.at(name)).expect("a file"), b"old", "{name}");
        }
        assert!(!tree.at("ro/gone.js.gz").exists());
        let open = ["/rw/app.js.gz", "/ro/other.js.gz"].map(|path| {
            [
                ("PUT", path, 201),
                ("PUT", path, 204),
                ("DELETE", path, 204),
            ]
        });
        assert_writes(&server, &[], &open.concat());
        if status == 401 {
            let path = "/ro/gone.js.gz";
            assert_writes(
                &server,
                &[ANN],
                &[("PUT", path, 201), ("DELETE", path, 204)],
            );
        }
    }
}

#[test]
fn the_name_of_a_folder_has_the_rules_of_what_is_in_it() {
    for path in ["/{name}/*", "/{name}/"] {
        for (rule, status) in RULES {
            // The second one does not exist yet.
            let tree = writable(&["old"]);
            let guarded = ["old", "new"].map(|name| {
                let path = path.replace("{name}", name);
                route(&format!("path = \"{path}\"\n{rule}"))
            });
            let server = started(&tree, &format!("{ALL}{}", guarded.concat()));
            let refused = ["MKCOL", "DELETE", "PUT"]
                .map(|method| ["/old", "/new"].map(|path| (method, path, status)));
            assert_writes(&server, &[], &refused.concat());
            assert!(tree.at("old").exists() && !tree.at("new").exists());
            let open = [("MKCOL", "/open", 201), ("DELETE", "/open", 204)];
            assert_writes(&server, &[], &open);
            if status == 401 {
                let let_in = [("MKCOL", "/new", 201), ("DELETE", "/new", 204)];
                assert_writes(&server, &[ANN], &let_in);
            }
        }
    }
}
