//! Text that is no TOML.

use std::path::PathBuf;

use super::*;

#[test]
fn several_syntax_errors_and_what_else_is_wrong() {
    assert_problems(
        "[disk]\nengine = auto\nenigne = 1\nqueue =\n[limits]\nheaders = 1\nheaders = 2\n[[site]]\nroot = \"/\nhosts == 3\n",
        &[
            "2:10 a string must be quoted [write \"auto\"]",
            "3:1 unknown key `enigne` [did you mean `engine`?]",
            "4:8 the value is missing",
            "7:1 duplicate key",
            "9:10 invalid basic string, expected `\"`",
            "10:8 extra `=`, expected nothing",
        ],
    );
}

#[test]
fn a_bracket_without_its_end_is_shown_where_it_opens() {
    let unclosed = "unclosed bracket [nothing below closes it]";
    assert_problems(
        "[disk]\nx = 1\n[[site]]\nindex = [\"a\",\n[limits]\nq = 1\n",
        &[
            "2:1 unknown key `x` [known here: `engine`, `threads`, `stat_threads`, `depth`, `chunk`, `direct`, `changes`, `cache_bytes`, \
         `buffer_bytes`, `queue`, `dead_after`, `entry_ttl`, `watch`, `spool`, `variants`, `variants_bytes`]",
            &format!("4:9 {unclosed}"),
        ],
    );
    assert_problems(
        "[[site]]\nroot = \"/\"\n[[site.route]]\nheaders = { set = {\n",
        &[&format!("4:11 {unclosed}")],
    );
}

#[test]
fn what_precedes_an_unclosed_bracket_is_still_told() {
    assert_problems(
        "[disk]\nqueue =\n[[site]]\nindex = [\n[limits]\nq =\n",
        &[
            "2:8 the value is missing",
            "4:9 unclosed bracket [nothing below closes it]",
        ],
    );
}

/// What a syntax error swallows is not missing.
#[test]
fn a_syntax_error_hides_what_is_absent() {
    assert_problems(
        "[[site\nroot = \"/\"\n",
        &["1:7 unclosed array table, expected `]]`"],
    );
    assert_problems("[[site]]\nroot\n", &["2:5 key with no value, expected `=`"]);
}

#[test]
fn tabs_byte_order_mark_and_crlf() {
    assert_problems(
        "\u{feff}[disk]\r\n\tx\t= \"\u{e9}\"\r\n",
        &[
            "- no site is configured [add `[[site]]` with a `root`]",
            "2:2 unknown key `x` [known here: `engine`, `threads`, `stat_threads`, `depth`, `chunk`, `direct`, `changes`, `cache_bytes`, \
         `buffer_bytes`, `queue`, `dead_after`, `entry_ttl`, `watch`, `spool`, `variants`, `variants_bytes`]",
        ],
    );
    assert!(parse(&format!("\u{feff}{}", SITE.replace('\n', "\r\n"))).is_ok());
}

/// Any cut of a file is refused or read, but never a reason to panic.
#[test]
fn every_cut_of_a_file_is_survived() {
    let text = "[disk]\nengine = \"auto\"\nchunk = \"\u{e9}\"\n[[site]]\nhosts = [\"a\", \"b\"]\n\
                root = \"\"\"/\n\"\"\"\n[[site.route]]\npath = \"/*\"\nheaders = { set = { \"A\" = 'b' } }\n";
    for (start, _) in text.char_indices() {
        for end in (start..=text.len()).filter(|end| text.is_char_boundary(*end)) {
            if let Err(problems) = parse(&text[start..end]) {
                assert!(!problems.is_empty());
                let file = PathBuf::from("f");
                assert!(
                    Errors {
                        file,
                        problems,
                        is_silent: false
                    }
                    .render(true)
                    .contains("error")
                );
            }
        }
    }
}
