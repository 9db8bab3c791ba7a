//! Every verb on every resource of every plane, without HTTP.

pub mod behavior;
pub mod bootstrap;
#[allow(dead_code, reason = "the verbs that use it are on their way")]
mod resources;
