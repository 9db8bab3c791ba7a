//! Making an input a little wrong: flipped bytes, words put in, parts cut, doubled, repeated and swapped with others.

use crate::INPUT_LEN_MAX;
use crate::random::Random;

/// Values that sit on the edges of parsers.
const EDGES: [&[u8]; 18] = [
    b"\0",
    b"\xff",
    b"\x80",
    b"%",
    b"%2f",
    b"\\",
    b"\"",
    b"'",
    b"\n",
    b"\xc3\xa9",
    b"\xf0\x9f\x98\x80",
    b"-1",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"1e308",
    b"-0.0",
    b"null",
    b"[",
];

/// Changes `input` in one to eight places.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    for _ in 0..=random.below(8) {
        once(input, other, words, random);
        input.truncate(INPUT_LEN_MAX);
        if random.one_in(3) {
            break;
        }
    }
}

fn once(input: &mut Vec<u8>, other: &[u8], words: &[&str], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let part = part_of(input, random);
    match random.below(9) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.byte();
            }
        }
        2 => drop(input.drain(part)),
        3 => insert(input, at, random.pick::<&[u8]>(&EDGES)),
        4 | 5 if !words.is_empty() => {
            let word = random.pick(words).as_bytes();
            if random.one_in(2) {
                input.splice(part, word.iter().copied());
            } else {
                insert(input, at, word);
            }
        }
        6 => {
            let copy = input[part].to_vec();
            insert(input, at, &copy);
        }
        7 => {
            let from = part_of(other, random);
            input.splice(part, other[from].iter().copied());
        }
        _ => {
            // The same again and again: nesting, long lists, long names.
            let copy = input[part.start..part.end.min(part.start + 16)].to_vec();
            insert(input, at, &copy.repeat(1 + random.below(256)));
        }
    }
}

fn insert(input: &mut Vec<u8>, at: usize, what: &[u8]) {
    input.splice(at..at, what.iter().copied());
}

/// A range, more often short than long.
fn part_of(bytes: &[u8], random: &mut Random) -> std::ops::Range<usize> {
    let start = random.below(bytes.len() + 1);
    let len_max = if random.one_in(3) { bytes.len() } else { 12 };
    start..bytes.len().min(start + random.below(len_max + 1))
}
