//! What a document may look like at a place, as rules see it: the types of its members and how large it can be.
//!
//! The host makes shapes from its schemas. A shape is a tree and immutable; programs compiled against it do not keep
//! it, evaluation takes it along with the document. Sizes follow Kubernetes' estimates, because they decide which
//! rules a custom resource definition may have.

use std::sync::Arc;

use polder_model::SmolStr;

use crate::escape;
use crate::parser::is_reserved;
use crate::types::{Opaque, Type};

/// The largest request, in which every document must fit.
pub const REQUEST_BYTES_MAX: u64 = 3 << 20;

#[derive(Clone, Debug)]
pub struct Shape {
    pub kind: ShapeKind,
    /// Null is a value here, and not a fault.
    pub nullable: bool,
    /// The most characters, bytes, items or entries a value can have.
    pub elements_max: u64,
    /// The fewest bytes of JSON a value can take.
    pub bytes_min: u64,
}

#[derive(Clone, Debug)]
pub enum ShapeKind {
    /// Anything; the value tells.
    Dyn,
    /// An integer or a string: checked when it is used.
    IntOrString,
    Bool,
    Int,
    Double,
    String,
    /// Base64 in the document.
    Bytes,
    /// A Go duration or RFC 3339 time in the document.
    Duration,
    Date,
    Timestamp,
    List {
        items: Arc<Shape>,
        list: ListKind,
    },
    Map {
        values: Arc<Shape>,
    },
    Object {
        /// The name in error messages; equal names mean equal types.
        name: SmolStr,
        /// Sorted by the name in the document.
        fields: Vec<Field>,
    },
    /// A value with functions only; documents do not hold such.
    Opaque(Opaque),
    /// A type that is declared, for values that are computed.
    Typed(Type),
}

/// How a list is compared and added to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListKind {
    Atomic,
    Set,
    /// The members that identify an item, as they are called in the document.
    Map(Vec<SmolStr>),
}

#[derive(Clone, Debug)]
pub struct Field {
    /// The name in the document.
    pub json: SmolStr,
    /// The name in expressions.
    pub cel: SmolStr,
    pub shape: Arc<Shape>,
}

impl Field {
    /// A member, unless its name cannot be written in an expression.
    pub fn new(json: impl Into<SmolStr>, shape: Arc<Shape>) -> Option<Field> {
        let json = json.into();
        let cel = escape::escape(&json)?.into();
        Some(Field { json, cel, shape })
    }
}

impl Shape {
    fn simple(kind: ShapeKind, elements_max: u64, bytes_min: u64) -> Shape {
        Shape { kind, nullable: false, elements_max, bytes_min }
    }

    pub fn nullable(mut self, nullable: bool) -> Shape {
        self.nullable = nullable;
        self
    }

    pub fn dynamic() -> Shape {
        Shape::simple(ShapeKind::Dyn, 0, 1)
    }

    pub fn typed(declared: Type) -> Shape {
        Shape::simple(ShapeKind::Typed(declared), 0, 1)
    }

    pub fn boolean() -> Shape {
        Shape::simple(ShapeKind::Bool, 0, 4)
    }

    pub fn int() -> Shape {
        Shape::simple(ShapeKind::Int, 0, 1)
    }

    pub fn double() -> Shape {
        Shape::simple(ShapeKind::Double, 0, 1)
    }

    /// Lengths are in characters, of which the largest takes four bytes.
    pub fn int_or_string(length_max: Option<u64>) -> Shape {
        Shape::simple(ShapeKind::IntOrString, text_max(length_max), 1)
    }

    pub fn string(length_max: Option<u64>) -> Shape {
        Shape::simple(ShapeKind::String, text_max(length_max), 2)
    }

    /// A string that is one of these.
    pub fn string_of<'t>(allowed: impl Iterator<Item = &'t str>) -> Shape {
        Shape::simple(ShapeKind::String, allowed.map(|text| text.len() as u64).max().unwrap_or(0), 2)
    }

    pub fn bytes(length_max: Option<u64>) -> Shape {
        Shape::simple(ShapeKind::Bytes, length_max.unwrap_or(REQUEST_BYTES_MAX - 2), 2)
    }

    pub fn duration() -> Shape {
        Shape::simple(ShapeKind::Duration, 32, 3)
    }

    pub fn date() -> Shape {
        Shape::simple(ShapeKind::Date, 12, 12)
    }

    pub fn timestamp() -> Shape {
        Shape::simple(ShapeKind::Timestamp, 32, 21)
    }

    pub fn list(items: Arc<Shape>, list: ListKind, items_max: Option<u64>) -> Shape {
        let max = items_max.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (items.bytes_min + 1));
        Shape::simple(ShapeKind::List { items, list }, max, 2)
    }

    pub fn map(values: Arc<Shape>, entries_max: Option<u64>) -> Shape {
        let max = entries_max.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (values.bytes_min + 6));
        Shape::simple(ShapeKind::Map { values }, max, 2)
    }

    /// `bytes_min` is what required members without a default add to `{}`: see [`Shape::required_bytes`].
    pub fn object(name: impl Into<SmolStr>, mut fields: Vec<Field>, bytes_min: u64) -> Shape {
        fields.sort_by(|one, other| one.json.cmp(&other.json));
        fields.dedup_by(|one, other| one.json == other.json);
        Shape::simple(ShapeKind::Object { name: name.into(), fields }, 0, 2 + bytes_min)
    }

    /// What one required member adds to the least size of its object.
    pub fn required_bytes(name: &str, shape: &Shape) -> u64 {
        name.len() as u64 + shape.bytes_min + 4
    }

    /// How often a value of this shape can occur in one request.
    pub fn occurrences_max(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.bytes_min + 1)
    }

    /// A member by its name in the document.
    pub fn field(&self, json: &str) -> Option<&Field> {
        let ShapeKind::Object { fields, .. } = &self.kind else { return None };
        let at = fields.binary_search_by(|field| field.json.as_str().cmp(json)).ok()?;
        fields.get(at)
    }

    /// A member by its name in expressions.
    pub(crate) fn field_named(&self, cel: &str) -> Option<&Field> {
        // Reserved words are escaped, and may be written as they are too.
        let direct = self.field(cel).filter(|field| field.cel == cel || is_reserved(cel));
        direct.or_else(|| self.field(&escape::unescape(cel)?).filter(|field| field.cel == cel))
    }

    /// The type that expressions see.
    pub fn cel_type(self: &Arc<Shape>) -> Type {
        match &self.kind {
            ShapeKind::Dyn | ShapeKind::IntOrString => Type::Dyn,
            ShapeKind::Bool => Type::Bool,
            ShapeKind::Int => Type::Int,
            ShapeKind::Double => Type::Double,
            ShapeKind::String => Type::String,
            ShapeKind::Bytes => Type::Bytes,
            ShapeKind::Duration => Type::Duration,
            ShapeKind::Date | ShapeKind::Timestamp => Type::Timestamp,
            ShapeKind::List { items, .. } => Type::list(items.cel_type()),
            ShapeKind::Map { values } => Type::map(Type::String, values.cel_type()),
            ShapeKind::Object { .. } => Type::Object(self.clone()),
            ShapeKind::Opaque(opaque) => Type::Opaque(*opaque),
            ShapeKind::Typed(declared) => declared.clone(),
        }
    }

    /// About how much memory the tree takes.
    pub fn memory_bytes(&self) -> usize {
        let below = match &self.kind {
            ShapeKind::List { items, .. } => items.memory_bytes(),
            ShapeKind::Map { values } => values.memory_bytes(),
            ShapeKind::Object { fields, .. } => {
                fields.iter().map(|field| size_of::<Field>() + field.shape.memory_bytes()).sum()
            }
            _ => 0,
        };
        size_of::<Shape>() + 16 + below
    }
}

fn text_max(length_max: Option<u64>) -> u64 {
    length_max.map_or(REQUEST_BYTES_MAX - 2, |max| max.saturating_mul(4))
}
