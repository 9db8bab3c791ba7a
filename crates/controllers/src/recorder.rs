//! Events for people: what a controller did to an object, or why it could not.
//!
//! An event has a name made of what it says, so that the same one is found again and counted, over restarts too. What an
//! object gets is bounded as upstream bounds it: more than a few different messages for one reason become one, and one
//! object gets a burst of events and then one every few minutes. What is remembered for that is a table of fixed size.
//!
//! Nobody waits for an event: it is written after the turn that tells of it ([`afterwards`]).
//!
//! Invariant: recording never fails and never holds up its caller for long; an event may be lost.

use std::time::Duration;

use parking_lot::Mutex;
use polder_client::resource::EVENTS;
use polder_client::{InPlane, afterwards};
use polder_model::{SmolStr, Status, Value, format_smolstr, json};

use crate::timestamp;

/// How long a caller waits at most.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages longer than what events allow are cut.
const MESSAGE_LEN_MAX: usize = 1024;
/// What is left of an object's name in the name of an event.
const NAME_LEN_MAX: usize = 253 - 17;
/// So many different messages of one reason are told apart ...
const SIMILAR_MAX: usize = 10;
/// ... within this time.
const SIMILAR_SECONDS: i64 = 600;
/// So many events an object gets at once ...
const BURST: i64 = 25;
/// ... and then one in this time.
const REFILL_SECONDS: i64 = 300;
/// Objects and reasons remembered at a time. Who comes to an occupied place takes it.
const PLACES: usize = 512;

const NORMAL: &str = "Normal";
const WARNING: &str = "Warning";

/// Writes events in the name of one controller.
pub(crate) struct Recorder {
    component: &'static str,
    places: Mutex<Vec<Place>>,
}

/// What is remembered of an object, or of an object and a reason.
#[derive(Clone, Default)]
struct Place {
    owner: u64,
    since: i64,
    spent: i64,
    messages: Vec<u64>,
}

/// What became of an event on its way out.
#[derive(Debug, PartialEq, Eq)]
enum Pass {
    New,
    /// It has been told before.
    Again,
    /// One of too many similar ones: counted together.
    Combined,
    Dropped,
}

impl Recorder {
    pub(crate) fn new(component: &'static str) -> Recorder {
        Recorder { component, places: Mutex::default() }
    }

    pub(crate) async fn normal(&self, plane: &InPlane, about: &Value, reason: &str, message: &str) {
        self.record(plane, about, NORMAL, reason, [message]).await;
    }

    pub(crate) async fn warning(&self, plane: &InPlane, about: &Value, reason: &str, message: &str) {
        self.record(plane, about, WARNING, reason, [message]).await;
    }

    /// Tells several things of an object for one reason. Those that are counted together are written once.
    pub(crate) async fn normals<'a>(
        &self,
        plane: &InPlane,
        about: &Value,
        reason: &str,
        messages: impl IntoIterator<Item = &'a str>,
    ) {
        self.record(plane, about, NORMAL, reason, messages).await;
    }

    /// `about` is an object as the client gives it, with `kind` and `apiVersion`.
    async fn record<'a>(
        &self,
        plane: &InPlane,
        about: &Value,
        severity: &'static str,
        reason: &str,
        messages: impl IntoIterator<Item = &'a str>,
    ) {
        let now = plane.client.now();
        let uid = about.str_at(&["metadata", "uid"]).unwrap_or_default();
        let object = hash(&[&plane.plane.to_string(), uid]);
        let mut combined: Option<(i64, &str)> = None;
        for message in messages {
            let told = Told { component: self.component, about, severity, reason, message, combined: false };
            match self.pass(object, hash(&[reason]), hash(&[message]), now) {
                Pass::Dropped => break,
                Pass::New => told.event(1, false, now).leave(plane).await,
                Pass::Again => told.event(1, true, now).leave(plane).await,
                Pass::Combined => combined = Some((combined.map_or(1, |(count, _)| count + 1), message)),
            }
        }
        if let Some((count, message)) = combined {
            let told = Told { component: self.component, about, severity, reason, message, combined: true };
            told.event(count, true, now).leave(plane).await;
        }
    }

    fn pass(&self, object: u64, reason: u64, message: u64, now: i64) -> Pass {
        let mut places = self.places.lock();
        if places.is_empty() {
            places.resize(PLACES, Place::default());
        }
        let budget = place(&mut places, object, now);
        let refilled = now.saturating_sub(budget.since) / REFILL_SECONDS;
        if refilled > 0 {
            budget.spent = (budget.spent - refilled).max(0);
            budget.since += refilled * REFILL_SECONDS;
        }
        if budget.spent >= BURST {
            return Pass::Dropped;
        }
        budget.spent += 1;
        let similar = place(&mut places, object ^ reason.rotate_left(1), now);
        if now.saturating_sub(similar.since) > SIMILAR_SECONDS {
            similar.messages.clear();
            similar.since = now;
        }
        if similar.messages.contains(&message) {
            return Pass::Again;
        }
        if similar.messages.len() >= SIMILAR_MAX {
            return Pass::Combined;
        }
        similar.messages.push(message);
        Pass::New
    }
}

fn place(places: &mut [Place], owner: u64, now: i64) -> &mut Place {
    let number = usize::try_from(owner % PLACES as u64).unwrap_or_default();
    let place = &mut places[number];
    if place.owner != owner {
        *place = Place { owner, since: now, ..Place::default() };
    }
    place
}

/// What is told of an object.
struct Told<'a> {
    component: &'static str,
    about: &'a Value,
    severity: &'static str,
    reason: &'a str,
    message: &'a str,
    combined: bool,
}

/// An event on its way into its plane.
struct Event {
    object: Value,
    count: i64,
    /// It is likely to be there already.
    is_known: bool,
}

impl Event {
    /// Writes it when nobody is kept waiting by that.
    async fn leave(self, plane: &InPlane) {
        let plane = plane.clone();
        afterwards(async move {
            match tokio::time::timeout(PATIENCE, self.write(&plane)).await {
                Ok(Ok(())) => {}
                // In a namespace that is going away, or gone, nobody needs it.
                Ok(Err(status)) if matches!(status.code, 403 | 404) => {}
                Ok(Err(error)) => tracing::debug!(plane = %plane.plane, %error, "an event is lost"),
                Err(_) => tracing::debug!(plane = %plane.plane, "an event is lost: it took too long"),
            }
        })
        .await;
    }

    /// Counts the event if it is there, and makes it if not.
    async fn write(&self, plane: &InPlane) -> Result<(), Status> {
        if self.is_known && self.count_more(plane).await? {
            return Ok(());
        }
        match plane.create(&EVENTS, self.text("namespace"), self.object.clone()).await {
            Err(status) if status.code == 409 && !self.is_known => self.count_more(plane).await.map(drop),
            outcome => outcome.map(drop),
        }
    }

    /// Whether there was one to count.
    async fn count_more(&self, plane: &InPlane) -> Result<bool, Status> {
        let (namespace, name) = (self.text("namespace"), self.text("name"));
        let Some(found) = plane.get(&EVENTS, namespace, name).await? else { return Ok(false) };
        let count = found.i64_at(&["count"]).unwrap_or(1).saturating_add(self.count);
        let mut patch = json!({"count": count});
        for field in ["lastTimestamp", "message"] {
            patch.set_at(&[field], self.object.at(&[field]).cloned().unwrap_or_default());
        }
        plane.merge(&EVENTS, namespace, name, patch).await.map(|_| true)
    }

    fn text(&self, field: &str) -> &str {
        self.object.str_at(&["metadata", field]).unwrap_or_default()
    }
}

impl Told<'_> {
    fn event(&self, count: i64, is_known: bool, now: i64) -> Event {
        Event { object: self.object(count, now), count, is_known }
    }

    /// Events of objects without a namespace are in `default`.
    fn namespace(&self) -> &str {
        self.about.str_at(&["metadata", "namespace"]).filter(|name| !name.is_empty()).unwrap_or("default")
    }

    fn name(&self) -> SmolStr {
        let text = |path: &[&str]| self.about.str_at(path).unwrap_or_default().to_owned();
        let (name, uid) = (text(&["metadata", "name"]), text(&["metadata", "uid"]));
        let says = if self.combined { "" } else { self.message };
        let number = hash(&[self.component, &uid, self.severity, self.reason, says]);
        format_smolstr!("{}.{number:016x}", cut(&name, NAME_LEN_MAX).trim_end_matches(['.', '-']))
    }

    fn message(&self) -> String {
        let prefix = if self.combined { "(combined from similar events): " } else { "" };
        cut(&format!("{prefix}{}", self.message), MESSAGE_LEN_MAX).to_owned()
    }

    fn object(&self, count: i64, now: i64) -> Value {
        let mut involved = json!({});
        for (field, path) in [
            ("apiVersion", &["apiVersion"][..]),
            ("kind", &["kind"]),
            ("namespace", &["metadata", "namespace"]),
            ("name", &["metadata", "name"]),
            ("uid", &["metadata", "uid"]),
            ("resourceVersion", &["metadata", "resourceVersion"]),
        ] {
            if let Some(text) = self.about.str_at(path) {
                involved.set_at(&[field], text);
            }
        }
        let now = timestamp::text(now);
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": (self.name()), "namespace": (self.namespace())},
            "involvedObject": involved,
            "type": (self.severity),
            "reason": (self.reason),
            "message": (self.message()),
            "source": {"component": (self.component)},
            "reportingComponent": (self.component),
            "reportingInstance": "",
            "firstTimestamp": (now.as_str()),
            "lastTimestamp": (now.as_str()),
            "count": count,
        })
    }
}

/// The beginning of a text, of whole characters.
fn cut(text: &str, len_max: usize) -> &str {
    &text[..text.floor_char_boundary(len_max)]
}

/// FNV-1a: the same in every version of this program, since names are made of it.
fn hash(texts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in texts {
        for byte in text.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_gets_a_burst_and_then_little() {
        let recorder = Recorder::new("test");
        let passed = |now| (0..100).filter(|_| recorder.pass(7, 1, 1, now) != Pass::Dropped).count();
        assert_eq!(passed(1000), 25);
        assert_eq!(passed(1000 + 299), 0);
        assert_eq!(passed(1000 + 600), 2);
        assert_eq!(recorder.pass(8, 1, 1, 1000), Pass::New, "another object has its own");
        assert_eq!(recorder.places.lock().len(), PLACES);
    }

    #[test]
    fn similar_events_become_one() {
        let recorder = Recorder::new("test");
        let passes: Vec<Pass> = (0..12).map(|message| recorder.pass(7, 1, message, 1000)).collect();
        assert!(passes[..10].iter().all(|pass| *pass == Pass::New));
        assert_eq!(passes[10..], [Pass::Combined, Pass::Combined]);
        assert_eq!(recorder.pass(7, 1, 3, 1000), Pass::Again, "what was told apart stays so");
        assert_eq!(recorder.pass(7, 2, 11, 1000), Pass::New, "another reason");
        assert_eq!(recorder.pass(7, 1, 11, 1601), Pass::New, "later");
    }

    #[test]
    fn names_are_of_what_is_said() {
        let about = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "n", "uid": "u"}});
        let event = |message, combined| {
            let event =
                Told { component: "c", about: &about, severity: NORMAL, reason: "R", message, combined };
            (event.name(), event.message())
        };
        assert_eq!(event("one", false).0, event("one", false).0);
        assert_ne!(event("one", false).0, event("two", false).0);
        assert_eq!(event("one", true).0, event("two", true).0);
        assert_eq!(event("one", true).1, "(combined from similar events): one");
        assert_eq!(event("one", false).0.len(), "a.".len() + 16);
        assert!(event(&"é".repeat(2000), false).1.len() <= MESSAGE_LEN_MAX);
    }
}
