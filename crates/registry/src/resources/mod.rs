//! Built-in kinds: what is special about each. One file a kind, one line below.

use crate::behavior::Behavior;

/// Every kind with a behavior of its own. Kinds of the table that are not here are [`Behavior::PLAIN`].
pub(crate) const ALL: &[&Behavior] = &[];
