//! Gives a complete file its name.

use std::io;
use std::sync::Arc;

use levity_disk::{OpenFile, op};
use levity_telemetry::diagnostics;

use super::empty;
use super::name::{Name, c_path, meantime};
use crate::files::entry;
use crate::http::error::error;
use crate::http::response::Response;
use crate::stores::uploads::store::{FOLDER, Reservation};

/// How often a name is looked up again because another program has taken or left it meanwhile.
const ATTEMPTS_MAX: usize = 4;

/// A file whose content is complete.
pub struct Complete {
    /// Without a name.
    pub file: Arc<OpenFile>,
    /// Its size.
    pub bytes: u64,
    /// The room that it takes.
    pub reservation: Reservation,
}

impl Name {
    /// Gives `complete` the name, if the conditions of the request hold at that moment. Nobody else changes the name
    /// through this server meanwhile. Another program can change it between the check and the rename.
    ///
    /// # Errors
    /// The response if that is refused or fails.
    pub async fn publish(&self, complete: Complete) -> Result<Response, Response> {
        if self.upload.settings.fsync {
            let file = complete.file.clone();
            let synced = self.patient.run(op::Sync { file }).await;
            synced.map_err(|error| self.refusal(&error))?;
        }
        let _turn = self.upload.store.names.lock(&self.path.bytes).await;
        for _ in 0..ATTEMPTS_MAX {
            let current = self.current(&self.patient).await;
            let current = current.map_err(|error| self.refusal(&error))?;
            self.check(current.as_ref()).await?;
            self.check_overwrite(current.as_ref())?;
            let named = match &current {
                None => self.link(&complete.file).await,
                Some(old) => self.replace(&complete.file, old).await,
            };
            match named {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.refusal(&error)),
                Ok(has_made_folders) => {
                    self.upload.store.changes.mark(&self.path.bytes);
                    return self.finish(complete, current, has_made_folders).await;
                }
            }
        }
        Err(error(409, "other programs change this name all the time"))
    }

    /// # Errors
    /// 409 if `current` may not be replaced.
    pub fn check_overwrite(&self, current: Option<&Arc<OpenFile>>) -> Result<(), Response> {
        match current {
            Some(_) if !self.upload.settings.overwrite => Err(error(409, "the file exists")),
            _ => Ok(()),
        }
    }

    /// Links `file` to the name, which nothing has. Returns whether folders were made for it.
    async fn link(&self, file: &Arc<OpenFile>) -> io::Result<bool> {
        let link = op::Link {
            file: file.clone(),
            root: self.root.clone(),
            path: c_path(&self.path.bytes)?,
        };
        match self.patient.run(link.clone()).await {
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && self.upload.settings.create_folders => {}
            done => return done.map(|()| false),
        }
        for folder in self.path.folders().rev() {
            match self.make(folder).await {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        self.patient.run(link).await.map(|()| true)
    }

    /// Puts `file` in the place of `old`. A crash in between may leave a name in the folder for the meantime.
    async fn replace(&self, file: &Arc<OpenFile>, old: &Arc<OpenFile>) -> io::Result<bool> {
        self.pass_tick(&old.meta()).await;
        let from = c_path(&meantime())?;
        let link = op::Link {
            file: file.clone(),
            root: self.root.clone(),
            path: from.clone(),
        };
        self.change_in_folder(&self.patient, link).await?;
        let rename = op::Rename {
            root: self.root.clone(),
            from: from.clone(),
            to: c_path(&self.path.bytes)?,
            replace: true,
        };
        let renamed = self.patient.run(rename).await;
        if renamed.is_err() {
            let unlink = op::Unlink {
                root: self.root.clone(),
                path: from,
                file: Some(file.clone()),
            };
            if let Err(error) = self.patient.run(unlink).await {
                let root = self.root.path().display();
                diagnostics::log(format_args!(
                    "cannot remove the name of a file that was not uploaded to {root}: {error}"
                ));
            }
        }
        renamed.map(|()| false)
    }

    /// What follows the change of the name.
    async fn finish(
        &self,
        complete: Complete,
        old: Option<Arc<OpenFile>>,
        has_made_folders: bool,
    ) -> Result<Response, Response> {
        let replaced = old.as_ref().map(|old| old.meta().size);
        let path = &self.path.bytes;
        complete.reservation.used(path, complete.bytes, replaced);
        let durable = self.sync_names(has_made_folders, old.is_some()).await;
        durable.map_err(|error| self.refusal(&error))?;
        let mut response = empty(if old.is_some() { 204 } else { 201 });
        // The change of the name has changed its metadata.
        let now = self.current(&self.patient).await.ok().flatten();
        let identity = |file: &OpenFile| (file.meta().device, file.meta().inode);
        if let Some(now) = now.filter(|now| identity(now) == identity(&complete.file)) {
            let source = self.disk.core().config().config.server.etag;
            let etag = entry::etag_of_version(&now.meta(), source);
            response.fields.add("ETag", etag.as_bytes());
        }
        Ok(response)
    }

    async fn sync_names(&self, has_made_folders: bool, was_renamed: bool) -> io::Result<()> {
        self.sync_folder(self.path.parent()).await?;
        // A renaming between two folders is durable when both are.
        if was_renamed {
            self.sync_folder(FOLDER.as_bytes()).await?;
        }
        if has_made_folders {
            for folder in self.path.folders().skip(1).chain([&b"."[..]]) {
                self.sync_folder(folder).await?;
            }
        }
        Ok(())
    }
}
