//! What a crash of the machine leaves of changes, by simulation.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use levity_disk::engine::crash::{Files, Recording};
use levity_disk::{Class, Disk, OpenFile, op};

use crate::harness::*;

/// The content that a file is to have: three writes.
fn complete() -> Vec<u8> {
    pattern(1, 30_000)
}

fn write_all(disk: &Disk, file: &Arc<OpenFile>) {
    for piece in complete().chunks(10_000) {
        try_append(disk, file, piece).unwrap();
    }
}

fn sync(disk: &Disk, file: &Arc<OpenFile>) {
    let waiting = submit(disk, sync_op(file), Class::Later);
    waiting.result().unwrap();
}

/// The states of the file `name` after crashes: `None` where it is absent. Each with the steps made before.
fn states(recording: &Recording, name: &str) -> Vec<(usize, Option<Vec<u8>>)> {
    let mut states = Vec::new();
    recording.each_crash(|made, files: &Files| {
        let state = (made, files.get(Path::new(name)).cloned());
        if !states.contains(&state) {
            states.push(state);
        }
    });
    states
}

/// Whether the last crash, after all steps, may leave `state`.
fn may_end(
    recording: &Recording,
    states: &[(usize, Option<Vec<u8>>)],
    state: Option<&[u8]>,
) -> bool {
    let mut last = states.iter().filter(|(made, _)| *made == recording.steps());
    last.any(|(_, found)| found.as_deref() == state)
}

/// What a store does: no crash leaves a torn file under the final name, and none takes away what is done.
#[test]
fn the_ordinary_sequence_tears_no_file() {
    let rig = Rig::new("simulated");
    fs::write(rig.path("final"), "old").unwrap();
    let (disk, root) = (rig.disk(), rig.root());
    let folder = open(&disk, &root, ".");
    let recording = Recording::start(rig.tree.path()).unwrap();
    let file = ask(&disk, named_op(&root, "new")).unwrap();
    write_all(&disk, &file);
    sync(&disk, &file);
    ask(&disk, rename_op(&root, "new", "final", true)).unwrap();
    sync(&disk, &folder);
    assert_eq!(recording.steps(), 7);
    let states = states(&recording, "final");
    let is_whole = |content: &[u8]| content == b"old" || content == complete();
    for (made, content) in &states {
        let content = content.as_deref();
        assert!(content.is_some_and(is_whole), "after {made}: {content:?}");
    }
    assert!(states.contains(&(6, Some(b"old".to_vec()))));
    assert!(states.contains(&(6, Some(complete()))));
    assert!(may_end(&recording, &states, Some(&complete())));
    assert!(!may_end(&recording, &states, Some(b"old")));
}

#[test]
fn the_same_without_a_name_before() {
    let rig = Rig::new("simulated");
    let (disk, root) = (rig.disk(), rig.root());
    fs::create_dir(rig.path("folder")).unwrap();
    let folder = open(&disk, &root, "folder");
    let recording = Recording::start(rig.tree.path()).unwrap();
    let file = ask(&disk, nameless_op(&root, "folder")).unwrap();
    write_all(&disk, &file);
    sync(&disk, &file);
    ask(&disk, link_op(&file, &root, "folder/final")).unwrap();
    sync(&disk, &folder);
    let states = states(&recording, "folder/final");
    let whole = |content: &Option<Vec<u8>>| content.as_ref().is_none_or(|it| *it == complete());
    assert!(states.iter().all(|(_, content)| whole(content)));
    assert!(may_end(&recording, &states, Some(&complete())));
    assert!(!may_end(&recording, &states, None));
}

/// The simulation finds what goes wrong without the syncs.
#[test]
fn without_a_sync_of_the_file_it_may_be_torn() {
    let rig = Rig::new("simulated");
    let (disk, root) = (rig.disk(), rig.root());
    let folder = open(&disk, &root, ".");
    let recording = Recording::start(rig.tree.path()).unwrap();
    let file = ask(&disk, named_op(&root, "new")).unwrap();
    write_all(&disk, &file);
    ask(&disk, rename_op(&root, "new", "final", true)).unwrap();
    sync(&disk, &folder);
    let states = states(&recording, "final");
    let zeroes = vec![0; complete().len()];
    let mut hole = complete();
    hole[10_000..20_000].fill(0);
    let torn = &complete()[..15_000];
    for state in [b"", &zeroes[..], &hole, torn, &complete()] {
        assert!(may_end(&recording, &states, Some(state)));
    }
}

#[test]
fn without_a_sync_of_the_folder_the_name_may_be_missing() {
    let rig = Rig::new("simulated");
    let (disk, root) = (rig.disk(), rig.root());
    let recording = Recording::start(rig.tree.path()).unwrap();
    let file = ask(&disk, nameless_op(&root, ".")).unwrap();
    write_all(&disk, &file);
    sync(&disk, &file);
    ask(&disk, link_op(&file, &root, "final")).unwrap();
    let states = states(&recording, "final");
    assert!(may_end(&recording, &states, None));
    assert!(may_end(&recording, &states, Some(&complete())));
}

#[test]
fn what_was_written_after_a_sync_may_be_lost() {
    let rig = Rig::new("simulated");
    let (disk, root) = (rig.disk(), rig.root());
    let folder = open(&disk, &root, ".");
    let recording = Recording::start(rig.tree.path()).unwrap();
    let log = ask(&disk, named_op(&root, "log")).unwrap();
    try_append(&disk, &log, b"synced").unwrap();
    sync(&disk, &log);
    sync(&disk, &folder);
    let synced = recording.steps();
    try_append(&disk, &log, b"late").unwrap();
    ask(&disk, named_op(&root, "later")).unwrap();
    let log = states(&recording, "log");
    let after = log.iter().filter(|(made, _)| *made >= synced);
    let keeps = |content: &Option<Vec<u8>>| content.as_ref().unwrap().starts_with(b"synced");
    assert!(after.clone().count() > 1 && after.clone().all(|(_, content)| keeps(content)));
    for end in ["", "la", "\0\0\0\0", "late"] {
        let content = format!("synced{end}");
        assert!(may_end(&recording, &log, Some(content.as_bytes())), "{end}");
    }
    let later = states(&recording, "later");
    assert!(may_end(&recording, &later, None) && may_end(&recording, &later, Some(b"")));
}

/// A removal may be undone, a failed change is none, and a sync that fails makes nothing durable.
#[test]
fn only_what_was_done_counts() {
    let rig = Rig::new("simulated:eio_syncs=1");
    fs::write(rig.path("kept"), "kept").unwrap();
    let (disk, root) = (rig.disk(), rig.root());
    let recording = Recording::start(rig.tree.path()).unwrap();
    assert!(ask(&disk, rename_op(&root, "absent", "kept", true)).is_err());
    assert!(ask(&disk, named_op(&root, "kept")).is_err());
    let file = ask(&disk, named_op(&root, "new")).unwrap();
    try_append(&disk, &file, b"new").unwrap();
    assert!(
        submit(&disk, sync_op(&file), Class::Later)
            .result()
            .is_err()
    );
    let unlink = op::Unlink {
        root: Arc::clone(&root),
        path: c"kept".to_owned(),
        file: None,
    };
    ask(&disk, unlink).unwrap();
    assert_eq!(recording.steps(), 3);
    let new = states(&recording, "new");
    assert!(
        [None, Some(&b""[..]), Some(b"new")]
            .iter()
            .all(|it| may_end(&recording, &new, *it))
    );
    let kept = states(&recording, "kept");
    assert!(
        [None, Some(&b"kept"[..])]
            .iter()
            .all(|it| may_end(&recording, &kept, *it))
    );
    // Other folders and later changes are not recorded.
    let other = Rig::new("simulated");
    ask(&disk, named_op(&other.root(), "elsewhere")).unwrap();
    assert_eq!(recording.steps(), 3);
}
