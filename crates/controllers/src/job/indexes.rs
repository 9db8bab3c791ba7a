//! Sets of indexes as a status writes them: `0,2-5`. Pure.

use std::fmt;

/// Ranges in order that do not touch, each with its last index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(i64, i64)>);

impl Indexes {
    /// Reads a set; what is no range is left out, and so is what is not below a number.
    pub(super) fn parse(text: &str, completions: i64) -> Indexes {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<i64>().ok()?, last.parse::<i64>().ok()?.min(completions - 1));
            (first >= 0 && first <= last).then_some((first, last))
        };
        Indexes::of(text.split(',').filter_map(range).collect())
    }

    fn of(mut ranges: Vec<(i64, i64)>) -> Indexes {
        ranges.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= *end + 1 => *end = (*end).max(last),
                _ => joined.push((first, last)),
            }
        }
        Indexes(joined)
    }

    /// With more indexes.
    pub(super) fn with(&self, more: impl IntoIterator<Item = i64>) -> Indexes {
        let more = more.into_iter().map(|index| (index, index));
        Indexes::of(self.0.iter().copied().chain(more).collect())
    }

    pub(super) fn join(&self, other: &Indexes) -> Indexes {
        Indexes::of(self.0.iter().chain(&other.0).copied().collect())
    }

    pub(super) fn has(&self, index: i64) -> bool {
        let place = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(place).is_some_and(|(first, _)| *first <= index)
    }

    pub(super) fn len(&self) -> i64 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many are in both.
    pub(super) fn common_len(&self, other: &Indexes) -> i64 {
        let (mut common, mut left, mut right) = (0, 0, 0);
        while let (Some(one), Some(two)) = (self.0.get(left), other.0.get(right)) {
            common += (one.1.min(two.1) - one.0.max(two.0) + 1).max(0);
            if one.1 < two.1 { left += 1 } else { right += 1 }
        }
        common
    }

    /// The first of those below a number that are not in the set.
    pub(super) fn missing(&self, completions: i64, count: usize) -> Vec<i64> {
        let mut missing = Vec::new();
        let mut candidate = 0;
        for (first, last) in self.0.iter().copied().chain([(completions, completions)]) {
            while candidate < first.min(completions) && missing.len() < count {
                missing.push(candidate);
                candidate += 1;
            }
            candidate = candidate.max(last + 1);
        }
        missing
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            if place > 0 {
                out.write_str(",")?;
            }
            match last - first {
                0 => write!(out, "{first}")?,
                1 => write!(out, "{first},{last}")?,
                _ => write!(out, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written() {
        let check = |text: &str, completions, expected: &str, len| {
            let indexes = Indexes::parse(text, completions);
            assert_eq!((indexes.to_string().as_str(), indexes.len()), (expected, len), "{text}");
        };
        check("", 10, "", 0);
        check("1", 10, "1", 1);
        check("1,2", 10, "1,2", 2);
        check("1-3,5,7-9", 10, "1-3,5,7-9", 7);
        check("1-3,4", 10, "1-4", 4);
        check("8-20", 10, "8,9", 2);
        check("x,3,9-2,-1", 10, "3", 1);
        check("0-99999999999", 5, "0-4", 5);
    }

    #[test]
    fn sets_grow_and_are_compared() {
        let some = Indexes::parse("1,3-4", 10);
        assert_eq!(some.with([2, 7]).to_string(), "1-4,7");
        assert_eq!(some.join(&Indexes::parse("5-6", 10)).to_string(), "1,3-6");
        assert!(some.has(3) && !some.has(2) && !some.has(5));
        assert_eq!(some.common_len(&Indexes::parse("0-3", 10)), 2);
        assert_eq!(some.missing(7, 10), [0, 2, 5, 6]);
        assert_eq!(some.missing(7, 2), [0, 2]);
        assert_eq!(Indexes::default().missing(3, 9), [0, 1, 2]);
        assert_eq!(Indexes::parse("0-9", 10).missing(5, 9), [0_i64; 0]);
    }
}
