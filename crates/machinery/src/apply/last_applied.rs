//! kubectl's annotation of what client-side apply did last, for those who move from there to server-side apply.
//!
//! Only the owner `kubectl` moves: whoever wants to keep the two apart names another one.

use polder_model::{Object, SmolStr, Value};

use super::check::check;
use super::collect::applied;
use super::compare::compare;
use super::path::for_html;
use super::place::Place;
use super::set::FieldSet;

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// What Kubernetes allows for all annotations of an object.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The owner that moves.
pub(super) const MOVING_MANAGER: &str = "kubectl";

/// The fields that client-side apply set and nobody changed since: they may be taken over without force. `None` when
/// there is no annotation or it says nothing useful.
pub(super) fn may_take_over(root: Place<'_>, live: &Value, api_version: &str) -> Option<FieldSet> {
    let text = live.str_at(&["metadata", "annotations", ANNOTATION]).filter(|text| !text.is_empty())?;
    let last = Value::parse(text.as_bytes()).ok()?;
    if last.str_at(&["kind"]).is_none_or(str::is_empty) || last.str_at(&["apiVersion"]) != Some(api_version) {
        return None;
    }
    check(root, live).ok()?;
    check(root, &last).ok()?;
    let mut fields = applied(root, &last);
    let since = compare(root, &last, live, &FieldSet::new());
    fields.subtract(&since.touched);
    fields.subtract(&since.removed);
    Some(fields)
}

/// Keeps the annotation in step with what was applied, where there is one.
pub(super) fn annotate(object: &mut Value, applied: &Value) {
    let annotated = object.str_at(&["metadata", "annotations", ANNOTATION]);
    if annotated.is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    applied.remove_at(&["metadata", "annotations", ANNOTATION]);
    let Some(Value::Object(annotations)) = object.at_mut(&["metadata", "annotations"]) else { return };
    annotations.insert(ANNOTATION, SmolStr::from(format!("{}\n", for_html(&applied.to_string()))));
    if bytes(annotations) > ANNOTATIONS_BYTES_MAX {
        annotations.remove(ANNOTATION);
    }
}

fn bytes(annotations: &Object) -> usize {
    annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum()
}
