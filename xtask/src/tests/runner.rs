//! Runs programs with tests, and each test that failed once more, alone, at the end. One that passes then is *unsteady*:
//! it is named, but the run has succeeded.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::libtest::{self, Report};
use super::suite::Suite;
use crate::run::{self, Result};

/// For how long tests are run again. After a crash there may be very many.
const RERUN_TIME_MAX: Duration = Duration::from_secs(600);

/// A program that has ended is read from until it has been silent for this long: a process that it has left behind may
/// hold its output open for ever.
const SILENCE_MAX: Duration = Duration::from_millis(500);

/// What libtest says of a test after a minute.
const RUNS_LONG: &str = "has been running for over";

/// How many programs run at the same time. Their tests wait for most of their time: one program at a time leaves half of
/// the processors idle.
const PROGRAMS: usize = 2;

/// How tests are run.
pub struct Runner<'a> {
    /// Only tests whose name contains it.
    pub filter: Option<&'a str>,
    /// Further arguments of libtest.
    pub options: &'a [&'a str],
    /// How many tests of a program run at the same time.
    pub threads: String,
}

/// The outcome of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: usize,
    /// Tests that failed first and passed then.
    unsteady: Vec<String>,
    /// Tests that failed twice, were not run again, or took their program down.
    failed: Vec<String>,
}

/// What the first run of a program has shown.
struct Ran {
    time: Duration,
    passed: usize,
    /// The tests to run again: those that failed, and after a crash all that have not reported.
    failures: Vec<String>,
    /// The program has failed, but no test of it.
    fault: Option<String>,
}

/// A test that has to be run again.
struct Failure<'a> {
    suite: &'a Suite,
    test: String,
}

impl Runner<'_> {
    /// Runs all tests of `suites`, and prints how long each took.
    pub fn run(&self, suites: &[Suite]) -> Result<()> {
        let mut times = Vec::new();
        let outcome = self.run_all(suites, RERUN_TIME_MAX, &mut times)?;
        times.sort_by(|(one, _), (other, _)| other.cmp(one));
        println!("\nseconds per program:");
        for (time, name) in times {
            println!("{:8.1}  {name}", time.as_secs_f64());
        }
        conclude(&outcome)
    }

    fn run_all(
        &self,
        suites: &[Suite],
        rerun_time_max: Duration,
        times: &mut Vec<(Duration, String)>,
    ) -> Result<Outcome> {
        let (mut outcome, mut failures) = (Outcome::default(), Vec::new());
        for (suite, ran) in self.run_programs(suites)? {
            times.push((ran.time, suite.name.clone()));
            outcome.passed += ran.passed;
            outcome.failed.extend(ran.fault);
            let tests = ran.failures.into_iter();
            failures.extend(tests.map(|test| Failure { suite, test }));
        }
        let start = Instant::now();
        for failure in failures {
            match start.elapsed() < rerun_time_max {
                true => self.run_again(&failure, &mut outcome)?,
                false => outcome.failed.push(failure.name()),
            }
        }
        Ok(outcome)
    }

    /// Runs each program once, [`PROGRAMS`] at a time.
    fn run_programs<'s>(&self, suites: &'s [Suite]) -> Result<Vec<(&'s Suite, Ran)>> {
        let next = AtomicUsize::new(0);
        let run_some = || {
            let mut ran = Vec::new();
            while let Some(suite) = suites.get(next.fetch_add(1, Ordering::Relaxed)) {
                ran.push((suite, self.run_program(suite)?));
            }
            Ok(ran)
        };
        let ran = thread::scope(|scope| {
            let threads: Vec<_> = (0..PROGRAMS).map(|_| scope.spawn(run_some)).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().expect("it does not panic"));
            joined.collect::<Result<Vec<_>>>()
        })?;
        Ok(ran.into_iter().flatten().collect())
    }

    /// Runs a program, and prints its output when it has ended; before that which of its tests take long, as one that never ends
    /// has no other sign.
    fn run_program(&self, suite: &Suite) -> Result<Ran> {
        let start = Instant::now();
        println!("starts: cargo test {}", suite.name);
        let mut output = format!("\n$ cargo test {}\n", suite.name);
        let (report, status) = self.report(self.command(suite), |line| {
            if line.contains(RUNS_LONG) {
                print!("cargo test {}: {line}", suite.name);
            }
            // The verdict is that of the second run.
            if !line.starts_with("test result: FAILED") {
                output.push_str(line);
            }
        })?;
        let mut ran = Ran {
            time: start.elapsed(),
            passed: report.passed(),
            failures: Vec::new(),
            fault: None,
        };
        ran.failures = match report.is_complete() {
            true => report.failed,
            false => {
                output.push_str(&format!("the program has crashed: {status}\n"));
                report.unsettled(self.list(suite)?)
            }
        };
        if ran.failures.is_empty() && !status.success() {
            ran.fault = Some(format!("{} ({status})", suite.name));
        }
        print!("{output}");
        Ok(ran)
    }

    fn command(&self, suite: &Suite) -> Command {
        let mut command = suite.command(self.options);
        command.args(self.filter);
        command
    }

    /// The names of the tests that a program would run, and of those that it would leave out. Of a program that cannot
    /// even tell these there are none.
    fn list(&self, suite: &Suite) -> Result<Vec<String>> {
        let mut list = self.command(suite);
        let output = list.arg("--list").output();
        let output = output.map_err(|error| format!("{}: {error}", suite.name))?;
        Ok(libtest::listed(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Runs one test alone. Shows its output if it fails again.
    fn run_again(&self, failure: &Failure<'_>, outcome: &mut Outcome) -> Result<()> {
        let name = failure.name();
        println!("\nonce more, alone: {name}");
        let mut command = failure.suite.command(&["--exact", &failure.test]);
        command.args(self.options);
        let mut output = String::new();
        let (report, status) = self.report(command, |line| output.push_str(line))?;
        outcome.passed += report.passed();
        if !status.success() || !report.is_complete() {
            print!("{output}");
            println!("{status}");
            outcome.failed.push(name);
        } else if report.passed() > 0 {
            outcome.unsteady.push(name);
        }
        Ok(())
    }

    /// Runs a command, and reads what it prints, which is also given to `show` line by line.
    fn report(
        &self,
        mut command: Command,
        mut show: impl FnMut(&str),
    ) -> Result<(Report, ExitStatus)> {
        let line = run::command_line(&command);
        let failed = |error| format!("{line}: {error}");
        command.env(super::THREADS, &self.threads);
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let lines = lines(child.stdout.take().expect("it is piped"));
        let mut report = Report::default();
        loop {
            match lines.recv_timeout(SILENCE_MAX) {
                Ok(line) => {
                    report.read(line.trim_end_matches('\n'));
                    show(&line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if child.try_wait().map_err(failed)?.is_some() {
                        break;
                    }
                }
            }
        }
        let status = child.wait().map_err(failed)?;
        Ok((report, status))
    }
}

impl Failure<'_> {
    fn name(&self) -> String {
        format!("{} -- --exact '{}'", self.suite.name, self.test)
    }
}

/// Prints the closing lines. An error if the run has failed.
fn conclude(outcome: &Outcome) -> Result<()> {
    println!();
    for name in &outcome.unsteady {
        println!("unsteady, passed when run again alone: {name}");
    }
    for name in &outcome.failed {
        println!("failed: {name}");
    }
    let failed = outcome.failed.len();
    println!("{} passed, {failed} failed", outcome.passed);
    match failed {
        0 => Ok(()),
        _ => Err("tests have failed".to_owned()),
    }
}

/// The lines of `output`, each with its end, as they come.
fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    let mut output = BufReader::new(output);
    thread::spawn(move || {
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            // Nobody listens any more if a process that was left behind goes on printing.
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            line.clear();
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::{env, fs, process};

    /// A program that does `script` in its own folder. `$*` are its arguments.
    fn suite(folder: &Path, script: &str) -> Suite {
        Suite {
            name: "-p one".to_owned(),
            program: "sh".into(),
            before: ["-c", script, "sh"].map(str::to_owned).to_vec(),
            folder: folder.to_owned(),
        }
    }

    fn run(script: &str, rerun_time_max: Duration) -> Outcome {
        let folder = env::temp_dir().join(format!("levity-xtask-{}", process::id()));
        let folder = folder.join(format!("{:?}", thread::current().id()));
        fs::create_dir_all(&folder).unwrap();
        let runner = Runner {
            filter: None,
            options: &["--include-ignored"],
            threads: "2".to_owned(),
        };
        let suites = [suite(&folder, script)];
        let outcome = runner.run_all(&suites, rerun_time_max, &mut Vec::new());
        fs::remove_dir_all(&folder).unwrap();
        outcome.unwrap()
    }

    fn failed(test: &str) -> String {
        format!("-p one -- --exact '{test}'")
    }

    /// `a` fails always, `b` only among others, `c` never.
    const FAILING: &str = r#"
        ok() { echo "running 1 test
test $1 ... ok

test result: ok. 1 passed; 0 failed; 0 ignored"; }
        case $* in
        "--include-ignored") echo "running 3 tests
test c ... ok

failures:
    a
    b

test result: FAILED. 1 passed; 2 failed; 0 ignored"; exit 101 ;;
        "--exact b --include-ignored") ok b ;;
        "--exact a --include-ignored") echo "running 1 test
test a ... FAILED

failures:
    a

test result: FAILED. 0 passed; 1 failed; 0 ignored"; exit 101 ;;
        *) exit 2 ;;
        esac"#;

    #[test]
    fn what_failed_is_run_once_more_alone() {
        let expected = Outcome {
            passed: 2,
            unsteady: vec![failed("b")],
            failed: vec![failed("a")],
        };
        assert_eq!(run(FAILING, RERUN_TIME_MAX), expected);
    }

    #[test]
    fn what_there_is_no_time_for_has_failed() {
        let outcome = run(FAILING, Duration::ZERO);
        assert_eq!((outcome.passed, outcome.failed.len()), (1, 2));
    }

    /// `a` has passed before the crash; `b` passes alone, `c` is left out, `d` takes its program down again.
    #[test]
    fn after_a_crash_all_that_did_not_report_are_run_again() {
        let outcome = run(
            r#"
            case $* in
            "--include-ignored") echo "running 4 tests
test a ... ok"; kill -ABRT $$ ;;
            *--list) echo "a: test
b: test
c: test
d: test" ;;
            "--exact b "*) echo "running 1 test
test b ... ok

test result: ok. 1 passed; 0 failed" ;;
            "--exact c "*) echo "running 1 test
test c ... ignored

test result: ok. 0 passed; 0 failed; 1 ignored" ;;
            *) kill -SEGV $$ ;;
            esac"#,
            RERUN_TIME_MAX,
        );
        let expected = Outcome {
            passed: 2,
            unsteady: vec![failed("b")],
            failed: vec![failed("d")],
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn a_failure_that_no_test_is_named_for_counts() {
        let outcome = run("exit 3", RERUN_TIME_MAX);
        assert_eq!(outcome.failed, ["-p one (exit status: 3)"]);
        let outcome = run(
            "echo 'running 0 tests'; echo 'test result: ok. 0 passed; 0 failed'; kill -SEGV $$",
            RERUN_TIME_MAX,
        );
        assert_eq!(outcome.failed.len(), 1);
    }

    #[test]
    fn a_process_that_is_left_behind_is_not_waited_for() {
        let start = Instant::now();
        let outcome = run(
            "touch here; (for n in $(seq 600); do test -f here && sleep 0.1; done) &
            echo 'running 0 tests'; echo 'test result: ok. 5 passed; 0 failed'",
            RERUN_TIME_MAX,
        );
        assert_eq!(outcome.passed, 5);
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
