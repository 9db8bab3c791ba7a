//! RFC 3339 as Go's `time.Parse` reads it, with Go's error texts.
//!
//! Times are normalized to UTC with seconds (or exactly six digits for the micro variety), because that is how
//! Kubernetes writes them back.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;

use super::go_text::quoted;

/// How fine a time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    Seconds,
    Micros,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Precision::Seconds => "2006-01-02T15:04:05Z07:00",
            Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Whether the text is a calendar date like `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    text.len() == 10 && Reader { text, rest: text, layout: "" }.date().is_ok()
}

/// Normalizes a time to UTC; the year 1 at midnight is Go's zero time and comes back as `None`.
pub(super) fn normalize(text: &str, precision: Precision) -> Result<Option<String>, String> {
    let mut reader = Reader { text, rest: text, layout: precision.layout() };
    let date = reader.date()?;
    reader.letter("T")?;
    let hour = reader.number(2, "15", 0..=23, "hour")?;
    reader.letter(":")?;
    let minute = reader.number(2, "04", 0..=59, "minute")?;
    reader.letter(":")?;
    let second = reader.number(2, "05", 0..=59, "second")?;
    let nanos = reader.fraction(precision)?;
    let offset_seconds = reader.zone()?;
    if !reader.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", quoted(text), quoted(reader.rest)));
    }
    let out_of_range = || format!("parsing time {}: day out of range", quoted(text));
    let narrow = |number: i32| i8::try_from(number).map_err(|_| out_of_range());
    let time =
        Time::new(narrow(hour)?, narrow(minute)?, narrow(second)?, nanos).map_err(|_| out_of_range())?;
    let offset = Offset::from_seconds(offset_seconds).map_err(|_| out_of_range())?;
    let utc = offset
        .to_timestamp(DateTime::from_parts(date, time))
        .map(|timestamp| Offset::UTC.to_datetime(timestamp))
        .map_err(|_| out_of_range())?;
    if utc == DateTime::constant(1, 1, 1, 0, 0, 0, 0) {
        return Ok(None);
    }
    let (date, time) = (utc.date(), utc.time());
    let mut out = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        date.year(),
        date.month(),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    if precision == Precision::Micros {
        out.push_str(&format!(".{:06}", time.subsec_nanosecond() / 1000));
    }
    out.push('Z');
    Ok(Some(out))
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Reader<'_> {
    fn unexpected(&self, element: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quoted(self.text),
            quoted(self.layout),
            quoted(self.rest),
            quoted(element)
        )
    }

    fn date(&mut self) -> Result<Date, String> {
        let year = self.number(4, "2006", 0..=9999, "year")?;
        self.letter("-")?;
        let month = self.number(2, "01", 1..=12, "month")?;
        self.letter("-")?;
        let day = self.number(2, "02", 1..=31, "day")?;
        let out_of_range = || format!("parsing time {}: day out of range", quoted(self.text));
        let narrow = |number: i32| i8::try_from(number).map_err(|_| out_of_range());
        let year = i16::try_from(year).map_err(|_| out_of_range())?;
        Date::new(year, narrow(month)?, narrow(day)?).map_err(|_| out_of_range())
    }

    fn letter(&mut self, letter: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(letter).ok_or_else(|| self.unexpected(letter))?;
        Ok(())
    }

    fn number(
        &mut self,
        digits: usize,
        element: &str,
        range: std::ops::RangeInclusive<i32>,
        name: &str,
    ) -> Result<i32, String> {
        let number = self
            .rest
            .get(..digits)
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| self.unexpected(element))?;
        if !range.contains(&number) {
            return Err(format!("parsing time {}: {name} out of range", quoted(self.text)));
        }
        self.rest = &self.rest[digits..];
        Ok(number)
    }

    /// Nanoseconds after the dot. Seconds may have any fraction, micros must have six digits.
    fn fraction(&mut self, precision: Precision) -> Result<i32, String> {
        let digits = self
            .rest
            .strip_prefix(['.', ','])
            .map_or("", |rest| &rest[..rest.find(|char: char| !char.is_ascii_digit()).unwrap_or(rest.len())]);
        match precision {
            Precision::Micros if digits.len() != 6 => return Err(self.unexpected(".000000")),
            _ if digits.is_empty() => return Ok(0),
            _ => {}
        }
        self.rest = &self.rest[1 + digits.len()..];
        let nanos: String = digits.chars().chain("000000000".chars()).take(9).collect();
        nanos.parse().map_err(|_| self.unexpected(".000000"))
    }

    fn zone(&mut self) -> Result<i32, String> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let unexpected = self.unexpected("Z07:00");
        let sign = match self.rest.as_bytes() {
            [b'+', ..] => 1,
            [b'-', ..] => -1,
            _ => return Err(unexpected),
        };
        let bytes = self.rest.as_bytes();
        let is_digits = |at: usize| bytes[at..at + 2].iter().all(u8::is_ascii_digit);
        if bytes.len() < 6 || !is_digits(1) || bytes[3] != b':' || !is_digits(4) {
            return Err(unexpected);
        }
        let pair = |at: usize| i32::from(bytes[at] - b'0') * 10 + i32::from(bytes[at + 1] - b'0');
        let (hours, minutes) = (pair(1), pair(4));
        if hours > 24 || minutes > 60 {
            return Err(format!("parsing time {}: time zone offset out of range", quoted(self.text)));
        }
        self.rest = &self.rest[6..];
        Ok(sign * (hours * 3600 + minutes * 60))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc() {
        let rows = [
            ("2024-05-06T07:08:09Z", "2024-05-06T07:08:09Z"),
            ("2024-05-06T07:08:09.987654321Z", "2024-05-06T07:08:09Z"),
            ("2024-05-06T00:08:09+02:30", "2024-05-05T21:38:09Z"),
            ("0001-01-01T00:00:00Z", "-"),
        ];
        for (text, expected) in rows {
            let normal = normalize(text, Precision::Seconds).unwrap();
            assert_eq!(normal.as_deref().unwrap_or("-"), expected);
        }
        let micros = normalize("2024-05-06T07:08:09.123456-01:00", Precision::Micros).unwrap();
        assert_eq!(micros.unwrap(), "2024-05-06T08:08:09.123456Z");
    }

    #[test]
    fn errors_read_like_go() {
        let rows = [
            ("foo", r#"parsing time "foo" as "2006-01-02T15:04:05Z07:00": cannot parse "foo" as "2006""#),
            (
                "2024-05-06",
                r#"parsing time "2024-05-06" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            ("2024-13-06T00:00:00Z", r#"parsing time "2024-13-06T00:00:00Z": month out of range"#),
            ("2023-02-29T00:00:00Z", r#"parsing time "2023-02-29T00:00:00Z": day out of range"#),
            ("2024-05-06T00:00:00Zé", r#"parsing time "2024-05-06T00:00:00Zé": extra text: "é""#),
        ];
        for (text, expected) in rows {
            assert_eq!(normalize(text, Precision::Seconds).unwrap_err(), expected);
        }
        for text in ["2024-05-06T07:08:09Z", "2024-05-06T07:08:09.1Z", "", "20é4"] {
            assert!(normalize(text, Precision::Micros).is_err(), "{text}");
        }
    }
}
