//! Stateful sets.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::pod_spec_rules::Surroundings;
use super::status_rules::Counters;
use super::{cells, checks, persistentvolumeclaim, workload};
use crate::behavior::{Behavior, Column, NameRule, Print};

/// What may change in a spec.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

const STATUS: Counters = Counters {
    not_negative: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    at_most: &[
        ("readyReplicas", "replicas", "status.replicas"),
        ("currentReplicas", "replicas", "status.replicas"),
        ("updatedReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "replicas", "status.replicas"),
        ("availableReplicas", "readyReplicas", "status.readyReplicas"),
    ],
};

pub(super) const STATEFULSETS: Behavior = Behavior {
    group: "apps",
    resource: "statefulsets",
    names: NameRule::Label,
    generation: true,
    scale: Some(workload::SCALE),
    columns: &[Column::NAME, Column::text("Ready"), Column::AGE, workload::CONTAINERS, workload::IMAGES],
    cells,
    default,
    prepare_create: |object| blank_status::set(object, json!({"replicas": 0, "availableReplicas": 0})),
    validate_status: |new, _, errors| STATUS.validate(new, errors),
    validate,
    warnings,
    ..Behavior::PLAIN
};

fn cells(set: &Value, print: &Print) -> Vec<Value> {
    let [names, images, _] = workload::wide_cells(set);
    vec![cells::name(set), workload::ready(set), cells::age(set, print), names, images]
}

fn default(set: &mut Value) {
    workload::default_template(set);
    let Some(spec) = set.at_mut(&["spec"]).filter(|spec| spec.as_object().is_some()) else { return };
    if spec.str_at(&["updateStrategy", "type"]).unwrap_or_default().is_empty() {
        spec.set_at(&["updateStrategy", "type"], "RollingUpdate");
        if spec.at(&["updateStrategy", "rollingUpdate"]).is_none_or(Value::is_null) {
            spec.set_at(&["updateStrategy", "rollingUpdate"], json!({}));
        }
    }
    // Known and not yet served, as upstream has it.
    spec.remove_at(&["updateStrategy", "rollingUpdate", "maxUnavailable"]);
    let rolling = ["updateStrategy", "rollingUpdate", "partition"];
    if spec.str_at(&["updateStrategy", "type"]) == Some("RollingUpdate")
        && spec.at(&rolling[..2]).is_some_and(|rolling| rolling.as_object().is_some())
        && spec.at(&rolling).is_none_or(Value::is_null)
    {
        spec.set_at(&rolling, 0);
    }
    for claim in spec.at_mut(&["volumeClaimTemplates"]).and_then(Value::as_array_mut).into_iter().flatten() {
        if claim.as_object().is_some() {
            claim.set_at(&["kind"], "PersistentVolumeClaim");
            claim.set_at(&["apiVersion"], "v1");
            if claim.str_at(&["status", "phase"]).unwrap_or_default().is_empty() {
                claim.set_at(&["status", "phase"], "Pending");
            }
        }
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let policy = checks::text(spec, "podManagementPolicy");
    if !["", "OrderedReady", "Parallel"].contains(&policy) {
        let text = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid(path.member("podManagementPolicy"), policy, text));
    }
    validate_strategy(spec, &path.member("updateStrategy"), errors);
    for key in ["whenDeleted", "whenScaled"] {
        if let Some(retention) = spec.get("persistentVolumeClaimRetentionPolicy") {
            let path = path.member("persistentVolumeClaimRetentionPolicy");
            checks::one_of_required(retention, key, &["Retain", "Delete"], &path, errors);
        }
    }
    let claims = spec.array_at(&["volumeClaimTemplates"]);
    if old.is_none() {
        let path = path.member("volumeClaimTemplates");
        for (index, claim) in claims.iter().enumerate() {
            let path = path.index(index);
            let claim = claim.get("spec").unwrap_or(&Value::Null);
            persistentvolumeclaim::validate_spec(claim, &path.member("spec"), errors);
        }
    }
    checks::not_negative(spec, &["replicas", "minReadySeconds"], &path, errors);
    if let Some(ordinals) = spec.get("ordinals") {
        checks::not_negative(ordinals, &["start"], &path.member("ordinals"), errors);
    }
    let service = checks::text(spec, "serviceName");
    if old.is_none() && !service.is_empty() {
        checks::dns_label(service, &path.member("serviceName"), errors);
    }
    workload::validate_selector(spec, "statefulset", &path, errors);
    let around = Surroundings { claim_templates: claims, names_hosts: true, is_pod: false };
    workload::validate_selected_template(spec, "StatefulSet", "", around, &path, errors);
    if let Some(old) = old.and_then(|old| old.get("spec")) {
        validate_update(spec, old, &path, errors);
    }
}

fn validate_update(new: &Value, old: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let members = |spec: &Value| spec.as_object().map(|spec| spec.keys().cloned().collect::<Vec<_>>());
    let mut keys = members(new).unwrap_or_default();
    keys.extend(members(old).unwrap_or_default());
    let changed =
        keys.iter().any(|key| !MUTABLE.contains(&key.as_str()) && !checks::same(new.get(key), old.get(key)));
    if changed {
        errors.push(FieldError::forbidden(
            path,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

fn validate_strategy(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(strategy) = spec.get("updateStrategy") else { return };
    let rolling = checks::some(strategy, "rollingUpdate");
    let rolling_path = path.member("rollingUpdate");
    match (checks::text(strategy, "type"), rolling) {
        ("OnDelete", Some(rolling)) => errors.push(FieldError::invalid(
            rolling_path,
            rolling.clone(),
            "only allowed for updateStrategy 'RollingUpdate'",
        )),
        ("RollingUpdate", Some(rolling)) => {
            checks::not_negative(rolling, &["partition"], &rolling_path, errors);
            let unavailable = checks::some(rolling, "maxUnavailable");
            let unavailable_path = rolling_path.member("maxUnavailable");
            checks::positive_int_or_percent(unavailable, &unavailable_path, errors);
            if let Some(value) = unavailable.filter(|value| checks::int_or_percent(Some(value)) == 0) {
                errors.push(FieldError::invalid(unavailable_path, value.clone(), "cannot be 0"));
            }
            checks::at_most_100_percent(unavailable, &unavailable_path, errors);
        }
        ("OnDelete" | "RollingUpdate", None) => {}
        _ => {
            errors.push(FieldError::invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'"))
        }
    }
}

fn warnings(set: &Value) -> Vec<String> {
    let mut warnings = workload::template_warnings(set);
    if set.i64_at(&["spec", "revisionHistoryLimit"]).is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .into(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses};
    use super::STATEFULSETS;

    #[test]
    fn cells() {
        prints(
            &STATEFULSETS,
            r#"{"metadata":{"name":"s"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}},"status":{"readyReplicas":2}}"#,
            "s|2/3|<unknown>|c|i",
        );
    }

    #[test]
    fn default() {
        defaults(
            &STATEFULSETS,
            r#"{"spec":{"volumeClaimTemplates":[{"metadata":{"name":"c"}}]}}"#,
            r#"{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},
                "volumeClaimTemplates":[{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"c"},"status":{"phase":"Pending"}}]}}"#,
        );
        let explicit = r#"{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}"#;
        defaults(&STATEFULSETS, explicit, explicit);
    }

    #[test]
    fn checks() {
        let set = |more: &str| {
            format!(
                r#"{{"spec":{{"selector":{{"matchLabels":{{"a":"b"}}}},"volumeClaimTemplates":[{{"metadata":{{"name":"v"}},"spec":{{"accessModes":["ReadWriteOnce"],"resources":{{"requests":{{"storage":"1Gi"}}}}}}}}],
                "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"x","image":"i","volumeMounts":[{{"name":"v","mountPath":"/v"}}]}}]}}}}{more}}}}}"#
            )
        };
        refuses(&STATEFULSETS, &set(""), None, &[]);
        refuses(&STATEFULSETS, &set(r#","replicas":5,"minReadySeconds":1"#), Some(&set("")), &[]);
        refuses(
            &STATEFULSETS,
            &set(r#","serviceName":"other""#),
            Some(&set("")),
            &[
                "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
             forbidden",
            ],
        );
        refuses(
            &STATEFULSETS,
            r#"{"spec":{"selector":{},"podManagementPolicy":"X","updateStrategy":{"type":"OnDelete","rollingUpdate":{}},"volumeClaimTemplates":[{}],
                "template":{"spec":{"containers":[{"name":"x","image":"i"}]}}}}"#,
            None,
            &[
                r#"spec.podManagementPolicy: Invalid value: "X": must be 'OrderedReady' or 'Parallel'"#,
                "spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
                "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
                "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
                "spec.selector: Invalid value: {}: empty selector is invalid for statefulset",
            ],
        );
    }
}
