//! `levity check`: reports all errors of a configuration file.

use std::path::Path;

use levity_config::Config;
use serde_json::json;

use super::{EXIT_CONFIG, Streams};
use crate::tls::folder;

/// Reports the errors of `file`; the exit status says whether there are any.
pub(super) fn check(file: &Path, json: bool, streams: &mut Streams<'_>) -> u8 {
    let result = levity_config::load(file);
    let status = if result.is_ok() { 0 } else { EXIT_CONFIG };
    match result {
        Ok(config) if json => {
            let file = file.to_string_lossy();
            let notes = notes(config);
            let answer = json!({ "file": file, "ok": true, "problems": [], "notes": notes });
            streams.out(&format!("{answer}\n"));
        }
        Ok(config) => {
            for note in notes(config) {
                streams.err(&format!("note: {}: {note}\n", file.display()));
            }
            streams.out(&format!("{}: ok\n", file.display()));
        }
        Err(errors) if json => streams.out(&format!("{}\n", errors.to_json())),
        Err(errors) => streams.err(&errors.render(streams.colour)),
    }
    status
}

/// Remarks that are not errors: those about the file, and those about this machine.
fn notes(config: Config) -> Vec<String> {
    let unwritable = folder::unwritable(&config);
    config.notes.into_iter().chain(unwritable).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Folder, levity};
    use super::*;

    #[test]
    fn check_says_ok() {
        let folder = Folder::new();
        let file = folder.write("levity.toml", "[[site]]\nroot = \".\"\n");
        let ran = levity(&["check", "-c", &file]);
        ran.exits(0);
        assert_eq!((ran.out, ran.err), (format!("{file}: ok\n"), String::new()));
        let json = levity(&["check", "-c", &file, "--json"]);
        json.exits(0);
        let answer: serde_json::Value = serde_json::from_str(&json.out).unwrap();
        assert_eq!(
            answer,
            json!({ "file": file, "ok": true, "problems": [], "notes": [] })
        );
    }

    #[test]
    fn check_shows_every_problem() {
        let folder = Folder::new();
        let file = folder.write(
            "levity.toml",
            "[disk]\nenigne = 1\n[[site]]\nroot = \"absent\"\n",
        );
        for command in ["check", "run"] {
            let ran = levity(&[command, "-c", &file]);
            ran.exits(EXIT_CONFIG);
            assert!(ran.out.is_empty());
            assert_eq!(ran.err.matches("error: ").count(), 2, "{}", ran.err);
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

    #[test]
    fn a_folder_that_cannot_be_written_is_noted() {
        let folder = Folder::new();
        let elsewhere = Folder::new();
        let state = elsewhere.write("state", "a file") + "/tls";
        let site = "[[site]]\nhosts = [\"a.test\"]\nroot = \".\"\n";
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
