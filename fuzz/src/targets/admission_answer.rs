//! What an admission webhook answers: it is read or refused, what is passed on is bounded, and its patch applies to an object or
//! does not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_admission::{ReviewVersion, read_answer};
use polder_machinery::patch::apply_json_patch;
use polder_model::{Value, json};

use super::json_value::check_canonical;
use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "\"response\":{", "\"uid\":\"u\"", "\"allowed\":true", "\"allowed\":false", "\"patch\":\"W10=\"", "\"patchType\":\"JSONPatch\"",
    "\"warnings\":[\"w\"]", "\"auditAnnotations\":{\"a\":\"b\"}", "\"status\":{\"code\":403,\"message\":\"no\"}", "\"details\":{\"causes\":[{",
    "\"kind\":\"AdmissionReview\"", "\"apiVersion\":\"admission.k8s.io/v1\"", "null", "{", "}", "[", "]", ",",
];

const OBJECT: &[u8] = br#"{"metadata":{"name":"a","labels":{"b":"c"}},"data":{"k":"v"},"list":[1,{"x":[]},null]}"#;
const PATHS: &[&str] = &["/data", "/data/k", "/list/0", "/list/-", "/metadata/labels", "", "/list/1/x/0", "/~1", "/none/below"];

pub fn make(random: &mut Random) -> Vec<u8> {
    let operations: Vec<Value> = (0..random.below(4))
        .map(|_| {
            let op = *random.pick(&["add", "remove", "replace", "move", "copy", "test"]);
            let (path, from) = (*random.pick(PATHS), *random.pick(PATHS));
            json!({"op": op, "path": path, "from": from, "value": (generate::json(&["k", "v"], 2, random))})
        })
        .collect();
    let patch = STANDARD.encode(Value::from(operations).to_vec());
    let mut response = json!({"uid": "u", "allowed": (random.below(4) > 0), "patch": patch, "patchType": "JSONPatch"});
    for field in ["warnings", "status", "auditAnnotations", "patch"] {
        if random.below(4) == 0 {
            response.set_at(&[field], generate::json(&["message", "code", "reason", "details", "causes"], 3, random));
        }
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}).to_vec()
}

pub fn run(data: &[u8]) {
    for version in [ReviewVersion::V1, ReviewVersion::V1beta1] {
        for mutating in [true, false] {
            let Ok(accepted) = read_answer("w.example.com", version, mutating, "u", data) else { continue };
            assert!(accepted.warnings.len() <= 16 && accepted.annotations.len() <= 16);
            assert!(mutating || accepted.patch.is_empty(), "who only judges changes nothing");
            if let Some(status) = &accepted.refusal {
                assert!((400..600).contains(&status.code));
                check_canonical(&status.to_value());
            }
            let Ok(patch) = Value::parse(&accepted.patch) else { continue };
            let object = Value::parse(OBJECT).unwrap_or_default();
            if let Ok(patched) = apply_json_patch(object, &patch) {
                check_canonical(&patched);
                crate::accepted();
            }
        }
    }
}
