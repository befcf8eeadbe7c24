use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use levity_disk::engine::crash::Recording;
use tokio::task;

use crate::message::request::Request;
use crate::rig::Rig;
use crate::route::RouteInput;
use crate::stores::uploads::related::RelatedUploads;
use crate::stores::uploads::store::{CHANGES_MAX, COUNT_AGE_MAX, FOLDER, UploadStore};

/// A file that was answered with success is there after a crash, and one that was not is as before or complete.
#[test]
fn no_crash_leaves_a_torn_file() {
    let rig = Rig::with_files("upload = { fsync = true }\n", &[("old", "old content")]);
    let folder = rig.root.path().join(FOLDER);
    std::fs::create_dir(folder).expect("a folder");
    let recording = Recording::start(rig.root.path()).expect("a recording");
    let uploads = [("old", "new content"), ("fresh", "fresh content")];
    let done = rig.run(async {
        let mut done = Vec::new();
        for (name, content) in uploads {
            let length = content.len();
            let request = format!(
                "PUT /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{content}"
            );
            let response = rig.ask(request).await;
            assert!(response.starts_with("HTTP/1.1 20"), "{response}");
            done.push(recording.steps());
        }
        done
    });
    let mut states = 0;
    recording.each_crash(|step, files| {
        let file = |name: &str| files.get(Path::new(name)).map(Vec::as_slice);
        let before = [Some(&b"old content"[..]), None];
        for (((name, content), done), before) in uploads.iter().zip(&done).zip(before) {
            let found = file(name);
            let is_new = found == Some(content.as_bytes());
            let is_before = found == before && step < *done;
            assert!(is_new || is_before, "{name} at {step}: {found:?}");
        }
        let is_known = |name: &Path| {
            name.starts_with(FOLDER) || uploads.iter().any(|(known, _)| name == Path::new(known))
        };
        assert!(files.keys().all(|name| is_known(name)), "{files:?}");
        states += 1;
    });
    assert!(states > done[1], "{states} states of {done:?} steps");
}

fn delete(name: &str) -> String {
    format!("DELETE /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

fn put(name: &str) -> String {
    format!("PUT /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1")
}

/// The uploads beneath the root of the site.
fn store(rig: &Rig) -> Arc<UploadStore> {
    let service = rig.worker.service();
    let request = Request::default();
    let location = service.route(b"a", b"/", RouteInput::of(&request));
    let files = location.and_then(|location| location.files.clone());
    let files = files.expect("files");
    let store = files.uploads.iter().find_map(RelatedUploads::of_folder);
    store.expect("uploads").clone()
}

/// While files are counted again, uploads neither wait for that nor leave tasks that do.
#[test]
fn uploads_start_one_count_and_no_more() {
    let rig = Rig::with_files("upload = { quota_bytes = \"1MiB\" }\n", &[]);
    let store = store(&rig);
    let count_grows_old = || store.counted(0, Instant::now() - COUNT_AGE_MAX);
    let has_recent_count = || store.has_recent_count(Instant::now()) == Some(true);
    rig.run(async {
        count_grows_old();
        let created = rig.ask(put("first")).await;
        assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
        while !has_recent_count() {
            task::yield_now().await;
        }
        count_grows_old();
        let counting = store.counting.lock().await;
        for name in ["a", "b", "c"] {
            let created = rig.ask(put(name)).await;
            assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
        }
        rig.worker.core.drained().await;
        assert!(!has_recent_count());
        drop(counting);
    });
    rig.assert_idle();
}

/// The first count may take long. Requests that wait for it are answered in time, and it goes on.
#[test]
fn the_first_count_keeps_nobody_waiting_for_long() {
    let keys = "upload = { quota_bytes = \"1MiB\" }\n[limits]\nio_timeout = \"500ms\"\n";
    let rig = Rig::with_files(keys, &[("before", "1")]);
    let store = store(&rig);
    rig.run(async {
        let counting = store.counting.lock().await;
        let late = rig.ask(put("late")).await;
        assert!(late.starts_with("HTTP/1.1 503 "), "{late}");
        assert!(late.contains("being counted"), "{late}");
        assert!(late.contains("Retry-After: "), "{late}");
        drop(counting);
        let created = rig.ask(put("first")).await;
        assert!(created.starts_with("HTTP/1.1 201 "), "{created}");
    });
    rig.assert_idle();
}

/// A change that does not end keeps its place. Without a place a change does not begin, and its client is told so.
#[test]
fn so_many_names_are_changed_at_a_time_and_no_more() {
    let keys = "upload = { methods = [\"DELETE\"] }\n[limits]\nio_timeout = \"500ms\"\n";
    let rig = Rig::with_files(keys, &[("held", "1"), ("last", "1"), ("more", "1")]);
    let store = store(&rig);
    let has = |name| rig.root.path().join(name).exists();
    rig.run(async {
        let held = store.names.lock(b"held").await;
        let waits = rig.ask(delete("held")).await;
        assert!(waits.starts_with("HTTP/1.1 503 "), "{waits}");
        assert!(waits.contains("may still be made"), "{waits}");
        let others = store.changing.acquire_many(CHANGES_MAX as u32 - 2).await;
        assert_eq!(store.changing.available_permits(), 1);
        let last = rig.ask(delete("last")).await;
        assert!(last.starts_with("HTTP/1.1 204 "), "{last}");
        let one = store.changing.acquire().await;
        let refused = rig.ask(delete("more")).await;
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        assert!(refused.contains("Retry-After: "), "{refused}");
        assert!(refused.contains("nothing was changed"), "{refused}");
        drop((held, others, one));
        let all = store.changing.acquire_many(CHANGES_MAX as u32).await;
        assert!(all.is_ok() && !has("held") && has("more"));
    });
    rig.assert_idle();
}
