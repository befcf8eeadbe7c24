//! The priority of a response (RFC 9218).

/// How soon a client needs a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// The client can use parts of it: responses of the same urgency take turns.
    pub is_incremental: bool,
}

/// The priority of a request without a Priority header. Unlike in section 4.2, responses take turns: many clients know no priorities,
/// and a large response would delay all small ones after it.
impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: URGENCY,
            is_incremental: true,
        }
    }
}

/// The default urgency (RFC 9218, 4.1).
const URGENCY: u8 = 3;

impl Priority {
    /// Parses a Priority header (RFC 9218, 4). Unknown members are ignored, as section 4 demands.
    pub(super) fn stated(value: &[u8]) -> Self {
        let mut stated = Self {
            urgency: URGENCY,
            is_incremental: false,
        };
        for member in value.split(|&byte| byte == b',') {
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => stated.urgency = digit - b'0',
                b"i" | b"i=?1" => stated.is_incremental = true,
                b"i=?0" => stated.is_incremental = false,
                _ => {}
            }
        }
        stated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        for (value, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i=?1,u=5", 5, true),
            ("i, i=?0", 3, false),
            ("u=8, u=-1, u=a, i=1, x=\"u=1\"", 3, false),
        ] {
            let expected = Priority {
                urgency,
                is_incremental,
            };
            assert_eq!(Priority::stated(value.as_bytes()), expected, "{value}");
        }
    }
}
