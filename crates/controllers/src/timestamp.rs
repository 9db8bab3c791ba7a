//! Points in time as objects have them: RFC 3339 in UTC, to the second.

use jiff::Timestamp;

/// Seconds since 1970 as a text.
pub(crate) fn text(seconds: i64) -> String {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Seconds since 1970; `None` for what is no timestamp.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_second)
}
