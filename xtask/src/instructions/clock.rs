//! The time of a thread that is traced. A step takes a thousand times as long as the instruction. By the true time a server would
//! find each request very slow, look why, and do once per request what it does ten times per second.

use std::collections::BTreeMap;

use nix::libc;

use super::symbols::Symbols;
use super::thread::{Registers, Thread};
use crate::run::Result;

/// The code of the kernel in each process, which reads clocks (vdso(7)).
pub const VDSO: &str = "[vdso]";
/// The function that does, under each of its names.
const READS_CLOCK: [&str; 2] = ["__vdso_clock_gettime", "clock_gettime"];

/// What it does instead: the system call. `mov eax, 228; syscall; ret`.
const CALLS_KERNEL: [u8; 8] = [0xb8, 228, 0, 0, 0, 0x0f, 0x05, 0xc3];

/// The time that an instruction takes.
const STEP_NS: u64 = 1;
/// The time that a system call takes if nothing is counted. Ten thousand of them take less than the interval of any timer.
const CALL_NS: u64 = 100;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Bytes of a `timespec`: seconds and nanoseconds.
const TIMESPEC_BYTES: usize = 16;

/// Clocks that begin with the true time.
#[derive(Debug, Default)]
pub struct Clock {
    /// The time of each clock that has been read, without what has passed.
    start_ns: BTreeMap<u64, u64>,
    passed_ns: u64,
}

impl Clock {
    /// Has the process read its clocks by system calls. All its threads must be stopped, none of them where it reads a clock.
    pub fn intercept(thread: &Thread, symbols: &Symbols) -> Result<Self> {
        let mut addresses = READS_CLOCK
            .iter()
            .filter_map(|name| symbols.address(VDSO, name));
        let address = addresses.next().ok_or("no function reads clocks")?;
        thread.write(address, &CALLS_KERNEL)?;
        Ok(Self::default())
    }

    /// An instruction has been executed.
    pub fn pass_step(&mut self) {
        self.passed_ns += STEP_NS;
    }

    /// A system call has been made.
    pub fn pass_call(&mut self) {
        self.passed_ns += CALL_NS;
    }

    /// To be called after the system call that has read a clock, with the registers before it: replaces the time.
    pub fn replace(&mut self, thread: &Thread, registers: &Registers) -> Result<()> {
        let (clock, address) = (registers.rdi, registers.rsi);
        if !passes(clock) {
            return Ok(());
        }
        let mut bytes = [0; TIMESPEC_BYTES];
        thread.read(address, &mut bytes)?;
        let start_ns = self
            .start_ns
            .entry(clock)
            .or_insert_with(|| from_timespec(bytes) - self.passed_ns);
        thread.write(address, &to_timespec(*start_ns + self.passed_ns))
    }
}

/// Whether it is a clock of time, and not one of processor time.
fn passes(clock: u64) -> bool {
    let of_processor = [
        libc::CLOCK_PROCESS_CPUTIME_ID,
        libc::CLOCK_THREAD_CPUTIME_ID,
    ];
    !of_processor.contains(&(clock as i32))
}

fn from_timespec(bytes: [u8; TIMESPEC_BYTES]) -> u64 {
    // The lower half is the seconds.
    let both = u128::from_le_bytes(bytes);
    both as u64 * NS_PER_SECOND + (both >> 64) as u64
}

fn to_timespec(ns: u64) -> [u8; TIMESPEC_BYTES] {
    let both = u128::from(ns % NS_PER_SECOND) << 64 | u128::from(ns / NS_PER_SECOND);
    both.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timespec_is_read_as_it_is_written() {
        let ns = 1_700_000_000 * NS_PER_SECOND + 999_999_999;
        let bytes = to_timespec(ns);
        assert_eq!(bytes[..8], 1_700_000_000u64.to_le_bytes());
        assert_eq!(bytes[8..], 999_999_999u64.to_le_bytes());
        assert_eq!(from_timespec(bytes), ns);
    }
}
