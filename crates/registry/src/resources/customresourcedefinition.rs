//! Custom resource definitions: how they print. What they may say is checked where they are compiled.

use super::cells;
use crate::behavior::{Behavior, Column};

pub(super) const CUSTOM_RESOURCE_DEFINITION: Behavior = Behavior {
    group: "apiextensions.k8s.io",
    resource: "customresourcedefinitions",
    generation: true,
    unconditional_update: false,
    columns: &[Column::NAME, cells::CREATED_AT],
    cells: |object, _| vec![cells::name(object), cells::created_at(object)],
    ..Behavior::PLAIN
};
