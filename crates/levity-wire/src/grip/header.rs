//! An instruction in the headers of a response.

use base64::prelude::{BASE64_STANDARD, Engine};

use super::filter::{Filters, checked};
use super::instruct::{BAD_KEEP_ALIVE, mode, timeout};
use super::json::is_status;
use super::{Channel, HEADERS_MAX, Hold, Instruct, KEEP_ALIVE_BYTES_MAX, KeepAlive, box_name};
use crate::http1::{is_token, list, trim};
use crate::parameters::{parameter, split};
use crate::{Reject, decimal};

const REPEATED: Reject = Reject::bad("GRIP: a repeated header");
const BAD_PARAMETER: Reject = Reject::bad("GRIP: a bad parameter");
const BAD_META: Reject = Reject::bad("Grip-Set-Meta is no list of `NAME=VALUE` in UTF-8");
const BAD_FORMAT: Reject = Reject::bad("GRIP: the format is none of `raw`, `cstring` and `base64`");
const BAD_STATUS: Reject = Reject::bad("Grip-Status is no status from 200 to 599");
const BAD_EXPOSED: Reject = Reject::bad("Grip-Expose-Headers is no list of at most 64 names");

impl Instruct {
    /// Reads a header of the response, if it is one of an instruction; its name is in any case. Call [`Instruct::check`]
    /// after the last one.
    ///
    /// `Grip-Channel: NAME; filter=FILTER, NAME` may be repeated. The name is up to the first semicolon or comma,
    /// as the libraries write it; no quotes protect them. Unknown parameters and headers are ignored, `Grip-Link` among them.
    ///
    /// # Errors
    /// 502 if it is malformed, exceeds a limit, or demands what is not supported.
    pub fn read_header(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        self.read(name, trim(value)).map_err(Reject::by_upstream)
    }

    fn read(&mut self, name: &[u8], value: &[u8]) -> Result<(), Reject> {
        match &name.to_ascii_lowercase()[..] {
            b"grip-channel" => self.read_channels(value),
            b"grip-hold" => once(&mut self.hold, Hold::parse(value)?),
            b"grip-timeout" => once(&mut self.timeout, timeout(decimal::parse(value))?),
            b"grip-keep-alive" => once(&mut self.keep_alive, keep_alive(value)?),
            b"grip-set-meta" => self.read_meta(value),
            b"grip-status" => once(&mut self.status, status(value)?),
            b"grip-expose-headers" => self.read_exposed(value),
            _ => Ok(()),
        }
    }

    fn read_channels(&mut self, value: &[u8]) -> Result<(), Reject> {
        for element in split(value, b',').filter(|element| !element.is_empty()) {
            self.add(channel(element)?)?;
        }
        Ok(())
    }

    /// `NAME=VALUE, NAME="VALUE"`, of which the last one of a name counts.
    fn read_meta(&mut self, value: &[u8]) -> Result<(), Reject> {
        for element in split(value, b',').filter(|element| !element.is_empty()) {
            let first = split(element, b';').next().unwrap_or_default();
            let (name, value) = parameter(first).ok_or(BAD_META)?;
            if name == b"user" {
                let value = value.unwrap_or_default().into_owned();
                self.user = checked(String::from_utf8(value).map_err(|_| BAD_META)?)?;
            }
        }
        Ok(())
    }

    fn read_exposed(&mut self, value: &[u8]) -> Result<(), Reject> {
        for name in list(value).filter(|name| !name.is_empty()) {
            if !is_token(name) || self.exposed.len() == HEADERS_MAX {
                return Err(BAD_EXPOSED);
            }
            self.exposed
                .push(String::from_utf8_lossy(name).into_owned());
        }
        Ok(())
    }
}

fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), Reject> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(REPEATED),
    }
}

fn channel(element: &[u8]) -> Result<Channel, Reject> {
    let mut parts = split(element, b';');
    let name = box_name(parts.next().unwrap_or_default())?;
    let mut filters = Filters::default();
    for part in parts {
        let (key, value) = parameter(part).ok_or(BAD_PARAMETER)?;
        if key.eq_ignore_ascii_case(b"filter") {
            filters.add(value.as_deref().unwrap_or_default())?;
        }
    }
    Ok(Channel { name, filters })
}

/// `DATA; format=FORMAT; timeout=SECONDS; mode=MODE`, with data up to the first semicolon, as the libraries write it.
fn keep_alive(value: &[u8]) -> Result<KeepAlive, Reject> {
    let end = value.iter().position(|&byte| byte == b';');
    let (data, parameters) = value.split_at(end.unwrap_or(value.len()));
    let (mut format, mut time, mut word) = (None, None, None);
    for part in split(parameters.strip_prefix(b";").unwrap_or_default(), b';') {
        let (key, value) = parameter(part).ok_or(BAD_PARAMETER)?;
        let value = value.unwrap_or_default();
        match key {
            b"format" => once(&mut format, value)?,
            b"timeout" => once(&mut time, timeout(decimal::parse(&value))?)?,
            b"mode" => once(&mut word, value)?,
            _ => {}
        }
    }
    let data = keep_alive_data(trim(data), &format.unwrap_or_default())?;
    KeepAlive::new(data, time, mode(&word.unwrap_or_default())?)
}

fn keep_alive_data(data: &[u8], format: &[u8]) -> Result<Vec<u8>, Reject> {
    // Escapes make it at most four times as long.
    if data.len() > 4 * KEEP_ALIVE_BYTES_MAX {
        return Err(BAD_KEEP_ALIVE);
    }
    match format {
        b"" | b"raw" => Ok(data.to_vec()),
        b"cstring" => unescaped(data).ok_or(BAD_KEEP_ALIVE),
        b"base64" => BASE64_STANDARD.decode(data).map_err(|_| BAD_KEEP_ALIVE),
        _ => Err(BAD_FORMAT),
    }
}

/// The escapes `\\`, `\r`, `\n`, `\t` and `\xFF`.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        out.push(match escape {
            b'\\' => b'\\',
            b'r' => b'\r',
            b'n' => b'\n',
            b't' => b'\t',
            b'x' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                (digit(digits[0])? * 16 + digit(digits[1])?) as u8
            }
            _ => return None,
        });
    }
    Some(out)
}

/// `304` or `304 Not Modified`.
fn status(value: &[u8]) -> Result<u16, Reject> {
    let digits = value.split(|&byte| byte == b' ').next();
    let status = digits.and_then(decimal::parse);
    let status = status.and_then(|status| u16::try_from(status).ok());
    status.filter(is_status).ok_or(BAD_STATUS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{CHANNELS_MAX, KeepAliveMode, META_BYTES_MAX};
    use super::*;

    fn read(headers: &[(&str, &str)]) -> Result<Instruct, Reject> {
        let mut instruct = Instruct::default();
        for (name, value) in headers {
            instruct.read_header(name.as_bytes(), value.as_bytes())?;
        }
        instruct.check().map(|()| instruct)
    }

    fn channels(value: &str) -> Vec<String> {
        let instruct = read(&[("grip-channel", value)]).expect(value);
        let names = instruct.channels.into_iter().map(|channel| channel.name);
        names.collect()
    }

    fn kept_alive(value: &str) -> (Vec<u8>, u64, KeepAliveMode) {
        let instruct = read(&[("Grip-Keep-Alive", value)]).expect(value);
        let found = instruct.keep_alive.expect("it has one");
        (found.data, found.timeout.as_secs(), found.mode)
    }

    #[test]
    fn a_response_of_the_libraries() {
        let instruct = read(&[
            ("Content-Type", "text/event-stream"),
            ("Grip-Hold", "stream"),
            ("Grip-Channel", "a, b"),
            ("grip-channel", "c"),
            ("Grip-Keep-Alive", r":\n\n; format=cstring; timeout=20"),
            ("Grip-Set-Meta", r#"user="a""#),
            ("Grip-Link", "</next>; rel=next"),
            ("Grip-Timeout", "30"),
            ("Grip-Status", "304"),
            ("Grip-Expose-Headers", "Content-Type, ETag"),
        ]);
        let instruct = instruct.expect("it is what django-grip sends");
        assert_eq!(instruct.hold, Some(Hold::Stream));
        assert_eq!(instruct.channels.len(), 3);
        assert_eq!(instruct.timeout, Some(Duration::from_secs(30)));
        assert_eq!(instruct.status, Some(304));
        assert_eq!(instruct.user, "a");
        assert!(instruct.exposes(b"etag") && !instruct.exposes(b"Set-Cookie"));
        assert!(Instruct::default().exposes(b"Set-Cookie"));
    }

    #[test]
    fn channels_have_parameters() {
        assert_eq!(channels("a"), ["a"]);
        assert_eq!(
            channels(r#"a; prev-id=7 ,b;Prev-Id="x,\"y;" ; other=1,, c; prev-id=; other"#),
            ["a", "b", "c"]
        );
        assert_eq!(channels("room {1}"), ["room=20=7B1=7D"]);
    }

    #[test]
    fn channels_have_filters() {
        let value =
            "a; filter=skip-self; prev-id=1; Filter=skip-users, b, c;filter=\"require-sub\"";
        let instruct = read(&[("Grip-Channel", value)]).expect(value);
        let filters = instruct.channels.iter().map(|channel| {
            let filters = channel.filters;
            [filters.skip_self, filters.skip_users, filters.require_sub]
        });
        assert!(filters.eq([[true, true, false], [false; 3], [false, false, true]]));
    }

    #[test]
    fn clients_have_a_user() {
        for (value, user) in [
            ("user=alice", "alice"),
            (r#"x=1, user="a, \"b\"" , y"#, r#"a, "b""#),
            ("user=a; b=c, user=d;e", "d"),
            ("User=a, users=b", ""),
            ("user", ""),
            ("", ""),
        ] {
            let instruct = read(&[("Grip-Set-Meta", value)]).expect(value);
            assert_eq!(instruct.user, user, "{value}");
        }
        let long = format!("user={}", "a".repeat(META_BYTES_MAX));
        assert!(read(&[("Grip-Set-Meta", &long)]).is_ok());
    }

    #[test]
    fn contents_that_keep_alive() {
        let idle = KeepAliveMode::Idle;
        assert_eq!(kept_alive("a b"), (b"a b".to_vec(), 55, idle));
        assert_eq!(kept_alive(r"\n; format=raw"), (br"\n".to_vec(), 55, idle));
        assert_eq!(
            kept_alive(r"{}\r\n\t\\\x00\xfF; timeout=1; format=cstring; mode=interval"),
            (b"{}\r\n\t\\\0\xff".to_vec(), 1, KeepAliveMode::Interval)
        );
        assert_eq!(
            kept_alive("AAE=; format=base64; mode=idle"),
            (vec![0, 1], 55, idle)
        );
    }

    #[test]
    fn headers_that_cannot_be() {
        let names = (0..=CHANNELS_MAX).map(|number| number.to_string());
        let many = names.collect::<Vec<_>>().join(",");
        let content = "a".repeat(KEEP_ALIVE_BYTES_MAX + 1);
        let user = format!("user={}", "a".repeat(META_BYTES_MAX + 1));
        let names = "a,".repeat(HEADERS_MAX + 1);
        for (name, value, reason) in [
            ("Grip-Hold", "Stream", "neither"),
            ("Grip-Hold", "", "neither"),
            ("Grip-Hold", "stream", "without a channel"),
            ("Grip-Channel", ";prev-id=1", "without a name"),
            ("Grip-Channel", "a; filter=build-id", "`build-id`"),
            ("Grip-Channel", "a; filter=http-check", "`http-check`"),
            ("Grip-Channel", "a; filter=Skip-Self", "no such filter"),
            ("Grip-Channel", "a; filter", "no such filter"),
            ("Grip-Set-Meta", "user=\"a", "list"),
            ("Grip-Set-Meta", &user, "4 KiB"),
            ("Grip-Channel", r#"a; prev-id="1"#, "parameter"),
            ("Grip-Channel", &many, "64 channels"),
            ("Grip-Timeout", "0", "timeout"),
            ("Grip-Timeout", "1.5", "timeout"),
            ("Grip-Timeout", "86401", "timeout"),
            ("Grip-Keep-Alive", "", "keeps alive"),
            ("Grip-Keep-Alive", "; timeout=1", "keeps alive"),
            ("Grip-Keep-Alive", r"\q; format=cstring", "keeps alive"),
            ("Grip-Keep-Alive", r"\x1; format=cstring", "keeps alive"),
            ("Grip-Keep-Alive", r"\; format=cstring", "keeps alive"),
            ("Grip-Keep-Alive", "b'AAE='; format=base64", "keeps alive"),
            ("Grip-Keep-Alive", "a; format=hex", "format"),
            ("Grip-Keep-Alive", "a; timeout=0", "timeout"),
            ("Grip-Keep-Alive", "a; mode=never", "idle"),
            ("Grip-Keep-Alive", &content, "keeps alive"),
            ("Grip-Status", "101", "status"),
            ("Grip-Status", "600 x", "status"),
            ("Grip-Status", "x", "status"),
            ("Grip-Expose-Headers", "a b", "names"),
            ("Grip-Expose-Headers", &names, "names"),
        ] {
            let reject = read(&[(name, value)]).expect_err(value);
            assert_eq!(reject.status, 502, "{value}");
            assert!(reject.reason.contains(reason), "{value}: {}", reject.reason);
        }
        let twice = [("Grip-Hold", "stream"), ("Grip-Hold", "stream")];
        assert_eq!(read(&twice), Err(REPEATED.by_upstream()));
    }
}
