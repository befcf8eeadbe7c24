//! `levity passwd`: prints a line for a file of users.

use std::io::{self, BufRead, IsTerminal as _};

use levity_wire::basic_auth::PASSWORD_BYTES_MAX;
use levity_wire::htpasswd;
use rustix::termios::{self, LocalModes, OptionalActions, Termios};

use super::{EXIT_FAILURE, Streams};
use crate::credentials::password;

/// Prints the line of `user`; returns the exit status. Waits for the password.
pub(super) fn run(user: &str, streams: &mut Streams<'_>) -> u8 {
    let input = io::stdin();
    let password = match input.is_terminal() {
        true => from_terminal(streams),
        false => first_line(&mut input.lock()),
    };
    match password.and_then(|password| line(user, &password)) {
        Ok(line) => {
            streams.out(&line);
            0
        }
        Err(reason) => {
            streams.err(&format!("error: {reason}\n"));
            EXIT_FAILURE
        }
    }
}

/// The line of a user, with its end.
fn line(user: &str, password: &str) -> Result<String, String> {
    if password.is_empty() || password.contains(char::is_control) {
        return Err("a password has at least one character, and no control characters".to_owned());
    }
    if password.len() > PASSWORD_BYTES_MAX {
        return Err(format!("a password has at most {PASSWORD_BYTES_MAX} bytes"));
    }
    let hash = password::hash(password).map_err(|error| error.to_string())?;
    let line = format!("{user}:{hash}\n");
    match htpasswd::parse(&line).as_deref() {
        Ok([entry]) if entry.user == user => Ok(line),
        _ => Err(format!(
            "`{user}` is not the name of a user: 1 to 255 bytes without a colon, a `#` at its start and control characters"
        )),
    }
}

fn first_line(input: &mut impl BufRead) -> Result<String, String> {
    let mut line = String::new();
    let read = input.read_line(&mut line);
    read.map_err(|error| format!("cannot read the password: {error}"))?;
    let line = line.strip_suffix('\n').unwrap_or(&line);
    Ok(line.strip_suffix('\r').unwrap_or(line).to_owned())
}

/// Asks twice, because nobody sees what is typed.
fn from_terminal(streams: &mut Streams<'_>) -> Result<String, String> {
    let hidden = Hidden::new().map_err(|error| format!("cannot hide the password: {error}"))?;
    let mut ask = |prompt| {
        streams.err(prompt);
        let line = first_line(&mut io::stdin().lock());
        streams.err("\n");
        line
    };
    let (first, second) = (ask("Password: ")?, ask("Again: ")?);
    drop(hidden);
    match first == second {
        true => Ok(first),
        false => Err("the two passwords differ".to_owned()),
    }
}

/// A terminal that does not show what is typed, until it is dropped.
struct Hidden(Termios);

impl Hidden {
    fn new() -> io::Result<Self> {
        let before = termios::tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        // Ctrl-C becomes a character, which no password has: as a signal it would leave the terminal silent.
        quiet
            .local_modes
            .remove(LocalModes::ECHO | LocalModes::ISIG);
        termios::tcsetattr(io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let line = line("ann b", "secret").expect("a line");
        let entries = htpasswd::parse(&line).expect("a file");
        assert_eq!(entries[0].user, "ann b");
        assert!(password::verify(
            "secret",
            &entries[0].hash,
            &mut password::Memory::default()
        ));
    }

    #[test]
    fn names_and_passwords_that_cannot_be() {
        for (user, password, reason) in [
            ("", "secret", "not the name"),
            ("a:b", "secret", "not the name"),
            ("#a", "secret", "not the name"),
            ("a\nb", "secret", "not the name"),
            ("ann", "", "at least one character"),
            ("ann", "\x03", "no control characters"),
            ("ann", &"a".repeat(257), "at most 256 bytes"),
        ] {
            let error = line(user, password).expect_err(user);
            assert!(error.contains(reason), "{user}: {error}");
        }
    }

    #[test]
    fn the_password_is_the_first_line() {
        for (input, password) in [("a b \nc", "a b "), ("a\r\n", "a"), ("a", "a"), ("", "")] {
            assert_eq!(first_line(&mut input.as_bytes()).as_deref(), Ok(password));
        }
    }
}
