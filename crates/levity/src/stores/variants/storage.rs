//! The disk operations of the store. None of them waits on a loop.

use std::ffi::CString;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use levity_disk::{
    Change, Class, Done, Lookup, NewFile, Op, Open, OpenFile, ReadOptions, Root, Variants,
};

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
        match self.operate(Op::FreeSpace { root }).await? {
            Done::FreeSpace(free) if free < FREE_BYTES_MIN + bytes => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        }
    }

    /// A file without a name.
    pub async fn create(&self) -> io::Result<Arc<OpenFile>> {
        let created = self.change(Change::Create(NewFile::Nameless {
            root: self.root(),
            folder: c".".to_owned(),
            mode: MODE,
        }));
        match created.await? {
            Done::Created(file) => Ok(file),
            other => unreachable!("a file was to be created: {other:?}"),
        }
    }

    /// Returns the number of bytes.
    pub async fn append(&self, file: &Arc<OpenFile>, bytes: Vec<u8>) -> io::Result<u64> {
        let count = bytes.len() as u64;
        let append = Change::Append {
            file: file.clone(),
            bytes: Arc::new(bytes),
        };
        self.change(append).await.map(|_| count)
    }

    /// Gives `file` its name, once its content is on the disk.
    pub async fn publish(&self, file: Arc<OpenFile>, stored: Stored) -> io::Result<()> {
        self.change(Change::Sync { file: file.clone() }).await?;
        let link = Change::Link {
            file,
            root: self.root(),
            path: stored.path(),
        };
        match self.change(link).await {
            // Made by another process, or before it was forgotten.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => drop(linked?),
        }
        Ok(())
    }

    /// Makes the names durable.
    pub async fn sync_folder(&self) -> io::Result<()> {
        let folder = self.open(c".".to_owned()).await?;
        self.change(Change::Sync { file: folder }).await.map(drop)
    }

    /// Removes a file, unless another process has.
    pub async fn remove(&self, stored: Stored) -> io::Result<()> {
        let removed = self.change(Change::Unlink {
            root: self.root(),
            path: stored.path(),
            file: None,
        });
        match removed.await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Opens a file of the store.
    pub async fn open(&self, path: CString) -> io::Result<Arc<OpenFile>> {
        let open = Op::Open(Open {
            root: self.root(),
            path,
            first: None,
            variants: Box::new(Variants::default()),
            lookup: Lookup::Fresh,
        });
        match self.operate(open).await? {
            Done::Opened(opened) => Ok(opened.file),
            other => unreachable!("a file was to be opened: {other:?}"),
        }
    }

    async fn change(&self, change: Change) -> io::Result<Done> {
        self.operate(Op::Change(change)).await
    }

    async fn operate(&self, op: Op) -> io::Result<Done> {
        submit_when_free(&self.core.disk, op, Class::Later, ReadOptions::default()).await
    }
}
