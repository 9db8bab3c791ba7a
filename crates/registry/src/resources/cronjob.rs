//! Cron jobs.

use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::{cells, checks, cron, job, label_selector, pod_spec, pod_warnings, workload};
use crate::behavior::{Behavior, Column, Print};

/// Jobs get a suffix of eleven characters, and their names are labels.
const NAME_LEN_MAX: usize = 52;

pub(super) const CRONJOBS: Behavior = Behavior {
    group: "batch",
    resource: "cronjobs",
    generation: true,
    columns: &[
        Column::NAME,
        Column::text("Schedule"),
        Column::text("Timezone"),
        Column::boolean("Suspend"),
        Column::integer("Active"),
        Column::text("Last Schedule"),
        Column::AGE,
        workload::CONTAINERS,
        workload::IMAGES,
        workload::SELECTOR,
    ],
    cells,
    default: |object| {
        pod_spec::default_template(object, &["spec", "jobTemplate", "spec", "template", "spec"])
    },
    prepare_create: |object| blank_status::set(object, json!({})),
    validate,
    warnings,
    ..Behavior::PLAIN
};

fn cells(cron_job: &Value, print: &Print) -> Vec<Value> {
    let suspend = match cron_job.at(&["spec", "suspend"]).and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = cron_job.str_at(&["status", "lastScheduleTime"]);
    let [names, images] =
        cells::containers(cron_job.at(&["spec", "jobTemplate", "spec", "template", "spec"]));
    vec![
        cells::name(cron_job),
        cells::text(cron_job, &["spec", "schedule"]),
        cron_job.str_at(&["spec", "timeZone"]).unwrap_or("<none>").into(),
        suspend.into(),
        cells::len(cron_job.at(&["status", "active"])).into(),
        last.map_or_else(|| "<none>".into(), |last| cells::since(Some(last), print)).into(),
        cells::age(cron_job, print),
        names,
        images,
        label_selector::cell(cron_job.at(&["spec", "jobTemplate", "spec", "selector"])),
    ]
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::root("spec");
    let spec = new.get("spec").unwrap_or(&Value::Null);
    let old_spec = old.and_then(|old| old.get("spec"));
    validate_schedule(spec, old_spec, &path.member("schedule"), errors);
    checks::not_negative(spec, &["startingDeadlineSeconds"], &path, errors);
    if old_spec.is_none_or(|old| old.get("timeZone") != spec.get("timeZone")) {
        validate_time_zone(spec, &path.member("timeZone"), errors);
    }
    checks::one_of_required(spec, "concurrencyPolicy", &["Allow", "Forbid", "Replace"], &path, errors);
    let template_path = path.member("jobTemplate");
    let template_path = template_path.member("spec");
    let template = spec.at(&["jobTemplate", "spec"]).unwrap_or(&Value::Null);
    job::validate_spec(template, &template_path, errors);
    if let Some(selector) = checks::some(template, "selector") {
        let text = "`selector` will be auto-generated";
        errors.push(FieldError::invalid(template_path.member("selector"), selector.clone(), text));
    }
    if template.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        errors.push(FieldError::not_supported(
            template_path.member("manualSelector"),
            true,
            ["nil", "false"],
        ));
    }
    checks::not_negative(spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"], &path, errors);
    let name = new.str_at(&["metadata", "name"]).unwrap_or_default();
    if old.is_none() && name.len() > NAME_LEN_MAX {
        errors.push(FieldError::invalid("metadata.name", name, "must be no more than 52 characters"));
    }
}

fn validate_schedule(spec: &Value, old: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let schedule = checks::text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    if let Some(problem) = cron::problem(schedule) {
        errors.push(FieldError::invalid(path, schedule, problem));
    }
    let zoned = schedule.contains("TZ");
    let was_zoned = old.is_some_and(|old| checks::text(old, "schedule").contains("TZ"));
    let text = match (zoned, was_zoned) {
        (true, false) => "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
        (true, true) if checks::some(spec, "timeZone").is_some() => {
            "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        }
        _ => return,
    };
    errors.push(FieldError::invalid(path, schedule, text));
}

fn validate_time_zone(spec: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(zone) = spec.str_at(&["timeZone"]) else { return };
    let is_part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'+');
        !matches!(part, "." | "..")
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(allowed)
    };
    let text = if zone.is_empty() {
        "timeZone must be nil or non-empty string".into()
    } else if zone.split('/').all(is_part) && zone.eq_ignore_ascii_case("local") {
        "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".into()
    } else if !zone.split('/').all(is_part) || !cron::is_time_zone(zone) {
        format!("unknown time zone {zone}")
    } else {
        return;
    };
    errors.push(FieldError::invalid(path, zone, text));
}

fn warnings(cron_job: &Value) -> Vec<String> {
    let mut warnings = super::name_warning(cron_job, workload::NAMES_PODS);
    let spec = cron_job.at(&["spec", "jobTemplate", "spec"]).unwrap_or(&Value::Null);
    warnings.extend(job::large_warning(spec, "spec.jobTemplate.spec"));
    let template = spec.get("template").unwrap_or(&Value::Null);
    warnings.extend(pod_warnings::of(template, "spec.jobTemplate.spec.template."));
    if cron_job.str_at(&["spec", "schedule"]).is_some_and(|schedule| schedule.contains("TZ")) {
        warnings.push(
            "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
                .into(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses};
    use super::CRONJOBS;

    #[test]
    fn what_is_probably_not_meant() {
        let cron_job = super::super::rows::parse(
            r#"{"metadata":{"name":"a"},"spec":{"jobTemplate":{"spec":{"completionMode":"Indexed","completions":100001,"parallelism":10001,
                "template":{"spec":{"volumes":[{"name":"v","rbd":{}}]}}}}}}"#,
        );
        assert_eq!(
            (CRONJOBS.warnings)(&cron_job),
            [
                "spec.jobTemplate.spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail",
                "spec.jobTemplate.spec.template.spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+",
            ]
        );
    }

    #[test]
    fn cells() {
        prints(
            &CRONJOBS,
            r#"{"metadata":{"name":"c"},"spec":{"schedule":"* * * * *","suspend":false,"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"x","image":"i"}]}}}}},
                "status":{"active":[{},{}],"lastScheduleTime":"2025-12-31T23:59:00Z"}}"#,
            "c|* * * * *|<none>|False|2|60s|<unknown>|x|i|<none>",
        );
        prints(&CRONJOBS, r#"{"spec":{"timeZone":"Z"}}"#, "||Z|<unset>|0|<none>|<unknown>|||<none>");
    }

    #[test]
    fn default() {
        defaults(
            &CRONJOBS,
            r#"{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"image":"i:1"}]}}}}}}"#,
            r#"{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"image":"i:1","imagePullPolicy":"IfNotPresent"}]}}}}}}"#,
        );
    }

    #[test]
    fn checks() {
        let cron = |schedule: &str, more: &str, template: &str| {
            format!(
                r#"{{"spec":{{"schedule":"{schedule}"{more},"jobTemplate":{{"spec":{{{template}"template":{{"spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i"}}]}}}}}}}}}}}}"#
            )
        };
        refuses(&CRONJOBS, &cron("*/5 * * * *", r#","timeZone":"Europe/Berlin""#, ""), None, &[]);
        refuses(
            &CRONJOBS,
            &cron(
                "* * *",
                r#","timeZone":"Mars/X","concurrencyPolicy":"X""#,
                r#""manualSelector":true,"selector":{},"#,
            ),
            None,
            &[
                r#"spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]"#,
                r#"spec.timeZone: Invalid value: "Mars/X": unknown time zone Mars/X"#,
                r#"spec.concurrencyPolicy: Unsupported value: "X": supported values: "Allow", "Forbid", "Replace""#,
                "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
                r#"spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false""#,
            ],
        );
        refuses(
            &CRONJOBS,
            &cron("TZ=UTC * * * * *", "", ""),
            None,
            &[
                r#"spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead"#,
            ],
        );
        refuses(
            &CRONJOBS,
            &cron("* * * * *", r#","timeZone":"Local""#, ""),
            None,
            &[
                r#"spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"#,
            ],
        );
    }
}
