//! Rows of data through one function each: what a kind prints, defaults, refuses.

use polder_model::Value;

use crate::behavior::{Behavior, Print};

/// 2026-01-01T00:00:00Z.
pub(super) const NOW: i64 = 1_767_225_600;

#[track_caller]
pub(super) fn json(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Every cell of a row, `|` between them.
#[track_caller]
pub(super) fn prints(behavior: &Behavior, object: &str, expected: &str) {
    let cells = (behavior.cells)(&json(object), &Print { now: NOW });
    assert_eq!(cells.len(), behavior.columns.len(), "a cell for every column");
    let texts: Vec<String> =
        cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)).collect();
    assert_eq!(texts.join("|"), expected);
}

#[track_caller]
pub(super) fn defaults(behavior: &Behavior, before: &str, after: &str) {
    let mut object = json(before);
    (behavior.default)(&mut object);
    assert_eq!(object.to_string(), json(after).to_string());
    (behavior.default)(&mut object);
    assert_eq!(object.to_string(), json(after).to_string(), "defaults are stable");
}

#[track_caller]
pub(super) fn creates(behavior: &Behavior, before: &str, after: &str) {
    let mut object = json(before);
    (behavior.prepare_create)(&mut object);
    assert_eq!(object.to_string(), json(after).to_string());
}

#[track_caller]
pub(super) fn updates(behavior: &Behavior, new: &str, old: &str, after: &str) {
    let mut object = json(new);
    (behavior.prepare_update)(&mut object, &json(old));
    assert_eq!(object.to_string(), json(after).to_string());
}

#[track_caller]
pub(super) fn converts(behavior: &Behavior, from: &str, to: &str, before: &str, after: &str) {
    let mut object = json(before);
    (behavior.convert)(&mut object, from, to);
    assert_eq!(object.to_string(), json(after).to_string());
}

/// The errors of an object as the defaults leave it.
#[track_caller]
pub(super) fn refuses(behavior: &Behavior, new: &str, old: Option<&str>, expected: &[&str]) {
    let mut new = json(new);
    (behavior.default)(&mut new);
    let old = old.map(|old| {
        let mut old = json(old);
        (behavior.default)(&mut old);
        old
    });
    let mut errors = Vec::new();
    (behavior.validate)(&new, old.as_ref(), &mut errors);
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, expected);
}

#[test]
fn nothing_panics_on_any_shape() {
    let shapes = [
        "null",
        "[]",
        "1",
        "{}",
        r#"{"metadata":[],"spec":[],"status":7,"data":"x","subsets":{},"template":1}"#,
        r#"{"metadata":{"name":1},"spec":{"template":{"spec":[]},"ports":[1],"containers":{},"metrics":[{}],
            "selector":"x","volumes":[null],"jobTemplate":3,"limits":[1,{}],"hard":[],"schedule":"TZ=0"},
            "status":{"conditions":[1],"containerStatuses":[{}],"initContainerStatuses":[[]]}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[1,{"ports":{}},{"image":"é@"}]}}}}"#,
    ];
    for behavior in super::ALL {
        for new in shapes {
            for old in shapes {
                let mut object = json(new);
                (behavior.default)(&mut object);
                (behavior.prepare_create)(&mut object);
                (behavior.prepare_update)(&mut object, &json(old));
                let mut errors = Vec::new();
                (behavior.validate)(&object, Some(&json(old)), &mut errors);
                (behavior.validate)(&object, None, &mut errors);
                (behavior.cells)(&object, &Print { now: NOW });
                (behavior.warnings)(&object);
                for (from, to) in [
                    ("autoscaling/v1", "autoscaling/v2"),
                    ("autoscaling/v2", "autoscaling/v1"),
                    ("v1", "events.k8s.io/v1"),
                    ("events.k8s.io/v1", "v1"),
                ] {
                    (behavior.convert)(&mut object.clone(), from, to);
                }
            }
        }
    }
}

#[test]
fn a_cell_for_every_column_and_no_kind_twice() {
    let mut seen = std::collections::HashSet::new();
    for behavior in super::ALL {
        assert!(seen.insert((behavior.group, behavior.resource)), "{} is there twice", behavior.resource);
        let cells = (behavior.cells)(&json("{}"), &Print { now: NOW });
        assert_eq!(cells.len(), behavior.columns.len(), "{}", behavior.resource);
    }
}
