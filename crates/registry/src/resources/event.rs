//! Events: one storage for two APIs, kept in the shape of core/v1.

use polder_model::{FieldError, FieldPath, Value};

use super::{cells, checks};
use crate::behavior::{Behavior, Column, NameRule, Print, Selectable};

const CORE: &str = "v1";
const GROUPED: &str = "events.k8s.io/v1";

/// Names of the same field: in core/v1, in events.k8s.io/v1.
const RENAMED: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// What the newer API does not let change.
const FIXED: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

const fn stored(label: &'static str, paths: &'static [&'static [&'static str]]) -> Selectable {
    Selectable { label, paths, missing: "" }
}

pub(super) const EVENTS: Behavior = Behavior {
    resource: "events",
    names: NameRule::PathSegment,
    create_on_update: true,
    selectable: &[
        stored("involvedObject.kind", &[&["involvedObject", "kind"]]),
        stored("involvedObject.namespace", &[&["involvedObject", "namespace"]]),
        stored("involvedObject.name", &[&["involvedObject", "name"]]),
        stored("involvedObject.uid", &[&["involvedObject", "uid"]]),
        stored("involvedObject.apiVersion", &[&["involvedObject", "apiVersion"]]),
        stored("involvedObject.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
        stored("involvedObject.fieldPath", &[&["involvedObject", "fieldPath"]]),
        stored("reason", &[&["reason"]]),
        stored("reportingComponent", &[&["reportingComponent"]]),
        stored("source", &[&["source", "component"], &["reportingComponent"]]),
        stored("type", &[&["type"]]),
    ],
    columns: &[
        Column::text("Last Seen"),
        Column::text("Type"),
        Column::text("Reason"),
        Column::text("Object"),
        Column::text("Subobject").wide(),
        Column::text("Source").wide(),
        Column::text("Message"),
        Column::text("First Seen").wide(),
        Column::text("Count").wide(),
        Column { name: "Name", kind: "string", format: "name", wide: true },
    ],
    cells: event_cells,
    validate: |new, _, errors| validate_common(new, "reportingComponent", errors),
    convert,
    ..Behavior::PLAIN
};

pub(super) const EVENTS_K8S_IO: Behavior = Behavior {
    group: "events.k8s.io",
    names: NameRule::Subdomain,
    selectable: &[
        stored("regarding.kind", &[&["involvedObject", "kind"]]),
        stored("regarding.namespace", &[&["involvedObject", "namespace"]]),
        stored("regarding.name", &[&["involvedObject", "name"]]),
        stored("regarding.uid", &[&["involvedObject", "uid"]]),
        stored("regarding.apiVersion", &[&["involvedObject", "apiVersion"]]),
        stored("regarding.resourceVersion", &[&["involvedObject", "resourceVersion"]]),
        stored("regarding.fieldPath", &[&["involvedObject", "fieldPath"]]),
        stored("reason", &[&["reason"]]),
        stored("reportingController", &[&["reportingComponent"]]),
        stored("type", &[&["type"]]),
    ],
    cells: |event, print| {
        let mut event = event.clone();
        convert(&mut event, GROUPED, CORE);
        event_cells(&event, print)
    },
    validate: validate_grouped,
    ..EVENTS
};

fn event_cells(event: &Value, print: &Print) -> Vec<Value> {
    let since = |path: &[&str]| event.str_at(path).map(|timestamp| cells::since(Some(timestamp), print));
    let first =
        since(&["firstTimestamp"]).or_else(|| since(&["eventTime"])).unwrap_or_else(|| "<unknown>".into());
    let mut last = since(&["lastTimestamp"]).unwrap_or_else(|| first.clone());
    let mut count = cells::count(event, &["count"]).max(1);
    if let Some(series) = event.get("series").filter(|series| !series.is_null()) {
        last = cells::since(series.str_at(&["lastObservedTime"]), print);
        count = cells::count(series, &["count"]);
    }
    let kind = event.str_at(&["involvedObject", "kind"]).unwrap_or_default().to_lowercase();
    let object = match cells::text_or(event, &["involvedObject", "name"], "") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    vec![
        last.into(),
        cells::text(event, &["type"]),
        cells::text(event, &["reason"]),
        object.into(),
        cells::text(event, &["involvedObject", "fieldPath"]),
        source(event).into(),
        checks::text(event, "message").trim().into(),
        first.into(),
        count.into(),
        cells::name(event),
    ]
}

fn source(event: &Value) -> String {
    let component =
        cells::text_or(event, &["source", "component"], checks::text(event, "reportingComponent"));
    match cells::text_or(event, &["source", "host"], checks::text(event, "reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}

fn validate_common(event: &Value, reporter: &str, errors: &mut Vec<FieldError>) {
    let namespace = event.str_at(&["metadata", "namespace"]).unwrap_or_default();
    let involved = event.str_at(&["involvedObject", "namespace"]).unwrap_or_default();
    let old_style = event.get("eventTime").is_none_or(Value::is_null);
    let agree = match (old_style, involved) {
        (true, "") => matches!(namespace, "" | "default"),
        (true, involved) => involved == namespace,
        (false, "") => matches!(namespace, "default" | "kube-system"),
        (false, _) => true,
    };
    if !agree {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            involved,
            "does not match event.namespace",
        ));
    }
    if old_style {
        return;
    }
    let component = checks::text(event, "reportingComponent");
    if component.is_empty() {
        errors.push(FieldError::required(reporter, ""));
    }
    checks::qualified_name(component, &FieldPath::root(reporter), errors);
    let mut length = |key: &str, max: usize, required: bool| {
        let text = checks::text(event, key);
        if required && text.is_empty() {
            errors.push(FieldError::required(key, ""));
        }
        if text.len() > max {
            errors.push(FieldError::invalid(key, "", format!("can have at most {max} characters")));
        }
    };
    length("reportingInstance", 128, true);
    length("action", 128, true);
    length("reason", 128, true);
    length("message", 1024, false);
}

/// The newer API checks more. Objects come in either shape.
fn validate_grouped(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut event = new.clone();
    convert(&mut event, GROUPED, CORE);
    validate_common(&event, "reportingController", errors);
    if let Some(old) = old {
        let mut old = old.clone();
        convert(&mut old, GROUPED, CORE);
        // None of these is a pointer: what is empty is not there.
        let is_zero = |value: Option<&Value>| match value {
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Int(number)) => *number == 0,
            other => other.is_none_or(Value::is_null),
        };
        for key in FIXED {
            if !(is_zero(event.get(key)) && is_zero(old.get(key))) {
                checks::immutable(&event, &old, key, &FieldPath::ROOT, errors);
            }
        }
        return;
    }
    if let Some(series) = checks::some(&event, "series") {
        if series.i64_at(&["count"]).unwrap_or_default() < 2 {
            errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
        }
        if checks::some(series, "lastObservedTime").is_none() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    if event.get("eventTime").is_none_or(Value::is_null) {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = checks::text(&event, "type");
    if !["Normal", "Warning"].contains(&kind) {
        errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
    }
    let count = event.get("count").and_then(Value::as_i64).unwrap_or_default() != 0;
    let source = ["component", "host"]
        .iter()
        .any(|key| event.str_at(&["source", key]).is_some_and(|value| !value.is_empty()));
    let unset = [
        ("firstTimestamp", checks::some(&event, "firstTimestamp").is_some()),
        ("lastTimestamp", checks::some(&event, "lastTimestamp").is_some()),
        ("count", count),
        ("source", source),
    ];
    for (key, set) in unset {
        if set {
            errors.push(FieldError::invalid(key, "", "needs to be unset"));
        }
    }
}

fn convert(event: &mut Value, from: &str, to: &str) {
    let Some(event) = event.as_object_mut() else { return };
    for (core, grouped) in RENAMED {
        let (old, new) = match (from, to) {
            (CORE, GROUPED) => (core, grouped),
            (GROUPED, CORE) => (grouped, core),
            _ => return,
        };
        if let Some(value) = event.remove(old) {
            event.insert(new, value);
        }
    }
    if event.contains_key("apiVersion") {
        event.insert("apiVersion", to);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{converts, prints, refuses};
    use super::{EVENTS, EVENTS_K8S_IO};

    #[test]
    fn cells() {
        prints(
            &EVENTS,
            r#"{"metadata":{"name":"e"},"firstTimestamp":"2025-12-31T23:00:00Z","lastTimestamp":"2025-12-31T23:59:30Z","count":3,"type":"Normal",
                "reason":"R","message":" m\n","involvedObject":{"kind":"Pod","name":"p","fieldPath":"f"},"source":{"component":"c","host":"h"}}"#,
            "30s|Normal|R|pod/p|f|c, h|m|60m|3|e",
        );
        prints(
            &EVENTS,
            r#"{"metadata":{"name":"e"},"eventTime":"2025-12-31T23:59:00.123456Z","firstTimestamp":null,"series":{"count":7,"lastObservedTime":"2025-12-31T23:59:58.000000Z"},
                "involvedObject":{"kind":"Node"},"reportingComponent":"c"}"#,
            "2s|||node||c||60s|7|e",
        );
        prints(&EVENTS, "{}", "<unknown>||||||||1|".replacen("||||||||", "|||||||<unknown>|", 1).as_str());
    }

    #[test]
    fn the_newer_shape_prints_the_same_and_stays() {
        let event = |note: &str| {
            format!(
                r#"{{"metadata":{{"name":"e","namespace":"n"}},"eventTime":"2025-12-31T23:59:00.000000Z","regarding":{{"kind":"Pod","name":"p","namespace":"n"}},
                    "note":"{note}","type":"Normal","reason":"r","reportingController":"c","reportingInstance":"i","action":"a"}}"#
            )
        };
        prints(&EVENTS_K8S_IO, &event("m"), "60s|Normal|r|pod/p||c, i|m|60s|1|e");
        refuses(&EVENTS_K8S_IO, &event("m"), Some(&event("m")), &[]);
        let text = r#"message: Invalid value: "z": field is immutable"#;
        refuses(&EVENTS_K8S_IO, &event("z"), Some(&event("m")), &[text]);
        let series = event("m").replacen("\"note\"", "\"series\":{\"count\":1},\"note\"", 1);
        refuses(
            &EVENTS_K8S_IO,
            &series,
            None,
            &[
                r#"series.count: Invalid value: "": should be at least 2"#,
                "series.lastObservedTime: Required value",
            ],
        );
    }

    #[test]
    fn two_shapes() {
        let core = r#"{"apiVersion":"v1","involvedObject":{"name":"x"},"message":"m","source":{"host":"h"},"firstTimestamp":"a","lastTimestamp":"b","count":2,"reportingComponent":"c","reason":"r"}"#;
        let grouped = r#"{"apiVersion":"events.k8s.io/v1","regarding":{"name":"x"},"note":"m","deprecatedSource":{"host":"h"},"deprecatedFirstTimestamp":"a","deprecatedLastTimestamp":"b","deprecatedCount":2,"reportingController":"c","reason":"r"}"#;
        converts(&EVENTS, "v1", "events.k8s.io/v1", core, grouped);
        converts(&EVENTS_K8S_IO, "events.k8s.io/v1", "v1", grouped, core);
    }

    #[test]
    fn checks() {
        refuses(&EVENTS, r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"n"}}"#, None, &[]);
        refuses(
            &EVENTS,
            r#"{"metadata":{"namespace":"n"},"involvedObject":{"namespace":"m"}}"#,
            None,
            &[r#"involvedObject.namespace: Invalid value: "m": does not match event.namespace"#],
        );
        refuses(
            &EVENTS_K8S_IO,
            r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"n"},"deprecatedCount":1}"#,
            None,
            &[
                "eventTime: Required value",
                r#"type: Invalid value: "": has invalid value: "#,
                r#"count: Invalid value: "": needs to be unset"#,
            ],
        );
        refuses(
            &EVENTS_K8S_IO,
            r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"n"},"eventTime":"2026-01-01T00:00:00.000000Z","type":"Normal","reportingController":"c","reason":"r"}"#,
            None,
            &["reportingInstance: Required value", "action: Required value"],
        );
        refuses(
            &EVENTS_K8S_IO,
            r#"{"metadata":{"namespace":"n"},"regarding":{"namespace":"n"},"eventTime":"2026-01-01T00:00:00.000000Z","type":"Normal","reportingInstance":"i","action":"a","reason":"r"}"#,
            None,
            &[
                "reportingController: Required value",
                r#"reportingController: Invalid value: "": name part must be non-empty"#,
                r#"reportingController: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            ],
        );
    }
}
