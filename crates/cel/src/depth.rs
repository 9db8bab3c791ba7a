//! How deep a value is, for hosts that keep values and give them to other expressions.
//!
//! One expression nests what it makes no deeper than itself. Expressions that build on each other have no such bound,
//! and whatever walks a value (comparing it, letting it go) recurses as deep as the value is.

use crate::library::opaque::OpaqueValue;
use crate::list::List;
use crate::map::Map;
use crate::value::Value;

/// What an expression makes, and some that build on each other.
const DEPTH_MAX: usize = 1000;
/// Parts that are looked at; one that is shared counts each time.
const PARTS_MAX: usize = 1 << 20;

enum Part<'v, 'a> {
    Value(&'v Value<'a>),
    List(&'v List<'a>),
}

impl Value<'_> {
    /// Whether others may build on this value. What is part of a document is as deep as documents may be.
    pub fn is_bounded(&self) -> bool {
        let mut waiting = vec![(Part::Value(self), 0)];
        let mut parts = 0;
        while let Some((part, depth)) = waiting.pop() {
            parts += 1;
            if depth > DEPTH_MAX || parts > PARTS_MAX || waiting.len() > PARTS_MAX {
                return false;
            }
            let below = depth + 1;
            match part {
                Part::Value(Value::List(list)) => waiting.push((Part::List(list), depth)),
                Part::Value(Value::Map(Map::Owned(entries))) => {
                    waiting.extend(
                        entries.values().filter(|one| one.has_parts()).map(|one| (Part::Value(one), below)),
                    );
                }
                Part::Value(Value::Optional(Some(inner))) => waiting.push((Part::Value(inner), below)),
                Part::Value(Value::Opaque(opaque)) => {
                    if let OpaqueValue::Made(made) = &**opaque {
                        waiting.extend(made.fields.values().map(|one| (Part::Value(one), below)));
                    }
                }
                Part::Value(_) | Part::List(List::Json(..)) => {}
                Part::List(List::Owned(items, _)) => {
                    waiting.extend(
                        items.iter().filter(|one| one.has_parts()).map(|one| (Part::Value(one), below)),
                    );
                }
                Part::List(List::Joined(joined)) => {
                    waiting.extend([(Part::List(&joined.left), below), (Part::List(&joined.right), below)]);
                }
            }
        }
        true
    }

    fn has_parts(&self) -> bool {
        matches!(self, Value::List(_) | Value::Map(_) | Value::Optional(Some(_)) | Value::Opaque(_))
    }
}
