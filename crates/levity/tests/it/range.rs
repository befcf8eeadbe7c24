//! One part of a file (RFC 9110, 14).

use crate::support::{Answer, Launch, Server, Tree, assert_same, content, per_engine};

const SIZE: usize = 100_001;

/// Kept in memory, read from the file, and read in several chunks.
const SIZES: [usize; 3] = [1_000, SIZE, 3_000_000];

fn server(engine: &str) -> (Tree, Server) {
    let tree = Tree::new();
    for size in SIZES {
        tree.filled(&size.to_string(), size);
    }
    for size in SIZES {
        tree.evict(size.to_string());
    }
    let server = Launch::serve(tree.path()).engine(engine).start();
    (tree, server)
}

fn part(server: &Server, size: usize, range: &str) -> Answer {
    server.get_with(&format!("/{size}"), &[("Range", range)])
}

/// Expects bytes `first..=last` of the file of `size` bytes.
#[track_caller]
fn is_part(answer: &Answer, size: usize, first: usize, last: usize) {
    answer.assert_status(206);
    assert_eq!(
        answer.field("content-range"),
        format!("bytes {first}-{last}/{size}")
    );
    assert_same(&answer.body, &content(size as u64, size)[first..=last]);
}

#[track_caller]
fn is_whole(answer: &Answer, size: usize) {
    answer.assert_status(200);
    assert_eq!(answer.header("content-range"), None);
    assert_same(&answer.body, &content(size as u64, size));
}

per_engine! {
    fn single(engine) {
        let (_tree, server) = server(engine);
        for size in SIZES {
            for (first, last) in [(0, 0), (0, size - 1), (1, 499), (size / 2, size / 2 + 7), (size - 1, size - 1)] {
                is_part(&part(&server, size, &format!("bytes={first}-{last}")), size, first, last);
            }
        }
    }

    fn suffix_and_open_end(engine) {
        let (_tree, server) = server(engine);
        for size in SIZES {
            is_part(&part(&server, size, "bytes=-10"), size, size - 10, size - 1);
            is_part(&part(&server, size, "bytes=-99999999"), size, 0, size - 1);
            is_part(&part(&server, size, "bytes=990-"), size, 990, size - 1);
            is_part(&part(&server, size, "bytes=0-99999999"), size, 0, size - 1);
        }
    }

    fn beyond_the_end(engine) {
        let (_tree, server) = server(engine);
        for size in SIZES {
            for range in [format!("bytes={size}-"), "bytes=9999999999-".into(), "bytes=-0".into()] {
                let answer = part(&server, size, &range);
                answer.assert_status(416);
                assert_eq!(answer.field("content-range"), format!("bytes */{size}"));
            }
        }
    }

    fn pieces_make_the_whole(engine) {
        let (_tree, server) = server(engine);
        let mut client = server.client();
        let mut bytes = Vec::new();
        while bytes.len() < 3_000_000 {
            let range = format!("bytes={}-{}", bytes.len(), bytes.len() + 333_332);
            bytes.extend(client.get_with("/3000000", &[("Range", &range)]).body);
        }
        assert_same(&bytes, &content(3_000_000, 3_000_000));
    }

    fn if_range(engine) {
        let (_tree, server) = server(engine);
        let known = server.get(&format!("/{SIZE}"));
        let (etag, date) = (known.field("etag"), known.field("last-modified"));
        let partly = |condition: &str| {
            let headers = [("Range", "bytes=5-9"), ("If-Range", condition)];
            server.get_with(&format!("/{SIZE}"), &headers)
        };
        is_part(&partly(etag), SIZE, 5, 9);
        is_part(&partly(date), SIZE, 5, 9);
        is_whole(&partly("\"other\""), SIZE);
        is_whole(&partly(&format!("W/{etag}")), SIZE);
        is_whole(&partly("Sun, 06 Nov 1994 08:49:37 GMT"), SIZE);
        is_whole(&partly("nonsense"), SIZE);
    }
}

#[test]
fn what_is_no_byte_range_is_ignored() {
    let (_tree, server) = server("auto");
    for range in [
        "bytes=0-1,5-4",
        "bytes=0-1,500-600,a-b",
        "bytes=,",
        "items=0-1",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5-4",
        "bytes=a-b",
        "bytes=0x0-1",
        "0-1",
    ] {
        is_whole(&part(&server, SIZE, range), SIZE);
    }
}

#[test]
fn the_unit_has_no_case() {
    let (_tree, server) = server("auto");
    is_part(&part(&server, SIZE, "BYTES=1-2"), SIZE, 1, 2);
}

#[test]
fn head_ignores_ranges() {
    let (_tree, server) = server("auto");
    let answer = server
        .client()
        .request("HEAD", "/1000", &[("Range", "bytes=0-9")]);
    assert_eq!((answer.status, answer.length()), (200, Some(1000)));
}

#[test]
fn of_an_empty_file_everything_is_sent() {
    let tree = Tree::new();
    tree.file("empty", "");
    let server = Launch::serve(tree.path()).start();
    let range = |value: &str| server.get_with("/empty", &[("Range", value)]);
    for value in [
        "bytes=0-",
        "bytes=0-0",
        "bytes=-5",
        "bytes=1-",
        "bytes=0-0,2-",
    ] {
        let answer = range(value);
        let seen = (
            answer.status,
            answer.header("content-range"),
            answer.body.len(),
        );
        assert_eq!(seen, (200, None, 0), "{value}");
    }
}

/// Two writes within one second have one date: it cannot tell them apart (RFC 9110, 8.8.2.2).
#[test]
fn a_young_file_s_date_is_no_strong_validator() {
    let tree = Tree::new();
    tree.fresh("young", "0123456789");
    let server = Launch::serve(tree.path()).start();
    let known = server.get("/young");
    let date = known.field("last-modified");
    let again = server.get_with("/young", &[("Range", "bytes=0-1"), ("If-Range", date)]);
    assert_eq!((again.status, again.text().as_str()), (200, "0123456789"));
}
