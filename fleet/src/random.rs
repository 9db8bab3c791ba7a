//! Numbers that a seed decides, and the one hash that everybody in a fleet must agree on.

/// A good mixer of 64 bits (the finalizer of splitmix64): every bit of the result depends on every bit given.
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The hash of a name. It decides where planes live, so it may never change: a test has its values.
pub fn stable_hash(text: &[u8]) -> u64 {
    let folded = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(folded)
}

/// The same numbers for the same seed, on every machine.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One of `0..end`; zero if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.bits()) * u128::from(end)) >> 64).unwrap_or_default()
    }

    /// True this often in a million.
    pub fn chance(&mut self, in_a_million: u64) -> bool {
        self.below(1_000_000) < in_a_million
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        let index = self.below(from.len() as u64);
        from.get(usize::try_from(index).ok()?)
    }

    /// One of `0..end` by Zipf's law: rank r comes about 1/r as often as the first. Whole numbers only (a power of two
    /// first, then a place within it), so that it is the same everywhere.
    pub fn zipf(&mut self, end: u64) -> u64 {
        let powers = u64::from(64 - end.max(1).leading_zeros());
        loop {
            let low = 1_u64 << self.below(powers);
            let rank = low + self.below(low);
            if rank <= end {
                return rank - 1;
            }
        }
    }
}

/// `POLDER_SEED`, or a number nobody has chosen.
pub fn seed_from_environment() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let given = std::env::var("POLDER_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| std::hash::RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_a_name_never_changes() {
        let check = |name: &str, hash: u64| assert_eq!(stable_hash(name.as_bytes()), hash, "{name}");
        check("", 0xf52a_15e9_a9b5_e89b);
        check("acme", 0x130a_7622_2d44_27ef);
        check("tenant-1", 0x82b9_4b9e_8abe_94cd);
    }

    #[test]
    fn ranks_come_by_zipfs_law() {
        let mut random = Random::new(1);
        let mut found = vec![0_u64; 1000];
        for _ in 0..200_000 {
            found[usize::try_from(random.zipf(1000)).unwrap()] += 1;
        }
        let first: u64 = found[..10].iter().sum();
        let last: u64 = found[500..].iter().sum();
        assert!(found[0] > 20 * found[100], "{} {}", found[0], found[100]);
        assert!(first > 3 * last && last > 0, "{first} {last}");
    }
}
