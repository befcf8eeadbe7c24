//! What stands for uploads in a build without them. The configuration refuses `upload`, so there are never any.

/// The uploads beneath a root.
pub mod store {
    use std::convert::Infallible;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    /// There are none.
    pub struct UploadStore {
        /// There is none.
        pub never: Infallible,
    }

    impl UploadStore {
        /// Those beneath a root, which the configuration has refused.
        pub fn new(_: &Path) -> Arc<Self> {
            unreachable!("the configuration refuses uploads")
        }

        /// The root.
        pub fn root(&self) -> &Path {
            match self.never {}
        }

        /// Removes what a crash has left.
        pub fn remove_stale(&self) {
            match self.never {}
        }

        /// Drops what is over.
        pub fn sweep(&self, _: Instant) {
            match self.never {}
        }
    }
}

/// Uploads as seen from a folder.
pub mod related {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Instant;

    use super::store::UploadStore;

    /// There are none.
    pub struct RelatedUploads(Arc<UploadStore>);

    impl RelatedUploads {
        /// Those of a store as seen from a folder.
        pub fn new(store: &Arc<UploadStore>, _: &Path) -> Option<Self> {
            match store.never {}
        }

        /// The uploads to the folder itself.
        pub fn of_folder(&self) -> Option<&Arc<UploadStore>> {
            match self.0.never {}
        }

        /// When an upload last changed something in the folder of a path.
        pub fn changed(&self, _: &[u8]) -> Option<Instant> {
            match self.0.never {}
        }
    }
}
