//! What applications have to say to their operator, in our diagnostics.

use crate::diagnostics;

/// Says each line of `text`, which may be cut anywhere. An application chose the bytes, so those that a
/// terminal would act upon are escaped.
pub fn tell(upstream: &str, text: &[u8]) {
    for line in text.split(|&byte| byte == b'\n') {
        let line = line.trim_ascii();
        if !line.is_empty() {
            diagnostics::say(format_args!(
                "upstream {upstream} says: {}",
                line.escape_ascii()
            ));
        }
    }
}
