//! Counts the instructions of a thread between two moments.

use std::collections::{BTreeMap, HashMap};

use nix::libc;

use super::clock::Clock;
use super::symbols::Symbols;
use super::thread::{Registers, Thread};
use crate::run::Result;

/// The instruction of x86-64 that calls the kernel.
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// How often each instruction was executed, by its address.
#[derive(Debug, Default)]
pub struct Counts(HashMap<u64, u64>);

impl Counts {
    fn add(&mut self, address: u64) {
        *self.0.entry(address).or_default() += 1;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// By functions.
    pub fn functions(&self, symbols: &Symbols) -> BTreeMap<String, u64> {
        let mut functions = BTreeMap::new();
        for (&address, count) in &self.0 {
            *functions.entry(symbols.function(address)).or_default() += count;
        }
        functions
    }
}

/// What happens beside the thread, while it is stopped.
pub trait Beside {
    /// Before a system call. `waits` if it is one for events that may wait.
    ///
    /// # Errors
    /// An error ends the count.
    fn before_call(&mut self, waits: bool) -> Result<()>;

    /// After one. Returns whether the count ends here.
    ///
    /// # Errors
    /// An error ends the count.
    fn after_call(&mut self) -> Result<bool>;
}

/// A thread whose instructions can be counted.
pub struct Counter<'a> {
    thread: &'a Thread,
    clock: Clock,
    /// Whether the instruction at an address calls the kernel.
    calls: HashMap<u64, bool>,
}

impl<'a> Counter<'a> {
    /// All threads of the process must be stopped.
    pub fn new(thread: &'a Thread, symbols: &Symbols) -> Result<Self> {
        // Before a system call it is not where it reads a clock.
        thread.run_to_call()?;
        let clock = Clock::intercept(thread, symbols)?;
        thread.run_to_call()?;
        Ok(Self {
            thread,
            clock,
            calls: HashMap::new(),
        })
    }

    /// Counts until `beside` says so, after a system call. Of the kernel's own instructions none counts.
    pub fn count(&mut self, beside: &mut impl Beside) -> Result<Counts> {
        let mut counts = Counts::default();
        let mut registers = self.thread.registers()?;
        loop {
            let before = registers;
            if self.calls_kernel(before.rip)? {
                let call = before.rax;
                let ended = self.call(call, &before, beside, Thread::step)?;
                counts.add(before.rip);
                if ended {
                    return Ok(counts);
                }
                registers = self.thread.registers()?;
            } else {
                self.thread.step()?;
                registers = self.thread.registers()?;
                // A repeated string instruction is one, whose last step leads away from it.
                if registers.rip != before.rip {
                    counts.add(before.rip);
                }
            }
            self.clock.pass_step();
        }
    }

    /// Runs without counting until `beside` says so.
    pub fn run(&mut self, beside: &mut impl Beside) -> Result<()> {
        loop {
            self.thread.run_to_call()?;
            let before = self.thread.registers()?;
            if self.call(before.orig_rax, &before, beside, Thread::run_to_call)? {
                return Ok(());
            }
            self.clock.pass_call();
        }
    }

    /// Lets it make a system call. Returns whether `beside` says that it is the last one.
    fn call(
        &mut self,
        call: u64,
        registers: &Registers,
        beside: &mut impl Beside,
        make: fn(&Thread) -> Result<()>,
    ) -> Result<bool> {
        if call as i64 == libc::SYS_clock_gettime {
            make(self.thread)?;
            self.clock.replace(self.thread, registers)?;
            return Ok(false);
        }
        beside.before_call(waits(call, registers))?;
        make(self.thread)?;
        beside.after_call()
    }

    fn calls_kernel(&mut self, address: u64) -> Result<bool> {
        if let Some(calls) = self.calls.get(&address) {
            return Ok(*calls);
        }
        let mut code = [0; SYSCALL.len()];
        self.thread.read(address, &mut code)?;
        self.calls.insert(address, code == SYSCALL);
        Ok(code == SYSCALL)
    }
}

/// Whether a system call waits for events, with a time-out other than 0.
fn waits(call: u64, registers: &Registers) -> bool {
    let for_events = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
    for_events.contains(&(call as i64)) && registers.r10 as i32 != 0
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;

    /// A round is 2000 instructions of a loop, a string instruction, and those around them.
    const LOOP: &str = "
        .globl _start, spin, copy
        _start: mov $1, %eax
            mov $1, %edi
            lea bytes(%rip), %rsi
            mov $1, %edx
            syscall
        again: mov $24, %eax
            syscall
            call spin
            call copy
            jmp again
        spin: mov $1000, %ecx
        1:  dec %ecx
            jnz 1b
            ret
        copy: lea bytes(%rip), %rdi
            mov $100, %ecx
            rep stosb
            ret
        .bss
        bytes: .skip 100
    ";

    const CLOCK: &str = "
        #include <sched.h>
        #include <time.h>
        #include <unistd.h>
        void early(void) {}
        void late(void) {}
        int main(void) {
            char byte = 0;
            write(1, &byte, 1);
            for (;;) {
                struct timespec one, other;
                clock_gettime(CLOCK_MONOTONIC, &one);
                sched_yield();
                clock_gettime(CLOCK_MONOTONIC, &other);
                long seconds = other.tv_sec - one.tv_sec;
                if (seconds * 1000000000 + other.tv_nsec - one.tv_nsec < 1000000) early(); else late();
            }
        }
    ";

    struct Program {
        process: Child,
        _folder: TempDir,
    }

    impl Program {
        /// Starts a program that never ends. Waits for a byte that it writes.
        fn start(language: &str, options: &[&str], source: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("program");
            let mut compiler = Command::new("cc")
                .args(["-x", language, "-", "-o"])
                .arg(&program)
                .args(options)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap();
            let mut input = compiler.stdin.take().unwrap();
            input.write_all(source.as_bytes()).unwrap();
            drop(input);
            assert!(compiler.wait().unwrap().success());
            let mut process = Command::new(program)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = process.stdout.as_mut().unwrap();
            output.read_exact(&mut [0]).unwrap();
            Self {
                process,
                _folder: folder,
            }
        }

        fn id(&self) -> i32 {
            self.process.id() as i32
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            // Whoever counts may have waited for its end, and then it is nobody's child any more.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// Ends a count after so many system calls, before each of which time passes.
    struct Calls(u64);

    impl Beside for Calls {
        fn before_call(&mut self, waits: bool) -> Result<()> {
            assert!(!waits);
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        }

        fn after_call(&mut self) -> Result<bool> {
            self.0 -= 1;
            Ok(self.0 == 0)
        }
    }

    #[test]
    fn each_instruction_is_counted_once() {
        let program = Program::start("assembler", &["-nostdlib", "-static"], LOOP);
        let thread = Thread::stop(program.id(), program.id()).unwrap().unwrap();
        let symbols = Symbols::read(program.id(), false).unwrap();
        let mut counter = Counter::new(&thread, &symbols).unwrap();
        for rounds in [1, 2] {
            counter.run(&mut Calls(3)).unwrap();
            let counts = counter.count(&mut Calls(rounds)).unwrap();
            let functions = [("again", 5), ("copy", 4), ("spin", 2002)];
            let expected = functions.map(|(name, count)| (name.to_owned(), rounds * count));
            assert_eq!(counts.functions(&symbols), BTreeMap::from(expected));
            assert_eq!(counts.total(), rounds * 2011);
        }
    }

    #[test]
    fn a_program_does_not_see_how_long_it_takes() {
        let program = Program::start("c", &[], CLOCK);
        let thread = Thread::stop(program.id(), program.id()).unwrap().unwrap();
        let symbols = Symbols::read(program.id(), false).unwrap();
        let mut counter = Counter::new(&thread, &symbols).unwrap();
        counter.run(&mut Calls(2)).unwrap();
        let functions = counter.count(&mut Calls(2)).unwrap().functions(&symbols);
        assert!(functions["early"] > 0, "{functions:?}");
        assert!(!functions.contains_key("late"), "{functions:?}");
    }

    #[test]
    fn a_thread_that_has_ended_is_an_error() {
        let mut program = Program::start("assembler", &["-nostdlib", "-static"], LOOP);
        let thread = Thread::stop(program.id(), program.id()).unwrap().unwrap();
        program.process.kill().unwrap();
        let ended = (0..2).find_map(|_| thread.step().err());
        assert!(ended.is_some());
    }
}
