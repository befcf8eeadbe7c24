use std::path::Path;

use levity_disk::engine::crash::Recording;

use crate::rig::Rig;
use crate::upload_store::store::FOLDER;

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
