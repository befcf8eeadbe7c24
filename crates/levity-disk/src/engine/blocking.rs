//! The operations as plain blocking calls.

use std::ffi::CStr;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

use super::ticket::Ticket;
use crate::files::{
    Kind, KnownDevices, Meta, OpenFile, accept_variant, create, folder, link, read, unlink, write,
};
use crate::job::Ready;
use crate::job::op::{Appended, Create, Done, First, Lookup, Op, Open, Opened, Read};
use crate::memory::Buffer;
use crate::piped::{self, EmptyPipe};

/// Where the bytes of a read are.
pub(super) enum ReadBytes {
    /// They have been read.
    Ready(Ready),
    /// This number of bytes is to be sent from the page cache.
    InPageCache(usize),
}

/// Performs `op` on the calling thread.
pub(super) fn perform(op: Op, ticket: &mut Ticket) -> io::Result<Done> {
    perform_with(op, ticket, read_from)
}

/// As [`perform`]; `read_bytes` reads the bytes at an offset and of a length.
pub(super) fn perform_with(
    op: Op,
    ticket: &mut Ticket,
    read_bytes: impl FnOnce(&OpenFile, u64, usize, &mut Ticket) -> io::Result<ReadBytes>,
) -> io::Result<Done> {
    match op {
        Op::Open(open) => {
            let opening = Opening::start(&open, ticket.devices())?;
            let Some((offset, len)) = opening.first_range(open.first, ticket) else {
                return Ok(Done::Open(opening.unread()));
            };
            match read_bytes(opening.chosen(), offset, len, ticket)? {
                ReadBytes::Ready(ready) => opening.read(ready, offset).map(Done::Open),
                ReadBytes::InPageCache(len) => Ok(Done::Open(opening.cached(offset, len))),
            }
        }
        Op::Read(Read { file, offset, len }) => match read_bytes(&file, offset, len, ticket)? {
            ReadBytes::Ready(ready) => read(&file, ready, offset).map(Done::Read),
            ReadBytes::InPageCache(len) => {
                let now = file.refresh()?;
                let held = usize::try_from(now.size.saturating_sub(offset)).unwrap_or(len);
                let len = len.min(held);
                Ok(Done::Read((Ready::PageCache { file, offset, len }, now)))
            }
        },
        Op::List(op) => op.reader.read(op.into.take()).map(Done::List),
        Op::FreeSpace(op) => op.root.free_space().map(Done::FreeSpace),
        Op::CheckRoot(op) => op.root.check(ticket.devices()).map(Done::CheckRoot),
        Op::Create(op) => create_file(&op).map(Arc::new).map(Done::Create),
        Op::Write(op) => {
            write::write(&op.file, &op.bytes, op.offset)?;
            Ok(Done::Write(op.bytes.len()))
        }
        Op::Append(op) => {
            let (offset, len) = (write::append(&op.file, &op.bytes)?, op.bytes.len());
            Ok(Done::Append(Appended { offset, len }))
        }
        Op::Sync(op) => Ok(write::sync(&op.file).map(Done::Sync)?),
        Op::Link(op) => link::link(&op.file, &op.root, &op.path).map(Done::Link),
        Op::Rename(op) => link::rename(&op.root, &op.from, &op.to, op.replace).map(Done::Rename),
        Op::Unlink(op) => unlink::unlink(&op.root, &op.path, op.file.as_deref()).map(Done::Unlink),
        Op::MakeFolder(op) => folder::make(&op.root, &op.path, op.mode).map(Done::MakeFolder),
        Op::RemoveFolder(op) => folder::remove(&op.root, &op.path).map(Done::RemoveFolder),
    }
}

fn create_file(op: &Create) -> io::Result<OpenFile> {
    let created = match op {
        Create::Spooled { spool } => spool.create(),
        Create::Nameless { root, folder, mode } => create::nameless(root, folder, *mode),
        Create::Named { root, path, mode } => create::named(root, path, *mode),
        Create::Appended { root, path, mode } => create::appended(root, path, *mode),
    };
    created.inspect(OpenFile::wait_for_room)
}

/// An open in progress: the files are open, and nothing has been read yet.
pub(super) struct Opening {
    file: OpenFile,
    variants: Vec<Option<OpenFile>>,
    /// The variant to read from; `None` for the file itself.
    choice: Option<usize>,
    not_removed: Option<io::Error>,
}

impl Opening {
    /// Opens the file and those of its variants that may be sent in its place.
    pub(super) fn start(open: &Open, known: KnownDevices<'_>) -> io::Result<Opening> {
        let mut file = look_up(open, &open.path, known)?;
        if matches!(open.lookup, Lookup::NoSymlinks | Lookup::Consume) {
            unlink::check_kind(&file)?;
        }
        let mut not_removed = None;
        if open.lookup == Lookup::Consume {
            not_removed = unlink::unlink(&open.root, &open.path, Some(&file)).err();
            // The removal changes the metadata of the file, but not its content.
            file.meta = file.refresh()?;
        }
        file.disable_kernel_readahead();
        let paths = open.variants.paths.iter();
        let variants = paths.map(|path| variant(open, path, &file, known));
        let variants = variants.collect::<io::Result<Vec<_>>>()?;
        let mut preferred = variants.iter().take(open.variants.preferred);
        Ok(Opening {
            choice: preferred.position(Option::is_some),
            variants,
            file,
            not_removed,
        })
    }

    /// The file to read from.
    pub(super) fn chosen(&self) -> &OpenFile {
        let variant = self
            .choice
            .and_then(|number| self.variants[number].as_ref());
        variant.unwrap_or(&self.file)
    }

    fn chosen_mut(&mut self) -> &mut OpenFile {
        let variant = self
            .choice
            .and_then(|number| self.variants[number].as_mut());
        variant.unwrap_or(&mut self.file)
    }

    /// Offset and length of the bytes to read: `first`, cut at the end of the file. Reserves more memory in
    /// `ticket` if all of the file is read.
    pub(super) fn first_range(
        &self,
        first: Option<First>,
        ticket: &mut Ticket,
    ) -> Option<(u64, usize)> {
        let meta = self.chosen().meta;
        let First {
            offset,
            len,
            len_max,
        } = first.filter(|_| meta.kind == Kind::Regular)?;
        let left = meta.size.saturating_sub(offset);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let all = left > len && left <= len_max && ticket.try_grow(offset, left);
        Some((offset, if all { left } else { left.min(len) }))
    }

    /// The outcome if nothing is read.
    pub(super) fn unread(self) -> Opened {
        self.done(|_| None, true)
    }

    /// The outcome if `len` bytes from `offset` are to be sent from the page cache.
    fn cached(self, offset: u64, len: usize) -> Opened {
        let first = |file: &Arc<OpenFile>| Ready::PageCache {
            file: Arc::clone(file),
            offset,
            len,
        };
        self.done(|file| Some(first(file)), true)
    }

    /// The outcome after `ready` was read from `offset`. Updates the metadata.
    pub(super) fn read(mut self, mut ready: Ready, offset: u64) -> io::Result<Opened> {
        let file = self.chosen_mut();
        file.was_read();
        let before = file.meta;
        file.meta = file.refresh()?;
        ready.truncate(read::held(offset, &before, &file.meta));
        let stable = file.meta.same_version(&before);
        Ok(self.done(|_| Some(ready), stable))
    }

    fn done(self, first: impl FnOnce(&Arc<OpenFile>) -> Option<Ready>, stable: bool) -> Opened {
        let file = Arc::new(self.file);
        let variants: Vec<_> = self
            .variants
            .into_iter()
            .map(|variant| variant.map(Arc::new))
            .collect();
        let chosen = self.choice.and_then(|number| variants[number].as_ref());
        Opened {
            first: first(chosen.unwrap_or(&file)),
            file,
            variants,
            stable,
            not_removed: self.not_removed,
        }
    }
}

/// Opens `path` as `open` says.
fn look_up(open: &Open, path: &CStr, known: KnownDevices<'_>) -> io::Result<OpenFile> {
    let opened = match open.lookup {
        Lookup::Shared | Lookup::Fresh => open.root.open_waiting(path, known),
        Lookup::NoSymlinks | Lookup::Consume => open.root.open_no_symlinks(path, known),
    };
    opened.inspect(OpenFile::wait_for_room)
}

/// The file at `path`, if it may be sent in place of `file`.
fn variant(
    open: &Open,
    path: &CStr,
    file: &OpenFile,
    known: KnownDevices<'_>,
) -> io::Result<Option<OpenFile>> {
    if file.meta.kind != Kind::Regular {
        return Ok(None);
    }
    let variant = accept_variant(look_up(open, path, known), &file.meta)?;
    variant.iter().for_each(OpenFile::disable_kernel_readahead);
    Ok(variant)
}

/// The outcome of a read of `ready` from `offset`.
pub(super) fn read(file: &OpenFile, mut ready: Ready, offset: u64) -> io::Result<(Ready, Meta)> {
    file.was_read();
    let now = file.refresh()?;
    ready.truncate(read::held(offset, &file.meta, &now));
    Ok((ready, now))
}

/// Reads `len` bytes from `offset`, through the page cache or past it.
fn read_from(
    file: &OpenFile,
    offset: u64,
    len: usize,
    ticket: &mut Ticket,
) -> io::Result<ReadBytes> {
    if let Some(read) = read_directly(file, offset, len, ticket)? {
        return Ok(read);
    }
    if ticket.takes_references(file)
        && let Some(read) = read_to_pipe(file, offset, len, ticket, |pipe| pipe.refer(file, len))?
    {
        return Ok(read);
    }
    read_through(file, offset, len, ticket)
}

/// Has `fill` read all of `file` into a pipe. `None` if other bytes are wanted, and if that is not possible now.
fn read_to_pipe(
    file: &OpenFile,
    offset: u64,
    len: usize,
    ticket: &mut Ticket,
    fill: impl FnOnce(&mut EmptyPipe) -> Result<(), Errno>,
) -> io::Result<Option<ReadBytes>> {
    let is_whole = offset == 0 && len as u64 == file.meta.size;
    let Some(mut pipe) = is_whole.then(|| EmptyPipe::take(len)).flatten() else {
        return Ok(None);
    };
    match fill(&mut pipe) {
        Ok(()) => {
            let piped = pipe.into_piped(len, ticket.take_memory());
            Ok(Some(ReadBytes::Ready(Ready::Piped(piped))))
        }
        Err(Errno::IO) => Err(Errno::IO.into()),
        // A sandbox refuses the call, the kernel has no pages for it, or the file system does not know it. A read into
        // memory finds out whether the file can be read.
        Err(_) => Ok(None),
    }
}

/// Reads `len` bytes from `offset` into memory, through the page cache.
pub(super) fn read_through(
    file: &OpenFile,
    offset: u64,
    len: usize,
    ticket: &mut Ticket,
) -> io::Result<ReadBytes> {
    let mut buffer = Buffer::new(ticket.take_memory(), len);
    read::fill(file, &mut buffer, offset)?;
    Ok(ReadBytes::Ready(Ready::Bytes(buffer)))
}

/// Reads past the page cache, if that is decided and the file allows it. Call it once.
pub(super) fn read_directly(
    file: &OpenFile,
    offset: u64,
    len: usize,
    ticket: &mut Ticket,
) -> io::Result<Option<ReadBytes>> {
    if ticket.has_new_file() {
        return match ticket.decide_direct(file, offset, len) {
            true => read_new_directly(file, offset, len, ticket).map(Some),
            false => Ok(None),
        };
    }
    let Some(fd) = ticket.take_direct_fd(file, offset, len) else {
        return Ok(None);
    };
    let mut buffer = Buffer::for_blocks(ticket.take_memory(), offset, len);
    let filled = read::fill_blocks(fd, &mut buffer, offset, 0);
    complete(file, buffer, offset, filled, ticket).map(Some)
}

/// As [`read_directly`], with the descriptor of a file that has no other user yet: into a pipe, if the requester takes
/// that and it holds all of the file.
fn read_new_directly(
    file: &OpenFile,
    offset: u64,
    len: usize,
    ticket: &mut Ticket,
) -> io::Result<ReadBytes> {
    let fill = |pipe: &mut EmptyPipe| file.with_own_direct_fd(|fd| pipe.fill(fd, len));
    if ticket.takes_pipes()
        && piped::has_pages_of_its_own()
        && let Some(read) = read_to_pipe(file, offset, len, ticket, fill)?
    {
        return Ok(read);
    }
    let mut buffer = Buffer::for_blocks(ticket.take_memory(), offset, len);
    let filled = file.with_own_direct_fd(|fd| read::fill_blocks(fd, &mut buffer, offset, 0));
    complete(file, buffer, offset, filled, ticket)
}

/// Reads through the page cache what is missing in `buffer` after a direct read was `filled`: because it was refused, or
/// because it ended short.
fn complete(
    file: &OpenFile,
    mut buffer: Buffer,
    offset: u64,
    filled: Result<(), Errno>,
    ticket: &mut Ticket,
) -> io::Result<ReadBytes> {
    match filled {
        Ok(()) => {}
        Err(Errno::INVAL) => ticket.direct_refused(file),
        Err(errno) => return Err(errno.into()),
    }
    read::fill(file, &mut buffer, offset)?;
    Ok(ReadBytes::Ready(Ready::Bytes(buffer)))
}
