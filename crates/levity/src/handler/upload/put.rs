//! Receives a file, or the rest of one.
//!
//! The content goes to a file without a name. A plain PUT begins at its start. One with
//! `Content-Range: bytes FIRST-LAST/TOTAL` continues a part that is kept, and `bytes */TOTAL` without a body asks how much
//! there is: 308 and `Range: bytes=0-LAST`, as in the resumable uploads of Google's services.

use std::io;
use std::sync::Arc;

use levity_disk::{Lookup, OpenFile, op};
use levity_telemetry::step::Step;
use levity_wire::content_range::{self, ContentRange};
use rustix::io::Errno;

use super::count::ensure_counted;
use super::empty;
use super::name::{FILE_MODE, Name, SharedName, c_path};
use super::publish::Complete;
use crate::handler::{Handling, without_body};
use crate::http::error::error;
use crate::http::gathered::Gathered;
use crate::http::response::Response;
use crate::message::request::{Request, RequestError};
use crate::shares::{Held, Portion, Resource};
use crate::stores::uploads::parts::{Key, Part, Unusable};
use crate::stores::uploads::room::{Full, NAME_BYTES, of_file};
use crate::stores::uploads::store::{Claim, FOLDER, Reservation};

/// The minimum of bytes that are written at once, except for the last. An upload takes at most about twice as much memory.
const WRITE_BYTES_MIN: usize = 64 * 1024;

/// So many bytes are written between two syncs, where files are to be durable: a device that does nothing else for long
/// would look dead.
const SYNC_BYTES: u64 = 16 << 20;

/// The status of a part that was received, and of the response to a question for it.
pub(super) const INCOMPLETE: u16 = 308;

/// What the body of a request is.
enum Content {
    /// The file; its length is unknown if the body is chunked.
    Whole(Option<u64>),
    Part {
        first: u64,
        last: u64,
        total: u64,
    },
    /// Nothing: the client asks how much of a file of this length there is.
    Question {
        total: u64,
    },
}

impl Content {
    /// The length of the file, if it is known.
    fn total(&self) -> Option<u64> {
        match *self {
            Self::Whole(length) => length,
            Self::Part { total, .. } | Self::Question { total } => Some(total),
        }
    }
}

/// What has the name of a file that is to be received.
struct Place {
    /// The size of the file that has it; `None` if nothing has.
    bytes: Option<u64>,
    /// The folders that have to be made for it.
    missing_folders: usize,
}

/// A file that is being received.
struct Incoming {
    part: Part,
    reservation: Reservation,
    /// The key under which it is kept if it remains incomplete.
    claim: Option<Claim>,
    /// The file is open. `None` without a body: it is so only for a moment.
    descriptor: Option<Held>,
}

impl Incoming {
    /// Keeps the part, if it may be continued.
    fn keep(self, name: &Name) {
        let settings = &name.upload.settings;
        if let Some(claim) = self.claim.filter(|_| self.part.bytes > 0) {
            let parts_max = settings.resume_parts;
            claim.keep(self.part, self.reservation, settings.resume, parts_max);
        }
    }
}

/// Why a body was not received to its end.
enum Failure {
    Client(RequestError),
    /// It is longer than it may be.
    TooLong,
    /// It exceeds the quota.
    Full,
    Disk(io::Error),
}

impl Handling<'_> {
    /// Writes the body to a file with `name`.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub(super) async fn put(&mut self, name: SharedName) -> Result<Response, Response> {
        let content = self.content(&name)?;
        let key = self.part_key(&name, &content);
        if let Content::Question { .. } = content {
            let key = key.ok_or_else(cannot_continue)?;
            return match name.upload.store.part_bytes(&key) {
                Some(bytes) => Ok(incomplete(INCOMPLETE, bytes)),
                None => Err(in_use()),
            };
        }
        let room = name.upload.store.begin_room(&name.path.bytes);
        let place = name.check_place().await?;
        room.replaces(place.bytes);
        let mut incoming = self.accept(&name, &content, key, place, room).await?;
        self.disk.trace.enter(Step::Parse);
        self.body.send_continue().await;
        let received = self.receive(&name, &content, &mut incoming).await;
        self.disk.trace.enter(Step::Resolve);
        if let Err(failure) = received {
            return Err(self.give_up(&name, incoming, failure));
        }
        let bytes = incoming.part.bytes;
        if content.total().is_some_and(|total| bytes < total) {
            incoming.keep(&name);
            return Ok(incomplete(INCOMPLETE, bytes));
        }
        let complete = Complete {
            file: incoming.part.file,
            bytes,
            reservation: incoming.reservation,
        };
        let (upload, descriptor) = (name.upload.clone(), incoming.descriptor);
        let publish = async move {
            let _descriptor = descriptor;
            name.publish(complete).await
        };
        Ok(self.in_background(&upload, publish).await)
    }

    /// What the body is, if it may be received.
    fn content(&self, name: &Name) -> Result<Content, Response> {
        let (request, settings) = (&name.request, &name.upload.settings);
        if name.path.names_folder {
            return Err(error(409, "this is the name of a folder"));
        }
        let coding = request.header("content-encoding");
        if coding.is_some_and(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            return Err(error(415, "files are stored without a coding"));
        }
        let length = self.body.remaining();
        // Only HTTP/1.1 says that a request without a length has no body (RFC 9112, 6.3). A client of 1.0 may mean the end
        // of the connection, and the file would be emptied.
        if length == Some(0)
            && self.body.stream().version() == "HTTP/1.0"
            && request.header("content-length").is_none()
        {
            return Err(error(411, "HTTP/1.0 needs a Content-Length"));
        }
        let content = match range(request)? {
            None => Content::Whole(length),
            Some(_) if settings.resume.is_zero() => return Err(cannot_continue()),
            Some(ContentRange::Unsatisfied { total }) if length == Some(0) => {
                Content::Question { total }
            }
            Some(ContentRange::Part { first, last, total })
                if length.is_none_or(|length| length == last - first + 1) =>
            {
                Content::Part { first, last, total }
            }
            Some(_) => return Err(error(400, "the body has another length than Content-Range")),
        };
        match content.total() {
            Some(total) if total > settings.max_file_bytes => Err(too_large()),
            _ => Ok(content),
        }
    }

    /// The key of the part, if one is kept of such content.
    fn part_key(&self, name: &Name, content: &Content) -> Option<Key> {
        let may_keep = !name.upload.settings.resume.is_zero();
        let total = content.total().filter(|total| may_keep && *total > 0)?;
        Some(Key {
            path: name.path.bytes.clone(),
            total,
            user: self.user().to_vec(),
        })
    }

    /// Takes room and a file for `content`, which is to get `place`.
    async fn accept(
        &self,
        name: &SharedName,
        content: &Content,
        key: Option<Key>,
        place: Place,
        mut room: Reservation,
    ) -> Result<Incoming, Response> {
        ensure_counted(name).await?;
        let length = match *content {
            Content::Part { first, last, .. } => last - first + 1,
            _ => content.total().unwrap_or(0),
        };
        name.check_space(length).await?;
        let descriptor = self.descriptor().await?;
        let (store, quota) = (&name.upload.store, name.quota());
        // They count once they are made, and are not kept with a part.
        let folders = place.missing_folders as u64 * NAME_BYTES;
        let claim = match (content, key) {
            (
                &Content::Part {
                    first: first @ 1.., ..
                },
                Some(key),
            ) => {
                let (claim, part, reservation) = store.resume(key, first).map_err(wrong_offset)?;
                let mut incoming = Incoming {
                    part,
                    reservation,
                    claim: Some(claim),
                    descriptor,
                };
                if let Err(Full) = incoming.reservation.take(length + folders, quota) {
                    incoming.keep(name);
                    return Err(no_room());
                }
                return Ok(incoming);
            }
            (Content::Part { .. }, key) => {
                let claim = key.and_then(|key| store.begin(key));
                Some(claim.ok_or_else(in_use)?)
            }
            (_, key) => key.and_then(|key| store.begin(key)),
        };
        let taken = room.take(of_file(length).saturating_add(folders), quota);
        taken.map_err(|Full| no_room())?;
        let file = name.create().await;
        let file = file.map_err(|error| name.refusal(&error))?;
        Ok(Incoming {
            part: Part { file, bytes: 0 },
            reservation: room,
            claim,
            descriptor,
        })
    }

    /// Waits until the client may have one more file open.
    async fn descriptor(&self) -> Result<Option<Held>, Response> {
        let Some(claims) = self.body.claims() else {
            return Ok(None);
        };
        let taken = claims.take(Resource::Files, 1, Portion::Whole).await;
        taken
            .map(Some)
            .map_err(|_| error(503, "too many files are open"))
    }

    /// Writes the body to the file.
    async fn receive(
        &self,
        name: &Name,
        content: &Content,
        incoming: &mut Incoming,
    ) -> Result<(), Failure> {
        let settings = &name.upload.settings;
        let end = match *content {
            Content::Part { last, .. } => last + 1,
            _ => settings.max_file_bytes,
        };
        let is_reserved = content.total().is_some();
        let mut synced = incoming.part.bytes;
        loop {
            let mut bytes = Gathered::default();
            let received = self.fill(&mut bytes).await;
            let (bytes, _held) = bytes.into_parts();
            let count = bytes.len() as u64;
            if incoming.part.bytes + count > end {
                return Err(Failure::TooLong);
            }
            if count > 0 {
                if !is_reserved {
                    let taken = incoming.reservation.take(count, name.quota());
                    taken.map_err(|Full| Failure::Full)?;
                }
                let written = name.write(&mut incoming.part, bytes).await;
                written.map_err(Failure::Disk)?;
                self.worker.core.stats.uploaded_bytes.add(count);
                self.body.give_way(count as usize).await;
            }
            received.map_err(Failure::Client)?;
            if self.body.is_complete() {
                return Ok(());
            }
            if settings.fsync && incoming.part.bytes - synced >= SYNC_BYTES {
                synced = incoming.part.bytes;
                let file = incoming.part.file.clone();
                let done = name.disk.run(op::Sync { file }).await;
                done.map_err(Failure::Disk)?;
            }
        }
    }

    /// Receives the bytes of one write. After an error there may be some, too.
    async fn fill(&self, bytes: &mut Gathered) -> Result<(), RequestError> {
        let mut received = Ok(());
        while bytes.len() < WRITE_BYTES_MIN && !self.body.is_complete() && received.is_ok() {
            received = self.body.receive(bytes).await;
        }
        self.body.timer().clear();
        received
    }

    /// The response to a body that was not received; keeps what is there of it if the client may continue.
    fn give_up(&self, name: &Name, incoming: Incoming, failure: Failure) -> Response {
        match failure {
            Failure::Client(reason) => {
                incoming.keep(name);
                without_body(reason)
            }
            Failure::TooLong => too_large(),
            Failure::Full => no_room(),
            Failure::Disk(reason) => {
                let refusal = name.refusal(&reason);
                // After any other error, bytes may still be written.
                if refusal.status == 507 {
                    incoming.keep(name);
                }
                refusal
            }
        }
    }
}

impl Name {
    /// Checks whether a file could get the name now, before its content is received.
    async fn check_place(&self) -> Result<Place, Response> {
        let current = self.current(&self.disk).await;
        let current = current.map_err(|error| self.refusal(&error))?;
        self.check(current.as_ref()).await?;
        self.check_overwrite(current.as_ref())?;
        let bytes = current.as_ref().map(|file| file.meta().size);
        let around = match current {
            Some(file) => Ok((file, 0)),
            None => self.folder_around().await,
        };
        match around {
            Ok((around, _)) if around.meta().device != self.root.device() => {
                Err(self.refusal(&Errno::XDEV.into()))
            }
            Ok((_, missing_folders)) => Ok(Place {
                bytes,
                missing_folders,
            }),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// The folder around the name; if folders are made, the innermost one that exists, and how many are missing within.
    pub(super) async fn folder_around(&self) -> io::Result<(Arc<OpenFile>, usize)> {
        let folders = self.path.folders().chain([&b"."[..]]);
        let mut missing = Errno::NOENT.into();
        for (depth, folder) in folders.enumerate() {
            let path = c_path(folder)?;
            match self.disk.open(&self.root, path, None, Lookup::Fresh).await {
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing = error,
                opened => return Ok((opened?.file, depth)),
            }
            if !self.upload.settings.create_folders {
                break;
            }
        }
        Err(missing)
    }

    /// # Errors
    /// 507 if the disk has no room for `bytes`.
    async fn check_space(&self, bytes: u64) -> Result<(), Response> {
        let root = self.root.clone();
        let free = self.disk.run(op::FreeSpace { root }).await;
        match free.map_err(|error| self.refusal(&error))? {
            free if free < bytes => Err(self.refusal(&Errno::NOSPC.into())),
            _ => Ok(()),
        }
    }

    /// A file without a name.
    async fn create(&self) -> io::Result<Arc<OpenFile>> {
        let create = op::Create::Nameless {
            root: self.root.clone(),
            folder: c_path(FOLDER.as_bytes())?,
            mode: FILE_MODE,
        };
        self.change_in_folder(&self.disk, create).await
    }

    /// Writes `bytes` behind those of `part`. After an error they do not belong to it.
    async fn write(&self, part: &mut Part, bytes: Vec<u8>) -> io::Result<()> {
        let count = bytes.len() as u64;
        let write = op::Write {
            file: part.file.clone(),
            offset: part.bytes,
            bytes: Arc::new(bytes),
        };
        self.disk.run(write).await?;
        part.bytes += count;
        Ok(())
    }
}

/// The Content-Range of a request.
fn range(request: &Request) -> Result<Option<ContentRange>, Response> {
    let mut values = request.headers_named("content-range");
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let parsed = content_range::parse(value).filter(|_| values.next().is_none());
    let help = "Content-Range has to be `bytes FIRST-LAST/TOTAL` or `bytes */TOTAL`";
    parsed.map(Some).ok_or_else(|| error(400, help))
}

/// A response that says how many bytes have arrived.
fn incomplete(status: u16, bytes: u64) -> Response {
    let mut response = match status {
        INCOMPLETE => empty(status),
        _ => error(status, "the part that is here ends elsewhere"),
    };
    if status == INCOMPLETE {
        response.reason = b"Resume Incomplete".as_slice().into();
    }
    if let Some(last) = bytes.checked_sub(1) {
        let range = format!("bytes=0-{last}");
        response.fields.add("Range", range.as_bytes());
    }
    response
}

fn wrong_offset(reason: Unusable) -> Response {
    match reason {
        Unusable::InUse => in_use(),
        Unusable::Has(bytes) => incomplete(409, bytes),
    }
}

fn in_use() -> Response {
    let mut response = error(409, "the part is being received on another connection");
    response.fields.add("Retry-After", b"1");
    response
}

fn cannot_continue() -> Response {
    error(400, "no parts of files are kept here")
}

pub(super) fn too_large() -> Response {
    error(413, "the file is larger than `max_file_bytes` allows")
}

pub(super) fn no_room() -> Response {
    error(507, "the quota is used up")
}
