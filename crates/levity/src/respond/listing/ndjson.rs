//! A listing as lines of JSON, one per entry, in the order of the file system. The fields are those of
//! [the JSON form](super::json).

use levity_disk::Entry;

use super::{Ending, json};

/// The line of an entry.
pub(super) fn entry(out: &mut Vec<u8>, entry: &Entry<'_>) {
    json::push_object(out, entry);
    out.push(b'\n');
}

/// The lines after the last entry.
pub(super) fn end(out: &mut Vec<u8>, ending: Ending) {
    if ending.is_cut {
        out.extend_from_slice(b"{\"truncated\":true}\n");
    }
}
