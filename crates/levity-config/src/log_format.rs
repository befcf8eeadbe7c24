//! `log.format` as a text with fields: `{peer} {status}`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::str::FromStr as _;
use std::sync::Arc;

use strum::{EnumMessage, EnumString, IntoStaticStr, VariantArray};

use crate::suggest::nearest;
use crate::token::is_token;

/// The maximum length of a format in bytes.
pub(crate) const FORMAT_BYTES_MAX: usize = 4096;

/// The format of a line: text, and fields of the request between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTemplate {
    /// The text before the first part.
    pub start: String,
    /// At least one.
    pub parts: Arc<[LogPart]>,
}

/// A field of a [`LogTemplate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPart {
    /// What stands there.
    pub value: LogValue,
    /// Whether it stands between double quotes.
    pub is_quoted: bool,
    /// The text between it and the next one.
    pub after: String,
}

/// What a field stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogValue {
    /// A property of the request.
    Field(LogField),
    /// The first header of the request with this name, in lower case.
    RequestHeader(String),
    /// The first header of the response with this name, in lower case.
    ResponseHeader(String),
}

/// Fields by name. The documentation comment of each is its text in docs/log.md.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, EnumMessage, EnumString, IntoStaticStr, VariantArray,
)]
pub enum LogField {
    /// arrival of the first byte of the request, in UTC: `2026-11-20T19:42:07.000042Z`
    #[strum(serialize = "time")]
    Time,
    /// the same in the form of the combined format: `20/Nov/2026:19:42:07 +0000`
    #[strum(serialize = "time.clf")]
    TimeClf,
    /// the same in seconds since 1970, with six decimals
    #[strum(serialize = "time.unix")]
    TimeUnix,
    /// the client's address, as reported by trusted proxies
    #[strum(serialize = "peer")]
    Peer,
    /// the address of the connection
    #[strum(serialize = "via")]
    Via,
    /// the id of the request
    #[strum(serialize = "id")]
    Id,
    /// the name of the user, if the server asked for it
    #[strum(serialize = "user")]
    User,
    /// `http` or `https`, as reported by trusted proxies
    #[strum(serialize = "scheme")]
    Scheme,
    /// requested host and port
    #[strum(serialize = "host")]
    Host,
    /// the first line of the request: method, target and version
    #[strum(serialize = "request")]
    Request,
    /// the method as sent
    #[strum(serialize = "method")]
    Method,
    /// the request target as sent, with its query
    #[strum(serialize = "target")]
    Target,
    /// the part of the target before `?`
    #[strum(serialize = "path")]
    Path,
    /// the part of the target after `?`
    #[strum(serialize = "query")]
    Query,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2.0`
    #[strum(serialize = "version")]
    Version,
    /// the version of TLS on the connection: `TLSv1.3` or `TLSv1.2`
    #[strum(serialize = "tls.version")]
    TlsVersion,
    /// the cipher suite, by its name in the registry of IANA: `TLS_AES_128_GCM_SHA256`
    #[strum(serialize = "tls.cipher")]
    TlsCipher,
    /// the name of a server that the client has asked for in the handshake
    #[strum(serialize = "tls.name")]
    TlsName,
    /// `true` if the session goes on from an earlier connection, or `false`
    #[strum(serialize = "tls.resumed")]
    TlsResumed,
    /// the status of the response
    #[strum(serialize = "status")]
    Status,
    /// bytes of the response body sent
    #[strum(serialize = "bytes")]
    Bytes,
    /// the same, and `-` for 0
    #[strum(serialize = "bytes.clf")]
    BytesClf,
    /// from the first byte of the request to the last of the response, in seconds with six decimals
    #[strum(serialize = "dur")]
    Duration,
    /// from the first byte of the request to the first of the response, likewise
    #[strum(serialize = "ttfb")]
    Ttfb,
    /// the part of `dur` spent waiting for a disk engine, likewise
    #[strum(serialize = "io_wait")]
    IoWait,
    /// source of the body, as in JSON
    #[strum(serialize = "src")]
    Source,
    /// `complete`, `client_abort`, `timeout` or `error`
    #[strum(serialize = "end")]
    End,
    /// the [rate limit](tasks/rate-limits.md) that has refused the request or slowed down the response: its name
    #[strum(serialize = "limited")]
    Limited,
    /// the rate limit with `report_only` that would have; the first one in the file, if there are several
    #[strum(serialize = "would_limit")]
    WouldLimit,
    /// bytes of the request body received, without its framing
    #[strum(serialize = "body_bytes")]
    BodyBytes,
    /// the request header Referer
    #[strum(serialize = "referer")]
    Referer,
    /// the request header User-Agent
    #[strum(serialize = "user_agent")]
    UserAgent,
    /// the site: its first host, or `default` for one without `hosts`
    #[strum(serialize = "site")]
    Site,
    /// the `path` or `regex` of the route
    #[strum(serialize = "route")]
    Route,
    /// the name of the upstream
    #[strum(serialize = "upstream.name")]
    UpstreamName,
    /// the backend of the last attempt
    #[strum(serialize = "upstream.backend")]
    UpstreamBackend,
    /// the number of attempts
    #[strum(serialize = "upstream.attempts")]
    UpstreamAttempts,
    /// waiting for a connection slot, in seconds with six decimals
    #[strum(serialize = "upstream.queue")]
    UpstreamQueue,
    /// making the connection of the last attempt, likewise
    #[strum(serialize = "upstream.connect")]
    UpstreamConnect,
    /// from the start of the last attempt to the header of its response, likewise
    #[strum(serialize = "upstream.ttfb")]
    UpstreamTtfb,
    /// the error type of RFC 9209
    #[strum(serialize = "upstream.error")]
    UpstreamError,
    /// bytes of the body before filters, such as compression
    #[strum(serialize = "filter.in")]
    FilterIn,
    /// bytes of the body behind filters
    #[strum(serialize = "filter.out")]
    FilterOut,
}

/// Headers by name.
struct Headers {
    /// What the field begins with.
    start: &'static str,
    /// What it stands for.
    text: &'static str,
    value: fn(String) -> LogValue,
}

const HEADERS: [Headers; 2] = [
    Headers {
        start: "request.header.",
        text: "the first request header called NAME",
        value: LogValue::RequestHeader,
    },
    Headers {
        start: "response.header.",
        text: "the first response header called NAME; not those that are written last: `Date`, `Server`, \
               `Content-Length`, `Transfer-Encoding`, `Connection`, `Server-Timing`",
        value: LogValue::ResponseHeader,
    },
];

/// Names that other servers have, and ours.
const FOREIGN: &[(&str, &str)] = &[
    ("remote_addr", "peer"),
    ("remote_host", "peer"),
    ("remote_ip", "peer"),
    ("client_ip", "peer"),
    ("realip_remote_addr", "via"),
    ("remote_user", "user"),
    ("user_id", "user"),
    ("time_local", "time.clf"),
    ("time_iso8601", "time"),
    ("ts", "time"),
    ("msec", "time.unix"),
    ("request_id", "id"),
    ("request_uri", "target"),
    ("uri", "target"),
    ("request_method", "method"),
    ("server_protocol", "version"),
    ("proto", "version"),
    ("ssl_protocol", "tls.version"),
    ("tls_version", "tls.version"),
    ("tls>version", "tls.version"),
    ("ssl_cipher", "tls.cipher"),
    ("tls_cipher", "tls.cipher"),
    ("tls>cipher_suite", "tls.cipher"),
    ("ssl_server_name", "tls.name"),
    ("tls>server_name", "tls.name"),
    ("ssl_session_reused", "tls.resumed"),
    ("tls>resumed", "tls.resumed"),
    ("query_string", "query"),
    ("args", "query"),
    ("body_bytes_sent", "bytes"),
    ("bytes_sent", "bytes"),
    ("size", "bytes"),
    ("limit_req_status", "limited"),
    ("request_length", "body_bytes"),
    ("content_length", "body_bytes"),
    ("bytes_read", "body_bytes"),
    ("duration", "dur"),
    ("request_time", "dur"),
    ("http_host", "host"),
    ("server_name", "site"),
    ("upstream", "upstream.name"),
    ("upstream_addr", "upstream.backend"),
    ("upstream_connect_time", "upstream.connect"),
    ("upstream_header_time", "upstream.ttfb"),
    ("upstream_response_time", "upstream.ttfb"),
];

/// Starts of names of headers that other servers have, and ours.
const FOREIGN_HEADERS: &[(&str, &str)] = &[
    ("header.", "request.header."),
    ("http_", "request.header."),
    ("request>headers>", "request.header."),
    ("sent_http_", "response.header."),
    ("resp_headers>", "response.header."),
];

impl LogTemplate {
    /// Reads text with fields in braces.
    ///
    /// # Errors
    ///
    /// Messages, each with what to write instead.
    pub fn parse(text: &str) -> Result<Self, Vec<(String, String)>> {
        let only = |problem| vec![problem];
        check_text(text).map_err(only)?;
        let mut problems = Vec::new();
        let mut parts: Vec<LogPart> = Vec::new();
        let (start, mut rest) = until_field(text).map_err(only)?;
        problems.extend(variables(start));
        let mut quotes = start.matches('"').count();
        while let Some(inside) = rest {
            let (name, behind) = inside.split_once('}').ok_or_else(|| only(unclosed()))?;
            let (after, next) = until_field(behind).map_err(only)?;
            match value(name) {
                Ok(value) => parts.push(LogPart {
                    value,
                    is_quoted: quotes % 2 == 1,
                    after: after.to_owned(),
                }),
                Err(problem) => problems.push(problem),
            }
            problems.extend(variables(after));
            quotes += after.matches('"').count();
            rest = next;
        }
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        if parts.is_empty() && problems.is_empty() {
            let help = "fields are in braces: \"{peer} {status}\"".to_owned();
            problems.push(("`format` has no field".to_owned(), help));
        }
        match problems.is_empty() {
            true => Ok(Self {
                start: start.to_owned(),
                parts: parts.into(),
            }),
            false => Err(problems),
        }
    }

    /// The rows of the table of fields in docs/log.md.
    #[must_use]
    pub fn reference() -> String {
        let mut rows = String::new();
        let fields = LogField::VARIANTS.iter().map(|field| {
            let name: &str = field.into();
            let text = field.get_documentation().expect("a comment");
            (name.to_owned(), text)
        });
        let headers = HEADERS.map(|of| (format!("{}NAME", of.start), of.text));
        for (name, text) in fields.chain(headers) {
            let _ = writeln!(rows, "| `{{{name}}}` | {text} |");
        }
        rows
    }
}

/// Checks what no format may have, whatever its fields.
fn check_text(text: &str) -> Result<(), (String, String)> {
    if text.len() > FORMAT_BYTES_MAX {
        let help = "leave out what nobody reads".to_owned();
        return Err((
            format!("`format` has more than {FORMAT_BYTES_MAX} bytes"),
            help,
        ));
    }
    if let Some(wrong) = text.chars().find(|c| c.is_control() && *c != '\t') {
        let help = "a line is one line, and gets its end by itself".to_owned();
        return Err((format!("`format` has a `{}`", wrong.escape_debug()), help));
    }
    Ok(())
}

/// What is wrong with the text between fields: variables of nginx, which would be written as they are.
fn variables(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split('$').skip(1).filter_map(|behind| {
        let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &behind[..end.unwrap_or(behind.len())];
        let own = match name {
            // Without the query, unlike the `uri` of other servers.
            "uri" | "document_uri" => Some("path".to_owned()),
            _ if LogField::from_str(name).is_ok() => Some(name.to_owned()),
            _ => of_other_servers(name),
        }?;
        let message = format!("`${name}` is a variable of nginx");
        Some((message, format!("did you mean `{{{own}}}`?")))
    })
}

/// The text before the next field, and what follows its brace.
fn until_field(text: &str) -> Result<(&str, Option<&str>), (String, String)> {
    let (before, behind) = match text.split_once('{') {
        Some((before, behind)) => (before, Some(behind)),
        None => (text, None),
    };
    match before.contains('}') {
        true => Err(unclosed()),
        false => Ok((before, behind)),
    }
}

fn unclosed() -> (String, String) {
    let help = "a field is a name in braces, such as `{status}`; a line has no other braces";
    (
        "`format` has a brace without the other".to_owned(),
        help.to_owned(),
    )
}

fn value(name: &str) -> Result<LogValue, (String, String)> {
    if let Ok(field) = LogField::from_str(name) {
        return Ok(LogValue::Field(field));
    }
    for of in HEADERS {
        if let Some(header) = name.strip_prefix(of.start) {
            return match is_token(header) {
                true => Ok((of.value)(header.to_ascii_lowercase())),
                false => Err((
                    format!("`{header}` is not a header name"),
                    format!("such as `{{{}accept}}`", of.start),
                )),
            };
        }
    }
    Err((format!("unknown field `{{{name}}}`"), help(name)))
}

/// What to write in place of a field that does not exist.
fn help(name: &str) -> String {
    let names = || LogField::VARIANTS.iter().map(|field| field.into());
    let own = of_other_servers(name);
    match own.or_else(|| nearest(name, names()).map(str::to_owned)) {
        Some(own) => format!("did you mean `{{{own}}}`?"),
        None => "docs/log.md lists the fields; headers are `{request.header.NAME}`".to_owned(),
    }
}

/// Our field for that of another server.
fn of_other_servers(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let plain = lower.strip_prefix("request>").unwrap_or(&lower);
    if let Some((_, own)) = FOREIGN.iter().find(|(theirs, _)| *theirs == plain) {
        return Some((*own).to_owned());
    }
    let (header, own) = FOREIGN_HEADERS.iter().find_map(|(theirs, own)| {
        let header = lower.strip_prefix(theirs)?;
        is_token(header).then_some((header, own))
    })?;
    let word = header.replace('-', "_");
    Some(match word.as_str() {
        "referer" | "user_agent" if own.starts_with("request") => word,
        _ => format!("{own}{}", header.replace('_', "-")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_know_what_is_around_them() {
        let template = LogTemplate::parse("<{peer} \"{request}\" {request.header.X-A}").unwrap();
        assert_eq!(template.start, "<");
        let parts = template.parts.iter();
        let parts: Vec<_> = parts
            .map(|part| (part.value.clone(), part.is_quoted, part.after.as_str()))
            .collect();
        assert_eq!(
            parts,
            [
                (LogValue::Field(LogField::Peer), false, " \""),
                (LogValue::Field(LogField::Request), true, "\" "),
                (LogValue::RequestHeader("x-a".to_owned()), false, ""),
            ]
        );
    }

    #[test]
    fn refused_formats() {
        for (text, message, help) in [
            (
                "{statsu}",
                "unknown field `{statsu}`",
                "did you mean `{status}`?",
            ),
            (
                "{remote_addr}",
                "unknown field `{remote_addr}`",
                "did you mean `{peer}`?",
            ),
            (
                "{request>uri}",
                "unknown field `{request>uri}`",
                "did you mean `{target}`?",
            ),
            (
                "{request>tls>version}",
                "unknown field `{request>tls>version}`",
                "did you mean `{tls.version}`?",
            ),
            (
                "{http_user_agent}",
                "unknown field `{http_user_agent}`",
                "did you mean `{user_agent}`?",
            ),
            (
                "{http_x_real_ip}",
                "unknown field `{http_x_real_ip}`",
                "did you mean `{request.header.x-real-ip}`?",
            ),
            (
                "{request.header.}",
                "`` is not a header name",
                "such as `{request.header.accept}`",
            ),
            (
                "{response.header.a b}",
                "`a b` is not a header name",
                "such as `{response.header.accept}`",
            ),
            (
                "{zzzzzzzz}",
                "unknown field `{zzzzzzzz}`",
                "docs/log.md lists the fields; headers are `{request.header.NAME}`",
            ),
            (
                "{}",
                "unknown field `{}`",
                "docs/log.md lists the fields; headers are `{request.header.NAME}`",
            ),
            (
                "$price %h",
                "`format` has no field",
                "fields are in braces: \"{peer} {status}\"",
            ),
            (
                "{peer}\n",
                "`format` has a `\\n`",
                "a line is one line, and gets its end by itself",
            ),
        ] {
            let expected = vec![(message.to_owned(), help.to_owned())];
            assert_eq!(LogTemplate::parse(text), Err(expected), "{text}");
        }
        for text in ["{peer", "peer}", "{peer} }", "}{peer}", "{\"a\": {peer}}"] {
            let problems = LogTemplate::parse(text).unwrap_err();
            let [(message, _)] = &problems[..] else {
                panic!("{problems:?}");
            };
            assert!(
                message.contains("brace") || message.starts_with("unknown field"),
                "{message}"
            );
        }
    }

    /// Whoever writes what the hints say has a format.
    #[test]
    fn all_problems_at_once() {
        for (text, right) in [
            (
                "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\"",
                "{peer} - {user} [{time.clf}] \"{request}\" {status} {bytes} \"{referer}\"",
            ),
            ("$uri $request_uri", "{path} {target}"),
            (
                "{remote_addr} {statsu} {status} $host",
                "{peer} {status} {status} {host}",
            ),
            (
                "$http_x_real_ip/$sent_http_etag",
                "{request.header.x-real-ip}/{response.header.etag}",
            ),
            ("$status $status", "{status} {status}"),
            (
                "$ssl_protocol/$ssl_cipher $ssl_server_name $ssl_session_reused",
                "{tls.version}/{tls.cipher} {tls.name} {tls.resumed}",
            ),
            (
                "$request_length$upstream_addr",
                "{body_bytes}{upstream.backend}",
            ),
        ] {
            let problems = LogTemplate::parse(text).unwrap_err();
            let mut followed = text.to_owned();
            for (message, help) in &problems {
                let wrong = message.split('`').nth(1).expect("what is wrong");
                let own = help.split('`').nth(1).expect("what to write");
                // A whole name: `$request` also begins `$request_uri`.
                let mut rest = followed.as_str();
                let mut out = String::new();
                while let Some((before, behind)) = rest.split_once(wrong) {
                    let is_whole = wrong.ends_with('}')
                        || !behind.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                    out += before;
                    out += if is_whole { own } else { wrong };
                    rest = behind;
                }
                out += rest;
                followed = out;
            }
            assert_eq!(followed, right);
            assert!(LogTemplate::parse(&followed).is_ok(), "{followed}");
        }
        let text = |text| LogTemplate::parse(text).map(|_| ());
        // Text as any other.
        assert_eq!(text("{status} $5 $price"), Ok(()));
    }

    #[test]
    fn the_longest_format() {
        let text = |bytes: usize| format!("{{peer}}{}", "x".repeat(bytes - "{peer}".len()));
        assert!(LogTemplate::parse(&text(FORMAT_BYTES_MAX)).is_ok());
        let problems = LogTemplate::parse(&text(FORMAT_BYTES_MAX + 1)).unwrap_err();
        assert_eq!(problems[0].0, "`format` has more than 4096 bytes");
    }

    #[test]
    fn names_of_other_servers_lead_to_ours() {
        for (theirs, own) in FOREIGN {
            assert!(LogField::from_str(theirs).is_err(), "{theirs}");
            assert!(LogField::from_str(own).is_ok(), "{own}");
        }
    }
}
