//! The steps of a request, under the names that logs, metrics and the watchdog use.

/// What a worker does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// None of the others.
    Idle,
    /// Taking a connection.
    Accept,
    /// Reading a request.
    Parse,
    /// Choosing its route.
    Route,
    /// Finding the file.
    Resolve,
    /// Waiting for the header of an application's response.
    Upstream,
    /// Making the response.
    Respond,
    /// Applying the header rules of the route.
    Filter,
    /// Writing to the socket.
    Send,
}

impl Step {
    /// The steps of a request, in their order.
    pub const TIMED: [Self; 8] = [
        Self::Accept,
        Self::Parse,
        Self::Route,
        Self::Resolve,
        Self::Upstream,
        Self::Respond,
        Self::Filter,
        Self::Send,
    ];

    /// Every step, in the order of the discriminants.
    pub(crate) const ALL: [Self; 9] = [
        Self::Idle,
        Self::Accept,
        Self::Parse,
        Self::Route,
        Self::Resolve,
        Self::Upstream,
        Self::Respond,
        Self::Filter,
        Self::Send,
    ];

    /// Its index in [`Self::TIMED`]; `None` for [`Self::Idle`].
    pub fn index(self) -> Option<usize> {
        (self as usize).checked_sub(Self::Accept as usize)
    }

    /// The word in logs, metrics and messages.
    pub fn label(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Accept => "accept",
            Self::Parse => "parse",
            Self::Route => "route",
            Self::Resolve => "resolve",
            Self::Upstream => "upstream",
            Self::Respond => "respond",
            Self::Filter => "filter",
            Self::Send => "send",
        }
    }
}
