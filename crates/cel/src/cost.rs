//! What calls cost: estimated from the sizes of arguments, and counted when a call was made.
//!
//! The numbers and formulas are facts of the API: which rules a custom resource definition may have depends on them.
//! `Min` and `Max` of an estimate never overflow.

use crate::value::Value;

pub(crate) const TEXT: f64 = 0.1;
pub(crate) const REGEX: f64 = 0.25;
pub(crate) const LIST_NEW: u64 = 10;
pub(crate) const MAP_NEW: u64 = 30;
pub(crate) const STRUCT_NEW: u64 = 40;
/// An authorization check: two fit into one expression.
const CHECK: u64 = 350_000;
/// The longest pattern behind a named format, for estimates.
const FORMAT_REGEX_LEN: f64 = 128.0;

/// The formula for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cost {
    /// Everything that takes no time worth counting.
    One,
    /// Looking for something, which costs nothing where there is nothing.
    Found,
    Check,
    /// Parses a selector: the second argument.
    Selector,
    /// Looks at every element of the first argument.
    Elements,
    /// Reads the first argument and makes something of its size.
    Scan,
    /// Reads the first argument.
    Parse,
    ParseTwice,
    Replace,
    Split,
    Join,
    Find,
    Validate,
    ContainsIp {
        parse: bool,
    },
    ContainsCidr {
        parse: bool,
    },
    Prefix,
    ToBytes,
    ToText,
    Quote,
    Format,
    InList,
    Compare,
    Matches,
    Contains,
    AddText,
    AddList,
    Slice,
    Range,
    Reverse,
    Flatten,
    Distinct,
    /// By its own elements, texts or not.
    Sort {
        text: bool,
    },
    SortBy {
        text: bool,
    },
    /// Each element of one list against each of another, so many times.
    Sets(u32),
}

/// A range of sizes or costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    pub(crate) const ZERO: Range = Range::fixed(0);
    pub(crate) const ONE: Range = Range::fixed(1);
    pub(crate) const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub(crate) const fn fixed(number: u64) -> Range {
        Range { min: number, max: number }
    }

    pub(crate) fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(crate) fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(crate) fn scaled(self, factor: f64) -> Range {
        Range { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    pub(crate) fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Rounded up, and at most all there is.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "floats as upstream uses them; a cast of a float saturates"
)]
fn scale(number: u64, factor: f64) -> u64 {
    (number as f64 * factor).ceil() as u64
}

/// What a call makes, as far as an estimate can tell.
pub(crate) struct Estimate {
    pub cost: Range,
    pub result: Option<Range>,
}

/// What the estimator knows about an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    /// As far as expression and schema tell.
    pub size: Range,
    /// The size of one element, where the argument is a list.
    pub element: Option<Range>,
    /// The elements are strings or bytes.
    pub of_texts: bool,
    pub literal_int: Option<i64>,
}

impl Cost {
    /// The cost of a call on such arguments, without that of the arguments themselves.
    pub(crate) fn estimate(self, args: &[Arg]) -> Estimate {
        let one = Estimate { cost: Range::ONE, result: None };
        let cost = |cost: Range| Estimate { cost, result: None };
        let size = |at: usize| args.get(at).map_or(Range::UNKNOWN, |arg| arg.size);
        let literal = |at: usize, default: u64| {
            let number = args.get(at).and_then(|arg| arg.literal_int);
            number.map_or(default, |number| u64::try_from(number).unwrap_or(0))
        };
        match self {
            Cost::One | Cost::Found => one,
            Cost::Check => cost(Range::fixed(CHECK)),
            Cost::Selector => {
                let length = size(1);
                let requirements = length.scaled(0.5).scaled(50.0);
                cost(Range::fixed(LIST_NEW).plus(length.scaled(TEXT)).plus(requirements))
            }
            Cost::Elements => match args.first() {
                Some(Arg { element: Some(element), of_texts, size, .. }) => {
                    let texts = if *of_texts { element.scaled(TEXT) } else { Range::ZERO };
                    cost(size.times(Range::ONE.plus(texts)))
                }
                _ => cost(size(0).scaled(TEXT)),
            },
            Cost::Scan => Estimate { cost: size(0).scaled(TEXT), result: Some(size(0)) },
            Cost::Parse => cost(size(0).scaled(TEXT)),
            Cost::ParseTwice => cost(size(0).scaled(2.0 * TEXT)),
            Cost::Replace => {
                let result = replaced(size(0), size(1), size(2));
                Estimate { cost: size(0).scaled(2.0 * TEXT), result: Some(result) }
            }
            Cost::Split => {
                let max = match args.get(2).and_then(|arg| arg.literal_int) {
                    #[expect(clippy::cast_sign_loss, reason = "upstream casts: a negative count means all")]
                    Some(count) => count as u64,
                    None => size(0).max,
                };
                Estimate { cost: size(0).scaled(2.0 * TEXT), result: Some(Range { min: 0, max }) }
            }
            Cost::Join => {
                let list = size(0);
                let element = args.first().and_then(|arg| arg.element);
                let mut result = element.map_or(Range::ZERO, |element| list.times(element));
                if args.len() > 1 {
                    let gaps = Range { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
                    result = result.plus(size(1).times(gaps));
                }
                Estimate { cost: result.scaled(TEXT), result: Some(result) }
            }
            Cost::Find => {
                let text = size(0).plus(Range::ONE).scaled(TEXT);
                let result = Range { min: 0, max: size(0).max };
                Estimate { cost: text.times(size(1).scaled(REGEX)), result: Some(result) }
            }
            Cost::Validate => cost(size(1).scaled(TEXT).scaled(FORMAT_REGEX_LEN * REGEX)),
            Cost::ContainsIp { parse } => {
                let address = Range { min: 4, max: 16 };
                let compare = address.plus(address).scaled(TEXT);
                cost(if parse { compare.plus(size(1).scaled(TEXT)) } else { compare })
            }
            Cost::ContainsCidr { parse } => {
                let address = Range { min: 4, max: 16 };
                let compare = address.plus(address).scaled(TEXT).plus(address.scaled(TEXT)).plus(Range::ONE);
                cost(if parse { compare.plus(size(1).scaled(TEXT)) } else { compare })
            }
            Cost::Prefix => cost(size(1).scaled(TEXT)),
            Cost::ToBytes => {
                let result = Range { min: size(0).min, max: size(0).max.saturating_mul(4) };
                Estimate { cost: size(0).scaled(TEXT), result: Some(result) }
            }
            Cost::ToText => {
                let result = Range { min: size(0).min / 4, max: size(0).max };
                Estimate { cost: size(0).scaled(TEXT), result: Some(result) }
            }
            Cost::Quote => {
                let max = size(0).max.saturating_mul(2).saturating_add(2);
                let result = Range { min: size(0).min.saturating_add(2), max };
                Estimate { cost: size(0).scaled(TEXT), result: Some(result) }
            }
            Cost::Format => cost(size(0).scaled(TEXT)),
            Cost::InList => cost(size(1)),
            Cost::Compare => {
                let max = size(0).max.min(size(1).max);
                cost(Range { min: u64::from(max > 0), max }.scaled(TEXT))
            }
            Cost::Matches => {
                let text = size(0).plus(Range::ONE).scaled(TEXT);
                cost(text.times(size(1).scaled(REGEX)))
            }
            Cost::Contains => cost(size(0).scaled(TEXT).times(size(1).scaled(TEXT))),
            Cost::AddText => {
                let result = size(0).plus(size(1));
                Estimate { cost: result.scaled(TEXT), result: Some(result) }
            }
            Cost::AddList => Estimate { cost: Range::ONE, result: Some(size(0).plus(size(1))) },
            Cost::Slice => {
                let (start, end) = (literal(1, 0), literal(2, size(0).max));
                new_list(1.0, Range::fixed(end.wrapping_sub(start)))
            }
            Cost::Range => new_list(1.0, Range::fixed(literal(0, u64::MAX))),
            Cost::Reverse => new_list(1.0, size(0)),
            #[expect(clippy::cast_precision_loss, reason = "a factor")]
            Cost::Flatten => {
                new_list(if args.len() > 1 { literal(1, u64::MAX) as f64 } else { 1.0 }, size(0))
            }
            Cost::Distinct => new_list(2.0, size(0).times(size(0))),
            Cost::Sort { text } => new_list(sort_factor(text), size(0).times(size(0))),
            Cost::SortBy { text } => new_list(sort_factor(text), size(1).times(size(1))),
            Cost::Sets(times) => cost(size(0).times(size(1)).scaled(f64::from(times)).plus(Range::ONE)),
        }
    }

    /// The cost of a call that was made.
    pub(crate) fn actual(self, args: &[Value<'_>], result: &Value<'_>) -> u64 {
        let size = |at: usize| args.get(at).map_or(1, Value::size);
        let text = |at: usize| scale(size(at), TEXT);
        let new_list = |factor: f64, size: u64| floor(size, factor).saturating_add(1 + LIST_NEW);
        match self {
            Cost::One => 1,
            Cost::Found => u64::from(!matches!(result, Value::Optional(None))),
            Cost::Check => CHECK,
            Cost::Selector => {
                LIST_NEW.saturating_add(text(1)).saturating_add(scale(scale(size(1), 0.5), 50.0))
            }
            Cost::Elements => args.first().map_or(1, traversal),
            Cost::Scan
            | Cost::Parse
            | Cost::Prefix
            | Cost::ToBytes
            | Cost::ToText
            | Cost::Quote
            | Cost::Format => text(0),
            Cost::ParseTwice | Cost::Replace | Cost::Split => scale(size(0), 2.0 * TEXT),
            Cost::Join => scale(result.size(), 2.0 * TEXT),
            Cost::Find | Cost::Matches => {
                scale(size(0).saturating_add(1), TEXT).saturating_mul(scale(size(1), REGEX))
            }
            Cost::Validate => {
                let regex = match args.first() {
                    Some(Value::Opaque(opaque)) => opaque.format_regex_len(),
                    _ => 1,
                };
                scale(size(1).saturating_add(1), TEXT).saturating_mul(scale(regex, REGEX))
            }
            Cost::ContainsIp { parse } => {
                scale(size(0).saturating_mul(2), TEXT) + if parse { text(1) } else { 0 }
            }
            Cost::ContainsCidr { parse } => {
                scale(size(0).saturating_mul(2), TEXT) + text(0) + 1 + if parse { text(1) } else { 0 }
            }
            Cost::InList => size(1),
            Cost::Compare => match args.first() {
                Some(Value::Opaque(_)) => 1,
                _ => scale(size(0).min(size(1)), TEXT),
            },
            Cost::Contains => text(0).saturating_mul(text(1)),
            Cost::AddText => scale(size(0).saturating_add(size(1)), TEXT),
            Cost::AddList => 1,
            Cost::Slice | Cost::Range | Cost::Reverse => new_list(1.0, result.size()),
            #[expect(clippy::cast_precision_loss, reason = "a factor")]
            Cost::Flatten => {
                let depth = match args.get(1) {
                    Some(Value::Int(depth)) => (*depth).max(0) as f64,
                    _ => 1.0,
                };
                new_list(depth, size(0))
            }
            Cost::Distinct | Cost::Sort { .. } => {
                new_list(self_compare(args.first()), size(0).saturating_mul(size(0)))
            }
            Cost::SortBy { .. } => new_list(self_compare(args.get(1)), size(1).saturating_mul(size(1))),
            Cost::Sets(times) => floor(size(0).saturating_mul(size(1)), f64::from(times)).saturating_add(1),
        }
    }
}

fn sort_factor(text: bool) -> f64 {
    if text { 2.0 + TEXT } else { 2.0 }
}

fn self_compare(list: Option<&Value<'_>>) -> f64 {
    let first = match list {
        Some(Value::List(list)) => list.get(0).and_then(Result::ok),
        _ => None,
    };
    sort_factor(matches!(first, Some(Value::String(_) | Value::Bytes(_))))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "floats as upstream uses them; a cast of a float saturates"
)]
fn floor(number: u64, factor: f64) -> u64 {
    (number as f64 * factor) as u64
}

fn new_list(factor: f64, size: Range) -> Estimate {
    Estimate { cost: size.scaled(factor).plus(Range::fixed(1 + LIST_NEW)), result: Some(size) }
}

/// How large a text can be after replacing.
fn replaced(text: Range, old: Range, new: Range) -> Range {
    let (mut count, mut kept) = (Range::ZERO, Range::ZERO);
    if old.min == 0 {
        // Nothing is found between all characters and around them.
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = text.max.div_ceil(old.min);
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = text.min.div_ceil(old.max);
    }
    count.times(new).plus(kept)
}

/// Everything below a value.
fn traversal(value: &Value<'_>) -> u64 {
    match value {
        Value::String(text) => floor(text.len() as u64, TEXT),
        Value::Bytes(bytes) => floor(bytes.len() as u64, TEXT),
        Value::List(list) => {
            list.iter().flatten().fold(0, |sum: u64, item| sum.saturating_add(traversal(&item)))
        }
        Value::Map(map) => map.keys().iter().fold(0, |sum: u64, key| {
            let value = map.find(key).ok().flatten();
            sum.saturating_add(traversal(key)).saturating_add(value.as_ref().map_or(1, traversal))
        }),
        _ => 1,
    }
}
