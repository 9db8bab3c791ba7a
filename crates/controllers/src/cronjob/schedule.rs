//! Cron schedules: five fields or a descriptor, in a time zone; and the times they name. Pure.
//!
//! A time that the clock skips in spring has no run; one that it shows twice in autumn has two. Whether a schedule is
//! well-formed is checked when it is stored; one that is not has no times here.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

/// A schedule that names no time within so many years names none.
const YEARS_MAX: i16 = 5;

#[derive(Clone, Debug)]
pub(super) enum Schedule {
    Fields(Box<Fields>),
    /// So many seconds after the last time.
    Every(i64),
}

/// What each field allows, a bit for each value.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
    /// A field that allows everything does not count in choosing the day.
    any_day: bool,
    any_weekday: bool,
    zone: TimeZone,
}

impl Schedule {
    /// Reads a schedule. `zone` is used unless the schedule names its own.
    pub(super) fn parse(text: &str, zone: Option<&str>) -> Option<Schedule> {
        let mut zone = zone.map_or(Some(TimeZone::UTC), time_zone)?;
        let mut rest = text.trim();
        if let Some(named) = rest.strip_prefix("CRON_TZ=").or_else(|| rest.strip_prefix("TZ=")) {
            let (name, fields) = named.split_once(' ')?;
            zone = time_zone(name)?;
            rest = fields.trim();
        }
        if let Some(duration) = rest.strip_prefix("@every ") {
            return Some(Schedule::Every(seconds(duration.trim())?.max(1)));
        }
        let fields = match rest {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            fields => fields,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else { return None };
        let is_any = |field: &str| field.split(',').any(|one| one.starts_with(['*', '?']));
        Some(Schedule::Fields(Box::new(Fields {
            minute: bits(minute, 0, 59, &[])?,
            hour: bits(hour, 0, 23, &[])?,
            day: bits(day, 1, 31, &[])?,
            month: bits(month, 1, 12, MONTHS)?,
            weekday: bits(weekday, 0, 6, WEEKDAYS)?,
            any_day: is_any(day),
            any_weekday: is_any(weekday),
            zone,
        })))
    }

    /// The first time after another, in seconds since 1970.
    pub(super) fn next(&self, after: i64) -> Option<i64> {
        match self {
            Schedule::Every(seconds) => after.checked_add(*seconds),
            Schedule::Fields(fields) => fields.next(after),
        }
    }
}

impl Fields {
    fn next(&self, after: i64) -> Option<i64> {
        // The next full minute: zones differ by full minutes today, and schedules have no finer field.
        let mut time = after.checked_add(1)?;
        let civil =
            |time: i64| Some(Timestamp::from_second(time).ok()?.to_zoned(self.zone.clone()).datetime());
        let last_year = civil(time)?.year().checked_add(YEARS_MAX)?;
        loop {
            let now = civil(time)?;
            if now.year() > last_year {
                return None;
            }
            let next = if !has(self.month, i64::from(now.month())) {
                self.start_of(now.date().first_of_month().checked_add(1.month()).ok()?.at(0, 0, 0, 0))?
            } else if !self.is_day(&now) {
                self.start_of(now.date().tomorrow().ok()?.at(0, 0, 0, 0))?
            } else if !has(self.hour, i64::from(now.hour())) {
                time + 3600 - i64::from(now.minute()) * 60 - i64::from(now.second())
            } else if now.second() != 0 || !has(self.minute, i64::from(now.minute())) {
                time + 60 - i64::from(now.second())
            } else {
                return Some(time);
            };
            // A day that begins an hour late, or twice, must not hold this up.
            time = next.max(time + 1);
        }
    }

    fn start_of(&self, civil: DateTime) -> Option<i64> {
        Some(self.zone.to_timestamp(civil).ok()?.as_second())
    }

    /// With both kinds of days given, either will do.
    fn is_day(&self, now: &DateTime) -> bool {
        let day = has(self.day, i64::from(now.day()));
        let weekday = has(self.weekday, i64::from(now.weekday().to_sunday_zero_offset()));
        if self.any_day || self.any_weekday { day && weekday } else { day || weekday }
    }
}

const MONTHS: &[&str] =
    &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

fn has(bits: u64, value: i64) -> bool {
    u32::try_from(value).ok().and_then(|value| bits.checked_shr(value)).is_some_and(|bits| bits & 1 == 1)
}

/// The values a field allows.
fn bits(field: &str, min: i64, max: i64, names: &[&str]) -> Option<u64> {
    let value = |text: &str| {
        let named = names.iter().position(|name| !name.is_empty() && text.eq_ignore_ascii_case(name));
        named.and_then(|place| i64::try_from(place).ok()).or_else(|| text.parse::<i64>().ok())
    };
    let mut bits = 0;
    for part in field.split(',').filter(|part| !part.is_empty()) {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (first, last) = match range {
            "*" | "?" => (min, max),
            range => match range.split_once('-') {
                Some((first, last)) => (value(first)?, value(last)?),
                // With a step, one value is where it begins.
                None => (value(range)?, if step.is_some() { max } else { value(range)? }),
            },
        };
        let step = step.map_or(Some(1), |step| step.parse::<usize>().ok().filter(|step| *step > 0))?;
        if first < min || last > max || first > last {
            return None;
        }
        for value in (first..=last).step_by(step) {
            bits |= 1_u64 << value;
        }
    }
    Some(bits)
}

fn time_zone(name: &str) -> Option<TimeZone> {
    match name {
        "" | "UTC" | "Local" => Some(TimeZone::UTC),
        name => TimeZone::get(name).ok(),
    }
}

/// A duration as Go writes it, in whole seconds: `1h30m`.
fn seconds(text: &str) -> Option<i64> {
    let (mut total, mut rest) = (0.0_f64, text);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit_len =
            rest[digits..].find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len() - digits);
        let unit = match &rest[digits..digits + unit_len] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total += number * unit;
        rest = &rest[digits + unit_len..];
    }
    #[expect(clippy::cast_possible_truncation, reason = "checked to be in range")]
    (total < 1e15).then_some(total as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp;

    fn check_in(zone: Option<&str>, schedule: &str, after: &str, expected: &[&str]) {
        let schedule = Schedule::parse(schedule, zone).unwrap_or_else(|| panic!("{schedule} cannot be read"));
        let mut time = timestamp::seconds(after).unwrap();
        for expected in expected {
            time = schedule.next(time).unwrap();
            assert_eq!(timestamp::text(time), *expected);
        }
    }

    #[test]
    fn times() {
        let check =
            |schedule: &str, after: &str, expected: &[&str]| check_in(None, schedule, after, expected);
        check("*/15 * * * *", "2026-01-01T00:00:00Z", &["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]);
        check("*/1 * * * ?", "2026-01-01T00:00:01Z", &["2026-01-01T00:01:00Z"]);
        check(
            "0 9-17/4 * * mon-fri",
            "2026-01-02T17:00:00Z",
            &["2026-01-05T09:00:00Z", "2026-01-05T13:00:00Z"],
        );
        check("30 4 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T04:30:00Z"]);
        // Either kind of day will do when both are given.
        check(
            "0 0 13 * 5",
            "2026-03-01T00:00:00Z",
            &["2026-03-06T00:00:00Z", "2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z"],
        );
        check("0 0 1-31/2 * *", "2026-03-30T12:00:00Z", &["2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z"]);
        check("@hourly", "2026-12-31T23:00:00Z", &["2027-01-01T00:00:00Z"]);
        check("@weekly", "2026-01-01T00:00:00Z", &["2026-01-04T00:00:00Z"]);
        check("@yearly", "2026-01-01T00:00:00Z", &["2027-01-01T00:00:00Z"]);
        check("@every 1h30m", "2026-01-01T00:00:10Z", &["2026-01-01T01:30:10Z"]);
        check("5 0 * JAN Sun", "2026-02-01T00:00:00Z", &["2027-01-03T00:05:00Z"]);
    }

    #[test]
    fn zones() {
        check_in(Some("Asia/Tokyo"), "0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]);
        check_in(None, "TZ=Asia/Tokyo 0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]);
        check_in(Some("Etc/UTC"), "0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-01T09:00:00Z"]);
        // In spring 02:30 is skipped, in autumn it comes twice.
        check_in(Some("Europe/Berlin"), "30 2 * * *", "2026-03-28T02:00:00Z", &["2026-03-30T00:30:00Z"]);
        check_in(
            Some("Europe/Berlin"),
            "30 2 * * *",
            "2026-10-24T12:00:00Z",
            &["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"],
        );
        // Midnight itself may be skipped.
        check_in(Some("America/Santiago"), "0 1 * * *", "2026-09-06T01:00:00Z", &["2026-09-06T04:00:00Z"]);
        assert!(Schedule::parse("* * * * *", Some("Atlantis/Capital")).is_none());
    }

    #[test]
    fn what_is_no_schedule_has_no_times() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "x * * * *",
            "@never",
            "@every",
            "@every 5x",
        ] {
            assert!(Schedule::parse(text, None).is_none(), "{text}");
        }
        let never = Schedule::parse("0 0 30 2 *", None).unwrap();
        assert_eq!(never.next(1_800_000_000), None);
    }
}
