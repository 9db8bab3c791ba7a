//! Whether an applied object fits its schema, as far as ownership needs it: known fields, maps and lists where they
//! belong, and one element of each identity. Everything else is judged later, with the merged object.

use std::collections::BTreeSet;
use std::fmt;

use polder_model::{SmolStr, Value};

use super::path::Step;
use super::place::{LeafKind, Place, Shape};
use crate::patch::GoText;
use crate::schema::go_text;

/// More problems than this are not named.
const PROBLEMS_MAX: usize = 64;
/// A value in a message is cut at this length.
const VALUE_LEN_MAX: usize = 1024;

/// Everything that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.path.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.path, self.text)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [problem] = self.0.as_slice() {
            return problem.fmt(f);
        }
        f.write_str("errors:")?;
        self.0.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// Checks an applied object.
pub(super) fn check(root: Place<'_>, object: &Value) -> Result<(), Problems> {
    let mut check = Check { path: Vec::new(), problems: Vec::new() };
    check.value(root, object);
    if check.problems.is_empty() { Ok(()) } else { Err(Problems(check.problems)) }
}

struct Check<'v> {
    /// Put into words only when there is something to say.
    path: Vec<Crumb<'v>>,
    problems: Vec<Problem>,
}

enum Crumb<'v> {
    Field(&'v str),
    Index(usize),
    /// A step to an element, as sets spell it.
    Element(SmolStr),
}

impl fmt::Display for Crumb<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crumb::Field(name) => Step::Field(name).fmt(f),
            Crumb::Index(at) => write!(f, "[{at}]"),
            Crumb::Element(text) => Step::parse(text).map_or(Ok(()), |step| step.fmt(f)),
        }
    }
}

impl<'v> Check<'v> {
    fn problem(&mut self, text: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            let path = self.path.iter().map(Crumb::to_string).collect();
            self.problems.push(Problem { path, text: text.into() });
        }
    }

    fn below(&mut self, crumb: Crumb<'v>, look: impl FnOnce(&mut Check<'v>)) {
        self.path.push(crumb);
        look(self);
        self.path.pop();
    }

    fn value(&mut self, here: Place<'_>, value: &'v Value) {
        match (here.shape(value), value) {
            (_, Value::Null) => {}
            (Shape::Map(_) | Shape::Leaf(LeafKind::Map), Value::Object(object)) => {
                for (name, value) in object.iter() {
                    let member = here.named(name).or_else(|| here.unnamed());
                    self.below(Crumb::Field(name), |check| match member {
                        Some(member) => check.value(member, value),
                        None => check.problem("field not declared in schema"),
                    });
                    if member.is_none() {
                        break;
                    }
                }
            }
            (Shape::Map(_) | Shape::Leaf(LeafKind::Map), other) => {
                self.problem(format!("expected map, got {}", pointed(other)));
            }
            (Shape::Leaf(LeafKind::List), Value::Array(elements)) => {
                for (at, element) in elements.iter().enumerate() {
                    self.below(Crumb::Index(at), |check| check.value(here.element(), element));
                }
            }
            (Shape::List(items), Value::Array(elements)) => {
                let mut seen: BTreeSet<SmolStr> = BTreeSet::new();
                for (at, element) in elements.iter().enumerate() {
                    let step = match items.step(element) {
                        Ok(step) => step,
                        Err(error) => return self.problem(format!("element {at}: {error}")),
                    };
                    if !seen.insert(step.clone()) {
                        self.problem(format!("duplicate entries for key {}", Crumb::Element(step.clone())));
                    }
                    self.below(Crumb::Element(step), |check| check.value(items.element, element));
                }
            }
            (Shape::List(_) | Shape::Leaf(LeafKind::List), other) => {
                self.problem(format!("expected list, got {}", pointed(other)));
            }
            (Shape::Leaf(kind), scalar) => self.scalar(kind, scalar),
        }
    }

    fn scalar(&mut self, kind: LeafKind, value: &Value) {
        match (kind, value) {
            (LeafKind::Number, Value::Int(_) | Value::Float(_))
            | (LeafKind::Text, Value::String(_))
            | (LeafKind::Boolean, Value::Bool(_)) => {}
            (LeafKind::Number, other) => {
                self.problem(format!("expected numeric (int or float), got {}", go_text::type_name(other)));
            }
            (LeafKind::Text, other) => {
                let shown = cut(go_syntax(other));
                self.problem(format!("expected string, got &value.valueUnstructured{{Value:{shown}}}"));
            }
            (LeafKind::Boolean, other) => self.problem(format!("expected boolean, got {}", pointed(other))),
            (_, Value::Object(_) | Value::Array(_)) => {
                self.problem(format!("expected any scalar, got {}", pointed(value)));
            }
            _ => {}
        }
    }
}

/// A value as Go prints a pointer to it.
fn pointed(value: &Value) -> String {
    format!("&{{{}}}", cut(GoText::value(value).to_string()))
}

fn cut(mut text: String) -> String {
    if text.len() > VALUE_LEN_MAX {
        text.truncate(text.floor_char_boundary(VALUE_LEN_MAX));
        text.push_str("...");
    }
    text
}

/// `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".into(),
        Value::String(text) => go_text::quoted(text),
        Value::Float(number) => go_text::float(*number),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(object) => {
            let members: Vec<String> = object
                .iter()
                .map(|(name, value)| format!("{}:{}", go_text::quoted(name), go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        scalar => scalar.to_string(),
    }
}
