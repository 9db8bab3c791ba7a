//! What journals on a server have in common ([`crate::replica::Journal`]): entries as bytes, names as text, what has arrived and
//! waits, and who leads. How a server is asked is for each journal to know.

pub mod codec;
pub mod names;

mod arrivals;
mod leading;

use std::sync::mpsc;
use std::time::Duration;

use tokio::runtime::Handle;

pub use arrivals::{Arrivals, Arrived, Missing};
pub use leading::{Leading, Marks};

/// What tells entries from each other: who wrote it, and which of its entries it is.
pub type EntryId = [u8; 16];

/// How much later than it should an answer of a journal's own tasks may come.
const SLACK: Duration = Duration::from_secs(2);

/// Waits for a task. The caller may be inside a runtime, so it waits as threads do.
pub fn wait<T: Send + 'static>(
    runtime: &Handle,
    timeout: Duration,
    task: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (tell, told) = mpsc::sync_channel(1);
    runtime.spawn(async move { tell.send(task.await).ok() });
    told.recv_timeout(timeout + SLACK).ok()
}
