//! What must hold for every kind.

use std::collections::HashSet;

use polder_auth::UserInfo;

use super::rows::{NOON, NOW, parse};
use super::*;
use crate::behavior::{Occasion, Print};

/// Objects that are nothing like what a kind expects.
const ODD: [&str; 11] = [
    "null",
    "[]",
    "1",
    "{}",
    r#"{"spec":null,"metadata":null,"status":null}"#,
    r#"{"spec":[],"rules":{},"webhooks":"x","subjects":[1],"endpoints":[null],"ports":[[]]}"#,
    r#"{"webhooks":[1],"rules":["x"],"endpoints":[{"addresses":[1]}],"spec":{"rules":[0],"devices":[]}}"#,
    r#"{"spec":{"ingress":[null],"tls":[1],"requests":{},"limited":3,"drivers":[null],"cidrs":[1,2,3]}}"#,
    r#"{"metadata":[],"spec":[],"status":7,"data":"x","subsets":{},"template":1}"#,
    r#"{"metadata":{"name":1},"spec":{"template":{"spec":[]},"ports":[1],"containers":{},"metrics":[{}],
        "selector":"x","volumes":[null],"jobTemplate":3,"limits":[1,{}],"hard":[],"schedule":"TZ=0"},
        "status":{"conditions":[1],"containerStatuses":[{}],"initContainerStatuses":[[]]}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[1,{"ports":{}},{"image":"é@"}]}}}}"#,
];

#[test]
fn kinds_are_listed_once() {
    let mut seen = HashSet::new();
    for behavior in ALL {
        assert!(seen.insert((behavior.group, behavior.resource)), "{} is there twice", behavior.resource);
        assert!(!behavior.resource.is_empty());
    }
}

#[test]
fn any_object_is_survived_and_fills_every_column() {
    for behavior in ALL {
        for new in ODD {
            for old in ODD {
                survive(behavior, parse(new), &parse(old));
            }
        }
    }
}

fn survive(behavior: &Behavior, mut object: Value, old: &Value) {
    (behavior.default)(&mut object);
    (behavior.prepare_create)(&mut object);
    (behavior.prepare_update)(&mut object, old);
    let user = UserInfo::authenticated("ann", []);
    for part in ["", "status", "approval"] {
        let occasion = Occasion { user: &user, now: NOON, part };
        (behavior.sign)(&mut object.clone(), &occasion);
        (behavior.prepare_part)(&mut object.clone(), old, &occasion);
        (behavior.validate_part)(part, &object, old, &mut Vec::new());
    }
    (behavior.validate_status)(&object, old, &mut Vec::new());
    (behavior.row_conditions)(&object);
    (behavior.validate)(&object, None, &mut Vec::new());
    (behavior.validate)(&object, Some(old), &mut Vec::new());
    (behavior.warnings)(&object);
    for (from, to) in [
        ("autoscaling/v1", "autoscaling/v2"),
        ("autoscaling/v2", "autoscaling/v1"),
        ("v1", "events.k8s.io/v1"),
        ("events.k8s.io/v1", "v1"),
    ] {
        (behavior.convert)(&mut object.clone(), from, to);
    }
    let row = (behavior.cells)(&object, &Print { now: NOW });
    assert_eq!(row.len(), behavior.columns.len(), "{} {object}", behavior.resource);
}

#[test]
fn own_kinds_have_schemas() {
    for kind in ["Plane", "Layer"] {
        assert_eq!(schema_json(kind).unwrap().str_at(&["type"]), Some("object"), "{kind}");
    }
    assert_eq!(schema_json("Pod"), None);
}
