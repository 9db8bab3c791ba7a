//! Connections that wait for the next call to the same server by the same tenant. They are bounded in number, in all and
//! for one server, and none waits for long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;

/// Connections that wait, in all and for one server.
const IDLE_LEN_MAX: usize = 512;
const IDLE_EACH_MAX: usize = 4;
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Whose connection, to which name and port, and a digest of how it was made.
pub(crate) type Place = (u64, String, u16, u64);

pub(crate) struct Idle<B> {
    places: HashMap<Place, Vec<(SendRequest<B>, Instant)>>,
    len: usize,
}

impl<B> Default for Idle<B> {
    fn default() -> Idle<B> {
        Idle { places: HashMap::new(), len: 0 }
    }
}

impl<B> Idle<B> {
    pub(crate) fn take(&mut self, place: &Place) -> Option<SendRequest<B>> {
        let senders = self.places.get_mut(place)?;
        let mut found = None;
        while let Some((sender, since)) = senders.pop() {
            self.len -= 1;
            if since.elapsed() < IDLE_MAX && sender.is_ready() {
                found = Some(sender);
                break;
            }
        }
        if senders.is_empty() {
            self.places.remove(place);
        }
        found
    }

    pub(crate) fn give_back(&mut self, place: Place, sender: SendRequest<B>) {
        if self.len >= IDLE_LEN_MAX {
            self.places.retain(|_, senders| {
                senders.retain(|(sender, since)| since.elapsed() < IDLE_MAX && !sender.is_closed());
                !senders.is_empty()
            });
            self.len = self.places.values().map(Vec::len).sum();
        }
        let senders = self.places.entry(place).or_default();
        if self.len < IDLE_LEN_MAX && senders.len() < IDLE_EACH_MAX {
            senders.push((sender, Instant::now()));
            self.len += 1;
        }
    }
}
