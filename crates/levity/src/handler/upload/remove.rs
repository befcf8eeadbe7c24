//! Removes files and folders, and makes folders.

use std::io;
use std::sync::Arc;

use levity_disk::{Change, OpenFile};
use rustix::io::Errno;

use super::name::{Name, c_path};
use super::{allow, empty};
use crate::http::error::error;
use crate::http::response::Response;

impl Name {
    /// Removes the file, or the empty folder, that has the name.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn remove(&self) -> Result<Response, Response> {
        if self.path.bytes.is_empty() {
            return Err(error(403, "the root stays"));
        }
        let _turn = self.upload.store.names.lock(&self.path.bytes).await;
        let removed = match self.current(&self.patient).await {
            Ok(Some(_)) if self.path.names_folder => return Err(error(404, "")),
            Ok(Some(file)) => {
                self.check(Some(&file)).await?;
                self.remove_file(&file).await
            }
            Ok(None) => return Err(error(404, "")),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::ISDIR) => {
                self.check_folder()?;
                self.remove_folder().await
            }
            Err(error) => Err(error),
        };
        match removed {
            Ok(()) => {}
            Err(error) if is_absent(&error) => return Err(self::error(404, "")),
            Err(error) => return Err(self.refusal(&error)),
        }
        let durable = self.sync_folder(self.path.parent()).await;
        durable.map_err(|error| self.refusal(&error))?;
        Ok(empty(204))
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
        let unlink = Change::Unlink {
            root: self.root.clone(),
            path: c_path(&self.path.bytes)?,
            file: Some(file.clone()),
        };
        self.patient.change(unlink).await?;
        self.upload.store.changes.mark(&self.path.bytes);
        self.upload.store.removed(meta.size);
        Ok(())
    }

    async fn remove_folder(&self) -> io::Result<()> {
        let remove = Change::RemoveFolder {
            root: self.root.clone(),
            path: c_path(&self.path.bytes)?,
        };
        self.patient.change(remove).await?;
        self.mark_folder(&self.path.bytes);
        Ok(())
    }

    /// Makes a folder with the name (RFC 4918, 9.3).
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn make_folder(&self) -> Result<Response, Response> {
        let exists = || {
            let mut response = error(405, "the name is taken");
            response.fields.set("Allow", &allow(&self.upload));
            response
        };
        if self.path.bytes.is_empty() {
            return Err(exists());
        }
        let _turn = self.upload.store.names.lock(&self.path.bytes).await;
        match self.make(&self.path.bytes).await {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(exists()),
            Err(error) => return Err(self.refusal(&error)),
        }
        let durable = self.sync_folder(self.path.parent()).await;
        durable.map_err(|error| self.refusal(&error))?;
        Ok(empty(201))
    }
}

/// Whether the name is not there, or has gone to another file, whose version the client does not know.
fn is_absent(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::STALE))
}
