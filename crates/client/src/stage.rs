//! Which planes are worked on now. Were all that have something to do served in turns, item by item, every step of
//! every plane would wait for all the others; so a few planes are on stage at a time, each until it has nothing left
//! to do or has had its share, and then the next ones are. A chain of steps, each an answer to the one before, runs to
//! its end quickly, and only its first step waits.
//!
//! There are two kinds of places. A plane that did little lately gets a light one: there are more of these, and they
//! are left soon. Who needs more, or says so, lines up for a long one. Those who have had a long one not long ago stand
//! in a line of their own, which is passed over a bounded number of times. So whoever needs little waits for little, and
//! nobody for ever.
//!
//! A plane that does nothing for a while, since a webhook of its own is slow or its next step is not known yet, is not
//! waited for while others want its place.
//!
//! Pure: time is told, as what has passed since some beginning. What there is to do is known to others.
//!
//! Invariant: a plane is on stage, or in one line, or away; a plane that is away is forgotten after a while.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use polder_model::PlaneId;

/// What a plane may have used to get a light place, and to keep it.
const LIGHT: Duration = Duration::from_millis(20);
/// What it used is forgiven at this rate: whoever uses less than this part of a core is always light.
const FORGIVEN: u32 = 10;
/// Nobody is remembered to have used more, or for longer than it takes to forgive that.
const USED_MAX: Duration = Duration::from_millis(200);
/// After so much of a long place nothing large is begun.
const SLICE: Duration = Duration::from_millis(150);
/// And after so much it is over.
const SLICE_MAX: Duration = Duration::from_millis(300);
/// How long a plane keeps its place while nothing of it begins or ends, or its next step becomes known. Long enough not to
/// mistake a machine that is too busy for a plane that does nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same if it did nothing the last time.
const PATIENCE_SHORT: Duration = Duration::from_millis(100);
/// So often in a row is the second line for long places passed over.
const PASSED_MAX: u32 = 3;
/// Objects made in one turn: what a plane may do in a light place, and in a long one. Not too many: whoever answers to them
/// begins when the turn has ended.
pub(crate) const FEW: usize = 4;
pub(crate) const MANY: usize = 16;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub light: usize,
    pub long: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Light,
    Long,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    Away,
    InLine,
    On(Place),
}

/// Who waits for what. The second line for long places is of those who have had one.
const LINE_LIGHT: usize = 0;
const LINE_LONG: usize = 1;
const LINE_AGAIN: usize = 2;

#[derive(Debug)]
pub(crate) struct Stage {
    places: Places,
    guests: HashMap<PlaneId, Guest>,
    /// Those on stage.
    on: Vec<PlaneId>,
    lines: [VecDeque<PlaneId>; 3],
    /// How often the second line for long places was passed over.
    passed: u32,
    /// Those who are remembered, once each, and until when at least.
    remembered: VecDeque<(Duration, PlaneId)>,
}

/// A plane that has something to do, or had lately.
#[derive(Debug)]
struct Guest {
    is: Whereabouts,
    /// What it used, less what has been forgiven, at a time.
    used: Duration,
    used_at: Duration,
    /// What it used since it came on stage.
    spent: Duration,
    /// When something of it last began or ended.
    moved: Duration,
    /// It has nothing to do before the feed has been seen up to here.
    awaits: Option<u64>,
    /// It lost its place for doing nothing.
    is_slow: bool,
}

impl Stage {
    pub(crate) fn new(places: Places) -> Stage {
        let places = Places { light: places.light.max(1), long: places.long.max(1) };
        Stage {
            places,
            guests: HashMap::new(),
            on: Vec::new(),
            lines: Default::default(),
            passed: 0,
            remembered: VecDeque::new(),
        }
    }

    pub(crate) fn is_on(&self, plane: PlaneId) -> bool {
        self.place(plane).is_some()
    }

    pub(crate) fn is_long(&self, plane: PlaneId) -> bool {
        self.place(plane) == Some(Place::Long)
    }

    fn place(&self, plane: PlaneId) -> Option<Place> {
        match self.guests.get(&plane)?.is {
            Whereabouts::On(place) => Some(place),
            _ => None,
        }
    }

    /// A plane has something to do, perhaps something large. Who is on stage goes on; who is in line stays there.
    pub(crate) fn want(&mut self, plane: PlaneId, large: bool, now: Duration) {
        self.forget(now);
        let remembered = &mut self.remembered;
        let guest = self.guests.entry(plane).or_insert_with(|| {
            remembered.push_back((now + USED_MAX * FORGIVEN, plane));
            Guest::new(now)
        });
        match guest.is {
            Whereabouts::Away => {
                let used = guest.used(now);
                let line = match () {
                    () if used < LIGHT && !large => LINE_LIGHT,
                    () if used < SLICE => LINE_LONG,
                    () => LINE_AGAIN,
                };
                guest.is = Whereabouts::InLine;
                self.lines[line].push_back(plane);
            }
            Whereabouts::InLine => {}
            Whereabouts::On(_) => {
                guest.awaits = None;
                guest.moved = now;
            }
        }
    }

    /// The next plane that comes on stage.
    pub(crate) fn next(&mut self, now: Duration) -> Option<(PlaneId, Place)> {
        let taken = |place| self.on.iter().filter(|plane| self.place(**plane) == Some(place)).count();
        let (light_free, long_free) =
            (taken(Place::Light) < self.places.light, taken(Place::Long) < self.places.long);
        let (place, plane) = if light_free && let Some(plane) = self.lines[LINE_LIGHT].pop_front() {
            (Place::Light, plane)
        } else if long_free {
            (Place::Long, self.next_long()?)
        } else {
            return None;
        };
        let guest = self.guests.get_mut(&plane)?;
        (guest.is, guest.spent, guest.moved, guest.awaits) =
            (Whereabouts::On(place), Duration::ZERO, now, None);
        self.on.push(plane);
        Some((plane, place))
    }

    fn next_long(&mut self) -> Option<PlaneId> {
        let [_, first, again] = &mut self.lines;
        if again.is_empty() {
            return first.pop_front();
        }
        if self.passed < PASSED_MAX
            && let Some(plane) = first.pop_front()
        {
            self.passed += 1;
            return Some(plane);
        }
        self.passed = 0;
        again.pop_front()
    }

    /// How many objects the next turn of a plane may make.
    pub(crate) fn room(&self, plane: PlaneId) -> usize {
        let has_room = |guest: &Guest| guest.is == Whereabouts::On(Place::Long) && guest.spent < SLICE;
        if self.guests.get(&plane).is_some_and(has_room) { MANY } else { FEW }
    }

    /// Something of a plane begins.
    pub(crate) fn begin(&mut self, plane: PlaneId, now: Duration) {
        if let Some(guest) = self.guests.get_mut(&plane) {
            guest.moved = now;
        }
    }

    /// Something of a plane has ended, which took so much. Whether the plane has had its share.
    pub(crate) fn end(&mut self, plane: PlaneId, spent: Duration, now: Duration) -> bool {
        let Some(guest) = self.guests.get_mut(&plane) else { return false };
        guest.moved = now;
        guest.used = (guest.used(now) + spent).min(USED_MAX);
        guest.used_at = now;
        guest.spent += spent;
        match guest.is {
            Whereabouts::On(Place::Light) => guest.used > LIGHT,
            Whereabouts::On(Place::Long) => guest.spent > SLICE_MAX,
            _ => false,
        }
    }

    /// A plane has nothing to do before the feed has been seen up to a revision. It keeps its place until then.
    pub(crate) fn pause(&mut self, plane: PlaneId, revision: u64) {
        if let Some(guest) = self.guests.get_mut(&plane) {
            guest.awaits = Some(revision);
        }
    }

    /// The first revision that somebody waits for.
    pub(crate) fn awaited(&self) -> Option<u64> {
        self.on.iter().filter_map(|plane| self.guests.get(plane)?.awaits).min()
    }

    /// Those who have nothing to do, now that the feed has been seen so far.
    pub(crate) fn done(&self, seen: u64) -> Vec<PlaneId> {
        let is_done = |plane: &&PlaneId| {
            let awaits = self.guests.get(plane).and_then(|guest| guest.awaits);
            awaits.is_some_and(|revision| revision <= seen)
        };
        self.on.iter().filter(is_done).copied().collect()
    }

    /// A plane leaves the stage.
    pub(crate) fn leave(&mut self, plane: PlaneId) {
        self.on.retain(|on| *on != plane);
        let is_on = |guest: &&mut Guest| matches!(guest.is, Whereabouts::On(_));
        if let Some(guest) = self.guests.get_mut(&plane).filter(is_on) {
            (guest.is, guest.is_slow, guest.awaits) = (Whereabouts::Away, false, None);
        }
    }

    /// Those who do nothing while others want their places. They are no longer on stage.
    pub(crate) fn stalled(&mut self, now: Duration) -> Vec<PlaneId> {
        self.forget(now);
        let is_stalled = |plane: &PlaneId| self.patience_ends(*plane).is_some_and(|end| end <= now);
        let stalled: Vec<PlaneId> = self.on.iter().copied().filter(is_stalled).collect();
        for plane in &stalled {
            let is_slow = self.guests.get(plane).is_some_and(|guest| guest.awaits.is_none());
            self.leave(*plane);
            if let Some(guest) = self.guests.get_mut(plane) {
                guest.is_slow = is_slow;
            }
        }
        stalled
    }

    /// When a plane loses its place if it does nothing: never while nobody wants it.
    fn patience_ends(&self, plane: PlaneId) -> Option<Duration> {
        let guest = self.guests.get(&plane)?;
        let is_wanted = match guest.is {
            Whereabouts::On(Place::Light) => !self.lines[LINE_LIGHT].is_empty(),
            _ => !self.lines[LINE_LONG].is_empty() || !self.lines[LINE_AGAIN].is_empty(),
        };
        is_wanted.then(|| guest.moved + if guest.is_slow { PATIENCE_SHORT } else { PATIENCE })
    }

    /// When [`stalled`](Stage::stalled) is to be asked next.
    pub(crate) fn due(&self) -> Option<Duration> {
        let patience = self.on.iter().filter_map(|plane| self.patience_ends(*plane)).min();
        let memory = self.remembered.front().map(|(until, _)| *until);
        patience.into_iter().chain(memory).min()
    }

    /// Forgets who has been away for long enough.
    fn forget(&mut self, now: Duration) {
        while let Some((_, plane)) = self.remembered.pop_front_if(|(until, _)| *until <= now) {
            let Some(guest) = self.guests.get(&plane) else { continue };
            if guest.is == Whereabouts::Away && guest.used(now).is_zero() {
                self.guests.remove(&plane);
            } else {
                self.remembered.push_back((now + USED_MAX * FORGIVEN, plane));
            }
        }
    }
}

impl Guest {
    fn new(now: Duration) -> Guest {
        Guest {
            is: Whereabouts::Away,
            used: Duration::ZERO,
            used_at: now,
            spent: Duration::ZERO,
            moved: now,
            awaits: None,
            is_slow: false,
        }
    }

    fn used(&self, now: Duration) -> Duration {
        self.used.saturating_sub(now.saturating_sub(self.used_at) / FORGIVEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Plays a script with one light and one long place, and compares who came (`1l` and `1L` for plane 1 in a light
    /// and a long place) and who went. `1!` is plane 1 that has something to do, `1!!` something large; `1+5` a turn
    /// of plane 1 that took 5 ms, after which it goes if it has had its share (`1x`) and lines up again; `1.` goes, having
    /// nothing left; `1?7` waits for revision 7; `s7` is seen (`1x` for who waited); `@5` tells the time, and sends away
    /// who does nothing (`1-`).
    #[track_caller]
    fn check(script: &str, expected: &str) -> Stage {
        let mut stage = Stage::new(Places { light: 1, long: 1 });
        let (mut now, mut came) = (Duration::ZERO, Vec::new());
        for step in script.split_whitespace() {
            let number = |text: &str| text.parse::<u64>().unwrap();
            let plane = step.chars().next().and_then(|first| first.to_digit(10)).map(|n| PlaneId(n.into()));
            match (plane, step.get(1..).unwrap()) {
                (Some(plane), "!") => stage.want(plane, false, now),
                (Some(plane), "!!") => stage.want(plane, true, now),
                (Some(plane), ".") => stage.leave(plane),
                (Some(plane), rest) => match rest.split_at(1) {
                    ("+", time) => {
                        stage.begin(plane, now);
                        if stage.end(plane, ms(number(time)), now) {
                            came.push(format!("{plane}x"));
                            stage.leave(plane);
                            stage.want(plane, false, now);
                        }
                    }
                    ("?", revision) => stage.pause(plane, number(revision)),
                    _ => panic!("no step: {step}"),
                },
                (None, rest) if step.starts_with('@') => {
                    now = ms(number(rest));
                    came.extend(stage.stalled(now).into_iter().map(|plane| format!("{plane}-")));
                }
                (None, seen) => {
                    for plane in stage.done(number(seen)) {
                        came.push(format!("{plane}x"));
                        stage.leave(plane);
                    }
                }
            }
            while let Some((plane, place)) = stage.next(now) {
                came.push(format!("{plane}{}", if place == Place::Light { "l" } else { "L" }));
            }
            stage.assert_sound();
        }
        assert_eq!(came.join(" "), expected, "{script}");
        stage
    }

    impl Stage {
        /// The invariant of this file.
        fn assert_sound(&self) {
            for (plane, guest) in &self.guests {
                let lined_up = self.lines.iter().flatten().filter(|other| *other == plane).count();
                let on = self.on.iter().filter(|other| *other == plane).count();
                let expected = match guest.is {
                    Whereabouts::Away => (0, 0),
                    Whereabouts::InLine => (1, 0),
                    Whereabouts::On(_) => (0, 1),
                };
                assert_eq!((lined_up, on), expected, "{plane}: {self:?}");
                assert_eq!(self.remembered.iter().filter(|(_, other)| other == plane).count(), 1);
            }
            assert!(self.guests.len() >= self.on.len() + self.lines.iter().map(VecDeque::len).sum::<usize>());
        }
    }

    #[test]
    fn few_are_on_stage_and_the_others_wait_for_them() {
        check("1! 2! 3! 1! 1+5 1. 2. 3.", "1l 2l 3l");
        check("1!! 2!! 1+100 1. 3!! 2.", "1L 2L 3L");
        // The two kinds of places do not wait for each other.
        check("1!! 2! 3!! 2. 4!", "1L 2l 4l");
    }

    #[test]
    fn who_needs_more_than_little_lines_up_for_more() {
        check("1! 1+20 1+1", "1l 1x 1L");
        check("1! 2!! 1+30 2.", "1l 2L 1x 1L");
        // Who did much lately is not light, until that is forgiven.
        check("1! 1+15 1. @10 1! 1+7", "1l 1l 1x 1L");
        check("1! 1+15 1. @200 1! 1+19", "1l 1l");
        check("1!! 1+100 1. @799 1! 1. @801 1!", "1L 1L 1l");
    }

    #[test]
    fn a_long_place_is_given_up_after_its_slice() {
        let mut stage = check("1!! 2!! 1+149", "1L");
        assert_eq!((stage.room(PlaneId(1)), stage.room(PlaneId(2))), (MANY, FEW));
        stage.end(PlaneId(1), ms(1), ms(0));
        assert_eq!(stage.room(PlaneId(1)), FEW, "what was begun is ended, and nothing large begun");
        check("1!! 2!! 1+150 1+150 1+1 2.", "1L 1x 2L 1L");
    }

    #[test]
    fn who_had_a_slice_is_passed_over_a_few_times() {
        // 1 and 2 use up what they get; others come later, and go first, three times.
        check(
            "1!! 2!! 1+301 2+301 3!! 4!! 5!! 6!! 1+301 3. 4. 5. 2+301 6.",
            "1L 1x 2L 2x 1L 1x 3L 4L 5L 2L 2x 6L 1L",
        );
    }

    #[test]
    fn the_next_step_is_waited_for() {
        check("1!! 2!! 1+5 1?7 s6 1! 1?8 s7 s8 2.", "1L 1x 2L");
        assert_eq!(check("1!! 1?7 2! 2?5", "1L 2l").awaited(), Some(5));
        assert_eq!(check("1!! 1?7 1!", "1L").awaited(), None);
        // But not for long while others wait.
        check("1!! 1?7 @2000 2!! @2000", "1L 1- 2L");
        check("1!! 2!! 1?7 @999 @1000", "1L 1- 2L");
    }

    #[test]
    fn who_does_nothing_is_not_waited_for() {
        check("1!! @5000 2! @5001", "1L 2l");
        check("1!! 2!! @999 1+1 @1998 @1999", "1L 1- 2L");
        // The next time not even as long, until it did not happen.
        check(
            "1!! 2!! @1000 1!! 2. @1050 2!! @1100 1!! 2. 1. 1!! 2!! @2099 @2100",
            "1L 1- 2L 1L 1- 2L 1L 1L 1- 2L",
        );
    }

    #[test]
    fn who_is_away_is_forgotten() {
        let stage = check("1! 1+15 1. 2!! @1999", "1l 2L");
        assert_eq!((stage.guests.len(), stage.due()), (2, Some(ms(2_000))));
        let stage = check("1! 1+15 1. 2!! @2000", "1l 2L");
        assert_eq!((stage.guests.len(), stage.remembered.len()), (1, 1), "who is on stage is not");
        let stage = check("1! 1+15 1. 2!! @2000 2. @4000", "1l 2L");
        assert!(stage.guests.is_empty() && stage.remembered.is_empty());
        assert_eq!(stage.due(), None, "nobody is there, and nothing is due");
    }
}
