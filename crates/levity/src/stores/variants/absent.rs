//! What stands for the store of variants in a build without compression. The configuration refuses `disk.variants`.

/// The folder.
pub mod store {
    use std::convert::Infallible;
    use std::io;
    use std::path::Path;

    /// There is none.
    pub struct VariantStore {
        /// There is none.
        pub never: Infallible,
    }

    impl VariantStore {
        /// Opens a folder, which the configuration has refused.
        ///
        /// # Errors
        /// None.
        pub fn open(_: &Path, _: u64) -> io::Result<Self> {
            unreachable!("the configuration refuses a store of variants")
        }

        /// The folder.
        pub fn folder(&self) -> &Path {
            match self.never {}
        }

        /// The maximum of all variants in bytes.
        pub fn bytes_max(&self) -> u64 {
            match self.never {}
        }

        /// The number of variants, and their bytes.
        pub fn size(&self) -> (usize, u64) {
            match self.never {}
        }
    }
}

/// Files that would be compressed often.
pub mod candidates {
    use std::time::Instant;

    /// They are not counted.
    pub struct Candidates;

    impl Candidates {
        /// No counts.
        pub fn new(_: Instant) -> Self {
            Self
        }
    }
}
