//! Media types by file name.

/// The type of files without a known extension.
pub const DEFAULT: &str = "application/octet-stream";

/// Longest extension in the table.
const EXTENSION_BYTES_MAX: usize = 12;

/// The Content-Type for a path, by the case-insensitive extension of its last segment.
///
/// Text types have `charset=utf-8`, except formats that declare their encoding themselves (XML,
/// JSON).
pub fn of(path: &[u8]) -> &'static str {
    extension(path).and_then(lookup).unwrap_or(DEFAULT)
}

/// A media type without its parameters.
#[must_use]
pub fn essence(media_type: &[u8]) -> &[u8] {
    let essence = media_type.split(|&byte| byte == b';').next();
    essence.unwrap_or_default().trim_ascii()
}

/// The bytes after the last dot of the last segment.
fn extension(path: &[u8]) -> Option<&[u8]> {
    let start = path.iter().rposition(|byte| b"./".contains(byte))?;
    (path[start] == b'.').then_some(&path[start + 1..])
}

fn lookup(extension: &[u8]) -> Option<&'static str> {
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    let found = TYPES
        .binary_search_by_key(&&*lower, |(known, _)| known.as_bytes())
        .ok()?;
    Some(TYPES[found].1)
}

/// Sorted by extension. Formats without a registered type are left to [`DEFAULT`].
#[rustfmt::skip]
static TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("apk", "application/vnd.android.package-archive"),
    ("apng", "image/apng"),
    ("arrow", "application/vnd.apache.arrow.file"),
    ("asc", "text/plain; charset=utf-8"),
    ("atom", "application/atom+xml"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("avro", "application/vnd.apache.avro"),
    ("bmp", "image/bmp"),
    ("br", "application/x-brotli"),
    ("bz2", "application/x-bzip2"),
    ("c", "text/plain; charset=utf-8"),
    ("cbor", "application/cbor"),
    ("cjs", "text/javascript; charset=utf-8"),
    ("conf", "text/plain; charset=utf-8"),
    ("cpp", "text/plain; charset=utf-8"),
    ("crl", "application/pkix-crl"),
    ("crt", "application/x-x509-ca-cert"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("cue", "text/plain; charset=utf-8"),
    ("deb", "application/vnd.debian.binary-package"),
    ("dmg", "application/x-apple-diskimage"),
    ("doc", "application/msword"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    ("dtd", "application/xml-dtd"),
    ("eot", "application/vnd.ms-fontobject"),
    ("epub", "application/epub+zip"),
    ("flac", "audio/flac"),
    ("flv", "video/x-flv"),
    ("geojson", "application/geo+json"),
    ("gif", "image/gif"),
    ("glb", "model/gltf-binary"),
    ("gltf", "model/gltf+json"),
    ("gpx", "application/gpx+xml"),
    ("gz", "application/gzip"),
    ("h", "text/plain; charset=utf-8"),
    ("heic", "image/heic"),
    ("heif", "image/heif"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/vnd.microsoft.icon"),
    ("ics", "text/calendar; charset=utf-8"),
    ("ini", "text/plain; charset=utf-8"),
    ("iso", "application/x-iso9660-image"),
    ("jar", "application/java-archive"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("jsonld", "application/ld+json"),
    ("jxl", "image/jxl"),
    ("kml", "application/vnd.google-earth.kml+xml"),
    ("kmz", "application/vnd.google-earth.kmz"),
    ("log", "text/plain; charset=utf-8"),
    ("lz", "application/x-lzip"),
    ("lz4", "application/x-lz4"),
    ("lzma", "application/x-lzma"),
    ("m2ts", "video/mp2t"),
    ("m3u", "audio/x-mpegurl"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("m4a", "audio/mp4"),
    ("m4s", "video/iso.segment"),
    ("m4v", "video/x-m4v"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mid", "audio/midi"),
    ("midi", "audio/midi"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mka", "audio/x-matroska"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpd", "application/dash+xml"),
    ("mpeg", "video/mpeg"),
    ("mpg", "video/mpeg"),
    ("msi", "application/x-msi"),
    ("ndjson", "application/x-ndjson"),
    ("odp", "application/vnd.oasis.opendocument.presentation"),
    ("ods", "application/vnd.oasis.opendocument.spreadsheet"),
    ("odt", "application/vnd.oasis.opendocument.text"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("opus", "audio/ogg"),
    ("otf", "font/otf"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("pem", "application/x-pem-file"),
    ("png", "image/png"),
    ("ppt", "application/vnd.ms-powerpoint"),
    ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
    ("ps", "application/postscript"),
    ("py", "text/x-python; charset=utf-8"),
    ("rar", "application/vnd.rar"),
    ("rpm", "application/x-rpm"),
    ("rs", "text/plain; charset=utf-8"),
    ("rss", "application/rss+xml"),
    ("rtf", "application/rtf"),
    ("sh", "text/x-shellscript; charset=utf-8"),
    ("sqlite", "application/vnd.sqlite3"),
    ("srt", "text/plain; charset=utf-8"),
    ("stl", "model/stl"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("torrent", "application/x-bittorrent"),
    ("ts", "video/mp2t"),
    ("tsv", "text/tab-separated-values; charset=utf-8"),
    ("ttc", "font/collection"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain; charset=utf-8"),
    ("vcf", "text/vcard; charset=utf-8"),
    ("vtt", "text/vtt; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("whl", "application/zip"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xls", "application/vnd.ms-excel"),
    ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    ("xml", "application/xml"),
    ("xsl", "application/xslt+xml"),
    ("xslt", "application/xslt+xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_in_lower_case() {
        assert!(TYPES.is_sorted_by(|(a, _), (b, _)| a < b));
        for (extension, mime) in TYPES {
            assert_eq!(
                of(format!("a.{extension}").as_bytes()),
                *mime,
                "{extension}"
            );
            assert_eq!(
                of(format!("A.{}", extension.to_uppercase()).as_bytes()),
                *mime,
                "{extension}"
            );
        }
    }

    #[test]
    fn text_has_a_charset_and_nothing_else_has() {
        for (extension, mime) in TYPES {
            assert_eq!(
                mime.starts_with("text/"),
                mime.ends_with("; charset=utf-8"),
                "{extension}"
            );
            assert_eq!(mime.contains(';'), mime.starts_with("text/"), "{extension}");
        }
    }

    #[test]
    fn names() {
        let cases = [
            ("index.html", "text/html; charset=utf-8"),
            ("a/b.c/INDEX.HTM", "text/html; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("data.json", "application/json"),
            ("linux.tar.gz", "application/gzip"),
            ("linux.tar.zst", "application/zstd"),
            ("live/segment1.ts", "video/mp2t"),
            ("live/index.m3u8", "application/vnd.apple.mpegurl"),
            ("model.safetensors", DEFAULT),
            ("model.gguf", DEFAULT),
            ("model.onnx", DEFAULT),
            ("README", DEFAULT),
            ("a.html/b", DEFAULT),
            ("a.", DEFAULT),
            ("", DEFAULT),
            ("a.extensionlongerthananyinthetable", DEFAULT),
            ("a.ht\u{e9}", DEFAULT),
        ];
        for (path, mime) in cases {
            assert_eq!(of(path.as_bytes()), mime, "{path}");
        }
    }
}
