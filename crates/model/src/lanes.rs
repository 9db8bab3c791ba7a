//! Planes take turns: a queue in which each plane has a lane of its own and the lanes are served one after the other,
//! so that a plane with much waiting delays others by one item, not by all of them. Within a lane, first come, first
//! served. A plane may have a limit on what it has out at a time: popped, or let past, and not back yet. Its lane may be
//! held: then nothing of it goes until it is released.
//!
//! Locks, wakers and what an item is are left to others. All operations take constant time, but holding a lane, which
//! takes as long as there are lanes that could go.
//!
//! Invariant: a plane is in the ring once while it has something waiting, may have it out and is not held, and
//! otherwise not at all. A plane with nothing waiting and nothing out has no lane.

use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::PlaneId;

#[derive(Debug)]
pub struct Lanes<T> {
    lanes: HashMap<PlaneId, Lane<T>>,
    /// Planes whose first item could go now, the next one first.
    ring: VecDeque<PlaneId>,
    /// How much of one plane may be out; `None` if that is not even counted.
    out_max: Option<usize>,
    /// Whether new lanes are held.
    begins_held: bool,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<T>,
    out: usize,
    is_held: bool,
}

impl<T> Lanes<T> {
    /// Lanes that are served whatever their plane has out: nothing need come back.
    pub fn unlimited() -> Lanes<T> {
        Lanes { lanes: HashMap::new(), ring: VecDeque::new(), out_max: None, begins_held: false }
    }

    /// Lanes that are served while their plane has less than this out.
    pub fn limited(out_max: usize) -> Lanes<T> {
        Lanes { out_max: Some(out_max.max(1)), ..Lanes::unlimited() }
    }

    /// The same, and every lane is held when it begins.
    pub fn held(out_max: usize) -> Lanes<T> {
        Lanes { begins_held: true, ..Lanes::limited(out_max) }
    }

    /// Lines an item up behind the others of its plane.
    pub fn push(&mut self, plane: PlaneId, item: T) {
        self.push_with(plane, item, |_| {});
    }

    /// Lines an item up, and when its lane would have to grow for it, first lets go of what is no longer wanted: what
    /// is given up takes no more room than what is not.
    pub fn push_sweeping(&mut self, plane: PlaneId, item: T, is_wanted: impl Fn(&T) -> bool) {
        self.push_with(plane, item, |waiting| {
            if waiting.len() == waiting.capacity() {
                waiting.retain(is_wanted);
                // Room for as many again, so that the next sweep is as far away as this one was long.
                waiting.reserve(waiting.len());
            }
        });
    }

    fn push_with(&mut self, plane: PlaneId, item: T, make_room: impl FnOnce(&mut VecDeque<T>)) {
        let lane = self.lanes.entry(plane).or_insert_with(|| Lane::new(self.begins_held));
        let is_listed = lane.can_go(self.out_max);
        make_room(&mut lane.waiting);
        lane.waiting.push_back(item);
        if !is_listed && lane.can_go(self.out_max) {
            self.ring.push_back(plane);
        }
    }

    /// Takes the next item of the plane whose turn it is. With a limit it is out until [`leave`](Lanes::leave).
    pub fn pop(&mut self) -> Option<(PlaneId, T)> {
        let plane = self.ring.pop_front()?;
        let Entry::Occupied(mut entry) = self.lanes.entry(plane) else { return None };
        let lane = entry.get_mut();
        let item = lane.waiting.pop_front()?;
        lane.out += usize::from(self.out_max.is_some());
        if lane.can_go(self.out_max) {
            self.ring.push_back(plane);
        } else if lane.is_idle() {
            entry.remove();
        }
        Some((plane, item))
    }

    /// Lets somebody past who need not wait: its plane has less out than it may, and nobody in line. With a limit that
    /// counts as out until [`leave`](Lanes::leave), as if it had been pushed and popped.
    pub fn enter(&mut self, plane: PlaneId) -> bool {
        let Some(out_max) = self.out_max else { return !self.lanes.contains_key(&plane) };
        let lane = self.lanes.entry(plane).or_insert_with(|| Lane::new(self.begins_held));
        let enters = lane.waiting.is_empty() && lane.out < out_max;
        lane.out += usize::from(enters);
        enters
    }

    /// Something of a plane that was out is back.
    pub fn leave(&mut self, plane: PlaneId) {
        let Entry::Occupied(mut entry) = self.lanes.entry(plane) else { return };
        let lane = entry.get_mut();
        let is_listed = lane.can_go(self.out_max);
        lane.out = lane.out.saturating_sub(1);
        if lane.is_idle() {
            entry.remove();
        } else if !is_listed && lane.can_go(self.out_max) {
            self.ring.push_back(plane);
        }
    }

    /// Nothing of a plane goes from now on. What is out stays out.
    pub fn hold(&mut self, plane: PlaneId) {
        let Some(lane) = self.lanes.get_mut(&plane) else { return };
        if lane.can_go(self.out_max) {
            self.ring.retain(|listed| *listed != plane);
        }
        lane.is_held = true;
    }

    /// What waits in a plane's lane may go.
    pub fn release(&mut self, plane: PlaneId) {
        let Some(lane) = self.lanes.get_mut(&plane).filter(|lane| lane.is_held) else { return };
        lane.is_held = false;
        if lane.can_go(self.out_max) {
            self.ring.push_back(plane);
        }
    }

    /// Whether something of a plane waits.
    pub fn has_waiting(&self, plane: PlaneId) -> bool {
        self.lanes.get(&plane).is_some_and(|lane| !lane.waiting.is_empty())
    }

    /// Whether something of a plane waits or is out.
    pub fn has_lane(&self, plane: PlaneId) -> bool {
        self.lanes.contains_key(&plane)
    }

    /// Whose item [`pop`](Lanes::pop) would give.
    pub fn next(&self) -> Option<PlaneId> {
        self.ring.front().copied()
    }

    /// Whether [`pop`](Lanes::pop) has something to give.
    pub fn has_next(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Whether nothing waits and nothing is out.
    pub fn is_idle(&self) -> bool {
        self.lanes.is_empty()
    }
}

impl<T> Lane<T> {
    fn new(is_held: bool) -> Lane<T> {
        Lane { waiting: VecDeque::new(), out: 0, is_held }
    }

    fn can_go(&self, out_max: Option<usize>) -> bool {
        !self.is_held && !self.waiting.is_empty() && out_max.is_none_or(|max| self.out < max)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.out == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a script and compares what came out. `1a` lines up `a` for plane 1, `+1` asks to be let past for plane 1
    /// (`!` if so, else `?`), `-1` is something of plane 1 that is back, `h1` and `r1` hold and release its lane, `.` pops (`_` if there is nothing).
    #[track_caller]
    fn check(mut lanes: Lanes<char>, script: &str, expected: &str) {
        let mut came = Vec::new();
        let plane = |digit: char| PlaneId(digit.to_digit(10).unwrap().into());
        for step in script.split_whitespace() {
            match step.chars().collect::<Vec<_>>()[..] {
                ['.'] => {
                    let has_next = lanes.has_next();
                    let next = lanes.pop();
                    assert_eq!(has_next, next.is_some());
                    came.push(next.map_or("_".into(), |(plane, item)| format!("{plane}{item}")));
                }
                ['+', digit] => came.push(if lanes.enter(plane(digit)) { "!" } else { "?" }.into()),
                ['-', digit] => lanes.leave(plane(digit)),
                ['h', digit] => lanes.hold(plane(digit)),
                ['r', digit] => lanes.release(plane(digit)),
                [digit, item] => lanes.push(plane(digit), item),
                _ => panic!("no step: {step}"),
            }
            lanes.assert_sound();
        }
        assert_eq!(came.join(" "), expected);
        assert!(lanes.is_idle(), "nothing is left: {lanes:?}");
    }

    impl<T: std::fmt::Debug> Lanes<T> {
        /// The invariant of this file.
        fn assert_sound(&self) {
            let mut listed: Vec<PlaneId> = self.ring.iter().copied().collect();
            listed.sort();
            let can_go = |(_, lane): &(&PlaneId, &Lane<T>)| lane.can_go(self.out_max);
            let mut able: Vec<PlaneId> = self.lanes.iter().filter(can_go).map(|(plane, _)| *plane).collect();
            able.sort();
            assert_eq!(listed, able);
            assert!(!self.lanes.values().any(Lane::is_idle), "{self:?}");
        }
    }

    #[test]
    fn planes_take_turns() {
        check(Lanes::unlimited(), ".", "_");
        check(Lanes::unlimited(), "1a 1b 1c 2d 3e . . . . . .", "1a 2d 3e 1b 1c _");
        check(Lanes::unlimited(), "1a 1b 1c . 2d . . .", "1a 1b 2d 1c");
        check(Lanes::unlimited(), "+1 1a +1 . +1", "! ? 1a !");
        // Nothing comes back, but it does no harm if it does.
        check(Lanes::unlimited(), "1a 1b . -1 .", "1a 1b");
    }

    #[test]
    fn a_plane_has_no_more_out_than_it_may() {
        check(Lanes::limited(1), "1a 1b 2c . . . -1 . -1 -2", "1a 2c _ 1b");
        check(Lanes::limited(2), "1a 1b 1c 2d . . . . -2 -1 . -1 -1", "1a 2d 1b _ 1c");
        // Lined up while the plane is at work: it goes to the end of the ring when it is back.
        check(Lanes::limited(1), "1a . 1b 2c . -1 . -2 -1", "1a 2c 1b");
        // A limit of nothing would never serve anybody.
        check(Lanes::limited(0), "1a . -1", "1a");
    }

    #[test]
    fn nothing_goes_from_a_lane_that_is_held() {
        check(Lanes::held(1), "1a 2b . r2 . r1 . -1 -2", "_ 2b 1a");
        // What is out stays out, and what comes back changes nothing.
        check(Lanes::held(1), "1a 1b r1 . h1 -1 . h1 r1 r1 . -1", "1a _ 1b");
        // A lane that was empty begins anew.
        check(Lanes::held(1), "1a r1 . -1 1b . r1 . -1", "1a _ 1b");
        check(Lanes::limited(1), "h1 r1 1a 2b h1 . . r1 . -2 -1", "2b _ 1a");
    }

    #[test]
    fn who_need_not_wait_is_let_past() {
        check(Lanes::limited(2), "+1 +1 +1 +2 1a . -1 . -2 -1 -1", "! ! ? ! _ 1a");
        // Room, but somebody was there before.
        check(Lanes::limited(1), "+1 1a -1 +1 . -1", "! ? 1a");
        check(Lanes::limited(1), "-1 .", "_");
    }

    #[test]
    fn what_is_given_up_takes_no_room() {
        let mut lanes = Lanes::limited(1);
        assert!(lanes.enter(PlaneId::CORE));
        for number in 0..100_000 {
            lanes.push_sweeping(PlaneId::CORE, number, |number| number % 10_000 == 0);
            lanes.assert_sound();
        }
        assert!(lanes.lanes[&PlaneId::CORE].waiting.capacity() < 100);
        lanes.leave(PlaneId::CORE);
        let mut came = Vec::new();
        while let Some((plane, number)) = lanes.pop() {
            lanes.leave(plane);
            came.push(number);
        }
        came.retain(|number| number % 10_000 == 0);
        assert_eq!(came, (0..10).map(|number| number * 10_000).collect::<Vec<_>>());
        assert!(lanes.is_idle());
    }

    #[test]
    fn sweeping_does_not_cost_more_than_pushing() {
        // One is given up each time another comes: were the lane swept at each of them, it would be looked through
        // 100,000 times.
        let (mut lanes, looks) = (Lanes::limited(1), std::cell::Cell::new(0u64));
        assert!(lanes.enter(PlaneId::CORE));
        for number in 0u64..100_000 {
            lanes.push_sweeping(PlaneId::CORE, number, |waiting| {
                looks.set(looks.get() + 1);
                waiting + 1000 > number
            });
        }
        assert!(looks.get() < 400_000, "{} looks", looks.get());
    }
}
