//! What can be done with an object without keeping or serving it: check it against a schema, fill in defaults,
//! patch it, convert it, print it as a table row.
//!
//! Pure: no async, no clock, no randomness, no I/O. Built-in kinds and custom resources go through the same code;
//! the only difference is where their [`schema::Schema`] comes from.

pub mod age;
pub mod apply;
pub mod continue_token;
pub mod conversion;
pub mod crd;
pub mod jsonpath;
pub mod patch;
pub mod protobuf;
pub mod schema;

#[cfg(test)]
mod xorshift;
