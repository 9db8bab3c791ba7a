//! Numbers that may be written as a share: `3` or `"25%"`.

use polder_model::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    Up,
    Down,
}

/// What a number or a share of a total comes to. Nothing when it is neither.
pub(crate) fn share(value: Option<&Value>, total: i64, round: Round) -> Option<i64> {
    match value? {
        Value::Int(number) => Some(*number),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let whole = percent.checked_mul(total)?;
            Some(match round {
                Round::Up => whole.checked_add(99)?.div_euclid(100),
                Round::Down => whole.div_euclid(100),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let check = |value: Value, total, round, expected: Option<i64>| {
            assert_eq!(share(Some(&value), total, round), expected, "{value} of {total}");
        };
        check(Value::from(3), 10, Round::Up, Some(3));
        check(Value::from("25%"), 10, Round::Up, Some(3));
        check(Value::from("25%"), 10, Round::Down, Some(2));
        check(Value::from("0%"), 10, Round::Up, Some(0));
        check(Value::from("100%"), 7, Round::Down, Some(7));
        check(Value::from("x"), 7, Round::Down, None);
        check(Value::from("9223372036854775807%"), 7, Round::Up, None);
        check(Value::Null, 7, Round::Up, None);
    }
}
