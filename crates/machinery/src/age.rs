//! How long ago, for people: the ages in tables.

/// Shown where there is no time to count from.
pub const UNKNOWN: &str = "<unknown>";
/// Shown for what is no time, and for a time in the future.
pub const INVALID: &str = "<invalid>";

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Two or three significant figures. One second of clock skew counts as now.
pub fn human_duration(seconds: i64) -> String {
    let pair = |unit: i64, name: &str, rest_unit: i64, rest_name: &str| {
        let rest = seconds % unit / rest_unit;
        let whole = seconds / unit;
        if rest == 0 { format!("{whole}{name}") } else { format!("{whole}{name}{rest}{rest_name}") }
    };
    match seconds {
        ..-1 => INVALID.into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => pair(HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => pair(DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => pair(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// The age of something, if it is known when it began.
pub fn human_age(seconds: Option<i64>) -> String {
    seconds.map_or_else(|| UNKNOWN.into(), human_duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_like_upstream() {
        let rows = [
            (-100, "<invalid>"),
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (1, "1s"),
            (59, "59s"),
            (60, "60s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (125, "2m5s"),
            (185, "3m5s"),
            (599, "9m59s"),
            (600, "10m"),
            (601, "10m"),
            (659, "10m"),
            (660, "11m"),
            (3600, "60m"),
            (10799, "179m"),
            (10800, "3h"),
            (10860, "3h1m"),
            (12600, "3h30m"),
            (19800, "5h30m"),
            (28799, "7h59m"),
            (28800, "8h"),
            (28860, "8h"),
            (172799, "47h"),
            (172800, "2d"),
            (176400, "2d1h"),
            (190800, "2d5h"),
            (604800, "7d"),
            (691199, "7d23h"),
            (691200, "8d"),
            (777600, "9d"),
            (31535999, "364d"),
            (31536000, "365d"),
            (63071999, "729d"),
            (63072000, "2y"),
            (63158399, "2y"),
            (63158400, "2y1d"),
            (63936000, "2y10d"),
            (94608000, "3y"),
            (252287999, "7y364d"),
            (252288000, "8y"),
            (252374400, "8y"),
            (3153600000, "100y"),
        ];
        for (seconds, text) in rows {
            assert_eq!(human_duration(seconds), text, "{seconds}");
        }
        assert_eq!(human_age(None), "<unknown>");
        assert_eq!(human_duration(i64::MIN), "<invalid>");
        assert_eq!(human_duration(i64::MAX), "292471208677y");
    }
}
