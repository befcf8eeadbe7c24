//! What happens to a request and why, in words, for `levity explain`.
//!
//! `levity explain` runs one request through the same code, in a worker that has an
//! [`Explanation`]: routing, handlers and filters add remarks to it. A refusal whose text does not
//! tell the client the reason gives it to `explain_refusal` of the handlers. Such a worker asks no
//! upstream. Any other worker has no `Explanation`, and tests for it once per decision.

use std::cell::{Cell, RefCell};
use std::mem;

/// Remarks about one request. A worker has this only for `levity explain`.
#[derive(Debug, Default)]
pub struct Explanation {
    remarks: RefCell<Vec<Remark>>,
    is_unanswered: Cell<bool>,
    place: Cell<Option<Place>>,
    is_at_location: Cell<bool>,
    reason: RefCell<Option<String>>,
}

/// Where a request got to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The number of the site.
    pub site: usize,
    /// The number of its route; `None` if the keys of the site apply.
    pub route: Option<usize>,
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
    /// The listener.
    Listener,
    /// The certificate that a client gets.
    Tls,
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
    /// The reason of an error.
    Reason,
    /// A change of a header.
    Header,
    /// The access log.
    Log,
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

    /// Sets where the request got to.
    pub fn set_place(&self, place: Option<Place>) {
        self.place.set(place);
    }

    /// Sets the route of the site whose keys apply to a refusal, in place of the route that the request got to.
    pub fn answered_by(&self, route: Option<usize>) {
        let place = self.place.get();
        self.place.set(place.map(|place| Place { route, ..place }));
    }

    /// Where the request got to.
    pub fn place(&self) -> Option<Place> {
        self.place.get()
    }

    /// Sets why the request is refused, for an error whose text does not tell the client.
    pub fn set_reason(&self, reason: impl Into<String>) {
        self.reason.replace(Some(reason.into()));
    }

    /// The request has got its response: from the location at its place, or before it got there. `told` is what an
    /// error tells the client, which may be nothing; `None` unless it is one.
    pub fn answered(&self, is_at_location: bool, told: Option<&str>) {
        self.is_at_location.set(is_at_location);
        let own = self.reason.take();
        let reason = match told {
            Some("") => own,
            told => told.map(str::to_owned),
        };
        if let Some(reason) = &reason {
            self.add(Topic::Reason, reason.as_str());
        }
        self.reason.replace(reason);
    }

    /// Whether the response comes from the location at the place of the request.
    pub fn is_at_location(&self) -> bool {
        self.is_at_location.get()
    }

    /// The reason of an error, if it is known.
    pub fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    /// Takes all remarks, in order.
    pub fn take(&self) -> Vec<Remark> {
        mem::take(&mut self.remarks.borrow_mut())
    }
}
