//! Entries: what counts as one, what clients may do to them, times, order and folding.

use super::*;
use crate::apply::entries::{encode, fold_old_updates};

const SCHEMA: &str = r#"{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}}}"#;

fn entry(manager: &str, version: &str, time: u32, fields: &str) -> Entry {
    let paths: Vec<Vec<&str>> = fields.split_whitespace().map(|field| vec![field]).collect();
    Entry {
        manager: manager.into(),
        operation: Operation::Update,
        api_version: version.into(),
        time: Some(format!("2026-01-01T{time:02}:00:00Z").into()),
        subresource: SmolStr::default(),
        fields: FieldSet::of_fields(paths.iter().map(Vec::as_slice)),
    }
}

/// `manager version time fields..., manager ...`
fn entries(text: &str) -> Vec<Entry> {
    let one = |text: &str| {
        let mut words = text.trim().splitn(4, ' ');
        let mut word = || words.next().unwrap();
        entry(word(), word(), word().parse().unwrap(), word())
    };
    text.split(',').map(one).collect()
}

#[test]
fn old_updates_are_folded() {
    #[track_caller]
    fn check(before: &str, after: &str) {
        let mut folded = entries(before);
        fold_old_updates(&mut folded, 3);
        assert_eq!(encode(folded.clone()), encode(entries(after)));
        fold_old_updates(&mut folded, 3);
        assert_eq!(encode(folded), encode(entries(after)), "again");
    }
    check("m1 v1 1 a, m2 v1 2 b, m3 v1 3 c", "m1 v1 1 a, m2 v1 2 b, m3 v1 3 c");
    check("m1 v1 1 a, m2 v1 2 b, m3 v1 3 c, m4 v1 4 d", "ancient-changes v1 2 a b, m3 v1 3 c, m4 v1 4 d");
    check(
        "ancient-changes v1 2 a b, m3 v1 3 c, m4 v1 4 d, m5 v1 5 e",
        "ancient-changes v1 3 a b c, m4 v1 4 d, m5 v1 5 e",
    );
    check(
        "m1 v1 1 a, m2 v2 2 b, m3 v1 3 c, m4 v1 4 d, m5 v1 5 e",
        "m2 v2 2 b, ancient-changes v1 4 a c d, m5 v1 5 e",
    );
    check(
        "m2 v2 2 b, ancient-changes v1 4 a c d, m5 v1 5 e, m6 v3 6 f, m7 v2 7 g",
        "ancient-changes v1 5 a c d e, m6 v3 6 f, ancient-changes v2 7 b g",
    );
    check(
        "ancient-changes v1 5 a, m6 v3 6 f, ancient-changes v2 7 b, m8 v4 8 h",
        "ancient-changes v1 5 a, m6 v3 6 f, ancient-changes v2 7 b, m8 v4 8 h",
    );
}

#[test]
fn entries_are_sorted() {
    let mut apply = entries("b v1 1 a, a v1 1 a, a v1 2 a");
    apply.iter_mut().for_each(|entry| entry.operation = Operation::Apply);
    apply[2].time = None;
    let mut all = entries("z v1 0 a, a v2 3 a, a v1 3 a");
    all.extend(apply);
    let sorted = encode(all).unwrap();
    let shown: Vec<String> = sorted
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let text = |name: &str| entry.str_at(&[name]).unwrap_or("-").to_string();
            format!("{} {} {} {}", text("operation"), text("time"), text("manager"), text("apiVersion"))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "Apply - a v1",
            "Apply 2026-01-01T01:00:00Z a v1",
            "Apply 2026-01-01T01:00:00Z b v1",
            "Update 2026-01-01T00:00:00Z z v1",
            "Update 2026-01-01T03:00:00Z a v1",
            "Update 2026-01-01T03:00:00Z a v2",
        ]
    );
    assert_eq!(encode(Vec::new()), None);
}

#[test]
fn what_is_no_entry() {
    let good = r#"{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:a":{}}}"#;
    #[track_caller]
    fn check(entry: &str, expected: &str) {
        let entries = vec![Value::parse(entry.as_bytes()).unwrap()];
        assert_eq!(decode(entries, Origin::Sent).unwrap_err().to_string(), expected);
    }
    assert!(decode(vec![Value::parse(good.as_bytes()).unwrap()], Origin::Sent).is_ok());
    check("1", "managed fields entry 0 is no object");
    check(&good.replace("Update", "update"), "operation must be `Apply` or `Update`");
    check(&good.replace("v1\",", "\","), "apiVersion must not be empty");
    check(&good.replace("FieldsV1\"", "\""), "missing fieldsType in managed fields entry 0");
    check(
        &good.replace("FieldsV1\"", "FieldsV2\""),
        "invalid fieldsType \"FieldsV2\" in managed fields entry 0",
    );
    check(
        &good.replace("f:a", "a"),
        "error decoding set: parsing key as path element: key must be 2 characters long:",
    );
}

/// One update of an object that bob applied; what its entries are then.
#[track_caller]
fn after_update(manager: &str, fields: &str, sent: Option<&str>, expected: &str) {
    let mut world = World::new(SCHEMA, &[]);
    world.apply("bob", &object("{a: 1, b: 1}"), Force::Refuse).unwrap();
    let mut new = object(fields);
    if let Some(sent) = sent {
        new.set_at(&["metadata", "managedFields"], Value::parse(sent.as_bytes()).unwrap());
    }
    world.update(manager, new);
    let shown: Vec<String> = world
        .entries()
        .iter()
        .map(|entry| {
            let time = entry.time.as_deref().map_or("-", |time| &time[17..19]);
            let fields = entry.fields.paths().join(" ");
            format!("{}{} {time} {fields}", entry.manager, entry.subresource)
        })
        .collect();
    assert_eq!(shown.join(", "), expected);
}

#[test]
fn clients_may_give_up_but_not_claim() {
    let amy = r#"[{"manager":"amy","operation":"Update","apiVersion":"test.dev/v1","fieldsType":"FieldsV1",
        "fieldsV1":{"f:a":{}},"time":"2020-01-01T00:00:33Z"}]"#;
    // Nothing said: nothing lost.
    after_update("kube", "{a: 1, b: 1}", None, "bob 01 .a .b");
    after_update("kube", "{a: 1, b: 2}", None, "bob 01 .a, kube 02 .b");
    // Thrown away, in both ways; the write itself is then not noted either.
    after_update("kube", "{a: 1, b: 2}", Some("[]"), "");
    after_update("kube", "{a: 1, b: 2}", Some("[{}]"), "");
    // Not understood: as if nothing was said.
    after_update("kube", "{a: 1, b: 2}", Some("[{}, {}]"), "bob 01 .a, kube 02 .b");
    after_update("kube", "{a: 1, b: 2}", Some(r#"[{"manager":"x"}]"#), "bob 01 .a, kube 02 .b");
    after_update("kube", "{a: 1, b: 2}", Some(&amy.replace("f:a", "nonsense")), "bob 01 .a, kube 02 .b");
    // Understood: replaced, as far as this write does not say otherwise.
    after_update("kube", "{a: 1, b: 1}", Some(amy), "amy 33 .a");
    after_update("kube", "{a: 2, b: 1}", Some(amy), "kube 02 .a");
    // Not through a subresource.
    after_update("kube/status", "{a: 1, b: 1}", Some(amy), "bob 01 .a .b");
    after_update("kube/status", "{a: 1, b: 1}", Some("[]"), "bob 01 .a .b");
    // Of a version that is gone.
    after_update(
        "kube",
        "{a: 1, b: 2, c: 1}",
        Some(&amy.replace("test.dev/v1", "test.dev/v0")),
        "kube 02 .b .c",
    );
}

#[test]
fn times_tell_of_changes() {
    let mut world = World::new(SCHEMA, &[]);
    let times = |world: &mut World, operation: &str, manager: &str, fields: &str| {
        check_in(world, &format!("{operation} {manager} {fields}"));
        let time = |entry: &Entry| entry.time.as_deref().map_or("-", |time| &time[17..19]).to_string();
        let entries = world.entries();
        entries
            .iter()
            .map(|entry| format!("{} {}", entry.manager, time(entry)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(times(&mut world, "apply", "bob", "{a: 1}"), "bob 01");
    assert_eq!(times(&mut world, "apply", "bob", "{a: 1}"), "bob 01", "no effect, no time");
    assert_eq!(times(&mut world, "update", "kube", "{a: 1}"), "bob 01");
    assert_eq!(times(&mut world, "update", "kube", "{a: 1, b: 1}"), "bob 01, kube 04");
    assert_eq!(times(&mut world, "update", "kube", "{a: 1, b: 2}"), "bob 01, kube 05");
    assert_eq!(
        times(&mut world, "apply", "amy", "{b: 2}"),
        "amy -, bob 01, kube 05",
        "shared, nothing changed"
    );
    assert_eq!(times(&mut world, "force", "bob", "{a: 1, b: 3}"), "bob 07");
}

#[test]
fn a_write_without_effect_keeps_its_times() {
    #[track_caller]
    fn check(change: impl Fn(&mut Value), keeps: bool) {
        let mut world = World::new(SCHEMA, &[]);
        world.apply("bob", &object("{a: 1, b: 1}"), Force::Refuse).unwrap();
        let old = world.live.clone();
        let mut new = old.clone();
        new.at_mut(&["metadata", "managedFields"]).unwrap().as_array_mut().unwrap()[0]
            .set_at(&["time"], "2027-01-01T00:00:00Z");
        change(&mut new);
        let changed = new.clone();
        keep_times(&mut new, &old);
        assert_eq!(new, if keeps { old } else { changed });
    }
    check(|_| {}, true);
    check(|new| new.set_at(&["a"], 2), false);
    check(|new| new.set_at(&["metadata", "labels", "x"], "y"), false);
    check(|new| drop(new.remove_at(&["a"])), false);
    check(
        |new| {
            new.at_mut(&["metadata", "managedFields"]).unwrap().as_array_mut().unwrap()[0]
                .set_at(&["manager"], "x")
        },
        false,
    );
}

#[test]
fn before_the_first_apply() {
    let mut world = World::new(SCHEMA, &[]);
    world.live = object("{a: 1, b: 1}");
    check_in(
        &mut world,
        "refused bob {a: 2} => Apply failed with 1 conflict: conflict with \"before-first-apply\" using test.dev/v1: .a
         apply bob {a: 1, c: 1}
         bob .a .c
         update:before-first-apply .a .b",
    );
    // Nobody keeps account of an object that nobody applied and whose entries are gone.
    let mut untracked = object("{a: 1, c: 1}");
    world.live = object("{a: 1}");
    let old = world.live.clone();
    world.write("kube", |writer, _| updated(writer, &old, &mut untracked));
    assert_eq!(untracked, object("{a: 1, c: 1}"));
}

#[test]
fn an_intent_is_of_the_kind_and_says_nothing_of_owners() {
    let mut world = World::new(SCHEMA, &[]);
    let mut intent = object("{a: 1}");
    intent.set_at(&["apiVersion"], "v1");
    assert_eq!(
        world.apply("bob", &intent, Force::Refuse).unwrap_err(),
        "invalid object type: /v1, Kind=Thing"
    );
    intent.set_at(&["apiVersion"], "test.dev/v2");
    assert_eq!(
        world.apply("bob", &intent, Force::Refuse).unwrap_err(),
        "invalid object type: test.dev/v2, Kind=Thing"
    );
    intent.set_at(&["apiVersion"], "test.dev/v1");
    for (entries, refused) in [("[]", true), ("[{}]", true), ("null", false)] {
        intent.set_at(&["metadata", "managedFields"], Value::parse(entries.as_bytes()).unwrap());
        let outcome = world.apply("bob", &intent, Force::Refuse);
        assert_eq!(outcome.err().as_deref(), refused.then_some("metadata.managedFields must be nil"));
    }
}
