//! A deployment that changes its size in the middle of a rollout: every set grows or shrinks by its share. Pure.

use std::cmp::Reverse;

use super::annotations::{MAX, noted};
use super::set::Set;

/// What the shares depend on.
pub(super) struct Sizes {
    pub(super) desired: i64,
    pub(super) surge_max: i64,
    /// How many pods there were when the status was last told.
    pub(super) pods_before: i64,
}

/// The new sizes of some sets that have pods, by their place in the list.
pub(super) fn shares(sets: &[&Set], sizes: &Sizes) -> Vec<i64> {
    let allowed = if sizes.desired > 0 { sizes.desired + sizes.surge_max } else { 0 };
    let total: i64 = sets.iter().map(|set| set.size()).sum();
    let change = allowed - total;
    let mut shares: Vec<i64> = sets.iter().map(|set| set.size()).collect();
    if change == 0 || sets.is_empty() {
        return shares;
    }
    // Large sets first. Of equal ones the newest grow first, and the oldest shrink first.
    let mut order: Vec<usize> = (0..sets.len()).collect();
    order.sort_by_key(|number| sets[*number].age_key());
    if change > 0 {
        order.reverse();
    }
    order.sort_by_key(|number| Reverse(sets[*number].size()));
    let mut given = 0;
    for number in &order {
        let left = change - given;
        let share = share(sets[*number], sizes);
        let share = if change > 0 { share.min(left) } else { share.max(left) };
        shares[*number] += share;
        given += share;
    }
    // What rounding left over goes to the largest.
    let largest = order[0];
    shares[largest] = (shares[largest] + change - given).max(0);
    shares
}

/// By how much a set should grow, or shrink when negative.
fn share(set: &Set, sizes: &Sizes) -> i64 {
    if sizes.desired == 0 {
        return -set.size();
    }
    let before = noted(set, MAX).filter(|max| *max > 0).unwrap_or(sizes.pods_before);
    if before <= 0 {
        return 0;
    }
    let twice = set.size().saturating_mul(sizes.desired + sizes.surge_max).saturating_mul(2);
    // Rounded to the nearest.
    (twice + before).div_euclid(2 * before) - set.size()
}
