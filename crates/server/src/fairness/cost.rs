//! What requests are expected to cost: what the last ones like them did. Only lists, and watches that begin with state, differ
//! much from one to the other; everything else costs one seat.

use hashbrown::HashMap;

/// A list that sends so many bytes costs one seat.
const SEAT_BYTES: u64 = 100_000;
/// Kinds of lists remembered of one plane.
const KNOWN_LEN_MAX: usize = 256;

/// What is known about a list before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Lists with the same key send about the same.
    pub(crate) key: u64,
    /// It sends no more than this, as far as anybody can tell.
    pub(crate) bytes_max: u64,
}

/// What lists of one plane sent lately.
#[derive(Debug, Default)]
pub(crate) struct Costs(HashMap<u64, u64>);

impl Costs {
    /// What is not known is taken for the most it could be: the first time it waits longer, not others.
    pub(crate) fn seats(&self, cost: Cost) -> u64 {
        let bytes = self.0.get(&cost.key).copied().unwrap_or(cost.bytes_max);
        bytes.div_ceil(SEAT_BYTES).max(1)
    }

    /// A list that selects little costs about as much as one that sends everything, so the larger counts for a while.
    pub(crate) fn learn(&mut self, cost: Cost, bytes: u64) {
        if self.0.len() >= KNOWN_LEN_MAX && !self.0.contains_key(&cost.key) {
            self.0.clear();
        }
        let known = self.0.entry(cost.key).or_default();
        *known = bytes.max(*known - *known / 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_cost_what_they_did() {
        let mut costs = Costs::default();
        let cost = |key| Cost { key, bytes_max: 5_000_000 };
        assert_eq!(costs.seats(cost(1)), 50);
        costs.learn(cost(1), 10);
        assert_eq!((costs.seats(cost(1)), costs.seats(cost(2))), (1, 50));
        costs.learn(cost(1), 800_001);
        assert_eq!(costs.seats(cost(1)), 9);
        costs.learn(cost(1), 10);
        assert_eq!(costs.seats(cost(1)), 8);
        (0..2 * KNOWN_LEN_MAX as u64).for_each(|key| costs.learn(cost(key), 1));
        assert!(costs.0.len() <= KNOWN_LEN_MAX);
    }
}
