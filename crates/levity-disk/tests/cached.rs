//! Calls that an event loop may make on a root without blocking.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use levity_disk::left_root;
use levity_disk::{Inline, Kind, OpenFile, Root, Symlinks};
use tempfile::TempDir;

fn tree() -> (TempDir, Arc<Root>) {
    let tree = tempfile::tempdir().unwrap();
    fs::write(tree.path().join("file"), [7; 100_000]).unwrap();
    let root = Root::open(tree.path(), Symlinks::Beneath).unwrap();
    (tree, root)
}

#[test]
fn a_file_just_written_opens_at_once() {
    let (tree, root) = tree();
    let file = root.open_cached(c"file").unwrap();
    assert_eq!(
        (file.meta().kind, file.meta().size),
        (Kind::Regular, 100_000)
    );
    assert_eq!(file.meta().device, root.device());
    let directory = root.open_cached(c".").unwrap();
    assert_eq!(directory.meta().kind, Kind::Directory);
    assert_eq!(root.path(), fs::canonicalize(tree.path()).unwrap());
}

fn inline(file: &OpenFile) -> Inline<'_> {
    file.inline().expect("it was opened without waiting")
}

#[test]
fn a_file_that_is_held_is_opened_again_only_after_a_change() {
    type Change = fn(&Path);
    let changes: [Change; 4] = [
        |path| {
            fs::write(path.with_extension("new"), [7; 100_000]).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        },
        |path| fs::write(path, "shorter").unwrap(),
        // Another name may be the last one later, and then another entry.
        |path| fs::hard_link(path, path.with_extension("link")).unwrap(),
        |path| {
            fs::rename(path, path.with_extension("moved")).unwrap();
            symlink("file.moved", path).unwrap();
        },
    ];
    for change in changes {
        let (tree, root) = tree();
        let path = fs::canonicalize(tree.path()).unwrap().join("file");
        let held = root.open_cached(c"file").unwrap();
        let again = root.open_cached_again(c"file", &held).unwrap();
        assert!(Arc::ptr_eq(&again, &held));
        assert_eq!(flags_of_open(&path).len(), 1, "the second one is closed");
        change(&path);
        let again = root.open_cached_again(c"file", &held).unwrap();
        assert!(!Arc::ptr_eq(&again, &held));
        assert_eq!(again.meta().size, fs::metadata(&path).unwrap().len());
        fs::remove_file(&path).unwrap();
        assert!(root.open_cached_again(c"file", &again).is_err());
    }
}

/// How this process has `path` open, of the flags that cannot be set: those of each descriptor.
fn flags_of_open(path: &Path) -> Vec<rustix::fs::OFlags> {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let of_path = open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|link| *link == *path));
    let flags = of_path.map(|fd| {
        let info = Path::new("/proc/self/fdinfo").join(fd.file_name());
        let info = fs::read_to_string(info).unwrap();
        let octal = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let bits = u32::from_str_radix(octal.unwrap().trim(), 8).unwrap();
        rustix::fs::OFlags::from_bits_retain(bits) & rustix::fs::OFlags::PATH
    });
    flags.collect()
}

#[test]
fn absence_is_remembered() {
    let (tree, root) = tree();
    // The first look-up of a name may have to read the directory.
    assert!(File::open(tree.path().join("absent")).is_err());
    let error = root.open_cached(c"absent").unwrap_err();
    let remembered = match &*root.file_system().name {
        "tmpfs" => ErrorKind::WouldBlock,
        _ => ErrorKind::NotFound,
    };
    assert_eq!(error.kind(), remembered);
}

#[test]
fn paths_out_of_the_root_are_left_to_the_pool() {
    let (tree, root) = tree();
    symlink("/etc/passwd", tree.path().join("out")).unwrap();
    for path in [c"..", c"../x", c"out", c"/etc/passwd"] {
        let error = root.open_cached(path).unwrap_err();
        assert!(
            error.kind() == ErrorKind::WouldBlock || left_root(&error),
            "{error}"
        );
    }
}

/// Pipes and devices get a descriptor that does not hold them open.
#[test]
fn special_files_are_recognised_at_once() {
    let (tree, root) = tree();
    let pipe = tree.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = UnixListener::bind(tree.path().join("socket")).unwrap();
    for name in [c"pipe", c"socket"] {
        let other = root.open_cached(name).unwrap();
        assert_eq!(other.meta().kind, Kind::Other);
        let inode = inline(&other).refresh().unwrap().inode;
        assert_eq!(inode, other.meta().inode);
        let flags = flags_of_open(&tree.path().join(name.to_str().unwrap()));
        assert_eq!(flags, [rustix::fs::OFlags::PATH]);
    }
}

/// Another mount may be remote, where even an open of a cached file blocks.
#[test]
fn mounts_are_not_crossed() {
    let root = Root::open(Path::new("/"), Symlinks::Beneath).unwrap();
    assert!(Path::new("/proc/version").exists());
    let error = root.open_cached(c"proc/version").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
fn cached_bytes_are_appended() {
    let (_tree, root) = tree();
    let file = root.open_cached(c"file").unwrap();
    let mut bytes = b"head".to_vec();
    if !root.file_system().nowait {
        let error = inline(&file).read_cached(&mut bytes, 100, 0).unwrap_err();
        assert_eq!(
            (error.kind(), &*bytes),
            (ErrorKind::WouldBlock, &b"head"[..])
        );
        return;
    }
    fs::read(root.path().join("file")).unwrap();
    let (count, now) = inline(&file).read_cached(&mut bytes, 100, 99_950).unwrap();
    assert_eq!((count, now), (50, file.meta()));
    assert_eq!(&bytes[..4], b"head");
    assert_eq!(bytes[4..], [7; 50]);
    assert_eq!(
        inline(&file)
            .read_cached(&mut bytes, 100, 100_000)
            .unwrap()
            .0,
        0
    );
}

/// Linux 5.9 and 5.10 may report the end of the file too early, so an early end is not trusted.
#[test]
fn an_early_end_is_for_the_pool_to_judge() {
    let (tree, root) = tree();
    let file = root.open_cached(c"file").unwrap();
    File::create(tree.path().join("file")).unwrap();
    let error = inline(&file)
        .read_cached(&mut Vec::new(), 100, 0)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

/// Bytes that are cut off during a read are never returned as zeroes.
#[test]
fn cached_bytes_are_those_of_the_file() {
    const FULL: usize = 64 * 1024;
    let (tree, root) = tree();
    if !root.file_system().nowait {
        return;
    }
    let path = tree.path().join("ones");
    let mut seen = 0_usize;
    for _ in 0..20 {
        fs::write(&path, [1; FULL]).unwrap();
        let file = root.open_cached(c"ones").unwrap();
        let writer = File::options().write(true).open(&path).unwrap();
        std::thread::scope(|scope| {
            let truncating = scope.spawn(move || {
                for size in (1..FULL as u64).rev().step_by(61) {
                    writer.set_len(size).unwrap();
                }
            });
            while !truncating.is_finished() {
                let mut bytes = vec![2];
                match inline(&file)
                    .read_cached(&mut bytes, FULL, 0)
                    .map(|(count, _)| count)
                {
                    Ok(count) => assert_eq!(bytes.len(), 1 + count),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                assert!(!bytes.contains(&0));
                seen += bytes.len() - 1;
            }
        });
    }
    assert!(seen > 0);
}

#[test]
fn a_root_is_a_directory_or_a_file() {
    let error = Root::open(Path::new("/dev/null"), Symlinks::Beneath).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let error = Root::open(Path::new("/absent"), Symlinks::Beneath).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
