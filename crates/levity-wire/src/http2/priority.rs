//! The priority of a response (RFC 9218).

/// How soon a client needs a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// From 0, the most urgent, to 7.
    pub urgency: u8,
    /// Parts of it are of use: responses of the same urgency take turns.
    pub is_incremental: bool,
}

/// That of a request of which the client says nothing. Responses take turns then, against section 4.2: many clients know no priorities,
/// and a large response would hold up all small ones after it.
impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: URGENCY,
            is_incremental: true,
        }
    }
}

/// The urgency that a client does not state (RFC 9218, 4.1).
const URGENCY: u8 = 3;

impl Priority {
    /// The priority that the value of a Priority header states (RFC 9218, 4). What is not understood is ignored, as section 4 demands.
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
