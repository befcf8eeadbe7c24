//! Connections to the server.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, RedisError};
use tokio::sync::mpsc;

use super::scripts::{Calls, TEXTS};

/// How long an answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Connections to one run of one server: an answer of many messages on one does not delay those on the others. All end
/// together, so that what is read and what comes through channels is of the server that takes messages.
pub(super) struct Session {
    /// For calls of scripts that write, in their order.
    pub(super) main: MultiplexedConnection,
    /// For those that only read.
    pub(super) reads: MultiplexedConnection,
    /// For subscriptions.
    pub(super) feed: MultiplexedConnection,
    /// What comes through channels.
    pub(super) pushes: mpsc::UnboundedReceiver<PushInfo>,
    pub(super) calls: Calls,
    /// The history of the server that they write.
    pub(super) run: String,
}

impl Session {
    /// Connects for a process that has seen the history `last_seen` last; `None` if another one may have seen a later one, and
    /// this one is patient.
    pub(super) async fn new(
        client: &Client,
        process: &str,
        last_seen: &str,
        is_patient: bool,
    ) -> Result<Option<Self>, String> {
        let (sender, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIME_MAX))
            .set_response_timeout(Some(ANSWER_TIME_MAX));
        let failed = |error: RedisError| reason(&error);
        let connect = |config: AsyncConnectionConfig| async move {
            let connecting = client.get_multiplexed_async_connection_with_config(&config);
            connecting.await
        };
        let mut main = connect(config.clone()).await.map_err(failed)?;
        let mut reads = connect(config.clone()).await.map_err(failed)?;
        let feed = connect(config.set_push_sender(sender)).await;
        let mut feed = feed.map_err(failed)?;
        let calls = Calls {
            digests: load_scripts(&mut main).await.map_err(failed)?,
            database: client.get_connection_info().redis_settings().db(),
            process: process.to_owned(),
        };
        let begin = calls.begin(last_seen, is_patient);
        let run: String = begin.query_async(&mut main).await.map_err(failed)?;
        if run.is_empty() {
            return Ok(None);
        }
        for other in [&mut reads, &mut feed] {
            // A server that does not know the scripts is another one, too.
            let same: Result<String, _> = calls.begin(&run, true).query_async(other).await;
            if same.map_err(failed)? != run {
                return Err("the address leads to different Redis servers".to_owned());
            }
        }
        Ok(Some(Self {
            main,
            reads,
            feed,
            pushes,
            calls,
            run,
        }))
    }
}

/// What to say of an error, or of the first one of many calls, without the address and credentials.
pub(super) fn reason(error: &RedisError) -> String {
    if error.is_timeout() {
        return "the Redis server does not answer in time".to_owned();
    }
    match error.clone().into_server_errors().as_deref() {
        Some([(_, first), ..]) => format!("the Redis server fails: {first}"),
        _ => format!("the Redis server fails: {error}"),
    }
}

/// Has the server know the scripts, and returns their digests.
pub(super) async fn load_scripts(
    connection: &mut MultiplexedConnection,
) -> Result<Vec<String>, RedisError> {
    let mut loads = redis::pipe();
    for text in TEXTS {
        loads.cmd("SCRIPT").arg("LOAD").arg(text);
    }
    loads.query_async(connection).await
}
