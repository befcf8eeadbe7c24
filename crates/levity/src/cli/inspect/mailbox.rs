//! `levity mailbox`: from the shell to the mailboxes of a running server.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use levity_inspect::mailbox::{self, Place};

use super::super::{EXIT_FAILURE, Streams};

/// The pause before `tail` connects again.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Subcommand)]
pub enum Action {
    /// Send a message; without TEXT, standard input
    Send {
        #[command(flatten)]
        place: At,
        /// The content
        #[arg(value_name = "TEXT")]
        text: Option<String>,
        /// The name of the event
        #[arg(long, value_name = "NAME")]
        event: Option<String>,
        /// An id, under which a box takes one message only
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// How long the message is kept, such as 60s
        #[arg(long, value_name = "TIME")]
        ttl: Option<String>,
        /// The media type
        #[arg(
            long = "type",
            value_name = "TYPE",
            default_value = "text/plain; charset=utf-8"
        )]
        media_type: String,
    },
    /// Print messages as they come, a line of JSON each; connects again when the connection ends
    Tail {
        #[command(flatten)]
        place: At,
        /// Begin after this id, or with `earliest` or `new`
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        /// Exit at the end of the connection
        #[arg(long)]
        once: bool,
    },
    /// List the boxes of a set, with their messages, bytes and receivers; the URL is that of the route
    List {
        #[command(flatten)]
        place: At,
    },
}

// A comment of documentation would become the text of `--help`.
#[derive(Args)]
pub struct At {
    /// The URL of a box: http://HOST[:PORT]/PATH
    #[arg(value_name = "URL")]
    url: Place,
    /// Connect to this Unix socket; the URL then says host and path only. At a `[[listen]]` with `publish = true`, the user of
    /// the server and root need no key
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A file with the key of publishers in its first line
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

impl At {
    fn place(self) -> Result<Place, String> {
        let key = self.key_file.map(|file| {
            let text = fs::read_to_string(&file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            Ok::<_, String>(text.lines().next().unwrap_or_default().to_owned())
        });
        Ok(Place {
            socket: self.socket,
            key: key.transpose()?,
            ..self.url
        })
    }
}

/// Does what was asked for; the exit status.
pub fn run(action: Action, streams: &mut Streams<'_>) -> u8 {
    let done = match action {
        Action::Send {
            place,
            text,
            event,
            id,
            ttl,
            media_type,
        } => place.place().and_then(|place| {
            let named = [
                ("Mailbox-Event", event),
                ("Mailbox-Id", id),
                ("Mailbox-TTL", ttl),
            ];
            let headers = named
                .into_iter()
                .filter_map(|(name, value)| Some((name, value?)));
            let headers = headers.chain([("Content-Type", media_type)]).collect();
            let content = content(text)?;
            let sent = mailbox::send(&place, headers, &content);
            sent.map_err(|error| error.to_string())
                .map(|answer| streams.out(&answer))
        }),
        Action::Tail { place, after, once } => place
            .place()
            .and_then(|place| tail(&place, after, once, streams)),
        Action::List { place } => place.place().and_then(|place| {
            mailbox::list(&place, streams.out).map_err(|error| error.to_string())
        }),
    };
    match done {
        Ok(()) => 0,
        Err(message) => {
            streams.err(&format!("error: {message}\n"));
            EXIT_FAILURE
        }
    }
}

fn content(text: Option<String>) -> Result<Vec<u8>, String> {
    if let Some(text) = text {
        return Ok(text.into_bytes());
    }
    let mut content = Vec::new();
    let read = std::io::stdin().read_to_end(&mut content);
    read.map_err(|error| format!("cannot read standard input: {error}"))?;
    Ok(content)
}

fn tail(
    place: &Place,
    mut after: Option<String>,
    once: bool,
    streams: &mut Streams<'_>,
) -> Result<(), String> {
    let mut was_connected = false;
    loop {
        match mailbox::tail(place, after.as_deref(), streams.out) {
            Ok(last) => (after, was_connected) = (last, true),
            // A refusal, or nobody there: only a connection that worked is worth another one.
            Err(error) if once || !was_connected => return Err(error.to_string()),
            Err(_) => {}
        }
        if once {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}
