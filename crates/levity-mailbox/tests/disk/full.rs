//! Full disks.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use levity_mailbox::{Appended, StoreError};
use tempfile::TempDir;

use crate::harness::*;

/// A small file system in memory, which is gone in the end.
struct Small(TempDir);

impl Small {
    /// `None` without the privilege to mount.
    fn mount(size: &str) -> Option<Small> {
        let folder = folder();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then(|| Small(folder))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("messages")
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: files are closed by threads of the disk.
        let unmount = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmount.is_ok_and(|status| status.success()));
    }
}

/// An open store on a file system of `size`, of which messages leave `free_bytes_min` free; `None` where nothing can be mounted.
fn small(size: &str, free_bytes_min: u64) -> Option<(Small, Rig)> {
    let Some(small) = Small::mount(size) else {
        eprintln!("file systems cannot be mounted here");
        return None;
    };
    let mut rig = Rig::of(&small.path());
    rig.options.free_bytes_min = free_bytes_min;
    rig.open_store();
    Some((small, rig))
}

/// Appends until the disk is full, and returns the texts that were acknowledged.
fn fill(rig: &mut Rig, of: &str, is_durable: bool) -> Vec<String> {
    let settings = settings_with(|settings| {
        settings.is_durable = is_durable;
        settings.messages_max = 1_000_000;
        settings.bytes_max = 1 << 30;
    });
    let mut texts = Vec::new();
    for number in 0.. {
        let texts_of_call: Vec<_> = (0..3)
            .map(|part| format!("{:>1000}", number * 3 + part))
            .collect();
        let append = |text: &String| append_of(&name(of), &settings, draft(text));
        let results = rig.append_all(texts_of_call.iter().map(append).collect());
        let mut is_full = false;
        for (text, result) in texts_of_call.into_iter().zip(results) {
            match result {
                Ok(Appended::New { .. }) => texts.push(text),
                Err(StoreError::Full(_)) => is_full = true,
                other => panic!("{other:?}"),
            }
        }
        if is_full {
            return texts;
        }
        assert!(texts.len() < 100_000, "it is never full");
    }
    unreachable!("it returns")
}

fn check(rig: &mut Rig, filled: &[(&str, Vec<String>)]) {
    for (of, texts) in filled {
        assert_eq!(&rig.texts(&name(of)), texts, "{of}");
    }
}

#[test]
fn a_full_disk_refuses_messages_and_goes_on_when_there_is_room() {
    let Some((_small, mut rig)) = small("96M", 8 << 20) else {
        return;
    };
    rig.append(&name("n"), &settings_with(|_| {}), "first");
    let filled = [
        ("d", fill(&mut rig, "d", true)),
        ("n", vec!["first".to_owned()]),
    ];
    assert!(filled[0].1.len() > 2000, "{}", filled[0].1.len());
    assert_eq!(fill(&mut rig, "n", false), Vec::<String>::new());
    // A box is not made for a message that is refused.
    assert_eq!(fill(&mut rig, "new", true), Vec::<String>::new());
    assert!(rig.look(&name("new")).is_none());
    check(&mut rig, &filled);
    let epochs = |rig: &mut Rig| ["d", "n"].map(|of| rig.look(&name(of)).map(|it| it.epoch));
    let before = epochs(&mut rig);
    // A start on a full disk.
    rig.reopen();
    check(&mut rig, &filled);
    assert_eq!(epochs(&mut rig), before);
    assert_eq!(
        rig.lines()
            .iter()
            .filter(|line| line.contains("down"))
            .count(),
        1
    );
}

#[test]
fn room_that_others_make_is_used() {
    let Some((small, mut rig)) = small("96M", 8 << 20) else {
        return;
    };
    let ballast: &Path = &small.0.path().join("ballast");
    fs::write(ballast, vec![1; 8 << 20]).unwrap();
    let texts = fill(&mut rig, "d", true);
    fs::remove_file(ballast).unwrap();
    rig.append(&name("e"), &durable(), "there is room");
    check(&mut rig, &[("d", texts)]);
    let lines = rig.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
}

/// Others have taken the last byte, also that which messages leave free: boxes can be removed, and messages expire.
#[test]
fn what_frees_space_needs_none() {
    let Some((small, mut rig)) = small("128M", 16 << 20) else {
        return;
    };
    let soon = SystemTime::now() + Duration::from_millis(300);
    for number in 0..100 {
        let mut draft = draft(&format!("{number:>1000}"));
        draft.deadline = Some(soon);
        rig.try_append(&name("over"), &durable(), draft).unwrap();
    }
    let texts = fill(&mut rig, "d", true);
    let ballast: &Path = &small.0.path().join("ballast");
    let mut file = fs::File::create(ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    assert_eq!(fill(&mut rig, "d", true), Vec::<String>::new());
    rig.until("messages expire", |rig| {
        rig.look(&name("over")).expect("a box").messages.is_empty()
    });
    check(&mut rig, &[("d", texts)]);
    // A start finds no space either, also not for what is in the log.
    rig.reopen();
    assert!(rig.remove(&name("d")));
    assert!(rig.look(&name("d")).is_none());
}
