//! `levity top`: the figures of a running server in a terminal, each second.

mod fetch;
mod frame;
mod terminal;
mod units;

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{self, MissedTickBehavior};

pub use fetch::Address;
use frame::frame;
use terminal::{Terminal, stop_key};

/// Between two frames.
const INTERVAL: Duration = Duration::from_secs(1);

/// The arguments of `levity top`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The admin listener of the server.
    pub address: Address,
    /// Print one frame and end.
    pub once: bool,
}

/// Shows frames until it is stopped; one frame only if standard output is no terminal. Blocks.
///
/// # Errors
/// The first request fails, or the terminal is gone. The message is for people.
pub fn run(options: &Options, colour: bool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match options.once || !io::stdout().is_terminal() {
        true => runtime.block_on(print(&options.address)),
        false => runtime.block_on(show(&options.address, colour)),
    }
}

/// Prints one frame uncut. Rates need two requests.
async fn print(address: &Address) -> io::Result<()> {
    let before = fetch::status(address).await?;
    time::sleep(INTERVAL).await;
    let now = fetch::status(address).await?;
    let mut text = String::new();
    for line in frame(&now, Some(&before), &address.to_string()) {
        text.push_str(line.text.trim_end());
        text.push('\n');
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Draws frames on the whole terminal. When a later request fails, the frame says so.
async fn show(address: &Address, colour: bool) -> io::Result<()> {
    let mut now = fetch::status(address).await?;
    let mut before = None;
    let mut failure = None;
    // A signal that came before its handler would end the process without restoring the terminal.
    let mut signals = Signals::new()?;
    let terminal = Terminal::enter()?;
    let mut stop_key = stop_key()?;
    let mut ticks = time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let draw = |now: &Value, before: Option<&Value>, failure: Option<&io::Error>| {
        let mut lines = frame(now, before, &address.to_string());
        if let Some(failure) = failure {
            let text = format!("no answer: {failure}; what is shown is old");
            lines.insert(1, frame::bad(text));
        }
        terminal.draw(&lines, colour)
    };
    loop {
        draw(&now, before.as_ref(), failure.as_ref())?;
        let next = async {
            ticks.tick().await;
            fetch::status(address).await
        };
        tokio::pin!(next);
        // A resize draws the same frame again while the request goes on.
        let status = loop {
            tokio::select! {
                status = &mut next => break status,
                event = next_event(&mut signals, &mut stop_key) => match event {
                    Event::Stop => return Ok(()),
                    Event::Resize => draw(&now, before.as_ref(), failure.as_ref())?,
                },
            }
        };
        match status {
            Ok(status) => {
                before = Some(std::mem::replace(&mut now, status));
                failure = None;
            }
            Err(error) => failure = Some(error),
        }
    }
}

/// An event between two frames.
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
