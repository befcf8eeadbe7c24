//! The name that a request is about, and what has it at present.

use std::ffi::CString;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use levity_disk::{Lookup, Meta, OpenFile, Operation, Root, op};
use levity_wire::condition::{self, Validators, Verdict};
use rustix::io::Errno;
use tokio::time;

use super::Upload;
use crate::files::disk_client::DetachedDisk;
use crate::files::entry::{self, Content, TICK};
use crate::http::error::{self, error};
use crate::http::response::Response;
use crate::message::request::Request;
use crate::stores::digests::store::DigestStore;
use crate::stores::uploads::room::{Quota, of_file};
use crate::stores::uploads::store::FOLDER;

/// The maximum length of a name in bytes (`NAME_MAX`).
const NAME_BYTES_MAX: usize = 255;

/// The maximum length of a path in bytes (`PATH_MAX`, less the final zero).
const PATH_BYTES_MAX: usize = 4095;

/// The maximum number of folders around a name, without the root. The count for a quota has a descriptor for each, and what
/// is deeper is not counted.
pub const FOLDERS_MAX: usize = 64;

/// Permissions of files, less the umask.
pub const FILE_MODE: u32 = 0o666;

/// Permissions of folders, less the umask.
const FOLDER_MODE: u32 = 0o777;

/// Permissions of the folder for names of the meantime.
const OWN_FOLDER_MODE: u32 = 0o700;

/// A path that may be written.
pub struct Path {
    /// Relative to the root, without a final slash.
    pub bytes: Vec<u8>,
    /// It was requested with a final slash.
    pub names_folder: bool,
}

impl Path {
    /// The path of `request`.
    ///
    /// # Errors
    /// The response for a path that must not be written, whatever is there.
    pub fn of(request: &Request, upload: &Upload) -> Result<Self, Response> {
        if request.has_encoded_slash {
            return Err(error(400, "escaped slash in the path"));
        }
        let path = upload.files.beneath(&request.path);
        if !upload.accepts(path) {
            return Err(error(403, "nothing can be written by this name"));
        }
        let bytes = path.strip_suffix(b"/").unwrap_or(path);
        let mut names = bytes.split(|&byte| byte == b'/');
        if bytes.len() > PATH_BYTES_MAX || names.any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(error(414, "the name is too long"));
        }
        if bytes.iter().filter(|&&byte| byte == b'/').count() > FOLDERS_MAX {
            let reason = format!("more than {FOLDERS_MAX} folders in each other");
            return Err(error(400, &reason));
        }
        Ok(Self {
            bytes: bytes.to_vec(),
            names_folder: request.names_directory(),
        })
    }

    /// The folders around it, from the inside; without the root.
    pub fn folders(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let slashes = self.bytes.iter().enumerate().rev();
        let slashes: Vec<_> = slashes
            .filter(|(_, byte)| **byte == b'/')
            .map(|(at, _)| at)
            .collect();
        slashes.into_iter().map(|at| &self.bytes[..at])
    }

    /// The folder around it; `.` for the root.
    pub fn parent(&self) -> &[u8] {
        self.folders().next().unwrap_or(b".")
    }
}

/// A name beneath the root of an upload, with what is needed to change it.
pub struct Name {
    /// Has the time-outs of a request.
    pub disk: DetachedDisk,
    /// Waits for as long as it takes.
    pub patient: DetachedDisk,
    pub upload: Arc<Upload>,
    pub root: Arc<Root>,
    pub path: Path,
    pub request: Request,
    /// The store of digests, where they are the ETags of files.
    pub digests: Option<Arc<DigestStore>>,
}

impl Name {
    /// # Errors
    /// The response if the root is missing.
    pub fn new(
        disk: DetachedDisk,
        upload: &Arc<Upload>,
        path: Path,
        request: &Request,
        digests: Option<&Arc<DigestStore>>,
    ) -> Result<Self, Response> {
        let root = upload.files.root.current();
        Ok(Self {
            patient: disk.patient(),
            disk,
            upload: upload.clone(),
            root: root.map_err(|error| error::from_io(&error))?,
            path,
            request: request.clone(),
            digests: digests.cloned(),
        })
    }

    /// The bound on all files beneath the root, if there is one.
    pub fn quota(&self) -> Option<Quota> {
        let settings = &self.upload.settings;
        let lent_bytes_max = of_file(settings.max_file_bytes);
        settings.quota_bytes.map(|bytes| Quota {
            bytes,
            lent_bytes_max,
        })
    }

    /// The file that has the name; `None` if nothing has. No link is followed.
    ///
    /// # Errors
    /// EISDIR: it is a folder; EINVAL: something else; ELOOP: a link, or one is on the way.
    pub async fn current(&self, disk: &DetachedDisk) -> io::Result<Option<Arc<OpenFile>>> {
        if self.path.bytes.is_empty() {
            return Err(Errno::ISDIR.into());
        }
        let path = c_path(&self.path.bytes)?;
        match disk.open(&self.root, path, None, Lookup::NoSymlinks).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(opened?.file)),
        }
    }

    /// Evaluates the conditions of the request for the file that has the name. The ETag is compared as a strong one, also
    /// within the two seconds in which responses have a weak one: versions that are written here never share one.
    ///
    /// # Errors
    /// 412 if they do not hold.
    pub async fn check(&self, current: Option<&Arc<OpenFile>>) -> Result<(), Response> {
        let request = &self.request;
        let Some(file) = current else {
            return match request.header("if-match") {
                Some(_) => Err(error(412, "nothing has this name")),
                None => Ok(()),
            };
        };
        if !request.head.conditional {
            return Ok(());
        }
        let meta = file.meta();
        let source = self.disk.core().config().config.server.etag;
        let mut etag = entry::etag_of_version(&meta, source);
        if let Some(of_content) = self.content_etag(file).await
            && ["if-match", "if-none-match"].iter().any(|name| {
                let mut values = request.headers_named(name);
                values.any(|value| condition::lists(value, of_content.as_bytes()))
            })
        {
            etag = of_content;
        }
        let validators = Validators {
            etag: Some(etag.as_bytes()),
            modified: entry::modified(&meta),
        };
        let header = |name| request.headers_named(name);
        match condition::evaluate(false, header, &validators) {
            Verdict::Proceed => Ok(()),
            Verdict::Failed | Verdict::NotModified => Err(error(412, "")),
        }
    }

    /// The ETag of the content of `file`, where files have it and it is known.
    async fn content_etag(&self, file: &Arc<OpenFile>) -> Option<String> {
        let core = self.disk.core();
        let digests = self.digests.as_ref()?;
        let form = entry::plain_form(&self.path.bytes, core.config().config.server.etag);
        let meta = file.meta();
        let content = Content::File(file.clone());
        let entry = entry::entry(form, meta, entry::is_settled(&meta), content);
        let stream = self.disk.connection();
        digests.etag(core, &Arc::new(entry), stream).await
    }

    /// Waits until another version of a file with `meta` would have another change time, so that no two have the same ETag:
    /// a new file may have the inode of one that was removed.
    pub async fn pass_tick(&self, meta: &Meta) {
        let changed = Duration::new(meta.ctime_s.try_into().unwrap_or(0), meta.ctime_ns);
        let age = SystemTime::now().duration_since(UNIX_EPOCH + changed);
        let left = TICK.saturating_sub(age.unwrap_or(Duration::ZERO));
        if !left.is_zero() {
            time::sleep(left).await;
        }
    }

    /// Makes `change`, which needs the folder for names of the meantime; makes that first if it is not there.
    pub async fn change_in_folder<O: Operation>(
        &self,
        disk: &DetachedDisk,
        change: O,
    ) -> io::Result<O::Output> {
        match disk.run(change.clone()).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
        let make = op::MakeFolder {
            root: self.root.clone(),
            path: c_path(FOLDER.as_bytes())?,
            mode: OWN_FOLDER_MODE,
        };
        match disk.run(make).await {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        disk.run(change).await
    }

    /// Makes the folder `path`.
    pub async fn make(&self, path: &[u8]) -> io::Result<()> {
        let make = op::MakeFolder {
            root: self.root.clone(),
            path: c_path(path)?,
            mode: FOLDER_MODE,
        };
        self.patient.run(make).await?;
        self.mark_folder(path);
        self.upload.store.folder_made(path);
        Ok(())
    }

    /// Records a change of the folder `path` itself.
    pub fn mark_folder(&self, path: &[u8]) {
        let changes = &self.upload.store.changes;
        changes.mark(path);
        changes.mark(&[path, b"/"].concat());
    }

    /// Makes the names in `folder` durable, if that is configured.
    pub async fn sync_folder(&self, folder: &[u8]) -> io::Result<()> {
        if !self.upload.settings.fsync {
            return Ok(());
        }
        let path = c_path(folder)?;
        let opened = self.patient.open(&self.root, path, None, Lookup::Fresh);
        let file = opened.await?.file;
        self.patient.run(op::Sync { file }).await
    }

    /// The response to a failure. Logs those that need the operator's attention.
    pub fn refusal(&self, error: &io::Error) -> Response {
        let log = || {
            let root = self.root.path().display();
            let path = String::from_utf8_lossy(&self.path.bytes).into_owned();
            let core = self.disk.core();
            core.disk_failed(error, || {
                format!("cannot write {path} beneath {root}: {error}")
            });
        };
        let (status, detail) = match Errno::from_io_error(error) {
            Some(Errno::NOENT | Errno::NOTDIR) => (409, "the folder does not exist"),
            Some(Errno::ISDIR) => (409, "a folder has this name"),
            Some(Errno::INVAL) => (409, "something else than a file has this name"),
            Some(Errno::NOTEMPTY | Errno::EXIST) => (409, "the folder is not empty"),
            Some(Errno::BUSY) => (409, "the folder is in use"),
            Some(Errno::XDEV) => (409, "another file system is mounted there"),
            Some(Errno::LOOP) => (403, "a symbolic link is on the way"),
            // Modes do not say why: also a file system in user space refuses by rules of its own.
            Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                log();
                (403, "the server may not write there")
            }
            Some(Errno::NAMETOOLONG) => (414, "the name is too long"),
            Some(Errno::NOSPC | Errno::DQUOT) => (507, "the disk is full"),
            Some(Errno::FBIG) => (507, "the file system has no files of this size"),
            _ => {
                log();
                return error::from_io(error);
            }
        };
        self::error(status, detail)
    }
}

/// The path for the disk.
pub fn c_path(path: &[u8]) -> io::Result<CString> {
    CString::new(path).map_err(|_| Errno::INVAL.into())
}

/// A name for the meantime, which nothing else has.
pub fn meantime() -> Vec<u8> {
    let number = levity_telemetry::request_id::next();
    format!("{FOLDER}/{number:032x}").into_bytes()
}

/// A name that several steps of a request share.
pub type SharedName = Rc<Name>;
