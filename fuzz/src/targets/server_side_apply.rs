//! Server-side apply on an object whose `managedFields` anybody may have written: nothing breaks, what comes out can be read
//! with suspicion, and applying the same twice changes nothing more.
//!
//! The input is a live Deployment, a line `---` and an intent.

use polder_machinery::apply::entries::{Origin, decode};
use polder_machinery::apply::{Force, Untracked, Versions, View, Writer, apply, created, updated};
use polder_model::{Value, json};

use super::json_value::check_canonical;
use crate::random::Random;
use crate::{generate, two_parts};

pub const WORDS: &[&str] = &[
    "\n---\n", "\"metadata\":{", "\"managedFields\":[{", "\"operation\":\"Apply\"", "\"operation\":\"Update\"", "\"apiVersion\":\"apps/v1\"",
    "\"fieldsType\":\"FieldsV1\"", "\"fieldsV1\":{", "\"f:spec\":{", "\"f:template\":{\"f:spec\":{\"f:containers\":{", "\"k:{\\\"name\\\":\\\"a\\\"}\":{",
    "\".\":{}", "\"manager\":\"a\"", "\"containers\":[{\"name\":\"a\"}]", "\"spec\":{", "null", "{", "}", "[", "]", ",",
];

const TYPE: &str = "io.k8s.api.apps.v1.Deployment";
const NAMES: &[&str] = &["a", "b", "app", "TCP", ""];

struct NoOthers;

impl Versions for NoOthers {
    fn view<'v>(&'v self, _object: &'v Value, _api_version: &str) -> Option<View<'v>> {
        None
    }
}

pub fn make(random: &mut Random) -> Vec<u8> {
    let schema = generate::builtin(TYPE);
    let mut object = |owned: bool| {
        let mut object = generate::of_schema(schema.node(), NAMES, 7, random);
        if object.as_object().is_none() {
            object = json!({});
        }
        object.set_at(&["apiVersion"], "apps/v1");
        object.set_at(&["kind"], "Deployment");
        object.remove_at(&["metadata", "managedFields"]);
        if owned {
            let fields = Value::parse(
                br#"{"f:spec":{".":{},"f:replicas":{},"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:image":{}}}}}}}"#,
            );
            let entry = json!({"manager": "bob", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "fieldsV1": (fields.unwrap_or_default())});
            object.set_at(&["metadata", "managedFields"], vec![entry]);
        }
        object
    };
    generate::two_documents(&object(true), &object(false))
}

pub fn run(data: &[u8]) {
    let (live, intent) = two_parts(data);
    let (Ok(live), Ok(intent)) = (Value::parse(live), Value::parse(intent)) else { return };
    if live.as_object().is_none() || intent.as_object().is_none() {
        return;
    }
    let schema = generate::builtin(TYPE);
    let untracked = Untracked::new(&[&["status"]]);
    let writer = Writer {
        manager: "bob",
        subresource: "",
        api_version: "apps/v1",
        kind: "Deployment",
        schema: schema.node(),
        now: "2026-01-01T00:00:00Z",
        untracked: &untracked,
        schema_may_change: true,
        versions: &NoOthers,
    };
    let blank = json!({});

    let mut new = intent.clone();
    updated(&Writer { manager: "kube", ..writer }, &live, &mut new);
    check_canonical(&new);
    for force in [Force::Refuse, Force::Take] {
        match apply(&writer, &live, &blank, &intent, force) {
            Ok(merged) => check_canonical(&merged),
            Err(error) => assert!(error.to_string().len() < 1 << 20),
        }
    }

    // From here on as if this program had written it all.
    let mut live = live;
    live.remove_at(&["metadata", "managedFields"]);
    created(&Writer { manager: "kube", ..writer }, &blank, &mut live);
    check_entries(&live);
    let Ok(once) = apply(&writer, &live, &blank, &intent, Force::Take) else { return };
    check_entries(&once);
    if once.at(&["metadata", "managedFields"]).is_none() {
        // Nobody owns anything: the next one to apply finds an object that somebody else made.
        return;
    }
    let twice = apply(&writer, &once, &blank, &intent, Force::Refuse);
    assert_eq!(twice.expect("nothing is in the way any more").to_string(), once.to_string());
    crate::accepted();
}

fn check_entries(object: &Value) {
    let entries = object.array_at(&["metadata", "managedFields"]).to_vec();
    let stored = decode(entries.clone(), Origin::Stored).expect("we wrote it");
    assert_eq!(decode(entries, Origin::Sent).as_ref(), Ok(&stored), "what we write has one spelling");
}
