//! Properties of sites that are made up.
//!
//! `PROPTEST_CASES` asks for more of them, and `PROPTEST_RNG_SEED` for others; without these, they are always the same.

mod plain;
mod setup;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::Strategy;
use proptest::test_runner::{
    Config, RngSeed, TestCaseError, TestCaseResult, TestRunner, contextualize_config,
};

use self::setup::{Asked, FILES, Kind, SCRIPTS, STRIPPED, Setup};
use super::{Faults, content_of, runner, site, tree_of};
use crate::support::{Answer, Client, head};

/// Requests for names that do not exist are not delayed.
const LIMITS: &str = "[limits]\nabsent_trips = 1000000\n[log]\naccess = \"off\"\n";

/// How often a case that fails is made smaller, and for how many milliseconds. Each time a server is started.
const SHRINK_ITERS_MAX: u32 = 500;
const SHRINK_TIME_MAX: u32 = 90_000;

/// How many faults of the smallest case a message has, and how much of a content.
const FAULTS_SHOWN: usize = 4;
const CHARS_SHOWN: usize = 100;

/// Requests that are sent at once.
const AT_ONCE: usize = 32;

/// How many paths of a site have to lead to something of another name, and how many to be refused: on average, of which a few
/// sites may be far.
const FOUND_MIN: u32 = 50;
const REFUSED_MIN: u32 = 15;

/// In front of the names of files: what a route strips from the path, and nothing.
const PREFIXES: [&str; 2] = ["", STRIPPED];

const FOLDERS: [&str; 4] = ["", "d/", "d/e/", "sub/"];

/// Expects that `check` finds nothing wrong in so many sites.
#[track_caller]
fn check_all(
    cases: u32,
    setups: &impl Strategy<Value = Setup>,
    check: impl Fn(&Setup, &mut Client) -> Faults,
) {
    // As the environment has it, and otherwise so.
    let config = contextualize_config(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: SHRINK_ITERS_MAX,
        max_shrink_time: SHRINK_TIME_MAX,
        rng_seed: RngSeed::Fixed(0),
        ..Config::default()
    });
    let checked = TestRunner::new(config).run(setups, |setup| check_one(&setup, &check));
    if let Err(failure) = checked {
        panic!("{failure}");
    }
}

fn check_one(setup: &Setup, check: impl Fn(&Setup, &mut Client) -> Faults) -> TestCaseResult {
    let (backend, tree) = (runner(), tree_of(&setup.files));
    let upstream = format!(
        "[[upstream]]\nname = \"app\"\nprotocol = \"fastcgi\"\nkeep_alive = 1\nto = [\"{}\"]\n",
        backend.address()
    );
    let server = match site(&tree, &format!("{LIMITS}{upstream}"), &setup.keys()).try_start() {
        Ok(server) => server,
        Err(said) if said.contains("this route can never match") => {
            return Err(TestCaseError::reject("a route hides another"));
        }
        Err(said) => return Err(TestCaseError::fail(said)),
    };
    let Faults(mut faults) = check(setup, &mut server.client());
    faults.truncate(FAULTS_SHOWN);
    match faults.is_empty() {
        true => Ok(()),
        false => Err(TestCaseError::fail(faults.join("\n"))),
    }
}

/// Every path that may lead to one of the files.
fn paths(prefix: &str, files: &[&str]) -> BTreeSet<String> {
    let mut paths = BTreeSet::new();
    for folder in FOLDERS {
        let folder = format!("{prefix}/{folder}");
        paths.insert(format!("{folder}none"));
        paths.insert(folder.trim_end_matches('/').to_owned());
        for query in ["", "?archive=tar", "?archive=zip"] {
            paths.insert(format!("{folder}{query}"));
        }
    }
    for file in files {
        let path = format!("{prefix}/{file}");
        paths.extend(["/", "/x", ".gz"].map(|more| format!("{path}{more}")));
        let escapes = [("/", "%2F"), (".", "%2E")];
        let escaped = escapes.map(|(byte, escape)| file.replace(byte, escape));
        paths.extend(escaped.map(|file| format!("{prefix}/{file}")));
        let mut stem = path.as_str();
        while let Some((shorter, _)) = stem.rsplit_once('.') {
            paths.insert(shorter.to_owned());
            stem = shorter;
        }
        paths.insert(path);
    }
    paths.retain(|path| path.starts_with('/'));
    paths
}

/// The answers to requests for some paths.
fn answers(
    client: &mut Client,
    asked: &Asked,
    paths: BTreeSet<String>,
) -> BTreeMap<String, Answer> {
    let target = |path: &String| match asked.query {
        Some(query) if path.contains('?') => format!("{path}&{query}"),
        Some(query) => format!("{path}?{query}"),
        None => path.clone(),
    };
    let mut answers = BTreeMap::new();
    let paths: Vec<_> = paths.into_iter().collect();
    for paths in paths.chunks(AT_ONCE) {
        let request = |path| head(asked.method, &target(path), asked.headers);
        client.send(paths.iter().map(request).collect::<String>());
        for path in paths {
            answers.insert(path.clone(), client.receive_to(asked.method));
        }
    }
    answers
}

/// The answers of a site to all paths, if they are asked for in one way.
struct Replies<'s> {
    setup: &'s Setup,
    asked: &'s Asked,
    answers: BTreeMap<String, Answer>,
    faults: Faults,
    /// How many paths have led to a file or a script of another name.
    found: u32,
    /// How many requests were refused.
    refused: u32,
}

impl<'s> Replies<'s> {
    fn get(client: &mut Client, setup: &'s Setup, asked: &'s Asked) -> Self {
        let paths = PREFIXES.map(|prefix| paths(prefix, &setup.files));
        Self {
            setup,
            asked,
            answers: answers(client, asked, paths.into_iter().flatten().collect()),
            faults: Faults::default(),
            found: 0,
            refused: 0,
        }
    }

    /// Compares each answer with that to the name of what was found.
    fn compare_all(&mut self) {
        for (path, answer) in self.answers.clone() {
            let text = answer.text();
            self.refused += u32::from(answer.status == 403);
            self.expect_no_source(&path, &text);
            if answer.status != 200 {
                continue;
            }
            self.compare_original(&path);
            for file in &self.setup.files {
                if text.contains(&content_of(file)) {
                    self.compare_file(&path, own_name(&answer, file));
                }
            }
            if let Some(script) = script_of(&text) {
                self.compare_script(&path, script);
            }
        }
    }

    fn note(&mut self, is_right: bool, path: &str, what: impl FnOnce() -> String) {
        let asked = self.asked;
        self.faults
            .note(is_right, || format!("{path} by {asked:?}: {}", what()));
    }

    /// Expects that a request for the file itself is answered too.
    fn compare_file(&mut self, path: &str, file: &str) {
        let direct = format!("{}/{file}", self.setup.prefix(path));
        let forms = [content_of(file), content_of(&format!("{file}.gz"))];
        let is_right = |text: &str| forms.iter().any(|form| text.contains(form));
        self.compare(path, &direct, is_right);
    }

    /// Expects that a request for the script itself runs it too.
    fn compare_script(&mut self, path: &str, script: &str) {
        self.compare(path, script, |text| script_of(text) == Some(script));
    }

    fn compare(&mut self, path: &str, direct: &str, is_right: impl Fn(&str) -> bool) {
        if direct == path {
            return;
        }
        self.found += 1;
        let answer = self.answers.get(direct);
        let (status, text) = answer.map_or((0, String::new()), |one| (one.status, one.text()));
        // A redirect keeps nobody from what lies there.
        self.note(
            status == 302 || status == 200 && is_right(&text),
            path,
            || format!("this is {direct}, which is {status} {:?}", start(&text)),
        );
    }

    /// Expects that a request for the original of a compressed form is not refused.
    fn compare_original(&mut self, path: &str) {
        let setup = self.setup;
        let form = path.strip_suffix(".gz").filter(|_| setup.has_file(path));
        let Some(original) = form.filter(|_| setup.has_forms()) else {
            return;
        };
        let status = self.answers[original].status;
        let is_right = match setup.has_file(original) {
            true => !matches!(status, 403 | 404),
            // What does not exist is answered by a page of `try`, which may be refused.
            false => status != 403 || setup.has(", \"/"),
        };
        self.note(is_right, path, || format!("but {original} is {status}"));
    }

    /// Expects that the source of a script is not sent.
    fn expect_no_source(&mut self, path: &str, text: &str) {
        let setup = self.setup;
        let is_source = |file: &&&str| setup.has_scripts && file.contains(".php");
        let sources = setup.files.iter().filter(is_source);
        let sent: Vec<_> = sources
            .filter(|file| text.contains(&content_of(file)))
            .collect();
        self.note(sent.is_empty(), path, || format!("the source of {sent:?}"));
    }
}

/// As much of a content as a message has.
fn start(text: &str) -> String {
    text.chars().take(CHARS_SHOWN).collect()
}

/// A compressed form has been sent for its original.
fn own_name<'f>(answer: &Answer, file: &'f str) -> &'f str {
    match answer.header("content-encoding") {
        Some(_) => file.strip_suffix(".gz").unwrap_or(file),
        None => file,
    }
}

/// The script that has run.
fn script_of(text: &str) -> Option<&str> {
    let (script, _) = text.strip_prefix("ran ")?.split_once(" with ")?;
    Some(script)
}

/// Expects that no path of so many sites leads to something that a request for its own name would not get.
#[track_caller]
fn assert_no_path_leads_past_a_rule(cases: u32, kind: &'static Kind) {
    let (sites, found, refused) = (Cell::new(0), Cell::new(0), Cell::new(0));
    check_all(cases, &setup::ruled(kind), |setup, client| {
        let mut faults = Vec::new();
        for asked in &setup.asked {
            let mut replies = Replies::get(client, setup, asked);
            replies.compare_all();
            found.update(|found| found + replies.found);
            refused.update(|refused| refused + replies.refused);
            faults.extend(replies.faults.0);
        }
        sites.update(|sites| sites + 1);
        Faults(faults)
    });
    let (sites, found, refused) = (sites.get(), found.get(), refused.get());
    let is_enough = found > sites * FOUND_MIN && refused > sites * REFUSED_MIN;
    assert!(sites < cases || is_enough, "{sites}: {found}, {refused}");
}

#[test]
fn no_path_leads_to_a_file_past_a_rule() {
    assert_no_path_leads_past_a_rule(28, &FILES);
}

#[test]
fn no_path_leads_to_a_script_past_a_rule() {
    assert_no_path_leads_past_a_rule(20, &SCRIPTS);
}
