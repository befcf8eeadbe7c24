//! The processors for which Levity is packed.

use std::env::consts::ARCH;
use std::slice;

use crate::run::Result;

/// A kind of processor, by its names.
pub struct Target {
    /// That of the compiler.
    pub triple: &'static str,
    /// That of the kernel (`uname -m`).
    pub processor: &'static str,
    /// Those of Debian and of images (`GOARCH`), which agree.
    pub architecture: &'static str,
    /// What the names of the C compiler and its tools begin with where another processor is built for.
    prefix: &'static str,
}

/// All of them. Each is built with glibc, the library that is tested and measured: one that is linked statically
/// ([`super::build`]) asks for none on the machine.
pub const TARGETS: &[Target] = &[
    Target {
        triple: "x86_64-unknown-linux-gnu",
        processor: "x86_64",
        architecture: "amd64",
        prefix: "x86_64-linux-gnu-",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        processor: "aarch64",
        architecture: "arm64",
        prefix: "aarch64-linux-gnu-",
    },
];

impl Target {
    /// That of this machine.
    ///
    /// # Errors
    /// If Levity is not packed for it.
    pub fn here() -> Result<&'static [Self]> {
        let here = TARGETS.iter().find(|target| target.is_here());
        here.map(slice::from_ref)
            .ok_or_else(|| format!("no packages are made for {ARCH}"))
    }

    fn is_here(&self) -> bool {
        self.processor == ARCH
    }

    /// The name of a program of the C toolchain, such as `gcc`.
    pub fn tool(&self, name: &str) -> String {
        match self.is_here() {
            true => name.to_owned(),
            false => format!("{}{name}", self.prefix),
        }
    }
}
