//! What controllers of pods have in common: template defaults, selectors, rolling updates, cells.

use polder_model::{FieldError, FieldPath, Value};

use super::pod_spec_rules::{self, Surroundings};
use super::{cells, checks, label_selector, pod_spec, pod_warnings};
use crate::behavior::{Column, ScalePaths};

/// Where the `scale` subresource finds its numbers.
pub(super) const SCALE: ScalePaths = ScalePaths {
    spec_replicas: &["spec", "replicas"],
    status_replicas: &["status", "replicas"],
    selector: &["spec", "selector"],
};

/// The wide columns; [`wide_cells`] fills them.
pub(super) const CONTAINERS: Column = Column::text("Containers").wide();
pub(super) const IMAGES: Column = Column::text("Images").wide();
pub(super) const SELECTOR: Column = Column::text("Selector").wide();

/// What deployments and replica sets say about a selector that cannot be read.
pub(super) const INVALID_SELECTOR: &str = "invalid label selector";

/// The warning text for names that end up in pod names.
pub(super) const NAMES_PODS: &str = "this is used in Pod names and hostnames";

/// A required, not empty selector; `kind` is in the text.
pub(super) fn validate_selector(
    spec: &Value,
    kind: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let path = path.member("selector");
    let Some(selector) = checks::some(spec, "selector") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    label_selector::validate(Some(selector), &path, errors);
    if label_selector::is_empty(selector) {
        let text = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid(path, selector.clone(), text));
    }
}

/// The selector must select the pods that the template makes. One that is no selector has been reported.
pub(super) fn validate_selects(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let selector = checks::some(spec, "selector");
    let everything = selector.is_some_and(label_selector::is_empty);
    if everything || !label_selector::is_valid(selector) {
        return;
    }
    let labels = spec.at(&["template", "metadata", "labels"]);
    if !label_selector::matches(selector, labels) {
        let path = path.member("template");
        let path = path.member("metadata");
        errors.push(FieldError::invalid(
            path.member("labels"),
            labels.cloned().unwrap_or_default(),
            "`selector` does not match template `labels`",
        ));
    }
}

/// The template of a controller that keeps pods running.
pub(super) fn validate_template(
    spec: &Value,
    kind: &str,
    around: Surroundings<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let path = path.member("template");
    let template = spec.get("template").unwrap_or(&Value::Null);
    pod_spec_rules::validate_template(template, around, &path, errors);
    pod_spec_rules::validate_running(template, kind, &path, errors);
}

/// Selector and template together: a selector that cannot be read is said to be so (`unreadable`), and then the template
/// is not looked at.
pub(super) fn validate_selected_template(
    spec: &Value,
    kind: &str,
    unreadable: &str,
    around: Surroundings<'_>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let selector = checks::some(spec, "selector");
    if label_selector::is_valid(selector) {
        validate_selects(spec, path, errors);
        validate_template(spec, kind, around, path, errors);
    } else {
        let value = selector.cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path.member("selector"), value, unreadable));
    }
}

/// Warnings about the name, which pods will carry, and about the template.
pub(super) fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = super::name_warning(object, NAMES_PODS);
    warnings.extend(template_warnings(object));
    warnings
}

/// Warnings about the template.
pub(super) fn template_warnings(object: &Value) -> Vec<String> {
    let template = object.at(&["spec", "template"]).unwrap_or(&Value::Null);
    pod_warnings::of(template, "spec.template.")
}

/// Fills in the pod spec of the template.
pub(super) fn default_template(object: &mut Value) {
    pod_spec::default_template(object, &["spec", "template", "spec"]);
}

/// Rolling updates by default, with given amounts. Other strategies get none.
pub(super) fn default_rolling_update(object: &mut Value, strategy: &str, amounts: &[(&str, Value)]) {
    let Some(spec) = object.at_mut(&["spec"]).filter(|spec| spec.as_object().is_some()) else { return };
    if spec.str_at(&[strategy, "type"]).unwrap_or_default().is_empty() {
        spec.set_at(&[strategy, "type"], "RollingUpdate");
    }
    if spec.str_at(&[strategy, "type"]) != Some("RollingUpdate") {
        return;
    }
    for (key, amount) in amounts {
        if spec.at(&[strategy, "rollingUpdate", key]).is_none_or(Value::is_null) {
            spec.set_at(&[strategy, "rollingUpdate", key], amount.clone());
        }
    }
}

/// Container names, images and the selector: the wide columns.
pub(super) fn wide_cells(object: &Value) -> [Value; 3] {
    let [names, images] = cells::containers(object.at(&["spec", "template", "spec"]));
    [names, images, label_selector::cell(object.at(&["spec", "selector"]))]
}

/// `1/3`.
pub(super) fn ready(object: &Value) -> Value {
    let (ready, wanted) =
        (cells::count(object, &["status", "readyReplicas"]), cells::count(object, &["spec", "replicas"]));
    format!("{ready}/{wanted}").into()
}
