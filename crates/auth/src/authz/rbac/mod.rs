//! Roles and bindings: who may do what because a plane's own objects say so.
//!
//! [`Role`] is what a role allows, [`RoleSet`] several of them made quick to ask, [`Index`] who has which set where, and
//! [`cover`] says what somebody would give away that they do not have. Rules only ever allow: what no rule is about is not
//! allowed. Nothing here knows a plane, a store or a clock.

pub mod cover;
mod index;
mod rule;
mod set;

pub use index::{Binding, Bound, Grant, Index, RoleKind, Subject};
pub use rule::{Role, Rule};
pub use set::{Permission, RoleSet};
