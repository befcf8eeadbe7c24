//! Several parts of a file in one answer (RFC 9110, 14 and 15.3.7).

use std::time::Duration;

use crate::support::multipart::{self, Part};
use crate::support::scripted::Scripted;
use crate::support::{
    Answer, App, Client, Cut, Launch, Server, Tree, assert_same, content, head, per_engine,
};

/// Kept in memory, read from the file, and read in several chunks.
const SIZES: [usize; 3] = [10_000, 200_001, 3_000_000];

/// The bytes of a gap between two parts that are joined.
const GAP: usize = 80;

fn tree() -> Tree {
    let tree = Tree::new();
    for size in SIZES {
        tree.filled(&size.to_string(), size);
    }
    tree
}

fn ranges(server: &Server, size: usize, ranges: &str) -> Answer {
    server.get_with(&format!("/{size}"), &[("Range", ranges)])
}

/// Expects parts of the file of `size` bytes with these first and last bytes, in this order.
#[track_caller]
fn are_parts(answer: &Answer, size: usize, expected: &[(usize, usize)]) {
    let content = content(size as u64, size);
    let parts = multipart::parts(answer);
    let positions: Vec<_> = parts.iter().map(|part| (part.first, part.last)).collect();
    assert_eq!(positions, expected);
    for part in parts {
        assert_eq!(part.size, size);
        assert_eq!(
            part.header("content-type").as_deref(),
            Some("application/octet-stream")
        );
        assert_same(&part.bytes, &content[part.first..=part.last]);
    }
    assert_eq!(answer.field("accept-ranges"), "bytes");
}

#[track_caller]
fn is_whole(answer: &Answer, size: usize) {
    answer.assert_status(200);
    assert_same(&answer.body, &content(size as u64, size));
}

per_engine! {
    /// The first round reads the files from the disk, the second has them in the page cache or in memory.
    fn several(engine) {
        let tree = tree();
        for size in SIZES {
            tree.evict(size.to_string());
        }
        let server = Launch::serve(tree.path()).engine(engine).start();
        for size in SIZES.repeat(2) {
            let (middle, last) = (size / 2, size - 1);
            for (set, expected) in [
                ("0-0,500-600".to_owned(), vec![(0, 0), (500, 600)]),
                (format!("{middle}-{},0-9", middle + 999), vec![(middle, middle + 999), (0, 9)]),
                ("1-3000,-10".to_owned(), vec![(1, 3000), (size - 10, last)]),
                (format!("-1 , {last}-, 7-7,{size}-"), vec![(last, last), (7, 7)]),
                (format!("0-4000,5000-{}", size - 200), vec![(0, 4000), (5000, size - 200)]),
            ] {
                let set = format!("bytes={set}");
                are_parts(&ranges(&server, size, &set), size, &expected);
            }
        }
    }

    /// Small parts share a write; each of them is at most a few pages.
    fn many(engine) {
        let tree = tree();
        tree.evict("3000000");
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = server.client();
        for step in [11_000, 500] {
            let parts = (0..200).map(|number| (number * step, number * step + step / 3));
            let parts: Vec<_> = parts.collect();
            let set: Vec<_> = parts.iter().map(|(first, last)| format!("{first}-{last}")).collect();
            let set = format!("bytes={}", set.join(","));
            let answer = client.get_with("/3000000", &[("Range", &set)]);
            are_parts(&answer, 3_000_000, &parts);
            // The connection is in order.
            is_whole(&client.get("/10000"), 10_000);
        }
    }

    /// The parts so far are of the announced version; the rest is not sent.
    fn a_file_that_is_rewritten_between_parts(engine) {
        let tree = Tree::new();
        let bytes = tree.filled("file", 24_000_000);
        let server = Launch::serve(tree.path()).engine(engine).start();
        let mut client = Client::narrow(server.address());
        client.send(head("GET", "/file", &[("Range", "bytes=0-15999999,20000000-20999999")]));
        let answer = client.receive_head().expect("a head");
        answer.assert_status(206);
        let start = client.read_through(b"\r\n\r\n");
        tree.fresh("file", b"short");
        let cut = client.read_to_end();
        assert_ne!(cut, Cut::Silent);
        let sent = cut.body();
        assert!(start.len() + sent.len() < answer.length().expect("a length"));
        // Pages that wait in the socket may be those of the new content; no later part is.
        assert!(sent.len() < 16_000_000);
        let same = sent.len().min(1000);
        assert_same(&sent[..same], &bytes[..same]);
    }
}

#[test]
fn one_part_may_be_left() {
    let tree = tree();
    let server = Launch::serve(tree.path()).start();
    let size = SIZES[0];
    for (set, first, last) in [
        ("0-9,5-20", 0, 20),
        ("0-9,10-20", 0, 20),
        ("50-99,0-9", 0, 99),
        ("0-9,90-99", 0, 99),
        ("0-9,99999-,-0", 0, 9),
        ("5000-,6000-,7000-", 5000, size - 1),
        (",,3-4,", 3, 4),
    ] {
        let answer = ranges(&server, size, &format!("bytes={set}"));
        answer.assert_status(206);
        assert_eq!(
            answer.field("content-range"),
            format!("bytes {first}-{last}/{size}")
        );
        assert_same(&answer.body, &content(size as u64, size)[first..=last]);
    }
    let none = ranges(&server, size, "bytes=10000-,99999-,-0");
    none.assert_status(416);
    assert_eq!(none.field("content-range"), "bytes */10000");
}

/// Otherwise a request could make the server send more than the file.
#[test]
fn parts_that_are_longer_than_the_file() {
    let tree = tree();
    let server = Launch::serve(tree.path()).start();
    let size = SIZES[0];
    let every = |step: usize| {
        let firsts: Vec<_> = (0..size).step_by(step).collect();
        let set: Vec<_> = firsts
            .iter()
            .map(|first| format!("{first}-{first}"))
            .collect();
        let answer = ranges(&server, size, &format!("bytes={}", set.join(",")));
        (firsts.len(), answer)
    };
    for step in [82, 100] {
        is_whole(&every(step).1, size);
    }
    let (count, answer) = every(200);
    assert_eq!(multipart::parts(&answer).len(), count);
    assert!(answer.body.len() < size);
}

/// CVE-2011-3192, CVE-2024-26141: the answer never costs more than the file.
#[test]
fn bombs() {
    let tree = Tree::new();
    tree.filled("3000000", 3_000_000);
    let server = Launch::serve(tree.path()).workers(1).start();
    let size = 3_000_000;
    is_whole(&server.get("/3000000"), size);
    let (resident, used) = (server.resident_bytes(), server.processor_time());
    let set = |count: usize, range: fn(usize) -> String| {
        let ranges: Vec<_> = (0..count).map(range).collect();
        format!("bytes={}", ranges.join(","))
    };
    let mut client = server.client();
    let mut ask = |set: String| client.get_with("/3000000", &[("Range", &set)]);
    is_whole(&ask(set(1000, |number| format!("{number}-"))), size);
    is_whole(&ask(set(1000, |_| "0-".to_owned())), size);
    let joined = ask(set(256, |_| "0-".to_owned()));
    assert_eq!(joined.field("content-range"), "bytes 0-2999999/3000000");
    let joined = ask(set(256, |number| format!("{}-", 255 - number)));
    assert_eq!(joined.field("content-range"), "bytes 0-2999999/3000000");
    // As many parts as there may be, in the worst order.
    let answer = ask(set(256, |number| {
        format!("{0}-{0}", number * 7919 % 256 * 11_000)
    }));
    let parts = multipart::parts(&answer);
    assert_eq!(parts.len(), 256);
    assert!(answer.body.len() < 256 * 200);
    for _ in 0..100 {
        ask(set(256, |number| format!("{0}-{0}", number * 11_000)));
    }
    let grown = server.resident_bytes().saturating_sub(resident);
    assert!(grown < 16 << 20, "{grown} bytes more");
    let used = server.processor_time() - used;
    assert!(used < Duration::from_secs(2), "{used:?}");
}

#[test]
fn conditions_come_first() {
    let tree = tree();
    let server = Launch::serve(tree.path()).start();
    let size = SIZES[1];
    let known = server.get(&format!("/{size}"));
    let (etag, date) = (known.field("etag"), known.field("last-modified"));
    let ask = |headers: &[(&str, &str)]| {
        let range = [("Range", "bytes=0-9,1000-1009")];
        server.get_with(&format!("/{size}"), &[&range, headers].concat())
    };
    let parts = [(0, 9), (1000, 1009)];
    are_parts(&ask(&[("If-Range", etag)]), size, &parts);
    are_parts(&ask(&[("If-Range", date)]), size, &parts);
    are_parts(&ask(&[("If-Match", etag)]), size, &parts);
    are_parts(&ask(&[("If-None-Match", "\"other\"")]), size, &parts);
    is_whole(&ask(&[("If-Range", "\"other\"")]), size);
    is_whole(&ask(&[("If-Range", &format!("W/{etag}"))]), size);
    ask(&[("If-None-Match", etag)]).assert_status(304);
    ask(&[("If-Match", "\"other\"")]).assert_status(412);
    let answer = ask(&[]);
    assert_eq!(
        (answer.field("etag"), answer.field("last-modified")),
        (etag, date)
    );
    let mut client = server.client();
    let head = client.request(
        "HEAD",
        &format!("/{size}"),
        &[("Range", "bytes=0-9,1000-1009")],
    );
    assert_eq!((head.status, head.length()), (200, Some(size)));
}

#[test]
fn http_1_0() {
    let tree = tree();
    let server = Launch::serve(tree.path()).start();
    let mut client = server.client();
    client.send("GET /10000 HTTP/1.0\r\nRange: bytes=0-9,1000-1009\r\n\r\n");
    are_parts(&client.receive(), 10_000, &[(0, 9), (1000, 1009)]);
    client.assert_closed();
}

/// A boundary that content has would end a part early.
#[test]
fn each_answer_has_its_own_boundary() {
    let tree = tree();
    let server = Launch::serve(tree.path()).start();
    let boundary = || {
        ranges(&server, 10_000, "bytes=0-9,1000-1009")
            .field("content-type")
            .to_owned()
    };
    let boundaries: std::collections::BTreeSet<_> = (0..100).map(|_| boundary()).collect();
    assert_eq!(boundaries.len(), 100);
}

/// Headers of a route that describe the file are those of each part: the answer has another type.
#[test]
fn headers_of_a_route() {
    let tree = tree();
    let keys = "[[site.route]]\npath = \"/10000\"\n[site.route.headers]\n\
                set = { Content-Type = \"text/x-own\", Content-Encoding = \"x-own\", X-A = \"1\" }\n";
    let server = Launch::site(tree.path(), "", keys).start();
    let answer = ranges(&server, 10_000, "bytes=0-9,1000-1009");
    let parts = multipart::parts(&answer);
    assert_eq!(parts.len(), 2);
    for part in &parts {
        assert_eq!(part.header("content-type").as_deref(), Some("text/x-own"));
        assert_eq!(part.header("content-encoding").as_deref(), Some("x-own"));
        assert_eq!(part.header("x-a"), None);
    }
    assert_eq!(
        (answer.field("x-a"), answer.header("content-encoding")),
        ("1", None)
    );
}

/// The header of a part is longer than what is sent at once.
#[test]
fn long_headers_of_a_route() {
    let tree = tree();
    let long = "x".repeat(100_000);
    let keys = format!(
        "[[site.route]]\npath = \"/*\"\nheaders = {{ set = {{ Content-Type = \"text/{long}\" }} }}\n"
    );
    let server = Launch::site(tree.path(), "", &keys).start();
    for size in SIZES {
        let answer = ranges(&server, size, "bytes=0-9,1000-5000");
        for part in multipart::parts(&answer) {
            let content_type = part.header("content-type").expect("a type");
            assert_eq!(content_type.len(), "text/".len() + long.len());
            assert_same(
                &part.bytes,
                &content(size as u64, size)[part.first..=part.last],
            );
        }
    }
}

/// The content of the answer has no coding; that of each part has one.
#[test]
fn precompressed() {
    for size in [5_000, 200_000] {
        let tree = Tree::new();
        tree.file("file.js", content(1, size));
        let coded = content(2, size - 1);
        tree.file("file.js.br", &coded);
        let server = Launch::site(tree.path(), "", "precompressed = [\"br\"]").start();
        let headers = [("Accept-Encoding", "br"), ("Range", "bytes=5-9,1000-1999")];
        for _ in 0..2 {
            let answer = server.get_with("/file.js", &headers);
            assert_eq!(answer.header("content-encoding"), None);
            assert_eq!(answer.field("vary"), "Accept-Encoding");
            assert!(answer.field("etag").ends_with("-br\""));
            let parts = multipart::parts(&answer);
            assert_eq!(parts.len(), 2);
            for part in parts {
                assert_eq!(part.header("content-encoding").as_deref(), Some("br"));
                assert!(
                    part.header("content-type")
                        .is_some_and(|value| value.starts_with("text/javascript"))
                );
                assert_same(&part.bytes, &coded[part.first..=part.last]);
            }
        }
    }
}

/// Ranges are those of the file as it is; with a coding it has none.
#[cfg(feature = "compress")]
#[test]
fn compressed_on_the_way() {
    let tree = Tree::new();
    let text = "One line of text.\n".repeat(1000);
    tree.file("file.txt", &text);
    let server = Launch::site(tree.path(), "", "compress = true").start();
    let gzip = ("Accept-Encoding", "gzip");
    let coded = server.get_with("/file.txt", &[gzip]);
    assert_eq!(coded.field("content-encoding"), "gzip");
    let range = ("Range", "bytes=0-9,1000-1009");
    let answer = server.get_with("/file.txt", &[gzip, range]);
    assert_eq!(answer.field("vary"), "Accept-Encoding");
    for part in multipart::parts(&answer) {
        assert_same(&part.bytes, &text.as_bytes()[part.first..=part.last]);
        assert_eq!(part.header("content-encoding"), None);
    }
    let if_range = ("If-Range", coded.field("etag"));
    let whole = server.get_with("/file.txt", &[gzip, range, if_range]);
    assert_eq!(
        (whole.status, whole.field("content-encoding")),
        (200, "gzip")
    );
}

/// What an application answers with is its own affair.
#[test]
fn of_an_application() {
    const BODY: &str = "\r\n--b\r\nContent-Range: bytes 0-0/9\r\n\r\n0\r\n--b--\r\n";
    let app = Scripted::tcp(|conn| {
        while let Some(request) = conn.read_request() {
            assert_eq!(request.field("range"), Some("bytes=0-0,500-"));
            let length = BODY.len();
            conn.send(format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Type: multipart/byteranges; boundary=b\r\n\
                 Content-Length: {length}\r\n\r\n{BODY}"
            ));
        }
    });
    let server = Launch::proxy(app.address(), "").start();
    let answer = server.get_with("/", &[("Range", "bytes=0-0,500-")]);
    assert_eq!((answer.status, answer.text().as_str()), (206, BODY));
    assert_eq!(
        answer.field("content-type"),
        "multipart/byteranges; boundary=b"
    );
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % limit
    }
}

/// A range, and the bytes that it selects of `size`.
fn range(numbers: &mut Numbers, size: usize) -> (String, Option<(usize, usize)>) {
    let first = numbers.below(size + size / 8);
    let length_max = [1, 100, 5000][numbers.below(3)];
    let length = 1 + numbers.below(length_max);
    let (text, last) = match numbers.below(12) {
        0 => {
            let selected = Some((size.saturating_sub(length), size - 1));
            return (format!("-{length}"), selected);
        }
        1 => (format!("{first}-"), size - 1),
        _ => (
            format!("{first}-{}", first + length - 1),
            first + length - 1,
        ),
    };
    (text, (first < size).then(|| (first, last.min(size - 1))))
}

/// A Range header, and what its ranges select.
fn header(numbers: &mut Numbers, size: usize) -> (String, Vec<(usize, usize)>) {
    let mut set: Vec<_> = (0..2 + numbers.below(12))
        .map(|_| range(numbers, size))
        .collect();
    if numbers.below(2) == 0 {
        set.sort_by_key(|(_, selected)| *selected);
    }
    let texts: Vec<_> = set.iter().map(|(text, _)| text.as_str()).collect();
    let selected = set.iter().filter_map(|(_, selected)| *selected);
    (format!("bytes={}", texts.join(",")), selected.collect())
}

/// The parts of an answer to several ranges, in any form.
#[track_caller]
fn parts_of(answer: &Answer) -> Vec<Part> {
    match answer.header("content-range") {
        Some(_) => vec![multipart::only(answer)],
        None => multipart::parts(answer),
    }
}

/// A few hundred headers, compared with the slices that they select, and with what Apache answers.
#[test]
fn generated_headers() {
    let size = 100_001;
    let tree = Tree::new();
    let bytes = tree.filled("file.png", size);
    let server = Launch::serve(tree.path()).start();
    let apache = App::apache(tree.path());
    let mut client = server.client();
    let mut numbers = Numbers(1);
    let (mut whole, mut same) = (0, 0);
    for _ in 0..400 {
        let (value, selected) = header(&mut numbers, size);
        let headers = [("Range", &*value)];
        let ours = client.get_with("/file.png", &headers);
        let theirs = apache.client().get_with("/file.png", &headers);
        if selected.is_empty() {
            assert_eq!((ours.status, theirs.status), (416, 416), "{value}");
            continue;
        }
        if ours.status == 200 {
            let bytes: usize = selected
                .iter()
                .map(|(first, last)| last + 1 - first + 200)
                .sum();
            assert!(bytes >= size, "{value}");
            continue;
        }
        let parts = parts_of(&ours);
        for part in &parts {
            assert_same(&part.bytes, &bytes[part.first..=part.last]);
        }
        for &(first, last) in &selected {
            let has = |part: &&Part| part.first <= first && last <= part.last;
            assert_eq!(
                parts.iter().filter(has).count(),
                1,
                "{first}-{last} of {value}"
            );
        }
        if theirs.status == 200 {
            // Apache ignores a set of as many bytes as the file, overlaps counted twice.
            let bytes: usize = selected.iter().map(|(first, last)| last + 1 - first).sum();
            assert!(bytes >= size, "{value}");
            whole += 1;
            continue;
        }
        let is_apart = |&(first, last): &(usize, usize)| {
            let far = |&(a, b): &(usize, usize)| b + GAP + 1 < first || last + GAP + 1 < a;
            selected.iter().filter(|other| far(other)).count() == selected.len() - 1
        };
        if selected.iter().all(is_apart) {
            let positions = |parts: &[Part]| -> Vec<_> {
                parts
                    .iter()
                    .map(|part| (part.first, part.last, part.header("content-type")))
                    .collect()
            };
            let theirs = parts_of(&theirs);
            assert_eq!(positions(&parts), positions(&theirs), "{value}");
            let contents =
                |parts: Vec<Part>| -> Vec<_> { parts.into_iter().map(|part| part.bytes).collect() };
            assert!(contents(parts) == contents(theirs), "{value}");
            same += 1;
        }
    }
    assert!(whole < 200 && same > 100, "{whole} {same}");
}
