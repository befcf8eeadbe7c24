//! The disk operations of the store. None of them waits on a loop.

use std::ffi::CString;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{Class, Lookup, OpenFile, Operation, ReadOptions, Root, op};

use super::name::Stored;
use super::store::VariantStore;
use crate::files::disk_client::submit_when_free;
use crate::loop_core::LoopCore;

/// Free space that the store leaves on its file system, in bytes.
const FREE_BYTES_MIN: u64 = 64 * 1024 * 1024;

/// The permissions of a file: it may be of one that not everybody may read.
const MODE: u32 = 0o600;

/// The disk, for one piece of work.
#[derive(Clone, Copy)]
pub struct Storage<'t> {
    pub core: &'t Rc<LoopCore>,
    pub store: &'t Arc<VariantStore>,
}

impl Storage<'_> {
    fn root(&self) -> Arc<Root> {
        self.store.root.clone()
    }

    /// Fails if the file system has no room for `bytes` more.
    pub async fn check_space(&self, bytes: u64) -> io::Result<()> {
        let root = self.root();
        match self.run(op::FreeSpace { root }).await? {
            free if free < FREE_BYTES_MIN + bytes => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// A file without a name.
    pub async fn create(&self) -> io::Result<Arc<OpenFile>> {
        let create = op::Create::Nameless {
            root: self.root(),
            folder: c".".to_owned(),
            mode: MODE,
        };
        self.run(create).await
    }

    /// Returns the number of bytes.
    pub async fn append(&self, file: &Arc<OpenFile>, bytes: Vec<u8>) -> io::Result<u64> {
        let append = op::Append {
            file: file.clone(),
            bytes: Arc::new(bytes),
        };
        Ok(self.run(append).await?.len as u64)
    }

    /// Gives `file` its name, once its content is on the disk.
    pub async fn publish(&self, file: Arc<OpenFile>, stored: Stored) -> io::Result<()> {
        self.run(op::Sync { file: file.clone() }).await?;
        let link = op::Link {
            file,
            root: self.root(),
            path: stored.path(),
        };
        match self.run(link).await {
            // Made by another process, or before it was forgotten.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    }

    /// Makes the names durable.
    pub async fn sync_folder(&self) -> io::Result<()> {
        let file = self.open(c".".to_owned()).await?;
        self.run(op::Sync { file }).await
    }

    /// Removes a file, unless another process has.
    pub async fn remove(&self, stored: Stored) -> io::Result<()> {
        let unlink = op::Unlink {
            root: self.root(),
            path: stored.path(),
            file: None,
        };
        match self.run(unlink).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// Opens a file of the store.
    pub async fn open(&self, path: CString) -> io::Result<Arc<OpenFile>> {
        let open = op::Open {
            root: self.root(),
            path,
            first: None,
            variants: Box::default(),
            lookup: Lookup::Fresh,
        };
        Ok(self.run(open).await?.file)
    }

    async fn run<O: Operation>(&self, op: O) -> io::Result<O::Output> {
        submit_when_free(&self.core.disk, op, Class::Later, ReadOptions::default()).await
    }
}
