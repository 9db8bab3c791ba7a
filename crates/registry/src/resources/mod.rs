//! Built-in kinds: what is special about each. One file a kind, one line below.

pub(crate) mod layer;
pub(crate) mod plane;

use polder_model::GroupResource;

use crate::behavior::Behavior;
use crate::catalog::PLAIN;

/// Every kind with a behavior of its own. Kinds of the table that are not here are [`Behavior::PLAIN`].
pub(crate) static ALL: &[&Behavior] = &[];

/// The behavior of a built-in kind.
pub(crate) fn behavior(name: &GroupResource) -> &'static Behavior {
    let own = ALL.iter().find(|own| own.group == name.group && own.resource == name.resource);
    own.copied().unwrap_or(&PLAIN)
}
