//! Values that have functions and no members.

use super::authorizer::{GroupCheck, PathCheck, ResourceCheck, Subject};
use super::formats::NamedFormat;
use super::net::{Address, Network};
use super::semvers::Version;
use super::urls::Url;
use crate::made::{JSON_PATCH, Made};
use crate::types::Opaque;
use polder_model::quantity::Quantity;

#[derive(Debug)]
pub enum OpaqueValue<'a> {
    Url(Url),
    Quantity(Quantity),
    Ip(Address),
    Cidr(Network),
    Format(&'static NamedFormat),
    Semver(Version),
    Authorizer(Subject<'a>),
    PathCheck(PathCheck<'a>),
    GroupCheck(GroupCheck<'a>),
    ResourceCheck(ResourceCheck<'a>),
    Decision(super::authorizer::Decision),
    Made(Made<'a>),
}

impl OpaqueValue<'_> {
    pub(crate) fn opaque(&self) -> Opaque {
        match self {
            OpaqueValue::Url(_) => Opaque::Url,
            OpaqueValue::Quantity(_) => Opaque::Quantity,
            OpaqueValue::Ip(_) => Opaque::Ip,
            OpaqueValue::Cidr(_) => Opaque::Cidr,
            OpaqueValue::Format(_) => Opaque::Format,
            OpaqueValue::Semver(_) => Opaque::Semver,
            OpaqueValue::Authorizer(_) => Opaque::Authorizer,
            OpaqueValue::PathCheck(_) => Opaque::PathCheck,
            OpaqueValue::GroupCheck(_) => Opaque::GroupCheck,
            OpaqueValue::ResourceCheck(_) => Opaque::ResourceCheck,
            OpaqueValue::Decision(_) => Opaque::Decision,
            OpaqueValue::Made(made) if made.name() == JSON_PATCH => Opaque::JsonPatch,
            OpaqueValue::Made(_) => Opaque::Object,
        }
    }

    /// `None` when two such values cannot be compared.
    pub(crate) fn equal(&self, other: &Self) -> Option<bool> {
        match (self, other) {
            (OpaqueValue::Url(one), OpaqueValue::Url(two)) => Some(one == two),
            (OpaqueValue::Quantity(one), OpaqueValue::Quantity(two)) => Some(one == two),
            (OpaqueValue::Ip(one), OpaqueValue::Ip(two)) => Some(one == two),
            (OpaqueValue::Cidr(one), OpaqueValue::Cidr(two)) => Some(one == two),
            (OpaqueValue::Format(one), OpaqueValue::Format(two)) => Some(one.name == two.name),
            (OpaqueValue::Semver(one), OpaqueValue::Semver(two)) => Some(one.order(two).is_eq()),
            _ => None,
        }
    }

    pub(crate) fn size(&self) -> usize {
        match self {
            OpaqueValue::Ip(address) => address.bytes(),
            OpaqueValue::Cidr(network) => network.bytes(),
            _ => 1,
        }
    }

    pub(crate) fn format_regex_len(&self) -> u64 {
        match self {
            OpaqueValue::Format(format) => format.regex_len,
            _ => 1,
        }
    }
}

/// The one argument or receiver of a function that has a given opaque type.
macro_rules! opaque_arg {
    ($name:ident, $variant:ident, $type:ty) => {
        pub(super) fn $name<'v, 'a>(
            args: &'v [$crate::value::Value<'a>],
            at: usize,
        ) -> Result<&'v $type, $crate::meter::Fault> {
            if let Some($crate::value::Value::Opaque(opaque)) = args.get(at)
                && let $crate::library::opaque::OpaqueValue::$variant(inner) = &**opaque
            {
                return Ok(inner);
            }
            Err($crate::meter::Fault::no_overload())
        }
    };
}
pub(super) use opaque_arg;

pub(super) fn text<'v>(
    args: &'v [crate::value::Value<'_>],
    at: usize,
) -> Result<&'v str, crate::meter::Fault> {
    match args.get(at) {
        Some(crate::value::Value::String(text)) => Ok(text),
        _ => Err(crate::meter::Fault::no_overload()),
    }
}
