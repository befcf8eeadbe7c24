//! What the process could not have, in words: which limit it has met, and what raises it. The errors of the system say neither.

use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// How the system ends the words of an error, before its number and a bracket.
const NUMBERED: &str = "(os error ";

/// Adds to an error what could not be had because of it.
pub fn lacking(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// An error in words, with what helps if it is that of a limit. Those that were given words on their way have no number any more, so
/// it is read from the end of the words. What follows it would be better help already.
pub fn with_help(error: &impl Display) -> String {
    let text = error.to_string();
    let number = text.strip_suffix(')').and_then(|text| {
        let (_, number) = text.rsplit_once(NUMBERED)?;
        number.parse().ok()
    });
    match number.map(Errno::from_raw_os_error).and_then(help) {
        Some(help) => format!("{text}: {help}"),
        None => text,
    }
}

/// What helps against a limit of the process or of the machine; `None` if `errno` is none of these.
fn help(errno: Errno) -> Option<String> {
    let limit = |resource| {
        let limit = getrlimit(resource).current;
        limit.map_or("any number of".to_owned(), |limit| limit.to_string())
    };
    Some(match errno {
        Errno::MFILE => format!(
            "the process may have {} open files; raise that (LimitNOFILE= of systemd, `ulimit -n`, `--ulimit nofile` of containers)",
            limit(Resource::Nofile)
        ),
        Errno::NFILE => {
            "the machine has no more open files; raise the sysctl fs.file-max".to_owned()
        }
        Errno::AGAIN => format!(
            "there is no thread to be had: the user of the process may have {} threads; raise that (`ulimit -u`, LimitNPROC= of systemd), or the limit of its group (TasksMax= of systemd, `--pids-limit` of containers)",
            limit(Resource::Nproc)
        ),
        Errno::NOMEM => {
            "there is no memory; raise MemoryMax= of systemd, or the limit of the container"
                .to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_found_in_errors_that_have_words_already() {
        let error = |errno: Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        let wrapped = io::Error::other(format!("no roots: {}", error(Errno::MFILE)));
        assert!(
            with_help(&lacking("none")(wrapped)).contains("(os error 24): the process may have")
        );
        assert!(with_help(&error(Errno::AGAIN)).contains("TasksMax="));
        for other in ["x", "x (os error 2)", "(os error 24); more", "(os error a)"] {
            assert_eq!(with_help(&other), other);
        }
    }
}
