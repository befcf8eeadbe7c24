//! Tests of the store, with files on the simulated disk.

use std::ffi::CString;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brotli_decompressor::Decompressor;
use levity_config::Etag;
use levity_disk::engine::crash::Recording;
use levity_disk::{Class, Lookup, Meta, ReadOptions, TEMPORARY_PREFIX, op};
use levity_wire::encoding::Coding;
use tokio::time;

use super::index::Index;
use super::make::Wanted;
use super::name::{Kind, Name, Resource, Stored};
use super::store::VariantStore;
use crate::files::cache::{Check, EntryVariants};
use crate::files::disk_client::submit_when_free;
use crate::files::entry::{self, Content, Entry, Form};
use crate::message::request::Request;
use crate::rig::Rig;
use crate::route::RouteInput;

const BYTES_MAX: u64 = 1 << 20;

const VARIANT: Wanted = Wanted::Variant(Coding::Brotli);

fn coded(name: Name, coding: Coding) -> Stored {
    let kind = Kind::Coded(coding);
    Stored { name, kind }
}

/// Requests that make a file popular.
const REQUESTS: usize = 4;

fn text() -> String {
    "The loop never waits for a disk. ".repeat(100)
}

fn decoded(variant: &[u8]) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut decoder = Decompressor::new(variant, variant.len());
    decoder.read_to_end(&mut content)?;
    Ok(content)
}

fn open(folder: &Path) -> Arc<VariantStore> {
    Arc::new(VariantStore::open(folder, BYTES_MAX).expect("a folder"))
}

/// The entry of a file of the rig's site.
async fn entry(rig: &Rig, name: &str) -> Entry {
    let service = rig.worker.service();
    let location = service
        .route(b"a", b"/", RouteInput::of(&Request::default()))
        .expect("a location");
    let files = location.files.as_ref().expect("it has files");
    let open = op::Open {
        root: files.root.last(),
        path: CString::new(name).expect("a name"),
        first: None,
        variants: Box::default(),
        lookup: Lookup::Fresh,
    };
    let options = ReadOptions::default();
    let opened = submit_when_free(&rig.worker.core.disk, open, Class::First, options).await;
    let opened = opened.expect(name);
    let form = Form {
        name: name.as_bytes(),
        coding: None,
        varies: false,
        etag: Etag::File,
        original: None,
    };
    let meta = opened.file.meta();
    entry::entry(form, meta, true, Content::File(opened.file))
}

/// Requests the file often, and waits until `is_done`.
async fn make(rig: &Rig, store: &Arc<VariantStore>, entry: &Entry, is_done: impl Fn() -> bool) {
    for _ in 0..REQUESTS {
        store.requested((&rig.worker.core, &rig.worker.candidates), entry, VARIANT);
    }
    while !is_done() {
        time::sleep(Duration::from_millis(1)).await;
    }
}

/// Whether the only file is made. It is found before its name is durable: the task ends after that.
fn is_made(store: &VariantStore) -> bool {
    store.size().0 == 1 && super::store::lock(&store.making).is_empty()
}

/// A variant that was made before a crash is complete or is not there, and is there once it is found.
#[test]
fn no_crash_leaves_a_torn_variant() {
    let rig = Rig::with_files("", &[("page.html", &text())]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let recording = Recording::start(folder.path()).expect("a recording");
    let name = rig.run(async {
        let entry = entry(&rig, "page.html").await;
        make(&rig, &store, &entry, || is_made(&store)).await;
        Name::of(&entry.meta, Coding::Brotli)
    });
    let file_name = coded(name, Coding::Brotli).file_name();
    let (mut states, steps) = (0, recording.steps());
    recording.each_crash(|step, files| {
        states += 1;
        let variant = files.get(Path::new(&file_name));
        if let Some(variant) = variant {
            let content = decoded(variant).expect("a complete variant");
            assert!(content == text().as_bytes(), "after {step} changes");
        }
        assert!(variant.is_some() || step < steps);
    });
    assert!(states > steps);
}

/// The entry of the file at `path`, on which no call is known not to block. It is trusted without a look at the file.
async fn trusted(rig: &Rig, store: &VariantStore, path: &Path, content: &[u8]) -> Entry {
    let name = path.file_name().expect("a name").as_encoded_bytes();
    let create = op::Create::Named {
        root: store.root.clone(),
        path: CString::new(name).expect("a name"),
        mode: 0o600,
    };
    let options = ReadOptions::default();
    let created = submit_when_free(&rig.worker.core.disk, create, Class::First, options).await;
    let file = created.expect("it is created");
    assert!(file.inline().is_none());
    fs::write(path, content).expect("content");
    let meta = Meta::from(rustix::fs::stat(path).expect("a file"));
    let form = Form {
        name,
        coding: Some(Coding::Brotli),
        varies: true,
        etag: Etag::File,
        original: None,
    };
    entry::entry(form, meta, true, Content::File(file))
}

/// Only the read shows that it is another file, and does so again in a second attempt.
#[test]
fn a_variant_that_was_overwritten_is_not_sent() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let rig = Rig::with_store("compress = true\n", &[("page.html", &text())], &store);
    let request = "GET /page.html HTTP/1.1\r\nHost: a\r\nAccept-Encoding: br\r\n\r\n";
    rig.run(async {
        let original = entry(&rig, "page.html").await;
        let name = Name::of(&original.meta, Coding::Brotli);
        let path = folder.path().join(coded(name, Coding::Brotli).file_name());
        let kept = vec![b'1'; 100_000];
        let file = trusted(&rig, &store, &path, &kept).await;
        store
            .index
            .add(coded(name, Coding::Brotli), Some(file.meta.size));
        let (key, variants) = (
            name.cache_key(b"text/html; charset=utf-8"),
            EntryVariants {
                file: Arc::new(file),
                variants: Vec::new(),
                watched: None,
                led: crate::files::proof::Led::NOWHERE,
            },
        );
        rig.worker
            .cache
            .keep(&key, Arc::new(variants), Check::begin(Instant::now()));
        let ask = async || {
            let mut client = rig.client(1 << 20);
            client.send(request).await;
            let header = client.until("\r\n\r\n").await;
            client.break_off().await;
            header
        };
        let header = ask().await;
        assert!(header.contains("Content-Length: 100000\r\n"), "{header}");
        fs::write(&path, "overwritten").expect("it is overwritten");
        let header = ask().await;
        assert!(header.starts_with("HTTP/1.1 200 "), "{header}");
        assert!(header.contains("~br\""), "{header}");
    });
}

#[test]
fn a_restart_finds_variants_and_removes_what_is_left() {
    let rig = Rig::with_files("", &[("page.html", &text())]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    rig.run(async {
        let entry = entry(&rig, "page.html").await;
        make(&rig, &store, &entry, || store.size().0 == 1).await;
    });
    let temporary = folder.path().join(format!("{TEMPORARY_PREFIX}7"));
    fs::write(&temporary, "left").expect("a file");
    fs::write(folder.path().join("other.txt"), "not ours").expect("a file");
    assert_eq!(open(folder.path()).size(), store.size());
    assert!(!temporary.exists());
    assert!(folder.path().join("other.txt").exists());
}

#[test]
fn a_file_that_hardly_gets_smaller_is_not_kept() {
    let rig = Rig::with_files("", &[("noise.html", "")]);
    let mut seed = 1_u64;
    let noise: Vec<u8> = (0..3000)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        })
        .collect();
    fs::write(rig.root.path().join("noise.html"), noise).expect("a file");
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    rig.run(async {
        let entry = entry(&rig, "noise.html").await;
        let name = Name::of(&entry.meta, Coding::Brotli);
        make(&rig, &store, &entry, || store.index.knows(name)).await;
        assert_eq!(store.size(), (0, 0));
    });
    let left = fs::read_dir(folder.path()).expect("the folder").count();
    assert_eq!(left, 0);
}

#[test]
fn after_a_failure_the_store_pauses() {
    let rig = Rig::with_files("", &[("page.html", &text())]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    fs::remove_dir(folder.path()).expect("it is empty");
    rig.run(async {
        let entry = entry(&rig, "page.html").await;
        make(&rig, &store, &entry, || store.is_paused()).await;
        make(&rig, &store, &entry, || true).await;
        assert!(super::store::lock(&store.making).is_empty());
    });
}

#[test]
fn variants_that_were_used_last_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = Index::read(folder.path(), 100).expect("a folder");
    let names = [1, 2, 3, 4].map(Name::for_test);
    for name in &names[..3] {
        assert_eq!(index.add(coded(*name, Coding::Gzip), Some(30)), []);
    }
    assert_eq!(index.size(), (3, 90));
    index.age(&names[1..2]);
    assert!(index.touch(names[0]) && index.touch(names[2]));
    let displaced = index.add(coded(names[3], Coding::Zstd), Some(40));
    assert_eq!(displaced, [coded(names[1], Coding::Gzip)]);
    assert_eq!(index.size(), (3, 100));
    assert!(!index.touch(names[1]) && !index.knows(names[1]));
    index.remove(names[3]);
    assert_eq!(index.size(), (2, 60));
}

#[test]
fn a_dictionary_is_found_by_its_digest() {
    let folder = tempfile::tempdir().expect("a folder");
    let index = Index::read(folder.path(), 100).expect("a folder");
    let [first, second, digest] = [1, 2, 3].map(Name::for_test);
    let dictionary = |name| Stored {
        name,
        kind: Kind::Dictionary(digest),
    };
    assert_eq!(index.dictionary(digest), None);
    index.add(dictionary(first), Some(40));
    assert_eq!(index.dictionary(digest), Some(dictionary(first)));
    // The same content in another version of the file.
    index.age(&[first]);
    assert_eq!(index.add(dictionary(second), Some(40)), [dictionary(first)]);
    assert_eq!(index.dictionary(digest), Some(dictionary(second)));
    index.remove(second);
    assert_eq!(index.dictionary(digest), None);
}

#[test]
fn no_crash_leaves_a_torn_dictionary() {
    let rig = Rig::with_files("", &[("page.html", &text())]);
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let recording = Recording::start(folder.path()).expect("a recording");
    let resource = Resource::of(b"/srv", b"page.html");
    rig.run(async {
        let entry = entry(&rig, "page.html").await;
        for _ in 0..REQUESTS {
            store.requested(
                (&rig.worker.core, &rig.worker.candidates),
                &entry,
                Wanted::Dictionary(resource),
            );
        }
        while !is_made(&store) {
            time::sleep(Duration::from_millis(1)).await;
        }
    });
    let (mut found, steps) = (0, recording.steps());
    recording.each_crash(|step, files| {
        let mut names = files.iter().filter_map(|(path, content)| {
            let stored = Stored::parse(path.to_str()?)?;
            matches!(stored.kind, Kind::Dictionary(_)).then_some(content)
        });
        if let Some(content) = names.next() {
            found += 1;
            assert!(content == text().as_bytes(), "after {step} changes");
        } else {
            assert!(step < steps);
        }
    });
    assert!(found > 0);
}

#[test]
fn a_smaller_store_drops_the_oldest_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..4 {
        let path = folder
            .path()
            .join(coded(Name::for_test(number), Coding::Gzip).file_name());
        fs::write(&path, [0; 30]).expect("a file");
        let made = std::time::UNIX_EPOCH + Duration::from_secs(1000 + number as u64);
        let file = fs::File::options().write(true).open(&path).expect("it");
        file.set_modified(made).expect("its time");
    }
    let index = Index::read(folder.path(), 60).expect("a folder");
    assert_eq!(index.size(), (2, 60));
    assert!(index.knows(Name::for_test(2)) && index.knows(Name::for_test(3)));
    assert_eq!(fs::read_dir(folder.path()).expect("it").count(), 2);
}
