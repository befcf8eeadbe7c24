//! A directory listing as an HTML page for browsers, `wget -r` and screen readers.

use std::sync::atomic::{AtomicUsize, Ordering};

use levity_disk::{Entry, Kind, Listing};
use levity_wire::path;
use tokio::task;

use crate::http::error::error;
use crate::http::response::{Body, OwnedBytes, Response};
use crate::limit::Limit;
use crate::route::is_hidden;

/// The maximum size of a page in bytes, without [`END_BYTES_MAX`]. A row has about 150 bytes.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The size of the start of a page in bytes, without its title.
const HEAD_BYTES_MAX: usize = 2048;

/// The size of the end of a page in bytes.
const END_BYTES_MAX: usize = 128;

/// The maximum size of a row in bytes, without its name.
const ROW_BYTES_MAX: usize = 128;

/// The maximum size of a byte of a name in a row: `%22` in the link and `&quot;` in the text.
const ESCAPED_BYTES_MAX: usize = 3 + 6;

/// Names and rows are processed in turns of this many bytes, between which other connections are served.
const TURN_BYTES: usize = 16 * 1024;

/// The maximum of pages that are rendered at a time in the process; more get 503. It bounds the memory of
/// unsent pages to this many times [`PAGE_BYTES_MAX`]. A directory is read before its page counts, so that a
/// frozen disk blocks no other listing.
const LISTINGS_MAX: usize = 16;

/// The maximum of long pages that are being sent in the process, in bytes; more get 503.
const SENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Pages up to this size do not count towards [`SENT_BYTES_MAX`], so that slow readers of long pages do not
/// block ordinary listings.
const SMALL_PAGE_BYTES: usize = 64 * 1024;

/// The size of long pages that are being sent.
static SENT_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The pages that are being rendered.
static RENDERED: Limit = Limit::new(LISTINGS_MAX);

// On the root element, because browsers paint the canvas in the root's colour scheme; on the body it would
// change only the text.
const STYLE: &str = ":root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem}table{border-collapse:collapse;width:100%}\
td{padding:.15rem .5rem;border-bottom:1px solid #8884}td+td{text-align:right;\
white-space:nowrap;font-variant-numeric:tabular-nums}th{text-align:left;padding:.15rem .5rem}\
th+th{text-align:right}a{text-decoration:none}a:hover{text-decoration:underline}";

/// The page of `directory`, a decoded path with a slash at both ends; 503 while [`LISTINGS_MAX`] other pages
/// are rendered.
pub async fn listing(directory: &[u8], listing: Listing) -> Response {
    let Some(_permit) = RENDERED.try_take() else {
        return error(503, "too many listings at once");
    };
    let Some(page) = Page::new(render(directory, listing).await) else {
        return error(503, "too many listings on their way");
    };
    let mut response = Response::new(200);
    response
        .fields
        .add("Content-Type", b"text/html; charset=utf-8");
    // A listing has no validator.
    response.fields.add("Cache-Control", b"no-cache");
    response.body = Body::Page(Box::new(page));
    response
}

/// A page that is being sent. The total is bounded over all connections: otherwise clients that request long
/// pages and do not read them could use any amount of memory.
#[derive(Debug)]
pub struct Page {
    text: String,
    reserved: usize,
}

impl Page {
    fn new(text: String) -> Option<Self> {
        let reserved = if text.len() > SMALL_PAGE_BYTES {
            text.capacity()
        } else {
            0
        };
        let more = |bytes| Some(bytes + reserved).filter(|&bytes| bytes <= SENT_BYTES_MAX);
        SENT_BYTES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Self { text, reserved })
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl OwnedBytes for Page {}

impl Drop for Page {
    fn drop(&mut self) {
        SENT_BYTES.fetch_sub(self.reserved, Ordering::Relaxed);
    }
}

async fn render(directory: &[u8], listing: Listing) -> String {
    let mut page = String::new();
    // Reserved at once: growing a long page would copy megabytes, which takes milliseconds. Untouched memory
    // costs nothing.
    page.reserve_exact(bytes_max(directory, &listing));
    begin(&mut page, directory);
    let mut truncated = listing.truncated;
    let mut turn = Turn::default();
    for entry in listing.entries() {
        let before = page.len();
        if is_shown(&entry) {
            if before + row_bytes_max(entry.name.len()) > PAGE_BYTES_MAX {
                truncated = true;
                break;
            }
            row(&mut page, &entry);
        }
        turn.spend(entry.name.len() + page.len() - before).await;
    }
    end(&mut page, truncated);
    page
}

/// The maximum size of the page in bytes.
fn bytes_max(directory: &[u8], listing: &Listing) -> usize {
    let title = 2 * ESCAPED_BYTES_MAX * directory.len();
    let names = ESCAPED_BYTES_MAX * listing.name_bytes();
    let rows = ROW_BYTES_MAX * listing.entries().len() + names;
    (HEAD_BYTES_MAX + title + rows).min(PAGE_BYTES_MAX) + END_BYTES_MAX
}

fn row_bytes_max(name_bytes: usize) -> usize {
    ROW_BYTES_MAX + ESCAPED_BYTES_MAX * name_bytes
}

/// The bytes processed in the current turn.
#[derive(Default)]
struct Turn(usize);

impl Turn {
    async fn spend(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= TURN_BYTES {
            self.0 = 0;
            task::yield_now().await;
        }
    }
}

fn is_shown(entry: &Entry<'_>) -> bool {
    !is_hidden(entry.name) && entry.kind != Kind::Other
}

fn begin(page: &mut String, directory: &[u8]) {
    let mut title = String::new();
    escape(&mut title, &String::from_utf8_lossy(directory));
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    page.push_str(&title);
    page.push_str("</title>\n<style>");
    page.push_str(STYLE);
    page.push_str("</style>\n</head>\n<body>\n<h1>");
    page.push_str(&title);
    page.push_str("</h1>\n<table>\n<tr><th>Name<th>Size<th>Modified (UTC)\n");
    if directory != b"/" {
        page.push_str("<tr><td><a href=\"../\">../</a><td><td>\n");
    }
}

fn row(page: &mut String, entry: &Entry<'_>) {
    let slash = if entry.kind == Kind::Directory {
        "/"
    } else {
        ""
    };
    // `./` keeps a name with a colon from being parsed as a scheme.
    let mut link = b"./".to_vec();
    path::encode(entry.name, &mut link);
    page.push_str("<tr><td><a href=\"");
    escape(page, &String::from_utf8_lossy(&link));
    page.push_str(slash);
    page.push_str("\">");
    escape(page, &String::from_utf8_lossy(entry.name));
    page.push_str(slash);
    page.push_str("</a><td>");
    // Other mounts are not examined, so their entries have no metadata.
    if let Some(meta) = entry.meta.filter(|_| slash.is_empty()) {
        page.push_str(&meta.size.to_string());
    }
    page.push_str("<td>");
    if let Some(meta) = entry.meta {
        page.push_str(&minute(meta.mtime_s));
    }
    page.push('\n');
}

fn end(page: &mut String, truncated: bool) {
    page.push_str("</table>\n");
    if truncated {
        page.push_str("<p>There are more names than this page shows.</p>\n");
    }
    page.push_str("</body>\n</html>\n");
}

fn escape(page: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            other => page.push(other),
        }
    }
}

/// Formats a time as `2026-11-20 19:42`; the date by Howard Hinnant's `civil_from_days`.
fn minute(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use levity_disk::Meta;

    use super::*;

    fn listing_of(count: usize, name: &[u8]) -> Listing {
        let meta = Meta {
            kind: Kind::Regular,
            device: 0,
            inode: 0,
            size: 1,
            mtime_s: 0,
            mtime_ns: 0,
            ctime_s: 0,
            ctime_ns: 0,
            links: 1,
        };
        let mut listing = Listing::default();
        for _ in 0..count {
            listing.push(Entry {
                name,
                kind: meta.kind,
                meta: Some(meta),
            });
        }
        listing
    }

    /// Runs a future to its end; returns its output and the number of turns.
    fn turns<T>(work: impl Future<Output = T>) -> (T, usize) {
        let mut work = pin!(work);
        let mut turns = 1;
        // Outside a runtime, `yield_now` wakes at once, so the future can be polled again.
        loop {
            match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => return (result, turns),
                Poll::Pending => turns += 1,
            }
        }
    }

    #[test]
    fn a_page_takes_a_turn_for_so_many_bytes() {
        for name in [&[b'x'; 10][..], &[b'"'; 250]] {
            let (page, turns) = turns(render(b"/", listing_of(1000, name)));
            let spent = page.len() + 1000 * name.len();
            let expected = spent / (TURN_BYTES + 4096)..=spent / TURN_BYTES + 1;
            assert!(expected.contains(&turns), "{turns} {expected:?}");
        }
        let (_, turns) = turns(render(b"/", listing_of(10_000, b".hidden")));
        assert!(turns > 70_000 / (TURN_BYTES + 7), "{turns}");
    }

    /// Moving a page of megabytes takes milliseconds, all in one turn.
    #[test]
    fn a_page_stays_where_it_is() {
        for (count, name) in [
            (0, &b"x"[..]),
            (1, b"x"),
            (1000, &[b'"'; 250]),
            (1000, &[0xff; 250]),
            (100_000, b"some-file-name-000000.txt"),
            (100_000, b"."),
        ] {
            for directory in [&b"/"[..], &[b'"'; 8000]] {
                let listing = listing_of(count, name);
                let bytes_max = bytes_max(directory, &listing);
                let (page, _) = turns(render(directory, listing));
                assert_eq!(page.capacity(), bytes_max, "{count} times {name:?}");
            }
        }
    }

    #[test]
    fn a_page_is_cut_at_a_row() {
        let row_bytes_max = 4096;
        let (page, _) = turns(render(b"/", listing_of(3000, &[b'"'; 250])));
        assert!(
            page.len() > PAGE_BYTES_MAX - row_bytes_max,
            "{}",
            page.len()
        );
        assert!(page.len() < PAGE_BYTES_MAX + 200, "{}", page.len());
        assert!(page.contains("1970-01-01 00:00\n</table>\n<p>There are more names"));
        let (page, _) = turns(render(b"/", listing_of(1500, &[b'"'; 250])));
        assert!(!page.contains("more names"));
    }

    #[test]
    fn one_page_too_many_is_refused() {
        let mut permits: Vec<_> = (0..).map_while(|_| RENDERED.try_take()).collect();
        assert_eq!(permits.len(), LISTINGS_MAX);
        let (refused, _) = turns(listing(b"/", listing_of(1, b"a")));
        assert_eq!(refused.status, 503);
        let fields = String::from_utf8_lossy(refused.fields.as_bytes()).into_owned();
        assert!(fields.contains("Retry-After: "), "{fields}");
        permits.pop();
        for _ in 0..2 {
            let (page, _) = turns(listing(b"/", listing_of(1, b"a")));
            assert_eq!(page.status, 200);
        }
    }

    #[test]
    fn long_pages_on_their_way_are_bounded_and_short_ones_are_not() {
        let long = || Page::new("x".repeat(SENT_BYTES_MAX / 4));
        let mut pages: Vec<_> = (0..4).map_while(|_| long()).collect();
        assert_eq!(pages.len(), 4);
        assert!(long().is_none());
        assert!(Page::new("x".repeat(SMALL_PAGE_BYTES + 1)).is_none());
        assert!(Page::new("x".repeat(SMALL_PAGE_BYTES)).is_some());
        pages.pop();
        assert!(long().is_some());
    }

    #[test]
    fn minutes_follow_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_795_203_727, "2026-11-20 19:42"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(minute(seconds), text);
        }
    }
}
