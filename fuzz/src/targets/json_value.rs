//! JSON bodies: the canonical form is stable, reports of repeated keys are bounded, and the quick reader of what was written
//! here reads what the other one reads.

use polder_model::{Value, value};

use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "{", "}", "[", "]", ",", ":", "\"", "\"a\":", "\"a\":1,", "{\"a\":", "[{", "true", "false", "null", "1", "-0", "1e5",
    "1E-400", "1e400", "0.1", "18446744073709551616", "9223372036854775807", "1000000000000000.5", "\\u0000", "\\ud83d",
    "\\ude00", "\\n", "\\/", "\\b", "\u{2028}", " ", "\u{feff}",
];

pub fn make(random: &mut Random) -> Vec<u8> {
    generate::json(&["a", "b", "metadata", "\u{1}", "é", "\"\\"], 5, random).to_vec()
}

pub fn run(data: &[u8]) {
    let parsed = value::parse(data);
    let (own, except) = (Value::parse_own(data), Value::parse_own_except(data, &["metadata", "a"]));
    let Ok(parsed) = parsed else {
        assert!(own.is_err(), "only one reader takes it");
        return;
    };
    let (own, mut without) = (own.expect("the other reader took it"), parsed.value.clone());
    assert_eq!(own.to_string(), parsed.value.to_string());
    without.remove_at(&["metadata", "a"]);
    assert_eq!(except.expect("the other reader took it").to_string(), without.to_string());
    check_canonical(&parsed.value);
    assert!(parsed.duplicates.len() <= 32, "{} duplicates", parsed.duplicates.len());
    assert!(parsed.duplicates.iter().all(|path| path.len() <= 128 * 300));
    assert_eq!(Value::parse(data).expect("it parsed before"), parsed.value);
    crate::accepted();
}

/// What is printed reads as the same document, which prints the same.
pub fn check_canonical(value: &Value) {
    let printed = value.to_vec();
    let again = Value::parse(&printed).unwrap_or_else(|error| panic!("cannot read {value} again: {error}"));
    assert_eq!(again.to_string(), value.to_string());
}
