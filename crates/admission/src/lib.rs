//! The admission chain: plugins that look at a write after it was authorized and before it is stored, and change it,
//! refuse it, or ask for something to be written with it.
//!
//! A plugin is one file in `plugins/` and one line in `plugins::ALL`. It sees the request ([`Attributes`]), and through
//! [`World`] other objects of the same plane; it has no clock, no I/O and no way to another plane. All plugins change
//! an object before any of them judges it, and whatever they ask to be written is committed with the object or not at
//! all.

pub mod amounts;
pub mod quota;

mod attributes;
mod chain;
mod dynamic;
mod notes;
mod plugin;
mod plugins;
mod selection;
mod world;

#[cfg(test)]
mod fake;

pub use attributes::{Attributes, Form, Operation, Operations, Options, User};
pub use chain::Chain;
pub use dynamic::{
    About, Accepted, Asked, Binding, CheckedKind, Endpoint, Location, MutatingPolicy, Policy, ReviewVersion,
    Rulebook, Webhook, kinds_to_check, read_answer, type_warnings,
};
pub use notes::{Expected, Notes, ObjectWrite};
pub use plugin::{Interest, Kind, Place, Plugin, Verdict};
pub use polder_cel::Decision;
pub use selection::{Plugins, SelectionError};
pub use world::{Answer, Found, Question, World};
