//! Connections that wait for the next call to the same server by the same tenant. They are bounded in number, in all, of
//! one tenant and for one server, and none waits for long.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hyper::client::conn::http1::SendRequest;

/// Connections that wait, in all, of one tenant and for one server: each is a socket and a task.
const IDLE_LEN_MAX: usize = 512;
const IDLE_TENANT_MAX: usize = 32;
const IDLE_EACH_MAX: usize = 4;
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Whose connection, to which name and port, and a digest of how it was made.
pub(crate) type Place = (u64, String, u16, u64);

pub(crate) struct Idle<B> {
    places: HashMap<Place, Vec<(SendRequest<B>, Instant)>>,
    len: usize,
    /// When those that had waited too long were last let go.
    swept: Option<Instant>,
}

impl<B> Default for Idle<B> {
    fn default() -> Idle<B> {
        Idle { places: HashMap::new(), len: 0, swept: None }
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
        if self.len >= IDLE_LEN_MAX || self.swept.is_none_or(|swept| swept.elapsed() >= IDLE_MAX) {
            self.swept = Some(Instant::now());
            self.places.retain(|_, senders| {
                senders.retain(|(sender, since)| since.elapsed() < IDLE_MAX && !sender.is_closed());
                !senders.is_empty()
            });
            self.len = self.places.values().map(Vec::len).sum();
        }
        let own = self.places.iter().filter(|((tenant, ..), _)| *tenant == place.0);
        let own: usize = own.map(|(_, senders)| senders.len()).sum();
        let each = self.places.get(&place).map_or(0, Vec::len);
        if self.len < IDLE_LEN_MAX && own < IDLE_TENANT_MAX && each < IDLE_EACH_MAX {
            self.places.entry(place).or_default().push((sender, Instant::now()));
            self.len += 1;
        }
    }
}
