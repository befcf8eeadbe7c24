//! A directory's names as a page that people, `wget -r` and screen readers can follow.

use levity_disk::Kind;
use levity_disk::engine::{Entry, Listing};
use levity_wire::path;
use tokio::task;

use super::{Body, Response};
use crate::route::is_hidden;

/// Names rendered before other connections get their turn; about 100 microseconds.
const NAMES_PER_TURN: usize = 200;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;\
padding:0 1rem;color-scheme:light dark}table{border-collapse:collapse;width:100%}\
td{padding:.15rem .5rem;border-bottom:1px solid #8884}td+td{text-align:right;\
white-space:nowrap;font-variant-numeric:tabular-nums}th{text-align:left;padding:.15rem .5rem}\
th+th{text-align:right}a{text-decoration:none}a:hover{text-decoration:underline}";

/// The page for the directory at `directory`, the decoded path with a slash at both ends.
pub async fn listing(directory: &[u8], listing: &Listing) -> Response {
    let mut page = String::with_capacity(1024 + listing.entries.len() * 160);
    begin(&mut page, directory);
    for entries in listing.entries.chunks(NAMES_PER_TURN) {
        for entry in entries.iter().filter(|entry| is_shown(entry)) {
            row(&mut page, entry);
        }
        task::yield_now().await;
    }
    end(&mut page, listing);
    let mut response = Response::new(200);
    response
        .fields
        .add("Content-Type", b"text/html; charset=utf-8");
    // What the page shows has no single version that a validator could name.
    response.fields.add("Cache-Control", b"no-cache");
    response.body = Body::Text(page.into_bytes());
    response
}

fn is_shown(entry: &Entry) -> bool {
    !is_hidden(&entry.name) && entry.meta.kind != Kind::Other
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

fn row(page: &mut String, entry: &Entry) {
    let slash = if entry.meta.kind == Kind::Directory {
        "/"
    } else {
        ""
    };
    // `./` keeps a name with a colon from being read as a scheme.
    let mut link = b"./".to_vec();
    path::encode(&entry.name, &mut link);
    page.push_str("<tr><td><a href=\"");
    escape(page, &String::from_utf8_lossy(&link));
    page.push_str(slash);
    page.push_str("\">");
    escape(page, &String::from_utf8_lossy(&entry.name));
    page.push_str(slash);
    page.push_str("</a><td>");
    if slash.is_empty() {
        page.push_str(&entry.meta.size.to_string());
    }
    page.push_str("<td>");
    page.push_str(&minute(entry.meta.mtime_s));
    page.push('\n');
}

fn end(page: &mut String, listing: &Listing) {
    page.push_str("</table>\n");
    if listing.truncated {
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

/// `2026-11-20 19:42`; the civil calendar from days, as Howard Hinnant's `civil_from_days` has it.
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
    use super::*;

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
