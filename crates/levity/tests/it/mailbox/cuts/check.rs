//! What holds whatever happens to the servers.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::time::{Duration, Instant};

use levity_wire::mailbox::MessageId;

use super::clients::END;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: MessageId,
    pub text: String,
}

impl Message {
    pub fn new(id: MessageId, text: &str) -> Self {
        let text = text.to_owned();
        Self { id, text }
    }
}

/// A message whose publisher was told that it is there.
pub struct Acknowledged {
    pub message: Message,
    /// When the request began that was answered.
    pub began: Instant,
    pub ended: Instant,
}

/// Messages may be lost that were acknowledged within this time. A new epoch announces it.
#[derive(Debug)]
pub struct Loss {
    pub from: Instant,
    pub to: Instant,
}

impl Loss {
    fn may_take(&self, acknowledged: &Acknowledged) -> bool {
        acknowledged.began < self.to && acknowledged.ended > self.from
    }
}

/// What a receiver has got.
#[derive(Default)]
pub struct Received {
    /// All messages, also those before a gap.
    all: Vec<Message>,
    /// Where those begin that came after the last gap.
    first: usize,
    pub last: Option<MessageId>,
    gaps: usize,
}

impl Received {
    pub fn has(&self, text: &str) -> bool {
        self.all.last().is_some_and(|message| message.text == text)
    }

    /// Takes the events of a connection that has ended, as a browser does.
    pub fn take(&mut self, events: &str) {
        // What is behind the last empty line is incomplete.
        let complete = events.rfind("\n\n").map_or("", |end| &events[..end + 1]);
        for event in complete.split("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            let Some(id) = field("id: ") else {
                continue;
            };
            let id: MessageId = id.parse().expect("an id");
            if field("event: ") == Some("gap") {
                let is_new_life = self.last.is_none_or(|last| last.epoch < id.epoch);
                assert!(is_new_life, "gap {id} after {:?}", self.last);
                (self.first, self.gaps) = (self.all.len(), self.gaps + 1);
            } else if let Some(text) = field("data: ") {
                let is_next = self.last.is_none_or(|last| last < id);
                assert!(is_next, "{id} after {:?}", self.last);
                self.all.push(Message::new(id, text));
            }
            self.last = Some(id);
        }
    }
}

/// Checks what came of a box: what publishers were told, what is kept, what receivers have got. Returns how many messages are
/// lost.
pub fn check(
    acknowledged: &[Acknowledged],
    kept: &[Message],
    received: &[Received],
    losses: &[Loss],
) -> usize {
    let told = acknowledged.iter().map(|it| &it.message);
    let got = received.iter().flat_map(|it| &it.all);
    let mut texts: HashMap<MessageId, &str> = HashMap::new();
    for Message { id, text } in told.chain(kept).chain(got) {
        let before = texts.insert(*id, text);
        assert!(before.is_none_or(|before| before == text), "two are {id}");
    }
    check_order(kept);
    for one in received {
        assert_eq!(&one.all[one.first..], kept, "a receiver has all");
        assert!(one.gaps <= losses.len(), "{} gaps: {losses:?}", one.gaps);
    }
    let lost = check_acknowledged(acknowledged, kept, losses);
    assert_eq!(kept.len() + lost, acknowledged.len(), "no text is doubled");
    let mut epochs: Vec<_> = texts.keys().map(|id| id.epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert!(epochs.len() <= 1 + losses.len(), "{epochs:?}: {losses:?}");
    lost
}

/// The messages of each publisher are in order, each once.
fn check_order(kept: &[Message]) {
    assert!(kept.is_sorted_by(|a, b| a.id < b.id && a.id.epoch == b.id.epoch));
    let mut last: HashMap<&str, u64> = HashMap::new();
    for Message { id, text } in kept.iter().filter(|message| message.text != END) {
        let (publisher, number) = text.split_once('-').expect("PUBLISHER-NUMBER");
        let number = number.parse().expect("a number");
        let before = last.insert(publisher, number);
        assert!(
            before.is_none_or(|before| before < number),
            "{id} is {text}"
        );
    }
}

/// Everything that was acknowledged is there, but for what may be lost. Returns how many messages that is.
fn check_acknowledged(acknowledged: &[Acknowledged], kept: &[Message], losses: &[Loss]) -> usize {
    let ids: HashMap<&str, MessageId> = kept.iter().map(|it| (&*it.text, it.id)).collect();
    let epoch = kept.last().expect("a message").id.epoch;
    let mut lost = 0;
    for one in acknowledged {
        let Message { id, text } = &one.message;
        let is_later = id.epoch < epoch;
        match ids.get(&**text) {
            Some(kept) => assert!(is_later || kept == id, "{text} is {kept}, not {id}"),
            None => {
                let may_be = losses.iter().any(|loss| loss.may_take(one));
                assert!(may_be && is_later, "{id} {text} is lost: {losses:?}");
                lost += 1;
            }
        }
    }
    lost
}

/// Messages of a life of a box.
fn messages(epoch: u64, texts: &str) -> Vec<Message> {
    let ids = (1..).map(|sequence| MessageId { epoch, sequence });
    let texts = texts.split_whitespace();
    ids.zip(texts)
        .map(|(id, text)| Message::new(id, text))
        .collect()
}

/// Whether it is right that `told` was acknowledged in the life 1, `kept` is left in the last one, and a receiver has got
/// `seen` in the life 1 and all of the next one.
fn is_right(told: &str, seen: &str, kept: (u64, &str), has_loss: bool) -> bool {
    let now = Instant::now();
    let told = messages(1, told).into_iter().map(|message| Acknowledged {
        message,
        began: now,
        ended: now + Duration::from_secs(2),
    });
    let (told, second) = (told.collect::<Vec<_>>(), now + Duration::from_secs(1));
    let losses = has_loss.then_some(Loss {
        from: second,
        to: second,
    });
    let kept = messages(kept.0, kept.1);
    let gap = (kept[0].id.epoch > 1).then(|| "id: 2-0\nevent: gap\n\n".to_owned());
    let event = |Message { id, text }: &Message| format!("id: {id}\ndata: {text}\n\n");
    let before: String = messages(1, seen).iter().map(event).collect();
    let after = kept.iter().filter(|_| gap.is_some()).map(event);
    let events = before + gap.as_deref().unwrap_or("") + &after.collect::<String>();
    let checked = catch_unwind(|| {
        let mut received = Received::default();
        received.take(&events);
        check(&told, &kept, &[received], losses.as_slice())
    });
    checked.is_ok()
}

#[test]
fn what_is_wrong_is_noticed() {
    let all = "0-0 1-0 0-1";
    assert!(is_right(all, all, (1, all), false));
    assert!(is_right(all, all, (2, all), true));
    assert!(is_right(all, all, (2, "0-0 1-0"), true));
    for (told, seen, kept, has_loss) in [
        // Lost: without a reason, without a new life, behind the back of a receiver.
        (all, all, (2, "0-0 1-0"), false),
        (all, "0-0 1-0", (1, "0-0 1-0"), true),
        (all, "0-0 1-0", (1, all), false),
        // A gap without a reason.
        (all, all, (2, all), false),
        // Doubled, in another order, and two under one id.
        (all, "0-0 1-0 0-1 1-0", (1, "0-0 1-0 0-1 1-0"), false),
        ("0-1 0-0", "0-1 0-0", (1, "0-1 0-0"), false),
        (all, "0-0 1-0 2-0", (1, all), false),
    ] {
        assert!(
            !is_right(told, seen, kept, has_loss),
            "{told} {seen} {kept:?}"
        );
    }
}
