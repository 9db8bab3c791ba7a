//! What a schema says about a place for the purpose of ownership: a leaf, a map of members, or a list of elements
//! that have an identity.
//!
//! What the schema does not describe is deduced from the value: maps are taken apart, everything else is a leaf. A
//! raw extension is a leaf whatever it holds.

use std::borrow::Cow;

use polder_model::{SmolStr, Value};

use super::path::{write_item, write_keys};
use crate::schema::{Kind, ListType, NodeRef};

/// A place in an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    Typed {
        node: NodeRef<'a>,
        /// Unknown members are allowed here because they are somewhere above.
        keeps_unknown: bool,
    },
    /// Not described: shaped like the value that stands there.
    Deduced,
    /// Not described, and never taken apart.
    Opaque,
}

/// How a value at a place is owned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// As one, whatever it holds.
    Leaf(LeafKind),
    Map(Place<'a>),
    List(Items<'a>),
}

/// What a leaf may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeafKind {
    Number,
    Text,
    Boolean,
    AnyScalar,
    /// A map that is owned as one.
    Map,
    /// A list that is owned as one.
    List,
}

/// A list whose elements have an identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    pub(super) element: Place<'a>,
    /// The members that identify an element; none: its value does.
    keys: &'a [SmolStr],
}

/// Why an element of a list has no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoIdentity {
    #[error("associative list with keys may not have a null element")]
    NullWithKeys,
    #[error("associative list with keys may not have non-map elements")]
    NoMap,
    #[error(
        "associative list with keys has an element that omits all key fields {0} (and doesn't have default values for any \
         key fields)"
    )]
    NoKeys(String),
    #[error("associative list without keys has an element that's a map type")]
    Map,
    #[error("not supported: associative list with lists as elements")]
    List,
    #[error("associative list without keys has an element that's an explicit null")]
    Null,
}

impl<'a> Place<'a> {
    pub(super) fn root(node: NodeRef<'a>) -> Place<'a> {
        Place::Typed { node, keeps_unknown: false }.entered()
    }

    fn typed(node: NodeRef<'a>, keeps_unknown: bool) -> Place<'a> {
        Place::Typed { node, keeps_unknown }.entered()
    }

    /// Settles what kind of place it is.
    fn entered(self) -> Place<'a> {
        let Place::Typed { node, keeps_unknown } = self else { return self };
        let own = node.get();
        match own.kind {
            // A built-in type without a schema: a raw extension.
            Kind::Any if own.preserve_unknown && own.type_name.is_some() => Place::Opaque,
            Kind::Any if own.opaque => Place::Deduced,
            _ => Place::Typed { node, keeps_unknown: keeps_unknown || own.preserve_unknown },
        }
    }

    pub(super) fn shape(self, value: &Value) -> Shape<'a> {
        let Place::Typed { node, .. } = self else { return self.shape_deduced(value) };
        let own = node.get();
        match own.kind {
            Kind::Object => self.map(own.map_atomic),
            Kind::Array => self.list(),
            Kind::Any => match value {
                // Upstream tries maps first, and nothing is as good as a map.
                Value::Object(_) | Value::Null => self.map(own.map_atomic),
                Value::Array(_) => self.list(),
                _ => Shape::Leaf(LeafKind::AnyScalar),
            },
            Kind::Integer | Kind::Number => Shape::Leaf(LeafKind::Number),
            Kind::Boolean => Shape::Leaf(LeafKind::Boolean),
            Kind::String if own.format.as_deref().is_none_or(|format| format == "byte") => {
                Shape::Leaf(LeafKind::Text)
            }
            Kind::Bytes => Shape::Leaf(LeafKind::Text),
            Kind::String | Kind::IntOrString | Kind::Quantity | Kind::Time | Kind::MicroTime => {
                Shape::Leaf(LeafKind::AnyScalar)
            }
        }
    }

    fn shape_deduced(self, value: &Value) -> Shape<'a> {
        match (self, value) {
            (Place::Deduced, Value::Object(_) | Value::Null) => Shape::Map(self),
            (_, Value::Object(_) | Value::Null) => Shape::Leaf(LeafKind::Map),
            (_, Value::Array(_)) => Shape::Leaf(LeafKind::List),
            _ => Shape::Leaf(LeafKind::AnyScalar),
        }
    }

    fn map(self, is_atomic: bool) -> Shape<'a> {
        if is_atomic { Shape::Leaf(LeafKind::Map) } else { Shape::Map(self) }
    }

    fn list(self) -> Shape<'a> {
        let Place::Typed { node, .. } = self else { return Shape::Leaf(LeafKind::List) };
        let own = node.get();
        let keys: &[SmolStr] = match own.list_type {
            ListType::Atomic => return Shape::Leaf(LeafKind::List),
            ListType::Set => &[],
            ListType::Map => &own.list_map_keys,
        };
        Shape::List(Items { element: self.element(), keys })
    }

    /// The place of the elements of a list, of any kind.
    pub(super) fn element(self) -> Place<'a> {
        match self {
            Place::Typed { node, keeps_unknown } => {
                node.items().map_or(Place::Opaque, |items| Place::typed(items, keeps_unknown))
            }
            other => {
                if matches!(other, Place::Deduced) {
                    Place::Opaque
                } else {
                    other
                }
            }
        }
    }

    /// The place of a member the schema names.
    pub(super) fn named(self, name: &str) -> Option<Place<'a>> {
        let Place::Typed { node, keeps_unknown } = self else { return None };
        node.property(name).map(|member| Place::typed(member, keeps_unknown))
    }

    /// The place of a member the schema does not name; `None` when there may be none.
    pub(super) fn unnamed(self) -> Option<Place<'a>> {
        let Place::Typed { node, keeps_unknown } = self else { return Some(self) };
        let own = node.get();
        match own.additional {
            Some(additional) => Some(Place::typed(node.at(additional), keeps_unknown)),
            None if keeps_unknown || own.properties.is_empty() => Some(Place::Deduced),
            None => None,
        }
    }

    /// The place of a member. One that should not be there is taken as it is: checking is another walk.
    pub(super) fn member(self, name: &str) -> Place<'a> {
        self.named(name).or_else(|| self.unnamed()).unwrap_or(Place::Deduced)
    }

    /// Whether ownership inside is up to the value alone, so that no schema can have changed it.
    pub(super) fn is_deduced(self) -> bool {
        match self {
            Place::Typed { node, .. } => {
                let own = node.get();
                own.properties.is_empty() && matches!(self.unnamed(), Some(Place::Deduced))
            }
            Place::Deduced | Place::Opaque => true,
        }
    }
}

impl Items<'_> {
    /// The step that leads to an element.
    pub(super) fn step(&self, item: &Value) -> Result<SmolStr, NoIdentity> {
        if self.keys.is_empty() {
            return match item {
                Value::Object(_) => Err(NoIdentity::Map),
                Value::Array(_) => Err(NoIdentity::List),
                Value::Null => Err(NoIdentity::Null),
                scalar => Ok(write_item(scalar)),
            };
        }
        let object = match item {
            Value::Object(object) => object,
            Value::Null => return Err(NoIdentity::NullWithKeys),
            _ => return Err(NoIdentity::NoMap),
        };
        let value = |key: &'_ SmolStr| match object.get(key) {
            Some(value) => Some(Cow::Borrowed(value)),
            None => self.key_default(key).map(Cow::Owned),
        };
        if let [key] = self.keys {
            let value = value(key).ok_or_else(|| self.no_keys())?;
            return Ok(write_keys(std::iter::once((key.as_str(), &*value))));
        }
        // A key that is missing and has no default is left out: that is an identity of its own.
        let mut keys: Vec<(&SmolStr, Cow<'_, Value>)> =
            self.keys.iter().filter_map(|key| Some((key, value(key)?))).collect();
        if keys.is_empty() {
            return Err(self.no_keys());
        }
        keys.sort_by_key(|(name, _)| *name);
        Ok(write_keys(keys.iter().map(|(name, value)| (name.as_str(), &**value))))
    }

    fn key_default(&self, key: &str) -> Option<Value> {
        match self.element.named(key)? {
            Place::Typed { node, .. } => node.get().default.clone(),
            _ => None,
        }
    }

    fn no_keys(&self) -> NoIdentity {
        let names: Vec<String> = self.keys.iter().map(|key| format!("{key:?}")).collect();
        NoIdentity::NoKeys(format!("[{}]", names.join(" ")))
    }
}
