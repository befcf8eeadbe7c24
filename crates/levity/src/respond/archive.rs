//! A folder, with all that is in it, as one file that is made while it is sent.
//!
//! What a request would not get is left out: hidden names, scripts, what another route answers, and what may not be read. A
//! file that has gone meanwhile is left out too, and what lies in another mount that fails. Any other error ends the body, so
//! that the client sees that it is incomplete.

use std::ffi::CString;
use std::io;
use std::sync::Arc;

use crc32fast::Hasher;
use levity_config::ArchiveForm;
use levity_disk::{DirectoryReader, Entry, First, Kind, Lookup, Meta, OpenFile, Ready, Root, op};
use levity_telemetry::diagnostics;
use levity_wire::archive::zip::Zip;
use levity_wire::archive::{Member, tar};

use super::generated::{Generated, Output, PIECE_BYTES, Unreadable};
use super::listing::TURN_WORK;
use crate::files::disk_client::DetachedDisk;
use crate::http::error::status_of;
use crate::http::file_version::{Verdict, Version};
use crate::http::response::{Body, Response, StreamError};
use crate::route::{Files, OwnedRules};
use crate::shares::claim::Claims;
use crate::shares::{Held, Portion, Resource, Shortage};

/// The size of a read, in bytes.
const CHUNK_BYTES: usize = 128 * 1024;

/// The memory for one archive in bytes: a chunk of a file, a piece of a directory, a piece of the body. Names of folders
/// and the directory of a zip come in addition.
const ARCHIVE_BYTES: usize = 256 * 1024;

/// The descriptors for one archive: those of a folder, of the position in it, and of a file in it.
const ARCHIVE_FILES: usize = 3;

/// Files up to this size, in bytes, are read without a trip to the disk if they are in memory, and opened so.
const INLINE_BYTES_MAX: u64 = 32 * 1024;

/// Entries are handled in turns of at most this many. One that is in memory takes about 10 us.
const TURN_ENTRIES: usize = 32;

/// The name of the archive of the root.
const ROOT_NAME: &[u8] = b"files";

/// A folder to be archived.
pub struct Archive {
    /// The form of the archive.
    pub form: ArchiveForm,
    /// The rules of the location, for the request.
    pub rules: OwnedRules,
    /// Its files.
    pub files: Arc<Files>,
    /// The path of the folder: decoded, with a slash at both ends.
    pub path: Vec<u8>,
    /// The root that has it.
    pub root: Arc<Root>,
    /// The disk, which reads into memory.
    pub disk: DetachedDisk,
}

impl Archive {
    /// The response with the archive of `directory`, opened. Waits until the client of `claims` may have another one.
    ///
    /// # Errors
    /// When other clients have what that takes for too long.
    pub async fn response(
        self,
        directory: Arc<OpenFile>,
        claims: Claims,
    ) -> Result<Response, Shortage> {
        let files = claims.take(Resource::Files, ARCHIVE_FILES, Portion::Whole);
        let files = files.await?;
        let memory = claims.take(Resource::Listings, ARCHIVE_BYTES, Portion::Most);
        let hold = Hold {
            memory: memory.await?,
            claims,
            _files: files,
        };
        let mut response = Response::new(200);
        let fields = &mut response.fields;
        fields.add(
            "Content-Type",
            match self.form {
                ArchiveForm::Tar => b"application/x-tar",
                ArchiveForm::Zip => b"application/zip",
            },
        );
        fields.add("Content-Disposition", &self.disposition());
        // It has no validator.
        fields.add("Cache-Control", b"no-cache");
        let body = Generated::new(|output| Writer::new(self, output, hold).write(directory));
        response.body = Body::Stream {
            stream: Box::new(body),
            length: None,
        };
        Ok(response)
    }

    /// The folder in which all members are: that of the path.
    fn name(&self) -> &[u8] {
        let mut names = self.path.split(|&byte| byte == b'/');
        let last = names.rfind(|name| !name.is_empty());
        last.unwrap_or(ROOT_NAME)
    }

    /// RFC 6266, with the name in the notation of RFC 8187, which has fewer literal characters than paths have.
    fn disposition(&self) -> Vec<u8> {
        let mut value = b"attachment; ".to_vec();
        let name = self.name();
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._ ".contains(byte);
        // Some programs, such as curl, know only this.
        if name.iter().all(is_plain) {
            value.extend_from_slice(b"filename=\"");
            value.extend_from_slice(name);
            value.extend_from_slice(format!(".{}\"; ", self.form.name()).as_bytes());
        }
        value.extend_from_slice(b"filename*=UTF-8''");
        for &byte in name {
            match byte {
                b'-' | b'.' | b'_' | b'~' => value.push(byte),
                _ if byte.is_ascii_alphanumeric() => value.push(byte),
                _ => value.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            }
        }
        value.push(b'.');
        value.extend_from_slice(self.form.name().as_bytes());
        value
    }

    /// Whether a request for `path` would get what the archive has by that name.
    fn may_have(&self, path: &[u8]) -> bool {
        self.files.shows(self.files.beneath(path))
            && self
                .rules
                .rules()
                .suffice_for_member(path, &self.files, self.form)
    }
}

/// The form that the query `archive=FORM` asks for. `None` without such a query; an error for an unknown form.
pub fn asked(query: Option<&[u8]>) -> Option<Result<ArchiveForm, ()>> {
    let parameters = query?.split(|&byte| byte == b'&');
    let value = parameters
        .filter_map(|parameter| parameter.strip_prefix(b"archive="))
        .next()?;
    Some(match value {
        b"tar" => Ok(ArchiveForm::Tar),
        b"zip" => Ok(ArchiveForm::Zip),
        _ => Err(()),
    })
}

/// The bytes around the content of files.
enum Encoder {
    Tar { size: u64 },
    Zip { zip: Zip, crc: Hasher },
}

impl Encoder {
    fn begin(&mut self, out: &mut Vec<u8>, member: &Member<'_>) {
        match self {
            Self::Tar { size } => {
                *size = member.size;
                tar::push_header(out, member);
            }
            Self::Zip { zip, crc } => {
                crc.reset();
                zip.begin_member(out, member);
            }
        }
    }

    fn content(&mut self, out: &mut Vec<u8>, content: &[u8]) {
        match self {
            Self::Tar { .. } => out.extend_from_slice(content),
            Self::Zip { zip, crc } => {
                crc.update(content);
                zip.push_content(out, content);
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Tar { size } => tar::push_padding(out, *size),
            Self::Zip { zip, crc } => zip.end_member(out, crc.clone().finalize()),
        }
    }

    /// The memory that it keeps until the end, in bytes.
    fn memory(&self) -> usize {
        match self {
            Self::Tar { .. } => 0,
            Self::Zip { zip, .. } => zip.memory(),
        }
    }

    /// The end of the archive, in parts.
    fn finish(self) -> Vec<Vec<u8>> {
        match self {
            Self::Tar { .. } => {
                let mut end = Vec::new();
                tar::push_end(&mut end);
                vec![end]
            }
            Self::Zip { zip, .. } => zip.finish(),
        }
    }
}

/// What the client of an archive holds until it has received it.
struct Hold {
    memory: Held,
    _files: Held,
    claims: Claims,
}

/// An archive that is being written.
struct Writer {
    archive: Archive,
    output: Output,
    encoder: Encoder,
    /// The folders that have not been read, with a slash at the end of their paths.
    folders: Vec<Named>,
    /// How many names could not be opened, and the error of the first.
    left_out: Option<(u64, String)>,
    hold: Hold,
    /// What of its memory is used for the names of folders.
    folder_bytes: usize,
    /// Entries since the last turn.
    entries: usize,
    /// Bytes that routes have looked at since the last turn.
    work: usize,
}

/// A name that is not open yet.
struct Named {
    /// Relative to the archive's folder, which has an empty one.
    path: Vec<u8>,
    /// It lies in another mount than the folder that has it.
    is_elsewhere: bool,
}

/// An error, and the path at which it occurred.
type Failure = (io::Error, Vec<u8>);

impl Writer {
    fn new(archive: Archive, output: Output, hold: Hold) -> Self {
        let encoder = match archive.form {
            ArchiveForm::Tar => Encoder::Tar { size: 0 },
            ArchiveForm::Zip => Encoder::Zip {
                zip: Zip::default(),
                crc: Hasher::new(),
            },
        };
        Self {
            archive,
            output,
            encoder,
            folders: Vec::new(),
            left_out: None,
            hold,
            folder_bytes: 0,
            entries: 0,
            work: 0,
        }
    }

    async fn write(mut self, directory: Arc<OpenFile>) -> Result<Output, StreamError> {
        let written = self.members(directory).await;
        self.log_left_out();
        match written {
            Ok(()) => {}
            Err((error, path)) => {
                return Err(Unreadable::boxed(error, &path, self.archive.disk.core()));
            }
        }
        for part in self.encoder.finish() {
            self.output.bytes.extend_from_slice(&part);
            self.output.flush_if_full().await;
        }
        Ok(self.output)
    }

    async fn members(&mut self, directory: Arc<OpenFile>) -> Result<(), Failure> {
        let own = Named {
            path: Vec::new(),
            is_elsewhere: false,
        };
        self.folder(&own, directory).await?;
        while let Some(folder) = self.folders.pop() {
            self.folder_bytes -= folder.path.capacity();
            if let Some(opened) = self.open(&folder, None).await?
                && opened.file.meta().kind == Kind::Directory
            {
                self.folder(&folder, opened.file).await?;
            }
        }
        Ok(())
    }

    /// Goes on without `name`, of which nothing has been written, if a request would be refused too, or if it lies in another
    /// mount: that may be anything, and the rest of the archive does not depend on it. Logged once, as there may be many.
    ///
    /// # Errors
    /// `error` itself if trying again may help, or if all of the archive may lack the same.
    fn leave_out(&mut self, error: io::Error, name: &Named) -> Result<(), Failure> {
        let status = status_of(&error);
        let is_refused = matches!(status, 403 | 404);
        let is_of_mount = status == 500 || error.kind() == io::ErrorKind::TimedOut;
        let may_lack = is_refused || (name.is_elsewhere && is_of_mount);
        if !may_lack || name.path.is_empty() {
            return Err(self.failed(error, &name.path));
        }
        if status != 404 {
            let path = self.request_path(&name.path);
            let first = || (0, format!("{}: {error}", String::from_utf8_lossy(&path)));
            self.left_out.get_or_insert_with(first).0 += 1;
        }
        Ok(())
    }

    fn log_left_out(&self) {
        let Some((count, first)) = &self.left_out else {
            return;
        };
        let archive = String::from_utf8_lossy(&self.archive.path);
        let others = match count - 1 {
            0 => String::new(),
            others => format!("; others: {others}"),
        };
        diagnostics::log(format_args!(
            "left out of the archive of {archive}: {first}{others}"
        ));
    }

    /// Writes `folder` and the files in it, and notes the folders in it.
    async fn folder(&mut self, folder: &Named, directory: Arc<OpenFile>) -> Result<(), Failure> {
        let meta = directory.meta();
        let reader = DirectoryReader::new(directory);
        let disk = self.archive.disk.clone();
        // Before the first names are known, all of the folder can be left out.
        let mut piece = match disk.next_entries(&reader).await {
            Ok(piece) => piece,
            Err(error) => return self.leave_out(error, folder),
        };
        let path = &folder.path;
        self.begin(path, &meta, 0);
        self.encoder.end(&mut self.output.bytes);
        loop {
            for entry in piece.entries() {
                self.entry(path, &entry).await?;
            }
            self.count_memory(path).await?;
            if piece.is_last {
                return Ok(());
            }
            let next = disk.entries_after(piece, &reader).await;
            piece = next.map_err(|error| self.failed(error, path))?;
        }
    }

    async fn entry(&mut self, folder: &[u8], entry: &Entry<'_>) -> Result<(), Failure> {
        let mut name = Named {
            path: [folder, entry.name].concat(),
            // Other mounts are not examined.
            is_elsewhere: entry.stat.is_none(),
        };
        let mut request_path = self.request_path(&name.path);
        if entry.kind == Kind::Directory {
            request_path.push(b'/');
        }
        self.entries += 1;
        self.work += self.archive.rules.rules().work(request_path.len());
        if !self.archive.may_have(&request_path) {
            return self.turn().await;
        }
        match entry.kind {
            // Links to folders may lead in circles.
            Kind::Directory if entry.is_link => {}
            Kind::Directory => {
                name.path.push(b'/');
                self.folder_bytes += name.path.capacity();
                self.folders.push(name);
            }
            Kind::Regular => self.file(&name).await?,
            Kind::Other => {}
        }
        self.turn().await
    }

    /// Ends a turn in which much was looked at or written.
    async fn turn(&mut self) -> Result<(), Failure> {
        if self.entries >= TURN_ENTRIES || self.work >= TURN_WORK {
            (self.entries, self.work) = (0, 0);
            self.output.flush().await;
        }
        self.output.flush_if_full().await;
        Ok(())
    }

    /// Writes the file called `name`.
    async fn file(&mut self, name: &Named) -> Result<(), Failure> {
        let path = &name.path;
        let first = First {
            offset: 0,
            len: CHUNK_BYTES,
            len_max: 0,
        };
        let Some(opened) = self.open(name, Some(first)).await? else {
            return Ok(());
        };
        let (file, meta) = (opened.file, opened.file_meta);
        if meta.kind != Kind::Regular {
            return Ok(());
        }
        let mut version = Version::new(meta, true);
        let (mut offset, mut chunk) = (0, opened.first);
        if chunk.is_none() && meta.size > 0 {
            chunk = match self.chunk(path, &file, 0, &mut version).await {
                Ok(bytes) => Some(bytes),
                Err((error, _)) => return self.leave_out(error, name),
            };
        }
        self.begin(path, &meta, meta.size);
        while offset < meta.size {
            let bytes = match chunk.take() {
                Some(bytes) => bytes,
                None => self.chunk(path, &file, offset, &mut version).await?,
            };
            let rest = usize::try_from(meta.size - offset).unwrap_or(usize::MAX);
            let bytes = &bytes[..bytes.len().min(rest)];
            if bytes.is_empty() {
                return Err(self.failed(rewritten(), path));
            }
            version.keep_evidence(offset, bytes);
            offset += bytes.len() as u64;
            for part in bytes.chunks(PIECE_BYTES) {
                self.encoder.content(&mut self.output.bytes, part);
                self.output.flush_if_full().await;
            }
        }
        self.encoder.end(&mut self.output.bytes);
        Ok(())
    }

    /// A copy of the next bytes of `file`, which is still `version`: a slow client holds no buffer of the disk.
    async fn chunk(
        &self,
        path: &[u8],
        file: &Arc<OpenFile>,
        offset: u64,
        version: &mut Version,
    ) -> Result<Vec<u8>, Failure> {
        let disk = &self.archive.disk;
        let read = async {
            let read = |offset, len| {
                let file = file.clone();
                disk.run(op::Read { file, offset, len })
            };
            let (ready, now) = read(offset, CHUNK_BYTES).await?;
            let is_same = match version.judge(&now) {
                Verdict::Same => true,
                Verdict::Rewritten => false,
                Verdict::Unclear => match version.evidence_range() {
                    Some((offset, len)) => {
                        let (found, now) = read(offset, len).await?;
                        version.confirm(&copy(found)?, &now)
                    }
                    None => version.confirm_without_evidence(&now),
                },
            };
            if is_same {
                copy(ready)
            } else {
                Err(rewritten())
            }
        };
        read.await.map_err(|error| self.failed(error, path))
    }

    /// Begins the member at `path`, relative to the archive's folder.
    fn begin(&mut self, path: &[u8], meta: &Meta, size: u64) {
        let path = [self.archive.name(), b"/", path].concat();
        let member = Member {
            path: path.strip_suffix(b"/").unwrap_or(&path),
            is_folder: meta.kind == Kind::Directory,
            size,
            mtime_s: meta.mtime_s,
        };
        self.encoder.begin(&mut self.output.bytes, &member);
    }

    /// Opens `name`; `None` if it is left out.
    async fn open(&mut self, name: &Named, first: Option<First>) -> Result<Option<Found>, Failure> {
        let request_path = self.request_path(&name.path);
        let beneath = self.archive.files.beneath(&request_path);
        let beneath = beneath.strip_suffix(b"/").unwrap_or(beneath);
        match self.found(beneath, first).await {
            Ok(found) => Ok(Some(found)),
            Err(error) => self.leave_out(error, name).map(|()| None),
        }
    }

    /// Opens `path`, relative to the root, and reads `first`. A small file that is in memory needs no trip.
    async fn found(&self, path: &[u8], first: Option<First>) -> io::Result<Found> {
        let path = CString::new(path)?;
        let root = &self.archive.root;
        match root.open_cached(&path) {
            Ok(file) if file.meta().size <= INLINE_BYTES_MAX => {
                let meta = file.meta();
                return Ok(Found {
                    first: read_cached(&file, &meta),
                    file,
                    file_meta: meta,
                });
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let opened = self
            .archive
            .disk
            .open(root, path, first, Lookup::Shared)
            .await?;
        Ok(Found {
            file_meta: opened.file.meta(),
            file: opened.file,
            first: opened.first.map(copy).transpose()?,
        })
    }

    fn request_path(&self, path: &[u8]) -> Vec<u8> {
        [&self.archive.path, path].concat()
    }

    fn failed(&self, error: io::Error, path: &[u8]) -> Failure {
        (error, self.request_path(path))
    }

    /// Waits for the memory for what is kept; an error when others have it for too long.
    async fn count_memory(&mut self, path: &[u8]) -> Result<(), Failure> {
        let used = ARCHIVE_BYTES + self.folder_bytes + self.encoder.memory();
        let Hold { memory, claims, .. } = &mut self.hold;
        let lacking = used.saturating_sub(memory.amount());
        if claims.grow(memory, lacking).await.is_err() {
            let error = io::Error::other("there are too many names for the memory of listings");
            return Err(self.failed(error, path));
        }
        Ok(())
    }
}

/// A file that was opened, and its first bytes.
struct Found {
    file: Arc<OpenFile>,
    file_meta: Meta,
    first: Option<Vec<u8>>,
}

/// All of a file, if it is in memory and still of the version `meta`.
fn read_cached(file: &OpenFile, meta: &Meta) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if meta.kind != Kind::Regular || meta.size == 0 {
        return None;
    }
    let (_, now) = file
        .inline()?
        .read_cached(&mut bytes, meta.size as usize, 0)
        .ok()?;
    now.same_version(meta).then_some(bytes)
}

fn copy(ready: Ready) -> io::Result<Vec<u8>> {
    match ready {
        Ready::Bytes(bytes) => Ok(bytes.to_vec()),
        Ready::PageCache { .. } | Ready::Piped(_) => {
            Err(io::Error::other("the engine reads nothing into memory"))
        }
    }
}

fn rewritten() -> io::Error {
    io::Error::other("it was rewritten while it was read")
}
