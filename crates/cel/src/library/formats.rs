//! Named formats: what is wrong with a text, in the API's own words.

use polder_model::names;

use super::opaque::{OpaqueValue, opaque_arg, text};
use super::urls;
use crate::cost::Cost;
use crate::meter::{Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::time;
use crate::value::Value;

/// A format: its name in expressions, its own name, the length of its pattern (for costs) and its check.
#[derive(Debug)]
pub struct NamedFormat {
    pub(super) name: &'static str,
    pub(super) regex_len: u64,
    check: fn(&str) -> Vec<String>,
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat { name: "dns1123Label", regex_len: 30, check: |text| owned(names::dns_label_problems(text)) },
    NamedFormat {
        name: "dns1123Subdomain",
        regex_len: 60,
        check: |text| owned(names::dns_subdomain_problems(text)),
    },
    NamedFormat {
        name: "dns1035Label",
        regex_len: 30,
        check: |text| owned(names::dns_1035_label_problems(text)),
    },
    NamedFormat { name: "qualifiedName", regex_len: 60, check: names::qualified_name_problems },
    NamedFormat {
        name: "dns1123LabelPrefix",
        regex_len: 30,
        check: |text| owned(names::dns_label_problems(&prefix(text))),
    },
    NamedFormat {
        name: "dns1123SubdomainPrefix",
        regex_len: 60,
        check: |text| owned(names::dns_subdomain_problems(&prefix(text))),
    },
    NamedFormat {
        name: "dns1035LabelPrefix",
        regex_len: 30,
        check: |text| owned(names::dns_1035_label_problems(&prefix(text))),
    },
    NamedFormat { name: "labelValue", regex_len: 40, check: |text| owned(names::label_value_problems(text)) },
    NamedFormat { name: "uri", regex_len: 1103, check: |text| urls::problem(text).into_iter().collect() },
    NamedFormat {
        name: "uuid",
        regex_len: 70,
        check: |text| unless(is_uuid(text), "does not match the UUID format"),
    },
    NamedFormat { name: "byte", regex_len: 84, check: |text| unless(is_base64(text), "invalid base64") },
    NamedFormat {
        name: "date",
        regex_len: 71,
        check: |text| unless(time::parse_date(text).is_some(), "invalid date"),
    },
    NamedFormat {
        name: "datetime",
        regex_len: 71,
        check: |text| unless(is_datetime(text), "invalid datetime"),
    },
];

pub(super) fn table() -> Vec<Overload> {
    vec![
        member(
            "format-validate",
            "format.validate(string) -> optional(list(string))",
            validate,
            Cost::Validate,
        ),
        global("format-named", "format.named(string) -> optional(format)", named, Cost::One),
        global("format.dns1123Label", "format.dns1123Label() -> format", |_, _| nth(0), Cost::One),
        global("format.dns1123Subdomain", "format.dns1123Subdomain() -> format", |_, _| nth(1), Cost::One),
        global("format.dns1035Label", "format.dns1035Label() -> format", |_, _| nth(2), Cost::One),
        global("format.qualifiedName", "format.qualifiedName() -> format", |_, _| nth(3), Cost::One),
        global(
            "format.dns1123LabelPrefix",
            "format.dns1123LabelPrefix() -> format",
            |_, _| nth(4),
            Cost::One,
        ),
        global(
            "format.dns1123SubdomainPrefix",
            "format.dns1123SubdomainPrefix() -> format",
            |_, _| nth(5),
            Cost::One,
        ),
        global(
            "format.dns1035LabelPrefix",
            "format.dns1035LabelPrefix() -> format",
            |_, _| nth(6),
            Cost::One,
        ),
        global("format.labelValue", "format.labelValue() -> format", |_, _| nth(7), Cost::One),
        global("format.uri", "format.uri() -> format", |_, _| nth(8), Cost::One),
        global("format.uuid", "format.uuid() -> format", |_, _| nth(9), Cost::One),
        global("format.byte", "format.byte() -> format", |_, _| nth(10), Cost::One),
        global("format.date", "format.date() -> format", |_, _| nth(11), Cost::One),
        global("format.datetime", "format.datetime() -> format", |_, _| nth(12), Cost::One),
    ]
}

fn owned(problems: impl Iterator<Item = &'static str>) -> Vec<String> {
    problems.map(Into::into).collect()
}

fn unless(good: bool, problem: &str) -> Vec<String> {
    if good { Vec::new() } else { vec![problem.into()] }
}

/// A prefix may end in a dash, because something follows.
fn prefix(text: &str) -> String {
    match text.strip_suffix('-').filter(|rest| !rest.is_empty()) {
        Some(rest) => {
            let mut rest = rest.to_string();
            rest.pop();
            rest.push('a');
            rest
        }
        None => text.into(),
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        match rest.get(..len) {
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => rest = &rest[len..],
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_base64(text: &str) -> bool {
    use base64::Engine as _;
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

fn is_datetime(text: &str) -> bool {
    text.len() > 4
        && !text.ends_with(|char: char| char.is_ascii_digit() && !text.contains(['z', 'Z', '+', '-']))
        && time::parse_loose_timestamp(text).is_some()
}

opaque_arg!(format, Format, &'static NamedFormat);

fn nth<'a>(at: usize) -> Outcome<'a> {
    Ok(Value::opaque(OpaqueValue::Format(&FORMATS[at])))
}

fn named<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let name = text(args, 0)?;
    Ok(match FORMATS.iter().find(|format| format.name == name) {
        Some(format) => Value::some(Value::opaque(OpaqueValue::Format(format))),
        None => Value::Optional(None),
    })
}

fn validate<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let (format, text) = (format(args, 0)?, text(args, 1)?);
    meter.work(text.len() as u64)?;
    let problems = (format.check)(text);
    if problems.is_empty() {
        return Ok(Value::Optional(None));
    }
    meter.allocate(problems.iter().map(String::len).sum())?;
    Ok(Value::some(Value::list(problems.into_iter().map(Value::text).collect())))
}
