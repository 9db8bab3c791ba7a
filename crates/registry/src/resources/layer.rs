//! `Layer` (polder.dev): a sealed snapshot of a plane, with a name.

use crate::behavior::Behavior;

pub(crate) static LAYER: Behavior = Behavior { group: "polder.dev", resource: "layers", ..Behavior::PLAIN };
