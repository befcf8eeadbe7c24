//! A thread of another process under ptrace(2): it runs one instruction, or until its next system call, and is stopped otherwise.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::run::Result;

/// A stopped thread. It goes on when this is dropped.
pub struct Thread {
    id: Pid,
    memory: File,
}

/// The registers of x86-64.
pub type Registers = user_regs_struct;

type Resume = fn(Pid, Option<Signal>) -> nix::Result<()>;

impl Thread {
    /// Stops a thread, wherever it is: a system call that waits returns. Only the thread that calls this may use what is returned.
    /// `None` if the thread has ended.
    ///
    /// # Errors
    /// It is traced already, or the kernel does not permit it.
    pub fn stop(process: i32, thread: i32) -> Result<Option<Self>> {
        let path = format!("/proc/{process}/mem");
        let memory = OpenOptions::new().read(true).write(true).open(&path);
        let memory = memory.map_err(|error| format!("{path}: {error}"))?;
        let failed = |error| format!("ptrace of thread {thread}: {error}");
        let id = Pid::from_raw(thread);
        match ptrace::seize(id, ptrace::Options::PTRACE_O_TRACESYSGOOD) {
            Err(Errno::ESRCH) => return Ok(None),
            seized => seized.map_err(failed)?,
        }
        let this = Self { id, memory };
        match ptrace::interrupt(id) {
            Err(Errno::ESRCH) => return Ok(None),
            interrupted => interrupted.map_err(failed)?,
        }
        this.wait()?;
        Ok(Some(this))
    }

    /// Runs one instruction. A system call is one, however long it waits; so is each round of a repeated string instruction.
    pub fn step(&self) -> Result<()> {
        self.resume(ptrace::step)
    }

    /// Runs until a system call begins or ends, in turns.
    pub fn run_to_call(&self) -> Result<()> {
        self.resume(ptrace::syscall)
    }

    /// The registers before the next instruction.
    pub fn registers(&self) -> Result<Registers> {
        ptrace::getregs(self.id).map_err(|error| format!("registers: {error}"))
    }

    /// Reads the memory of the process.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let read = self.memory.read_exact_at(bytes, address);
        read.map_err(|error| format!("memory at {address:#x}: {error}"))
    }

    /// Writes to it.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let written = self.memory.write_all_at(bytes, address);
        written.map_err(|error| format!("memory at {address:#x}: {error}"))
    }

    /// Resumes it. Signals of others reach the thread.
    fn resume(&self, resume: Resume) -> Result<()> {
        let mut signal = None;
        loop {
            resume(self.id, signal).map_err(|error| format!("ptrace: {error}"))?;
            signal = self.wait()?;
            if signal.is_none() {
                return Ok(());
            }
        }
    }

    /// Waits until it has stopped. Returns the signal if it is one for the thread.
    fn wait(&self) -> Result<Option<Signal>> {
        match waitpid(self.id, Some(WaitPidFlag::__WALL)) {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => Ok(None),
            Ok(WaitStatus::PtraceSyscall(_) | WaitStatus::PtraceEvent(..)) => Ok(None),
            Ok(WaitStatus::Stopped(_, signal)) => Ok(Some(signal)),
            Ok(status) => Err(format!("the thread has ended: {status:?}")),
            Err(error) => Err(format!("waitpid: {error}")),
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if ptrace::detach(self.id, None).is_err() {
            // It has ended. Its process does not before somebody has asked for it.
            let _ = waitpid(self.id, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG));
        }
    }
}
