//! The task that drives a connection, and the state that it shares with the owner of the connection.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::{Ping, PingPong};
use levity_net::WakerCell;
use tokio::sync::Notify;
use tokio::time::{self, Sleep};

use super::wire::Connection;

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// New streams may begin.
    Open,
    /// A request got no response in time: a ping is due.
    Doubted,
    /// The ping was sent.
    Asked,
    /// The owner is gone.
    Closing,
    /// The connection has ended.
    Ended,
}

/// The state that the owner and the task share.
pub struct Link {
    state: Cell<LinkState>,
    driver: WakerCell,
    /// Requests that wait for a stream.
    waiting: Rc<Notify>,
}

impl Link {
    /// The link of an open connection. Changes wake `waiting`.
    pub fn new(waiting: Rc<Notify>) -> Rc<Self> {
        Rc::new(Self {
            state: Cell::new(LinkState::Open),
            driver: WakerCell::default(),
            waiting,
        })
    }

    /// The state.
    pub fn state(&self) -> LinkState {
        self.state.get()
    }

    /// Lets the task find out whether the backend is alive.
    pub fn doubt(&self) {
        if self.state.get() == LinkState::Open {
            self.tell(LinkState::Doubted);
        }
    }

    /// Lets the task end the connection.
    pub fn close(&self) {
        if self.state.get() != LinkState::Ended {
            self.tell(LinkState::Closing);
        }
    }

    fn tell(&self, state: LinkState) {
        self.state.set(state);
        self.driver.wake();
    }

    fn changed(&self, state: LinkState) {
        self.state.set(state);
        self.waiting.notify_waiters();
    }
}

/// Drives a connection.
pub struct Driver {
    connection: Connection,
    ping: PingPong,
    link: Rc<Link>,
    /// For the answer to a ping, and for the last bytes before the end.
    patience: Duration,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    /// The driver of `connection`. A reply to a ping that takes longer than `patience` is too late.
    ///
    /// # Panics
    /// If `connection` has another driver.
    pub fn new(mut connection: Connection, link: Rc<Link>, patience: Duration) -> Self {
        let ping = connection.ping_pong().expect("the only driver");
        Self {
            connection,
            ping,
            link,
            patience,
            deadline: None,
        }
    }

    /// Runs until the connection has ended. Streams that are still open then fail. Calls `polled` whenever the backend
    /// may have said something.
    pub async fn run(mut self, polled: impl Fn()) {
        std::future::poll_fn(|context| {
            let ended = self.poll(context);
            polled();
            ended
        })
        .await;
        drop(self.connection);
        self.link.changed(LinkState::Ended);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.link.driver.set(context);
        if self.link.state() == LinkState::Doubted {
            self.ask();
        }
        if Pin::new(&mut self.connection).poll(context).is_ready() {
            return Poll::Ready(());
        }
        match self.link.state() {
            LinkState::Asked if self.ping.poll_pong(context).is_ready() => {
                // An error means the end of the connection, which the next poll finds.
                self.deadline = None;
                self.link.changed(LinkState::Open);
            }
            LinkState::Closing if self.deadline.is_none() => self.set_deadline(),
            _ => {}
        }
        match &mut self.deadline {
            Some(deadline) => deadline.as_mut().poll(context),
            None => Poll::Pending,
        }
    }

    fn ask(&mut self) {
        // Fails only while another ping is in flight.
        let _ = self.ping.send_ping(Ping::opaque());
        self.link.state.set(LinkState::Asked);
        self.set_deadline();
    }

    fn set_deadline(&mut self) {
        self.deadline = Some(Box::pin(time::sleep(self.patience)));
    }
}
