//! The one queue between requests and whoever writes events: two buffers that change places.
//!
//! Whoever notes something copies it into the buffer and goes on; one thread takes the buffer and writes what is in it. No request
//! waits here. What does not fit is lost, and counted: by backend for the provider, by plane for the plane, which finds it in its
//! trail. A plane may have as much of the buffer as is left, so one alone fills no more than half.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use polder_model::PlaneId;

/// Where an event goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlets {
    /// The provider's log and webhook.
    Provider,
    /// The trail of the plane.
    Plane,
    Both,
}

impl Outlets {
    pub(super) fn provider(self) -> bool {
        self != Outlets::Plane
    }

    pub(super) fn plane(self) -> bool {
        self != Outlets::Provider
    }
}

/// One event in the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) plane: PlaneId,
    pub(super) outlets: Outlets,
    pub(super) seconds: i64,
    end: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    bytes: usize,
    /// Events that did not fit, and should have been in the plane's trail.
    lost: u64,
}

#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    notes: Vec<Note>,
    shares: HashMap<PlaneId, Share>,
}

impl Buffer {
    pub(super) fn events(&self) -> impl Iterator<Item = (&Note, &[u8])> {
        let mut start = 0;
        self.notes.iter().map(move |note| {
            let bytes = &self.bytes[start..note.end];
            start = note.end;
            (note, bytes)
        })
    }

    pub(super) fn lost(&self) -> impl Iterator<Item = (PlaneId, u64)> {
        self.shares.iter().filter(|(_, share)| share.lost > 0).map(|(plane, share)| (*plane, share.lost))
    }

    fn is_empty(&self) -> bool {
        self.notes.is_empty() && self.shares.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.notes.clear();
        self.shares.clear();
    }
}

/// What was lost, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) events: AtomicU64,
    pub(crate) lost_queue: AtomicU64,
    pub(crate) lost_log: AtomicU64,
    pub(crate) lost_webhook: AtomicU64,
    pub(crate) lost_trail: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Sink {
    bytes_max: usize,
    queue: Mutex<(Buffer, bool)>,
    filled: Condvar,
    pub(super) counts: Counts,
}

impl Sink {
    pub(super) fn new(bytes_max: usize) -> Sink {
        Sink { bytes_max, queue: Mutex::default(), filled: Condvar::new(), counts: Counts::default() }
    }

    pub(super) fn push(&self, plane: PlaneId, outlets: Outlets, seconds: i64, tail: &[u8]) {
        let mut queue = self.queue.lock();
        let buffer = &mut queue.0;
        let free = self.bytes_max.saturating_sub(buffer.bytes.len());
        let was_empty = buffer.is_empty();
        let share = buffer.shares.entry(plane).or_default();
        if share.bytes + tail.len() > free {
            share.lost += u64::from(outlets.plane());
            self.counts.lost_queue.fetch_add(1, Ordering::Relaxed);
        } else {
            share.bytes += tail.len();
            buffer.bytes.extend_from_slice(tail);
            buffer.notes.push(Note { plane, outlets, seconds, end: buffer.bytes.len() });
            self.counts.events.fetch_add(1, Ordering::Relaxed);
        }
        drop(queue);
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// Whether a plane has next to no room left. Other planes may have some: it is they who are not to suffer.
    pub(super) fn is_full(&self, plane: PlaneId) -> bool {
        let queue = self.queue.lock();
        let free = self.bytes_max.saturating_sub(queue.0.bytes.len());
        let own = queue.0.shares.get(&plane).map_or(0, |share| share.bytes);
        // Whoever has nothing there is not in anybody's way.
        own > 0 && own + self.bytes_max / 8 > free || free == 0
    }

    /// Takes what is there in exchange for an empty buffer; waits a while if nothing is. False when all is done.
    pub(super) fn take(&self, buffer: &mut Buffer, patience: Duration) -> bool {
        buffer.clear();
        let mut queue = self.queue.lock();
        if queue.0.is_empty() && !queue.1 {
            self.filled.wait_for(&mut queue, patience);
        }
        std::mem::swap(&mut queue.0, buffer);
        !(queue.1 && buffer.is_empty())
    }

    /// Lets the writer end when it has written everything.
    pub(super) fn close(&self) {
        self.queue.lock().1 = true;
        self.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let sink = Sink::new(100);
        let (loud, quiet) = (PlaneId(7), PlaneId(8));
        for _ in 0..20 {
            sink.push(loud, Outlets::Both, 0, &[b'x'; 10]);
        }
        assert!(sink.is_full(loud) && !sink.is_full(quiet));
        sink.push(quiet, Outlets::Both, 0, &[b'y'; 10]);
        sink.push(loud, Outlets::Provider, 0, &[b'x'; 10]);
        let mut buffer = Buffer::default();
        assert!(sink.take(&mut buffer, Duration::ZERO));
        let of = |plane| buffer.events().filter(|(note, _)| note.plane == plane).count();
        assert_eq!((of(loud), of(quiet)), (5, 1), "one plane leaves room for others");
        assert!(
            buffer
                .events()
                .all(|(note, bytes)| bytes.len() == 10 && (bytes[0] == b'x') == (note.plane == loud))
        );
        assert_eq!(buffer.lost().collect::<Vec<_>>(), [(loud, 15)]);
        // However many are loud, whoever has nothing there is not refused.
        let many = Sink::new(1000);
        for plane in (1..4).flat_map(|plane| [plane; 90]) {
            many.push(PlaneId(plane), Outlets::Both, 0, &[b'x'; 10]);
        }
        assert!((1..4).all(|plane| many.is_full(PlaneId(plane))) && !many.is_full(quiet));
        assert_eq!(sink.counts.lost_queue.load(Ordering::Relaxed), 16);
        sink.close();
        assert!(!sink.take(&mut buffer, Duration::ZERO));
    }
}
