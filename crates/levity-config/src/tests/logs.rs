//! Access logs of sites and routes.

use super::*;
use crate::log::LOGS_MAX;

fn log_of(config: &Config, site: usize, route: Option<usize>) -> Option<&Log> {
    let site = &config.sites[site];
    let location = route.map_or(&site.location, |route| &site.routes[route].location);
    location.log.as_ref()
}

fn file(path: &str) -> AccessLog {
    AccessLog::File(path.into())
}

#[test]
fn sites_and_routes_inherit_keys() {
    let text = "[log]\naccess = \"/all\"\nformat = \"json\"\ntiming = \"chunk\"\n\
        [[site]]\nroot = \"/\"\nlog = { access = \"/own\" }\n\
        [[site.route]]\npath = \"/healthz\"\nlog = false\n\
        [[site.route.route]]\npath = \"/healthz\"\nlog = { access = \"stdout\", format = \"combined\" }\n\
        [[site.route]]\npath = \"/a\"\n\
        [[site]]\nhosts = [\"a\"]\nroot = \"/\"\n\
        [[site]]\nhosts = [\"b\"]\nroot = \"/\"\n[site.log]\nformat = \"{status}\"\n";
    let config = parse(text).unwrap();
    let json = |access, timing| Log {
        access,
        format: LogFormat::Json,
        timing,
    };
    let own = json(file("/own"), LogTiming::Chunk);
    assert_eq!(log_of(&config, 0, None), Some(&own));
    let inner = log_of(&config, 0, Some(0)).expect("that of the route within");
    assert_eq!(
        (&inner.access, &inner.format, inner.timing),
        (&AccessLog::Stdout, &LogFormat::Combined, LogTiming::Off)
    );
    let off = json(AccessLog::Off, LogTiming::Chunk);
    assert_eq!(log_of(&config, 0, Some(1)), Some(&off));
    assert_eq!(log_of(&config, 0, Some(2)), Some(&own));
    assert_eq!(log_of(&config, 1, None), None);
    let custom = log_of(&config, 2, None).expect("its own");
    assert_eq!(
        (&custom.access, custom.timing),
        (&file("/all"), LogTiming::Off)
    );
    assert!(matches!(custom.format, LogFormat::Custom(_)));
    assert_eq!(
        [0, 1].map(|site| config.sites[site].name()),
        ["default", "a"]
    );
}

#[test]
fn wrong_logs_have_their_line() {
    assert_problems(
        "[log]\nformat = \"{sttus}\"\n[[site]]\nroot = \"/\"\nlog = \"/b\"\n[[site.route]]\npath = \"/a\"\n\
         log = { format = \"{status}\", timing = \"chunk\", acces = \"off\" }\n",
        &[
            "2:10 unknown field `{sttus}` [did you mean `{status}`?]",
            "5:7 expected a table, found string [write `log = { access = \"/b\" }`]",
            "8:39 `timing`: only lines in JSON have room for it [write `format = \"json\"` beside it]",
            "8:48 unknown key `acces` [did you mean `access`?]",
        ],
    );
}

#[test]
fn the_number_of_logs_is_bounded() {
    let sites = |count: usize| {
        let site = |n| {
            format!("[[site]]\nhosts = [\"h{n}\"]\nroot = \"/\"\nlog = {{ access = \"/l{n}\" }}\n")
        };
        let shared = "[[site.route]]\npath = \"/a\"\nlog = { access = \"/l1\" }\n\
                      [[site.route]]\npath = \"/b\"\nlog = false\n";
        // One is that of `[log]`.
        let own: String = (1..count).map(site).collect();
        format!("{own}{shared}")
    };
    assert!(parse(&sites(LOGS_MAX)).is_ok());
    let problems = reports(&sites(LOGS_MAX + 1));
    let expected = "256:7 `log`: more than 64 access logs that differ in file or format \
                    [let sites share a file; lines can have `{site}`]";
    assert_eq!(problems, [expected]);
}

/// As the server finds at its start.
#[test]
fn a_log_that_is_a_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["www", "log"] {
        std::fs::create_dir(at(name)).expect("a folder");
    }
    let text = "[[site]]\nroot = \"www\"\n[site.log]\naccess = \"./log\"\n";
    std::fs::write(at("levity.toml"), text).expect("a file");
    let errors = load(&at("levity.toml"))
        .expect_err("a folder")
        .render(false);
    assert!(errors.contains("/log is a folder"), "{errors}");
    assert!(errors.contains("levity.toml:4:"), "{errors}");
}

#[test]
fn a_log_beneath_a_root_is_noted() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("www/in")).expect("a folder");
    let notes = |log: &str, more: &str| {
        let text = format!("[log]\naccess = \"{log}\"\n[[site]]\nroot = \"www\"\n{more}");
        std::fs::write(at("levity.toml"), text).expect("a file");
        load(&at("levity.toml"))
            .expect("a configuration")
            .note_texts()
    };
    let note = |line: usize, path: &str| {
        let shown = at("www").display().to_string();
        format!(
            "line {line}: {shown}{path} lies beneath a `root`, at `{path}` of the site on line 3: all clients can read this log; move \
             it to a folder that is not served"
        )
    };
    assert_eq!(notes("./access", ""), [""; 0]);
    assert_eq!(notes("www/in/access", ""), [note(2, "/in/access")]);
    // Of one that is hidden or guarded nothing is said.
    assert_eq!(notes("www/in/.access", ""), [""; 0]);
    let guarded = "[[site.route]]\npath = \"/in/*\"\nallow = [\"127.0.0.1\"]\n";
    assert_eq!(notes("www/in/access", guarded), [""; 0]);
    let own = "log = { access = \"www/own\" }\n";
    assert_eq!(notes("stdout", own), [note(5, "/own")]);
}
