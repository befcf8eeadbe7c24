//! Work beside the control thread.

use std::io;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::process::system_limits::lacking;

/// Runs `work` on a thread of its own, in the runtime of the control thread. tokio's own way panics where no thread is to be had.
///
/// # Errors
/// When there is no thread. What is returned fails when `work` panics.
pub fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, done) = oneshot::channel();
    let runtime = Handle::current();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let _entered = runtime.enter();
            // Nobody waits any more at the end of the process.
            let _ = sender.send(work());
        })
        .map_err(lacking("no thread beside the control thread"))?;
    Ok(done)
}
