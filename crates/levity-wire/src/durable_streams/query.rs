//! The query of a read.

use super::offset::Start;
use crate::{Reject, decimal};

/// What a read asks for. Other parameters are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query {
    /// Where it begins; `None` stands for the start of the stream.
    pub start: Option<Start>,
    /// How it waits for more; `None` if it does not.
    pub live: Option<Live>,
    /// The cursor of the last answer. One that no server gave is passed over.
    pub cursor: Option<u64>,
}

/// How a read waits for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Live {
    /// One answer with what comes first (section 5.7).
    LongPoll,
    /// A stream of events (section 5.8).
    Sse,
}

impl Query {
    /// Reads a query, which is without its question mark.
    ///
    /// # Errors
    /// 400 for an offset that is malformed or sent twice, an unknown way to wait, or a wait without an offset.
    pub fn parse(query: &[u8]) -> Result<Self, Reject> {
        let mut parsed = Self::default();
        for (name, value) in form_urlencoded::parse(query) {
            match &*name {
                "offset" if parsed.start.is_some() => return Err(Reject::bad("two offsets")),
                "offset" => {
                    let start = value.parse();
                    parsed.start = Some(start.map_err(|_| Reject::bad("not an offset"))?);
                }
                "live" => parsed.live = Some(Live::parse(&value)?),
                "cursor" => parsed.cursor = decimal::parse(value.as_bytes()),
                _ => {}
            }
        }
        if parsed.live.is_some() && parsed.start.is_none() {
            return Err(Reject::bad("a live read needs an offset"));
        }
        Ok(parsed)
    }
}

impl Live {
    fn parse(value: &str) -> Result<Self, Reject> {
        match value {
            "long-poll" => Ok(Self::LongPoll),
            "sse" => Ok(Self::Sse),
            _ => Err(Reject::bad("`live` is neither `long-poll` nor `sse`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::offset::Offset;
    use super::*;

    #[test]
    fn parameters() {
        let parse = |query: &str| Query::parse(query.as_bytes()).map_err(|reject| reject.status);
        assert_eq!(parse(""), Ok(Query::default()));
        assert_eq!(parse("foo=bar&baz&=&live2=x"), Ok(Query::default()));
        let live = Query {
            start: Some(Start::Beginning),
            live: Some(Live::LongPoll),
            cursor: Some(7),
        };
        assert_eq!(parse("cursor=7&live=long-poll&offset=-1"), Ok(live));
        assert_eq!(parse("cursor=7&live=long%2Dpoll&%6Fffset=%2D1"), Ok(live));
        let zero = Query {
            start: Some(Start::At(Offset::ZERO)),
            live: Some(Live::Sse),
            cursor: None,
        };
        let text = "offset=0000000000000000_0000000000000000&live=sse&cursor=abc";
        assert_eq!(parse(text), Ok(zero));
        for query in [
            "offset=",
            "offset",
            "offset=a&offset=b",
            "offset=-1&offset=-1",
            "offset=0,1",
            "offset=0%201",
            "offset=0+1",
            "offset=%00",
            "offset=now%0A",
            "live=sse",
            "live=long-poll",
            "live=&offset=-1",
            "live=true&offset=-1",
        ] {
            assert_eq!(parse(query), Err(400), "{query}");
        }
    }
}
