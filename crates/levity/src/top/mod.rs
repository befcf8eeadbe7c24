//! `levity top`: the figures of a running server in a terminal, each second.

mod ask;
mod frame;
mod terminal;

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{self, MissedTickBehavior};

use crate::cli;
use frame::frame;
use levity_config::address::Address;
use terminal::{Terminal, stop_key};

/// Between two frames.
const INTERVAL: Duration = Duration::from_secs(1);

/// What to show, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The admin listener of the server.
    pub address: Address,
    /// Print one frame and end.
    pub once: bool,
}

/// Shows frames until told to stop. One frame only where standard output is no terminal.
pub fn run(options: &Options) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime.and_then(|runtime| {
        let once = options.once || !io::stdout().is_terminal();
        match once {
            true => runtime.block_on(print(&options.address)),
            false => runtime.block_on(show(options)),
        }
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One frame, as wide and as long as it is. Rates need a second look at the server.
async fn print(address: &Address) -> io::Result<()> {
    let before = ask::status(address).await?;
    time::sleep(INTERVAL).await;
    let now = ask::status(address).await?;
    let mut text = String::new();
    for line in frame(&now, Some(&before), &address.to_string()) {
        text.push_str(line.text.trim_end());
        text.push('\n');
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Frames on the whole terminal. The first answer must come; later ones may fail, and the frame says so.
async fn show(options: &Options) -> io::Result<()> {
    let mut now = ask::status(&options.address).await?;
    let mut before = None;
    let mut failure = None;
    let colour = cli::colour(true, env::var_os("NO_COLOR"), env::var_os("TERM"));
    // A signal that came before its handler would end us with the terminal in our hands.
    let mut signals = Signals::new()?;
    let terminal = Terminal::take()?;
    let mut stop_key = stop_key()?;
    let mut ticks = time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let draw = |now: &Value, before: Option<&Value>, failure: Option<&io::Error>| {
        let mut lines = frame(now, before, &options.address.to_string());
        if let Some(failure) = failure {
            lines.insert(
                1,
                frame::bad(format!("no answer: {failure}; what is shown is old")),
            );
        }
        terminal.draw(&lines, colour)
    };
    loop {
        draw(&now, before.as_ref(), failure.as_ref())?;
        let next = async {
            ticks.tick().await;
            ask::status(&options.address).await
        };
        tokio::pin!(next);
        // A resize draws the same again, and the question goes on.
        let answer = loop {
            tokio::select! {
                answer = &mut next => break answer,
                event = next_event(&mut signals, &mut stop_key) => match event {
                    Event::Stop => return Ok(()),
                    Event::Resize => draw(&now, before.as_ref(), failure.as_ref())?,
                },
            }
        };
        match answer {
            Ok(answer) => {
                before = Some(std::mem::replace(&mut now, answer));
                failure = None;
            }
            Err(error) => failure = Some(error),
        }
    }
}

/// What may come from outside between two frames.
enum Event {
    Stop,
    Resize,
}

async fn next_event(signals: &mut Signals, stop_key: &mut oneshot::Receiver<()>) -> Event {
    tokio::select! {
        _ = signals.resize.recv() => Event::Resize,
        _ = signals.terminate.recv() => Event::Stop,
        _ = signals.hangup.recv() => Event::Stop,
        _ = signals.interrupt.recv() => Event::Stop,
        _ = stop_key => Event::Stop,
    }
}

struct Signals {
    resize: Signal,
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            resize: signal(SignalKind::window_change())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}
