//! What this process knows of the boxes, and which of their messages it has reported.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use levity_wire::mailbox::MessageId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::message::Message;
use crate::name::Name;
use crate::store::{Change, Opened};

/// The part of the idle time after which a watched box is touched.
const TOUCH_DIVISOR: u32 = 4;

/// A sweep looks at this part of all boxes, but at [`SWEPT_MIN`] at least: ten sweeps a second look at each box at least
/// every four seconds.
const SWEPT_DIVISOR: usize = 32;
const SWEPT_MIN: usize = 64;

/// How long what was seen of a box counts that is used no more, however long its idle time: a stream may be kept forever.
const KNOWN_TIME: Duration = Duration::from_secs(300);

/// Idle time of a box whose settings are not known, or that was removed.
const IDLE_UNKNOWN: Duration = Duration::from_secs(60);

/// The boxes that this process uses or has used lately.
pub(super) struct Boxes {
    boxes: HashMap<Name, Used>,
    /// All of them, in the order in which sweeps look at them.
    order: VecDeque<Name>,
    changes: mpsc::UnboundedSender<Change>,
    /// Which box is due when. Only the entry of [`Used::due`] counts.
    due: BinaryHeap<Reverse<(u64, Name)>>,
    /// Channels to subscribe to (`true`) or to leave, in this order.
    subscriptions: VecDeque<(Name, bool, u64)>,
    /// Watched boxes that have to be asked for the messages after [`Known`].
    to_resume: VecDeque<Name>,
    /// Boxes that the server has to compare with [`Known`].
    to_check: VecDeque<Name>,
    /// The number of the next watch.
    watch: u64,
}

struct Used {
    known: Option<Known>,
    watch: Option<Watch>,
    /// When a message expires that nobody has looked after yet, in milliseconds since 1970.
    due: Option<u64>,
    idle: Duration,
    used_at: Instant,
}

/// What this process has seen of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Known {
    pub(super) epoch: u64,
    pub(super) next: u64,
}

/// A box with receivers. Its messages come through a channel of the server. What came before the subscription, and while
/// there was no connection, is asked for: the box resumes.
struct Watch {
    /// Distinguishes it from earlier watches of the same box.
    number: u64,
    is_subscribed: bool,
    /// What was reported; `None` until the box is opened, and again after [`Change::Outdated`].
    reported: Option<Known>,
    state: WatchState,
}

enum WatchState {
    /// What comes through the channel is ignored, as it will be asked for.
    Behind,
    /// The server was asked; what comes meanwhile waits here.
    Resuming(Vec<(Message, u64)>),
    /// The channel has all that follows.
    Current,
}

/// What comes through the channel of a box.
#[derive(Debug)]
pub(super) enum Notice {
    /// A message, and the box's `lost`.
    Message(Message, u64),
    /// The box has this epoch now.
    Outdated(u64),
    /// Another process has removed the box.
    Removed,
}

impl Boxes {
    pub(super) fn new(changes: mpsc::UnboundedSender<Change>) -> Self {
        Self {
            boxes: HashMap::new(),
            order: VecDeque::new(),
            changes,
            due: BinaryHeap::new(),
            subscriptions: VecDeque::new(),
            to_resume: VecDeque::new(),
            to_check: VecDeque::new(),
            watch: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.boxes.len()
    }

    pub(super) fn known(&self, name: &Name) -> Option<Known> {
        self.boxes.get(name)?.known
    }

    pub(super) fn is_watched(&self, name: &Name) -> bool {
        let found = self.boxes.get(name);
        found.is_some_and(|found| found.watch.is_some())
    }

    pub(super) fn idle(&self, name: &Name) -> Duration {
        self.boxes
            .get(name)
            .map_or(IDLE_UNKNOWN, |found| found.idle)
    }

    /// Notes that a box is used.
    pub(super) fn mark_used(&mut self, name: &Name, idle: Option<Duration>, now: Instant) {
        let found = match self.boxes.entry(name.clone()) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(vacant) => {
                self.order.push_back(name.clone());
                vacant.insert(Used {
                    known: None,
                    watch: None,
                    due: None,
                    idle: IDLE_UNKNOWN,
                    used_at: now,
                })
            }
        };
        found.used_at = now;
        found.idle = idle.unwrap_or(found.idle);
    }

    /// Notes what was seen of a box.
    pub(super) fn learn(&mut self, name: &Name, known: Known) {
        if let Some(found) = self.boxes.get_mut(name) {
            found.known = found.known.max(Some(known));
        }
    }

    /// Has all boxes compared with what was seen of them.
    pub(super) fn check_all(&mut self) {
        let known = self.boxes.iter().filter(|(_, found)| found.known.is_some());
        self.to_check = known.map(|(name, _)| name.clone()).collect();
    }

    /// The next box to compare.
    pub(super) fn next_to_check(&mut self) -> Option<Name> {
        self.to_check.pop_front()
    }

    /// Forgets a box that was removed, but for a while not its epoch: the next one must be larger.
    pub(super) fn removed(&mut self, name: &Name) {
        let Some(found) = self.boxes.get_mut(name) else {
            return;
        };
        found.due = None;
        if let Some(known) = &mut found.known {
            known.next = 0;
        }
        match &mut found.watch {
            Some(watch) => {
                watch.reported = None;
                watch.state = WatchState::Behind;
            }
            None => found.idle = found.idle.min(IDLE_UNKNOWN),
        }
    }

    pub(super) fn set_watched(&mut self, name: &Name, is_watched: bool, now: Instant) {
        self.mark_used(name, None, now);
        self.watch += 1;
        let number = self.watch;
        let found = self.boxes.get_mut(name).expect("it was made");
        if found.watch.is_some() == is_watched {
            return;
        }
        found.watch = is_watched.then_some(Watch {
            number,
            is_subscribed: false,
            reported: None,
            state: WatchState::Behind,
        });
        let subscription = (name.clone(), is_watched, number);
        self.subscriptions.push_back(subscription);
    }

    fn watch_of(&mut self, name: &Name) -> Option<&mut Watch> {
        self.boxes.get_mut(name)?.watch.as_mut()
    }

    /// The next channels to subscribe to, or to leave: at most `count_max`.
    pub(super) fn next_subscriptions(&mut self, count_max: usize) -> (bool, Vec<(Name, u64)>) {
        let is_wanted = self.subscriptions.front().is_some_and(|first| first.1);
        let next = self.subscriptions.iter().take(count_max);
        let count = next.take_while(|one| one.1 == is_wanted).count();
        let next = self.subscriptions.drain(..count);
        let channels = next.map(|(name, _, number)| (name, number)).collect();
        (is_wanted, channels)
    }

    /// The server has confirmed subscriptions.
    pub(super) fn subscribed(&mut self, channels: Vec<(Name, u64)>) {
        for (name, number) in channels {
            match self.watch_of(&name) {
                Some(watch) if watch.number == number => watch.is_subscribed = true,
                _ => continue,
            }
            self.resume(&name);
        }
    }

    /// A new connection: all channels have to be subscribed to again, and checks of the last one may not have been answered.
    pub(super) fn connected(&mut self) {
        self.check_all();
        self.to_resume.clear();
        self.subscriptions.clear();
        for (name, found) in &mut self.boxes {
            if let Some(watch) = &mut found.watch {
                watch.is_subscribed = false;
                watch.state = WatchState::Behind;
                let subscription = (name.clone(), true, watch.number);
                self.subscriptions.push_back(subscription);
            }
        }
    }

    /// Begins to ask for what was not reported.
    fn resume(&mut self, name: &Name) {
        let Some(watch) = self.watch_of(name) else {
            return;
        };
        let is_behind = matches!(watch.state, WatchState::Behind);
        if is_behind && watch.is_subscribed && watch.reported.is_some() {
            watch.state = WatchState::Resuming(Vec::new());
            self.to_resume.push_back(name.clone());
        }
    }

    /// The next box to ask for the messages from a number on.
    pub(super) fn next_to_resume(&mut self) -> Option<(Name, u64)> {
        while let Some(name) = self.to_resume.pop_front() {
            if let Some(Known { next, .. }) = self.watch_of(&name).and_then(|watch| watch.reported)
            {
                return Some((name, next));
            }
        }
        None
    }

    /// The server has opened the box.
    pub(super) fn opened(&mut self, name: &Name, opened: &Opened) {
        if let Some(watch) = self.watch_of(name)
            && watch.reported.is_none()
        {
            let &Opened { epoch, next, .. } = opened;
            watch.reported = Some(Known { epoch, next });
            self.resume(name);
        }
    }

    /// The server has said what has come; `None` if it does not know the box any more.
    pub(super) fn resumed(&mut self, name: &Name, found: Option<Opened>) {
        let Some(watch) = self.watch_of(name) else {
            return;
        };
        let WatchState::Resuming(held) = &mut watch.state else {
            return;
        };
        let held = std::mem::take(held);
        let is_continued = |found: &Opened| {
            let continues =
                |reported: Known| found.epoch == reported.epoch && found.lost <= reported.next;
            watch.reported.is_some_and(continues)
        };
        let Some(found) = found.filter(is_continued) else {
            self.outdated(name);
            return;
        };
        watch.state = WatchState::Current;
        watch.reported = Some(Known {
            epoch: found.epoch,
            next: found.next,
        });
        for message in found.messages {
            self.report(name, message, found.lost);
        }
        for (message, lost) in held {
            self.arrived(name, Notice::Message(message, lost));
        }
    }

    /// Something has come through the channel of the box.
    pub(super) fn arrived(&mut self, name: &Name, notice: Notice) {
        let Some(watch) = self.watch_of(name) else {
            return;
        };
        let (message, lost) = match notice {
            Notice::Message(message, lost) => (message, lost),
            Notice::Outdated(epoch) => {
                // The box may have been opened since.
                if watch.reported.is_some_and(|known| known.epoch < epoch) {
                    self.outdated(name);
                }
                return;
            }
            Notice::Removed => {
                self.removed(name);
                let _ = self.changes.send(Change::Removed(name.clone()));
                return;
            }
        };
        match &mut watch.state {
            WatchState::Behind => return,
            WatchState::Resuming(held) => return held.push((message, lost)),
            WatchState::Current => {}
        }
        let MessageId { epoch, sequence } = message.id;
        match watch.reported {
            Some(known) if known.epoch == epoch && sequence < known.next => {}
            Some(known) if known.epoch == epoch && sequence == known.next => {
                let next = sequence + 1;
                watch.reported = Some(Known { epoch, next });
                // Not before: one that comes before the box is resumed would hide that others are missing.
                self.learn(name, Known { epoch, next });
                self.report(name, message, lost);
            }
            _ => self.outdated(name),
        }
    }

    fn report(&self, name: &Name, message: Message, lost: u64) {
        let _ = self.changes.send(Change::Appended {
            name: name.clone(),
            message,
            lost,
        });
    }

    /// Has the owner open a watched box again.
    pub(super) fn outdated(&mut self, name: &Name) {
        if let Some(watch) = self.watch_of(name)
            && watch.reported.is_some()
        {
            watch.reported = None;
            watch.state = WatchState::Behind;
            let _ = self.changes.send(Change::Outdated(name.clone()));
        }
    }

    /// A message of the box expires at this time, in milliseconds since 1970.
    pub(super) fn schedule(&mut self, name: &Name, due: u64) {
        if let Some(found) = self.boxes.get_mut(name)
            && found.due.is_none_or(|earlier| due < earlier)
        {
            found.due = Some(due);
            self.due.push(Reverse((due, name.clone())));
        }
    }

    /// A box of which a message has expired.
    pub(super) fn next_due(&mut self, now: u64) -> Option<Name> {
        while self.due.peek().is_some_and(|Reverse((due, _))| *due <= now) {
            let Reverse((due, name)) = self.due.pop().expect("there is one");
            if let Some(found) = self.boxes.get_mut(&name)
                && found.due == Some(due)
            {
                found.due = None;
                return Some(name);
            }
        }
        None
    }

    /// Forgets boxes that are not used any more. The watched ones that it returns have to be touched, lest the server ends
    /// them.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<Name> {
        let mut to_touch = Vec::new();
        let count = SWEPT_MIN.max(self.order.len() / SWEPT_DIVISOR);
        for _ in 0..count.min(self.order.len()) {
            let name = self.order.pop_front().expect("there is one");
            let found = self
                .boxes
                .get_mut(&name)
                .expect("all in the order are known");
            let unused = now.duration_since(found.used_at);
            if found.watch.is_some() && unused >= found.idle / TOUCH_DIVISOR {
                found.used_at = now;
                to_touch.push(name.clone());
            }
            // The server keeps it for an eighth longer. Until then, what was seen of it counts, and messages expire.
            let is_over = unused >= found.idle + found.idle / TOUCH_DIVISOR
                || (unused >= KNOWN_TIME && found.due.is_none());
            if found.watch.is_none() && is_over {
                self.boxes.remove(&name);
            } else {
                self.order.push_back(name);
            }
        }
        to_touch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_that_are_kept_forever_are_forgotten() {
        let (changes, _) = mpsc::unbounded_channel();
        let (mut boxes, now) = (Boxes::new(changes), Instant::now());
        let names = ["removed", "used", "due", "watched"]
            .map(|name| Name::new("set", name.as_bytes()).expect("a name"));
        for name in &names {
            boxes.mark_used(name, Some(Duration::from_secs(1 << 40)), now);
            boxes.learn(name, Known { epoch: 1, next: 1 });
        }
        let [removed, _, due, watched] = &names;
        boxes.removed(removed);
        boxes.schedule(due, 1);
        boxes.set_watched(watched, true, now);
        let mut known_after = |time: Duration| {
            boxes.sweep(now + time);
            names.each_ref().map(|name| boxes.known(name).is_some())
        };
        let (removed_time, moment) = (Duration::from_secs(75), Duration::from_millis(1));
        assert_eq!(known_after(removed_time - moment), [true; 4]);
        assert_eq!(known_after(removed_time), [false, true, true, true]);
        assert_eq!(known_after(KNOWN_TIME - moment), [false, true, true, true]);
        assert_eq!(known_after(KNOWN_TIME), [false, false, true, true]);
    }
}
