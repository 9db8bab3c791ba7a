//! Custom resource definitions: how they print, and which group is not theirs. What else they may say is checked where
//! they are compiled.

use polder_model::{FieldError, Value};

use super::checks::Errors;
use super::{cells, own_kinds};
use crate::behavior::{Behavior, Column};

pub(super) const CUSTOM_RESOURCE_DEFINITION: Behavior = Behavior {
    group: "apiextensions.k8s.io",
    resource: "customresourcedefinitions",
    generation: true,
    unconditional_update: false,
    columns: &[Column::NAME, cells::CREATED_AT],
    cells: |object, _| vec![cells::name(object), cells::created_at(object)],
    validate,
    ..Behavior::PLAIN
};

/// Objects of this group are the provider's, and stand in the core plane only.
fn validate(new: &Value, _old: Option<&Value>, errors: &mut Errors) {
    if new.str_at(&["spec", "group"]) == Some(own_kinds::GROUP) {
        errors.push(FieldError::invalid(
            "spec.group",
            own_kinds::GROUP,
            "is reserved for the provider's own kinds",
        ));
    }
}
