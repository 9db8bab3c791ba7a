//! The judge of a simulation: sees every answer that a client got, and every backup that was put back, and says what
//! must not have happened. It knows nothing of how cells and routers work.

use std::collections::BTreeMap;

use crate::cell::Done;
use crate::map::{CellId, Plane};
use crate::random::mix;

/// More of them are not kept: the first is the one to look at.
const VIOLATIONS_MAX: usize = 20;

#[derive(Clone, Debug, Default)]
struct Seen {
    /// The digest after each write that is in the plane's log.
    log: Vec<u64>,
    version: u64,
    epoch: u64,
    /// Who accepted a write at that epoch.
    owner: Option<(CellId, u32)>,
}

#[derive(Debug, Default)]
pub struct Checker {
    seen: BTreeMap<Plane, Seen>,
    violations: Vec<String>,
    /// Writes that had been acknowledged and were not in the backup that a lost cell came back from.
    pub writes_lost: u64,
    /// Planes that had been made and were not in it.
    pub planes_lost: u64,
}

impl Checker {
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    pub fn violate(&mut self, text: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(text);
        }
    }

    /// A write was accepted. The log of the plane has grown by it, and by nothing else; its version has grown; and at one epoch
    /// one cell accepts.
    pub fn wrote(&mut self, plane: Plane, write: u64, done: Done, by: (CellId, u32)) {
        let seen = self.seen.entry(plane).or_default();
        let last = seen.log.last().copied().unwrap_or_default();
        let mut wrong = Vec::new();
        if done.epoch < seen.epoch
            || (done.epoch == seen.epoch && seen.owner.is_some_and(|owner| owner != by))
        {
            wrong.push(format!(
                "{by:?} accepted at epoch {}, {:?} at {} before",
                done.epoch, seen.owner, seen.epoch
            ));
        }
        if done.writes as usize != seen.log.len() + 1 || done.digest != mix(last ^ write) {
            wrong.push(format!("write {} follows {} others", done.writes, seen.log.len()));
        }
        if done.version <= seen.version {
            wrong.push(format!("version {} after {}", done.version, seen.version));
        }
        seen.log.push(done.digest);
        seen.version = seen.version.max(done.version);
        seen.epoch = done.epoch;
        seen.owner = Some(by);
        for wrong in wrong {
            self.violate(format!("write of {plane:?}: {wrong}"));
        }
    }

    /// A read sees every write before it, and no version that is older than one seen before.
    pub fn read(&mut self, plane: Plane, done: Done) {
        let Some(seen) = self.seen.get_mut(&plane) else {
            if done.writes > 0 {
                self.violate(format!("{plane:?} has writes that nobody made"));
            }
            return;
        };
        let whole = done.writes as usize == seen.log.len()
            && seen.log.last().copied().unwrap_or_default() == done.digest;
        let older = done.version < seen.version;
        let (writes, version) = (seen.log.len(), seen.version);
        seen.version = seen.version.max(done.version);
        if !whole || older {
            self.violate(format!("read of {plane:?}: {done:?}, but {writes} writes and version {version}"));
        }
    }

    /// A cell was lost, and this is what its backup has of a plane: a beginning of its log.
    pub fn cut(&mut self, plane: Plane, left: Option<(u32, u64)>) {
        let Some(seen) = self.seen.get_mut(&plane) else {
            self.planes_lost += u64::from(left.is_none());
            return;
        };
        let (writes, digest) = left.unwrap_or_default();
        let writes = writes as usize;
        let beginning = writes <= seen.log.len()
            && (writes == 0 && digest == 0 || writes > 0 && seen.log[writes - 1] == digest);
        self.writes_lost += seen.log.len().saturating_sub(writes) as u64;
        self.planes_lost += u64::from(left.is_none());
        seen.log.truncate(writes);
        if !beginning {
            self.violate(format!("what came back of {plane:?} is no beginning of its log"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(epoch: u64, version: u64, writes: u32, digest: u64) -> Done {
        Done { epoch, version, writes, digest }
    }

    /// Two writes, and then one that is told to the judge as given.
    fn check(third: Done, by: (CellId, u32), wrong: &str) {
        let mut checker = Checker::default();
        let plane = Plane::numbered(1);
        let first = mix(7);
        let second = mix(first ^ 8);
        checker.wrote(plane, 7, done(1, 5, 1, first), (CellId(0), 1));
        checker.wrote(plane, 8, done(2, 6, 2, second), (CellId(1), 1));
        assert_eq!(checker.violations(), [""; 0]);
        checker.wrote(plane, 9, third, by);
        let found = checker.violations().join("; ");
        assert!(if wrong.is_empty() { found.is_empty() } else { found.contains(wrong) }, "{found}");
    }

    #[test]
    fn the_judge_sees_what_is_wrong() {
        let digest = mix(mix(mix(7) ^ 8) ^ 9);
        check(done(2, 7, 3, digest), (CellId(1), 1), "");
        check(done(3, 7, 3, digest), (CellId(0), 1), "");
        check(done(2, 7, 3, digest), (CellId(0), 1), "accepted at epoch 2");
        check(done(2, 7, 3, digest), (CellId(1), 2), "accepted at epoch 2");
        check(done(1, 7, 3, digest), (CellId(0), 1), "accepted at epoch 1");
        check(done(2, 6, 3, digest), (CellId(1), 1), "version 6 after 6");
        check(done(2, 7, 2, mix(mix(7) ^ 9)), (CellId(1), 1), "write 2 follows 2");
        check(done(2, 7, 3, 1), (CellId(1), 1), "write 3 follows 2");
    }

    #[test]
    fn what_a_backup_has_is_a_beginning() {
        let plane = Plane::numbered(1);
        let mut checker = Checker::default();
        checker.wrote(plane, 7, done(1, 5, 1, mix(7)), (CellId(0), 1));
        checker.wrote(plane, 8, done(1, 6, 2, mix(mix(7) ^ 8)), (CellId(0), 1));
        checker.cut(plane, Some((1, mix(7))));
        assert_eq!((checker.writes_lost, checker.violations().len()), (1, 0));
        checker.read(plane, done(2, 4, 1, mix(7)));
        assert_eq!(checker.violations().len(), 1, "versions never go back");
        checker.cut(plane, Some((1, 3)));
        assert_eq!(checker.violations().len(), 2);
    }
}
