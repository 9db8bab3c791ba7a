//! Jobs: run to completion, selected by their own UID unless the user says otherwise.

use polder_machinery::age::human_duration;
use polder_model::names::dns_label_problem;
use polder_model::{FieldError, FieldPath, Object, Value, json};

use super::{
    blank_status, cells, checks, job_policy, job_status, label_selector, pod_spec, pod_spec_rules, workload,
};
use crate::behavior::{Behavior, Column, Print, Selectable};

const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const MANAGED_BY_LEN_MAX: usize = 63;
const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];

/// More indexes than this cannot all be told of when many fail.
const COMPLETIONS_MANY: i64 = 100_000;
/// How many pods and failed indexes a job with so many may have.
const AMONG_MANY_MAX: i64 = 10_000;
const FAILED_INDEXES_MAX: i64 = 100_000;

pub(super) const JOBS: Behavior = Behavior {
    group: "batch",
    resource: "jobs",
    generation: true,
    orphans_by_default: true,
    selectable: &[Selectable {
        label: "status.successful",
        paths: &[&["status", "succeeded"]],
        missing: "0",
    }],
    columns: &[
        Column::NAME,
        Column::text("Status"),
        Column::text("Completions"),
        Column::text("Duration"),
        Column::AGE,
        workload::CONTAINERS,
        workload::IMAGES,
        workload::SELECTOR,
    ],
    cells,
    default,
    prepare_create,
    validate_status: job_status::validate,
    validate,
    warnings,
    ..Behavior::PLAIN
};

fn cells(job: &Value, print: &Print) -> Vec<Value> {
    let [names, images, selector] = workload::wide_cells(job);
    vec![
        cells::name(job),
        status(job).into(),
        completions(job).into(),
        duration(job, print).into(),
        cells::age(job, print),
        names,
        images,
        selector,
    ]
}

fn status(job: &Value) -> &'static str {
    let has = |kind: &str| cells::condition(job, kind) == Some("True");
    if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if cells::is_terminating(job) {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

fn completions(job: &Value) -> String {
    let succeeded = cells::count(job, &["status", "succeeded"]);
    match (job.i64_at(&["spec", "completions"]), cells::count(job, &["spec", "parallelism"])) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

fn duration(job: &Value, print: &Print) -> String {
    let time = |key: &str| job.str_at(&["status", key]).and_then(cells::seconds);
    match (time("startTime"), time("completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration(end.unwrap_or(print.now).saturating_sub(start)),
    }
}

fn default(job: &mut Value) {
    if let Some(spec) = job.at_mut(&["spec"]) {
        default_spec(spec);
    }
    default_labels(job);
}

/// A job without labels gets those of its pods.
fn default_labels(job: &mut Value) {
    let labels = job.at(&["spec", "template", "metadata", "labels"]).and_then(Value::as_object).cloned();
    if let Some(labels) = labels.filter(|labels| !labels.is_empty())
        && job.at(&["metadata", "labels"]).and_then(Value::as_object).is_none_or(Object::is_empty)
    {
        job.set_at(&["metadata", "labels"], labels);
    }
}

fn default_spec(spec: &mut Value) {
    pod_spec::default_template(spec, &["template", "spec"]);
    let Some(spec) = spec.as_object_mut() else { return };
    let unset = |spec: &Object, key: &str| spec.get(key).is_none_or(Value::is_null);
    if unset(spec, "completions") && unset(spec, "parallelism") {
        spec.insert("completions", 1);
    }
    if unset(spec, "parallelism") {
        spec.insert("parallelism", 1);
    }
    if unset(spec, "backoffLimit") {
        let limit = if unset(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
        spec.insert("backoffLimit", limit);
    }
    if unset(spec, "podReplacementPolicy") {
        let policy = if unset(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
        spec.insert("podReplacementPolicy", policy);
    }
}

fn is_manual(job: &Value) -> bool {
    job.at(&["spec", "manualSelector"]).and_then(Value::as_bool) == Some(true)
}

/// Labels the pods with the job's name and UID and selects by the latter.
fn prepare_create(job: &mut Value) {
    blank_status::set(job, json!({}));
    if is_manual(job) || job.get("spec").and_then(Value::as_object).is_none() {
        return;
    }
    // Labels that came from the pods follow them.
    if checks::same(job.at(&["metadata", "labels"]), job.at(&["spec", "template", "metadata", "labels"])) {
        job.remove_at(&["metadata", "labels"]);
    }
    let own = |key: &str| job.str_at(&["metadata", key]).unwrap_or_default().to_owned();
    let (name, uid) = (own("name"), own("uid"));
    let selector = [(&["spec", "selector", "matchLabels", UID_LABELS[1]][..], &uid)];
    let labels: Vec<([&str; 5], &String)> = NAME_LABELS
        .iter()
        .map(|label| (["spec", "template", "metadata", "labels", *label], &name))
        .chain(UID_LABELS.iter().map(|label| (["spec", "template", "metadata", "labels", *label], &uid)))
        .collect();
    for (path, value) in labels.iter().map(|(path, value)| (&path[..], *value)).chain(selector) {
        if job.at(path).is_none() {
            job.set_at(path, value.as_str());
        }
    }
    default_labels(job);
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    validate_generated(new, spec, errors);
    validate_spec(spec, &path, errors);
    match checks::some(spec, "selector") {
        None => errors.push(FieldError::required(path.member("selector"), "")),
        selector => label_selector::validate(selector, &path.member("selector"), errors),
    }
    workload::validate_selects(spec, &path, errors);
    if old.is_none() {
        validate_pod_names(new, errors);
    }
    if let (Some(old), Some(old_spec)) = (old, old.and_then(|old| old.get("spec"))) {
        validate_update(spec, old, old_spec, &path, errors);
    }
}

fn warnings(job: &Value) -> Vec<String> {
    let mut warnings = super::name_warning(job, workload::NAMES_PODS);
    warnings.extend(large_warning(job.get("spec").unwrap_or(&Value::Null), "spec"));
    warnings.extend(workload::template_warnings(job));
    warnings
}

/// What is said of indexed jobs whose failures may be too many to tell.
pub(super) fn large_warning(spec: &Value, path: &str) -> Option<String> {
    let number = |key: &str| spec.get(key).and_then(Value::as_i64).unwrap_or_default();
    let large = spec.str_at(&["completionMode"]) == Some("Indexed")
        && number("completions") > COMPLETIONS_MANY
        && number("parallelism") > AMONG_MANY_MAX;
    large.then(|| {
        format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        )
    })
}

fn validate_generated(job: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    if is_manual(job) || checks::some(spec, "selector").is_none() {
        return;
    }
    let own = |key: &str| job.str_at(&["metadata", key]).unwrap_or_default();
    if own("uid").is_empty() {
        errors.push(FieldError::required("metadata.uid", ""));
    }
    let labels = spec.at(&["template", "metadata", "labels"]);
    let expected: Object = [
        (UID_LABELS[0], own("uid")),
        (NAME_LABELS[0], own("name")),
        (UID_LABELS[1], own("uid")),
        (NAME_LABELS[1], own("name")),
    ]
    .into_iter()
    .map(|(label, value)| {
        let path = format!("spec.template.metadata.labels[{label}]");
        let text = format!("must be '{value}'");
        match labels.and_then(|labels| labels.get(label)).and_then(Value::as_str) {
            None => errors.push(FieldError::required(path, text)),
            Some(actual) if actual != value => {
                errors.push(FieldError::invalid(path, labels.cloned().unwrap_or_default(), text));
            }
            Some(_) => {}
        }
        (label.into(), value.into())
    })
    .collect();
    let selector = spec.get("selector");
    if label_selector::format(selector).is_some()
        && !label_selector::matches(selector, Some(&Value::Object(expected)))
    {
        let value = selector.cloned().unwrap_or_default();
        errors.push(FieldError::invalid("spec.selector", value, "`selector` not auto-generated"));
    }
}

/// Checks a job's spec without its selector, also in templates of cron jobs.
pub(super) fn validate_spec(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let numbers = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    checks::not_negative(spec, &numbers, path, errors);
    let number = |key: &str| spec.get(key).and_then(Value::as_i64);
    if number("maxFailedIndexes").is_some() && number("backoffLimitPerIndex").is_none() {
        let text = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(path.member("backoffLimitPerIndex"), text));
    }
    if let Some(manager) = checks::some(spec, "managedBy").and_then(Value::as_str) {
        validate_manager(manager, &path.member("managedBy"), errors);
    }
    let mode = spec.str_at(&["completionMode"]).unwrap_or("NonIndexed");
    let modes = ["NonIndexed", "Indexed"];
    if !modes.contains(&mode) {
        errors.push(FieldError::not_supported(path.member("completionMode"), mode, modes));
    }
    if mode == "Indexed" {
        if number("completions").is_none() {
            errors.push(FieldError::required(path.member("completions"), "when completion mode is Indexed"));
        }
        if let Some(parallelism) = number("parallelism").filter(|parallelism| *parallelism > 100_000) {
            let text = "must be less than or equal to 100000 when completion mode is Indexed";
            errors.push(FieldError::invalid(path.member("parallelism"), parallelism, text));
        }
        if let (Some(failed), Some(completions)) = (number("maxFailedIndexes"), number("completions"))
            && failed > completions
        {
            let text = "must be less than or equal to completions";
            errors.push(FieldError::invalid(path.member("maxFailedIndexes"), failed, text));
        }
        if let Some(failed) = number("maxFailedIndexes").filter(|failed| *failed > FAILED_INDEXES_MAX) {
            let text = format!("must be less than or equal to {FAILED_INDEXES_MAX}");
            errors.push(FieldError::invalid(path.member("maxFailedIndexes"), failed, text));
        }
        if number("completions").is_some_and(|completions| completions > COMPLETIONS_MANY)
            && number("backoffLimitPerIndex").is_some()
        {
            validate_many(spec, path, errors);
        }
    } else {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if let Some(value) = number(key) {
                errors.push(FieldError::invalid(path.member(key), value, "requires indexed completion mode"));
            }
        }
    }
    job_policy::validate_failure(spec, &path.member("podFailurePolicy"), errors);
    if let Some(policy) = checks::some(spec, "successPolicy") {
        let path = path.member("successPolicy");
        if mode == "Indexed" {
            job_policy::validate_success(policy, number("completions").unwrap_or_default(), &path, errors);
        } else {
            errors.push(FieldError::invalid(path, policy.clone(), "requires indexed completion mode"));
        }
    }
    let fails = checks::some(spec, "podFailurePolicy").is_some();
    let policies: &[&str] = if fails { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if let Some(policy) = spec.str_at(&["podReplacementPolicy"]).filter(|policy| !policies.contains(policy)) {
        errors.push(FieldError::not_supported(path.member("podReplacementPolicy"), policy, policies));
    }
    let template = spec.get("template").unwrap_or(&Value::Null);
    let template_path = path.member("template");
    pod_spec_rules::validate_template(template, Default::default(), &template_path, errors);
    let policy_path = template_path.member("spec");
    let policy_path = policy_path.member("restartPolicy");
    match template.str_at(&["spec", "restartPolicy"]).unwrap_or_default() {
        "" | "Always" => {
            errors.push(FieldError::required(policy_path, r#"valid values: "OnFailure", "Never""#));
        }
        "Never" => {}
        "OnFailure" if !fails => {}
        "OnFailure" => errors.push(FieldError::invalid(
            policy_path,
            "OnFailure",
            r#"only "Never" is supported when podFailurePolicy is specified"#,
        )),
        other => errors.push(FieldError::not_supported(policy_path, other, ["OnFailure", "Never"])),
    }
}

/// A job of very many indexes that each may fail: what fails must stay few enough to be told.
fn validate_many(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if checks::some(spec, "maxFailedIndexes").is_none() {
        let text = format!("must be specified when completions is above {COMPLETIONS_MANY}");
        errors.push(FieldError::required(path.member("maxFailedIndexes"), text));
    }
    for key in ["parallelism", "maxFailedIndexes"] {
        if let Some(number) = spec.get(key).and_then(Value::as_i64).filter(|number| *number > AMONG_MANY_MAX)
        {
            let text = format!(
                "must be less than or equal to {AMONG_MANY_MAX} when completions are above {COMPLETIONS_MANY} and used with \
                 backoff limit per index"
            );
            errors.push(FieldError::invalid(path.member(key), number, text));
        }
    }
}

fn validate_manager(manager: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let (domain, name) = manager.split_once('/').unwrap_or_default();
    if domain.is_empty() || name.is_empty() {
        let text = r#"must be a domain-prefixed path (such as "acme.io/foo")"#;
        errors.push(FieldError::invalid(path, manager, text));
    } else {
        checks::dns_subdomain(domain, path, errors);
    }
    if manager.len() > MANAGED_BY_LEN_MAX {
        errors.push(FieldError::too_long(path, MANAGED_BY_LEN_MAX));
    }
}

/// The last pod of an indexed job is named after the job and its index, and must have a name.
fn validate_pod_names(job: &Value, errors: &mut Vec<FieldError>) {
    let name = job.str_at(&["metadata", "name"]).unwrap_or_default();
    let completions = job.i64_at(&["spec", "completions"]).unwrap_or_default();
    if job.str_at(&["spec", "completionMode"]) != Some("Indexed") || completions <= 0 {
        return;
    }
    let last = format!("{name}-{}", completions - 1);
    if dns_label_problem(&last).is_some() {
        let text = format!("will not able to create pod with invalid DNS label: {last}");
        errors.push(FieldError::invalid("metadata.name", name, text));
    }
}

fn validate_update(
    spec: &Value,
    old: &Value,
    old_spec: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    if spec.str_at(&["completionMode"]) != Some("Indexed") {
        checks::immutable(spec, old_spec, "completions", path, errors);
    } else if let Some(completions) = spec.i64_at(&["completions"])
        && spec.get("completions") != old_spec.get("completions")
        && spec.i64_at(&["parallelism"]) != Some(completions)
    {
        let text = "can only be modified in tandem with spec.parallelism";
        errors.push(FieldError::invalid(path.member("completions"), completions, text));
    }
    checks::immutable(spec, old_spec, "selector", path, errors);
    validate_template_update(spec, old, old_spec, path, errors);
    for key in ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"] {
        checks::immutable(spec, old_spec, key, path, errors);
    }
}

/// The template stays; a job that was suspended from the start may still be told where to run.
fn validate_template_update(
    spec: &Value,
    old: &Value,
    old_spec: &Value,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    let never_started = old_spec.get("suspend").and_then(Value::as_bool) == Some(true)
        && old.at(&["status", "startTime"]).is_none_or(Value::is_null);
    let mut comparable = old_spec.clone();
    if never_started {
        let free: [&[&str]; 6] = [
            &["template", "spec", "affinity", "nodeAffinity"],
            &["template", "spec", "nodeSelector"],
            &["template", "spec", "tolerations"],
            &["template", "spec", "schedulingGates"],
            &["template", "metadata", "annotations"],
            &["template", "metadata", "labels"],
        ];
        for path in free {
            match spec.at(path) {
                Some(value) => comparable.set_at(path, value.clone()),
                None => {
                    comparable.remove_at(path);
                }
            }
        }
        let affinity = ["template", "spec", "affinity"];
        if spec.at(&affinity).is_none() && checks::same(comparable.at(&affinity), None) {
            comparable.remove_at(&affinity);
        }
    }
    checks::immutable(spec, &comparable, "template", path, errors);
}

#[cfg(test)]
mod tests {
    use super::super::rows::{creates, defaults, prints, refuses};
    use super::JOBS;

    #[test]
    fn cells() {
        let rows = [
            (r#""completions":3"#, r#""succeeded":1,"startTime":"2025-12-31T23:59:00Z""#, "Running|1/3|60s"),
            (
                r#""parallelism":2"#,
                r#""startTime":"2025-12-31T23:00:00Z","completionTime":"2025-12-31T23:00:05Z","conditions":[{"type":"Complete","status":"True"}]"#,
                "Complete|0/1 of 2|5s",
            ),
            (
                "",
                r#""conditions":[{"type":"Suspended","status":"True"},{"type":"Failed","status":"False"}]"#,
                "Suspended|0/1|",
            ),
        ];
        for (spec, status, expected) in rows {
            prints(
                &JOBS,
                &format!(r#"{{"metadata":{{"name":"j"}},"spec":{{{spec}}},"status":{{{status}}}}}"#),
                &format!("j|{expected}|<unknown>|||<none>"),
            );
        }
    }

    #[test]
    fn default() {
        defaults(
            &JOBS,
            r#"{"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
            r#"{"metadata":{"labels":{"a":"b"}},"spec":{"completions":1,"parallelism":1,"backoffLimit":6,"podReplacementPolicy":"TerminatingOrFailed","template":{"metadata":{"labels":{"a":"b"}}}}}"#,
        );
        defaults(
            &JOBS,
            r#"{"spec":{"parallelism":2,"backoffLimitPerIndex":1,"podFailurePolicy":{}}}"#,
            r#"{"spec":{"parallelism":2,"backoffLimitPerIndex":1,"podFailurePolicy":{},"backoffLimit":2147483647,"podReplacementPolicy":"Failed"}}"#,
        );
    }

    #[test]
    fn selectors_are_made() {
        creates(
            &JOBS,
            r#"{"metadata":{"name":"j","uid":"u"},"spec":{"template":{"metadata":{"labels":{"a":"b"}}}}}"#,
            r#"{"metadata":{"name":"j","uid":"u","labels":{"a":"b","controller-uid":"u","batch.kubernetes.io/controller-uid":"u","job-name":"j","batch.kubernetes.io/job-name":"j"}},
                "spec":{"selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"u"}},
                "template":{"metadata":{"labels":{"a":"b","controller-uid":"u","batch.kubernetes.io/controller-uid":"u","job-name":"j","batch.kubernetes.io/job-name":"j"}}}},"status":{}}"#,
        );
        let manual = r#"{"spec":{"manualSelector":true}}"#;
        creates(&JOBS, manual, r#"{"spec":{"manualSelector":true},"status":{}}"#);
    }

    fn job(spec: &str, image: &str, policy: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"j","uid":"u"}},"spec":{{"selector":{{"matchLabels":{{"batch.kubernetes.io/controller-uid":"u"}}}}{spec},
                "template":{{"metadata":{{"labels":{{"controller-uid":"u","batch.kubernetes.io/controller-uid":"u","job-name":"j","batch.kubernetes.io/job-name":"j"}}}},
                "spec":{{"restartPolicy":"{policy}","containers":[{{"name":"c","image":"{image}"}}]}}}}}}}}"#
        )
    }

    #[test]
    fn checks() {
        refuses(&JOBS, &job("", "i", "Never"), None, &[]);
        refuses(
            &JOBS,
            &job(
                r#","completions":-1,"completionMode":"NonIndexed","backoffLimitPerIndex":1"#,
                "i",
                "Always",
            ),
            None,
            &[
                "spec.completions: Invalid value: -1: must be greater than or equal to 0",
                "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
                r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#,
            ],
        );
        refuses(
            &JOBS,
            r#"{"metadata":{"name":"j","uid":"u"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b","job-name":"x"}},
                "spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}"#,
            None,
            &[
                "spec.template.metadata.labels[controller-uid]: Required value: must be 'u'",
                r#"spec.template.metadata.labels[job-name]: Invalid value: {"a":"b","job-name":"x"}: must be 'j'"#,
                "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Required value: must be 'u'",
                "spec.template.metadata.labels[batch.kubernetes.io/job-name]: Required value: must be 'j'",
                r#"spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: `selector` not auto-generated"#,
            ],
        );
    }

    #[test]
    fn changes() {
        let old = job(r#","completions":1"#, "i", "Never");
        refuses(
            &JOBS,
            &job(r#","completions":1,"parallelism":5,"suspend":true"#, "i", "Never"),
            Some(&old),
            &[],
        );
        refuses(
            &JOBS,
            &job(r#","completions":2,"completionMode":"NonIndexed""#, "i", "Never"),
            Some(&old),
            &[
                "spec.completions: Invalid value: 2: field is immutable",
                r#"spec.completionMode: Invalid value: "NonIndexed": field is immutable"#,
            ],
        );
        let expected = r#"spec.template: Invalid value: {"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"j","controller-uid":"u","job-name":"j"}},"spec":{"containers":[{"image":"other","imagePullPolicy":"Always","name":"c"}],"restartPolicy":"Never"}}: field is immutable"#;
        refuses(&JOBS, &job(r#","completions":1"#, "other", "Never"), Some(&old), &[expected]);
    }

    #[test]
    fn many_indexes() {
        let spec = |rest: &str| job(&format!(r#","completionMode":"Indexed"{rest}"#), "i", "Never");
        refuses(&JOBS, &spec(r#","completions":100001,"parallelism":50000"#), None, &[]);
        refuses(
            &JOBS,
            &spec(r#","completions":100001,"parallelism":10001,"backoffLimitPerIndex":1"#),
            None,
            &[
                "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
                "spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
            ],
        );
        refuses(
            &JOBS,
            &spec(
                r#","completions":200000,"parallelism":1,"backoffLimitPerIndex":1,"maxFailedIndexes":100001"#,
            ),
            None,
            &[
                "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000",
                "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
            ],
        );
        let warned = |spec: &str| (JOBS.warnings)(&super::super::rows::parse(spec)).len();
        let large = r#"{"metadata":{"name":"j"},"spec":{"completionMode":"Indexed","completions":100001,"parallelism":10001}}"#;
        assert_eq!(warned(large), 1);
        assert_eq!(warned(&large.replace("10001}", "10000}")), 0);
    }

    #[test]
    fn managers_and_indexed_names() {
        let job = |name: &str, spec: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}"}},"spec":{{"manualSelector":true,"selector":{{"matchLabels":{{"a":"b"}}}},{spec}
                    "template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}"#
            )
        };
        refuses(&JOBS, &job("j", r#""managedBy":"a.b/c","#), None, &[]);
        refuses(
            &JOBS,
            &job("j", r#""managedBy":"x","#),
            None,
            &[
                r#"spec.managedBy: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")"#,
            ],
        );
        let long = "x".repeat(62);
        let indexed = r#""completionMode":"Indexed","completions":2,"#;
        let text = format!(
            r#"metadata.name: Invalid value: "{long}": will not able to create pod with invalid DNS label: {long}-1"#
        );
        refuses(&JOBS, &job(&long, indexed), None, &[&text]);
    }
}
