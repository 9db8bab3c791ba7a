//! The syntax of cron schedules, with the texts that the parser everybody knows gives.

/// What is wrong with a schedule; `None` when it can be run.
pub(super) fn problem(schedule: &str) -> Option<String> {
    parse(schedule).err()
}

struct Bounds {
    min: i64,
    max: i64,
    names: &'static [&'static str],
    first_name: i64,
}

const FIELDS: [Bounds; 5] = [
    Bounds { min: 0, max: 59, names: &[], first_name: 0 },
    Bounds { min: 0, max: 23, names: &[], first_name: 0 },
    Bounds { min: 1, max: 31, names: &[], first_name: 0 },
    Bounds {
        min: 1,
        max: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
        first_name: 1,
    },
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"], first_name: 0 },
];

fn parse(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        let zone_start = schedule.find('=').map_or(0, |equals| equals + 1);
        let Some(space) = schedule.find(' ') else {
            return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".into());
        };
        let zone = schedule.get(zone_start..space).unwrap_or_default();
        if !is_time_zone(zone) {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = schedule[space..].trim();
    }
    if rest.starts_with('@') {
        return descriptor(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for expression in field.split(',').filter(|expression| !expression.is_empty()) {
            range(expression, bounds)?;
        }
    }
    Ok(())
}

fn descriptor(text: &str) -> Result<(), String> {
    const NAMED: [&str; 7] =
        ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];
    if NAMED.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) => {
            go_duration(duration).map_err(|error| format!("failed to parse duration {text}: {error}"))
        }
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let steps: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        ["*" | "?", ..] => (bounds.min, bounds.max),
        [one] => (number_or_name(one, bounds)?, number_or_name(one, bounds)?),
        [low, high] => (number_or_name(low, bounds)?, number_or_name(high, bounds)?),
        [low, ..] => {
            number_or_name(low, bounds)?;
            return Err(format!("too many hyphens: {expression}"));
        }
        [] => (bounds.min, bounds.max),
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.max;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {expression}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {expression}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    Ok(())
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<i64, String> {
    let lower = text.to_lowercase();
    for (name, value) in bounds.names.iter().zip(bounds.first_name..) {
        if *name == lower {
            return Ok(value);
        }
    }
    number(text)
}

fn number(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let fault = if plain { "value out of range" } else { "invalid syntax" };
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: {fault}")),
    }
}

/// Go's duration syntax: `1h30m`, `1.5s`.
fn go_duration(text: &str) -> Result<(), String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(());
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        if !digits.contains(|one: char| one.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return Err(invalid());
        }
        let unit_end = after.find(|one: char| one.is_ascii_digit() || one == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        match unit {
            "" => return Err(format!("time: missing unit in duration {text:?}")),
            "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h" => rest = after,
            _ => return Err(format!("time: unknown unit {unit:?} in duration {text:?}")),
        }
    }
    Ok(())
}

/// Whether the time zone database knows a name. Names are spelled as the database spells them.
pub(super) fn is_time_zone(name: &str) -> bool {
    name.is_empty() || name == "UTC" || name == "Local" || jiff::tz::TimeZone::get(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules() {
        let rows = [
            ("*/5 * * * *", ""),
            ("0 0 1,15 jan-mar MON-fri", ""),
            ("5/10 ? * * ?", ""),
            ("@hourly", ""),
            ("@every 1h30m", ""),
            ("TZ=UTC 0 0 * * *", ""),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", r#"failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax"#),
            ("@never", "unrecognized descriptor: @never"),
            ("@every 5", r#"failed to parse duration @every 5: time: missing unit in duration "5""#),
            ("@every 5x", r#"failed to parse duration @every 5x: time: unknown unit "x" in duration "5x""#),
            ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
            ("TZ=Nowhere/X * * * * *", "provided bad location Nowhere/X: unknown time zone Nowhere/X"),
        ];
        for (schedule, expected) in rows {
            assert_eq!(problem(schedule).unwrap_or_default(), expected, "{schedule}");
        }
    }
}
