//! Taking fields out of an object.

use polder_model::{Object, Value};

use super::path::write_field;
use super::place::{Place, Shape};
use super::set::{FieldSet, below, is_member};

/// The object without the fields of the set. What is left empty because of that becomes `null`.
pub(super) fn remove(root: Place<'_>, object: &mut Value, fields: &FieldSet) {
    if !fields.is_empty() {
        remove_below(root, object, fields.tree());
    }
}

fn remove_below(here: Place<'_>, value: &mut Value, fields: &Object) {
    let is_empty = match (here.shape(value), &mut *value) {
        (Shape::Map(here), Value::Object(object)) => {
            object.retain(|name, value| {
                let Some(fields) = fields.get(&write_field(name)).map(below) else { return true };
                // What is in the set goes; where only parts of it are, these go.
                !is_member(fields) && {
                    remove_below(here.member(name), value, fields);
                    true
                }
            });
            object.is_empty()
        }
        (Shape::List(items), Value::Array(elements)) => {
            elements.retain_mut(|element| {
                let fields = items.step(element).ok().and_then(|step| fields.get(&step)).map(below);
                let Some(fields) = fields else { return true };
                !is_member(fields) && {
                    remove_below(items.element, element, fields);
                    true
                }
            });
            elements.is_empty()
        }
        // What is owned as one goes as one.
        (_, Value::Object(_) | Value::Array(_)) => true,
        _ => false,
    };
    if is_empty {
        *value = Value::Null;
    }
}
