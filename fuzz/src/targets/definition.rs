//! Custom resource definitions: whatever is wrong with one is reported, in bounds, and defaults are filled in once.
//!
//! The input is a definition, or an old one, a line `---` and a new one.

use polder_machinery::crd;
use polder_machinery::schema::Schema;
use polder_model::{Value, json};

use crate::random::Random;
use crate::{generate, two_parts};

pub const WORDS: &[&str] = &[
    "\n---\n", "\"spec\":{", "\"versions\":[", "\"names\":{", "\"plural\":\"widgets\"", "\"kind\":\"Widget\"", "\"group\":\"a.example\"", "\"scope\":\"Cluster\"",
    "\"name\":\"v1\"", "\"served\":true", "\"storage\":true", "\"schema\":{\"openAPIV3Schema\":{\"type\":\"object\"}}", "\"conversion\":{\"strategy\":\"Webhook\"",
    "\"additionalPrinterColumns\":[", "\"jsonPath\":\".spec.a\"", "\"selectableFields\":[", "\"subresources\":{\"scale\":{", "\"specReplicasPath\":\".spec.replicas\"",
    "\"webhook\":{\"clientConfig\":{\"service\":{", "\"storedVersions\":[\"v1\"]", "\"caBundle\":\"!\"", "null", "{", "}", "[", "]", ",",
];

const NAMES: &[&str] = &["widgets", "Widget", "a.example", "v1", "v1beta1", ".spec.a", "string", "integer", "Webhook", "None", "Cluster", "x"];

fn schema() -> Schema {
    generate::builtin("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
}

pub fn make(random: &mut Random) -> Vec<u8> {
    let one = |random: &mut Random| {
        let mut definition = generate::of_schema(schema().node(), NAMES, 7, random);
        if !random.one_in(8) {
            definition.set_at(&["spec", "group"], "a.example");
            definition.set_at(&["spec", "names", "plural"], "widgets");
            definition.set_at(&["spec", "names", "kind"], "Widget");
            definition.set_at(&["spec", "scope"], "Cluster");
            definition.set_at(&["metadata", "name"], "widgets.a.example");
            let version = json!({
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": (generate::structural_schema(2, random))},
            });
            if random.one_in(2) {
                definition.set_at(&["spec", "versions"], vec![version]);
            }
        }
        definition
    };
    let (old, new) = (one(random), one(random));
    generate::two_documents(&old, &new)
}

pub fn run(data: &[u8]) {
    let (old, new) = two_parts(data);
    let Ok(mut old) = Value::parse(old) else { return };
    check(&mut old);
    let Ok(mut new) = Value::parse(new) else { return };
    check(&mut new);
    assert!(crd::crd_problems(&new, Some(&old)).len() <= 100);
}

fn check(definition: &mut Value) {
    crd::set_crd_defaults(definition);
    let once = definition.clone();
    crd::set_crd_defaults(definition);
    assert_eq!(*definition, once, "defaulting twice changes nothing");
    let problems = crd::crd_problems(definition, None);
    assert!(problems.len() <= 100);
    // What may be created may be updated to itself.
    if problems.is_empty() {
        assert_eq!(crd::crd_problems(definition, Some(definition)), Vec::new());
        crate::accepted();
    }
}
