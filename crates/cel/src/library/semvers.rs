//! Semantic versions.

use std::cmp::Ordering;

use super::opaque::{OpaqueValue, opaque_arg, text};
use super::quantities::order;
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("string_to_semver", "semver(string) -> semver", to_semver, Cost::Parse),
        global("string_bool_to_semver", "semver(string, bool) -> semver", to_semver, Cost::Parse),
        global("is_semver_string", "isSemver(string) -> bool", is_semver, Cost::Parse),
        global("is_semver_string_bool", "isSemver(string, bool) -> bool", is_semver, Cost::Parse),
        member("semver_is_greater_than", "semver.isGreaterThan(semver) -> bool", is_greater, Cost::One),
        member("semver_is_less_than", "semver.isLessThan(semver) -> bool", is_less, Cost::One),
        member("semver_compare_to", "semver.compareTo(semver) -> int", compare_to, Cost::One),
        member("semver_major", "semver.major() -> int", major, Cost::One),
        member("semver_minor", "semver.minor() -> int", minor, Cost::One),
        member("semver_patch", "semver.patch() -> int", patch, Cost::One),
    ]
}

#[derive(Clone, Debug)]
pub struct Version {
    numbers: [u64; 3],
    /// The parts of the pre-release; numbers sort before words.
    pre: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Word(String),
}

impl Version {
    fn parse(text: &str) -> Result<Version, String> {
        if text.is_empty() {
            return Err("Version string empty".into());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".into());
        };
        let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
        let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
        let numbers = [number("major", major)?, number("minor", minor)?, number("patch", patch)?];
        let pre = pre.map_or(Ok(Vec::new()), |pre| pre.split('.').map(part).collect::<Result<_, _>>())?;
        for piece in build.into_iter().flat_map(|build| build.split('.')) {
            if piece.is_empty() {
                return Err("Build meta data is empty".into());
            }
            if !is_word(piece) {
                return Err(format!("Invalid character(s) found in build meta data {piece:?}"));
            }
        }
        Ok(Version { numbers, pre })
    }

    /// A looser reading: `v1.02` is `1.2.0`.
    fn parse_loose(text: &str) -> Result<Version, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text
            .splitn(3, '.')
            .map(|part| match part.trim_start_matches('0') {
                _ if part.len() < 2 => part.into(),
                rest if !rest.starts_with(|char: char| char.is_ascii_digit()) => format!("0{rest}"),
                rest => rest.into(),
            })
            .collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".into());
            }
            parts.resize(3, "0".into());
        }
        Version::parse(&parts.join("."))
    }

    pub(super) fn order(&self, other: &Version) -> Ordering {
        // A version without pre-release is the later one.
        let released = self.pre.is_empty().cmp(&other.pre.is_empty());
        self.numbers.cmp(&other.numbers).then(released).then_with(|| self.pre.cmp(&other.pre))
    }
}

fn number(name: &str, text: &str) -> Result<u64, String> {
    let title = || format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]);
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{} number must not contain leading zeroes {text:?}", title()));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {text:?}: value out of range"))
}

fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn part(text: &str) -> Result<Part, String> {
    if text.is_empty() {
        return Err("Prerelease is empty".into());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.len() > 1 && text.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {text:?}"));
        }
        return text.parse().map(Part::Number).map_err(|_| format!("Invalid PreRelease number {text:?}"));
    }
    match is_word(text) {
        true => Ok(Part::Word(text.into())),
        false => Err(format!("Invalid character(s) found in prerelease {text:?}")),
    }
}

opaque_arg!(version, Semver, Version);

fn parse(args: &[Value<'_>]) -> Result<Result<Version, String>, Fault> {
    let text = text(args, 0)?;
    Ok(match args.get(1) {
        Some(Value::Bool(true)) => Version::parse_loose(text),
        None | Some(Value::Bool(false)) => Version::parse(text),
        Some(_) => return Err(Fault::no_overload()),
    })
}

fn to_semver<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    meter.allocate(text(args, 0)?.len().saturating_mul(8))?;
    parse(args)?.map(|version| Value::opaque(OpaqueValue::Semver(version))).map_err(Fault::error)
}

fn is_semver<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    meter.allocate(text(args, 0)?.len().saturating_mul(8))?;
    Ok(Value::Bool(parse(args)?.is_ok()))
}

fn is_greater<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(version(args, 0)?.order(version(args, 1)?).is_gt()))
}

fn is_less<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(version(args, 0)?.order(version(args, 1)?).is_lt()))
}

fn compare_to<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(order(version(args, 0)?.order(version(args, 1)?)))
}

fn nth<'a>(args: &[Value<'a>], at: usize) -> Outcome<'a> {
    Ok(Value::Int(i64::try_from(version(args, 0)?.numbers[at]).unwrap_or(i64::MAX)))
}

fn major<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    nth(args, 0)
}

fn minor<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    nth(args, 1)
}

fn patch<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    nth(args, 2)
}
