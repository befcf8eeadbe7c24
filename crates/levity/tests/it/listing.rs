//! Pages of names.

use std::fs;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::Value;

use crate::clients::run;
use crate::names::{ODD_NAMES, odd_files};
use crate::support::{Answer, Client, Launch, Metrics, Tree, per_engine, wait_until};

/// The links in the table of a page, as written in it.
fn links(page: &str) -> Vec<String> {
    let (_, table) = page.split_once("<tbody>").expect("a table");
    let after = table.split("href=\"").skip(1);
    after
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

per_engine! {
    fn every_name_can_be_followed(engine) {
        let tree = Tree::new();
        odd_files(&tree, "odd");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        let page = client.get("/odd/").text();
        let mut found: Vec<_> = links(&page)
            .iter()
            .filter(|link| *link != "../")
            .map(|name| client.get(&format!("/odd/{name}")).body)
            .collect();
        found.sort();
        let mut expected = ODD_NAMES.map(<[u8]>::to_vec);
        expected.sort();
        assert_eq!(found, expected);
    }

    fn folders_first_and_hidden_names_not(engine) {
        let tree = Tree::new();
        for name in ["b.txt", "a.txt", ".hidden", "z/file", "y/file", ".well-known/x"] {
            tree.file(name, "x");
        }
        let server = Launch::serve(tree.path()).engine(engine).start();
        let page = server.get("/");
        assert_eq!(page.field("content-type"), "text/html; charset=utf-8");
        let names = links(&page.text());
        assert_eq!(names, [".well-known/", "y/", "z/", "a.txt", "b.txt"]);
    }
}

const HTML: &str = "text/html; charset=utf-8";
const NDJSON: &str = "application/x-ndjson";

/// The listing of `path` in the form of a media type.
fn form(client: &mut Client, path: &str, media_type: &str) -> Answer {
    client.get_with(path, &[("Accept", media_type)])
}

/// The names in lines of JSON.
fn names(lines: &str) -> Vec<String> {
    let name = |line: &str| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        value["name"].as_str().expect("a name").to_owned()
    };
    lines.lines().map(name).collect()
}

#[test]
fn the_client_chooses_the_form() {
    let tree = Tree::new();
    tree.file("a", "x");
    let server = Launch::site(tree.path(), "", "listing = true").start();
    let mut client = server.client();
    let types = |client: &mut Client, accept: &[&str]| {
        let lines: Vec<_> = accept.iter().map(|line| ("Accept", *line)).collect();
        let answer = client.get_with("/", &lines);
        answer.assert_status(200);
        assert_eq!(answer.field("vary"), "Accept");
        assert_eq!(answer.field("cache-control"), "no-cache");
        answer.field("content-type").to_owned()
    };
    for (accept, expected) in [
        (&[][..], HTML),
        (&["*/*"], HTML),
        (&["image/png"], HTML),
        (&["text/html,application/xhtml+xml,*/*;q=0.8"], HTML),
        (&["application/json"], "application/json"),
        (&["application/json, */*"], "application/json"),
        (
            &["text/html;q=0.5", "application/json;q=0.6"],
            "application/json",
        ),
        (&["application/x-ndjson"], NDJSON),
        (&["application/jsonl"], NDJSON),
        (&["text/plain"], "text/plain; charset=utf-8"),
    ] {
        assert_eq!(types(&mut client, accept), expected, "{accept:?}");
    }
    // A file has one form.
    assert_eq!(form(&mut client, "/a", NDJSON).header("vary"), None);
}

#[test]
fn json_for_programs() {
    let tree = Tree::new();
    odd_files(&tree, "odd");
    tree.folder("odd/a folder");
    let time = UNIX_EPOCH + Duration::from_secs(1_795_203_727);
    let plain = fs::File::open(tree.at("odd/plain")).expect("a file");
    plain.set_modified(time).expect("a time");
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    let listing = form(&mut client, "/odd/", "application/json").text();
    let listing: Value = serde_json::from_str(&listing).expect("JSON");
    assert_eq!(listing["path"], "/odd/");
    assert_eq!(
        (&listing["sorted"], &listing["truncated"]),
        (&true.into(), &false.into())
    );
    let entries = listing["entries"].as_array().expect("an array");
    assert_eq!(entries.len(), ODD_NAMES.len() + 1);
    assert_eq!(entries[0]["name"], "a folder");
    assert_eq!(
        (&entries[0]["kind"], &entries[0]["size"]),
        (&"directory".into(), &Value::Null)
    );
    let plain = entries.iter().find(|entry| entry["name"] == "plain");
    let expected = serde_json::json!({
        "name": "plain",
        "kind": "file",
        "size": fs::metadata(tree.at("odd/plain")).expect("a file").len(),
        "modified": "2026-11-20T19:42:07Z",
        "href": "plain",
    });
    assert_eq!(plain, Some(&expected));
    let mut bodies: Vec<_> = entries[1..]
        .iter()
        .map(|entry| {
            let link = entry["href"].as_str().expect("a link");
            client.get(&format!("/odd/{link}")).body
        })
        .collect();
    bodies.sort();
    let mut expected = ODD_NAMES.map(<[u8]>::to_vec);
    expected.sort();
    assert_eq!(bodies, expected);
    // The same entries as lines.
    let lines = form(&mut client, "/odd/", NDJSON).text();
    let mut lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), entries.len());
    lines.retain(|line| !entries.contains(line));
    assert_eq!(lines, [] as [Value; 0]);
}

#[test]
fn text_for_scripts() {
    let tree = Tree::new();
    tree.file("file10", "ten");
    tree.file("file2", "2");
    tree.file("new\nline", "");
    tree.folder("folder");
    let server = Launch::serve(tree.path()).start();
    let text = form(&mut server.client(), "/", "text/plain").text();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let sizes_and_names: Vec<_> = rows.iter().map(|row| (row[1], row[2])).collect();
    let expected = [
        ("-", "folder/"),
        ("3", "file10"),
        ("1", "file2"),
        ("0", "new\\x0aline"),
    ];
    // The natural order: 2 before 10.
    let expected = [expected[0], expected[2], expected[1], expected[3]];
    assert_eq!(sizes_and_names, expected);
    assert!(
        rows.iter()
            .all(|row| row[0].len() == "2026-11-20T19:42:07Z".len())
    );
}

#[test]
fn head_has_the_header_of_get() {
    let tree = Tree::new();
    tree.file("small/README.md", "# Hello");
    for number in 0..3000 {
        tree.file(format!("large/{number}"), "");
    }
    // One piece of the directory, but too long to be sent with its length.
    for number in 0..500 {
        tree.file(format!("medium/{number}-{}", "x".repeat(20)), "");
    }
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    for path in ["/small/", "/medium/", "/large/"] {
        for media_type in ["text/html", "application/json", NDJSON, "text/plain"] {
            let get = form(&mut client, path, media_type);
            let head = client.request("HEAD", path, &[("Accept", media_type)]);
            assert_eq!(head.headers(), get.headers(), "{path} {media_type}");
            let is_long = path == "/large/" || get.body.len() > 64 * 1024;
            assert_eq!(get.is_chunked(), is_long, "{path} {media_type}");
        }
    }
}

#[test]
fn a_readme_is_shown_as_text() {
    let tree = Tree::new();
    tree.file("a/README.txt", "second choice");
    tree.file("a/Readme.md", "# <b>Hello</b>\n");
    tree.file("binary/README", b"\0\x01");
    tree.file("empty/README.md", "");
    tree.file("long/README", "x".repeat(100_000));
    tree.folder("folder/README.md");
    tree.folder("link");
    tree.link("../a/Readme.md", "link/README.md");
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    let page = client.get("/a/").text();
    let shown = "<h2>Readme.md</h2>\n<pre>\n# &lt;b&gt;Hello&lt;/b&gt;\n</pre>\n";
    assert!(
        page.contains(shown) && !page.contains("second choice"),
        "{page}"
    );
    assert!(client.get("/link/").text().contains("Hello&lt;"));
    for path in ["/binary/", "/empty/", "/folder/"] {
        let page = client.get(path).text();
        assert!(
            !page.contains("<pre>") && page.contains(">README"),
            "{path}: {page}"
        );
    }
    let page = client.get("/long/").text();
    assert!(page.contains("xxx</pre>\n<p>The file is longer"), "{page}");
    assert!(
        !form(&mut client, "/a/", "text/plain")
            .text()
            .contains("Hello")
    );
}

#[test]
fn a_listing_that_is_cut_says_so_in_every_form() {
    let tree = Tree::new();
    for number in 0..3000 {
        tree.file(format!("{number}"), "");
    }
    // In the first piece of the directory, and in a later one.
    for entries_max in [20, 2000] {
        let limits = format!("[limits]\nlisting_entries = {entries_max}\n");
        let server = Launch::site(tree.path(), &limits, "listing = true").start();
        let mut client = server.client();
        let page = client.get("/").text();
        assert_eq!(links(&page).len(), entries_max);
        assert!(page.contains("<p>There are more names than this page shows.</p>"));
        let json = form(&mut client, "/", "application/json").text();
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["truncated"], true);
        assert_eq!(json["entries"].as_array().map(Vec::len), Some(entries_max));
        let lines = form(&mut client, "/", NDJSON).text();
        let (entries, last) = lines.trim_end().rsplit_once('\n').expect("lines");
        assert_eq!(
            (names(entries).len(), last),
            (entries_max, "{\"truncated\":true}")
        );
        let text = form(&mut client, "/", "text/plain").text();
        assert_eq!(text.lines().count(), entries_max + 1);
        assert!(text.ends_with("\n# there are more names\n"));
    }
    let server = Launch::site(
        tree.path(),
        "[limits]\nlisting_entries = 3000\n",
        "listing = true",
    );
    let lines = form(&mut server.start().client(), "/", NDJSON).text();
    assert_eq!(names(&lines).len(), 3000);
}

per_engine! {
    fn large_directories_in_every_form(engine) {
        let tree = Tree::new();
        for number in 0..5000 {
            tree.file(format!("file-{number}.txt"), "");
        }
        tree.folder("zoo");
        tree.file(".hidden", "");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        let natural = (0..5000).map(|number| format!("file-{number}.txt"));
        let expected: Vec<_> = ["zoo".to_owned()].into_iter().chain(natural).collect();
        let json = form(&mut client, "/", "application/json").text();
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let entries = json["entries"].as_array().expect("an array").iter();
        let found: Vec<_> = entries.filter_map(|entry| entry["name"].as_str()).collect();
        assert_eq!(found, expected);
        let page = links(&client.get("/").text());
        assert_eq!((page.len(), &*page[0], &*page[11]), (5001, "zoo/", "file-10.txt"));
        let mut unsorted = names(&form(&mut client, "/", NDJSON).text());
        unsorted.sort();
        let mut sorted = expected;
        sorted.sort();
        assert_eq!(unsorted, sorted);
        let text = form(&mut client, "/", "text/plain").text();
        assert!(text.lines().count() == 5001 && text.ends_with("\tfile-4999.txt\n"));
    }
}

/// A listing of a large directory is made once for clients that ask at the same time, also if the first one leaves.
#[test]
fn clients_share_a_listing() {
    let tree = Tree::new();
    for number in 0..20_000 {
        tree.file(format!("{number}"), "");
    }
    let server = Launch::site(
        tree.path(),
        "[disk]\nentry_ttl = \"10s\"\n",
        "listing = true",
    )
    .start();
    let mut first = server.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let page = server.get("/").text();
    assert_eq!(links(&page).len(), 20_000);
    // While it is in use, it does not see new names.
    tree.file("new", "");
    assert_eq!(server.get("/").text(), page);
    drop(first);
    wait_until("a listing with the new name", || {
        links(&server.get("/").text()).len() == 20_001
    });
}

/// What a large listing takes is bounded for all readers together. A listing for which there is no memory is complete too.
#[test]
fn without_memory_names_are_not_sorted() {
    let tree = Tree::new();
    let folders = ["a", "b", "c", "d"];
    for folder in folders {
        for number in 0..60_000 {
            tree.file(format!("{folder}/{number}-{}", "x".repeat(200)), "");
        }
    }
    let server = Launch::site(tree.path(), "", "listing = true").start();
    let mut slow = Vec::new();
    let mut unsorted = 0;
    for folder in folders {
        let mut client = Client::narrow(server.address());
        client.send(format!("GET /{folder}/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        let head = String::from_utf8(client.read_through(b"<tbody>")).expect("a page");
        unsorted += usize::from(head.contains("<table data-unsorted>"));
        slow.push(client);
    }
    assert_eq!(unsorted, 2, "two listings of 14 MB each fit");
    let mut last = slow.pop().expect("a client");
    let rest = last.read_through(b"</html>\n");
    let rest = String::from_utf8_lossy(&rest);
    assert_eq!(rest.matches(" data-sort-value=").count(), 60_000);
    assert!(rest.contains("<p>The names are not sorted"));
}

/// However many clients ask and read nothing.
#[test]
fn listings_take_bounded_memory() {
    let tree = Tree::new();
    for number in 0..15_000 {
        tree.file(format!("d/{number}-{}", "x".repeat(200)), "");
    }
    let server = Launch::site(tree.path(), "", "listing = true").start();
    let mut client = server.client();
    form(&mut client, "/d/", NDJSON).assert_status(200);
    let before = server.resident_bytes();
    // 112 KiB of 40 MiB each.
    let readers_max = 40 * 1024 / 112;
    let mut readers: Vec<_> = (0..readers_max)
        .map(|_| {
            let mut client = Client::narrow(server.address());
            let accept = format!("GET /d/ HTTP/1.1\r\nHost: a\r\nAccept: {NDJSON}\r\n\r\n");
            client.send(accept);
            client
        })
        .collect();
    for reader in &mut readers {
        assert_eq!(reader.receive_head().expect("a header").status, 200);
    }
    // Another one waits until they are stalled, or leave.
    let mut other = server.client();
    other.send(format!(
        "GET /d/ HTTP/1.1\r\nHost: a\r\nAccept: {NDJSON}\r\n\r\n"
    ));
    let used = server.resident_bytes() - before;
    assert!(used < 64 << 20, "{used}");
    // Ordinary files are served meanwhile.
    tree.file("file", "x");
    client.get("/file").assert_status(200);
    drop(readers);
    other.receive().assert_status(200);
}

/// The figures of docs/tasks/listings.md; run it alone, on a machine that does nothing else.
#[test]
#[ignore = "slow: makes 400 000 files"]
fn four_hundred_thousand_names() {
    const NAMES: usize = 400_000;
    let tree = Tree::new();
    for number in 0..NAMES {
        tree.file(format!("d/file-{number:06}.dat"), "");
    }
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), admin, "listing = true").start();
    let metrics = || Metrics::parse(&Client::unix(&server.own("admin")).get("/metrics").text());
    let before = server.resident_bytes();
    let mut client = server.client();
    let lines = form(&mut client, "/d/", NDJSON).text();
    assert_eq!(lines.lines().count(), NAMES);
    let began = Instant::now();
    client.send(format!(
        "GET /d/ HTTP/1.1\r\nHost: a\r\nAccept: {NDJSON}\r\n\r\n"
    ));
    client.read_through(b"file-");
    let first_entry = began.elapsed();
    drop(client);
    let ls = shortest(|| {
        let path = tree.at("d");
        let listed = run(Duration::from_secs(60), "ls", &["-l"], &path).stdout;
        assert_eq!(
            listed.iter().filter(|&&byte| byte == b'\n').count(),
            NAMES + 1
        );
    });
    let html = shortest(|| assert_eq!(links(&server.get("/d/").text()).len(), NAMES + 1));
    let mut readers: Vec<_> = (0..200)
        .map(|_| {
            let mut client = Client::narrow(server.address());
            client.send("GET /d/ HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    for reader in &mut readers {
        let start = reader.read_through(b"<tbody>");
        assert!(!String::from_utf8_lossy(&start).contains("data-unsorted"));
    }
    let used_kib = (server.resident_bytes() - before) / 1024;
    let metrics = metrics();
    let hogs = metrics.sum("levity_loop_hog_seconds_count");
    let stalls = metrics.sum("levity_loop_stall_seconds_count");
    eprintln!(
        "first entry {first_entry:?}, ls -l {ls:?}, HTML {html:?}, 200 readers {used_kib} KiB, {hogs} hogs, {stalls} stalls"
    );
    assert!(first_entry < Duration::from_millis(100));
    assert!(html < ls.mul_f64(1.5));
    assert!(used_kib < 64 * 1024);
}

/// The shortest time of three runs.
fn shortest(mut work: impl FnMut()) -> Duration {
    let mut times = (0..3).map(|_| {
        let began = Instant::now();
        work();
        began.elapsed()
    });
    let first = times.next().expect("a run");
    times.fold(first, Duration::min)
}

#[test]
fn off_unless_asked_for() {
    let tree = Tree::new();
    tree.file("sub/file", "x");
    let server = Launch::site(tree.path(), "", "").start();
    server.get("/").assert_status(403);
    server.get("/sub/").assert_status(403);
    server.get("/sub/file").assert_status(200);
}

/// A name that a listing leaves out is not served either: else a guess would find it.
#[test]
fn hidden_names_are_neither_listed_nor_served() {
    let tree = Tree::new();
    for name in [
        "page.html",
        "page.html.bak",
        "secret/file",
        "folder/secret",
        "folder/a.bak/x",
        ".config",
        ".well-known/x",
        ".git/config",
        ".levity-temporary-1",
        "sub/.keep",
        "sub/page.bak",
    ] {
        tree.file(name, "x");
    }
    let keys = "listing = true\nhide = [\"*.bak\", \"secret\"]\nshow = [\".config\", \".levity*\"]\n\
                [[site.route]]\npath = \"/sub/*\"\nhide = []\nshow = [\".*\"]\n";
    let server = Launch::site(tree.path(), "", keys).start();
    let mut client = server.client();
    for (path, expected) in [
        (
            "/",
            &[".well-known/", "folder/", "sub/", ".config", "page.html"][..],
        ),
        ("/folder/", &["../"]),
        ("/sub/", &["../", ".keep", "page.bak"]),
    ] {
        assert_eq!(links(&client.get(path).text()), expected, "{path}");
    }
    for (path, status) in [
        ("/page.html", 200),
        ("/page.html.bak", 404),
        ("/secret/", 404),
        ("/secret/file", 404),
        ("/folder/secret", 404),
        ("/folder/a.bak/x", 404),
        ("/.config", 200),
        ("/.well-known/x", 200),
        ("/.git/config", 404),
        ("/.levity-temporary-1", 404),
        ("/sub/.keep", 200),
        ("/sub/page.bak", 200),
        // The route of a site is chosen by the path as written.
        ("/.config/", 404),
    ] {
        assert_eq!(client.get(path).status, status, "{path}");
    }
    let lines = names(&form(&mut client, "/", NDJSON).text());
    assert_eq!(lines.len(), 5, "{lines:?}");
}

#[test]
fn on_for_one_route() {
    let tree = Tree::new();
    tree.file("sub/file", "x");
    let route = "[[site.route]]\npath = \"/sub/*\"\nlisting = true\n";
    let server = Launch::site(tree.path(), "", route).start();
    server.get("/").assert_status(403);
    assert_eq!(links(&server.get("/sub/").text()), ["../", "file"]);
}

/// Kodi and httpdirfs take a link for an entry only if its text says the same, and Kodi looks for the size before the end of
/// a cell.
#[test]
fn rows_as_players_and_mounts_read_them() {
    let tree = Tree::new();
    tree.filled("film.mkv", 5000);
    tree.file("a:b", "colon");
    tree.folder("season 1");
    let server = Launch::serve(tree.path()).start();
    let page = server.get("/").text();
    for row in [
        "<a href=\"film.mkv\">film.mkv</a><td data-sort-value=\"5000\" title=\"5000 bytes\">4.8 KiB</td><td>",
        "<a href=\"season%201/\">season 1/</a><td><td>",
        // A colon as it is would end a scheme (RFC 3986, 4.2).
        "<a href=\"a%3Ab\">a:b</a><td data-sort-value=\"5\">5 B</td><td>",
    ] {
        assert!(page.contains(row), "{row}\n{page}");
    }
}

#[test]
fn text_is_escaped() {
    let tree = Tree::new();
    tree.folder("<b>&");
    tree.file("<b>&/<script>\"", "x");
    let server = Launch::serve(tree.path()).start();
    let page = server.get("/%3Cb%3E&/").text();
    assert_eq!(page.matches("<script>").count(), 1, "{page}");
    assert!(!page.contains("<b>"), "{page}");
    assert!(page.contains("&lt;script&gt;&quot;"), "{page}");
}

#[test]
fn head_of_a_page() {
    let tree = Tree::new();
    tree.file("a", "x");
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    let (head, get) = (client.head("/"), client.get("/"));
    assert_eq!(head.headers(), get.headers());
    assert_eq!(head.length(), Some(get.body.len()));
}

#[test]
fn a_new_name_is_seen_at_once() {
    let tree = Tree::new();
    tree.folder("sub");
    let server = Launch::serve(tree.path()).start();
    assert_eq!(links(&server.get("/sub/").text()), ["../"]);
    tree.file("sub/new", "x");
    assert_eq!(links(&server.get("/sub/").text()), ["../", "new"]);
}

#[test]
fn too_many_names_are_cut_and_said_to_be() {
    let tree = Tree::new();
    for number in 0..30 {
        tree.file(format!("{number}"), "");
    }
    let limits = "[limits]\nlisting_entries = 20\n";
    let server = Launch::site(tree.path(), limits, "listing = true").start();
    let page = server.get("/").text();
    assert_eq!(links(&page).len(), 20);
    assert!(page.contains("more names"), "{page}");
}

#[test]
fn thousands_of_names() {
    let tree = Tree::new();
    for number in 0..3000 {
        tree.file(format!("file-{number:04}"), "");
    }
    let server = Launch::serve(tree.path()).start();
    let names = links(&server.get("/").text());
    assert_eq!(names.len(), 3000);
    assert!(names.is_sorted());
}

#[test]
fn a_long_page_is_complete_and_holds_up_no_other() {
    let tree = Tree::new();
    for number in 0..2000 {
        tree.file(format!("{number:04}{}", "\"".repeat(250)), "");
    }
    let admin = "[admin]\nlisten = \"unix:{own}/admin\"\n";
    let server = Launch::site(tree.path(), admin, "listing = true").start();
    let hogs = || {
        let scraped = Client::unix(&server.own("admin")).get("/metrics").text();
        Metrics::parse(&scraped).sum("levity_loop_hog_seconds_count")
    };
    // A busy machine may take the processor away within a poll: what the server does itself comes again.
    wait_until("a page without a poll of 1 ms", || {
        let before = hogs();
        let page = server.get("/").text();
        let links = links(&page);
        assert_eq!(links.len(), 2000);
        assert!(links.is_sorted());
        assert!(page.ends_with("</html>\n"));
        hogs() == before
    });
}

/// On the root: on the body it would change the text and leave the page white beneath it.
#[test]
fn the_whole_page_is_dark_where_that_is_wanted() {
    let tree = Tree::new();
    let server = Launch::serve(tree.path()).start();
    let page = server.get("/").text();
    assert!(
        page.contains("<style>:root{color-scheme:light dark;"),
        "{page}"
    );
}
