use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_wire::durable_streams::{Lifetime, Offset, Producer, Start, messages};
use tokio::sync::mpsc;

use super::*;
use crate::budget::Budget;
use crate::copies::Copies;
use crate::log::tests::settings;
use crate::memory::MemoryStore;
use crate::message::OVERHEAD_BYTES;
use crate::name::Name;
use crate::owner::{Owner, Reports};
use crate::protocol::Command;
use crate::settings::Settings;
use crate::store::StoreError;

const UNKNOWN: StreamError = StreamError::Refused(Refused::Unknown);
const REMOVED: StreamError = StreamError::Refused(Refused::Removed);

/// Streams in memory, whose clock is the test's.
struct Rig {
    owner: Owner<MemoryStore>,
    commands: mpsc::UnboundedReceiver<Command>,
    copies: Rc<Copies>,
    budget: Arc<Budget>,
    settings: Arc<Settings>,
    now: SystemTime,
}

impl Rig {
    fn new() -> Self {
        let (sender, commands) = mpsc::unbounded_channel();
        let copies = Rc::new(Copies::new(0, vec![sender]));
        let reports = vec![Reports::Here(Rc::downgrade(&copies))];
        Self {
            owner: Owner::new(MemoryStore::new(7), reports, Arc::default()),
            commands,
            copies,
            budget: Budget::new(100_000),
            settings: set(4, 1000),
            now: UNIX_EPOCH + Duration::from_secs(1_000_000),
        }
    }

    fn streams(&self) -> Streams {
        Streams::new(&self.copies, &self.settings, &self.budget)
    }

    /// Lets the owner do what it was asked for.
    fn run_owner(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Ok(command) = self.commands.try_recv() {
            self.owner.command(command, self.now);
        }
        self.owner.poll(&mut context, self.now);
    }

    /// The result of `asking`, which needs the owner only.
    fn ask<T>(&mut self, asking: impl Future<Output = T>) -> T {
        let mut asking = pin!(asking);
        for _ in 0..1000 {
            let polled = asking
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(result) = polled {
                return result;
            }
            self.run_owner();
        }
        panic!("no answer");
    }

    fn create(
        &mut self,
        of: &str,
        change: impl FnOnce(&mut Create),
    ) -> Result<Created, StreamError> {
        let mut create = Create {
            content_type: Some(content_type("text/plain")),
            lifetime: None,
            closes: false,
            fork: None,
            body: Ok(Vec::new()),
        };
        change(&mut create);
        let (streams, now) = (self.streams(), self.now);
        self.ask(streams.create(&name(of), create, now))
    }

    fn make(&mut self, of: &str) {
        assert!(self.create(of, |_| {}).expect("made").is_new);
    }

    fn fork(&mut self, of: &str, source: &str) -> Result<Created, StreamError> {
        self.create(of, |create| create.fork = Some(fork(source, None, 0)))
    }

    fn append_with(
        &mut self,
        to: &str,
        text: &str,
        change: impl FnOnce(&mut Append),
    ) -> Result<Appended, StreamError> {
        let mut append = Append {
            content: Some(("text/plain".into(), Ok(text.as_bytes().to_vec()))),
            closes: false,
            sequence: None,
            producer: None,
        };
        change(&mut append);
        let (streams, now) = (self.streams(), self.now);
        self.ask(streams.append(&name(to), append, now))
    }

    fn append(&mut self, to: &str, text: &str) -> Offset {
        self.append_with(to, text, |_| {}).expect("appended").end
    }

    fn close(&mut self, of: &str) -> Result<Appended, StreamError> {
        self.append_with(of, "", |append| {
            append.content = None;
            append.closes = true;
        })
    }

    fn read_from(&mut self, of: &str, start: Start) -> Result<(String, ReadResult), StreamError> {
        let (streams, now) = (self.streams(), self.now);
        let result = self.ask(streams.read(&name(of), start, 2000, now))?;
        self.run_owner();
        Ok((text(&result), result))
    }

    fn read(&mut self, of: &str) -> String {
        self.read_from(of, Start::Beginning).expect("read").0
    }

    /// A reader that stays, which has all that is there.
    fn follow(&mut self, of: &str) -> Tail {
        let (_, last) = self.read_from(of, Start::Now).expect("read");
        let mut tail = self.streams().follow(&name(of), last, 1000).expect("room");
        assert!(self.next(&mut tail).is_none());
        tail
    }

    /// What a reader that stays gets by now.
    fn next(&mut self, tail: &mut Tail) -> Option<Result<ReadResult, StreamError>> {
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            if let Poll::Ready(read) = tail.poll_read(&mut context, self.now) {
                return Some(read);
            }
            self.run_owner();
        }
        None
    }

    fn look(&mut self, of: &str) -> Result<Info, StreamError> {
        let (streams, now) = (self.streams(), self.now);
        self.ask(streams.look(&name(of), now))
    }

    fn remove(&mut self, of: &str) -> Result<(), StreamError> {
        let (streams, now) = (self.streams(), self.now);
        self.ask(streams.remove(&name(of), now))
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.owner.sweep(self.now);
    }
}

fn set(boxes_max: usize, bytes_max: usize) -> Arc<Settings> {
    Arc::new(Settings {
        boxes_max,
        receivers_max: 100,
        keeps_all: true,
        ..settings(0, bytes_max)
    })
}

fn name(of: &str) -> Name {
    Name::new("s", of.as_bytes()).expect("a name")
}

fn content_type(value: &str) -> ContentType {
    ContentType {
        value: value.into(),
        essence: value.into(),
    }
}

fn fork(source: &str, offset: Option<Offset>, sub_offset: u64) -> ForkOf {
    ForkOf {
        source: name(source),
        offset,
        sub_offset,
    }
}

fn text(result: &ReadResult) -> String {
    let content = result.pieces.iter();
    let bytes = content.flat_map(|piece| piece.draft.content.to_vec());
    String::from_utf8(bytes.collect()).expect("text")
}

fn producer(id: &str, epoch: u64, sequence: u64) -> Option<Producer> {
    Some(Producer {
        id: id.into(),
        epoch,
        sequence,
    })
}

fn idle(seconds: u64) -> Option<Lifetime> {
    Some(Lifetime::Idle(Duration::from_secs(seconds)))
}

#[test]
fn what_is_appended_is_read_from_every_offset() {
    let mut rig = Rig::new();
    rig.make("a");
    let offsets = ["1", "22", "333"].map(|text| rig.append("a", text));
    assert!(offsets.is_sorted());
    assert_eq!(rig.read("a"), "122333");
    for (offset, rest) in offsets.into_iter().zip(["22333", "333", ""]) {
        let (text, result) = rig.read_from("a", Start::At(offset)).expect("read");
        assert_eq!(
            (&*text, result.next, result.start),
            (rest, offsets[2], offset)
        );
        assert!(result.is_up_to_date && !result.is_closed);
    }
    let (text, result) = rig.read_from("a", Start::Now).expect("read");
    assert_eq!((&*text, result.next), ("", offsets[2]));
    let (text, _) = rig.read_from("a", Start::At(Offset::ZERO)).expect("read");
    assert_eq!(text, "122333");
}

#[test]
fn other_offsets_are_refused() {
    let mut rig = Rig::new();
    rig.make("a");
    let end = rig.append("a", "text");
    let mut refused = |change: fn(&mut Offset)| {
        let mut offset = end;
        change(&mut offset);
        rig.read_from("a", Start::At(offset)).map(drop)
    };
    assert_eq!(
        refused(|offset| offset.position += 1),
        Err(StreamError::BadOffset)
    );
    assert_eq!(
        refused(|offset| offset.life -= 1),
        Err(StreamError::OtherLife)
    );
    assert_eq!(
        refused(|offset| offset.life = 0),
        Err(StreamError::OtherLife)
    );
    // A stream that is made again has other offsets.
    rig.remove("a").expect("removed");
    rig.make("a");
    rig.append("a", "text");
    let read = rig.read_from("a", Start::At(end)).map(drop);
    assert_eq!(read, Err(StreamError::OtherLife));
}

#[test]
fn a_reader_that_stays_gets_what_comes() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.append("a", "old");
    let mut readers = [rig.follow("a"), rig.follow("a")];
    for new in ["1", "2"] {
        let end = rig.append("a", new);
        for reader in &mut readers {
            let result = rig.next(reader).expect("content").expect("read");
            assert!(result.is_up_to_date && !result.is_closed);
            assert_eq!((&*text(&result), result.next), (new, end));
            assert!(rig.next(reader).is_none());
        }
    }
    rig.append_with("a", "end", |append| append.closes = true)
        .expect("closed");
    for reader in &mut readers {
        let result = rig.next(reader).expect("content").expect("read");
        assert!(result.is_closed && text(&result) == "end");
    }
}

#[test]
fn a_reader_that_is_far_behind_misses_nothing() {
    let mut rig = Rig::new();
    rig.settings = set(4, 100_000);
    rig.make("a");
    let mut reader = rig.follow("a");
    let mut expected = String::new();
    for number in 0..200 {
        rig.append("a", &format!("{number} "));
        rig.run_owner();
        expected += &format!("{number} ");
    }
    let mut read = String::new();
    while let Some(result) = rig.next(&mut reader) {
        read += &text(&result.expect("read"));
    }
    assert_eq!(read, expected);
}

#[test]
fn what_comes_before_a_reader_is_known_reaches_it() {
    let mut rig = Rig::new();
    rig.make("a");
    let (_, last) = rig.read_from("a", Start::Now).expect("read");
    rig.append("a", "between");
    let mut reader = rig.streams().follow(&name("a"), last, 1000).expect("room");
    let result = rig.next(&mut reader).expect("content").expect("read");
    assert_eq!(text(&result), "between");
}

#[test]
fn readers_end_with_the_stream() {
    let mut rig = Rig::new();
    rig.make("a");
    let mut reader = rig.follow("a");
    rig.close("a").expect("closed");
    let result = rig.next(&mut reader).expect("its end").expect("read");
    assert!(result.is_closed && result.pieces.is_empty());

    rig.make("b");
    rig.fork("c", "b").expect("made");
    for (of, reason) in [("b", REMOVED), ("c", UNKNOWN)] {
        let mut reader = rig.follow(of);
        rig.remove(of).expect("removed");
        let end = rig.next(&mut reader).expect("its end").map(drop);
        assert_eq!(end, Err(reason), "{of}");
    }
}

#[test]
fn closing_is_final() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.append("a", "1");
    let closed = rig
        .append_with("a", "2", |append| append.closes = true)
        .expect("closed");
    assert!(closed.is_closed && !closed.is_duplicate);
    let refused = StreamError::Closed(closed.end);
    let again = rig.append_with("a", "3", |append| append.closes = true);
    assert_eq!(again, Err(refused.clone()));
    assert_eq!(rig.append_with("a", "3", |_| {}), Err(refused.clone()));
    // Whatever else is wrong.
    let other_type = rig.append_with("a", "3", |append| {
        append.content = Some(("application/json".into(), Ok(b"3".to_vec())));
    });
    assert_eq!(other_type, Err(refused));
    assert!(rig.close("a").expect("closed already").is_closed);
    let (text, result) = rig.read_from("a", Start::Beginning).expect("read");
    assert!(text == "12" && result.is_closed && rig.look("a").expect("there").is_closed);
}

#[test]
fn a_retry_is_recognised_after_the_end() {
    let mut rig = Rig::new();
    rig.make("a");
    let append = |rig: &mut Rig, sequence, closes| {
        rig.append_with("a", "x", |append| {
            append.producer = producer("p", 0, sequence);
            append.closes = closes;
        })
    };
    append(&mut rig, 0, false).expect("appended");
    append(&mut rig, 1, true).expect("appended");
    for sequence in [0, 1] {
        let retry = append(&mut rig, sequence, sequence == 1).expect("a duplicate");
        assert!(retry.is_duplicate && retry.is_closed);
    }
    assert!(matches!(
        append(&mut rig, 2, false),
        Err(StreamError::Closed(_))
    ));
}

#[test]
fn a_part_of_a_closed_stream_is_not_its_end() {
    let mut rig = Rig::new();
    rig.settings = set(4, 10_000);
    rig.make("a");
    rig.append("a", &"x".repeat(1999));
    rig.append("a", &"y".repeat(3000));
    rig.close("a").expect("closed");
    let (text, result) = rig.read_from("a", Start::Beginning).expect("read");
    assert!(text.len() == 1999 && !result.is_closed && !result.is_up_to_date);
    let (text, result) = rig.read_from("a", Start::At(result.next)).expect("read");
    assert!(text.len() == 3000 && result.is_closed && result.is_up_to_date);
}

#[test]
fn appends_have_the_type_of_the_stream() {
    let mut rig = Rig::new();
    rig.create("a", |create| {
        create.content_type = Some(content_type("application/json"));
        create.body = messages(b"[1,2]");
    })
    .expect("made");
    assert_eq!(
        rig.append_with("a", "3", |_| {}),
        Err(StreamError::Refused(Refused::OtherType))
    );
    let mut append = |body: &[u8]| {
        let body = messages(body);
        rig.append_with("a", "", |append| {
            append.content = Some(("application/json".into(), body));
        })
    };
    assert!(matches!(append(b"{"), Err(StreamError::NotJson(_))));
    assert_eq!(append(b"[]"), Err(StreamError::NoMessages));
    append(b"{\"a\":3}").expect("appended");
    assert_eq!(rig.read("a"), "1,2,{\"a\":3},");
}

#[test]
fn sequences_grow_byte_by_byte() {
    let mut rig = Rig::new();
    rig.make("a");
    let mut append = |sequence: Option<&str>| {
        let append = rig.append_with("a", "x", |append| {
            append.sequence = sequence.map(|sequence| sequence.as_bytes().into());
        });
        append.is_ok()
    };
    assert!(append(Some("09")) && append(None) && append(Some("10")));
    for refused in ["10", "1", "09", ""] {
        assert!(!append(Some(refused)), "{refused}");
    }
    assert!(append(Some("2")) && !append(Some("10")) && append(Some("a")) && !append(Some("B")));
}

#[test]
fn a_retry_of_a_producer_is_appended_once() {
    let mut rig = Rig::new();
    rig.make("a");
    let mut append = |epoch, sequence, text: &str| {
        rig.append_with("a", text, |append| {
            append.producer = producer("p", epoch, sequence)
        })
    };
    assert_eq!(
        append(0, 1, "x"),
        Err(StreamError::Refused(Refused::Gap {
            expected: 0,
            received: 1
        }))
    );
    for (sequence, text) in ["1", "2"].into_iter().enumerate() {
        let appended = append(0, sequence as u64, text).expect("appended");
        assert_eq!(appended.producer_sequence, Some(sequence as u64));
    }
    let retry = append(0, 0, "1").expect("a duplicate");
    assert!(retry.is_duplicate && retry.producer_sequence == Some(1));
    assert_eq!(
        append(1, 1, "x"),
        Err(StreamError::Refused(Refused::EpochWithoutStart))
    );
    append(1, 0, "3").expect("appended");
    assert_eq!(
        append(0, 2, "x"),
        Err(StreamError::Refused(Refused::StaleEpoch(1)))
    );
    assert_eq!(rig.read("a"), "123");
}

#[test]
fn what_is_refused_leaves_no_trace() {
    let mut rig = Rig::new();
    rig.make("a");
    let used = rig.budget.used();
    let append = |rig: &mut Rig, text: &str, sequence: &str| {
        rig.append_with("a", text, |append| {
            append.producer = producer("p", 0, 0);
            append.sequence = Some(sequence.as_bytes().into());
            append.closes = true;
        })
    };
    let large = "x".repeat(1001);
    let full = StreamError::Refused(Refused::Full);
    assert_eq!(append(&mut rig, &large, "9"), Err(full));
    rig.budget.set_max(used + 50);
    assert_eq!(append(&mut rig, "x", "9"), Err(StreamError::Memory));
    rig.budget.set_max(used + 300);
    let text = "x".repeat(200);
    assert_eq!(append(&mut rig, &text, "9"), Err(StreamError::Memory));
    assert_eq!(rig.budget.used(), used);
    rig.budget.set_max(100_000);
    let appended = append(&mut rig, "x", "1").expect("appended");
    assert!(!appended.is_duplicate && appended.is_closed);
}

#[test]
fn a_stream_is_bounded_to_the_byte() {
    let mut rig = Rig::new();
    rig.settings = set(4, 1000 + 2 * OVERHEAD_BYTES);
    rig.make("a");
    rig.append("a", &"x".repeat(999));
    rig.append("a", "y");
    let full = || StreamError::Refused(Refused::Full);
    assert_eq!(rig.append_with("a", "z", |_| {}), Err(full()));
    // Nothing was dropped to make room.
    assert_eq!(rig.read("a").len(), 1000);
    let body = vec![b'x'; 1001 + OVERHEAD_BYTES];
    let too_large = rig.create("b", |create| create.body = Ok(body));
    assert_eq!(too_large.map(drop), Err(full()));
    assert_eq!(rig.look("b").map(drop), Err(UNKNOWN));
    // One that is as large as it may be, or larger since a reload, can be closed.
    rig.settings = set(4, 10);
    rig.close("a").expect("closed");
}

#[test]
fn the_number_of_streams_is_bounded() {
    let mut rig = Rig::new();
    for of in ["a", "b", "c", "d"] {
        rig.make(of);
    }
    let fifth = rig.create("e", |_| {}).map(drop);
    assert_eq!(fifth, Err(StreamError::Store(StoreError::TooManyBoxes)));
    assert!(!rig.create("a", |_| {}).expect("there").is_new);
    rig.remove("a").expect("removed");
    rig.make("e");
}

#[test]
fn the_same_stream_may_be_made_twice() {
    let mut rig = Rig::new();
    rig.create("source", |_| {}).expect("made");
    let make = |create: &mut Create| {
        create.lifetime = idle(60);
        create.fork = Some(fork("source", None, 0));
    };
    rig.create("a", make).expect("made");
    let again = rig.create("a", make).expect("there");
    assert!(!again.is_new);
    let without_type = rig.create("a", |create| {
        make(create);
        create.content_type = None;
    });
    assert!(without_type.is_ok());
    let changes: [fn(&mut Create); 5] = [
        |create| create.content_type = Some(content_type("text/html")),
        |create| create.lifetime = idle(61),
        |create| create.lifetime = None,
        |create| create.fork = None,
        |create| create.closes = true,
    ];
    for change in changes {
        let other = rig.create("a", |create| {
            make(create);
            change(create);
        });
        assert!(matches!(other, Err(StreamError::Conflict(_))));
    }
    rig.close("a").expect("closed");
    assert!(rig.create("a", make).is_err());
}

#[test]
fn a_stream_without_a_type_has_bytes() {
    let mut rig = Rig::new();
    let made = rig
        .create("a", |create| create.content_type = None)
        .expect("made");
    assert_eq!(&*made.info.content_type.value, "application/octet-stream");
    assert!(rig.create("a", |create| create.content_type = None).is_ok());
}

#[test]
fn a_stream_expires_when_it_is_not_used() {
    let mut rig = Rig::new();
    for (of, lifetime) in [
        ("idle", idle(10)),
        (
            "until",
            Some(Lifetime::Until(rig.now + Duration::from_secs(30))),
        ),
        ("kept", None),
        (
            "long",
            Some(Lifetime::Idle(Duration::from_secs((1 << 53) - 1))),
        ),
    ] {
        rig.create(of, |create| create.lifetime = lifetime)
            .expect("made");
    }
    rig.pass(9);
    rig.read("idle");
    rig.pass(9);
    rig.append("idle", "x");
    rig.pass(9);
    // To look at it is no use.
    rig.look("idle").expect("there");
    rig.pass(1);
    assert_eq!(rig.look("idle").map(drop), Err(UNKNOWN));
    rig.read("until");
    rig.append("until", "x");
    rig.pass(1);
    rig.look("until").expect("there");
    rig.pass(1);
    assert_eq!(rig.look("until").map(drop), Err(UNKNOWN));
    rig.pass(1_000_000_000);
    rig.look("kept").expect("there");
    rig.look("long").expect("there");
}

#[test]
fn the_lifetime_of_the_set_is_the_default() {
    let mut rig = Rig::new();
    Arc::make_mut(&mut rig.settings).lifetime = Some(Duration::from_secs(10));
    rig.make("a");
    assert_eq!(rig.look("a").expect("there").lifetime, idle(10));
    assert!(!rig.create("a", |_| {}).expect("there").is_new);
}

#[test]
fn a_fork_takes_the_offsets_of_its_source_and_goes_its_own_way() {
    let mut rig = Rig::new();
    rig.make("a");
    let first = rig.append("a", "1");
    let second = rig.append("a", "2");
    let forked = rig.create("b", |create| {
        create.fork = Some(fork("a", Some(first), 0));
        create.body = Ok(b"own".to_vec());
    });
    let end = forked.expect("made").info.end;
    assert!(end > second);
    rig.append("a", "3");
    let mut reader = rig.follow("b");
    rig.append("a", "4");
    assert!(rig.next(&mut reader).is_none());
    rig.append("b", "!");
    let result = rig.next(&mut reader).expect("content").expect("read");
    assert_eq!(text(&result), "!");
    assert_eq!(
        (rig.read("a"), rig.read("b")),
        ("1234".into(), "1own!".into())
    );
    let (text, result) = rig.read_from("b", Start::At(first)).expect("read");
    assert_eq!(text, "own!");
    let (_, of_source) = rig.read_from("a", Start::At(first)).expect("read");
    assert_ne!(result.start, of_source.start);
    // What the source has got since is not in the fork.
    let read = rig.read_from("b", Start::At(second)).map(drop);
    assert_eq!(read, Err(StreamError::BadOffset));
}

#[test]
fn a_fork_that_is_made_again_has_other_offsets() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.append("a", "1");
    let mut make = || {
        rig.fork("b", "a").expect("made");
        let end = rig.append("b", "2");
        let inherited = rig.read_from("b", Start::Beginning).expect("read").1;
        let starts = [end, inherited.start];
        rig.remove("b").expect("removed");
        starts
    };
    let earlier = make();
    assert!(make().iter().zip(earlier).all(|(new, old)| *new > old));
    rig.fork("b", "a").expect("made");
    rig.append("b", "3");
    for offset in earlier {
        let read = rig.read_from("b", Start::At(offset)).map(drop);
        assert_eq!(read, Err(StreamError::OtherLife));
    }
}

#[test]
fn a_fork_of_a_fork_reads_all_that_it_inherits() {
    let mut rig = Rig::new();
    rig.settings = set(100, 100_000);
    rig.make("0");
    let mut expected = String::new();
    for number in 0..=64 {
        let of = number.to_string();
        let text = format!("{number} ").repeat(20);
        let end = rig.append(&of, &text);
        rig.append(&of, "not inherited");
        expected += &text;
        let forked = rig.create(&(number + 1).to_string(), |create| {
            create.fork = Some(fork(&of, Some(end), 0));
        });
        let is_too_deep = matches!(forked, Err(StreamError::BadFork(_)));
        assert_eq!(is_too_deep, number == 64, "{number}");
    }
    let (mut start, mut read) = (Start::Beginning, String::new());
    loop {
        let (text, result) = rig.read_from("64", start).expect("read");
        read += &text;
        start = Start::At(result.next);
        if result.is_up_to_date {
            break;
        }
    }
    assert_eq!(read, expected + "not inherited");
}

#[test]
fn a_fork_inherits_no_state_of_writers() {
    let mut rig = Rig::new();
    rig.make("a");
    let append = |rig: &mut Rig, to: &str| {
        rig.append_with(to, "x", |append| {
            append.producer = producer("p", 0, 0);
            append.sequence = Some(b"1"[..].into());
            append.closes = true;
        })
    };
    append(&mut rig, "a").expect("appended");
    let forked = rig.fork("b", "a").expect("made");
    assert!(!forked.info.is_closed);
    let appended = append(&mut rig, "b").expect("appended");
    assert!(!appended.is_duplicate);
    assert_eq!(rig.read("b"), "xx");
}

#[test]
fn a_fork_may_begin_within_an_append() {
    let mut rig = Rig::new();
    rig.settings = set(100, 1000);
    rig.make("a");
    let anchor = rig.append("a", "first");
    rig.append("a", "second");
    rig.append("a", "third");
    let mut read = |offset, count| {
        let of = format!("fork-{count}-{}", offset == anchor);
        let made = rig.create(&of, |create| {
            create.fork = Some(fork("a", Some(offset), count))
        });
        made.map(|_| rig.read(&of))
    };
    assert_eq!(read(Offset::ZERO, 0), Ok(String::new()));
    assert_eq!(read(Offset::ZERO, 3), Ok("fir".into()));
    assert_eq!(read(anchor, 0), Ok("first".into()));
    assert_eq!(read(anchor, 6), Ok("firstsecond".into()));
    assert!(matches!(read(anchor, 7), Err(StreamError::BadFork(_))));

    rig.create("json", |create| {
        create.content_type = Some(content_type("application/json"));
        create.body = messages(b"[1,[2,3],4]");
    })
    .expect("made");
    let mut read = |count| {
        let of = format!("json-{count}");
        let made = rig.create(&of, |create| {
            create.content_type = None;
            create.fork = Some(fork("json", Some(Offset::ZERO), count));
        });
        made.map(|_| rig.read(&of))
    };
    assert_eq!(read(2), Ok("1,[2,3],".into()));
    assert_eq!(read(3), Ok("1,[2,3],4,".into()));
    assert!(matches!(read(4), Err(StreamError::BadFork(_))));
}

#[test]
fn forks_that_cannot_be_made() {
    let mut rig = Rig::new();
    rig.make("a");
    let end = rig.append("a", "text");
    assert_eq!(
        rig.fork("b", "missing").map(drop),
        Err(StreamError::Refused(Refused::NoSource))
    );
    assert_eq!(
        rig.fork("b", "b").map(drop),
        Err(StreamError::Refused(Refused::NoSource))
    );
    for (life, position) in [(end.life, end.position + 1), (end.life + 1, end.position)] {
        let offset = Some(Offset { life, position });
        let made = rig.create("b", |create| create.fork = Some(fork("a", offset, 0)));
        assert!(matches!(made, Err(StreamError::BadFork(_))));
    }
    let other_type = rig.create("b", |create| {
        create.content_type = Some(content_type("application/json"));
        create.fork = Some(fork("a", None, 0));
    });
    assert!(matches!(other_type, Err(StreamError::Conflict(_))));
    // None of them counts as a fork.
    rig.remove("a").expect("removed");
    assert_eq!(rig.look("a").map(drop), Err(UNKNOWN));
}

#[test]
fn a_fork_inherits_the_lifetime() {
    let mut rig = Rig::new();
    rig.create("a", |create| create.lifetime = idle(60))
        .expect("made");
    rig.fork("b", "a").expect("made");
    assert_eq!(rig.look("b").expect("there").lifetime, idle(60));
    rig.create("c", |create| {
        create.fork = Some(fork("a", None, 0));
        create.lifetime = idle(600);
    })
    .expect("made");
    assert_eq!(rig.look("c").expect("there").lifetime, idle(600));
}

#[test]
fn a_removed_stream_keeps_its_name_for_its_forks() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.append("a", "text");
    rig.fork("b", "a").expect("made");
    rig.fork("c", "b").expect("made");
    rig.remove("a").expect("removed");
    rig.remove("b").expect("removed");
    for gone in ["a", "b"] {
        assert_eq!(rig.look(gone).map(drop), Err(REMOVED));
        assert_eq!(rig.remove(gone), Err(REMOVED));
        let appended = rig.append_with(gone, "x", |_| {}).map(drop);
        assert_eq!(appended, Err(REMOVED));
        assert!(matches!(
            rig.create(gone, |_| {}),
            Err(StreamError::Conflict(_))
        ));
        assert!(matches!(rig.fork("d", gone), Err(StreamError::Conflict(_))));
    }
    assert_eq!(rig.read("c"), "text");
    rig.remove("c").expect("removed");
    assert_eq!(rig.budget.used(), 0);
    for gone in ["a", "b", "c"] {
        assert_eq!(rig.look(gone).map(drop), Err(UNKNOWN));
    }
    rig.make("a");
}

#[test]
fn the_last_fork_to_expire_frees_its_source() {
    let mut rig = Rig::new();
    rig.create("a", |create| create.lifetime = idle(5))
        .expect("made");
    rig.create("b", |create| {
        create.fork = Some(fork("a", None, 0));
        create.lifetime = idle(10);
    })
    .expect("made");
    rig.pass(5);
    assert_eq!(rig.look("a").map(drop), Err(REMOVED));
    rig.pass(5);
    for gone in ["a", "b"] {
        assert_eq!(rig.look(gone).map(drop), Err(UNKNOWN));
    }
    assert_eq!(rig.budget.used(), 0);
}

#[test]
fn a_source_outlives_its_forks() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.fork("b", "a").expect("made");
    rig.remove("b").expect("removed");
    rig.look("a").expect("there");
    rig.remove("a").expect("removed");
    assert_eq!(rig.look("a").map(drop), Err(UNKNOWN));
}
