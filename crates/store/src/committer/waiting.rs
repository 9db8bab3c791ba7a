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
}

impl Waiting {
    pub(super) fn new() -> Waiting {
        Waiting { lanes: Lanes::unlimited(), len: 0, of_planes: None }
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
        let share = shares.0.entry(plane).or_default();
        *share += 1;
        let share = *share;
        // Everybody else has had as many, or has nothing waiting: whoever comes now waits less for a short group.
        if shares.0.len() > 1 && share > (TOGETHER_LEN / shares.0.len()).max(SHARE_LEN_MIN) {
            return None;
        }
        let (_, item) = self.lanes.pop()?;
        self.len -= 1;
        Some(item)
    }
}
