//! The servers with compression of their responses.

use super::{Program, Row};
use crate::failure::{Failure, Result};
use serde::Serialize;

const CADDY: &str = include_str!("../../peers/caddy.conf");
/// The module of nginx that compresses with br.
const NGINX_BR: &str = "/usr/lib/nginx/modules/ngx_http_brotli_filter_module.so";
/// The types of the files and of the application.
const TYPES: [&str; 3] = ["text/plain", "application/json", "application/octet-stream"];
/// Shorter responses are not compressed, in bytes.
const LENGTH_MIN: usize = 256;

/// The peers that compress, by their names on the command line.
pub const COMPRESSORS: [&str; 3] = ["nginx", "caddy", "lighttpd"];

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Zstandard.
    Zstd,
    /// Brotli.
    Br,
    /// gzip.
    Gzip,
}

impl Coding {
    /// The word in Accept-Encoding.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
        }
    }
}

/// A coding and its level; without a level that of the server's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compression {
    /// The coding.
    pub coding: Coding,
    /// The level, in the numbers of the coding.
    pub level: Option<u8>,
}

impl Compression {
    /// At this level.
    #[must_use]
    pub const fn at(coding: Coding, level: u8) -> Self {
        Self {
            coding,
            level: Some(level),
        }
    }

    /// At the default level.
    #[must_use]
    pub const fn by_default(coding: Coding) -> Self {
        Self {
            coding,
            level: None,
        }
    }

    /// As Levity's configuration writes it: `br:5`.
    #[must_use]
    pub fn name(self) -> String {
        let level = self
            .level
            .map_or(String::new(), |level| format!(":{level}"));
        format!("{}{level}", self.coding.word())
    }

    fn level_or(self, default: u8) -> u8 {
        self.level.unwrap_or(default)
    }
}

impl Row {
    /// A peer that can compress, with files of its own and without compression, by its name.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn compressor(name: &str) -> Result<Self> {
        match name {
            "nginx" => Ok(Self::peer("nginx-sendfile")?.named(name.into())),
            "lighttpd" => Self::peer(name),
            "caddy" => Ok(Self::new(name, Program::Caddy, CADDY)),
            _ => {
                let known = COMPRESSORS.join(", ");
                Err(Failure::new(format!("unknown peer {name}: {known}")))
            }
        }
    }

    /// The same with compression; None if the server does not have the coding, or cannot choose the level.
    #[must_use]
    pub fn compressed(&self, compression: Compression) -> Option<Self> {
        let directives = self.directives(compression)?;
        let mut row = self.named(format!("{} {}", self.name, compression.name()));
        row.blanks.push(("{compression}", directives));
        if compression.coding == Coding::Br && matches!(self.program, Program::Nginx) {
            let module = format!("load_module {NGINX_BR};");
            row.blanks.push(("{modules}", module));
        }
        Some(row)
    }

    /// The same with this text in the section `[limits]` of Levity's configuration.
    #[must_use]
    pub fn with_limits(&self, limits: &str) -> Self {
        let mut row = self.clone();
        row.blanks.push(("{limits}", limits.to_owned()));
        row
    }

    /// The same with a folder for variants of popular files, which only Levity makes.
    #[must_use]
    pub fn with_variants(&self, folder: &std::path::Path) -> Self {
        Self {
            name: format!("{}, variants", self.name),
            settings: format!("[disk]\nvariants = \"{}\"\n", folder.display()),
            ..self.clone()
        }
    }

    fn directives(&self, compression: Compression) -> Option<String> {
        match self.program {
            Program::Levity { .. } => Some(format!(
                "compress = true\ncompress_codings = [\"{}\"]\ncompress_min_bytes = {LENGTH_MIN}",
                compression.name()
            )),
            Program::Nginx => nginx(compression),
            Program::Lighttpd => lighttpd(compression),
            Program::Caddy => caddy(compression),
            Program::Haproxy | Program::H2o | Program::CommandLine(_) => None,
        }
    }
}

fn nginx(compression: Compression) -> Option<String> {
    let (name, level) = match compression.coding {
        Coding::Gzip => ("gzip", compression.level_or(1)),
        Coding::Br => ("brotli", compression.level_or(6)),
        Coding::Zstd => return None,
    };
    let types = TYPES.join(" ");
    Some(format!(
        "    {name} on;\n    {name}_comp_level {level};\n    {name}_min_length {LENGTH_MIN};\n    {name}_types {types};"
    ))
}

/// It compresses only what it has as a whole, and so must wait for the end of an application's response. Levels 0 and 1 of
/// br crash it: it ends a stream with a null pointer, which the library reads there.
fn lighttpd(compression: Compression) -> Option<String> {
    if compression.coding == Coding::Br && compression.level.is_some_and(|level| level <= 1) {
        return None;
    }
    let level = |parameter: &str| {
        let level = compression.level;
        level.map_or(String::new(), |level| {
            format!("deflate.params = ( \"{parameter}\" => {level} )\n")
        })
    };
    let level = match compression.coding {
        Coding::Gzip => {
            let level = compression.level;
            level.map_or(String::new(), |level| {
                format!("deflate.compression-level = {level}\n")
            })
        }
        Coding::Br => level("BROTLI_PARAM_QUALITY"),
        Coding::Zstd => level("ZSTD_c_compressionLevel"),
    };
    let types = TYPES.map(|name| format!("\"{name}\"")).join(", ");
    Some(format!(
        "server.modules += ( \"mod_deflate\" )\nserver.stream-response-body := 0\n\
         deflate.allowed-encodings = ( \"{coding}\" )\ndeflate.mimetypes = ( {types} )\n\
         deflate.min-compress-size = {LENGTH_MIN}\n{level}",
        coding = compression.coding.word(),
    ))
}

/// The level of zstd cannot be chosen in the version of Debian.
fn caddy(compression: Compression) -> Option<String> {
    let encoder = match (compression.coding, compression.level) {
        (Coding::Gzip, Some(level)) => format!("gzip {level}"),
        (Coding::Gzip | Coding::Zstd, None) => compression.coding.word().to_owned(),
        (Coding::Zstd, Some(_)) | (Coding::Br, _) => return None,
    };
    let types = TYPES.map(|name| format!("\t\t\theader Content-Type {name}*\n"));
    Some(format!(
        "\tencode {{\n\t\t{encoder}\n\t\tminimum_length {LENGTH_MIN}\n\t\tmatch {{\n{}\t\t}}\n\t}}",
        types.concat()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::fill_in;
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;

    fn text(row: &Row) -> String {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
        fill_in(row, Path::new("/d"), Path::new("/r"), address, address)
    }

    #[test]
    fn every_compressor_has_gzip_and_no_blank_left() {
        let peers = COMPRESSORS.map(|name| Row::compressor(name).unwrap());
        for row in peers
            .into_iter()
            .chain([Row::levity(Path::new("/l"), "auto")])
        {
            let compressed = row.compressed(Compression::at(Coding::Gzip, 5)).unwrap();
            for text in [text(&row), text(&compressed)] {
                let blanks = ["{compression}", "{modules}", "{limits}", "{root}", "{dir}"];
                assert!(blanks.iter().all(|blank| !text.contains(blank)), "{text}");
            }
            assert!(text(&compressed).contains("gzip") && !text(&row).contains("gzip"));
            assert!(compressed.name.ends_with(" gzip:5"), "{}", compressed.name);
        }
    }

    #[test]
    fn a_server_without_the_coding_or_the_level_has_no_row() {
        let row = |name| Row::compressor(name).unwrap();
        assert!(
            row("nginx")
                .compressed(Compression::by_default(Coding::Zstd))
                .is_none()
        );
        assert!(
            row("caddy")
                .compressed(Compression::at(Coding::Zstd, 19))
                .is_none()
        );
        assert!(
            row("caddy")
                .compressed(Compression::by_default(Coding::Br))
                .is_none()
        );
        let nginx = row("nginx").compressed(Compression::at(Coding::Br, 11));
        assert!(text(&nginx.unwrap()).contains("load_module"));
        assert!(Row::compressor("apache").is_err());
    }

    #[test]
    fn levity_gets_its_folder_and_its_limits() {
        let row = Row::levity(Path::new("/l"), "auto")
            .with_variants(Path::new("/v"))
            .with_limits("compression_memory = \"1GiB\"");
        let text = text(&row);
        assert!(text.contains("[disk]\nvariants = \"/v\"\n"), "{text}");
        assert!(text.contains("\ncompression_memory = \"1GiB\"\n"), "{text}");
    }
}
