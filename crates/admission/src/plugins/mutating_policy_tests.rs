//! Policies that change objects, with webhooks behind them, over a world of plain values.

use std::sync::Arc;

use polder_model::{Value, json};

use super::mutating_policy::MutatingAdmissionPolicy;
use super::webhooks::MutatingAdmissionWebhook;
use crate::Chain;
use crate::attributes::{Attributes, Operation};
use crate::dynamic::{Binding, MutatingPolicy, OUT_OF_BUDGET, Rulebook, Webhook};
use crate::fake::{Fake, Request, parse, turns};
use crate::notes::Notes;
use crate::plugin::{Kind, Place};

const RULES: &str = r#""matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}"#;

/// Name of a policy, what its `spec` has beside the rules, and what its binding has beside its name.
type Row<'a> = (&'a str, &'a str, &'a str);

fn world(policies: &[Row<'_>]) -> Fake {
    let mut world = Fake::of(&[
        ("namespaces", r#"{"metadata":{"name":"ns","labels":{"env":"prod"}}}"#),
        ("configmaps", r#"{"metadata":{"name":"one","namespace":"ns","labels":{"a":"b"}},"data":{"n":"3"}}"#),
        ("configmaps", r#"{"metadata":{"name":"two","namespace":"ns","labels":{"a":"b"}},"data":{"n":"5"}}"#),
    ]);
    let compiled = policies.iter().map(|(name, spec, _)| {
        let policy = MutatingPolicy::compile(&parse(&format!("{{{RULES},{spec}}}")));
        ((*name).into(), Arc::new(policy))
    });
    let bindings = policies.iter().map(|(name, _, binding)| {
        let comma = if binding.is_empty() { "" } else { "," };
        let text =
            format!(r#"{{"metadata":{{"name":"b"}},"spec":{{"policyName":"{name}"{comma}{binding}}}}}"#);
        Binding::read(&parse(&text))
    });
    world.rules = Rulebook::default().with_mutating_policies(compiled.collect(), bindings.collect());
    world
}

fn admitted(world: &Fake, object: &str) -> Result<String, String> {
    let mut object = changed(world, object)?;
    for field in ["kind", "apiVersion"] {
        object.remove_at(&[field]);
    }
    Ok(object.to_string())
}

fn changed(world: &Fake, object: &str) -> Result<Value, String> {
    asked(world, object).0
}

/// What becomes of an object, and how often others had their turn meanwhile.
fn asked(world: &Fake, object: &str) -> (Result<Value, String>, usize) {
    let places = [Place::On(&MutatingAdmissionPolicy), Place::On(&MutatingAdmissionWebhook)];
    let chain = Chain::new(&places, Kind { group: "apps", resource: "deployments", namespaced: true });
    let mut object = parse(object);
    let plugin = &MutatingAdmissionPolicy;
    let request = Request { plugin, world, path: "deployments.apps", operation: Operation::Create };
    let mut count = 0;
    let run = |request: &Attributes<'_>, object: &mut Value, notes: &mut Notes| {
        let (outcome, turns) = turns(chain.admit(request, object, world, notes));
        count = turns;
        outcome
    };
    let outcome = request.through(&mut object, run);
    (outcome.map(|_| object), count)
}

#[track_caller]
fn check(policies: &[Row<'_>], object: &str, expected: Result<&str, &str>) {
    let found = admitted(&world(policies), object);
    assert_eq!(found.as_deref().map_err(String::as_str), expected, "{policies:?}");
}

fn mutations(all: &[(&str, &str)]) -> String {
    let one = |(kind, expression): &(&str, &str)| match *kind {
        "apply" => {
            json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": (*expression)}})
        }
        _ => json!({"patchType": "JSONPatch", "jsonPatch": {"expression": (*expression)}}),
    };
    let all: Vec<_> = all.iter().map(one).collect();
    format!(r#""mutations":{}"#, Value::Array(all))
}

fn denied(why: &str) -> String {
    format!("policy 'p' with binding 'b' denied request: {why}")
}

#[test]
fn objects_are_changed_in_turn() {
    let spec = mutations(&[
        ("apply", "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"),
        ("patch", "[JSONPatch{op: 'add', path: '/spec/paused', value: object.spec.replicas > 2}]"),
    ]);
    check(&[("p", &spec, "")], r#"{"spec":{"replicas":2}}"#, Ok(r#"{"spec":{"paused":true,"replicas":3}}"#));
    let labels = mutations(&[(
        "patch",
        "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a.b/c'), value: namespaceObject.metadata.labels['env']}]",
    )]);
    check(
        &[("p", &labels, "")],
        r#"{"metadata":{"labels":{}}}"#,
        Ok(r#"{"metadata":{"labels":{"a.b/c":"prod"}}}"#),
    );
    let first = mutations(&[("apply", "Object{spec: Object.spec{replicas: 1}}")]);
    let second = mutations(&[("apply", "Object{spec: Object.spec{replicas: object.spec.replicas * 10}}")]);
    check(&[("p", &first, ""), ("q", &second, "")], "{}", Ok(r#"{"spec":{"replicas":10}}"#));
}

#[test]
fn a_test_that_fails_changes_nothing() {
    let spec = mutations(&[(
        "patch",
        "[JSONPatch{op: 'add', path: '/a', value: 1}, JSONPatch{op: 'test', path: '/b', value: 2}]",
    )]);
    check(&[("p", &spec, "")], r#"{"b":1}"#, Ok(r#"{"b":1}"#));
    check(&[("p", &spec, "")], r#"{"b":2}"#, Ok(r#"{"a":1,"b":2}"#));
}

#[test]
fn objects_stay_what_they_are() {
    for (kind, expression) in [
        ("apply", "Object{kind: 'Other', apiVersion: 'v2'}"),
        (
            "patch",
            "[JSONPatch{op: 'add', path: '/kind', value: 'Other'}, JSONPatch{op: 'add', path: '/apiVersion', value: 'v2'}]",
        ),
        ("patch", "[JSONPatch{op: 'remove', path: '/kind'}, JSONPatch{op: 'remove', path: '/apiVersion'}]"),
    ] {
        let world = world(&[("p", &mutations(&[(kind, expression)]), "")]);
        let found = changed(&world, r#"{"apiVersion":"apps/v1","kind":"Kind"}"#).unwrap();
        assert_eq!(found.to_string(), r#"{"apiVersion":"apps/v1","kind":"Kind"}"#, "{expression}");
    }
}

#[test]
fn variables_parameters_and_conditions_work() {
    let spec = format!(
        r#""paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},"variables":[{{"name":"n","expression":"int(params.data.n)"}}],
            "matchConditions":[{{"name":"c","expression":"object.spec.replicas > 0"}}],{}"#,
        mutations(&[("apply", "Object{spec: Object.spec{replicas: object.spec.replicas + variables.n}}")])
    );
    let by_name = r#""paramRef":{"name":"one","parameterNotFoundAction":"Deny"}"#;
    let by_label = r#""paramRef":{"selector":{"matchLabels":{"a":"b"}},"parameterNotFoundAction":"Deny"}"#;
    check(&[("p", &spec, by_name)], r#"{"spec":{"replicas":1}}"#, Ok(r#"{"spec":{"replicas":4}}"#));
    check(&[("p", &spec, by_label)], r#"{"spec":{"replicas":1}}"#, Ok(r#"{"spec":{"replicas":9}}"#));
    check(&[("p", &spec, by_name)], r#"{"spec":{"replicas":0}}"#, Ok(r#"{"spec":{"replicas":0}}"#));
    check(
        &[("p", &spec, r#""paramRef":{"name":"none","parameterNotFoundAction":"Deny"}"#)],
        r#"{"spec":{"replicas":1}}"#,
        Err(&denied(
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        )),
    );
    check(
        &[("p", &spec, r#""paramRef":{"name":"none","parameterNotFoundAction":"Allow"}"#)],
        r#"{"spec":{"replicas":1}}"#,
        Ok(r#"{"spec":{"replicas":1}}"#),
    );
}

#[test]
fn failures_are_told_or_ignored() {
    let row = |expression: &str| mutations(&[("apply", expression)]);
    let missing = row("Object{spec: Object.spec{replicas: object.spec.none}}");
    check(
        &[("p", &missing, "")],
        r#"{"spec":{}}"#,
        Err(&denied(
            "expression 'Object{spec: Object.spec{replicas: object.spec.none}}' resulted in error: no such key: none",
        )),
    );
    let ignored = format!(r#""failurePolicy":"Ignore",{missing}"#);
    check(&[("p", &ignored, "")], r#"{"spec":{}}"#, Ok(r#"{"spec":{}}"#));
    check(
        &[(
            "p",
            &row("Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'a': 'b'}}}}"),
            "",
        )],
        "{}",
        Err(&denied(
            "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.selector",
        )),
    );
    check(
        &[("p", &row("Object{spec: Object.wrong{}}"), "")],
        "{}",
        Err(&denied(
            r#"type mismatch: unexpected type name "Object.wrong", expected "Object.spec", which matches field name path from root Object type"#,
        )),
    );
    let patch = mutations(&[("patch", "[JSONPatch{op: 'remove', path: '/none'}]")]);
    check(
        &[("p", &patch, "")],
        "{}",
        Err(&denied(
            "JSON Patch: error in remove for path: '/none': Unable to remove nonexistent key: none: missing value",
        )),
    );
    // What nobody can read any more is refused, whatever the failure policy says.
    let unknown = format!(
        r#""failurePolicy":"Ignore",{}"#,
        mutations(&[("patch", "[JSONPatch{op: 'add', path: '/unknown', value: 1}]")])
    );
    check(
        &[("p", &unknown, "")],
        "{}",
        Err(r#"Internal error occurred: strict decoding error: unknown field "unknown""#),
    );
}

#[test]
fn policies_are_asked_again_if_they_want_it() {
    let counting = |policy: &str| {
        format!(
            r#""reinvocationPolicy":"{policy}",{}"#,
            mutations(&[("apply", "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}")])
        )
    };
    let late = mutations(&[("apply", "Object{spec: Object.spec{paused: true}}")]);
    let object = r#"{"spec":{"replicas":0}}"#;
    let (never, needed) = (counting("Never"), counting("IfNeeded"));
    check(&[("p", &never, ""), ("q", &late, "")], object, Ok(r#"{"spec":{"paused":true,"replicas":1}}"#));
    check(&[("p", &needed, ""), ("q", &late, "")], object, Ok(r#"{"spec":{"paused":true,"replicas":2}}"#));
    // Nothing happens after it but its own change.
    check(&[("p", &needed, "")], object, Ok(r#"{"spec":{"replicas":1}}"#));
}

#[test]
fn webhooks_see_what_policies_did_and_are_asked_together() {
    let spec = format!(
        r#""reinvocationPolicy":"IfNeeded",{}"#,
        mutations(&[("apply", "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}")])
    );
    let mut world = world(&[("p", &spec, "")]);
    let text = r#"{"metadata":{"name":"c"},"webhooks":[{"name":"a.x.y","clientConfig":{"url":"https://a.x.y/"},"sideEffects":"None",
        "admissionReviewVersions":["v1"],"reinvocationPolicy":"IfNeeded",
        "rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}]}"#;
    world.rules =
        std::mem::take(&mut world.rules).with_webhooks(Webhook::read_all(&parse(text)).0, Vec::new());
    world.webhook = |_, review| {
        use base64::Engine as _;
        let replicas = review.i64_at(&["request", "object", "spec", "replicas"]).unwrap_or_default();
        let patch = format!(r#"[{{"op":"add","path":"/spec/replicas","value":{}}}]"#, replicas * 10);
        let patch = base64::engine::general_purpose::STANDARD.encode(patch);
        Ok(json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"}))
    };
    // 0 + 1, times 10, then both once more.
    let found = admitted(&world, r#"{"spec":{"replicas":0}}"#).unwrap();
    assert_eq!(found, r#"{"spec":{"replicas":110}}"#);
    assert_eq!(world.calls.lock().len(), 2);
}

#[test]
fn objects_do_not_grow_without_end() {
    let object = format!(r#"{{"big":"{}"}}"#, "x".repeat(1 << 20));
    let add: Vec<String> = (0..50)
        .map(|index| format!("[JSONPatch{{op: 'add', path: '/more{index}', value: object.big}}]"))
        .collect();
    let copy: Vec<String> = (0..50)
        .map(|index| format!("[JSONPatch{{op: 'copy', from: '/big', path: '/more{index}'}}]"))
        .collect();
    for expressions in [add, copy] {
        let rows: Vec<(&str, &str)> = expressions.iter().map(|own| ("patch", own.as_str())).collect();
        let spec = mutations(&rows);
        check(&[("p", &spec, "")], &object, Err(&denied("the changed object takes more than 3145728 bytes")));
        // What does not matter is not done either.
        let spec = format!(r#""failurePolicy":"Ignore",{spec}"#);
        let found = changed(&world(&[("p", &spec, "")]), &object).unwrap();
        assert!((2 << 20..3 << 20).contains(&found.to_vec().len()));
    }
}

#[test]
fn very_many_changes_are_refused() {
    let many = |count: usize| mutations(&vec![("apply", "Object{}"); count]);
    let with_params = format!(r#""paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},{}"#, many(250));
    let twice = r#""paramRef":{"selector":{},"parameterNotFoundAction":"Deny"}"#;
    let large = format!(r#"{{"big":"{}"}}"#, "x".repeat(2 << 20));
    let outcome = |policies: &[Row<'_>], object: &str| {
        let (found, turns) = asked(&world(policies), object);
        (found.map(drop), turns > 100)
    };
    let refused = || (Err(denied(OUT_OF_BUDGET)), true);
    assert_eq!(outcome(&[("p", &many(400), "")], &large), refused());
    assert_eq!(outcome(&[("p", &with_params, twice)], &large), refused());
    assert_eq!(outcome(&[("a", &many(200), ""), ("p", &many(200), "")], &large), refused());
    assert_eq!(outcome(&[("p", &many(200), "")], &large), (Ok(()), true), "others had their turn");
    assert_eq!(outcome(&[("p", &many(400), "")], "{}"), (Ok(()), false));
    let ignored = format!(r#""failurePolicy":"Ignore",{}"#, many(400));
    assert_eq!(outcome(&[("p", &ignored, "")], &large), (Ok(()), true));
}

#[test]
fn very_many_parameters_are_refused() {
    let spec = format!(
        r#""paramKind":{{"apiVersion":"v1","kind":"ConfigMap"}},{}"#,
        mutations(&[("apply", "Object{}")])
    );
    let binding = r#""paramRef":{"selector":{},"parameterNotFoundAction":"Deny"}"#;
    let mut world = world(&[("p", &spec, binding)]);
    for index in 0..999 {
        let map = format!(r#"{{"metadata":{{"name":"m{index}","namespace":"ns"}}}}"#);
        world.objects.push(("configmaps", parse(&map)));
    }
    assert_eq!(
        admitted(&world, "{}").unwrap_err(),
        denied(
            "failed to configure binding: paramRef.selector selects 1001 params, and a binding may have 1000"
        )
    );
}

#[test]
fn what_does_not_compile_is_told() {
    #[track_caller]
    fn check(spec: &str, expected: &[&str]) {
        let policy = MutatingPolicy::compile(&parse(spec));
        let found: Vec<String> = policy.problems().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }
    let spec = format!(
        r#"{{"variables":[{{"name":"o","expression":"Object{{}}"}}],{}}}"#,
        mutations(&[
            ("apply", "Object.spec{}"),
            ("patch", "JSONPatch{op: 'add'}"),
            ("patch", "[]"),
            ("apply", "params.x"),
        ])
    );
    check(
        &spec,
        &[
            r#"spec.variables[0].expression: Invalid value: "Object{}": compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object'"#,
            r#"spec.mutations[0].applyConfiguration.expression: Invalid value: "Object.spec{}": must evaluate to Object but got Object.spec"#,
            r#"spec.mutations[1].jsonPatch.expression: Invalid value: "JSONPatch{op: 'add'}": must evaluate to list(JSONPatch) but got JSONPatch"#,
            r#"spec.mutations[2].jsonPatch.expression: Invalid value: "[]": must evaluate to list(JSONPatch) but got list(dyn)"#,
            r#"spec.mutations[3].applyConfiguration.expression: Invalid value: "params.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"#,
        ],
    );
}
