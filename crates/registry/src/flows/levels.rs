//! What a plane's priority levels say: how much of what may be under way each has, lends and borrows, and who waits.

use bytes::Bytes;
use polder_model::{SmolStr, Value};

const SHARES_DEFAULT: u64 = 30;
const QUEUES_DEFAULT: u64 = 64;
const HAND_DEFAULT: u64 = 8;
const QUEUE_LEN_DEFAULT: u64 = 50;
/// One request takes no more than this part of what its level has by its shares.
const WIDEST_PERCENT: u64 = 15;

/// A priority level.
#[derive(Debug)]
pub struct Level {
    /// UID, as headers show it.
    pub uid: Bytes,
    pub name: SmolStr,
    pub full: WhenFull,
    shares: u64,
    lendable_percent: u64,
    /// `None` for no limit.
    borrowing_percent: Option<u64>,
}

/// What becomes of requests for which there is no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// They go on all the same.
    Exempt,
    Reject,
    Queue {
        queues: u64,
        /// Among so many of the queues a flow takes the shortest.
        hand: u64,
        len_max: u64,
    },
}

/// How many seats a level has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// By its shares.
    pub nominal: u64,
    /// What it does not lend.
    pub own: u64,
    /// With what it may borrow.
    pub most: u64,
}

impl Extent {
    /// What one request may take.
    pub fn widest(&self) -> u64 {
        (self.nominal.saturating_mul(WIDEST_PERCENT) / 100).max(1)
    }
}

impl Level {
    pub(super) fn read(name: &SmolStr, level: &Value) -> Level {
        let is_exempt = level.str_at(&["spec", "type"]) == Some("Exempt");
        let kind = if is_exempt { "exempt" } else { "limited" };
        let number = |path: &[&str]| {
            let whole: Vec<&str> = ["spec", kind].iter().chain(path).copied().collect();
            level.i64_at(&whole).map(|number| u64::try_from(number).unwrap_or(0))
        };
        let queue = |field: &str, default| number(&["limitResponse", "queuing", field]).unwrap_or(default);
        let full = match level.str_at(&["spec", "limited", "limitResponse", "type"]) {
            _ if is_exempt => WhenFull::Exempt,
            Some("Queue") => WhenFull::Queue {
                queues: queue("queues", QUEUES_DEFAULT).max(1),
                hand: queue("handSize", HAND_DEFAULT).max(1),
                len_max: queue("queueLengthLimit", QUEUE_LEN_DEFAULT).max(1),
            },
            _ => WhenFull::Reject,
        };
        Level {
            uid: Bytes::copy_from_slice(level.str_at(&["metadata", "uid"]).unwrap_or_default().as_bytes()),
            name: name.clone(),
            full,
            shares: number(&["nominalConcurrencyShares"]).unwrap_or(if is_exempt {
                0
            } else {
                SHARES_DEFAULT
            }),
            lendable_percent: number(&["lendablePercent"]).unwrap_or(0).min(100),
            borrowing_percent: number(&["borrowingLimitPercent"]),
        }
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Level>() + self.name.len() + self.uid.len()
    }

    /// Its part of so many seats, when all levels together have so many shares.
    pub(super) fn extent(&self, seats: u64, shares_sum: u64) -> Extent {
        let nominal = seats.saturating_mul(self.shares).div_ceil(shares_sum.max(1));
        let lent = (nominal.saturating_mul(self.lendable_percent) + 50) / 100;
        let borrowed = |percent: u64| (nominal.saturating_mul(percent) + 50) / 100;
        let most = self.borrowing_percent.map_or(seats, |percent| nominal.saturating_add(borrowed(percent)));
        Extent { nominal, own: nominal - lent, most: most.clamp(nominal.min(seats), seats) }
    }

    pub(super) fn shares(&self) -> u64 {
        self.shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(spec: &str, (seats, sum): (u64, u64), expected: (u64, u64, u64), full: WhenFull) {
        let spec = Value::parse(spec.as_bytes()).unwrap();
        let mut level = Value::default();
        level.set_at(&["spec"], spec);
        let level = Level::read(&"x".into(), &level);
        let Extent { nominal, own, most } = level.extent(seats, sum);
        assert_eq!(((nominal, own, most), level.full), (expected, full));
    }

    #[test]
    fn levels_have_lend_and_borrow() {
        let usual = WhenFull::Queue { queues: 64, hand: 8, len_max: 50 };
        check(r#"{"type":"Exempt"}"#, (600, 245), (0, 0, 600), WhenFull::Exempt);
        let low = r#"{"type":"Limited","limited":{"nominalConcurrencyShares":100,"lendablePercent":90,
            "limitResponse":{"type":"Queue","queuing":{"queues":128,"handSize":6,"queueLengthLimit":50}}}}"#;
        check(low, (600, 245), (245, 24, 600), WhenFull::Queue { queues: 128, hand: 6, len_max: 50 });
        let strict =
            r#"{"type":"Limited","limited":{"borrowingLimitPercent":0,"limitResponse":{"type":"Queue"}}}"#;
        check(strict, (600, 245), (74, 74, 74), usual);
        let some =
            r#"{"type":"Limited","limited":{"borrowingLimitPercent":50,"limitResponse":{"type":"Reject"}}}"#;
        check(some, (600, 245), (74, 74, 111), WhenFull::Reject);
        // However few there are, nobody has more than all of them.
        check(some, (1, 245), (1, 1, 1), WhenFull::Reject);
        let negative = r#"{"type":"Limited","limited":{"nominalConcurrencyShares":-5,"lendablePercent":-1}}"#;
        check(negative, (600, 245), (0, 0, 600), WhenFull::Reject);
    }
}
