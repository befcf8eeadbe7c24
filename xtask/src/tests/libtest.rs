//! What a program with tests prints: the standard format of libtest.

use std::collections::BTreeSet;

/// What follows the name of a test that is to panic, or of an example in the documentation.
const NOTES: [&str; 3] = [" - should panic", " - compile fail", " - compile"];

/// What a run has reported so far. A program that runs several lists of tests, as that of the documentation does, has
/// several summaries.
#[derive(Debug, Default)]
pub struct Report {
    lists: usize,
    summaries: usize,
    /// The sum of the summaries.
    passed: usize,
    /// Tests that need not run again: they have passed, or are left out.
    settled: BTreeSet<String>,
    /// How many of them have passed.
    passed_by_name: usize,
    /// The tests that have failed, of all lists that have ended.
    pub failed: Vec<String>,
    /// The same of the list that has not, once they are being named.
    naming: Option<Vec<String>>,
}

impl Report {
    /// Takes in the next line of the output.
    pub fn read(&mut self, line: &str) {
        if line.starts_with("running ") && line.trim_end_matches('s').ends_with(" test") {
            self.lists += 1;
        } else if line == "failures:" {
            // The first of two such lines stands before the output of these tests.
            self.naming = Some(Vec::new());
        } else if let Some(summary) = line.strip_prefix("test result: ") {
            self.summaries += 1;
            self.passed += number(summary, " passed");
            self.failed.extend(self.naming.take().into_iter().flatten());
        } else if let (Some(failed), Some(name)) = (&mut self.naming, line.strip_prefix("    ")) {
            failed.push(without_note(name).to_owned());
        } else if let Some((name, outcome)) = outcome(line) {
            let has_passed = outcome == "ok";
            self.passed_by_name += usize::from(has_passed);
            if has_passed || outcome.starts_with("ignored") {
                self.settled.insert(name.to_owned());
            }
        }
    }

    /// Whether each list has come to its summary.
    pub fn is_complete(&self) -> bool {
        self.summaries > 0 && self.summaries == self.lists
    }

    /// The number of tests that have passed.
    pub fn passed(&self) -> usize {
        match self.is_complete() {
            true => self.passed,
            false => self.passed_by_name,
        }
    }

    /// The tests of `all` that have neither passed nor been left out.
    pub fn unsettled(&self, all: Vec<String>) -> Vec<String> {
        let open = all.into_iter().filter(|test| !self.settled.contains(test));
        open.collect()
    }
}

/// The names in the output of `--list`.
pub fn listed(output: &str) -> Vec<String> {
    let names = output
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    names.map(str::to_owned).collect()
}

/// The name and the outcome in a line about one test.
fn outcome(line: &str) -> Option<(&str, &str)> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((without_note(name), outcome))
}

fn without_note(name: &str) -> &str {
    let mut names = NOTES.iter().filter_map(|note| name.strip_suffix(note));
    names.next().unwrap_or(name)
}

/// The number before `word` in a summary.
fn number(summary: &str, word: &str) -> usize {
    let mut parts = summary.split([';', '.']);
    let number = parts.find_map(|part| part.strip_suffix(word)?.trim().parse().ok());
    number.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(output: &str) -> Report {
        let mut report = Report::default();
        output.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn a_run_without_a_failure() {
        let report = report(
            "\nrunning 3 tests\ntest a::b ... ok\ntest a::c ... ignored, takes a minute\ntest d - should panic ... ok\n\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.01s\n\n",
        );
        assert!(report.is_complete());
        assert_eq!((report.passed(), report.failed.len()), (2, 0));
    }

    /// Another process may write into the middle of a line; the summary and the list at the end count.
    #[test]
    fn a_run_with_failures() {
        let report = report(
            "running 3 tests\ntest a::b ... FAILED\nnginx: startedtest a::c ... ok\ntest d - should panic ... FAILED\n\n\
             failures:\n\n---- a::b stdout ----\nit said:\nfailures:\n    not a name\n\nleft: 1\n\n\
             ---- d stdout ----\nnote: test did not panic as expected\n\n\
             failures:\n    a::b\n    d\n\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.00s\n",
        );
        assert!(report.is_complete());
        assert_eq!(report.passed(), 1);
        assert_eq!(report.failed, ["a::b", "d"]);
    }

    #[test]
    fn the_lists_of_the_documentation_add_up() {
        let report = report(
            "running 2 tests\ntest src/a.rs - a (line 1) ... ok\ntest src/a.rs - b (line 9) - compile ... FAILED\n\n\
             failures:\n\nfailures:\n    src/a.rs - b (line 9)\n\ntest result: FAILED. 1 passed; 1 failed;\n\n\
             running 0 tests\n\ntest result: ok. 0 passed; 0 failed;\n\n\
             running 1 test\ntest src/c.rs - c (line 3) ... ok\n\ntest result: ok. 1 passed; 0 failed;\n",
        );
        assert!(report.is_complete());
        assert_eq!(report.passed(), 2);
        assert_eq!(report.failed, ["src/a.rs - b (line 9)"]);
    }

    #[test]
    fn a_run_that_was_cut_short() {
        let report =
            report("running 4 tests\ntest a ... ok\ntest b ... ignored\ntest c ... FAILED\n");
        assert!(!report.is_complete());
        assert_eq!(report.passed(), 1);
        let all = listed("a: test\nb: test\nc: test\nd: test\n\n4 tests, 0 benchmarks\n");
        assert_eq!(report.unsettled(all), ["c", "d"]);
        assert!(!Report::default().is_complete());
    }
}
