//! What must hold for every kind.

use std::collections::HashSet;

use polder_model::Value;

use super::*;
use crate::behavior::Print;

/// Objects that are nothing like what a kind expects.
const ODD: [&str; 6] = [
    "{}",
    "null",
    r#"{"spec":null,"metadata":null,"status":null}"#,
    r#"{"spec":[],"rules":{},"webhooks":"x","subjects":[1],"endpoints":[null],"ports":[[]]}"#,
    r#"{"webhooks":[1],"rules":["x"],"endpoints":[{"addresses":[1]}],"spec":{"rules":[0],"devices":[]}}"#,
    r#"{"spec":{"ingress":[null],"tls":[1],"requests":{},"limited":3,"drivers":[null],"cidrs":[1,2,3]}}"#,
];

#[test]
fn kinds_are_listed_once() {
    let mut seen = HashSet::new();
    for behavior in ALL {
        assert!(seen.insert((behavior.group, behavior.resource)), "{behavior:?}");
        assert!(!behavior.resource.is_empty());
    }
}

#[test]
fn any_object_is_survived_and_fills_every_column() {
    for behavior in ALL {
        for odd in ODD {
            let mut object = Value::parse(odd.as_bytes()).unwrap();
            let old = object.clone();
            (behavior.default)(&mut object);
            (behavior.prepare_create)(&mut object);
            (behavior.prepare_update)(&mut object, &old);
            (behavior.validate)(&object, None, &mut Vec::new());
            (behavior.validate)(&object, Some(&old), &mut Vec::new());
            (behavior.warnings)(&object);
            let row = (behavior.cells)(&object, &Print { now: 0 });
            assert_eq!(row.len(), behavior.columns.len(), "{} {odd}", behavior.resource);
        }
    }
}

#[test]
fn own_kinds_have_schemas() {
    for kind in ["Plane", "Layer"] {
        assert_eq!(schema_json(kind).unwrap().str_at(&["type"]), Some("object"), "{kind}");
    }
    assert_eq!(schema_json("Pod"), None);
}
