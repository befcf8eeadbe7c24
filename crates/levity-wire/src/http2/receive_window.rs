//! What a client may send of bodies (RFC 9113, 5.2), on a stream or in all.

/// A window of the client.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// The bytes that the client may still send.
    open: u32,
    /// The bytes that were consumed and that no WINDOW_UPDATE has given back.
    consumed: u32,
    /// These two, and the bytes that have arrived and that were not consumed.
    granted: u32,
    /// What is to be granted. What was granted before can only be withheld once it was used.
    size: u32,
}

impl ReceiveWindow {
    /// A window of this size, all of it open.
    pub fn new(size: u32) -> Self {
        Self {
            open: size,
            consumed: 0,
            granted: size,
            size,
        }
    }

    /// The bytes that the client may still send.
    pub fn open(&self) -> u32 {
        self.open
    }

    /// The bytes that were not consumed.
    pub fn unread(&self) -> u32 {
        self.granted - self.open - self.consumed
    }

    /// The bytes that were not consumed beyond its size: it was larger before, and the client may use what it had of it.
    pub fn excess(&self) -> u32 {
        self.unread().saturating_sub(self.size)
    }

    /// Changes its size. Returns the bytes that the client may send in addition. When it is smaller than before, that counts for what
    /// is consumed from now on: what the client may send cannot be taken back.
    pub fn resize(&mut self, size: u32) -> u32 {
        self.size = size;
        let more = size.saturating_sub(self.granted);
        self.granted += more;
        self.open += more;
        more
    }

    /// Takes `bytes` that have arrived; `None` if they are more than the client may send.
    #[must_use]
    pub fn take(&mut self, bytes: u32) -> Option<()> {
        self.open = self.open.checked_sub(bytes)?;
        Some(())
    }

    /// The owner has consumed `bytes`.
    pub fn consume(&mut self, bytes: u32) {
        self.consumed += bytes;
    }

    /// Opens the window again if at least `least` bytes were consumed that are not to be withheld. Returns them, or 0.
    pub fn reopen(&mut self, least: u32) -> u32 {
        let withheld = self.granted.saturating_sub(self.size).min(self.consumed);
        self.consumed -= withheld;
        self.granted -= withheld;
        match self.consumed >= least {
            true => {
                self.open += self.consumed;
                std::mem::take(&mut self.consumed)
            }
            false => 0,
        }
    }

    /// Half of its size.
    pub fn half(&self) -> u32 {
        self.size / 2
    }
}
