//! What the server writes to, and the folders that rules of the kernel have to name for it.
//!
//! A rule is for a folder, whatever its name. So that a folder can be swapped for another one without a restart, by
//! renaming or by a link, there are rules for the folders that have those names as well.

use std::fs;
use std::io;
use std::iter;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf, absolute};

use landlock::{ABI, AccessFs, BitFlags, make_bitflags};
use levity_config::account::Usage;
use levity_config::address::Address;
use levity_config::swap::{holders, names_of};
use levity_config::{AccessLog, Config, Location, Site};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::process::admin::control;
use crate::tls::folder::{has_state, state_folder};

/// Device and inode.
pub type Id = (u64, u64);

/// Something that the server writes to.
#[derive(Debug)]
pub struct Written {
    /// Absolute.
    pub path: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A folder with everything in it.
    Folder,
    /// A folder from which files are removed.
    Emptied,
    /// A file that is made and appended to, or a device.
    Log,
    /// A Unix socket, which may be left from another process.
    Socket,
}

/// A folder, or a device, for a rule.
#[derive(Debug)]
pub struct Folder {
    /// Opened with `O_PATH`.
    pub file: OwnedFd,
    /// Which it is.
    pub id: Id,
    /// What is done in it.
    pub access: BitFlags<AccessFs>,
}

/// What a server with `config` writes to.
pub fn by(config: &Config) -> Vec<Written> {
    let locations = || config.sites.iter().flat_map(Site::locations);
    let uploads = locations().filter(|location| location.upload.is_some());
    let emptied = config.upstreams.iter();
    let emptied = emptied.flat_map(|upstream| &upstream.temporary_roots);
    let logs = locations().filter_map(|location: &Location| location.log.as_ref());
    let logs = iter::once(&config.log).chain(logs);
    let logs = logs.filter_map(|log| match &log.access {
        AccessLog::File(path) => Some(path),
        AccessLog::Off | AccessLog::Stdout => None,
    });
    let pages = config.admin.iter().map(|admin| &admin.listen);
    let sockets = config.listen.iter().map(|listen| &listen.address);
    let sockets = sockets.chain(pages).filter_map(|address| match address {
        Address::Unix(path) => Some(path.clone()),
        Address::Tcp(_) => None,
    });
    let folders = uploads.filter_map(|location| location.root.clone());
    let folders = folders
        .chain(config.disk.variants.clone())
        .chain(config.mailbox_store.folder.clone())
        .chain(spool(config))
        .chain(state_folder(config).ok().filter(|_| has_state(config)));
    let control = control::path(config.control.as_deref());
    let mut all = Vec::new();
    all.extend(folders.map(|path| Written::new(&path, Kind::Folder)));
    all.extend(emptied.map(|path| Written::new(path, Kind::Emptied)));
    all.extend(logs.map(|path| Written::new(path, Kind::Log)));
    all.extend(
        sockets
            .chain(control)
            .map(|path| Written::new(&path, Kind::Socket)),
    );
    all
}

/// What a server may have to write to whatever its configuration is, and after a reload.
pub fn always(config: &Config) -> impl Iterator<Item = Written> {
    let folders = iter::once(config.disk.spool.clone()).chain(state_folder(config).ok());
    let folders = folders.map(|path| Written::new(&path, Kind::Folder));
    folders.chain([Written::new("/dev/null".as_ref(), Kind::Log)])
}

fn spool(config: &Config) -> Option<PathBuf> {
    let mut upstreams = config.upstreams.iter();
    let is_needed = upstreams.any(|upstream| upstream.buffer_requests);
    is_needed.then(|| config.disk.spool.clone())
}

impl Written {
    fn new(path: &Path, kind: Kind) -> Self {
        // Those of the command line may be relative.
        let path = absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { path, kind }
    }

    /// How the server uses the path.
    pub fn usage(&self) -> Usage {
        match self.kind {
            Kind::Folder => Usage::Fill,
            Kind::Emptied => Usage::Empty,
            Kind::Log => Usage::Append,
            Kind::Socket => Usage::Bind,
        }
    }

    fn access(&self) -> BitFlags<AccessFs> {
        match self.kind {
            Kind::Folder => {
                make_bitflags!(AccessFs::{WriteFile | RemoveFile | RemoveDir | MakeReg | MakeDir | Refer})
            }
            Kind::Emptied => AccessFs::RemoveFile.into(),
            Kind::Log => AccessFs::WriteFile | AccessFs::MakeReg,
            Kind::Socket => AccessFs::MakeSock | AccessFs::RemoveFile,
        }
    }

    /// The folders that have to be permitted, as far as they are there, and those for a swap. Blocks.
    pub fn open(&self) -> Vec<Folder> {
        let mut paths = self.paths();
        // The folders above those of logs and sockets hold more than these: web roots, or what other programs write.
        if matches!(self.kind, Kind::Folder | Kind::Emptied) {
            paths.extend(holders(&self.path));
        }
        paths.sort_unstable();
        paths.dedup();
        let opened = paths.iter().map(|path| Folder::open(path, self.access()));
        opened.filter_map(Result::ok).collect()
    }

    /// The folders that have to be permitted; in place of one that is not there, the one in which it would be made.
    /// Blocks.
    pub fn needed(&self) -> Vec<Folder> {
        let access = self.access();
        let open = |path: PathBuf| {
            let mut ancestors = path.ancestors();
            ancestors.find_map(|path| Folder::open(path, access).ok())
        };
        self.paths().into_iter().filter_map(open).collect()
    }

    /// The folder, or those in which a file and links to it are made. A device is in one with others, so it stands for
    /// itself.
    fn paths(&self) -> Vec<PathBuf> {
        let is_device = |path: &Path| {
            let kind = fs::metadata(path).map(|meta| meta.file_type());
            kind.is_ok_and(|kind| kind.is_char_device() || kind.is_block_device())
        };
        match self.kind {
            Kind::Folder | Kind::Emptied => vec![self.path.clone()],
            Kind::Log if is_device(&self.path) => vec![self.path.clone()],
            Kind::Log | Kind::Socket => {
                let names = names_of(&self.path);
                let folders = names.iter().filter_map(|name| name.parent());
                folders.map(Path::to_owned).collect()
            }
        }
    }
}

impl Folder {
    fn open(path: &Path, access: BitFlags<AccessFs>) -> io::Result<Self> {
        let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&file)?;
        let access = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => access,
            _ => access & AccessFs::from_file(ABI::V2),
        };
        let id = (stat.st_dev, stat.st_ino);
        Ok(Self { file, id, access })
    }

    /// It and all above it, as the kernel goes up: also out of mounts. Blocks.
    pub fn above(&self) -> impl Iterator<Item = Id> {
        let up = |from: &OwnedFd| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let above = openat(from, "..", flags, Mode::empty()).ok()?;
            let stat = fstat(&above).ok()?;
            Some((above, (stat.st_dev, stat.st_ino)))
        };
        let first = up(&self.file);
        let folders = iter::successors(first, move |(file, id)| {
            // The top is above itself.
            up(file).filter(|(_, above)| above != id)
        });
        iter::once(self.id).chain(folders.map(|(_, id)| id))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_folders_of_all_names_on_the_way_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = fs::canonicalize(folder.path()).expect("a path");
        fs::create_dir_all(top.join("data/releases/1/files")).expect("folders");
        fs::create_dir(top.join("site")).expect("a folder");
        symlink(top.join("data/releases/1"), top.join("site/current")).expect("a link");
        let path = top.join("site/current/files");
        let opened = Written::new(&path, Kind::Folder).open();
        let mut found: Vec<_> = opened.iter().map(|folder| folder.id).collect();
        found.sort_unstable();
        found.dedup();
        let id = |name: &str| {
            let opened = Folder::open(&top.join(name), BitFlags::empty());
            opened.expect("a folder").id
        };
        let names = [
            "data/releases/1/files",
            "data/releases/1",
            "data/releases",
            "site",
        ];
        let mut expected = names.map(id);
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    /// The folder with all devices stays closed.
    #[test]
    fn a_device_stands_for_itself() {
        let log = Written::new("/dev/full".as_ref(), Kind::Log);
        let opened = log.open();
        let own = Folder::open("/dev/full".as_ref(), log.access()).expect("a device");
        assert_eq!(opened.len(), 1);
        assert_eq!(
            (opened[0].id, opened[0].access),
            (own.id, AccessFs::WriteFile.into())
        );
        let found: Vec<_> = log.needed().iter().map(|folder| folder.id).collect();
        assert_eq!(found, [own.id]);
    }

    #[test]
    fn a_circle_of_links_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("round");
        symlink("round", &path).expect("a link");
        for kind in [Kind::Folder, Kind::Log] {
            let opened = Written::new(&path, kind).open();
            assert_eq!(opened.len(), 1, "{kind:?}: the folder of the link");
        }
    }
}
