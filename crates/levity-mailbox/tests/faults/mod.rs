//! Faults under a database, by a library that is loaded before that of C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the file that says which fault there is, in the process that has the library.
pub const FAULT: &str = "LEVITY_TEST_FAULT";

/// The library, and the file with the fault.
pub struct Faults {
    library: PathBuf,
    /// Says which fault there is, as in `fault.c`; none while it is not there, or empty.
    pub fault: PathBuf,
}

impl Faults {
    /// Compiles the library into `folder`. There is no fault as yet.
    pub fn new(folder: &Path) -> Self {
        let [source, library, fault] = ["fault.c", "fault.so", "fault"].map(|it| folder.join(it));
        fs::write(&source, include_str!("fault.c")).unwrap();
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .status();
        assert!(compiled.expect("a compiler").success());
        Self { library, fault }
    }

    /// What a process is started with that is to have faults.
    pub fn environment(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), (FAULT, &self.fault)]
    }
}
