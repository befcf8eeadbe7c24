//! Compressed forms, which are their originals in another spelling.

use crate::support::scripted::Scripted;

use super::{
    ANN, Faults, OUTSIDE, USERS, VERSIONS, answer, assert_reads, denied, open_to_all, route, site,
    started, tree_of,
};

/// Thousands of suffixes are looked at as few.
#[test]
fn a_name_of_many_suffixes_asks_for_little() {
    let tree = tree_of(&["x/a"]);
    let routes: String = (0..30)
        .map(|number| denied(&format!("*.a{number}")))
        .collect();
    let server = started(&tree, &format!("precompressed = [\"gzip\"]\n{routes}"));
    let path = format!("/x/a{}", ".gz".repeat(2000));
    let mut client = server.client();
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        client.get(&path).assert_status(404);
    }
    // Each of them took a second when all were looked at.
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
}

#[test]
fn what_is_hidden_is_hidden_in_its_forms() {
    let tree = tree_of(&["d/h.json.gz", "d/h.json", "d/x.txt.gz", "d/x.txt"]);
    let keys = format!(
        "precompressed = [\"gzip\"]\nlisting = true\n{}",
        route("path = \"/d/*\"\nhide = [\"*.json\"]")
    );
    let server = started(&tree, &keys);
    let expected = [
        ("/d/h.json", 404, ""),
        ("/d/h.json.gz", 404, ""),
        ("/d/x.txt.gz", 200, "[[d~x.txt.gz]]"),
    ];
    assert_reads(&server, &[], &expected);
}

#[test]
fn lists_leave_out_the_forms_of_what_is_closed() {
    let tree = tree_of(&["a.json", "a.json.gz", "b.md", "b.md.gz", "c.txt.gz"]);
    let keys = format!(
        "precompressed = [\"gzip\"]\nlisting = true\n{}{}",
        denied("*.json"),
        route("path = \"*.md\"\ninternal = true")
    );
    let server = started(&tree, &keys);
    for form in [
        "text/html",
        "application/json",
        "application/x-ndjson",
        "text/plain",
    ] {
        let list = server
            .client()
            .get_with("/", &[("Accept", form), OUTSIDE])
            .text();
        let has_others = ["json.gz", "md.gz", "a.json", "b.md"]
            .iter()
            .any(|name| list.contains(name));
        assert!(list.contains("c.txt.gz") && !has_others, "{list}");
    }
}

/// The application is asked about the original too.
#[test]
fn an_application_decides_about_the_original() {
    let app = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            let uri = request.field("X-Forwarded-Uri").unwrap_or("").to_owned();
            let status = if uri.ends_with(".json") {
                "403 Forbidden"
            } else {
                "200 OK"
            };
            if !conn.answer(status, "") {
                break;
            }
        }
    });
    let upstream = format!(
        "[[upstream]]\nname = \"auth\"\nto = [\"{}\"]\n",
        app.address()
    );
    let tree = tree_of(&["a.json.gz", "b.txt.gz"]);
    let keys = "precompressed = [\"gzip\"]\nforward_auth = { upstream = \"auth\", path = \"/\" }\n";
    let server = site(&tree, &upstream, keys).start();
    let expected = [
        ("/a.json", 403, ""),
        ("/a.json.gz", 403, ""),
        ("/b.txt.gz", 200, "[[b.txt.gz]]"),
    ];
    assert_reads(&server, &[], &expected);
}

/// Neither by a form, which would be sent in its place, nor by a folder that is in its way.
#[test]
fn what_must_not_be_replaced_stays() {
    let tree = tree_of(&["pub/app.js"]);
    tree.file(".users", USERS);
    for folder in ["", "pub"] {
        open_to_all(&tree, folder);
    }
    let all = "methods = [\"PUT\", \"DELETE\", \"MKCOL\"]";
    let keys = format!(
        "precompressed = [\"gzip\"]\n{}{}{}",
        route(&format!(
            "path = \"/pub/*.js\"\nupload = {{ {all}, overwrite = false }}"
        )),
        route("path = \"/pub/*.json\"\nbasic_auth = { users = \"{root}/.users\" }"),
        route(&format!("path = \"/pub/*\"\nupload = {{ {all} }}")),
    );
    let server = started(&tree, &keys);
    let mut faults = Faults::default();
    for version in VERSIONS {
        for (method, path, headers, status) in [
            ("PUT", "/pub/app.js.gz", &[][..], 403),
            ("MKCOL", "/pub/app.js.gz/", &[], 403),
            ("MKCOL", "/pub/q.json/", &[], 401),
            ("MKCOL", "/pub/q.json/", &[ANN], 405),
            ("MKCOL", "/pub/folder/", &[], 201),
            ("DELETE", "/pub/folder/", &[], 204),
        ] {
            let reply = answer(&server, version, method, path, headers);
            faults.note(reply.status == status, || {
                format!("{version:?} {method} {path}: not {status}, but {reply:?}")
            });
        }
    }
    faults.assert_none();
}
