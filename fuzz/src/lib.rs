//! Hostile inputs for every parser of outside input.
//!
//! A target is one function that takes any bytes, must not panic, and asserts what the parser promises beyond that:
//! that what it accepts can be printed and read again, that a walk ends, that a report is bounded. The runner feeds
//! targets with mutated seeds and with inputs built from the target's own grammar. There is no feedback from
//! coverage, so that it needs nothing but stable Rust; `README.md` says how to put libFuzzer in front of a target.
//!
//! Invariant: an input follows from target, seed and number alone, so that every failure can be had again.

pub mod campaign;
pub mod corpus;
pub mod generate;
pub mod mutate;
pub mod random;
pub mod targets;

use std::cell::Cell;

use random::Random;

/// No input is longer: hostile size is for the unit tests of the limits.
pub const INPUT_LEN_MAX: usize = 4096;

/// One parser, or several that stand behind one another.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    /// Panics when a promise is broken, and only then.
    pub run: fn(&[u8]),
    /// Words of the input's language; mutations put them in.
    pub words: &'static [&'static str],
    /// Builds an input that is likely to be accepted.
    pub make: Option<fn(&mut Random) -> Vec<u8>>,
}

/// Splits an input that has two parts: they are separated by a line `---`, as in the corpus files.
pub fn two_parts(data: &[u8]) -> (&[u8], &[u8]) {
    const LINE: &[u8] = b"\n---\n";
    match data.windows(LINE.len()).position(|window| window == LINE) {
        Some(at) => (&data[..at], &data[at + LINE.len()..]),
        None => (data, b""),
    }
}

thread_local! {
    static ACCEPTED: Cell<u64> = const { Cell::new(0) };
}

/// A target says that the parser took an input and all promises held: a target whose inputs are all refused proves
/// nothing, and the runner's report and the tests show it.
fn accepted() {
    ACCEPTED.set(ACCEPTED.get() + 1);
}

/// How many inputs were accepted on this thread since the last call.
pub fn take_accepted() -> u64 {
    ACCEPTED.replace(0)
}
