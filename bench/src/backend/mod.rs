//! The application behind a proxy: one thread with an epoll. Responses are made once and reused, so that it needs
//! far less CPU time than any proxy in front of it.
//!
//! The query describes the response: `bytes=N`, then `&json`, `&chunked` or `&file`, then `&id=TEXT`. The application runs
//! as a separate process ([`command`]), so that it can be pinned and killed.

mod answer;
pub mod command;
mod connection;
mod fastcgi;
mod http;

use crate::failure::{Context, Result};
use answer::{Answers, Bytes};
use command::Backend;
use connection::Connection;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// The maximum number of events per wait.
const EVENTS_MAX: usize = 256;
/// The epoll key of the listener. The key of a connection is its index.
const LISTENER: u64 = u64::MAX;

/// The protocol between proxy and application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// HTTP/1.1.
    Http,
    /// FastCGI, in the responder role.
    Fastcgi,
}

/// A request, as far as the response depends on it.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// Path and query.
    target: String,
    /// The proxy sends no other request on this connection.
    closes: bool,
    /// Its size in bytes.
    bytes: usize,
}

/// A response for a connection, if the connection is still the one of the request.
struct Job {
    connection: usize,
    serial: u64,
    answer: Bytes,
    id: Option<String>,
}

/// The running application.
struct Application {
    options: Backend,
    answers: Answers,
    epoll: OwnedFd,
    listener: UnixListener,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    serial: u64,
    /// Requests that wait because the maximum is being processed.
    waiting: VecDeque<Job>,
    /// Requests being processed, with the time at which each ends. All take equally long.
    working: VecDeque<(Instant, Job)>,
    log: Option<File>,
}

/// Serves requests until the process is killed.
///
/// # Errors
/// The socket cannot be made; the epoll fails.
fn serve(options: &Backend) -> Result<()> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).context(|| "epoll_create1".into())?;
    let listener = listen(options)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )
    .context(|| "epoll_ctl".into())?;
    let log = options.log.as_ref().map(|path| {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.context(|| format!("open {}", path.display()))
    });
    let mut application = Application {
        answers: Answers::new(options),
        options: options.clone(),
        epoll,
        listener,
        connections: Vec::new(),
        free: Vec::new(),
        serial: 0,
        waiting: VecDeque::new(),
        working: VecDeque::new(),
        log: log.transpose()?,
    };
    loop {
        application.turn()?;
    }
}

/// The socket gets its name once it listens: in place of the one of a killed process there is never
/// nothing.
fn listen(options: &Backend) -> Result<UnixListener> {
    let socket = &options.socket;
    let making = socket.with_extension("making");
    let make = || {
        let _ = fs::remove_file(&making);
        let listener = UnixListener::bind(&making)?;
        // The backlog of the standard library is 128.
        rustix::net::listen(&listener, 4096)?;
        fs::set_permissions(&making, fs::Permissions::from_mode(0o666))?;
        fs::rename(&making, socket)?;
        listener.set_nonblocking(true)?;
        std::io::Result::Ok(listener)
    };
    make().context(|| format!("listen at {}", socket.display()))
}

impl Application {
    fn turn(&mut self) -> Result<()> {
        let empty = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [empty; EVENTS_MAX];
        let ready = self.wait(&mut events)?;
        for event in &events[..ready] {
            match event.data.u64() {
                LISTENER => self.accept()?,
                index => self.attend(index as usize)?,
            }
        }
        self.finish_work()
    }

    fn wait(&self, events: &mut [Event]) -> Result<usize> {
        let until_done = self
            .working
            .front()
            .map(|(done, _)| done.saturating_duration_since(Instant::now()));
        let timeout = until_done.map(Timespec::try_from).transpose();
        let timeout = timeout.context(|| "time of work".into())?;
        match epoll::wait(&self.epoll, events, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => Ok(0),
            result => result.context(|| "epoll_wait".into()),
        }
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context(|| "accept".into()),
            };
            stream
                .set_nonblocking(true)
                .context(|| "O_NONBLOCK".into())?;
            self.serial += 1;
            let index = self.free.pop().unwrap_or(self.connections.len());
            let data = EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &stream, data, EventFlags::IN)
                .context(|| "epoll_ctl".into())?;
            let connection = Some(Connection::new(stream, self.serial));
            match self.connections.get_mut(index) {
                Some(place) => *place = connection,
                None => self.connections.push(connection),
            }
        }
    }

    /// Serves a connection until it has to wait.
    fn attend(&mut self, index: usize) -> Result<()> {
        let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        if connection.has_answer() {
            return self.send(index);
        }
        match connection.receive(self.options.protocol) {
            Ok(Some(request)) => {
                let (answer, id) = self.answers.to(&request.target)?;
                let serial = connection.serial;
                self.begin(Job {
                    connection: index,
                    serial,
                    answer,
                    id,
                })
            }
            Ok(None) => Ok(()),
            Err(_) => {
                self.close(index);
                Ok(())
            }
        }
    }

    /// Responds at once, or after the processing time.
    fn begin(&mut self, job: Job) -> Result<()> {
        if self.options.work_us == 0 {
            self.note(&job)?;
            return self.answer(job);
        }
        self.waiting.push_back(job);
        self.start_work()
    }

    fn start_work(&mut self) -> Result<()> {
        while self.working.len() < self.options.at_once
            && let Some(job) = self.waiting.pop_front()
        {
            if !self.is_asked_by_its_connection(&job) {
                continue;
            }
            self.note(&job)?;
            let done = Instant::now() + Duration::from_micros(self.options.work_us);
            self.working.push_back((done, job));
        }
        Ok(())
    }

    fn finish_work(&mut self) -> Result<()> {
        let now = Instant::now();
        while self.working.front().is_some_and(|(done, _)| *done <= now) {
            if let Some((_, job)) = self.working.pop_front() {
                self.answer(job)?;
            }
        }
        self.start_work()
    }

    /// Records that processing begins. The kernel has the line before the response is sent, so that a kill cannot
    /// undo it.
    fn note(&mut self, job: &Job) -> Result<()> {
        let (Some(log), Some(id)) = (&mut self.log, &job.id) else {
            return Ok(());
        };
        log.write_all(format!("{id}\n").as_bytes())
            .context(|| "write the log of requests".into())
    }

    fn is_asked_by_its_connection(&self, job: &Job) -> bool {
        let connection = self.connections[job.connection].as_ref();
        connection.is_some_and(|connection| connection.serial == job.serial)
    }

    fn answer(&mut self, job: Job) -> Result<()> {
        if !self.is_asked_by_its_connection(&job) {
            return Ok(());
        }
        if let Some(connection) = &mut self.connections[job.connection] {
            connection.answer(job.answer);
        }
        self.send(job.connection)
    }

    fn send(&mut self, index: usize) -> Result<()> {
        let Some(connection) = &mut self.connections[index] else {
            return Ok(());
        };
        match connection.send() {
            Ok(progress) => {
                let data = EventData::new_u64(index as u64);
                if let Some(flags) = progress.wants {
                    epoll::modify(&self.epoll, &connection.stream, data, flags)
                        .context(|| "epoll_ctl".into())?;
                }
                if progress.closes {
                    self.close(index);
                }
            }
            Err(_) => self.close(index),
        }
        Ok(())
    }

    /// Dropping the stream removes it from the epoll.
    fn close(&mut self, index: usize) {
        self.connections[index] = None;
        self.free.push(index);
    }
}
