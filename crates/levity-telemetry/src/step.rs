//! The steps of a request, under the names that logs, metrics and the watchdog use.

use strum::{IntoStaticStr, VariantArray};

/// A step of a request, at which a worker's task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
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
    /// Waiting for an application: for the header of its response, or for more of the body.
    Upstream,
    /// Making the response.
    Respond,
    /// Changing the header of the response, as its location says.
    Filter,
    /// Writing to the socket.
    Send,
}

impl Step {
    /// The steps of a request, in their order.
    pub const TIMED: &[Self] = match Self::VARIANTS {
        [Self::Idle, timed @ ..] => timed,
        _ => unreachable!(),
    };

    /// Its index in [`Self::TIMED`]; `None` for [`Self::Idle`].
    pub fn index(self) -> Option<usize> {
        (self as usize).checked_sub(Self::Accept as usize)
    }

    /// The word in logs, metrics and messages.
    pub fn label(self) -> &'static str {
        self.into()
    }
}
