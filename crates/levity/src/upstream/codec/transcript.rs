//! What codecs tell, for their tests: the same however their input is cut.

use levity_wire::Reject;

use super::Event;

/// All that was told of one answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub status: Option<u16>,
    pub fields: String,
    pub data: String,
    pub stderr: String,
    pub declined: Option<&'static str>,
    pub ends: usize,
}

impl Heard {
    fn hear(&mut self, event: Event<'_>) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match event {
            Event::Interim(_) => panic!("no protocol but HTTP has them"),
            Event::Head(head) => {
                assert_eq!(self.status.replace(head.status), None, "a second head");
                self.fields = text(head.fields.as_bytes());
            }
            Event::Data(data) => {
                assert!(self.status.is_some() && self.ends == 0);
                self.data += &text(data);
            }
            Event::Stderr(said) => self.stderr += &text(said),
            Event::Declined(reason) => self.declined = Some(reason),
            Event::End(_) => self.ends += 1,
        }
    }
}

/// Reads one piece.
pub type Decode<C> = fn(&mut C, &[u8], &mut dyn FnMut(Event<'_>)) -> Result<(), Reject>;

/// What a codec hears in `bytes`, and whether it refuses them: read at once, byte by byte, and in two
/// pieces cut at each place.
#[track_caller]
pub fn heard<C>(
    bytes: &[u8],
    begun: impl Fn() -> C,
    decode: Decode<C>,
) -> (Heard, Result<(), Reject>, C) {
    let hear = |pieces: &[&[u8]]| {
        let (mut codec, mut heard) = (begun(), Heard::default());
        let outcome = pieces
            .iter()
            .try_for_each(|piece| decode(&mut codec, piece, &mut |event| heard.hear(event)));
        (heard, outcome, codec)
    };
    let whole = hear(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    let (heard, outcome, _) = hear(&single);
    assert_eq!((&heard, outcome), (&whole.0, whole.1), "byte by byte");
    for at in 0..bytes.len() {
        let (start, rest) = bytes.split_at(at);
        let (heard, outcome, _) = hear(&[start, rest]);
        assert_eq!((&heard, outcome), (&whole.0, whole.1), "cut at {at}");
    }
    whole
}
