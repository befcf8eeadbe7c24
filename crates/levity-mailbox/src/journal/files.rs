//! The files of the folder, by the disk engines: for threads that may wait, and as futures.

use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use levity_disk::{
    Change, Class, Completion, Direct, Disk, Done, Job, Lookup, NewFile, Op, Open, OpenFile,
    ReadOptions, Reply, Root, Variants, is_full,
};
use tokio::sync::oneshot;

/// Bytes that are read or written at a time.
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// The pause before a job is submitted again for which the queue of the disk had no room.
pub(super) const FULL_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Nobody else may read what is written in boxes.
const MODE: u32 = 0o600;

/// The folder.
#[derive(Clone)]
pub(super) struct Files {
    pub disk: Arc<Disk>,
    pub root: Arc<Root>,
}

/// Passes the completion to a thread that waits for it.
struct ToThread(mpsc::SyncSender<Completion>);

impl Reply for ToThread {
    fn is_awaited(&self) -> bool {
        true
    }

    fn send(self: Box<Self>, completion: Completion) {
        // There is room for one.
        let _ = self.0.try_send(completion);
    }
}

/// Passes the completion to a future.
struct ToFuture(oneshot::Sender<Completion>);

impl Reply for ToFuture {
    fn is_awaited(&self) -> bool {
        !self.0.is_closed()
    }

    fn send(self: Box<Self>, completion: Completion) {
        let _ = self.0.send(completion);
    }
}

impl Files {
    pub(super) fn submit(&self, op: Op, class: Class, reply: Box<dyn Reply>) {
        let mut job = Job::new(op, class, reply);
        // The bytes were written a moment ago, or are needed once.
        job.options = ReadOptions {
            direct: Direct::Never,
            ..ReadOptions::default()
        };
        self.disk.submit(job);
    }

    /// Performs `op`. Blocks.
    pub(super) fn run(&self, op: &Op) -> io::Result<Done> {
        loop {
            let (sender, receiver) = mpsc::sync_channel(1);
            self.submit(op.clone(), Class::Later, Box::new(ToThread(sender)));
            // Without a completion the disk is gone.
            let completion = receiver.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            match completion.result {
                Err(error) if is_full(&error) => thread::sleep(FULL_RETRY_INTERVAL),
                result => return result,
            }
        }
    }

    /// Makes a change. Blocks.
    pub(super) fn change(&self, change: Change) -> io::Result<Done> {
        self.run(&Op::Change(change))
    }

    /// Performs `op` for a reader who waits. What the queue of the disk has no room for at first is queued as less urgent.
    async fn ask(&self, op: Op) -> io::Result<Done> {
        for class in [Class::First, Class::Later] {
            let (sender, receiver) = oneshot::channel();
            self.submit(op.clone(), class, Box::new(ToFuture(sender)));
            let completion = receiver.await.map_err(|_| io::ErrorKind::BrokenPipe)?;
            match completion.result {
                Err(error) if class == Class::First && is_full(&error) => {}
                result => return result,
            }
        }
        unreachable!("the last result is returned")
    }

    fn open_op(&self, name: CString) -> Op {
        Op::Open(Open {
            root: self.root.clone(),
            path: name,
            first: None,
            variants: Box::new(Variants::default()),
            lookup: Lookup::NoSymlinks,
        })
    }

    /// Opens a file to read it.
    pub(super) async fn open(&self, name: CString) -> io::Result<Arc<OpenFile>> {
        opened(self.ask(self.open_op(name)).await)
    }

    /// Opens a file to read it, or the folder itself. Blocks.
    pub(super) fn open_blocking(&self, name: CString) -> io::Result<Arc<OpenFile>> {
        opened(self.run(&self.open_op(name)))
    }

    /// The folder, to sync it. Blocks.
    fn folder(&self) -> io::Result<Arc<OpenFile>> {
        let op = Op::Open(Open {
            root: self.root.clone(),
            path: c".".to_owned(),
            first: None,
            variants: Box::new(Variants::default()),
            lookup: Lookup::Fresh,
        });
        opened(self.run(&op))
    }

    /// Reads a range, or what there is of it.
    pub(super) async fn read(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while let Some(op) = next_read(file, offset, len, bytes.len()) {
            if !self.add_read(self.ask(op).await?, &mut bytes)? {
                break;
            }
        }
        Ok(bytes)
    }

    /// As [`read`](Self::read). Blocks.
    pub(super) fn read_blocking(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        len: usize,
    ) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while let Some(op) = next_read(file, offset, len, bytes.len()) {
            if !self.add_read(self.run(&op)?, &mut bytes)? {
                break;
            }
        }
        Ok(bytes)
    }

    /// Whether there may be more.
    fn add_read(&self, done: Done, bytes: &mut Vec<u8>) -> io::Result<bool> {
        match done {
            Done::Read(ready, _) => {
                let read = ready.into_bytes(self.disk.budget())?;
                bytes.extend_from_slice(&read);
                Ok(!read.is_empty())
            }
            other => unreachable!("a file was to be read: {other:?}"),
        }
    }

    /// A file without a name. Blocks.
    pub(super) fn create(&self) -> io::Result<Arc<OpenFile>> {
        created(self.change(Change::Create(NewFile::Nameless {
            root: self.root.clone(),
            folder: c".".to_owned(),
            mode: MODE,
        })))
    }

    /// The file of that name, or a new one, to write to it. Blocks.
    pub(super) fn open_or_create(&self, name: CString) -> io::Result<Arc<OpenFile>> {
        created(self.change(Change::Create(NewFile::Appended {
            root: self.root.clone(),
            path: name,
            mode: MODE,
        })))
    }

    /// Gives a file a name, unless that is taken. Blocks.
    pub(super) fn link(&self, file: &Arc<OpenFile>, name: CString) -> io::Result<()> {
        let link = Change::Link {
            file: file.clone(),
            root: self.root.clone(),
            path: name,
        };
        self.change(link).map(drop)
    }

    /// Writes in pieces. Blocks.
    pub(super) fn write(
        &self,
        file: &Arc<OpenFile>,
        offset: u64,
        bytes: &Arc<Vec<u8>>,
    ) -> io::Result<()> {
        let write = Change::Write {
            file: file.clone(),
            offset,
            bytes: bytes.clone(),
        };
        self.change(write).map(drop)
    }

    /// Makes a file durable. Blocks.
    pub(super) fn sync(&self, file: &Arc<OpenFile>) -> io::Result<()> {
        let file = file.clone();
        self.change(Change::Sync { file }).map(drop)
    }

    /// Makes the names durable. Blocks.
    pub(super) fn sync_folder(&self) -> io::Result<()> {
        self.sync(&self.folder()?)
    }

    /// Removes a name, if it is there. Blocks.
    pub(super) fn remove(&self, name: CString) -> io::Result<()> {
        let unlink = Change::Unlink {
            root: self.root.clone(),
            path: name,
            file: None,
        };
        match self.change(unlink) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Bytes that can still be written to the file system. Blocks.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let root = self.root.clone();
        match self.run(&Op::FreeSpace { root })? {
            Done::FreeSpace(bytes) => Ok(bytes),
            other => unreachable!("free space was asked for: {other:?}"),
        }
    }
}

/// The next piece after `done` bytes of a range.
fn next_read(file: &Arc<OpenFile>, offset: u64, len: usize, done: usize) -> Option<Op> {
    let len = (len - done).min(PIECE_BYTES);
    (len > 0).then(|| Op::Read {
        file: file.clone(),
        offset: offset + done as u64,
        len,
    })
}

fn opened(done: io::Result<Done>) -> io::Result<Arc<OpenFile>> {
    match done? {
        Done::Opened(opened) => Ok(opened.file),
        other => unreachable!("a file was to be opened: {other:?}"),
    }
}

fn created(done: io::Result<Done>) -> io::Result<Arc<OpenFile>> {
    match done? {
        Done::Created(file) => Ok(file),
        other => unreachable!("a file was to be created: {other:?}"),
    }
}
