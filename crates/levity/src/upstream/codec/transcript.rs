//! A record of a codec's events, for tests: it must not depend on how the input is cut.

use levity_wire::Reject;

use super::Event;

/// The events of one response.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    pub status: Option<u16>,
    pub fields: String,
    pub data: String,
    pub stderr: String,
    pub declined: Option<&'static str>,
    pub ends: usize,
}

impl Transcript {
    fn record(&mut self, event: Event<'_>) {
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
            Event::Stderr(output) => self.stderr += &text(output),
            Event::Declined(reason) => self.declined = Some(reason),
            Event::End(_) => self.ends += 1,
        }
    }
}

/// Reads one piece.
pub type Decode<C> = fn(&mut C, &[u8], &mut dyn FnMut(Event<'_>)) -> Result<(), Reject>;

/// The transcript of `bytes` and the outcome: read at once, byte by byte, and in two pieces cut at each
/// position, which must all agree.
#[track_caller]
pub fn transcript<C>(
    bytes: &[u8],
    begun: impl Fn() -> C,
    decode: Decode<C>,
) -> (Transcript, Result<(), Reject>, C) {
    let run = |pieces: &[&[u8]]| {
        let (mut codec, mut transcript) = (begun(), Transcript::default());
        let outcome = pieces
            .iter()
            .try_for_each(|piece| decode(&mut codec, piece, &mut |event| transcript.record(event)));
        (transcript, outcome, codec)
    };
    let whole = run(&[bytes]);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    let (transcript, outcome, _) = run(&single);
    assert_eq!((&transcript, outcome), (&whole.0, whole.1), "byte by byte");
    for at in 0..bytes.len() {
        let (start, rest) = bytes.split_at(at);
        let (transcript, outcome, _) = run(&[start, rest]);
        assert_eq!((&transcript, outcome), (&whole.0, whole.1), "cut at {at}");
    }
    whole
}
