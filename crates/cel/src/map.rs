//! Maps and objects: part of a document, or made.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use polder_model::{Object, SmolStr};

use crate::escape;
use crate::meter::{Fault, Outcome};
use crate::shape::{Shape, ShapeKind};
use crate::value::{Key, Text, Value};

#[derive(Clone)]
pub enum Map<'a> {
    /// Part of a document, with the shape of the map itself.
    Json(&'a Object, Option<&'a Shape>),
    Owned(Arc<BTreeMap<Key<'a>, Value<'a>>>),
}

impl fmt::Debug for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Map::Json(object, _) => write!(f, "{object:?}"),
            Map::Owned(entries) => entries.fmt(f),
        }
    }
}

impl<'a> Map<'a> {
    pub fn len(&self) -> usize {
        match self {
            Map::Json(object, _) => object.len(),
            Map::Owned(entries) => entries.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key. Keys of objects with known members are identifiers.
    pub(crate) fn find(&self, key: &Value<'a>) -> Result<Option<Value<'a>>, Fault> {
        match (self, key) {
            (Map::Owned(entries), _) => Ok(Key::of(key).and_then(|key| entries.get(&key).cloned())),
            (_, Value::String(name)) => self.find_named(name, None).transpose(),
            (Map::Json(_, Some(_)), _) => Err(Fault::no_overload()),
            _ => Ok(None),
        }
    }

    /// The value of a named member; `plain` is the name in the document where it is known already.
    pub(crate) fn find_named(&self, name: &str, plain: Option<&str>) -> Option<Outcome<'a>> {
        match self {
            Map::Owned(entries) => {
                // A borrowed key of a shorter life: the map's keys shrink to it.
                let entries: &BTreeMap<Key<'_>, Value<'a>> = shorter(entries);
                entries.get(&Key::String(Text::Borrowed(name))).cloned().map(Ok)
            }
            Map::Json(object, None) => object.get(name).map(|member| Ok(Value::json(member))),
            Map::Json(object, Some(shape)) => match &shape.kind {
                ShapeKind::Object { .. } => {
                    let unescaped;
                    let plain = match plain {
                        Some(plain) => plain,
                        None => {
                            unescaped = escape::unescape(name)?;
                            &unescaped
                        }
                    };
                    let field = shape.field(plain)?;
                    let member = object.get(plain).filter(|member| !member.is_null())?;
                    Some(Value::shaped(member, &field.shape))
                }
                ShapeKind::Map { values } => object.get(name).map(|member| Value::shaped(member, values)),
                _ => object.get(name).map(|member| Ok(Value::json(member))),
            },
        }
    }

    /// A member by its name in the document.
    pub(crate) fn member(&self, plain: &SmolStr) -> Option<Outcome<'a>> {
        match escape::escape(plain) {
            Some(name) => self.find_named(&name, Some(plain)),
            None => self.find_named(plain, Some(plain)),
        }
    }

    /// Keys in a fixed order; those of objects are identifiers, and only known members have one.
    pub(crate) fn keys(&self) -> Vec<Value<'a>> {
        match self {
            Map::Owned(entries) => entries.keys().map(Key::value).collect(),
            Map::Json(object, shape) => match shape.map(|shape| &shape.kind) {
                Some(ShapeKind::Object { .. }) => {
                    let field = |name: &SmolStr| shape.and_then(|shape| shape.field(name));
                    object.keys().filter_map(field).map(|field| Value::str(&field.cel)).collect()
                }
                _ => object.keys().map(|name| Value::str(name)).collect(),
            },
        }
    }
}

fn shorter<'s, 'a: 's>(entries: &'s BTreeMap<Key<'a>, Value<'a>>) -> &'s BTreeMap<Key<'s>, Value<'a>> {
    entries
}
