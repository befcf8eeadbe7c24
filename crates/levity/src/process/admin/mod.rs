//! Listeners for administrators: [`pages`] to read, and [`control`] for commands.
//!
//! They run on the control thread, so that a scrape never takes a worker's time, and handle one request per connection. The number of
//! connections, the size of a request header and the time are bounded.

pub mod control;
mod exchange;
pub mod pages;

use std::io;
use std::path::Path;
use std::sync::Arc;

use levity_config::Config;
use levity_config::address::Address;
use levity_telemetry::diagnostics;
use tokio::sync::mpsc;

use self::control::{Commands, Control, Order};
use self::pages::PagesListener;
use crate::status::Status;

/// The maximum number of reloads that wait to be begun. Who asks for more waits.
const ORDERS_MAX: usize = 16;

/// The listeners of a server. Those that are dropped are closed, and the requests that they have are answered.
pub struct Listeners {
    status: Arc<Status>,
    pages: Option<PagesListener>,
    control: Option<Control>,
    commands: Commands,
    ordered: mpsc::Receiver<Order>,
}

/// Listeners in place of those that a new configuration changes.
pub struct Replacement {
    pages: Option<Option<PagesListener>>,
    control: Option<Option<Control>>,
}

impl Listeners {
    /// Those of a configuration, which has this file. For the control thread's runtime. Blocks, for seconds at most.
    ///
    /// # Errors
    /// When an address cannot be listened on; the error names it.
    pub fn start(config: &Config, file: Option<&Path>, status: Arc<Status>) -> io::Result<Self> {
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let commands = Commands::new(status.clone(), orders, file);
        Ok(Self {
            pages: start_pages(config, &status)?,
            control: start_control(config, &commands)?,
            status,
            commands,
            ordered,
        })
    }

    /// What `config` needs in place of what `old` needed. It is in use already, and closed if it is dropped.
    ///
    /// # Errors
    /// As those of [`start`](Self::start).
    pub fn replacement(&self, config: &Config, old: &Config) -> io::Result<Replacement> {
        let listen = |config: &Config| config.admin.as_ref().map(|admin| admin.listen.clone());
        let path = |config: &Config| control::path(config.control.as_deref());
        let pages = (listen(config) != listen(old)).then(|| start_pages(config, &self.status));
        let control = (path(config) != path(old)).then(|| start_control(config, &self.commands));
        Ok(Replacement {
            pages: pages.transpose()?,
            control: control.transpose()?,
        })
    }

    /// Closes what is replaced, and follows `config` with the rest.
    pub fn replace(&mut self, replacement: Replacement, config: &Config) {
        if let Some(pages) = replacement.pages {
            self.pages = pages;
        }
        if let Some(control) = replacement.control {
            self.control = control;
        }
        if let (Some(pages), Some(admin)) = (&self.pages, &config.admin) {
            pages.set_names(admin.names.clone());
        }
    }

    /// Closes all. Reloads that are still asked for are not made.
    pub fn close(&mut self) {
        self.pages = None;
        self.control = None;
        self.ordered.close();
        while self.ordered.try_recv().is_ok() {}
    }

    /// The address of the pages.
    pub fn pages_address(&self) -> Option<&Address> {
        self.pages.as_ref().map(PagesListener::address)
    }

    /// Waits for a reload that is asked for. Cancel safe.
    pub async fn order(&mut self) -> Order {
        let order = self.ordered.recv().await;
        order.expect("a sender is here, too")
    }
}

fn start_pages(config: &Config, status: &Arc<Status>) -> io::Result<Option<PagesListener>> {
    let configured = config.admin.as_ref();
    configured
        .map(|configured| PagesListener::start(configured, status))
        .transpose()
}

/// Without the socket that a service manager suggests, clients are served all the same.
fn start_control(config: &Config, commands: &Commands) -> io::Result<Option<Control>> {
    let Some(path) = control::path(config.control.as_deref()) else {
        return Ok(None);
    };
    match Control::start(&path, commands.clone()) {
        Err(error) if config.control.is_none() => {
            diagnostics::log(format_args!(
                "there is no socket for `levity reload`: {error}"
            ));
            Ok(None)
        }
        started => started.map(Some),
    }
}
