//! `realm` of gates that ask for credentials.

use crate::section::Section;

/// `realm`, which is checked.
pub(crate) fn realm(section: &Section<'_>) -> String {
    let realm = section.text("realm");
    if let Some(given) = realm.as_ref().filter(|given| !is_realm(given.text)) {
        given.refuse_with(
            "`realm`: not a text for a header",
            "printable ASCII without `\"` and `\\`",
        );
    }
    let realm = realm.map_or(section.default("realm"), |given| given.text);
    realm.to_owned()
}

fn is_realm(text: &str) -> bool {
    let is_plain = |byte: u8| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte);
    text.bytes().all(is_plain)
}
