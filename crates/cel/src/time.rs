//! Times and durations as Go reads and writes them.
//!
//! A timestamp remembers the offset it was written with, because it is printed with it; everything else looks at UTC.
//! Years go from 1 to 9999.

use std::cmp::Ordering;

/// Seconds of 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z.
pub(crate) const SECONDS_MIN: i64 = -62_135_596_800;
pub(crate) const SECONDS_MAX: i64 = 253_402_300_799;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
const DAY: i64 = 86_400;

#[derive(Clone, Copy, Debug)]
pub struct Timestamp {
    seconds: i64,
    nanos: u32,
    /// Seconds east of UTC, for printing.
    offset: i32,
}

/// A moment taken apart. Months and days count from 1, weekdays from Sunday.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Civil {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub day_of_year: i64,
    pub weekday: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
}

impl Timestamp {
    pub fn new(seconds: i64, nanos: u32) -> Option<Timestamp> {
        let in_range = (SECONDS_MIN..=SECONDS_MAX).contains(&seconds) && i128::from(nanos) < NANOS_PER_SECOND;
        in_range.then_some(Timestamp { seconds, nanos, offset: 0 })
    }

    pub fn seconds(self) -> i64 {
        self.seconds
    }

    pub fn nanos(self) -> u32 {
        self.nanos
    }

    /// Go's zero time.
    pub(crate) fn is_zero(self) -> bool {
        self.seconds == SECONDS_MIN && self.nanos == 0
    }

    fn total(self) -> i128 {
        i128::from(self.seconds) * NANOS_PER_SECOND + i128::from(self.nanos)
    }

    pub(crate) fn plus(self, duration: i64) -> Option<Timestamp> {
        let total = self.total() + i128::from(duration);
        let seconds = i64::try_from(total.div_euclid(NANOS_PER_SECOND)).ok()?;
        let nanos = u32::try_from(total.rem_euclid(NANOS_PER_SECOND)).ok()?;
        Timestamp::new(seconds, nanos).map(|timestamp| Timestamp { offset: self.offset, ..timestamp })
    }

    pub(crate) fn minus(self, other: Timestamp) -> Option<i64> {
        i64::try_from(self.total() - other.total()).ok()
    }

    /// Taken apart at an offset in seconds.
    pub(crate) fn civil(self, offset: i64) -> Civil {
        let local = self.seconds + offset;
        let days = local.div_euclid(DAY);
        let second = local.rem_euclid(DAY);
        let (year, month, day) = date_of(days);
        Civil {
            year,
            month,
            day,
            day_of_year: days - days_of(year, 1, 1),
            weekday: (days + 4).rem_euclid(7),
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
        }
    }
}

impl PartialEq for Timestamp {
    fn eq(&self, other: &Timestamp) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Timestamp {}

impl Ord for Timestamp {
    fn cmp(&self, other: &Timestamp) -> Ordering {
        (self.seconds, self.nanos).cmp(&(other.seconds, other.nanos))
    }
}

impl PartialOrd for Timestamp {
    fn partial_cmp(&self, other: &Timestamp) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// RFC 3339 with as many digits of the fraction as there are.
impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.civil(self.offset.into());
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
            at.year, at.month, at.day, at.hour, at.minute, at.second
        )?;
        if self.nanos > 0 {
            write!(f, ".{}", format!("{:09}", self.nanos).trim_end_matches('0'))?;
        }
        match self.offset {
            0 => f.write_str("Z"),
            offset => {
                let minutes = offset.abs() / 60;
                write!(f, "{}{:02}:{:02}", if offset < 0 { '-' } else { '+' }, minutes / 60, minutes % 60)
            }
        }
    }
}

/// Days since 1970-01-01, by the usual arithmetic on years that begin in March.
fn days_of(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = (i64::from(month) + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn date_of(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, u32::try_from(month).unwrap_or(1), u32::try_from(day).unwrap_or(1))
}

/// Reads from the front of a text.
struct Reader<'t>(&'t str);

impl Reader<'_> {
    fn number(&mut self, len: usize, max: i64) -> Option<i64> {
        let digits = self.0.get(..len).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        let number: i64 = digits.parse().ok()?;
        self.0 = &self.0[len..];
        (number <= max).then_some(number)
    }

    fn mark(&mut self, marks: &[char]) -> Option<char> {
        let found = self.0.chars().next().filter(|char| marks.contains(char))?;
        self.0 = &self.0[found.len_utf8()..];
        Some(found)
    }

    fn date(&mut self) -> Option<i64> {
        let year = self.number(4, 9999)?;
        self.mark(&['-'])?;
        let month = self.number(2, 12)?;
        self.mark(&['-'])?;
        let day = self.number(2, 31)?;
        let (month, day) = (u32::try_from(month).ok()?, u32::try_from(day).ok()?);
        let days = days_of(year, month.max(1), day.max(1));
        (date_of(days) == (year, month, day)).then_some(days)
    }
}

/// RFC 3339, as strictly as `time.Parse` reads it.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    parse(text, false)
}

/// RFC 3339 as Kubernetes reads values of format `date-time`: letters of any case, and the zone may be missing.
pub(crate) fn parse_loose_timestamp(text: &str) -> Option<Timestamp> {
    parse(text, true)
}

fn parse(text: &str, loose: bool) -> Option<Timestamp> {
    let mut reader = Reader(text);
    let days = reader.date()?;
    reader.mark(if loose { &['T', 't'] } else { &['T'] })?;
    let hour = reader.number(2, 23)?;
    reader.mark(&[':'])?;
    let minute = reader.number(2, 59)?;
    reader.mark(&[':'])?;
    let second = reader.number(2, 59)?;
    let mut nanos = 0;
    if reader.mark(&['.', ',']).is_some() {
        let len = reader.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = reader.0.split_at(len);
        let padded: String = digits.chars().chain("000000000".chars()).take(9).collect();
        nanos = padded.parse().ok().filter(|_| len > 0)?;
        reader.0 = rest;
    }
    let offset = match reader.mark(if loose { &['Z', 'z', '+', '-'] } else { &['Z', '+', '-'] }) {
        None if loose && reader.0.is_empty() => 0,
        None => return None,
        Some('Z' | 'z') => 0,
        Some(sign) => {
            let hours = reader.number(2, 24)?;
            reader.mark(&[':'])?;
            let seconds = hours * 3600 + reader.number(2, 60)? * 60;
            if sign == '-' { -seconds } else { seconds }
        }
    };
    if !reader.0.is_empty() {
        return None;
    }
    let seconds = days * DAY + hour * 3600 + minute * 60 + second - offset;
    let timestamp = Timestamp::new(seconds, nanos)?;
    Some(Timestamp { offset: i32::try_from(offset).ok()?, ..timestamp })
}

/// A calendar date at midnight.
pub(crate) fn parse_date(text: &str) -> Option<Timestamp> {
    let mut reader = Reader(text);
    let days = reader.date()?;
    if reader.0.is_empty() { Timestamp::new(days * DAY, 0) } else { None }
}

/// A Go duration in nanoseconds: `1h30m`, `-1.5s`, `0`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole_len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, mut after) = rest.split_at(whole_len);
        let mut fraction = "";
        if let Some(behind) = after.strip_prefix('.') {
            let len = behind.bytes().take_while(u8::is_ascii_digit).count();
            (fraction, after) = behind.split_at(len);
        }
        if whole.is_empty() && fraction.is_empty() || whole.len() > 19 {
            return None;
        }
        let unit_len = after.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(after.len());
        let unit: i128 = match &after[..unit_len] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let digits: String = fraction.chars().take(15).collect();
        let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
        let part = if digits.is_empty() { 0 } else { digits.parse::<i128>().ok()? * unit / scale };
        total += whole.checked_mul(unit)? + part;
        if total > -i128::from(i64::MIN) {
            return None;
        }
        rest = &after[unit_len..];
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// A Go duration, or numbers with spelled-out units (`22 seconds`): values of format `duration`.
pub(crate) fn parse_loose_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    const UNITS: [(&[&str], i64); 8] = [
        (&["nano", "ns"], 1),
        (&["micro", "us", "µs"], 1_000),
        (&["milli", "ms"], 1_000_000),
        (&["sec", "s"], 1_000_000_000),
        (&["min", "m"], 60_000_000_000),
        (&["hour", "hr", "h"], 3_600_000_000_000),
        (&["day", "d"], 86_400_000_000_000),
        (&["week", "wk", "w"], 604_800_000_000_000),
    ];
    let mut total = 0_i64;
    let mut found = false;
    let mut rest = text.trim();
    while let Some(start) = rest.find(|char: char| char.is_ascii_digit()) {
        rest = &rest[start..];
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: i64 = rest[..len].parse().ok()?;
        rest = rest[len..].trim_start();
        let letters =
            rest.find(|char: char| !char.is_ascii_alphabetic() && char != 'µ').unwrap_or(rest.len());
        let unit = rest[..letters].to_lowercase();
        rest = &rest[letters..];
        let fits = |names: &[&str]| {
            names.iter().any(|name| unit == *name || (name.len() > 2 && unit.starts_with(name)))
        };
        if let Some((_, nanos)) = UNITS.iter().find(|(names, _)| fits(names)) {
            total = total.checked_add(number.checked_mul(*nanos)?)?;
            found = true;
        }
    }
    found.then_some(total)
}

/// Seconds with the shortest fraction: `5400s`, `1.5s`.
#[expect(clippy::cast_precision_loss, reason = "as Go prints seconds: through a float")]
pub(crate) fn show_duration(nanos: i64) -> String {
    let seconds = (nanos / 1_000_000_000) as f64 + (nanos % 1_000_000_000) as f64 / 1e9;
    format!("{seconds}s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_read_and_print() {
        let rows = [
            ("2009-02-13T23:31:30Z", Some((1_234_567_890, "2009-02-13T23:31:30Z"))),
            ("2009-02-13T23:31:30.5+02:00", Some((1_234_560_690, "2009-02-13T23:31:30.5+02:00"))),
            ("1970-01-01T00:00:00-00:01", Some((60, "1970-01-01T00:00:00-00:01"))),
            ("0001-01-01T00:00:00Z", Some((SECONDS_MIN, "0001-01-01T00:00:00Z"))),
            ("9999-12-31T23:59:59.999999999Z", Some((SECONDS_MAX, "9999-12-31T23:59:59.999999999Z"))),
            ("2024-02-29T00:00:00Z", Some((1_709_164_800, "2024-02-29T00:00:00Z"))),
            ("2023-02-29T00:00:00Z", None),
            ("2023-00-01T00:00:00Z", None),
            ("2023-01-01t00:00:00Z", None),
            ("2023-01-01T00:00:00", None),
            ("9999-12-31T23:59:59-01:00", None),
            ("", None),
            ("é", None),
        ];
        for (text, expected) in rows {
            let found = parse_timestamp(text).map(|at| (at.seconds(), at.to_string()));
            assert_eq!(found, expected.map(|(seconds, shown)| (seconds, shown.to_string())), "{text}");
        }
    }

    #[test]
    fn durations_read_and_print() {
        let rows = [
            ("1h30m", Some("5400s")),
            ("-1.5s", Some("-1.5s")),
            ("0", Some("0s")),
            ("1ms", Some("0.001s")),
            (".5s", Some("0.5s")),
            ("5", None),
            ("", None),
            ("-", None),
            ("1x", None),
            ("99999999999999999h", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_duration(text).map(show_duration).as_deref(), expected, "{text}");
        }
        assert_eq!(parse_loose_duration("2 weeks"), Some(1_209_600_000_000_000));
        assert_eq!(parse_loose_duration("22 seconds"), Some(22_000_000_000));
    }
}
