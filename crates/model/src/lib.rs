//! The words everything else is written in: names, JSON values, field paths, selectors, quantities, the
//! Kubernetes `Status`, the queue in which planes take turns, counts of what they have, and what was used lately.
//!
//! Pure: no async, no clock, no randomness, no I/O. Nothing here knows where objects are kept or how they are
//! served, so that every rule can be tested with plain values.

pub mod field;
pub mod go_duration;
pub mod lanes;
pub mod names;
pub mod pod;
pub mod quantity;
pub mod recent;
pub mod selector;
pub mod shares;
pub mod status;
pub mod value;

pub use field::{FieldError, FieldErrorKind, FieldPath};
pub use lanes::Lanes;
pub use names::{
    GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource, PlaneId, PlaneName,
};
pub use recent::Recent;
pub use shares::Shares;
pub use status::{Reason, Status};
pub use value::{Object, Value};

/// The string type of names and JSON text: short ones live inline, long ones are shared.
pub use smol_str::{SmolStr, ToSmolStr, format_smolstr};
