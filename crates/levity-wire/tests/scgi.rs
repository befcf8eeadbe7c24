//! SCGI, byte by byte.

use levity_wire::cgi::Environment;
use levity_wire::scgi::write_head;

fn head(pairs: &[(&str, &str)], body_bytes: u64) -> String {
    let mut environment = Environment::default();
    for (name, value) in pairs {
        let set = environment.set(name, value.as_bytes());
        set.expect("short enough");
    }
    let mut bytes = Vec::new();
    write_head(&environment, body_bytes, &mut bytes);
    String::from_utf8(bytes).expect("tests are UTF-8")
}

/// The example of the specification.
#[test]
fn the_length_of_the_body_comes_first() {
    let pairs = [("REQUEST_METHOD", "POST"), ("REQUEST_URI", "/deepthought")];
    assert_eq!(
        head(&pairs, 27),
        "70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,"
    );
}

#[test]
fn there_is_a_length_without_a_body_too() {
    assert_eq!(head(&[], 0), "24:CONTENT_LENGTH\x000\0SCGI\x001\0,");
    let largest = format!("43:CONTENT_LENGTH\0{}\0SCGI\x001\0,", u64::MAX);
    assert_eq!(head(&[], u64::MAX), largest);
}

#[test]
fn no_name_occurs_twice() {
    let pairs = [("CONTENT_LENGTH", "9"), ("SCGI", "2"), ("A", "")];
    assert_eq!(head(&pairs, 1), "27:CONTENT_LENGTH\x001\0SCGI\x001\0A\0\0,");
}

#[test]
fn a_head_is_appended() {
    let mut bytes = b"before".to_vec();
    write_head(&Environment::default(), 0, &mut bytes);
    assert!(bytes.starts_with(b"before24:CONTENT_LENGTH\0"));
}
