//! Every verb on every resource of every plane, without HTTP.

pub mod behavior;
mod resources;
