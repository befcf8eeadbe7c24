//! A store in a folder of its own, and the messages that it has acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use levity_mailbox::disk::{DiskStore, Options};
use levity_mailbox::{
    Append, Appended, Budget, Draft, Limit, MessageId, Name, Opened, Settings, Store, StoreError,
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

pub use crate::messages::*;

/// A folder, and the store in it while it is open.
pub struct Rig {
    pub runtime: Runtime,
    pub folder: PathBuf,
    pub options: Options,
    /// The memory of messages in bytes.
    pub memory: usize,
    /// What the store has reported.
    pub lines: Arc<Mutex<Vec<String>>>,
    pub store: Option<DiskStore>,
    _owned: Option<TempDir>,
}

/// A new folder, in memory if there is one: the tests are about calls, not about a device.
pub fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder")
}

impl Rig {
    /// An open store in a new folder.
    pub fn new() -> Rig {
        let owned = folder();
        let mut rig = Rig::of(owned.path());
        rig._owned = Some(owned);
        rig.open_store();
        rig
    }

    /// A folder whose store is not open as yet.
    pub fn of(folder: &Path) -> Rig {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let noted = lines.clone();
        let report = move |line: &str| noted.lock().unwrap().push(line.to_owned());
        let mut options = Options::new(folder, report).expect("options");
        options.free_bytes_min = 0;
        Rig {
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            folder: folder.to_owned(),
            options,
            memory: 256 << 20,
            lines,
            store: None,
            _owned: None,
        }
    }

    pub fn try_open(&mut self) -> io::Result<()> {
        let (budget, now) = (Budget::new(self.memory), SystemTime::now());
        let store = DiskStore::open(&self.folder, budget, self.options.clone(), now)?;
        self.store = Some(store);
        Ok(())
    }

    pub fn open_store(&mut self) {
        self.try_open().expect("a store");
    }

    /// Ends the process in order, and starts it again.
    pub fn reopen(&mut self) {
        self.store = None;
        self.open_store();
    }

    /// The folder as a process finds it that starts after this one was killed.
    pub fn copy(&self) -> Rig {
        let owned = folder();
        for (name, bytes) in self.files() {
            fs::write(owned.path().join(name), bytes).unwrap();
        }
        let mut rig = Rig::of(owned.path());
        rig.options.boot.clone_from(&self.options.boot);
        rig._owned = Some(owned);
        rig
    }

    /// The files of the folder.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(&self.folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        // One may have been removed meanwhile.
        let read = |name: String| Some((name.clone(), fs::read(self.folder.join(name)).ok()?));
        names.filter_map(read).collect()
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    pub fn store(&mut self) -> &mut DiskStore {
        self.store.as_mut().expect("it is open")
    }

    pub fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Calls the store, and waits for the result.
    pub fn call<T, F: Future<Output = T>>(&mut self, call: impl FnOnce(&mut dyn Store) -> F) -> T {
        let future = call(self.store());
        self.finish(future)
    }

    pub fn try_look(&mut self, name: &Name) -> Result<Option<Opened>, StoreError> {
        self.call(|store| store.read(name, None, Limit::NONE))
    }

    pub fn append_all(&mut self, appends: Vec<Append>) -> Vec<Result<Appended, StoreError>> {
        self.call(|store| store.append(appends, SystemTime::now()))
    }

    pub fn try_append(
        &mut self,
        name: &Name,
        settings: &Arc<Settings>,
        draft: Draft,
    ) -> Result<MessageId, StoreError> {
        let append = append_of(name, settings, draft);
        match self.append_all(vec![append]).remove(0)? {
            Appended::New { message, .. } => Ok(message.id),
            Appended::Duplicate(id) => Ok(id),
        }
    }

    pub fn append(&mut self, name: &Name, settings: &Arc<Settings>, text: &str) -> MessageId {
        self.try_append(name, settings, draft(text))
            .expect("appended")
    }

    pub fn open(&mut self, name: &Name, settings: &Arc<Settings>) -> Opened {
        let opened = self.call(|store| store.open(name, settings, SystemTime::now()));
        let opened = opened.expect("a box");
        check(&opened);
        opened
    }

    pub fn look(&mut self, name: &Name) -> Option<Opened> {
        let looked = self.try_look(name).expect("an answer");
        looked.iter().for_each(check);
        looked
    }

    pub fn remove(&mut self, name: &Name) -> bool {
        self.call(|store| store.remove(name, None))
            .expect("an answer")
    }

    /// The texts of a box, which must be known.
    pub fn texts(&mut self, name: &Name) -> Vec<String> {
        let opened = self.look(name).expect("a box");
        opened.messages.iter().map(text).collect()
    }

    /// What there is, for a test that fails.
    fn description(&self) -> String {
        let files = self.files().into_iter().take(20);
        let files: Vec<_> = files
            .map(|(name, it)| format!("{name}: {}", it.len()))
            .collect();
        format!("{:?} {files:?}", self.lines())
    }

    /// Sweeps until a condition holds.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Rig) -> bool) {
        let start = Instant::now();
        loop {
            self.store().sweep(SystemTime::now());
            if is_so(self) {
                return;
            }
            let is_late = start.elapsed() > DEADLINE;
            assert!(!is_late, "waited in vain: {what}: {}", self.description());
            std::thread::yield_now();
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.store = None;
    }
}

/// Messages that were acknowledged, by box.
#[derive(Default)]
pub struct Known {
    pub texts: HashMap<(Name, MessageId), String>,
}

impl Known {
    pub fn note(&mut self, name: &Name, id: MessageId, text: &str) {
        let before = self.texts.insert((name.clone(), id), text.to_owned());
        assert!(before.is_none(), "{id} of {name} was given twice");
    }

    /// Whether what a box has is what was given to it. A message that nobody was told of may be there too.
    pub fn check(&self, name: &Name, opened: &Opened) {
        for message in opened.messages.iter().filter(|it| !it.draft.is_damaged) {
            if let Some(known) = self.texts.get(&(name.clone(), message.id)) {
                assert_eq!(known, &text(message), "{} of {name}", message.id);
            }
        }
    }
}

pub fn durable() -> Arc<Settings> {
    settings_with(|settings| settings.is_durable = true)
}
