//! Removes files and folders, and makes folders.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{OpenFile, op};
use rustix::io::Errno;

use super::count::ensure_counted;
use super::name::{Name, c_path};
use super::put::no_room;
use super::{allow, empty};
use crate::files::disk_client::DetachedDisk;
use crate::http::error::error;
use crate::http::response::Response;
use crate::stores::uploads::room::{Full, NAME_BYTES};
use crate::stores::uploads::store::Reservation;

impl Name {
    /// Looks whether the name can be removed, within the time-outs of the request: a disk that does not answer gets no
    /// task that waits for it.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn check_removal(&self) -> Result<(), Response> {
        if self.path.bytes.is_empty() {
            return Err(error(403, "the root stays"));
        }
        self.target(&self.disk).await?;
        self.check_file_system().await
    }

    /// # Errors
    /// 409 if the name is on another file system: its files do not count for the quota.
    async fn check_file_system(&self) -> Result<(), Response> {
        match self.folder_around().await {
            Ok((folder, _)) if folder.meta().device == self.root.device() => Ok(()),
            Ok(_) => Err(self.refusal(&Errno::XDEV.into())),
            Err(error) => Err(self.refusal(&error)),
        }
    }

    /// Removes the file, or the empty folder, that has the name.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn remove(&self) -> Result<Response, Response> {
        let _turn = self.upload.store.names.lock(&self.path.bytes).await;
        let removed = match self.target(&self.patient).await? {
            Some(file) => {
                self.check(Some(&file)).await?;
                self.remove_file(&file).await
            }
            None => {
                self.check_folder()?;
                self.remove_folder().await
            }
        };
        removed.map_err(|error| self.not_removed(&error))?;
        let durable = self.sync_folder(self.path.parent()).await;
        durable.map_err(|error| self.refusal(&error))?;
        Ok(empty(204))
    }

    /// The file to be removed; `None` if it is a folder.
    async fn target(&self, disk: &DetachedDisk) -> Result<Option<Arc<OpenFile>>, Response> {
        match self.current(disk).await {
            Ok(Some(file)) if !self.path.names_folder => Ok(Some(file)),
            Ok(_) => Err(error(404, "")),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ISDIR) => Ok(None),
            Err(error) => Err(self.not_removed(&error)),
        }
    }

    fn not_removed(&self, error: &io::Error) -> Response {
        match is_absent(error) {
            true => self::error(404, ""),
            false => self.refusal(error),
        }
    }

    /// # Errors
    /// 412: a folder has no ETag.
    fn check_folder(&self) -> Result<(), Response> {
        match self.request.header("if-match") {
            None | Some(b"*") => Ok(()),
            Some(_) => Err(error(412, "")),
        }
    }

    async fn remove_file(&self, file: &Arc<OpenFile>) -> io::Result<()> {
        let meta = file.meta();
        self.pass_tick(&meta).await;
        let unlink = op::Unlink {
            root: self.root.clone(),
            path: c_path(&self.path.bytes)?,
            file: Some(file.clone()),
        };
        self.patient.run(unlink).await?;
        self.upload.store.changes.mark(&self.path.bytes);
        let path = &self.path.bytes;
        self.upload.store.file_removed(path, meta.size);
        Ok(())
    }

    async fn remove_folder(&self) -> io::Result<()> {
        let remove = op::RemoveFolder {
            root: self.root.clone(),
            path: c_path(&self.path.bytes)?,
        };
        self.patient.run(remove).await?;
        self.mark_folder(&self.path.bytes);
        self.upload.store.folder_removed(&self.path.bytes);
        Ok(())
    }

    /// Looks whether a folder with the name can be made, as [`check_removal`](Self::check_removal) does.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn check_new_folder(&self) -> Result<(), Response> {
        match self.current(&self.disk).await {
            Ok(None) => self.check_file_system().await,
            Ok(Some(_)) => Err(self.is_taken()),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::ISDIR | Errno::INVAL) => Err(self.is_taken()),
                _ => Err(self.refusal(&error)),
            },
        }
    }

    /// Room for a folder with the name.
    ///
    /// # Errors
    /// The response if there is none.
    pub async fn room_for_folder(self: &Rc<Self>) -> Result<Reservation, Response> {
        ensure_counted(self).await?;
        let mut room = self.upload.store.begin_room(&self.path.bytes);
        let taken = room.take(NAME_BYTES, self.quota());
        taken.map_err(|Full| no_room())?;
        Ok(room)
    }

    /// Makes a folder with the name (RFC 4918, 9.3), for which there is `_room`.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn make_folder(&self, _room: Reservation) -> Result<Response, Response> {
        let _turn = self.upload.store.names.lock(&self.path.bytes).await;
        match self.make(&self.path.bytes).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(self.is_taken());
            }
            Err(error) => return Err(self.refusal(&error)),
        }
        let durable = self.sync_folder(self.path.parent()).await;
        durable.map_err(|error| self.refusal(&error))?;
        Ok(empty(201))
    }

    fn is_taken(&self) -> Response {
        let mut response = error(405, "the name is taken");
        response.fields.set("Allow", &allow(&self.upload));
        response
    }
}

/// Whether the name is not there, or has gone to another file, whose version the client does not know.
fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::STALE))
}
