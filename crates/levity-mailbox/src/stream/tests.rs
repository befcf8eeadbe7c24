use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_wire::durable_streams::{Lifetime, Offset, Producer, Start, messages};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::budget::Budget;
use crate::log::tests::settings;
use crate::name::Name;
use crate::settings::Settings;

/// Streams whose clock is the test's.
struct Rig {
    streams: Streams,
    budget: Arc<Budget>,
    settings: Arc<Settings>,
    now: SystemTime,
}

type Waiting = oneshot::Receiver<Result<ReadResult, ReadError>>;

impl Rig {
    fn new() -> Self {
        let mut settings = settings(0, 1000);
        settings.boxes_max = 4;
        settings.receivers_max = 100;
        let budget = Budget::new(100_000);
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        Self {
            streams: Streams::new(budget.clone(), Arc::default(), now),
            budget,
            settings: Arc::new(settings),
            now,
        }
    }

    fn ask<T, E>(&mut self, command: impl FnOnce(Reply<T, E>) -> Command) -> Result<T, E> {
        let (reply, mut answer) = oneshot::channel();
        self.streams.command(command(reply), self.now);
        answer.try_recv().expect("an answer at once")
    }

    fn create(
        &mut self,
        of: &str,
        change: impl FnOnce(&mut Create),
    ) -> Result<Created, CreateError> {
        let mut create = Create {
            settings: self.settings.clone(),
            content_type: Some(content_type("text/plain")),
            lifetime: None,
            closes: false,
            fork: None,
            body: Ok(Vec::new()),
        };
        change(&mut create);
        self.ask(|reply| Command::Create(name(of), create, reply))
    }

    fn make(&mut self, of: &str) {
        assert!(self.create(of, |_| {}).expect("made").is_new);
    }

    fn fork(&mut self, of: &str, source: &str) -> Result<Created, CreateError> {
        self.create(of, |create| create.fork = Some(fork(source, None, 0)))
    }

    fn append_with(
        &mut self,
        to: &str,
        text: &str,
        change: impl FnOnce(&mut Append),
    ) -> Result<Appended, AppendError> {
        let mut append = Append {
            settings: self.settings.clone(),
            content: Some(("text/plain".into(), Ok(text.as_bytes().to_vec()))),
            closes: false,
            sequence: None,
            producer: None,
        };
        change(&mut append);
        self.ask(|reply| Command::Append(name(to), append, reply))
    }

    fn append(&mut self, to: &str, text: &str) -> Offset {
        self.append_with(to, text, |_| {}).expect("appended").end
    }

    fn close(&mut self, of: &str) -> Result<Appended, AppendError> {
        self.append_with(of, "", |append| {
            append.content = None;
            append.closes = true;
        })
    }

    fn start_read(&mut self, of: &str, start: Start, waits: bool) -> Waiting {
        let read = Read {
            settings: self.settings.clone(),
            start,
            bytes_max: 1000,
            waits,
        };
        let (reply, answer) = oneshot::channel();
        self.streams
            .command(Command::Read(name(of), read, reply), self.now);
        answer
    }

    fn wait(&mut self, of: &str) -> Waiting {
        self.start_read(of, Start::Now, true)
    }

    fn read_from(&mut self, of: &str, start: Start) -> Result<(String, ReadResult), ReadError> {
        let result = self
            .start_read(of, start, false)
            .try_recv()
            .expect("an answer at once")?;
        Ok((text(&result), result))
    }

    fn read(&mut self, of: &str) -> String {
        self.read_from(of, Start::Beginning).expect("read").0
    }

    fn look(&mut self, of: &str) -> Result<Info, Missing> {
        self.ask(|reply| Command::Look(name(of), reply))
    }

    fn remove(&mut self, of: &str) -> Result<(), Missing> {
        self.ask(|reply| Command::Remove(name(of), reply))
    }

    fn answer_all(&mut self) {
        while self.streams.answer(self.now) {}
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }

    fn count(&self) -> usize {
        self.streams.count()
    }
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
    let bytes = result
        .pieces
        .iter()
        .flat_map(|piece| piece.bytes().to_vec());
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
        refused(|offset| offset.position -= 1),
        Err(ReadError::BadOffset)
    );
    assert_eq!(
        refused(|offset| offset.position += 1),
        Err(ReadError::BadOffset)
    );
    assert_eq!(
        refused(|offset| offset.life -= 1),
        Err(ReadError::OtherLife)
    );
    assert_eq!(refused(|offset| offset.life = 0), Err(ReadError::OtherLife));
    // A stream that is made again has other offsets.
    rig.remove("a").expect("removed");
    rig.make("a");
    rig.append("a", "text");
    let read = rig.read_from("a", Start::At(end)).map(drop);
    assert_eq!(read, Err(ReadError::OtherLife));
}

#[test]
fn a_read_waits_for_what_comes() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.append("a", "old");
    let (mut first, mut second) = (rig.wait("a"), rig.wait("a"));
    rig.answer_all();
    assert_eq!(first.try_recv().err(), Some(TryRecvError::Empty));
    rig.append("a", "new");
    rig.answer_all();
    for waiting in [&mut first, &mut second] {
        let result = waiting.try_recv().expect("an answer").expect("read");
        assert!(result.is_up_to_date);
        assert_eq!(text(&result), "new");
    }
    // There is something already.
    let mut third = rig.start_read("a", Start::Beginning, true);
    assert_eq!(
        text(&third.try_recv().expect("an answer").expect("read")),
        "oldnew"
    );
}

#[test]
fn reads_end_with_the_stream() {
    let mut rig = Rig::new();
    rig.make("a");
    let mut waiting = rig.wait("a");
    rig.close("a").expect("closed");
    rig.answer_all();
    let result = waiting.try_recv().expect("an answer").expect("read");
    assert!(result.is_closed && result.pieces.is_empty());
    // Nobody waits for what never comes.
    let result = rig.wait("a").try_recv().expect("an answer").expect("read");
    assert!(result.is_closed);

    rig.make("b");
    let mut waiting = rig.wait("b");
    rig.remove("b").expect("removed");
    rig.answer_all();
    let missing = ReadError::Missing(Missing::Unknown);
    assert_eq!(
        waiting.try_recv().expect("an answer").map(drop),
        Err(missing)
    );
}

#[test]
fn a_bounded_number_of_reads_is_answered_at_a_time() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.make("b");
    let mut waiting: Vec<_> = (0..100).map(|_| rig.wait("a")).collect();
    let mut other = rig.wait("b");
    let mut refused = rig.wait("a");
    let answer = refused.try_recv().expect("an answer").map(drop);
    assert_eq!(answer, Err(ReadError::TooManyReceivers));
    rig.append("a", "x");
    rig.append("b", "y");
    assert!(rig.streams.answer(rig.now));
    let answers = waiting.iter_mut().map(oneshot::Receiver::try_recv);
    let answered = answers.filter(Result::is_ok).count();
    assert_eq!(answered, 64);
    // Streams take turns.
    assert!(rig.streams.answer(rig.now));
    assert!(other.try_recv().is_ok());
    assert!(!rig.streams.answer(rig.now) && !rig.streams.answer(rig.now));
}

#[test]
fn reads_that_nobody_waits_for_are_dropped() {
    let mut rig = Rig::new();
    rig.make("a");
    for _ in 0..1000 {
        drop(rig.wait("a"));
    }
    let mut waiting = rig.wait("a");
    assert_eq!(waiting.try_recv().err(), Some(TryRecvError::Empty));
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
    let refused = AppendError::Closed(closed.end);
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
fn a_part_of_a_closed_stream_is_not_its_end() {
    let mut rig = Rig::new();
    rig.settings = Arc::new(settings(0, 10_000));
    rig.make("a");
    rig.append("a", &"x".repeat(999));
    rig.append("a", &"y".repeat(2000));
    rig.close("a").expect("closed");
    let (text, result) = rig.read_from("a", Start::Beginning).expect("read");
    assert!(text.len() == 999 && !result.is_closed && !result.is_up_to_date);
    let (text, result) = rig.read_from("a", Start::At(result.next)).expect("read");
    assert!(text.len() == 2000 && result.is_closed && result.is_up_to_date);
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
        Err(AppendError::OtherType)
    );
    let mut append = |body: &[u8]| {
        let body = messages(body);
        rig.append_with("a", "", |append| {
            append.content = Some(("application/json".into(), body));
        })
    };
    assert!(matches!(append(b"{"), Err(AppendError::NotJson(_))));
    assert_eq!(append(b"[]"), Err(AppendError::NoMessages));
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
    assert_eq!(append(0, 1, "x"), Err(AppendError::Gap { expected: 0 }));
    for (sequence, text) in ["1", "2"].into_iter().enumerate() {
        let appended = append(0, sequence as u64, text).expect("appended");
        assert_eq!(appended.producer_sequence, Some(sequence as u64));
    }
    let retry = append(0, 0, "1").expect("a duplicate");
    assert!(retry.is_duplicate && retry.producer_sequence == Some(1));
    assert_eq!(append(1, 1, "x"), Err(AppendError::EpochWithoutStart));
    append(1, 0, "3").expect("appended");
    assert_eq!(append(0, 2, "x"), Err(AppendError::StaleEpoch(1)));
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
    let full = AppendError::Full(Full::Stream);
    assert_eq!(append(&mut rig, &large, "9"), Err(full));
    rig.budget.set_max(used + 50);
    assert_eq!(
        append(&mut rig, "x", "9"),
        Err(AppendError::Full(Full::Memory))
    );
    rig.budget.set_max(used + 300);
    let text = "x".repeat(200);
    assert_eq!(
        append(&mut rig, &text, "9"),
        Err(AppendError::Full(Full::Memory))
    );
    assert_eq!(rig.budget.used(), used);
    rig.budget.set_max(100_000);
    let appended = append(&mut rig, "x", "1").expect("appended");
    assert!(!appended.is_duplicate && appended.is_closed);
}

#[test]
fn a_stream_is_bounded_to_the_byte() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.append("a", &"x".repeat(999));
    rig.append("a", "y");
    let full = Err(AppendError::Full(Full::Stream));
    assert_eq!(rig.append_with("a", "z", |_| {}), full);
    // Nothing was dropped to make room.
    assert_eq!(rig.look("a").expect("there").end.position, 1000);
    let too_large = rig.create("b", |create| create.body = Ok(vec![b'x'; 1001]));
    assert_eq!(too_large.map(drop), Err(CreateError::Full(Full::Stream)));
    assert_eq!(rig.look("b").map(drop), Err(Missing::Unknown));
}

#[test]
fn the_number_of_streams_is_bounded() {
    let mut rig = Rig::new();
    for of in ["a", "b", "c", "d"] {
        rig.make(of);
    }
    let fifth = rig.create("e", |_| {}).map(drop);
    assert_eq!(fifth, Err(CreateError::TooManyStreams));
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
        assert!(matches!(other, Err(CreateError::Conflict(_))));
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
    assert_eq!(rig.look("idle").map(drop), Err(Missing::Unknown));
    rig.read("until");
    rig.append("until", "x");
    rig.pass(1);
    rig.look("until").expect("there");
    rig.pass(1);
    assert_eq!(rig.look("until").map(drop), Err(Missing::Unknown));
    rig.pass(1_000_000_000);
    rig.look("kept").expect("there");
}

#[test]
fn a_sweep_removes_what_has_expired() {
    let mut rig = Rig::new();
    rig.create("a", |create| create.lifetime = idle(10))
        .expect("made");
    rig.create("b", |create| create.lifetime = idle(10))
        .expect("made");
    let mut waiting = rig.wait("b");
    rig.pass(5);
    rig.read("a");
    rig.pass(5);
    rig.streams.sweep(rig.now);
    assert_eq!(rig.count(), 2);
    rig.pass(5);
    rig.streams.sweep(rig.now);
    // Somebody waits for the other one.
    assert_eq!(rig.count(), 1);
    assert_eq!(waiting.try_recv().err(), Some(TryRecvError::Empty));
    drop(waiting);
    rig.pass(10);
    rig.streams.sweep(rig.now);
    assert_eq!(rig.count(), 0);
    assert_eq!(rig.budget.used(), 0);
}

#[test]
fn waiting_reads_end_when_time_is_over() {
    let mut rig = Rig::new();
    let until = Some(Lifetime::Until(rig.now + Duration::from_secs(30)));
    rig.create("a", |create| create.lifetime = until)
        .expect("made");
    let mut waiting = rig.wait("a");
    rig.pass(30);
    rig.streams.sweep(rig.now);
    rig.answer_all();
    let missing = ReadError::Missing(Missing::Unknown);
    assert_eq!(
        waiting.try_recv().expect("an answer").map(drop),
        Err(missing)
    );
}

#[test]
fn streams_made_again_and_again_are_due_once() {
    let mut rig = Rig::new();
    for _ in 0..100 {
        rig.create("a", |create| create.lifetime = idle(1_000))
            .expect("made");
        rig.remove("a").expect("removed");
    }
    assert_eq!(rig.streams.due_count(), 0);
}

#[test]
fn the_lifetime_of_the_set_is_the_default() {
    let mut rig = Rig::new();
    let mut settings = settings(0, 1000);
    settings.lifetime = Some(Duration::from_secs(10));
    rig.settings = Arc::new(settings);
    rig.make("a");
    assert_eq!(rig.look("a").expect("there").lifetime, idle(10));
    assert!(!rig.create("a", |_| {}).expect("there").is_new);
}

#[test]
fn a_fork_has_the_offsets_of_its_source_and_goes_its_own_way() {
    let mut rig = Rig::new();
    rig.make("a");
    let first = rig.append("a", "1");
    let second = rig.append("a", "2");
    let forked = rig.create("b", |create| {
        create.fork = Some(fork("a", Some(first), 0));
        create.body = Ok(b"own".to_vec());
    });
    let info = forked.expect("made").info;
    assert_eq!((info.end.life, info.end.position), (second.life, 4));
    rig.append("a", "3");
    let mut waiting = rig.wait("b");
    rig.append("a", "4");
    rig.answer_all();
    assert_eq!(waiting.try_recv().err(), Some(TryRecvError::Empty));
    rig.append("b", "!");
    assert_eq!(
        (rig.read("a"), rig.read("b")),
        ("1234".into(), "1own!".into())
    );
    let (text, result) = rig.read_from("b", Start::At(first)).expect("read");
    assert_eq!(text, "own!");
    let (_, of_source) = rig.read_from("a", Start::At(first)).expect("read");
    assert_ne!(result.number, of_source.number);
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
    let mut all = settings(0, 1000);
    all.boxes_max = 100;
    rig.settings = Arc::new(all);
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
    assert!(matches!(read(anchor, 7), Err(CreateError::BadFork(_))));

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
    assert!(matches!(read(4), Err(CreateError::BadFork(_))));
}

#[test]
fn forks_that_cannot_be_made() {
    let mut rig = Rig::new();
    rig.make("a");
    let end = rig.append("a", "text");
    assert_eq!(
        rig.fork("b", "missing").map(drop),
        Err(CreateError::NoSource)
    );
    assert_eq!(rig.fork("b", "b").map(drop), Err(CreateError::NoSource));
    for (life, position) in [(end.life, 5), (end.life, 1), (end.life + 1, 4)] {
        let offset = Some(Offset { life, position });
        let made = rig.create("b", |create| create.fork = Some(fork("a", offset, 0)));
        assert!(matches!(made, Err(CreateError::BadFork(_))));
    }
    let other_type = rig.create("b", |create| {
        create.content_type = Some(content_type("application/json"));
        create.fork = Some(fork("a", None, 0));
    });
    assert!(matches!(other_type, Err(CreateError::Conflict(_))));
    // None of them counts as a fork.
    rig.remove("a").expect("removed");
    assert_eq!(rig.look("a").map(drop), Err(Missing::Unknown));
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
        assert_eq!(rig.look(gone).map(drop), Err(Missing::Removed));
        assert_eq!(rig.remove(gone), Err(Missing::Removed));
        let appended = rig.append_with(gone, "x", |_| {}).map(drop);
        assert_eq!(appended, Err(AppendError::Missing(Missing::Removed)));
        assert!(matches!(
            rig.create(gone, |_| {}),
            Err(CreateError::Conflict(_))
        ));
        assert!(matches!(rig.fork("d", gone), Err(CreateError::Conflict(_))));
    }
    assert_eq!((rig.read("c"), rig.count()), ("text".into(), 3));
    rig.remove("c").expect("removed");
    assert_eq!((rig.count(), rig.budget.used()), (0, 0));
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
    rig.streams.sweep(rig.now);
    assert_eq!(rig.look("a").map(drop), Err(Missing::Removed));
    rig.pass(5);
    rig.streams.sweep(rig.now);
    assert_eq!(rig.count(), 0);
}

#[test]
fn a_source_outlives_its_forks() {
    let mut rig = Rig::new();
    rig.make("a");
    rig.fork("b", "a").expect("made");
    rig.remove("b").expect("removed");
    rig.look("a").expect("there");
    rig.remove("a").expect("removed");
    assert_eq!(rig.look("a").map(drop), Err(Missing::Unknown));
}

#[tokio::test]
async fn a_client_asks_the_owner_of_the_set() {
    let rig = Rig::new();
    let (senders, owners): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| tokio::sync::mpsc::unbounded_channel())
        .unzip();
    let run_all = owners.into_iter().map(|commands| {
        let streams = Streams::new(rig.budget.clone(), Arc::default(), SystemTime::now());
        run(streams, commands)
    });
    let client = Client::new(senders);
    let settings = rig.settings.clone();
    let asking = async {
        let create = Create {
            settings: settings.clone(),
            content_type: None,
            lifetime: None,
            closes: false,
            fork: None,
            body: Ok(b"one".to_vec()),
        };
        let created = client.create(&name("a"), create).await.expect("an answer");
        assert!(created.expect("made").is_new);
        let read = Read {
            settings: settings.clone(),
            start: Start::Now,
            bytes_max: 100,
            waits: true,
        };
        let waiting = client.read(&name("a"), read);
        let append = Append {
            settings,
            content: Some(("application/octet-stream".into(), Ok(b"two".to_vec()))),
            closes: true,
            sequence: None,
            producer: None,
        };
        let appended = client.append(&name("a"), append).await.expect("an answer");
        assert!(appended.is_ok());
        let result = waiting.await.expect("an answer").expect("read");
        assert!(result.is_closed && text(&result) == "two");
        let removed = client.remove(&name("a")).await.expect("an answer");
        assert!(removed.is_ok());
        let missing = client.look(&name("a")).await.expect("an answer").map(drop);
        assert_eq!(missing, Err(Missing::Unknown));
        // The owners end with it.
        drop(client);
    };
    futures_util::future::join(asking, futures_util::future::join_all(run_all)).await;
}
