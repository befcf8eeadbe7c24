//! `levity check`: reports all errors of a configuration.

use std::path::Path;

use levity_config::account::Accounts;
use levity_config::{Config, Note, Variables, printable};
use serde_json::{Value, json};

use super::access::{self, server_user};
use super::{EXIT_CONFIG, EXIT_USAGE, Streams, exit_of};
use crate::tls::{folder, trust};

/// How a configuration is checked, and how the result is written.
#[derive(clap::Args)]
pub(super) struct Options {
    /// Print JSON: `ok`, `problems` and `notes`; `ok` is true if the exit status is 0
    #[arg(long)]
    json: bool,
    /// Exit with 78 also if there is any note
    ///
    /// A note is about what a server starts with although it may not be meant. Without this option notes are printed, and the
    /// exit status is 0. Notes about a user that `--user` does not name do not count: a unit may give it more groups, or another name.
    #[arg(long)]
    strict: bool,
    /// Note what the user NAME cannot read, write or connect to
    ///
    /// As far as owners, groups, modes and access control lists say; what a unit hides is not looked at. Without this option it is the
    /// user `levity` where root checks /etc/levity/levity.toml.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// Reports the errors of `file` and those that it includes; the exit status says whether there are any, with `strict` also whether
/// there are notes.
pub(super) fn check(
    file: &Path,
    variables: &Variables,
    options: &Options,
    streams: &mut Streams<'_>,
) -> u8 {
    let accounts = Accounts::read();
    let is_root = rustix::process::geteuid().is_root();
    let user = match server_user(options.user.as_deref(), file, is_root, &accounts) {
        Ok(user) => user,
        Err(reason) => {
            streams.err(&format!("error: {reason}\n"));
            return EXIT_USAGE;
        }
    };
    let config = match levity_config::load(file, variables) {
        Ok(config) => config,
        Err(errors) => {
            match options.json {
                true => streams.out(&format!("{}\n", errors.to_json())),
                false => streams.err(&errors.render(streams.colour)),
            }
            return exit_of(&errors);
        }
    };
    let mut notes = notes(&config);
    let of_user = user.map(|user| access::notes(&config, &user, &accounts));
    let of_user = of_user.unwrap_or_default();
    let is_clean = notes.is_empty() && (options.user.is_none() || of_user.is_empty());
    notes.extend(of_user);
    let is_ok = is_clean || !options.strict;
    match options.json {
        true => streams.out(&format!("{}\n", as_json(file, &config, &notes, is_ok))),
        false => print(file, &config, &notes, is_ok, streams),
    }
    if is_ok { 0 } else { EXIT_CONFIG }
}

fn as_json(file: &Path, config: &Config, notes: &[Note], is_ok: bool) -> Value {
    let included = config.files.names().skip(1);
    let included = included.map(|name| name.to_string_lossy());
    json!({
        "file": file.to_string_lossy(),
        "included": included.collect::<Vec<_>>(),
        "ok": is_ok,
        "problems": [],
        "notes": notes.iter().map(Note::to_string).collect::<Vec<_>>(),
    })
}

fn print(file: &Path, config: &Config, notes: &[Note], is_ok: bool, streams: &mut Streams<'_>) {
    for Note { line, text } in notes {
        let named = line.as_ref().and_then(|line| line.file.as_deref());
        let name = named.unwrap_or(file).display();
        let line = line.as_ref().map(|line| format!("line {}: ", line.number));
        let line = line.unwrap_or_default();
        let note = printable(&format!("note: {name}: {line}{text}"));
        streams.err(&format!("{note}\n"));
    }
    let file = file.display();
    let more = match config.files.names().skip(1).count() {
        0 => String::new(),
        1 => " and 1 more file".to_owned(),
        more => format!(" and {more} more files"),
    };
    match is_ok {
        true => streams.out(&format!("{file}{more}: ok\n")),
        false => streams.err(&format!(
            "error: {file}: has notes, and --strict allows none\n"
        )),
    }
}

/// Remarks that are not errors: those about the configuration, and those about this machine.
fn notes(config: &Config) -> Vec<Note> {
    let of_machine = folder::notes(config).chain(trust::note(config));
    let of_machine = of_machine.map(Note::without_line);
    config.notes.iter().cloned().chain(of_machine).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, levity};
    use super::*;

    #[test]
    fn check_says_ok() {
        let (folder, root) = (Folder::new(), Folder::new());
        let site = format!("[[site]]\nroot = \"{}\"\n", root.path());
        let file = folder.write("levity.toml", &site);
        let ran = levity(&["check", "-c", &file]);
        ran.exits(0);
        assert_eq!((ran.out, ran.err), (format!("{file}: ok\n"), String::new()));
        let json = levity(&["check", "-c", &file, "--json"]);
        json.exits(0);
        let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(
            answer,
            json!({ "file": file, "included": [], "ok": true, "problems": [], "notes": [] })
        );
    }

    /// It may have secrets.
    #[test]
    fn a_configuration_that_lies_beneath_a_root_is_noted() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "[[site]]\nroot = \".\"\n");
        let ran = levity(&["check", "-c", &file]);
        ran.exits(0);
        let note = format!("line 1: {file} lies beneath a `root`, at `/levity.toml`");
        assert!(ran.err.contains(&note), "{}", ran.err);
    }

    #[test]
    fn names_do_not_control_the_terminal() {
        let (folder, root) = (Folder::new(), Folder::new());
        let site = format!(
            "include = [\"*.toml\"]\n[[site]]\nroot = \"{}\"\n",
            root.path()
        );
        let file = folder.write("levity.toml", &site);
        folder.write("a\u{1b}[2J.toml", "");
        let ran = levity(&["check", &file]);
        ran.exits(0);
        let note = "a\u{fffd}[2J.toml: line 1: the file has no table\n";
        assert!(ran.err.ends_with(note), "{:?}", ran.err);
    }

    #[test]
    fn strict_allows_no_note() {
        let folder = Folder::new();
        // A file beneath a root of its own is noted as well.
        let web = Folder::new();
        let site = format!("[[site]]\nroot = \"{}\"\n", web.path());
        let route = "[[site.route]]\npath = \"/a/\"\nrespond = { status = 204 }\n";
        let noted = folder.write("noted.toml", &format!("{site}{route}"));
        let ran = levity(&["check", &noted]);
        ran.exits(0);
        assert!(ran.err.starts_with("note: "), "{}", ran.err);
        let strict = levity(&["check", "--strict", &noted]);
        strict.exits(EXIT_CONFIG);
        let end = format!("error: {noted}: has notes, and --strict allows none\n");
        assert_eq!((strict.out, strict.err), (String::new(), ran.err + &end));
        for (arguments, status) in [(&["--json"][..], 0), (&["--json", "--strict"], EXIT_CONFIG)] {
            let json = levity(&[&["check", &noted], arguments].concat());
            json.exits(status);
            let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
            assert_eq!(answer["ok"], json!(status == 0));
            assert_eq!(answer["notes"].as_array().unwrap().len(), 1);
            assert_eq!(answer["problems"], json!([]));
        }
        let clean = folder.write("clean.toml", &site);
        levity(&["check", "--strict", &clean]).exits(0);
    }

    #[test]
    fn check_shows_every_problem() {
        let folder = Folder::new();
        let file = folder.write(
            "levity.toml",
            "[disk]\nenigne = 1\n[[site]]\nroot = \"absent\"\n",
        );
        // A server starts without a root.
        for (command, errors) in [("check", 2), ("run", 1)] {
            let ran = levity(&[command, "-c", &file]);
            ran.exits(EXIT_CONFIG);
            assert!(ran.out.is_empty());
            assert_eq!(ran.err.matches("error: ").count(), errors, "{}", ran.err);
            assert!(
                ran.err.contains(&format!("--> {file}:2:1\n")),
                "{}",
                ran.err
            );
        }
        let json = levity(&["check", "-c", &file, "--json"]);
        json.exits(EXIT_CONFIG);
        let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(answer["problems"].as_array().unwrap().len(), 2);
        assert_eq!(answer["problems"][1]["line"], 4);
        assert!(json.err.is_empty());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_folder_that_cannot_be_written_is_noted() {
        let folder = Folder::new();
        let (elsewhere, root) = (Folder::new(), Folder::new());
        let state = elsewhere.write("state", "a file") + "/tls";
        let root = root.path();
        let site = format!("[[site]]\nhosts = [\"a.test\"]\nroot = \"{root}\"\n");
        let text = format!("[tls]\nfolder = \"{state}\"\n{site}");
        let file = folder.write("levity.toml", &format!("{text}tls = \"internal\"\n"));
        let ran = levity(&["check", "-c", &file]);
        ran.exits(0);
        let reason = format!("cannot write to {state}, which");
        assert!(ran.err.contains(&reason), "{}", ran.err);
        assert!(ran.err.contains("/state is not a folder"), "{}", ran.err);
        let file = folder.write("levity.toml", &text);
        let ran = levity(&["check", "-c", &file]);
        ran.exits(0);
        assert_eq!(ran.err, "", "without certificates nothing is written");
    }

    #[cfg(feature = "tls")]
    #[test]
    fn notes_about_this_machine_show_no_values() {
        let (folder, elsewhere) = (Folder::new(), Folder::new());
        let state = elsewhere.write("hunter2", "a file");
        let values = folder.write("values", &format!("STATE={state}\n"));
        let text = "[tls]\nfolder = \"${STATE}/tls\"\n\
                    [[site]]\nhosts = [\"a.test\"]\nrespond = {}\ntls = \"internal\"\n";
        let file = folder.write("levity.toml", text);
        for json in [&[][..], &["--json"]] {
            let given = ["check", "-c", &file, "--env-file", &values];
            let ran = levity(&[&given, json].concat());
            ran.exits(0);
            let told = ran.out + &ran.err;
            assert!(
                told.contains("cannot write to ${STATE}/tls, which"),
                "{told}"
            );
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    /// A file for another server is one error and not one per line.
    #[test]
    fn the_file_of_another_server_is_one_problem() {
        let folder = Folder::new();
        let text = "# sites\nserver {\n    listen 80;\n    root /var/www;\n}\n";
        let file = folder.write("nginx.conf", text);
        for command in ["check", "run"] {
            let ran = levity(&[command, &file]);
            ran.exits(EXIT_CONFIG);
            assert_eq!(ran.err.matches("error: ").count(), 1, "{}", ran.err);
            assert!(ran.err.contains("a configuration of nginx"), "{}", ran.err);
            assert!(ran.err.contains(&format!("{file}:2:1\n")), "{}", ran.err);
        }
        levity(&["check", &file, "-c", &file]).exits(super::super::EXIT_USAGE);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_a_configuration_error() {
        let folder = Folder::new();
        let file = format!("{}/absent.toml", folder.path());
        let ran = levity(&["check", "-c", &file]);
        ran.exits(EXIT_CONFIG);
        assert!(
            ran.err.contains("cannot read the file") && ran.err.contains(&file),
            "{}",
            ran.err
        );
    }
}
