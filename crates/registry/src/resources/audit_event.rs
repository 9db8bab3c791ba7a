//! Audit events: what happened in a plane, as its own users read it. A resource without writes, whose objects are entries of a
//! ledger.

use std::sync::Arc;

use polder_admission::Plugins;
use polder_model::{SmolStr, Value, json};
use polder_store::Store;

use super::cells;
use super::own_kinds::parse_schema;
use crate::behavior::{Behavior, Column, Print, Selectable};
use crate::custom;
use crate::definition::ResourceDefinition;
use crate::ledger::Ledger;

const GROUP: &str = "audit.polder.dev";
const VERSION: &str = "v1alpha1";

const fn field(label: &'static str, paths: &'static [&'static [&'static str]]) -> Selectable {
    Selectable { label, paths, missing: "" }
}

pub(crate) static EVENT: Behavior = Behavior {
    group: GROUP,
    resource: "events",
    columns: &[
        Column::NAME,
        Column::text("Time"),
        Column::text("User"),
        Column::text("Verb"),
        Column::text("Object"),
        Column::integer("Code"),
        Column::text("Stage").wide(),
        Column::text("Source").wide(),
        Column::text("Agent").wide(),
    ],
    cells,
    selectable: &[
        field("auditID", &[&["auditID"]]),
        field("objectRef.apiGroup", &[&["objectRef", "apiGroup"]]),
        field("objectRef.name", &[&["objectRef", "name"]]),
        field("objectRef.namespace", &[&["objectRef", "namespace"]]),
        field("objectRef.resource", &[&["objectRef", "resource"]]),
        field("objectRef.subresource", &[&["objectRef", "subresource"]]),
        field("responseStatus.code", &[&["responseStatus", "code"]]),
        field("stage", &[&["stage"]]),
        field("user.username", &[&["user", "username"]]),
        field("verb", &[&["verb"]]),
    ],
    ..Behavior::PLAIN
};

fn cells(event: &Value, _: &Print) -> Vec<Value> {
    let text = |path: &[&str]| event.str_at(path).unwrap_or_default();
    let who = match text(&["impersonatedUser", "username"]) {
        "" => text(&["user", "username"]).to_string(),
        other => format!("{} as {other}", text(&["user", "username"])),
    };
    let lost = event.str_at(&["annotations", "audit.polder.dev/lost"]);
    let object = match lost {
        Some(lost) => format!("<{lost} events lost>"),
        None => object_text(event),
    };
    vec![
        cells::name(event),
        Value::from(text(&["stageTimestamp"])),
        Value::from(who),
        Value::from(text(&["verb"])),
        Value::from(object),
        event.at(&["responseStatus", "code"]).cloned().unwrap_or_default(),
        Value::from(text(&["stage"])),
        Value::from(event.array_at(&["sourceIPs"]).last().and_then(Value::as_str).unwrap_or_default()),
        Value::from(text(&["userAgent"])),
    ]
}

/// `deployments.apps/scale default/web`, or the path.
fn object_text(event: &Value) -> String {
    let part = |name: &str| event.str_at(&["objectRef", name]).unwrap_or_default();
    if part("resource").is_empty() {
        return event.str_at(&["requestURI"]).unwrap_or_default().to_string();
    }
    let mut out = part("resource").to_string();
    for (before, text) in [(".", part("apiGroup")), ("/", part("subresource"))] {
        if !text.is_empty() {
            out = out + before + text;
        }
    }
    match (part("namespace"), part("name")) {
        ("", "") => out,
        (namespace, "") => format!("{out} {namespace}/"),
        ("", name) => format!("{out} {name}"),
        (namespace, name) => format!("{out} {namespace}/{name}"),
    }
}

/// The resource, read from a ledger.
pub(crate) fn definition(store: &Store, ledger: Arc<dyn Ledger>) -> Arc<ResourceDefinition> {
    let crd = json!({"spec": {
        "group": GROUP, "scope": "Cluster",
        "names": {"kind": "Event", "plural": "events", "singular": "event", "listKind": "EventList"},
        "versions": [{
            "name": VERSION, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": (schema())},
        }],
    }});
    let definition = custom::own_definition(store, &Plugins::default(), &crd, &EVENT);
    let mut definition = definition.expect("our own kinds are well-formed");
    definition.versions[0].verbs = ["get", "list", "watch"].map(SmolStr::new_static).to_vec();
    definition.versions[0].columns = Vec::new();
    // Entries are made here, and go out as they are.
    definition.forms = Vec::new();
    definition.ledger = Some(ledger);
    Arc::new(definition)
}

fn schema() -> Value {
    const USER: &str = r#""type": "object", "properties": {
        "username": {"type": "string", "description": "The name."}, "uid": {"type": "string", "description": "The identifier, if there is one."},
        "groups": {"type": "array", "items": {"type": "string"}, "description": "Groups the user is in."},
        "extra": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}, "description": "What else is known of the user."}}"#;
    let text = r#"{"type": "object", "description": "Something that was asked of this plane, as it was noted at one stage. Entries are made by the server and cannot be changed.", "properties": {
        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
        "level": {"type": "string", "description": "How much was noted: Metadata, Request or RequestResponse."},
        "auditID": {"type": "string", "description": "Identifies the request; answers carry it in the header Audit-Id."},
        "stage": {"type": "string", "description": "When it was noted: RequestReceived, ResponseStarted, ResponseComplete or Panic."},
        "requestURI": {"type": "string", "description": "What was asked for, as the client wrote it, without credentials."},
        "verb": {"type": "string", "description": "What was to be done; a method in lower case for paths that are no resource."},
        "user": {"description": "Who asked.", USER},
        "impersonatedUser": {"description": "As whom they acted, if it was not themselves.", USER},
        "sourceIPs": {"type": "array", "items": {"type": "string"}, "description": "Where the request came from. The last one is where the connection came from, those before are what proxies say."},
        "userAgent": {"type": "string", "description": "The program, as it calls itself."},
        "objectRef": {"type": "object", "description": "What the request was about.", "properties": {
            "resource": {"type": "string", "description": "The resource, in the plural."}, "namespace": {"type": "string", "description": "Where the object is."},
            "name": {"type": "string", "description": "What the object is called."}, "uid": {"type": "string", "description": "The object's identifier."},
            "apiGroup": {"type": "string", "description": "The resource's group."}, "apiVersion": {"type": "string", "description": "The version that was asked for."},
            "resourceVersion": {"type": "string", "description": "The version of the object that the client sent."}, "subresource": {"type": "string", "description": "The part of the object, if it was about one."}}},
        "responseStatus": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "How it was answered.", "properties": {
            "code": {"type": "integer", "format": "int32", "description": "The HTTP status code."}}},
        "requestObject": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "What was sent, where the policy asks for it."},
        "responseObject": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "What was answered, where the policy asks for it."},
        "requestReceivedTimestamp": {"type": "string", "description": "When the request came."},
        "stageTimestamp": {"type": "string", "description": "When this was noted."},
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}, "description": "What those say who decided about the request."}}}"#;
    parse_schema(&text.replace("USER", USER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::own_kinds::check_described;

    #[test]
    fn everything_is_described() {
        check_described(&schema(), "Event");
    }

    #[test]
    fn rows() {
        for (event, expected) in [
            (
                r#"{"metadata":{"name":"1"},"verb":"patch","user":{"username":"ann"},"responseStatus":{"code":200},
                "objectRef":{"resource":"deployments","apiGroup":"apps","subresource":"scale","namespace":"a","name":"b"}}"#,
                r#"["1","","ann","patch","deployments.apps/scale a/b",200,"","",""]"#,
            ),
            (
                r#"{"metadata":{"name":"2"},"verb":"get","user":{"username":"ann"},"impersonatedUser":{"username":"bob"},
                "requestURI":"/version","sourceIPs":["1.1.1.1","2.2.2.2"]}"#,
                r#"["2","","ann as bob","get","/version",null,"","2.2.2.2",""]"#,
            ),
            (
                r#"{"metadata":{"name":"3"},"annotations":{"audit.polder.dev/lost":"7"}}"#,
                r#"["3","","","","<7 events lost>",null,"","",""]"#,
            ),
        ] {
            let event = Value::parse(event.as_bytes()).unwrap();
            assert_eq!(Value::Array(cells(&event, &Print { now: 0 })).to_string(), expected);
        }
    }
}
