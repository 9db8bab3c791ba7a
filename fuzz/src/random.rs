//! Numbers that look random and follow from a seed.

/// A small generator (splitmix, then xorshift): fast, and good enough to make inputs with.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of one input: seeds and numbers that differ by one give unrelated sequences.
    pub fn new(seed: u64, target: &str, number: u64) -> Random {
        let of_target = target.bytes().fold(seed, |hash, byte| mix(hash ^ u64::from(byte)));
        Random(mix(of_target ^ mix(number)) | 1)
    }

    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // The high half: the low bits of this generator are the weak ones.
        usize::try_from((self.number() >> 32) % (bound as u64)).unwrap_or_default()
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn byte(&mut self) -> u8 {
        self.number().to_be_bytes()[0]
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
