//! Events are kept for an hour after they were last written.
//!
//! A plane with events has one key that waits, however many events it has, and is looked at once a minute at most: an
//! event may live that much longer. Which planes wait is remembered, so that a new event does not wake what waits.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use polder_client::resource::EVENTS;
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Query, Wake};
use polder_model::{PlaneId, SmolStr, Status, Value};

use crate::{batch, timestamp};

const KEPT_SECONDS: i64 = 3600;
/// A plane is not looked at more often than this.
const REST_SECONDS: i64 = 60;
/// A time that is further ahead than clocks differ was not written by us.
const SKEW_SECONDS: i64 = 60;
const PAGE_LEN: usize = 500;
const KEY: &str = "events";

#[derive(Default)]
pub(crate) struct EventExpiry {
    /// Planes whose key waits. Each has an entry in the queue too, so this is no larger.
    waiting: Mutex<HashSet<PlaneId>>,
}

impl Controller for EventExpiry {
    fn name(&self) -> &'static str {
        "event-expiry"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&EVENTS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.is_some() && !self.waiting.lock().contains(&change.plane) {
            wake(KEY.into());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, _key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            // First: an event that comes while we look is in the list, or wakes us again.
            self.waiting.lock().remove(&plane.plane);
            let found = look(plane).await?;
            if let Some(oldest) = found.oldest {
                self.waiting.lock().insert(plane.plane);
                let rest = (oldest + KEPT_SECONDS - plane.client.now()).max(REST_SECONDS);
                return Ok(Next::After(Duration::from_secs(rest.unsigned_abs())));
            }
            Ok(if found.more { Next::Again } else { Next::Done })
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.waiting.lock().retain(|plane| !is_gone(*plane));
    }
}

#[derive(Default)]
struct Found {
    /// When the oldest event that is left was written.
    oldest: Option<i64>,
    /// A turn was not enough.
    more: bool,
}

async fn look(plane: &InPlane) -> Result<Found, Status> {
    let now = plane.client.now();
    let mut after = None;
    let mut found = Found::default();
    let mut expired: Vec<(SmolStr, SmolStr, Delete)> = Vec::new();
    loop {
        let query = Query { after, limit: PAGE_LEN, ..Query::default() };
        let page = plane.client.list(plane.plane, &EVENTS, query).await?;
        let is_end = page.is_empty();
        after = None;
        for event in page {
            let text = |field| SmolStr::new(event.str_at(&["metadata", field]).unwrap_or_default());
            let name = (text("namespace"), text("name"));
            let written = written_at(&event, now);
            if now.saturating_sub(written) >= KEPT_SECONDS {
                // Only as it was seen: somebody may just be counting it.
                let delete = Delete { resource_version: Some(text("resourceVersion")), ..Delete::default() };
                expired.push((name.0.clone(), name.1.clone(), delete));
            } else {
                found.oldest = Some(found.oldest.map_or(written, |oldest| oldest.min(written)));
            }
            after = Some(name);
        }
        if expired.len() >= batch::TURN_LEN_MAX {
            found = Found { oldest: None, more: true };
            break;
        }
        if is_end {
            break;
        }
    }
    let deletes = expired.into_iter().map(|(namespace, name, delete)| async move {
        match plane.delete(&EVENTS, &namespace, &name, delete).await {
            Err(status) if status.code == 409 => Ok(()),
            outcome => outcome,
        }
    });
    batch::all(deletes).await?;
    Ok(found)
}

/// When an event was written last, as the server noted it; what the event itself tells is its author's.
fn written_at(event: &Value, now: i64) -> i64 {
    let created = event.str_at(&["metadata", "creationTimestamp"]).and_then(timestamp::seconds);
    let fields = event.array_at(&["metadata", "managedFields"]).iter();
    let changed = fields.filter_map(|entry| timestamp::seconds(entry.str_at(&["time"])?));
    let times = created.into_iter().chain(changed).filter(|time| *time <= now.saturating_add(SKEW_SECONDS));
    times.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[track_caller]
    fn check(created: &str, changed: &str, expected: &str) {
        let now = timestamp::seconds("2026-01-01T12:00:00Z").unwrap();
        let event = json!({"metadata": {"creationTimestamp": created, "managedFields": [{"time": changed}]}});
        assert_eq!(timestamp::text(written_at(&event, now)), expected);
    }

    #[test]
    fn age_counts_from_the_last_write() {
        check("2026-01-01T10:00:00Z", "2026-01-01T11:30:00Z", "2026-01-01T11:30:00Z");
        check("2026-01-01T10:00:00Z", "", "2026-01-01T10:00:00Z");
        check("2026-01-01T10:00:00Z", "2027-01-01T00:00:00Z", "2026-01-01T10:00:00Z");
        check("", "", "1970-01-01T00:00:00Z");
    }
}
