//! The types of the language, and their names in error messages.
//!
//! Types are trees with shared parts, and an expression can make trees that are far larger than itself when they are
//! written out. So whatever walks a type here or in `unify` has a limit.

use std::fmt;
use std::sync::Arc;

use polder_model::SmolStr;

use crate::made;
use crate::shape::{Shape, ShapeKind};

#[derive(Clone, Debug)]
pub enum Type {
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<Type>),
    /// Key and value.
    Map(Arc<(Type, Type)>),
    Optional(Arc<Type>),
    /// The type of a type.
    Type(Arc<Type>),
    /// An object with known members.
    Object(Arc<Shape>),
    /// A value with functions and no members.
    Opaque(Opaque),
    /// An object that an expression makes, by the name it is made with: `Object.spec`.
    Made(SmolStr),
    /// A type to be found: in signatures by letter, in the checker by number.
    Variable(u32),
    /// Of something wrong that was reported.
    Error,
}

/// The types that Kubernetes adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opaque {
    Url,
    Quantity,
    Ip,
    Cidr,
    Format,
    Semver,
    Authorizer,
    PathCheck,
    GroupCheck,
    ResourceCheck,
    Decision,
    Object,
    JsonPatch,
}

impl Opaque {
    pub fn name(self) -> &'static str {
        match self {
            Opaque::Url => "kubernetes.URL",
            Opaque::Quantity => "kubernetes.Quantity",
            Opaque::Ip => "net.IP",
            Opaque::Cidr => "net.CIDR",
            Opaque::Format => "kubernetes.NamedFormat",
            Opaque::Semver => "kubernetes.Semver",
            Opaque::Authorizer => "kubernetes.authorization.Authorizer",
            Opaque::PathCheck => "kubernetes.authorization.PathCheck",
            Opaque::GroupCheck => "kubernetes.authorization.GroupCheck",
            Opaque::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Opaque::Decision => "kubernetes.authorization.Decision",
            Opaque::Object => made::OBJECT,
            Opaque::JsonPatch => made::JSON_PATCH,
        }
    }
}

impl Type {
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Error)
    }

    /// Types that null fits into.
    pub(crate) fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Null
                | Type::Optional(_)
                | Type::Object(_)
                | Type::Opaque(_)
                | Type::Made(_)
                | Type::Duration
                | Type::Timestamp
        )
    }

    /// One value of this type has one size, whatever it holds.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// The name a type has as an identifier, if it has one.
    pub(crate) fn named(name: &str) -> Option<Type> {
        let any = || Type::Dyn;
        Some(match name {
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "google.protobuf.Duration" => Type::Duration,
            "null_type" => Type::Null,
            "list" => Type::list(any()),
            "map" => Type::map(any(), any()),
            "type" => Type::Type(Arc::new(any())),
            "optional_type" => Type::optional(any()),
            "net.IP" => Type::Opaque(Opaque::Ip),
            "net.CIDR" => Type::Opaque(Opaque::Cidr),
            _ => return None,
        })
    }

    /// What `type(x)` says at run time.
    pub(crate) fn runtime_name(&self) -> &'static str {
        match self {
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::Null => "null_type",
            Type::List(_) => "list",
            Type::Map(_) | Type::Object(_) => "map",
            Type::Type(_) => "type",
            Type::Optional(_) => "optional_type",
            Type::Opaque(opaque) => opaque.name(),
            Type::Made(name) if name == made::JSON_PATCH => made::JSON_PATCH,
            Type::Made(_) => made::OBJECT,
            Type::Dyn | Type::Variable(_) | Type::Error => "dyn",
        }
    }

    fn write(&self, out: &mut String) {
        /// A longer name tells nobody more.
        const NAME_LEN_MAX: usize = 2048;
        if out.len() > NAME_LEN_MAX {
            return;
        }
        match self {
            Type::Dyn => out.push_str("dyn"),
            Type::Null => out.push_str("null"),
            Type::Timestamp => out.push_str("timestamp"),
            Type::Duration => out.push_str("duration"),
            Type::Error => out.push_str("!error!"),
            Type::Variable(number) => out.push_str(&format!("_var{number}")),
            Type::Object(shape) => match &shape.kind {
                ShapeKind::Object { name, .. } => out.push_str(name),
                _ => out.push_str("object"),
            },
            Type::Made(name) => out.push_str(name),
            Type::List(item) => {
                out.push_str("list(");
                item.write(out);
                out.push(')');
            }
            Type::Map(pair) => {
                out.push_str("map(");
                pair.0.write(out);
                out.push_str(", ");
                pair.1.write(out);
                out.push(')');
            }
            Type::Optional(inner) => {
                out.push_str("optional_type(");
                inner.write(out);
                out.push(')');
            }
            Type::Type(inner) => {
                out.push_str("type(");
                inner.write(out);
                out.push(')');
            }
            simple => out.push_str(simple.runtime_name()),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write(&mut out);
        f.write_str(&out)
    }
}
