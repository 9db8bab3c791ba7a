//! Quantities: what was parsed prints as the same amount, and amounts are ordered and add up.
//!
//! The input is one quantity, or two with a space between them.

use std::cmp::Ordering;

use polder_model::quantity::Quantity;

pub const WORDS: &[&str] = &[
    "1", "0", "-", "+", ".", "e", "E", "Ki", "Mi", "Gi", "Ei", "k", "M", "G", "E", "P", "m", "u", "n", "e3", "E-9", "e-1000000", "e1000000",
    "e999999", "100", "1024", "0.5", "000", " ", "9223372036854775807", "170141183460469231731687303715884105727",
    "170141183460469231731687303715884105727.5e-9", "999",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (left, right) = text.split_once(' ').unwrap_or((text, "0"));
    let Ok(left) = Quantity::parse(left) else { return };
    check(&left);
    let Ok(right) = Quantity::parse(right) else { return };
    check(&right);
    assert_eq!(left.cmp(&right), right.cmp(&left).reverse());
    assert_eq!(left == right, left.cmp(&right) == Ordering::Equal);
    if left <= right {
        assert!(left.as_i64() <= right.as_i64() && left.as_milli() <= right.as_milli());
    }
    assert_eq!(left.plus(&right), right.plus(&left), "{left} and {right}");
    // The parts of a sum that saturates need not print as what can be parsed.
    let _ = left.plus(&right).to_string();
    let _ = left.minus(&right).to_string();
    crate::accepted();
}

fn check(quantity: &Quantity) {
    let printed = quantity.to_string();
    let again = Quantity::parse(&printed).unwrap_or_else(|error| panic!("cannot read {printed:?}: {error}"));
    assert_eq!(again, *quantity, "{printed:?} is the same amount");
    assert_eq!(again.to_string(), printed, "the canonical form is stable");
    assert!(quantity.minus(quantity).is_zero());
    let zero = Quantity::from_i64(0);
    assert_eq!(quantity.plus(&zero), *quantity);
    assert_eq!(quantity.is_negative(), *quantity < zero);
    assert_eq!(quantity.is_zero(), *quantity == zero);
}
