//! Changes that wait to be committed. Planes take turns, so that one with much waiting delays others by a few changes, not by all
//! of them; what one plane asks for is done in the order in which it came. A change to planes as a whole, to make, fork or delete one,
//! comes after everything before it and before everything after it.

use hashbrown::HashMap;
use polder_model::{Lanes, PlaneId};
use tokio::sync::oneshot;

use super::Answer;
use crate::change::Change;

/// How many changes of all planes are in a group that several are in, and of each at least if it has so many.
const TOGETHER_LEN: usize = 64;
const SHARE_LEN_MIN: usize = 8;
/// The longest group of one plane while others commit too, now and then: whoever comes next waits for no more than that.
const ALONE_LEN_MAX: usize = 16;
/// After so many groups of one plane in a row nobody else is expected.
const ALONE_GROUPS: u32 = 256;
/// What is lined up; the rest waits before.
const WAITING_LEN_MAX: usize = 4_096;

type Item = (Change, oneshot::Sender<Answer>);

/// How many changes of each plane are in a group.
#[derive(Default)]
pub(super) struct Shares(HashMap<PlaneId, usize>);

pub(super) struct Waiting {
    lanes: Lanes<Item>,
    len: usize,
    /// Nothing is taken behind it until it is done.
    of_planes: Option<Item>,
    /// Whose change was taken last, and how many groups in a row were that plane's alone.
    last: Option<PlaneId>,
    alone_groups: u32,
}

impl Waiting {
    pub(super) fn new() -> Waiting {
        Waiting { lanes: Lanes::unlimited(), len: 0, of_planes: None, last: None, alone_groups: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.lanes.has_next() && self.of_planes.is_none()
    }

    /// Whether another change may be lined up now.
    pub(super) fn takes_more(&self) -> bool {
        self.of_planes.is_none() && self.len < WAITING_LEN_MAX
    }

    pub(super) fn push(&mut self, change: Change, reply: oneshot::Sender<Answer>) {
        let lane = change.writes.first().map_or(PlaneId::CORE, |write| write.key.plane);
        match change.plane.is_some() {
            true => self.of_planes = Some((change, reply)),
            false => {
                self.len += 1;
                self.lanes.push(lane, (change, reply));
            }
        }
    }

    /// The next change for a group. `None`: there is none, or the group has enough of whom it is from.
    pub(super) fn pop(&mut self, shares: &mut Shares) -> Option<Item> {
        let Some(plane) = self.lanes.next() else { return self.of_planes.take() };
        if self.last != Some(plane) {
            (self.last, self.alone_groups) = (Some(plane), 0);
        } else if shares.0.is_empty() {
            self.alone_groups = self.alone_groups.saturating_add(1);
        }
        let share = shares.0.entry(plane).or_default();
        *share += 1;
        // Everybody else has had as many, or has nothing waiting: whoever comes now waits less for a short group.
        let share_max = match shares.0.len() {
            1 if self.alone_groups < ALONE_GROUPS => ALONE_LEN_MAX,
            1 => usize::MAX,
            planes => (TOGETHER_LEN / planes).max(SHARE_LEN_MIN),
        };
        if shares.0[&plane] > share_max {
            return None;
        }
        let (_, item) = self.lanes.pop()?;
        self.len -= 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Expect;
    use crate::key::{Key, ObjectName, ResourceId};

    const BUSY: PlaneId = PlaneId(7);
    const OTHER: PlaneId = PlaneId(8);

    fn line_up(waiting: &mut Waiting, plane: PlaneId, count: usize) {
        for _ in 0..count {
            let key = Key { plane, resource: ResourceId(1), name: ObjectName::cluster("x") };
            waiting.push(Change::delete(key, Expect::Anything), oneshot::channel().0);
        }
    }

    /// How many changes of each of the two are in the next group.
    fn group(waiting: &mut Waiting) -> (usize, usize) {
        let (mut shares, mut len) = (Shares::default(), (0, 0));
        while let Some((change, _)) = waiting.pop(&mut shares) {
            match change.writes[0].key.plane {
                BUSY => len.0 += 1,
                _ => len.1 += 1,
            }
        }
        len
    }

    #[test]
    fn groups_are_short_while_others_commit_too() {
        let mut waiting = Waiting::new();
        line_up(&mut waiting, BUSY, 2 * TOGETHER_LEN);
        line_up(&mut waiting, OTHER, 3);
        assert_eq!(group(&mut waiting), (TOGETHER_LEN / 2, 3));
        // Alone in its group, but the other one was here a moment ago.
        assert_eq!(group(&mut waiting), (ALONE_LEN_MAX, 0));
        line_up(&mut waiting, OTHER, 1);
        let (_, other) = group(&mut waiting);
        assert_eq!(other, 1, "whoever comes is in the next group");
    }

    #[test]
    fn who_is_alone_for_long_has_long_groups() {
        let mut waiting = Waiting::new();
        line_up(&mut waiting, OTHER, 1);
        assert_eq!(group(&mut waiting), (0, 1));
        for _ in 0..ALONE_GROUPS {
            line_up(&mut waiting, BUSY, 2 * ALONE_LEN_MAX);
            assert_eq!(group(&mut waiting), (ALONE_LEN_MAX, 0));
        }
        let (left, _) = group(&mut waiting);
        assert!(left > 10 * ALONE_LEN_MAX, "{left}");
    }
}
