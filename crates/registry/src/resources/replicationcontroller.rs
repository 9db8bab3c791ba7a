//! Replication controllers: the ancestor of replica sets, with a map for a selector.

use polder_model::{FieldError, FieldPath, Object, Value, json};

use super::blank_status;
use super::{cells, checks, label_selector, replicaset, workload};
use crate::behavior::{Behavior, Print, Selectable};

pub(super) const REPLICATIONCONTROLLERS: Behavior = Behavior {
    resource: "replicationcontrollers",
    generation: true,
    orphans_by_default: true,
    selectable: &[Selectable { label: "status.replicas", paths: &[&["status", "replicas"]], missing: "0" }],
    scale: Some(workload::SCALE),
    columns: replicaset::COLUMNS,
    cells,
    default,
    prepare_create: |object| blank_status::set(object, json!({"replicas": 0})),
    validate_status: |new, _, errors| replicaset::STATUS.validate(new, errors),
    validate,
    warnings: workload::warnings,
    ..Behavior::PLAIN
};

fn cells(controller: &Value, print: &Print) -> Vec<Value> {
    let [names, images, _] = workload::wide_cells(controller);
    replicaset::row(controller, [names, images, cells::labels(controller.at(&["spec", "selector"]))], print)
}

fn default(controller: &mut Value) {
    workload::default_template(controller);
    let labels =
        controller.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object).cloned();
    let Some(labels) = labels.filter(|labels| !labels.is_empty()) else { return };
    for path in [["spec", "selector"], ["metadata", "labels"]] {
        if controller.at(&path).and_then(Value::as_object).is_none_or(Object::is_empty) {
            controller.set_at(&path, labels.clone());
        }
    }
}

fn validate(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    checks::not_negative(spec, &["minReadySeconds"], &path, errors);
    let selector = spec.get("selector").filter(|selector| !checks::same(Some(selector), None));
    if selector.is_none() {
        errors.push(FieldError::required(path.member("selector"), ""));
    }
    checks::not_negative(spec, &["replicas"], &path, errors);
    if checks::some(spec, "template").is_none() {
        errors.push(FieldError::required(path.member("template"), ""));
        return;
    }
    let labels = spec.at(&["template", "metadata", "labels"]);
    if let Some(selector) = selector {
        let selector = json!({"matchLabels": (selector.clone())});
        if !label_selector::matches(Some(&selector), labels) {
            errors.push(FieldError::invalid(
                path.member("template").member("metadata").member("labels"),
                labels.cloned().unwrap_or_default(),
                "`selector` does not match template `labels`",
            ));
        }
    }
    workload::validate_template(spec, "ReplicationController", Default::default(), &path, errors);
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses};
    use super::REPLICATIONCONTROLLERS;

    #[test]
    fn cells() {
        prints(
            &REPLICATIONCONTROLLERS,
            r#"{"metadata":{"name":"r"},"spec":{"replicas":3,"selector":{"a":"b","c":"d"}},"status":{"replicas":2,"readyReplicas":1}}"#,
            "r|3|2|1|<unknown>|||a=b,c=d",
        );
        prints(&REPLICATIONCONTROLLERS, "{}", "|0|0|0|<unknown>|||<none>");
    }

    #[test]
    fn labels_come_from_the_template() {
        defaults(
            &REPLICATIONCONTROLLERS,
            r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
        );
    }

    #[test]
    fn checks() {
        refuses(
            &REPLICATIONCONTROLLERS,
            "{}",
            None,
            &["spec.selector: Required value", "spec.template: Required value"],
        );
        refuses(
            &REPLICATIONCONTROLLERS,
            r#"{"spec":{"selector":{"a":"c"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"OnFailure","containers":[{"name":"x","image":"i"}]}}}}"#,
            None,
            &[
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
                r#"spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported values: "Always""#,
            ],
        );
    }
}
