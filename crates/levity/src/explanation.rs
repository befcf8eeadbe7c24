//! What happens to a request and why, in words, for `levity explain`.

use std::cell::{Cell, RefCell};
use std::mem;

/// Remarks about one request. A worker has this only for `levity explain`.
#[derive(Debug, Default)]
pub struct Explanation {
    remarks: RefCell<Vec<Remark>>,
    is_unanswered: Cell<bool>,
}

/// One remark.
#[derive(Debug)]
pub struct Remark {
    /// What it is about.
    pub topic: Topic,
    /// A sentence without its end.
    pub text: String,
}

/// What remarks are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Topic {
    /// The site.
    Site,
    /// The route.
    Route,
    /// A gate.
    Gate,
    /// What answers.
    Handler,
    /// A search for a file.
    File,
    /// A change of a header.
    Header,
}

impl Explanation {
    /// Adds a remark.
    pub fn add(&self, topic: Topic, text: impl Into<String>) {
        let text = text.into();
        self.remarks.borrow_mut().push(Remark { topic, text });
    }

    /// The response is not that of a server: what would make it is not asked, or would write.
    pub fn leave_unanswered(&self) {
        self.is_unanswered.set(true);
    }

    /// Whether [`leave_unanswered`](Self::leave_unanswered) was called.
    pub fn is_unanswered(&self) -> bool {
        self.is_unanswered.get()
    }

    /// Takes all remarks, in order.
    pub fn take(&self) -> Vec<Remark> {
        mem::take(&mut self.remarks.borrow_mut())
    }
}
