//! The reverse: without a rule, each name leads to its file or script.

use super::setup::{self, FILES, Kind, SCRIPTS, Setup};
use super::{FOLDERS, PREFIXES, Replies, check_all, script_of, start};
use crate::found::Faults;

/// A path that leads somewhere, and the script that runs there, if one does.
struct Expected {
    path: String,
    script: Option<String>,
}

impl Expected {
    fn is_met(&self, status: u16, text: &str) -> bool {
        match &self.script {
            Some(script) => status == 200 && script_of(text) == Some(script),
            None => matches!(status, 200 | 301 | 307 | 308),
        }
    }
}

fn is_script(setup: &Setup, file: &str) -> bool {
    setup.has_scripts && file.ends_with(".php")
}

/// Whether a request for the file may be answered with it, or by running it.
fn is_open(setup: &Setup, file: &str) -> bool {
    let is_shown = !file.split('/').any(|name| name.starts_with('.')) || setup.has("show");
    let is_source = setup.has_scripts && file.contains(".php");
    is_shown && (is_script(setup, file) || !is_source)
}

/// The name of the index file of a folder that has one.
fn index(setup: &Setup, folder: &str) -> Option<String> {
    let names = setup.index();
    let is_there = |name: &&str| setup.files.contains(&&*format!("{folder}{name}"));
    let index = names.iter().copied().find(is_there)?;
    // A folder with a script that is not the first of the names is a list of files before it comes to that script.
    let is_list = setup.has("listing") && setup.has("directory");
    let is_later = index.ends_with(".php") && names[0] != index;
    (!is_list || !is_later).then(|| format!("{folder}{index}"))
}

/// The paths that lead to something, by the names of the files.
fn expected(setup: &Setup, prefix: &str) -> Vec<Expected> {
    let mut expected = Vec::new();
    let mut add = |name: &str, script: Option<&str>| {
        expected.push(Expected {
            path: format!("{prefix}/{name}"),
            script: script.map(|script| format!("{prefix}/{script}")),
        });
    };
    for &file in setup.files.iter().filter(|file| is_open(setup, file)) {
        let script = Some(file).filter(|file| is_script(setup, file));
        add(file, script);
        if script.is_some() {
            add(&format!("{file}/x"), script);
        }
        let stem = file.strip_suffix(".html");
        if let Some(stem) = stem.filter(|_| setup.has("file.html")) {
            add(stem, None);
        }
    }
    for folder in FOLDERS {
        let Some(index) = index(setup, folder) else {
            continue;
        };
        let script = Some(&*index).filter(|index| is_script(setup, index));
        add(folder, script);
        // Folders that the list leaves out are not redirected to, unless a script is there.
        let is_tried = setup.has("directory") || !setup.has("try") || script.is_some();
        if !folder.is_empty() && is_tried {
            add(folder.trim_end_matches('/'), None);
        }
    }
    expected
}

#[track_caller]
fn assert_each_name_leads_to_its_file(cases: u32, kind: &'static Kind) {
    check_all(cases, &setup::plain(kind), |setup, client| {
        let mut faults = Faults::default();
        for asked in setup.asked.iter().filter(|asked| asked.method == "GET") {
            let replies = Replies::get(client, setup, asked);
            for expected in PREFIXES.iter().flat_map(|prefix| expected(setup, prefix)) {
                let path = &expected.path;
                let answer = &replies.answers[path];
                let (status, text) = (answer.status, answer.text());
                faults.note(expected.is_met(status, &text), || {
                    format!("{path} by {asked:?}: {status} {:?}", start(&text))
                });
            }
        }
        faults
    });
}

#[test]
fn each_name_leads_to_its_file() {
    assert_each_name_leads_to_its_file(6, &FILES);
}

#[test]
fn each_name_leads_to_its_script() {
    assert_each_name_leads_to_its_file(6, &SCRIPTS);
}
