//! JSONPath in the dialect of kubectl and custom resource definitions: printer columns, selectable fields, scale.
//!
//! A path is what upstream writes between braces, `.status.conditions[?(@.type=="Ready")].status`, without template
//! text, `range` or literals outside of filters. Where upstream fails while it looks (an index past the end, values
//! that do not compare) nothing is found, which is what its tables show.

mod parse;

use std::cmp::Ordering;

use polder_model::{SmolStr, Value};

/// Longer paths are refused.
pub const PATH_LEN_MAX: usize = 4096;
/// Values looked at in one search; a path that needs more finds nothing.
const VISITS_MAX: usize = 200_000;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Text that is no path, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JsonPathError(String);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Member(SmolStr),
    /// All members of an object or elements of a list.
    Wildcard,
    /// The value and all below it that have something in them.
    Descend,
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Filter(Box<Filter>),
    /// Parses upstream, and fails as soon as it is looked at.
    Fails,
}

/// `[start:end:step]`, or `[start]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    start: Option<i64>,
    end: SliceEnd,
    step: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceEnd {
    At(i64),
    /// The end of the list: `[1:]`.
    Open,
    /// One past the start: `[1]`.
    AfterStart,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// `None`: the left side only has to be there.
    compare: Option<(Operator, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Unknown,
}

impl JsonPath {
    pub fn parse(text: &str) -> Result<JsonPath, JsonPathError> {
        if text.len() > PATH_LEN_MAX {
            return Err(JsonPathError(format!("path may not be more than {PATH_LEN_MAX} bytes")));
        }
        parse::steps(text).map(|steps| JsonPath { steps }).map_err(JsonPathError)
    }

    /// All values the path leads to, in document order.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut search = Search { visits: 0 };
        search.walk(vec![value], &self.steps).unwrap_or_default()
    }

    /// The names of the members the path goes through, if it does nothing else.
    pub fn simple_members(&self) -> Option<Vec<&str>> {
        let names = self.steps.iter().map(|step| match step {
            Step::Member(name) => Some(name.as_str()),
            _ => None,
        });
        names.collect()
    }
}

/// One search, and how much it has looked at. `None` means it failed.
struct Search {
    visits: usize,
}

impl Search {
    fn walk<'v>(&mut self, mut found: Vec<&'v Value>, steps: &[Step]) -> Option<Vec<&'v Value>> {
        for step in steps {
            found = self.take(found, step)?;
            self.visit(found.len() + 1)?;
        }
        Some(found)
    }

    fn visit(&mut self, values: usize) -> Option<()> {
        self.visits = self.visits.saturating_add(values);
        (self.visits <= VISITS_MAX).then_some(())
    }

    fn take<'v>(&mut self, values: Vec<&'v Value>, step: &Step) -> Option<Vec<&'v Value>> {
        let mut found = Vec::new();
        match step {
            Step::Member(name) => found.extend(values.into_iter().filter_map(|value| value.get(name))),
            Step::Wildcard => {
                for value in values {
                    children(value, &mut found);
                }
            }
            Step::Descend => {
                for value in values {
                    self.descend(value, &mut found)?;
                }
            }
            Step::Slice(slice) => {
                for value in values {
                    match value {
                        Value::Null => {}
                        Value::Array(items) => {
                            // An empty range ends the search of the other values too: upstream's habit.
                            let Some((range, step)) = slice.range(items.len())? else { break };
                            found.extend(items[range].iter().step_by(step));
                        }
                        _ => return None,
                    }
                }
            }
            Step::Union(paths) => {
                for path in paths {
                    found.extend(self.walk(values.clone(), path)?);
                    self.visit(values.len())?;
                }
            }
            Step::Filter(filter) => {
                for value in values {
                    let Value::Array(items) = value else { return None };
                    for item in items {
                        if self.passes(item, filter)? {
                            found.push(item);
                        }
                    }
                }
            }
            Step::Fails => return None,
        }
        Some(found)
    }

    fn descend<'v>(&mut self, value: &'v Value, found: &mut Vec<&'v Value>) -> Option<()> {
        self.visit(1)?;
        let mut below = Vec::new();
        children(value, &mut below);
        if !below.is_empty() || value.as_str().is_some_and(|text| !text.is_empty()) {
            found.push(value);
        }
        below.into_iter().try_for_each(|child| self.descend(child, found))
    }

    fn passes(&mut self, item: &Value, filter: &Filter) -> Option<bool> {
        self.visit(1)?;
        let Some((operator, right)) = &filter.compare else {
            return match &filter.left {
                Operand::Literal(_) => Some(true),
                Operand::Path(steps) => {
                    // Upstream counts a failure as being there: `[?(@.l[9])]` passes where `l` is a shorter list.
                    let found = self.walk(vec![item], steps);
                    self.visit(0)?;
                    Some(found.is_none_or(|found| !found.is_empty()))
                }
            };
        };
        let Some(left) = self.operand(item, &filter.left)? else { return Some(false) };
        let Some(right) = self.operand(item, right)? else { return Some(false) };
        let order = compare(left, right)?;
        Some(match operator {
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => order != Ordering::Equal,
            // Booleans are equal or not, nothing more.
            _ if matches!(left, Value::Bool(_)) => return None,
            Operator::Less => order == Ordering::Less,
            Operator::LessOrEqual => order != Ordering::Greater,
            Operator::Greater => order == Ordering::Greater,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::Unknown => return None,
        })
    }

    /// The one value of a side; a path may lead nowhere, but not to several.
    fn operand<'a>(&mut self, item: &'a Value, operand: &'a Operand) -> Option<Option<&'a Value>> {
        match operand {
            Operand::Literal(value) => Some(Some(value)),
            Operand::Path(steps) => match self.walk(vec![item], steps)?.as_slice() {
                [] => Some(None),
                [one] => Some(Some(one)),
                _ => None,
            },
        }
    }
}

fn children<'v>(value: &'v Value, found: &mut Vec<&'v Value>) {
    match value {
        Value::Object(object) => found.extend(object.values()),
        Value::Array(items) => found.extend(items),
        _ => {}
    }
}

/// Scalars of one type compare; an integer is no float.
fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Float(left), Value::Float(right)) => left.partial_cmp(right),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

impl Slice {
    /// The elements meant and the step between them. The outer `None` is a failure, the inner one an empty range.
    #[expect(clippy::option_option, reason = "a failure and nothing found are different answers")]
    fn range(self, len: usize) -> Option<Option<(std::ops::Range<usize>, usize)>> {
        let len = i64::try_from(len).ok()?;
        let from_end = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
        let start = self.start.unwrap_or(0);
        let end = match self.end {
            SliceEnd::Open => len,
            SliceEnd::At(end) => from_end(end),
            // One past -1 is the end of the list, not its start.
            SliceEnd::AfterStart => match start.saturating_add(1) {
                0 => len,
                end => from_end(end),
            },
        };
        let start = from_end(start);
        if start == end {
            return Some(None);
        }
        let step = self.step.unwrap_or(1);
        if start < 0 || start >= len || end > len || start > end || step <= 0 {
            return None;
        }
        let range = usize::try_from(start).ok()?..usize::try_from(end).ok()?;
        Some(Some((range, usize::try_from(step).ok()?)))
    }
}

#[cfg(test)]
mod tests;
