//! Durations as Go writes them, `1h15m30.5s`, with Go's complaints about those that are none.

use std::time::Duration;

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration {0}")]
    Invalid(String),
    #[error("time: missing unit in duration {0}")]
    NoUnit(String),
    #[error("time: unknown unit {unit} in duration {text}")]
    Unit { unit: String, text: String },
}

/// Reads a duration; `None` for one below zero. Parts of a nanosecond are dropped.
pub fn parse_duration(text: &str) -> Result<Option<Duration>, DurationError> {
    let invalid = || DurationError::Invalid(quote(text));
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Some(Duration::ZERO));
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos = 0u64;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|char: char| char == '.' || char.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let scale: u64 = match unit {
            "" => return Err(DurationError::NoUnit(quote(text))),
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(DurationError::Unit { unit: quote(unit), text: quote(text) }),
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part = whole.checked_mul(scale).and_then(|part| part.checked_add(part_of(fraction, scale)));
        nanos = part.and_then(|part| nanos.checked_add(part)).ok_or_else(invalid)?;
        if nanos > 1 << 63 {
            return Err(invalid());
        }
        rest = after;
    }
    if nanos == 1 << 63 && !negative {
        return Err(invalid());
    }
    Ok((!negative || nanos == 0).then_some(Duration::from_nanos(nanos)))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()))
}

/// The digits behind a point, of a unit; as imprecise as Go is.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "part of a unit, so between nothing and an hour"
)]
fn part_of(fraction: &str, scale: u64) -> u64 {
    let (mut value, mut power) = (0u64, 1f64);
    for digit in fraction.bytes() {
        // More digits than this do not count.
        if value > (1 << 63) / 10 - 1 {
            break;
        }
        value = value * 10 + u64::from(digit - b'0');
        power *= 10.0;
    }
    (value as f64 * (scale as f64 / power)) as u64
}

/// Quoted as Go's `time` quotes: what is not plain ASCII is escaped byte by byte.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars().take(256) {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            ' '..='~' => out.push(char),
            _ => {
                let mut buffer = [0; 4];
                for byte in char.encode_utf8(&mut buffer).bytes() {
                    out.push_str(&format!("\\x{byte:02x}"));
                }
            }
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_go() {
        let rows: [(&str, Result<Option<u64>, &str>); 25] = [
            ("0", Ok(Some(0))),
            ("0s", Ok(Some(0))),
            ("-0s", Ok(Some(0))),
            ("+5s", Ok(Some(5_000_000_000))),
            ("1h15m30.918273645s", Ok(Some(4_530_918_273_645))),
            ("1.5h", Ok(Some(5_400_000_000_000))),
            (".5s", Ok(Some(500_000_000))),
            ("5.s", Ok(Some(5_000_000_000))),
            ("10us", Ok(Some(10_000))),
            ("10\u{b5}s", Ok(Some(10_000))),
            ("0.3333333333333333333h", Ok(Some(1_200_000_000_000))),
            ("9223372036854775807ns", Ok(Some(9_223_372_036_854_775_807))),
            ("-1s", Ok(None)),
            ("-9223372036854775808ns", Ok(None)),
            ("", Err("time: invalid duration \"\"")),
            ("x", Err("time: invalid duration \"x\"")),
            (".", Err("time: invalid duration \".\"")),
            (".s", Err("time: invalid duration \".s\"")),
            ("+-1s", Err("time: invalid duration \"+-1s\"")),
            ("10", Err("time: missing unit in duration \"10\"")),
            ("1s2", Err("time: missing unit in duration \"1s2\"")),
            ("1d", Err("time: unknown unit \"d\" in duration \"1d\"")),
            (
                "1 s\"\n\u{e9}",
                Err("time: unknown unit \" s\\\"\\x0a\\xc3\\xa9\" in duration \"1 s\\\"\\x0a\\xc3\\xa9\""),
            ),
            ("9223372036854775808ns", Err("time: invalid duration \"9223372036854775808ns\"")),
            ("99999999999999999999s", Err("time: invalid duration \"99999999999999999999s\"")),
        ];
        for (text, expected) in rows {
            let found = parse_duration(text)
                .map(|found| found.map(|found| u64::try_from(found.as_nanos()).unwrap_or(u64::MAX)));
            let found = found.map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_string), "{text:?}");
        }
    }
}
