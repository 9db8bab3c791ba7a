//! The functions of the language and of Kubernetes' libraries.
//!
//! A library is one file that begins with its table. Adding a function costs one line there.

pub(crate) mod authorizer;
mod convert;
pub(crate) use convert::plain;
mod formats;
pub(crate) mod formatting;
mod lists;
mod net;
pub(crate) mod opaque;
mod operators;
mod optionals;
mod patches;
mod quantities;
pub(crate) mod regexes;
mod semvers;
mod sets;
mod standard;
mod strings;
mod times;
mod urls;

use crate::overload::Overload;

/// All of them, in the order in which overloads of one function are tried.
pub(crate) fn all() -> Vec<Overload> {
    let libraries: [fn() -> Vec<Overload>; 17] = [
        operators::table,
        convert::table,
        standard::table,
        times::table,
        strings::table,
        lists::table,
        regexes::table,
        sets::table,
        optionals::table,
        urls::table,
        quantities::table,
        net::table,
        formats::table,
        semvers::table,
        authorizer::table,
        formatting::table,
        patches::table,
    ];
    libraries.into_iter().flat_map(|table| table()).collect()
}
