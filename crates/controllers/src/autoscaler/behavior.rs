//! How fast replicas may change: what was asked for and done lately, and what the autoscaler's rules make of it. Pure.
//!
//! Invariant: a history holds nothing that is older than the longest time anybody may look back, and a bounded number of
//! entries.

use polder_model::Value;

/// Without rules, a smaller number counts when nothing larger was asked for in this time.
const DOWN_WINDOW_SECONDS: i64 = 300;
/// The longest that a rule may look back.
const WINDOW_SECONDS_MAX: i64 = 3600;
/// Without rules, replicas at most double, or become four.
const UP_FACTOR: i64 = 2;
const UP_MIN: i64 = 4;
const HISTORY_LEN_MAX: usize = 512;

/// What one autoscaler asked for and did lately: numbers and when. Of what it asked for, the last time of each number is
/// kept: no rule asks for more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    pub asked: Vec<(i64, i64)>,
    pub added: Vec<(i64, i64)>,
    pub removed: Vec<(i64, i64)>,
}

impl History {
    /// The first thing that is known: as many as there are.
    pub(super) fn begin(&mut self, current: i64, now: i64) {
        if self.asked.is_empty() {
            self.asked.push((current, now));
        }
    }

    pub(super) fn note_scaled(&mut self, from: i64, to: i64, now: i64) {
        match to - from {
            more if more > 0 => push(&mut self.added, (more, now), now),
            less => push(&mut self.removed, (-less, now), now),
        }
    }

    /// How many were added in a time, less those that were removed.
    fn change_within(&self, seconds: i64, now: i64) -> i64 {
        let sum = |events: &[(i64, i64)]| -> i64 {
            let within = events.iter().filter(|(_, at)| *at > now - seconds);
            within.map(|(count, _)| count).sum()
        };
        sum(&self.added) - sum(&self.removed)
    }
}

fn push(entries: &mut Vec<(i64, i64)>, entry: (i64, i64), now: i64) {
    entries.retain(|(_, at)| *at >= now - WINDOW_SECONDS_MAX);
    if entries.len() >= HISTORY_LEN_MAX {
        entries.remove(0);
    }
    entries.push(entry);
}

/// What there is to decide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub current: i64,
    pub desired: i64,
    pub min: i64,
    pub max: i64,
}

/// What is decided, with the reasons and messages of the two conditions that tell of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub replicas: i64,
    pub able: (&'static str, &'static str),
    pub limited: bool,
    pub limit: (&'static str, &'static str),
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const HELD_DOWN: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const HELD_UP: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: (&str, &str) = ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) =
    ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");

/// Decides, and remembers what was asked for. `behavior` is that of the autoscaler, with its defaults.
pub(super) fn decide(history: &mut History, wanted: Wanted, behavior: Option<&Value>, now: i64) -> Decided {
    let (stable, held) = match behavior {
        Some(behavior) => stabilize(history, wanted, behavior, now),
        None => {
            let recent = history.asked.iter().filter(|(_, at)| *at >= now - DOWN_WINDOW_SECONDS);
            (recent.map(|(count, _)| *count).fold(wanted.desired, i64::max), HELD_DOWN)
        }
    };
    history.asked.retain(|(count, _)| *count != wanted.desired);
    push(&mut history.asked, (wanted.desired, now), now);
    let able = if stable == wanted.desired { READY } else { held };
    let wanted = Wanted { desired: stable, ..wanted };
    let (replicas, limit) = match behavior {
        Some(behavior) => limit_rate(history, wanted, behavior, now),
        None => limit_plain(wanted),
    };
    Decided { replicas, able, limited: replicas != stable, limit }
}

/// Holds on to what was asked for lately.
fn stabilize(
    history: &History,
    wanted: Wanted,
    behavior: &Value,
    now: i64,
) -> (i64, (&'static str, &'static str)) {
    let window = |direction: &str, default: i64| {
        behavior.i64_at(&[direction, "stabilizationWindowSeconds"]).unwrap_or(default)
    };
    let recent = |seconds: i64| {
        let recent = history.asked.iter().filter(move |(_, at)| *at > now - seconds);
        recent.map(|(count, _)| *count)
    };
    let lowest = recent(window("scaleUp", 0)).fold(wanted.desired, i64::min);
    let highest = recent(window("scaleDown", DOWN_WINDOW_SECONDS)).fold(wanted.desired, i64::max);
    let stable = wanted.current.max(lowest).min(highest);
    (stable, if wanted.desired >= wanted.current { HELD_UP } else { HELD_DOWN })
}

fn limit_plain(wanted: Wanted) -> (i64, (&'static str, &'static str)) {
    let fastest = (UP_FACTOR * wanted.current).max(UP_MIN);
    let (most, reason) = if wanted.max > fastest { (fastest, TOO_FAST_UP) } else { (wanted.max, TOO_MANY) };
    match wanted.desired {
        desired if desired < wanted.min => (wanted.min, TOO_FEW),
        desired if desired > most => (most, reason),
        desired => (desired, WITHIN),
    }
}

fn limit_rate(
    history: &History,
    wanted: Wanted,
    behavior: &Value,
    now: i64,
) -> (i64, (&'static str, &'static str)) {
    let Wanted { current, desired, min, max } = wanted;
    if desired > current {
        let fastest = rate_limit(history, current, behavior.get("scaleUp"), true, now).max(current);
        let (most, reason) = if max > fastest { (fastest, TOO_FAST_UP) } else { (max, TOO_MANY) };
        if desired > most {
            return (most, reason);
        }
    } else if desired < current {
        let fastest = rate_limit(history, current, behavior.get("scaleDown"), false, now).min(current);
        let (least, reason) = if min < fastest { (fastest, TOO_FAST_DOWN) } else { (min, TOO_FEW) };
        if desired < least {
            return (least, reason);
        }
    }
    (desired, WITHIN)
}

/// How far replicas may go in one direction, by all policies of it.
fn rate_limit(history: &History, current: i64, rules: Option<&Value>, up: bool, now: i64) -> i64 {
    let Some(rules) = rules else { return if up { i64::MAX } else { 0 } };
    let select = rules.str_at(&["selectPolicy"]).unwrap_or("Max");
    if select == "Disabled" {
        return current;
    }
    let limits = rules.array_at(&["policies"]).iter().map(|policy| {
        let number = |field| policy.i64_at(&[field]).unwrap_or_default();
        let began = current - history.change_within(number("periodSeconds"), now);
        let value = number("value");
        match (policy.str_at(&["type"]), up) {
            (Some("Percent"), true) => {
                began.saturating_add(began.saturating_mul(value).saturating_add(99).div_euclid(100))
            }
            (Some("Percent"), false) => began.saturating_mul(100 - value) / 100,
            (_, true) => began.saturating_add(value),
            (_, false) => began.saturating_sub(value),
        }
    });
    // The policy that lets most happen, unless the one that lets least happen is asked for.
    let highest = up == (select != "Min");
    let limit = if highest { limits.max() } else { limits.min() };
    limit.unwrap_or(if up { i64::MAX } else { 0 })
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn wanted(current: i64, desired: i64) -> Wanted {
        Wanted { current, desired, min: 1, max: 100 }
    }

    #[track_caller]
    fn check(history: &History, wanted: Wanted, behavior: Option<&Value>, expected: (i64, &str, &str)) {
        let decided = decide(&mut history.clone(), wanted, behavior, NOW);
        assert_eq!((decided.replicas, decided.able.0, decided.limit.0), expected);
    }

    fn asked(entries: &[(i64, i64)]) -> History {
        let asked = entries.iter().map(|(count, ago)| (*count, NOW - ago)).collect();
        History { asked, ..History::default() }
    }

    #[test]
    fn without_rules() {
        let none = History::default();
        check(&none, wanted(5, 7), None, (7, "ReadyForNewScale", "DesiredWithinRange"));
        check(&none, wanted(5, 50), None, (10, "ReadyForNewScale", "ScaleUpLimit"));
        check(&none, wanted(1, 50), None, (4, "ReadyForNewScale", "ScaleUpLimit"));
        check(&none, Wanted { max: 8, ..wanted(5, 50) }, None, (8, "ReadyForNewScale", "TooManyReplicas"));
        check(&none, Wanted { min: 3, ..wanted(5, 1) }, None, (3, "ReadyForNewScale", "TooFewReplicas"));
        check(&asked(&[(5, 200)]), wanted(5, 2), None, (5, "ScaleDownStabilized", "DesiredWithinRange"));
        check(&asked(&[(5, 301)]), wanted(5, 2), None, (2, "ReadyForNewScale", "DesiredWithinRange"));
    }

    #[test]
    fn windows() {
        let behavior = json!({
            "scaleUp": {"stabilizationWindowSeconds": 60, "selectPolicy": "Max", "policies": []},
            "scaleDown": {"stabilizationWindowSeconds": 120, "selectPolicy": "Max", "policies": []},
        });
        let behavior = Some(&behavior);
        check(&asked(&[(6, 30)]), wanted(5, 9), behavior, (6, "ScaleUpStabilized", "DesiredWithinRange"));
        check(&asked(&[(6, 90)]), wanted(5, 9), behavior, (9, "ReadyForNewScale", "DesiredWithinRange"));
        check(&asked(&[(4, 90)]), wanted(5, 2), behavior, (4, "ScaleDownStabilized", "DesiredWithinRange"));
        check(&asked(&[(4, 130)]), wanted(5, 2), behavior, (2, "ReadyForNewScale", "DesiredWithinRange"));
    }

    #[test]
    fn rates() {
        let rules = |select: &str| {
            let policies = json!([
                {"type": "Pods", "value": 4, "periodSeconds": 60},
                {"type": "Percent", "value": 10, "periodSeconds": 60},
            ]);
            let direction = json!({
                "stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": policies,
            });
            json!({"scaleUp": (direction.clone()), "scaleDown": direction})
        };
        let none = History::default();
        let (max, min, disabled) = (rules("Max"), rules("Min"), rules("Disabled"));
        check(&none, wanted(10, 50), Some(&max), (14, "ReadyForNewScale", "ScaleUpLimit"));
        check(&none, wanted(10, 50), Some(&min), (11, "ReadyForNewScale", "ScaleUpLimit"));
        check(&none, wanted(10, 50), Some(&disabled), (10, "ReadyForNewScale", "ScaleUpLimit"));
        check(&none, wanted(10, 1), Some(&max), (6, "ReadyForNewScale", "ScaleDownLimit"));
        check(&none, wanted(10, 1), Some(&min), (9, "ReadyForNewScale", "ScaleDownLimit"));
        let mut done = History::default();
        done.note_scaled(7, 10, NOW - 30);
        check(&done, wanted(10, 50), Some(&max), (11, "ReadyForNewScale", "ScaleUpLimit"));
        let mut done = History::default();
        done.note_scaled(7, 10, NOW - 90);
        check(&done, wanted(10, 50), Some(&max), (14, "ReadyForNewScale", "ScaleUpLimit"));
        let mut done = History::default();
        done.note_scaled(13, 10, NOW - 30);
        check(&done, wanted(10, 1), Some(&max), (9, "ReadyForNewScale", "ScaleDownLimit"));
        check(
            &none,
            Wanted { max: 12, ..wanted(10, 50) },
            Some(&max),
            (12, "ReadyForNewScale", "TooManyReplicas"),
        );
        check(
            &none,
            Wanted { min: 8, ..wanted(10, 1) },
            Some(&max),
            (8, "ReadyForNewScale", "TooFewReplicas"),
        );
    }

    #[test]
    fn histories_are_bounded() {
        let mut history = History::default();
        for now in 0..10_000 {
            decide(&mut history, wanted(1, 1 + now % 2), None, NOW + now);
        }
        assert_eq!(history.asked.len(), 2, "each number once");
        for now in 0..10_000 {
            decide(&mut history, wanted(1, now), None, NOW);
        }
        assert!(history.asked.len() <= HISTORY_LEN_MAX);
        history.begin(9, NOW);
        assert!(!history.asked.contains(&(9, NOW)), "it has begun");
    }
}
