//! Seats, without requests: what is wanted, what comes of it, and what holds whatever happens.

use std::sync::Arc;

use polder_model::{SmolStr, Value};
use polder_registry::flows::Flows;

use super::seats::{Granted, Refusal, Seats, Wish};

/// Levels by name and what their spec says.
fn flows(levels: &[(&str, &str)]) -> Arc<Flows> {
    let level = |(name, spec): &(&str, &str)| {
        let mut value = Value::default();
        value.set_at(&["metadata", "uid"], *name);
        value.set_at(&["spec"], Value::parse(spec.as_bytes()).unwrap());
        (SmolStr::from(*name), value)
    };
    let schema = |(name, _): &(&str, &str)| {
        let mut value = Value::default();
        value.set_at(&["metadata", "uid"], *name);
        value.set_at(&["spec", "priorityLevelConfiguration", "name"], *name);
        (SmolStr::from(*name), value)
    };
    let (schemas, levels) = (levels.iter().map(schema).collect::<Vec<_>>(), levels.iter().map(level));
    Arc::new(Flows::compile(&schemas, &levels.collect::<Vec<_>>()))
}

/// Three levels: half of the seats each for two that wait, of which one lends all; one is exempt.
fn usual() -> Arc<Flows> {
    flows(&[
        ("exempt", r#"{"type":"Exempt"}"#),
        (
            "lends",
            r#"{"type":"Limited","limited":{"nominalConcurrencyShares":10,"lendablePercent":100,"limitResponse":{
            "type":"Queue","queuing":{"queues":8,"handSize":1,"queueLengthLimit":3}}}}"#,
        ),
        (
            "keeps",
            r#"{"type":"Limited","limited":{"nominalConcurrencyShares":10,"lendablePercent":0,"limitResponse":{
            "type":"Queue","queuing":{"queues":8,"handSize":1,"queueLengthLimit":3}}}}"#,
        ),
        (
            "rejects",
            r#"{"type":"Limited","limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,"limitResponse":{
            "type":"Reject"}}}"#,
        ),
    ])
}

/// A plane with ten seats; who waits is named by a letter.
struct Plane {
    flows: Arc<Flows>,
    seats: Seats<char>,
    all: u64,
}

impl Plane {
    fn new(all: u64) -> Plane {
        Plane { flows: usual(), seats: Seats::default(), all }
    }

    fn enter(&mut self, level: &str, flow: u64, width: u64, who: char) -> Granted {
        let found = self.flows.extents(self.all).find(|(own, _)| own.name == level);
        let wish = Wish { flows: &self.flows, level: found.unwrap().0, width, all: self.all };
        self.seats.enter(&wish, || (flow, who))
    }

    /// Who gets seats when somebody of a level leaves.
    fn leave(&mut self, level: &str, width: u64) -> String {
        let mut called = String::new();
        let uid = bytes::Bytes::copy_from_slice(level.as_bytes());
        self.seats.leave(&uid, width, |who, _| called.push(who));
        called
    }
}

#[test]
fn what_is_kept_is_kept_and_what_is_lent_comes_back() {
    let mut plane = Plane::new(10);
    // One borrows all that is lent, and no more.
    for _ in 0..5 {
        assert_eq!(plane.enter("lends", 1, 1, 'a'), Granted::Seats(1));
    }
    assert_eq!(plane.enter("lends", 1, 1, 'a'), Granted::Waits(0));
    for _ in 0..5 {
        assert_eq!(plane.enter("keeps", 1, 1, 'b'), Granted::Seats(1));
    }
    assert_eq!(plane.enter("keeps", 1, 1, 'c'), Granted::Waits(1));
    // Whoever has no more than its part goes before who borrows.
    assert_eq!(plane.leave("keeps", 1), "c");
    assert_eq!(plane.leave("lends", 1), "a");
    assert_eq!((plane.seats.in_use(), plane.seats.waiting()), (10, 0));

    // Who keeps its own borrows from who lends, who gets it back as soon as somebody is done.
    let mut plane = Plane::new(10);
    for _ in 0..10 {
        assert_eq!(plane.enter("keeps", 1, 1, 'x'), Granted::Seats(1));
    }
    assert_eq!(plane.enter("keeps", 1, 1, 'x'), Granted::Waits(0));
    assert_eq!(plane.enter("lends", 1, 1, 'y'), Granted::Waits(1));
    assert_eq!(plane.leave("keeps", 1), "y");
}

#[test]
fn nobody_waits_for_ever_nor_without_a_queue() {
    let mut plane = Plane::new(2);
    assert_eq!(plane.enter("exempt", 1, 9, 'a'), Granted::Seats(1));
    assert_eq!(plane.enter("exempt", 1, 1, 'a'), Granted::Seats(1));
    // However important: there is an end.
    assert_eq!(plane.enter("exempt", 1, 1, 'a'), Granted::Refused(Refusal::Full));
    assert_eq!(plane.enter("rejects", 1, 1, 'a'), Granted::Refused(Refusal::Full));
    assert_eq!(plane.enter("keeps", 1, 1, 'b'), Granted::Waits(0));
    assert_eq!(plane.enter("keeps", 1, 1, 'c'), Granted::Waits(1));
    assert_eq!(plane.enter("keeps", 1, 1, 'd'), Granted::Refused(Refusal::QueueFull));
    assert_eq!(plane.leave("exempt", 1), "b");

    let mut plane = Plane::new(10);
    while let Granted::Seats(_) = plane.enter("keeps", 1, 1, 'a') {}
    assert_eq!(plane.enter("keeps", 1, 1, 'b'), Granted::Waits(1));
    assert_eq!(plane.enter("keeps", 1, 1, 'b'), Granted::Waits(2));
    assert_eq!(
        plane.enter("keeps", 1, 1, 'c'),
        Granted::Refused(Refusal::QueueFull),
        "the queue of that flow"
    );
    let other = (2..).find(|flow| *flow % 8 != 1).unwrap();
    assert_eq!(plane.enter("keeps", other, 1, 'c'), Granted::Waits(3));
}

#[test]
fn flows_take_turns_by_what_they_were_given() {
    let mut plane = Plane::new(100);
    while let Granted::Seats(_) = plane.enter("keeps", 1, 1, '-') {}
    plane.enter("keeps", 1, 1, 'a');
    plane.enter("keeps", 1, 1, 'a');
    plane.enter("keeps", 2, 1, 'b');
    plane.enter("keeps", 2, 1, 'b');
    let called: String = (0..5).map(|_| plane.leave("keeps", 1)).collect();
    // The one that could not sit down was of the first flow.
    assert_eq!(called, "-baba");
}

#[test]
fn who_gives_up_is_not_in_the_way() {
    let mut plane = Plane::new(10);
    while let Granted::Seats(_) = plane.enter("keeps", 1, 1, '-') {}
    plane.enter("keeps", 2, 1, 'a');
    let uid = bytes::Bytes::from_static(b"keeps");
    plane.seats.give_up(&uid, 0, |_, _| panic!("nothing is free"));
    plane.seats.give_up(&uid, 0, |_, _| panic!("it gave up already"));
    assert_eq!(plane.seats.waiting(), 1);
    assert_eq!(plane.leave("keeps", 1), "a");
}

#[test]
fn wide_requests_have_no_more_than_their_part() {
    let mut plane = Plane::new(200);
    assert_eq!(plane.enter("keeps", 1, 1_000_000, 'a'), Granted::Seats(15));
    assert_eq!(plane.leave("keeps", 15), "");
    assert_eq!(plane.seats.in_use(), 0);
}

/// Whatever is asked for and in which order: no more seats than there are, nothing is lost, nobody waits while its own is
/// free, and in the end nothing is remembered.
#[test]
fn seats_add_up() {
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let mut below = |max: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % max
    };
    for all in [1, 2, 7, 40] {
        let (mut plane, mut sitting, mut answered) = (Plane::new(all), Vec::<(&str, u64)>::new(), 0);
        let (mut waiting, mut entered) = (0_u64, 0_u64);
        for _ in 0..5_000 {
            let level = ["lends", "keeps", "exempt", "rejects"][usize::try_from(below(4)).unwrap()];
            if below(2) == 0 {
                let who = if level == "lends" { 'l' } else { 'k' };
                match plane.enter(level, below(20), 1 + below(5), who) {
                    Granted::Seats(width) => sitting.push((level, width)),
                    Granted::Waits(_) => waiting += 1,
                    Granted::Refused(_) => continue,
                }
                entered += 1;
            } else if !sitting.is_empty() {
                let at = usize::try_from(below(sitting.len() as u64)).unwrap();
                let (level, width) = sitting.swap_remove(at);
                answered += 1;
                let uid = bytes::Bytes::copy_from_slice(level.as_bytes());
                plane.seats.leave(&uid, width, |who, width| {
                    sitting.push((if who == 'l' { "lends" } else { "keeps" }, width));
                    waiting -= 1;
                });
            }
            let in_use: u64 = sitting.iter().map(|(_, width)| width).sum();
            let exempt: u64 =
                sitting.iter().filter(|(level, _)| *level == "exempt").map(|(_, width)| width).sum();
            assert_eq!((plane.seats.in_use(), plane.seats.waiting()), (in_use, waiting));
            assert!(in_use - exempt <= all.max(1), "{in_use} of {all}");
            assert!(waiting == 0 || in_use > 0, "somebody waits for nobody");
        }
        while let Some((level, width)) = sitting.pop() {
            answered += 1;
            let uid = bytes::Bytes::copy_from_slice(level.as_bytes());
            plane.seats.leave(&uid, width, |who, width| {
                sitting.push((if who == 'l' { "lends" } else { "keeps" }, width));
                waiting -= 1;
            });
        }
        assert_eq!((answered, waiting, plane.seats.in_use()), (entered, 0, 0), "{all}");
        assert!(plane.seats.is_forgotten());
    }
}
