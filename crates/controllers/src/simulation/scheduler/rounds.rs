//! Which pods are looked at in a turn. A **round** looks once at every pod that waits, in order, some in each turn: those that fit nowhere
//! must not keep the others from being looked at, nor the scheduler from coming to rest.
//!
//! Something that happens while a round is under way may help pods that it has passed: then another round follows. Only planes with a
//! round under way are remembered.

use std::collections::HashMap;

use parking_lot::Mutex;
use polder_model::{PlaneId, SmolStr, Value};

use super::picture;

/// Where a pod stands in the queue: whoever is more important first, then whoever came first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    importance: std::cmp::Reverse<i64>,
    created: SmolStr,
    namespace: SmolStr,
    name: SmolStr,
}

impl Place {
    pub(super) fn of(pod: &Value) -> Place {
        let text = |field| SmolStr::new(pod.str_at(&["metadata", field]).unwrap_or_default());
        Place {
            importance: std::cmp::Reverse(picture::priority(pod)),
            created: text("creationTimestamp"),
            namespace: text("namespace"),
            name: text("name"),
        }
    }
}

#[derive(Default)]
struct Round {
    /// The last pod that was looked at.
    passed: Option<Place>,
    /// Something has happened since it began.
    stale: bool,
}

#[derive(Default)]
pub(super) struct Rounds(Mutex<HashMap<PlaneId, Round>>);

impl Rounds {
    /// Something happened that may help pods of a plane.
    pub(super) fn note(&self, plane: PlaneId) {
        if let Some(round) = self.0.lock().get_mut(&plane) {
            round.stale = true;
        }
    }

    /// The place after which a turn begins: none at the beginning of a round.
    pub(super) fn turn(&self, plane: PlaneId) -> Option<Place> {
        self.0.lock().entry(plane).or_default().passed.clone()
    }

    /// A turn has ended before the round: the next one goes on behind this pod.
    pub(super) fn pause(&self, plane: PlaneId, passed: Place) {
        if let Some(round) = self.0.lock().get_mut(&plane) {
            round.passed = Some(passed);
        }
    }

    /// The round is over. Whether another one is due at once: this one took several turns, and something happened meanwhile.
    pub(super) fn end(&self, plane: PlaneId) -> bool {
        let round = self.0.lock().remove(&plane);
        round.is_some_and(|round| round.stale && round.passed.is_some())
    }

    pub(super) fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.0.lock().retain(|plane, _| !is_gone(*plane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    const PLANE: PlaneId = PlaneId(7);

    fn place(name: &str, priority: i64) -> Place {
        Place::of(&json!({"metadata": {"name": name}, "spec": {"priority": priority}}))
    }

    #[test]
    fn the_important_come_first() {
        assert!(place("z", 5) < place("a", 1));
        assert!(place("a", 1) < place("b", 1));
    }

    #[test]
    fn a_round_goes_on_where_it_was_and_comes_to_an_end() {
        let rounds = Rounds::default();
        assert_eq!(rounds.turn(PLANE), None);
        rounds.pause(PLANE, place("a", 0));
        assert_eq!(rounds.turn(PLANE), Some(place("a", 0)));
        assert!(!rounds.end(PLANE), "nothing has happened");
        assert!(rounds.0.lock().is_empty(), "a plane at rest is not remembered");
        rounds.note(PLANE);
        assert!(rounds.0.lock().is_empty(), "nor is one that has something to do");

        assert_eq!(rounds.turn(PLANE), None);
        rounds.pause(PLANE, place("a", 0));
        rounds.note(PLANE);
        assert!(rounds.end(PLANE), "those that were passed may be helped");
        assert_eq!(rounds.turn(PLANE), None, "from the beginning");
        rounds.note(PLANE);
        assert!(!rounds.end(PLANE), "whatever happened has woken us");
    }
}
