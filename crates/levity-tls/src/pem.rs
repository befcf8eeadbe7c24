//! PEM (RFC 7468): certificates and keys as text. Each of them that begins is read, or is an error with its line: a certificate that
//! is passed over would be missing from a chain, or from the authorities of clients, and nobody would know. What is something else is
//! passed over as a whole.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::asn1_rs::{Any, Class, FromDer as _};

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
/// Ends both.
const DASHES: &str = "-----";

/// May come before what begins. Some editors write a byte-order mark at the start of a file, which may be one of several that were
/// joined.
const BLANKS: [char; 3] = [' ', '\t', '\u{feff}'];

/// The label of certificates.
const CERTIFICATE: &str = "CERTIFICATE";
/// The same, as early versions of OpenSSL write it.
const OLD_CERTIFICATE: &str = "X509 CERTIFICATE";
/// That of a certificate and what it is trusted for (`openssl x509 -trustout`).
const TRUSTED_CERTIFICATE: &str = "TRUSTED CERTIFICATE";

/// The labels of keys that can be used.
const KEYS: [&str; 3] = ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"];
/// That of a key with a password.
const ENCRYPTED_KEY: &str = "ENCRYPTED PRIVATE KEY";
/// What a key of the older form with a password has (RFC 1421).
const ENCRYPTED: &str = "4,ENCRYPTED";

/// What is in the labels of certificates and keys, and of others that are not passed over unless they are known.
const CANNOT_BE_PASSED_OVER: [&str; 2] = ["CERTIFICATE", "KEY"];

/// What the labels end with of sections that files with certificates and keys may have besides.
const OTHERS: [&str; 5] = [
    "PRIVATE KEY",
    "PUBLIC KEY",
    " PARAMETERS",
    " REQUEST",
    "X509 CRL",
];

/// The certificates in a file, in their order; at least one.
///
/// # Errors
/// In words, with the line.
pub(crate) fn certificates(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    read_certificates(file, |certificate, _| {
        found.push(certificate);
        Ok(())
    })?;
    Ok(found)
}

/// The certificates of authorities in a file; at least one.
///
/// # Errors
/// In words, with the line. Also for one that OpenSSL would trust for some uses only.
pub(crate) fn authorities(file: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    read_certificates(file, |certificate, uses| {
        if restricts(uses) {
            let help = "`openssl x509` without `-trustout` writes it without them";
            return Err(format!("it is trusted for some uses only; {help}"));
        }
        found.push(certificate);
        Ok(())
    })?;
    Ok(found)
}

/// Passes each certificate to `take`, with what a trusted one has besides.
fn read_certificates(
    file: &[u8],
    mut take: impl FnMut(CertificateDer<'static>, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let text = String::from_utf8_lossy(file);
    let mut count = 0;
    for section in sections(&text)? {
        if section.is_certificate() {
            let (certificate, rest) = section.certificate()?;
            take(certificate, &rest).map_err(|reason| section.error(&reason))?;
            count += 1;
        }
    }
    match count {
        0 => Err("there is no certificate in the form of PEM; `openssl x509` makes it of one in the form of DER, and `openssl pkcs12` of a `.p12` or `.pfx`".to_owned()),
        _ => Ok(()),
    }
}

/// The first key in a file.
///
/// # Errors
/// In words, with the line.
pub(crate) fn key(file: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let text = String::from_utf8_lossy(file);
    let sections = sections(&text)?;
    let mut keys = sections
        .iter()
        .filter(|section| section.label.ends_with("PRIVATE KEY"));
    let Some(key) = keys.next() else {
        return Err("there is no private key in the form of PEM".to_owned());
    };
    if key.label == ENCRYPTED_KEY || key.body.contains(ENCRYPTED) {
        let help = "`openssl pkey` writes it without a password";
        return Err(key.error(&format!("the key is encrypted; {help}")));
    }
    if !KEYS.contains(&key.label) {
        let reason = format!("a key of the form `{}` cannot be used", key.label);
        return Err(key.error(&reason));
    }
    key.decode(key.label)
}

/// What a file has that nobody reads, each in words.
pub(crate) fn passed_over(file: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(file);
    let sections = sections(&text).unwrap_or_default();
    let unknown = sections.iter().filter(|section| !section.is_known());
    unknown
        .map(|section| section.error(&format!("`{}` is passed over", section.label)))
        .collect()
}

/// What stands between a begin and an end.
struct Section<'t> {
    label: &'t str,
    body: &'t str,
    /// The line on which it begins.
    line: usize,
}

/// All sections of `text`.
///
/// # Errors
/// In words, with the line, where one cannot be told from the text around it.
fn sections(text: &str) -> Result<Vec<Section<'_>>, String> {
    let mut sections = Vec::new();
    let (mut rest, mut line) = (text, 1);
    // The line of one that begins behind other text: that of a comment, unless its end is at the start of a line.
    let mut begun_within = None;
    while !rest.is_empty() {
        let (first, more) = rest.split_once(['\n', '\r']).unwrap_or((rest, ""));
        let marker = first.trim_start_matches(BLANKS);
        let after = if marker.starts_with(BEGIN) {
            let (section, after) = section(rest.trim_start_matches(BLANKS), line)?;
            sections.push(section);
            begun_within = None;
            // A file that does not end with a line break may have been joined with another one.
            after
        } else if marker.starts_with(END) {
            return Err(match begun_within {
                Some(line) => at(line, "what begins here is not at the start of the line"),
                None => at(line, "what ends here has not begun at the start of a line"),
            });
        } else {
            if marker.contains(BEGIN) && !is_comment(marker) {
                begun_within = Some(line);
            }
            more
        };
        if begun_within == Some(line) && first.contains(END) {
            return Err(at(line, "what begins here is not at the start of the line"));
        }
        let read = &rest[..rest.len() - after.len()];
        line += read.matches('\n').count();
        rest = after;
    }
    Ok(sections)
}

/// The section at the start of `text`, and what follows it.
fn section(text: &str, line: usize) -> Result<(Section<'_>, &str), String> {
    let begun = &text[BEGIN.len()..];
    let cut = begun.find(DASHES).unwrap_or(begun.len());
    let (label, content) = begun.split_at(cut);
    if content.is_empty() || label.contains(['\n', '\r']) {
        return Err(at(line, "five dashes are missing after the label"));
    }
    let content = &content[DASHES.len()..];
    let cut = content.find(DASHES).unwrap_or(content.len());
    let (body, rest) = content.split_at(cut);
    let Some(after) = rest.strip_prefix(&*format!("{END}{label}{DASHES}")) else {
        return Err(at(line, &format!("`{label}` begins here and does not end")));
    };
    let section = Section { label, body, line };
    let upper = label.to_ascii_uppercase();
    let mut parts = CANNOT_BE_PASSED_OVER.iter();
    match parts.any(|part| upper.contains(part)) && !section.is_known() {
        true => Err(at(line, &format!("`{label}` is nothing that can be used"))),
        false => Ok((section, after)),
    }
}

/// Whether a line is one that some programs pass over, such as one of a certificate that is not to be used.
fn is_comment(line: &str) -> bool {
    line.starts_with(['#', ';'])
}

fn at(line: usize, reason: &str) -> String {
    format!("line {line}: {reason}")
}

impl Section<'_> {
    fn error(&self, reason: &str) -> String {
        at(self.line, reason)
    }

    fn is_known(&self) -> bool {
        self.is_certificate() || OTHERS.iter().any(|end| self.label.ends_with(end))
    }

    fn is_certificate(&self) -> bool {
        [CERTIFICATE, OLD_CERTIFICATE, TRUSTED_CERTIFICATE].contains(&self.label)
    }

    /// The certificate, and what follows it in a trusted one.
    fn certificate(&self) -> Result<(CertificateDer<'static>, Vec<u8>), String> {
        let der: CertificateDer<'_> = self.decode(CERTIFICATE)?;
        let rest = match Any::from_der(&der) {
            Ok((rest, _)) if rest.is_empty() || self.label == TRUSTED_CERTIFICATE => rest.to_vec(),
            _ => return Err(self.error("not a certificate, or not all of it")),
        };
        let bytes = der.len() - rest.len();
        Ok((der[..bytes].to_vec().into(), rest))
    }

    /// Its content as that of one with the label `label`.
    fn decode<T: PemObject>(&self, label: &str) -> Result<T, String> {
        let lines = self.body.split_whitespace();
        let body: String = lines.collect();
        let alone = format!("{BEGIN}{label}{DASHES}\n{body}\n{END}{label}{DASHES}\n");
        T::from_pem_slice(alone.as_bytes()).map_err(|_| self.error("not valid Base64"))
    }
}

/// Whether what follows a trusted certificate (`X509_CERT_AUX` of OpenSSL) has lists of uses for which it is trusted, or is not: a
/// SEQUENCE, which may begin with a SEQUENCE and an element `[0]`. All that it has else is a name and an identifier.
fn restricts(uses: &[u8]) -> bool {
    if uses.is_empty() {
        return false;
    }
    let Ok((_, all)) = Any::from_der(uses) else {
        return true;
    };
    let Ok((_, first)) = Any::from_der(all.data) else {
        return !all.data.is_empty();
    };
    first.class() == Class::ContextSpecific || first.header.is_constructed()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate and its key.
    fn made() -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["a.test".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn count(text: &str) -> Result<usize, String> {
        certificates(text.as_bytes()).map(|found| found.len())
    }

    #[test]
    fn whatever_begins_is_read() {
        let (one, key) = made();
        let (other, _) = made();
        let ours = certificates((one.clone() + &other).as_bytes()).expect("two");
        let joined = format!("{}{other}", one.trim_end());
        assert!(joined.contains("----------BEGIN"));
        let indented: String = joined.lines().map(|line| format!(" \t{line}\n")).collect();
        let mark = '\u{feff}';
        let on_one_line: String = one.lines().collect();
        for text in [
            format!("{one}{other}"),
            format!("{one}{other}").trim_end().to_owned(),
            format!("{one}{other}").replace('\n', "\r\n"),
            format!("{one}{other}").replace('\n', "\r"),
            joined.clone(),
            joined.replace('\n', "\r\n"),
            format!("{mark}{one}{mark}{other}"),
            format!("{}{mark}{other}", one.trim_end()),
            indented,
            format!("subject=CN = a\n\n{one}issuer: -----\n# -----BEGIN is a comment\n{other}"),
            format!("{key}{one}{key}{other}"),
            format!("; -----BEGIN {CERTIFICATE}-----\n{one}{other}"),
            format!("was -----BEGIN {CERTIFICATE}-----\n{one}{other}"),
            format!("{one}{}{other}", key.replace("PRIVATE KEY", "PKCS7")),
            format!("{one}{}{other}", key.replace("PRIVATE KEY", "X")),
            format!("{on_one_line}{other}"),
            format!("{one}{}", other.replace(CERTIFICATE, OLD_CERTIFICATE)),
            format!("{}{other}", one.replace(CERTIFICATE, TRUSTED_CERTIFICATE)),
        ] {
            assert_eq!(certificates(text.as_bytes()).as_ref(), Ok(&ours), "{text}");
            assert_eq!(authorities(text.as_bytes()).as_ref(), Ok(&ours), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_line() {
        let (one, key) = made();
        let (other, _) = made();
        let next = one.lines().count() + 1;
        let cut: String = other
            .lines()
            .take(3)
            .map(|line| format!("{line}\n"))
            .collect();
        let shorter = other.lines().enumerate().filter(|(index, _)| *index != 2);
        let shorter: String = shorter.map(|(_, line)| format!("{line}\n")).collect();
        for (text, line, reason) in [
            (
                format!("{one}CN = b{}", other.replace('\n', "")),
                next,
                "not at the start",
            ),
            (format!("{one}CN = b{other}"), next, "not at the start"),
            (
                format!("{one}# b{other}"),
                next + other.lines().count() - 1,
                "has not begun",
            ),
            (format!("{one}{cut}"), next, "does not end"),
            (format!("{one}{cut}{other}"), next, "does not end"),
            (format!("{cut}{key}"), 1, "does not end"),
            (format!("{one}{shorter}"), next, "not all of it"),
            (format!("{one}{}", other.replace('M', "*")), next, "Base64"),
            (
                format!("{one}-----BEGIN {CERTIFICATE}\n"),
                next,
                "five dashes",
            ),
            (
                format!("{one}{}", other.replace(CERTIFICATE, "OPENSSL CERTIFICATE")),
                next,
                "`OPENSSL CERTIFICATE` is nothing",
            ),
            (
                format!("{one}{}", cut.replace(CERTIFICATE, "PKCS7")),
                next,
                "`PKCS7` begins here and does not end",
            ),
            (
                format!("{one}{}", other.replace(CERTIFICATE, "certificate")),
                next,
                "is nothing",
            ),
        ] {
            let found = count(&text).expect_err(&text);
            assert!(
                found.starts_with(&format!("line {line}: ")),
                "{found}\n{text}"
            );
            assert!(found.contains(reason), "{found}\n{text}");
        }
        for text in ["", "text", &key] {
            let found = count(text).expect_err(text);
            assert!(found.starts_with("there is no certificate in the form of PEM; "));
        }
    }

    #[test]
    fn what_is_passed_over_is_named() {
        let (one, key) = made();
        let other = key.replace("PRIVATE KEY", "PKCS7");
        let line = one.lines().count() + 1;
        let found = passed_over(format!("{one}{other}{key}").as_bytes());
        assert_eq!(found, [format!("line {line}: `PKCS7` is passed over")]);
    }

    #[test]
    fn what_follows_a_trusted_certificate_is_no_part_of_it() {
        let (one, _) = made();
        let plain = certificates(one.as_bytes()).expect("one");
        let alias = &[0x30, 3, 0x0c, 1, b'x'][..];
        let trusted = &[0x30, 4, 0x30, 2, 6, 0][..];
        let rejected = &[0x30, 4, 0xa0, 2, 6, 0][..];
        for (rest, is_authority) in [
            (alias, true),
            (trusted, false),
            (rejected, false),
            (&[0xff], false),
        ] {
            let der = [&plain[0][..], rest].concat();
            let text = pem(TRUSTED_CERTIFICATE, &der);
            assert_eq!(certificates(text.as_bytes()).as_ref(), Ok(&plain));
            let found = authorities(text.as_bytes());
            assert_eq!(found.is_ok(), is_authority, "{rest:?}: {found:?}");
            // A usual one has nothing that follows.
            assert!(count(&pem(CERTIFICATE, &der)).is_err());
        }
    }

    #[test]
    fn keys_are_read_or_refused_in_words() {
        let (certificate, pair) = made();
        let der = key(pair.as_bytes()).expect("a key");
        for text in [
            format!("{certificate}{pair}"),
            format!("{}{pair}", certificate.trim_end()),
            format!("\u{feff}{pair}"),
            format!("-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n{pair}"),
        ] {
            assert_eq!(key(text.as_bytes()).as_ref(), Ok(&der), "{text}");
        }
        let old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: A,0\n\nAAAA\n-----END EC PRIVATE KEY-----\n";
        for (text, reason) in [
            (
                pair.replace("PRIVATE", "ENCRYPTED PRIVATE"),
                "line 1: the key is encrypted",
            ),
            (old.to_owned(), "line 1: the key is encrypted"),
            (
                pair.replace("PRIVATE", "OPENSSH PRIVATE"),
                "`OPENSSH PRIVATE KEY` cannot be used",
            ),
            (
                pair.replace("-----END", "-----"),
                "line 1: `PRIVATE KEY` begins here",
            ),
            (certificate, "there is no private key"),
        ] {
            let found = key(text.as_bytes()).expect_err("no key");
            assert!(found.contains(reason), "{found}");
        }
    }

    /// `der` in the form of PEM, in a single line.
    fn pem(label: &str, der: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let encoded = der.chunks(3).flat_map(|part| {
            let bits = part.iter().chain(&[0, 0]).take(3);
            let bits = bits.fold(0, |bits, byte| bits << 8 | usize::from(*byte));
            [18, 12, 6, 0]
                .into_iter()
                .enumerate()
                .map(move |(index, shift)| match index <= part.len() {
                    true => char::from(DIGITS[bits >> shift & 63]),
                    false => '=',
                })
        });
        let encoded: String = encoded.collect();
        format!("-----BEGIN {label}-----\n{encoded}\n-----END {label}-----\n")
    }
}
