//! Events posted to the provider's own server, as an `EventList`, many at a time.
//!
//! Events wait in a bounded buffer; when nobody takes them, new ones are lost and counted, and nobody waits for it. A batch that is
//! refused is sent again a few times, each time later. How many wait is noted in a file, so that a server that was killed knows at its
//! next start what nobody will ever send, and counts it.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Audit;

/// Sends a body to the webhook.
pub trait AuditPoster: Send + Sync {
    fn post(&self, body: Vec<u8>) -> BoxFuture<'_, Result<(), String>>;
}

#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where it is noted how many events wait.
    pub owed: Option<PathBuf>,
    /// Events in one batch.
    pub batch_len_max: usize,
    /// How long the first event of a batch waits for others.
    pub batch_patience: Duration,
    /// What may wait.
    pub buffer_bytes_max: usize,
    /// How often a batch is sent before it is given up, and how long it waits the first time.
    pub tries: u32,
    pub backoff: Duration,
}

impl Default for WebhookOptions {
    fn default() -> WebhookOptions {
        WebhookOptions {
            owed: None,
            batch_len_max: 400,
            batch_patience: Duration::from_secs(5),
            buffer_bytes_max: 32 << 20,
            tries: 5,
            backoff: Duration::from_secs(1),
        }
    }
}

/// A batch is not longer than this, but one event.
const BATCH_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct Waiting {
    options: WebhookOptions,
    /// Events with their heads, one after the other, and where each ends.
    events: Mutex<(Vec<u8>, Vec<usize>)>,
    filled: Notify,
    owed: Owed,
}

/// Events that were taken and neither sent nor given up yet.
#[derive(Debug, Default)]
struct Owed {
    count: Mutex<u64>,
    file: Option<File>,
}

impl Owed {
    /// And how many an earlier server has left.
    fn open(path: &Path) -> io::Result<(Owed, u64)> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut noted = [0; 8];
        let left = file.read_exact_at(&mut noted, 0).map_or(0, |()| u64::from_le_bytes(noted));
        let owed = Owed { count: Mutex::new(0), file: Some(file) };
        owed.change(|count| count);
        Ok((owed, left))
    }

    fn add(&self, more: u64) {
        self.change(|count| count + more);
    }

    fn settle(&self, sent: u64) {
        self.change(|count| count.saturating_sub(sent));
    }

    /// What the kernel has is there when the process is not; more is not asked for.
    fn change(&self, change: impl FnOnce(u64) -> u64) {
        let mut count = self.count.lock();
        *count = change(*count);
        if let Some(file) = &self.file {
            file.write_all_at(&count.to_le_bytes(), 0).ok();
        }
    }
}

impl Waiting {
    /// And how many events an earlier server could not send any more, at most.
    pub(super) fn open(options: WebhookOptions) -> io::Result<(Waiting, u64)> {
        let (owed, left) = options.owed.as_deref().map_or_else(|| Ok(Default::default()), Owed::open)?;
        Ok((Waiting { options, events: Mutex::default(), filled: Notify::new(), owed }, left))
    }

    /// Adds an event; false if there is no room.
    pub(super) fn push(&self, event: &[&[u8]]) -> bool {
        let len: usize = event.iter().map(|part| part.len()).sum();
        let mut events = self.events.lock();
        if events.0.len() + len > self.options.buffer_bytes_max {
            return false;
        }
        event.iter().for_each(|part| events.0.extend_from_slice(part));
        let end = events.0.len();
        events.1.push(end);
        self.owed.add(1);
        if events.1.len() == 1 || events.1.len() >= self.options.batch_len_max {
            self.filled.notify_one();
        }
        true
    }

    fn len(&self) -> usize {
        self.events.lock().1.len()
    }

    /// The next batch, and how many events it has.
    fn batch(&self) -> (Vec<u8>, u64) {
        let mut events = self.events.lock();
        let (bytes, ends) = &mut *events;
        let fits = ends.iter().take_while(|end| **end <= BATCH_BYTES_MAX).count();
        let count = fits.max(1).min(self.options.batch_len_max).min(ends.len());
        let mut body = Vec::from(
            &b"{\"kind\":\"EventList\",\"apiVersion\":\"audit.k8s.io/v1\",\"metadata\":{},\"items\":["[..],
        );
        let mut start = 0;
        for end in &ends[..count] {
            if start > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&bytes[start..*end]);
            start = *end;
        }
        body.extend_from_slice(b"]}");
        bytes.drain(..start);
        ends.drain(..count);
        ends.iter_mut().for_each(|end| *end -= start);
        (body, count as u64)
    }
}

/// Posts what waits, until told to stop; then what is left, once.
pub(super) async fn run(
    audit: Arc<Audit>,
    waiting: Arc<Waiting>,
    poster: Arc<dyn AuditPoster>,
    stop: CancellationToken,
) {
    let options = waiting.options.clone();
    loop {
        while waiting.len() == 0 {
            tokio::select! {
                () = waiting.filled.notified() => {}
                () = stop.cancelled() => break,
            }
        }
        let patience = tokio::time::sleep(options.batch_patience);
        tokio::pin!(patience);
        while waiting.len() < options.batch_len_max && !stop.is_cancelled() {
            tokio::select! {
                () = waiting.filled.notified() => {}
                () = stop.cancelled() => {}
                () = &mut patience => break,
            }
        }
        while waiting.len() > 0 {
            let (body, count) = waiting.batch();
            if let Err(error) = send(&options, &*poster, body, &stop).await {
                audit.sink.counts.lost_webhook.fetch_add(count, Ordering::Relaxed);
                tracing::error!(
                    events = count,
                    error,
                    "the audit webhook does not take events: they are lost"
                );
            }
            waiting.owed.settle(count);
            if waiting.len() < options.batch_len_max && !stop.is_cancelled() {
                break;
            }
        }
        if stop.is_cancelled() && waiting.len() == 0 {
            return;
        }
    }
}

async fn send(
    options: &WebhookOptions,
    poster: &dyn AuditPoster,
    body: Vec<u8>,
    stop: &CancellationToken,
) -> Result<(), String> {
    let mut backoff = options.backoff;
    for _ in 1..options.tries {
        match poster.post(body.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) if stop.is_cancelled() => return Err(error),
            Err(error) => tracing::debug!(error, "the audit webhook does not answer: tried again later"),
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = stop.cancelled() => {}
        }
        backoff *= 2;
    }
    poster.post(body).await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use polder_model::Value;

    use super::*;
    use crate::audit::AuditOptions;

    /// Refuses so often, then takes everything.
    #[derive(Default)]
    struct Fake {
        refusals: AtomicU32,
        bodies: Mutex<Vec<Vec<u8>>>,
    }

    impl AuditPoster for Fake {
        fn post(&self, body: Vec<u8>) -> BoxFuture<'_, Result<(), String>> {
            let left = self.refusals.load(Ordering::Relaxed);
            self.refusals.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 0 {
                self.bodies.lock().push(body);
            }
            Box::pin(async move { if left == 0 { Ok(()) } else { Err("not now".into()) } })
        }
    }

    fn event(number: usize) -> String {
        format!(r#"{{"n":{number}}}"#)
    }

    /// How many events each batch has that arrives of so many, and how many are lost.
    async fn sent(events: usize, refusals: u32, buffer_bytes_max: usize) -> (Vec<usize>, u64) {
        let options =
            WebhookOptions { batch_len_max: 4, buffer_bytes_max, tries: 3, ..WebhookOptions::default() };
        let audit = Audit::open(AuditOptions::default()).unwrap();
        let waiting = Arc::new(Waiting::open(options).unwrap().0);
        let fake = Arc::new(Fake { refusals: AtomicU32::new(refusals), ..Fake::default() });
        let (stop, poster) = (CancellationToken::new(), fake.clone());
        let running = run(audit.clone(), waiting.clone(), poster, stop.clone());
        let mut lost = 0;
        for number in 0..events {
            lost += u64::from(!waiting.push(&[event(number).as_bytes()]));
        }
        let stopping = async {
            tokio::time::sleep(Duration::from_secs(600)).await;
            stop.cancel();
        };
        tokio::join!(running, stopping);
        audit.close();
        let mut next = 0;
        let bodies = fake.bodies.lock();
        let lens = bodies.iter().map(|body| {
            let list = Value::parse(body).unwrap();
            assert_eq!(list.str_at(&["kind"]), Some("EventList"));
            let items = list.array_at(&["items"]);
            for item in items {
                assert!(item.i64_at(&["n"]).unwrap() >= next, "in order");
                next = item.i64_at(&["n"]).unwrap() + 1;
            }
            items.len()
        });
        (lens.collect(), lost + audit.counts().lost_webhook.load(Ordering::Relaxed))
    }

    #[test]
    fn what_was_never_sent_is_known_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let owed = Some(directory.path().join("owed"));
        let options = WebhookOptions { owed, ..WebhookOptions::default() };
        let (waiting, left) = Waiting::open(options.clone()).unwrap();
        assert_eq!(left, 0);
        (0..5).for_each(|number| assert!(waiting.push(&[event(number).as_bytes()])));
        waiting.owed.settle(2);
        drop(waiting);
        let (waiting, left) = Waiting::open(options.clone()).unwrap();
        assert_eq!((left, waiting.len()), (3, 0));
        drop(waiting);
        assert_eq!(Waiting::open(options).unwrap().1, 0, "counted once");
    }

    #[tokio::test(start_paused = true)]
    async fn batches() {
        assert_eq!(sent(10, 0, 1 << 20).await, (vec![4, 4, 2], 0));
        assert_eq!(sent(1, 2, 1 << 20).await, (vec![1], 0), "tried again");
        assert_eq!(sent(6, 3, 1 << 20).await, (vec![2], 4), "given up, and counted");
        assert_eq!(sent(10, 0, 7 * 5).await, (vec![4, 1], 5), "no room, and counted");
    }
}
