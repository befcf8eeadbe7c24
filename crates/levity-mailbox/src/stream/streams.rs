//! All streams of an owner.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use levity_wire::durable_streams::Lifetime;

use super::protocol::{
    Append, AppendError, Appended, Command, ContentType, Create, CreateError, Created, ForkOf,
    Full, Missing, ReadError,
};
use super::state::{MadeWith, Stream, Waiting};
use crate::budget::Budget;
use crate::name::Name;
use crate::owner::OwnerFigures;
use crate::settings::Settings;

/// The maximum of reads that are answered before others run.
const ANSWERED_MAX: usize = 64;

/// The maximum of streams that a sweep looks at.
const SWEPT_MAX: usize = 64;

/// The streams of an owner. No lock is taken and nothing waits: times are those of the caller.
#[derive(Debug)]
pub struct Streams {
    known: HashMap<Name, Known>,
    /// The number of each set.
    counts: HashMap<String, usize>,
    /// When streams may have expired. Each that may has one entry, that of [`Stream::due`].
    due: BTreeSet<(SystemTime, Name)>,
    /// Reads that have something to read now.
    woken: VecDeque<(Name, Vec<Waiting>)>,
    /// The number of the next stream.
    number: u64,
    budget: Arc<Budget>,
    figures: Arc<OwnerFigures>,
}

#[derive(Debug)]
struct Known {
    /// `None` after it was removed, as long as it has forks.
    stream: Option<Box<Stream>>,
    forks: usize,
    source: Option<Name>,
}

impl Streams {
    /// No streams. Their content takes memory of `budget`, and what becomes of appends is counted in `figures`.
    #[must_use]
    pub fn new(budget: Arc<Budget>, figures: Arc<OwnerFigures>, now: SystemTime) -> Self {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            known: HashMap::new(),
            counts: HashMap::new(),
            due: BTreeSet::new(),
            woken: VecDeque::new(),
            // Larger than those of earlier processes, unless these have made a million streams in each second; below 10^16.
            number: (since.as_millis() as u64).saturating_mul(1000),
            budget,
            figures,
        }
    }

    /// Does what `command` asks for.
    pub fn command(&mut self, command: Command, now: SystemTime) {
        match command {
            Command::Create(name, create, reply) => {
                let _ = reply.send(self.create(&name, create, now));
            }
            Command::Append(name, append, reply) => {
                let _ = reply.send(self.append(&name, append, now));
            }
            Command::Read(name, read, reply) => self.read(&name, Waiting { read, reply }, now),
            Command::Look(name, reply) => {
                let _ = reply.send(self.get(&name, now).map(|stream| stream.info()));
            }
            Command::Remove(name, reply) => {
                let is_known = self.get(&name, now).map(|_| ());
                if is_known.is_ok() {
                    self.remove(&name);
                }
                let _ = reply.send(is_known);
            }
        }
    }

    /// The stream, unless its time is over.
    fn get(&mut self, name: &Name, now: SystemTime) -> Result<&mut Stream, Missing> {
        self.expire(name, now);
        let known = self.known.get_mut(name).ok_or(Missing::Unknown)?;
        known.stream.as_deref_mut().ok_or(Missing::Removed)
    }

    /// Removes the stream if its time is over.
    fn expire(&mut self, name: &Name, now: SystemTime) {
        let known = self.known.get_mut(name);
        let Some(stream) = known.and_then(|known| known.stream.as_mut()) else {
            return;
        };
        if stream
            .expires_at()
            .is_none_or(|expires_at| expires_at > now)
        {
            return;
        }
        if matches!(stream.lifetime, Some(Lifetime::Idle(_))) && stream.is_read() {
            stream.used_at = now;
            return;
        }
        self.figures.idle_boxes.fetch_add(1, Ordering::Relaxed);
        self.remove(name);
    }

    fn create(
        &mut self,
        name: &Name,
        mut create: Create,
        now: SystemTime,
    ) -> Result<Created, CreateError> {
        match self.get(name, now) {
            Ok(stream) => return existing(stream, &create),
            Err(Missing::Unknown) => {}
            Err(_) => {
                return Err(CreateError::Conflict(
                    "the stream was removed, but has forks",
                ));
            }
        }
        let count = self.counts.get(&create.settings.set).copied();
        if count.unwrap_or(0) >= create.settings.boxes_max {
            return Err(CreateError::TooManyStreams);
        }
        let stream = self.make(&mut create, now)?;
        let info = stream.info();
        let source = create.fork.map(|fork| fork.source);
        if let Some(source) = source
            .as_ref()
            .and_then(|source| self.known.get_mut(source))
        {
            source.forks += 1;
        }
        let known = Known {
            stream: Some(Box::new(stream)),
            forks: 0,
            source,
        };
        self.known.insert(name.clone(), known);
        *self.counts.entry(create.settings.set.clone()).or_default() += 1;
        self.schedule(name);
        Ok(Created { is_new: true, info })
    }

    /// Notes when the stream has to be looked at again.
    fn schedule(&mut self, name: &Name) {
        let known = self.known.get_mut(name);
        if let Some(stream) = known.and_then(|known| known.stream.as_mut()) {
            stream.due = stream.expires_at();
            self.due.extend(stream.due.map(|due| (due, name.clone())));
        }
    }

    fn make(&mut self, create: &mut Create, now: SystemTime) -> Result<Stream, CreateError> {
        let number = self.number;
        let made_with = MadeWith {
            lifetime: create.lifetime,
            fork: create.fork.clone(),
        };
        let budget = self.budget.clone();
        let content_type = create.content_type.clone().map(Arc::new);
        let mut stream = match &create.fork {
            None => {
                let content_type = content_type.unwrap_or_else(|| Arc::new(ContentType::bytes()));
                let lifetime = create.lifetime.or(default_lifetime(&create.settings));
                Stream::new(number, content_type, lifetime, made_with, now)
            }
            Some(fork) => {
                let source = self.source(fork, create, now)?;
                let position = source.fork_position(fork).map_err(CreateError::BadFork)?;
                let content = source.content.prefix(position, &budget);
                let content_type = content_type.unwrap_or_else(|| source.content_type.clone());
                let lifetime = create.lifetime.or(source.lifetime);
                let mut stream = Stream::new(number, content_type, lifetime, made_with, now);
                stream.content = content.map_err(|_| CreateError::Full(Full::Memory))?;
                stream.life = source.life;
                stream
            }
        };
        let body = std::mem::replace(&mut create.body, Ok(Vec::new()));
        let body = body.map_err(CreateError::NotJson)?;
        if !body.is_empty() {
            let bytes_max = create.settings.bytes_max as u64;
            let pushed = stream.push(body, bytes_max, &budget);
            pushed.map_err(CreateError::Full)?;
        }
        stream.is_closed = create.closes;
        self.number += 1;
        Ok(stream)
    }

    fn source(
        &mut self,
        fork: &ForkOf,
        create: &Create,
        now: SystemTime,
    ) -> Result<&mut Stream, CreateError> {
        let source = self
            .get(&fork.source, now)
            .map_err(|missing| match missing {
                Missing::Unknown => CreateError::NoSource,
                _ => CreateError::Conflict("the source was removed"),
            })?;
        let asked = create.content_type.as_ref();
        match asked.is_none_or(|asked| asked.essence == source.content_type.essence) {
            true => Ok(source),
            false => Err(CreateError::Conflict("the source is of another type")),
        }
    }

    fn append(
        &mut self,
        name: &Name,
        append: Append,
        now: SystemTime,
    ) -> Result<Appended, AppendError> {
        let budget = self.budget.clone();
        let appended = match self.get(name, now) {
            Ok(stream) => stream.append(append, &budget, now),
            Err(missing) => Err(AppendError::Missing(missing)),
        };
        let figures = &self.figures;
        let counter = match &appended {
            Ok(appended) if appended.is_duplicate => Some(&figures.duplicates),
            Ok(_) => Some(&figures.published),
            Err(AppendError::Full(_)) => Some(&figures.failed),
            Err(_) => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if appended.is_ok() {
            self.wake(name, now);
        }
        appended
    }

    /// Notes a use of the stream, and lets its reads be answered.
    fn wake(&mut self, name: &Name, now: SystemTime) {
        let stream = self
            .known
            .get_mut(name)
            .and_then(|known| known.stream.as_mut());
        let Some(stream) = stream else {
            return;
        };
        stream.used_at = now;
        let waiting = std::mem::take(&mut stream.waiting);
        if !waiting.is_empty() {
            self.woken.push_back((name.clone(), waiting));
        }
    }

    fn read(&mut self, name: &Name, waiting: Waiting, now: SystemTime) {
        let result = match self.get(name, now) {
            Err(missing) => Err(ReadError::Missing(missing)),
            Ok(stream) => {
                stream.used_at = now;
                match stream.read(&waiting.read) {
                    Ok(found)
                        if waiting.read.waits && found.pieces.is_empty() && !found.is_closed =>
                    {
                        return stream.wait(waiting.at(found.next));
                    }
                    result => result,
                }
            }
        };
        let _ = waiting.reply.send(result);
    }

    /// Answers some reads that waited; whether there are more.
    pub fn answer(&mut self, now: SystemTime) -> bool {
        let Some((name, mut waiting)) = self.woken.pop_front() else {
            return false;
        };
        let rest = waiting.len().saturating_sub(ANSWERED_MAX);
        for waiting in waiting.drain(rest..) {
            self.read(&name, waiting, now);
        }
        if !waiting.is_empty() {
            // Streams take turns.
            self.woken.push_back((name, waiting));
        }
        !self.woken.is_empty()
    }

    /// Removes a stream that is known, and ends its reads.
    fn remove(&mut self, name: &Name) {
        let Some(known) = self.known.get_mut(name) else {
            return;
        };
        if let Some(stream) = known.stream.take() {
            if let Some(due) = stream.due {
                self.due.remove(&(due, name.clone()));
            }
            self.woken.push_back((name.clone(), stream.waiting));
        }
        self.free(name.clone());
    }

    /// Frees the name of a removed stream without forks, and the names of those that were kept for it.
    fn free(&mut self, name: Name) {
        let mut next = Some(name);
        while let Some(name) = next {
            let is_free = |known: &Known| known.stream.is_none() && known.forks == 0;
            if !self.known.get(&name).is_some_and(is_free) {
                return;
            }
            next = self.known.remove(&name).and_then(|known| known.source);
            if let Some(count) = self.counts.get_mut(name.set()) {
                *count -= 1;
            }
            if let Some(source) = next.as_ref().and_then(|source| self.known.get_mut(source)) {
                source.forks -= 1;
            }
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    #[cfg(test)]
    pub(super) fn due_count(&self) -> usize {
        self.due.len()
    }

    /// Drops streams whose time is over at `now`. Called about ten times a second.
    pub fn sweep(&mut self, now: SystemTime) {
        let count = self.known.len();
        self.figures.boxes.store(count, Ordering::Relaxed);
        for _ in 0..SWEPT_MAX {
            match self.due.first() {
                Some((due, _)) if *due <= now => {}
                _ => return,
            }
            let (_, name) = self.due.pop_first().expect("there is one");
            self.expire(&name, now);
            // It may have been used since.
            self.schedule(&name);
        }
    }
}

impl ContentType {
    fn bytes() -> Self {
        Self {
            value: levity_wire::mime::DEFAULT.into(),
            essence: levity_wire::mime::DEFAULT.into(),
        }
    }
}

fn default_lifetime(settings: &Settings) -> Option<Lifetime> {
    settings.lifetime.map(Lifetime::Idle)
}

/// The answer to a request to make a stream that is there.
fn existing(stream: &Stream, create: &Create) -> Result<Created, CreateError> {
    let asked = create.content_type.as_ref();
    let default = levity_wire::mime::DEFAULT;
    let is_of_type = match asked {
        Some(asked) => asked.essence == stream.content_type.essence,
        None => create.fork.is_some() || &*stream.content_type.essence == default,
    };
    if !is_of_type {
        return Err(CreateError::Conflict("the stream is of another type"));
    }
    if stream.made_with.lifetime != create.lifetime {
        return Err(CreateError::Conflict("the stream is kept for another time"));
    }
    if stream.made_with.fork != create.fork {
        return Err(CreateError::Conflict("the stream has another source"));
    }
    if stream.is_closed != create.closes {
        return Err(CreateError::Conflict("one of both streams is closed"));
    }
    Ok(Created {
        is_new: false,
        info: stream.info(),
    })
}
