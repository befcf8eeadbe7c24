//! What stands for mailboxes in a build without them. The configuration refuses all that would need one, so there is never
//! a set, and `never` in a value says that no code with it runs.

/// The copies of mailboxes of an event loop: none.
pub struct Copies;

/// Sets of mailboxes: none.
pub mod set {
    use std::convert::Infallible;
    use std::sync::Arc;

    /// What sets would have in common.
    #[derive(Default)]
    pub struct SharedMailboxes {
        /// The memory of messages.
        pub budget: Budget,
    }

    impl SharedMailboxes {
        /// For any number of owners and bytes.
        pub fn new(_owners: usize, _bytes_max: usize) -> Arc<Self> {
            Arc::default()
        }
    }

    /// The memory of messages: none.
    #[derive(Clone, Default)]
    pub struct Budget;

    impl Budget {
        /// Changes nothing.
        pub fn set_max(&self, _bytes_max: usize) {}
    }

    /// A set of boxes.
    pub struct MailboxSet {
        /// As configured.
        pub of: levity_config::Mailbox,
        /// There is none.
        pub never: Infallible,
    }

    impl MailboxSet {
        /// The set that `of` describes, which the configuration has refused.
        pub fn new(_of: &levity_config::Mailbox, _shared: &Arc<SharedMailboxes>) -> Arc<Self> {
            unreachable!("the configuration refuses mailboxes")
        }
    }
}

/// What an event loop would need.
pub mod local {
    use std::future::{self, Future};
    use std::rc::Rc;

    use super::Copies;

    /// Nothing.
    #[derive(Clone)]
    pub struct LocalParts;

    impl LocalParts {
        /// The copies, and a task that has nothing to do.
        pub fn split(self) -> (Rc<Copies>, impl Future<Output = ()> + 'static) {
            (Rc::new(Copies), future::ready(()))
        }
    }
}

/// What would be started before the event loops.
pub mod start {
    use std::convert::Infallible;
    use std::io;
    use std::time::Duration;

    use levity_config::{MailboxStore, StoreKind};

    use super::local::LocalParts;
    use super::set::Budget;

    /// As much of the mailboxes as a process has.
    pub struct Started {
        /// For each event loop.
        pub loops: Vec<LocalParts>,
        /// Where messages would be kept.
        pub store: &'static str,
        /// What the owners count: there are none.
        pub figures: Vec<Infallible>,
        /// The thread of the store: there is none.
        pub thread: Option<StoreThread>,
    }

    /// The thread of the store.
    pub struct StoreThread(Infallible);

    impl StoreThread {
        /// Waits for its end.
        pub fn end(self, _timeout: Duration) {
            match self.0 {}
        }
    }

    /// Starts nothing.
    ///
    /// # Errors
    /// None.
    pub fn start(_: &MailboxStore, workers: usize, _: Budget) -> io::Result<Started> {
        Ok(in_memory(workers))
    }

    /// The number of owners.
    pub fn owners(_: &MailboxStore, workers: usize) -> usize {
        workers
    }

    /// Nothing for each event loop.
    pub fn in_memory(workers: usize) -> Started {
        Started {
            loops: vec![LocalParts; workers],
            store: StoreKind::Memory.label(),
            figures: Vec::new(),
            thread: None,
        }
    }

    /// Nothing for an event loop that is the only one.
    pub fn single() -> LocalParts {
        LocalParts
    }
}

/// What metrics say of them.
pub mod figures {
    use std::convert::Infallible;

    use levity_telemetry::stats::{MailboxFigures, ResumeFigures};

    use super::set::SharedMailboxes;

    /// Zeros.
    pub fn figures(
        store: &'static str,
        _owners: &[Infallible],
        _shared: &SharedMailboxes,
        resume: ResumeFigures,
    ) -> MailboxFigures {
        MailboxFigures {
            store,
            resume,
            ..MailboxFigures::default()
        }
    }

    /// Zeros.
    pub fn resume(_owners: &[Infallible], _shared: &SharedMailboxes) -> ResumeFigures {
        ResumeFigures::default()
    }
}
