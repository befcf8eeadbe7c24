//! A listing as an HTML page for browsers, screen readers, and programs that follow links.
//!
//! Those programs shape the page. `wget -r` and lftp follow each link once, so sorting needs a script and no links. rclone
//! takes each relative link for a name, so nothing else is linked but the folders above. Kodi and httpdirfs compare the link of an
//! entry with its text. htmllistparse reads the title,
//! the column headings, `data-sort-value` and `datetime`.

use std::borrow::Cow;
use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use levity_config::ArchiveForm;
use levity_disk::{Entry, Kind};
use levity_wire::{decimal, path};
use sha2::{Digest as _, Sha256};

use super::{Ending, time};

const STYLE: &str = include_str!("page.css");

const SCRIPT: &str = include_str!("page.js");

/// A Content-Security-Policy that allows the style, the script and the icons, which are part of the style.
pub static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'self'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// The text that explains a folder.
pub struct Readme {
    /// Its file name.
    pub name: Vec<u8>,
    /// The text, or its start.
    pub text: Vec<u8>,
    /// The file is longer.
    pub is_cut: bool,
}

/// The page up to its first entry. `path` is decoded and has a slash at both ends.
pub(super) fn begin(out: &mut Vec<u8>, path: &[u8], archives: &[ArchiveForm], is_sorted: bool) {
    let mut title = Vec::new();
    escape(&mut title, path);
    out.extend_from_slice(
        b"<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
          <meta name=\"viewport\" content=\"width=device-width\">\n<title>Index of ",
    );
    out.extend_from_slice(&title);
    out.extend_from_slice(b"</title>\n<style>");
    out.extend_from_slice(STYLE.as_bytes());
    out.extend_from_slice(b"</style>\n</head>\n<body>\n<h1>Index of ");
    breadcrumbs(out, path);
    out.extend_from_slice(b"</h1>\n");
    offer(out, archives);
    out.extend_from_slice(b"<table");
    if !is_sorted {
        out.extend_from_slice(b" data-unsorted");
    }
    out.extend_from_slice(b">\n<thead>\n<tr><th>Name<th>Size<th>Modified (UTC)\n<tbody>\n");
    if path != b"/" {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a><td><td>\n");
    }
}

/// Buttons for archives. `wget -r` and others would follow a link, and fetch everything twice.
fn offer(out: &mut Vec<u8>, archives: &[ArchiveForm]) {
    if archives.is_empty() {
        return;
    }
    out.extend_from_slice(b"<form>Download all as");
    for form in archives {
        let name = form.name();
        let button = format!(" <button name=\"archive\" value=\"{name}\">{name}</button>");
        out.extend_from_slice(button.as_bytes());
    }
    out.extend_from_slice(b"</form>\n");
}

/// The folders of `path`, each as a link relative to the page: a proxy may show it under another path.
fn breadcrumbs(out: &mut Vec<u8>, path: &[u8]) {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    let link = |out: &mut Vec<u8>, levels: usize, name: &[u8]| {
        out.extend_from_slice(b"<a href=\"");
        out.extend_from_slice(&b"../".repeat(levels));
        out.extend_from_slice(b"\">");
        escape(out, name);
        out.extend_from_slice(b"/</a>");
    };
    let Some((last, above)) = names.split_last() else {
        return out.push(b'/');
    };
    link(out, names.len(), b"");
    for (index, name) in above.iter().enumerate() {
        link(out, above.len() - index, name);
    }
    escape(out, last);
    out.push(b'/');
}

/// The row of an entry.
pub(super) fn entry(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let is_directory = entry.kind == Kind::Directory;
    let slash: &[u8] = if is_directory { b"/" } else { b"" };
    // Nothing before the name: Kodi and httpdirfs take a link for an entry only if its text is the same. Of a colon, which would
    // end a scheme (RFC 3986, 4.2), `encode` makes an escape.
    out.extend_from_slice(b"<tr><td><a href=\"");
    let start = out.len();
    path::encode(entry.name, out);
    escape_from(out, start);
    out.extend_from_slice(slash);
    out.extend_from_slice(b"\">");
    escape(out, entry.name);
    out.extend_from_slice(slash);
    out.extend_from_slice(b"</a><td");
    // Other mounts are not examined, so their entries have no metadata.
    match entry.stat.filter(|_| !is_directory) {
        Some(stat) => size(out, stat.size),
        None => out.push(b'>'),
    }
    out.extend_from_slice(b"<td>");
    if let Some(stat) = entry.stat {
        out.extend_from_slice(b"<time datetime=\"");
        time::push_seconds(out, stat.mtime_s);
        out.extend_from_slice(b"\">");
        time::push_minute(out, stat.mtime_s);
        out.extend_from_slice(b"</time>");
    }
    out.push(b'\n');
}

/// The rest of a cell with a size in bytes.
fn size(out: &mut Vec<u8>, bytes: u64) {
    out.extend_from_slice(b" data-sort-value=\"");
    decimal::push(out, bytes);
    if bytes >= 1024 {
        out.extend_from_slice(b"\" title=\"");
        decimal::push(out, bytes);
        out.extend_from_slice(b" bytes");
    }
    out.extend_from_slice(b"\">");
    push_human(out, bytes);
    // HTML needs no end of a cell, but Kodi finds the size by it.
    out.extend_from_slice(b"</td>");
}

/// Appends `1.2 MiB`: three digits or fewer, rounded down, and a decimal below ten.
fn push_human(out: &mut Vec<u8>, bytes: u64) {
    const UNITS: &[u8] = b"KMGTPE";
    let power = (bytes.max(1).ilog2() / 10) as usize;
    let Some(unit) = power.checked_sub(1).map(|index| UNITS[index]) else {
        decimal::push(out, bytes);
        return out.extend_from_slice(b" B");
    };
    let tenths = (u128::from(bytes) * 10) >> (10 * power);
    decimal::push(out, (tenths / 10) as u64);
    if tenths < 100 {
        out.push(b'.');
        decimal::push(out, (tenths % 10) as u64);
    }
    out.extend_from_slice(&[b' ', unit, b'i', b'B']);
}

/// The page after its last entry.
pub(super) fn end(out: &mut Vec<u8>, ending: Ending, readme: Option<&Readme>) {
    out.extend_from_slice(b"</table>\n");
    if ending.is_cut {
        out.extend_from_slice(b"<p>There are more names than this page shows.</p>\n");
    }
    if !ending.is_sorted {
        out.extend_from_slice(
            b"<p>The names are not sorted: there are too many for the memory of listings.</p>\n",
        );
    }
    if let Some(readme) = readme {
        out.extend_from_slice(b"<h2>");
        escape(out, &readme.name);
        out.extend_from_slice(b"</h2>\n<pre>\n");
        escape(out, &readme.text);
        out.extend_from_slice(b"</pre>\n");
        if readme.is_cut {
            out.extend_from_slice(b"<p>The file is longer than this page shows.</p>\n");
        }
    }
    out.extend_from_slice(b"<script>");
    out.extend_from_slice(SCRIPT.as_bytes());
    out.extend_from_slice(b"</script>\n</body>\n</html>\n");
}

/// Appends text; bytes that are not UTF-8 become U+FFFD.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    let start = out.len();
    match String::from_utf8_lossy(text) {
        Cow::Borrowed(text) => out.extend_from_slice(text.as_bytes()),
        Cow::Owned(text) => out.extend_from_slice(text.as_bytes()),
    }
    escape_from(out, start);
}

/// Escapes what is in `out` from `start` on. Most names have nothing to escape.
fn escape_from(out: &mut Vec<u8>, start: usize) {
    let is_special = |byte: &u8| matches!(byte, b'&' | b'<' | b'>' | b'"');
    let Some(first) = out[start..].iter().position(is_special) else {
        return;
    };
    let rest = out.split_off(start + first);
    for byte in rest {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10_239, "9.9 KiB"),
            (10_240, "10 KiB"),
            (1024 * 1024 - 1, "1023 KiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "15 EiB"),
        ] {
            assert_eq!(text(|out| push_human(out, bytes)), expected);
        }
    }

    #[test]
    fn text_is_escaped() {
        let escaped = text(|out| escape(out, b"a<b>&\"'\xff"));
        assert_eq!(escaped, "a&lt;b&gt;&amp;&quot;'\u{fffd}");
    }

    #[test]
    fn links_to_the_folders_above() {
        assert_eq!(text(|out| breadcrumbs(out, b"/")), "/");
        let one = "<a href=\"../\">/</a>a/";
        assert_eq!(text(|out| breadcrumbs(out, b"/a/")), one);
        let three =
            "<a href=\"../../../\">/</a><a href=\"../../\">a/</a><a href=\"../\">&lt;/</a>c/";
        assert_eq!(text(|out| breadcrumbs(out, b"/a/</c/")), three);
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = text(|out| {
            begin(out, b"/", &[ArchiveForm::Tar], true);
            let ending = Ending {
                is_cut: true,
                is_sorted: false,
            };
            end(out, ending, None);
        });
        // The namespace of the icons is not fetched.
        let page = page.replace("http://www.w3.org/2000/svg", "");
        for part in [
            "http:",
            "https:",
            "src=",
            "@import",
            "innerHTML",
            "eval(",
            "style=",
            " on",
        ] {
            let found = page.find(part).map(|at| &page[at..]);
            let found = found.filter(|_| part != " on");
            assert_eq!(found, None, "{part}");
        }
        assert!(
            !page.contains("</style>\n</style>") && !STYLE.contains('<') && !SCRIPT.contains("</")
        );
    }
}
