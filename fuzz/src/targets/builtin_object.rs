//! Objects of built-in kinds: types are fitted, unknown members dropped and defaults filled in, once.
//!
//! The input is a number that picks the kind, a newline and an object.

use polder_machinery::schema::{Schema, coerce, default, prune, required, unique};
use polder_model::{FieldPath, Value};

use super::json_value::check_canonical;
use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "\"metadata\":{", "\"name\":\"a\"", "\"labels\":{\"a\":1}", "\"spec\":{", "\"containers\":[{", "\"ports\":[{", "\"creationTimestamp\":null",
    "\"resources\":{\"limits\":{\"cpu\":1.5}}", "\"data\":{\"a\":\"YQ==\"}", "\"replicas\":1.0", "\"targetPort\":80", "null", "{", "}", "[", "]", ",", "\n", "-1", "\"\"",
];

const NAMES: &[&str] = &["a", "b", "x.io/y", "Always", "TCP", "ClusterIP", "", "10.0.0.1"];
const KINDS: [&str; 10] = [
    "io.k8s.api.core.v1.Pod",
    "io.k8s.api.core.v1.Service",
    "io.k8s.api.core.v1.ConfigMap",
    "io.k8s.api.core.v1.Secret",
    "io.k8s.api.core.v1.PersistentVolume",
    "io.k8s.api.apps.v1.Deployment",
    "io.k8s.api.apps.v1.StatefulSet",
    "io.k8s.api.batch.v1.CronJob",
    "io.k8s.api.networking.v1.Ingress",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
];

pub fn make(random: &mut Random) -> Vec<u8> {
    let number = random.below(KINDS.len());
    let schema = generate::builtin(KINDS[number]);
    let mut out = format!("{number}\n").into_bytes();
    generate::of_schema(schema.node(), NAMES, 8, random).write(&mut out);
    out
}

pub fn run(data: &[u8]) {
    let Some(line) = data.iter().position(|byte| *byte == b'\n') else { return };
    let number = std::str::from_utf8(&data[..line]).ok().and_then(|number| number.parse::<usize>().ok());
    let Some(kind) = number.and_then(|number| KINDS.get(number)) else { return };
    let Ok(mut object) = Value::parse(&data[line + 1..]) else { return };
    let schema = generate::builtin(kind);
    if !shape(&schema, &mut object) {
        return;
    }
    let once = object.clone();
    assert!(shape(&schema, &mut object), "what has its shape keeps it");
    assert_eq!(object.to_string(), once.to_string(), "shaping twice changes nothing");
    let mut errors = Vec::new();
    required::check_required(schema.node(), &object, &FieldPath::ROOT, &mut errors);
    required::check_allowed(schema.node(), &object, &FieldPath::ROOT, &mut errors);
    unique::validate_lists(schema.node(), &object, &FieldPath::ROOT, &mut errors);
    assert!(errors.iter().all(|error| !error.to_string().is_empty()));
    check_canonical(&object);
    crate::accepted();
}

/// What a write does with a document; `false` when it does not fit the types.
fn shape(schema: &Schema, object: &mut Value) -> bool {
    if let Err(error) = coerce::coerce(schema.node(), object) {
        assert!(!error.to_string().is_empty());
        return false;
    }
    let mut unknown = Vec::new();
    prune::prune(schema.node(), object, &mut unknown);
    assert!(unknown.len() <= 64);
    default::fill_defaults(schema.node(), object).is_ok()
}
