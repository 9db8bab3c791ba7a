//! Policies through the plugin, over a world of plain values.

use std::sync::Arc;

use polder_model::{GroupVersionKind, Value};

use super::basis::PARTS_MAX;
use super::*;
use crate::attributes::Operation;
use crate::dynamic::{Binding, Rulebook};
use crate::fake::{Fake, Request, parse};
use crate::notes::Notes;
use crate::plugin::{Place, Plugin};
use crate::plugins::ALL;

const RULES: &str = r#""matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}"#;

fn plugin() -> &'static dyn Plugin {
    let found = ALL.iter().find_map(|place| match place {
        Place::On(plugin) if plugin.name() == "ValidatingAdmissionPolicy" => Some(*plugin),
        _ => None,
    });
    found.unwrap()
}

/// A world with one policy `p` and one binding `b`.
fn world(spec: &str, binding: &str) -> Fake {
    let mut world = Fake::of(&[
        ("namespaces", r#"{"metadata":{"name":"ns","labels":{"env":"prod"}}}"#),
        (
            "configmaps",
            r#"{"metadata":{"name":"limits","namespace":"ns","labels":{"a":"b"}},"data":{"max":"3"}}"#,
        ),
        (
            "configmaps",
            r#"{"metadata":{"name":"more","namespace":"ns","labels":{"a":"b"}},"data":{"max":"5"}}"#,
        ),
    ]);
    let spec = parse(&format!("{{{RULES},{spec}}}"));
    let binding = format!(
        r#"{{"metadata":{{"name":"b"}},"spec":{{"policyName":"p","validationActions":["Deny"]{}{binding}}}}}"#,
        if binding.is_empty() { "" } else { "," }
    );
    let policy = Arc::new(Policy::compile(&spec));
    world.rules = Rulebook::new(vec![("p".into(), policy)], vec![Binding::read(&parse(&binding))]);
    world
}

fn ask(world: &Fake, path: &str, object: &str) -> Result<Notes, String> {
    Request { plugin: plugin(), world, path, operation: Operation::Create }.validate(object, None)
}

/// Whether an object is refused, and how: `None` when it is not.
#[track_caller]
fn check(spec: &str, binding: &str, object: &str, expected: Option<&str>) {
    let world = world(spec, binding);
    let found = ask(&world, "deployments.apps", object).err();
    let full = |why: &str| {
        format!(
            "deployments.apps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {why}"
        )
    };
    assert_eq!(found, expected.map(full), "{spec} {object}");
}

#[test]
fn expressions_decide() {
    let replicas = r#""validations":[{"expression":"object.spec.replicas > 1"}]"#;
    check(replicas, "", r#"{"spec":{"replicas":2}}"#, None);
    check(replicas, "", r#"{"spec":{"replicas":1}}"#, Some("failed expression: object.spec.replicas > 1"));
    check(
        replicas,
        "",
        "{}",
        Some("expression 'object.spec.replicas > 1' resulted in error: no such key: spec"),
    );
    check(&format!(r#""failurePolicy":"Ignore",{replicas}"#), "", "{}", None);
    let messages = r#""validations":[{"expression":"false","message":" plain ","messageExpression":"'got ' + string(object.n)"}]"#;
    check(messages, "", r#"{"n":3}"#, Some("got 3"));
    check(messages, "", "{}", Some("plain"));
    check(
        r#""validations":[{"expression":"false","messageExpression":"'a\\nb'"}]"#,
        "",
        "{}",
        Some("failed expression: false"),
    );
    check(
        r#""validations":[{"expression":"namespaceObject.metadata.labels['env'] == 'prod'"},{"expression":"request.operation == 'CREATE' && request.namespace == 'ns' && request.userInfo.username == 'jane'"}]"#,
        "",
        "{}",
        None,
    );
}

#[test]
fn variables_are_computed_when_they_are_used() {
    let variables = r#""variables":[{"name":"bad","expression":"object.none.none"},
        {"name":"replicas","expression":"object.spec.replicas"},{"name":"odd","expression":"variables.replicas % 2 == 1"}]"#;
    let with = |validation: &str| format!(r#"{variables},"validations":[{{"expression":"{validation}"}}]"#);
    check(&with("variables.odd && variables.replicas > 1"), "", r#"{"spec":{"replicas":3}}"#, None);
    check(&with("variables.odd"), "", r#"{"spec":{"replicas":2}}"#, Some("failed expression: variables.odd"));
    check(&with("true || variables.bad"), "", "{}", None);
    check(
        &with("variables.bad == 1"),
        "",
        "{}",
        Some(
            "expression 'variables.bad == 1' resulted in error: composited variable \"bad\" fails to evaluate: no such key: none",
        ),
    );
}

#[test]
fn a_long_chain_of_variables_takes_no_stack() {
    let one = |index: usize| format!(r#"{{"name":"v{index}","expression":"variables.v{} + 1"}}"#, index - 1);
    let chain: Vec<String> = (1..PARTS_MAX).map(one).collect();
    let spec = format!(
        r#""variables":[{{"name":"v0","expression":"0"}},{}],"validations":[{{"expression":"variables.v{} == {}"}}]"#,
        chain.join(","),
        PARTS_MAX - 1,
        PARTS_MAX - 1
    );
    check(&spec, "", "{}", None);
}

#[test]
fn conditions_come_first() {
    let with = |condition: &str| {
        format!(
            r#""matchConditions":[{{"name":"c","expression":"{condition}"}}],"validations":[{{"expression":"false"}}]"#
        )
    };
    check(&with("object.spec.replicas > 1"), "", r#"{"spec":{"replicas":1}}"#, None);
    check(&with("true"), "", "{}", Some("failed expression: false"));
    check(
        &with("object.a == 1"),
        "",
        "{}",
        Some("expression 'object.a == 1' resulted in error: no such key: a"),
    );
}

#[test]
fn parameters_come_from_objects() {
    let spec = r#""paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"validations":[{"expression":"object.n < int(params.data.max) && params.kind == 'ConfigMap'"}]"#;
    let by_name = r#""paramRef":{"name":"limits","parameterNotFoundAction":"Deny"}"#;
    check(spec, by_name, r#"{"n":2}"#, None);
    check(
        spec,
        by_name,
        r#"{"n":4}"#,
        Some("failed expression: object.n < int(params.data.max) && params.kind == 'ConfigMap'"),
    );
    // Each of the selected ones counts.
    let by_label = r#""paramRef":{"selector":{"matchLabels":{"a":"b"}},"parameterNotFoundAction":"Deny"}"#;
    check(spec, by_label, r#"{"n":2}"#, None);
    check(
        spec,
        by_label,
        r#"{"n":4}"#,
        Some("failed expression: object.n < int(params.data.max) && params.kind == 'ConfigMap'"),
    );
    check(
        spec,
        r#""paramRef":{"name":"gone","parameterNotFoundAction":"Deny"}"#,
        "{}",
        Some(
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        ),
    );
    check(spec, r#""paramRef":{"name":"gone","parameterNotFoundAction":"Allow"}"#, "{}", None);
    check(
        spec,
        "",
        r#"{"n":1}"#,
        Some(
            "expression 'object.n < int(params.data.max) && params.kind == 'ConfigMap'' resulted in error: no such key: data",
        ),
    );
    let missing =
        r#""paramKind":{"apiVersion":"e.x/v1","kind":"Missing"},"validations":[{"expression":"true"}]"#;
    let found = ask(&world(missing, ""), "deployments.apps", "{}").unwrap_err();
    assert!(
        found.ends_with(
            "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'e.x/v1, Kind=Missing'"
        ),
        "{found}"
    );
}

#[test]
fn the_authorizer_is_asked() {
    let with = |verb: &str| {
        format!(
            r#""validations":[{{"expression":"authorizer.group('apps').resource('deployments').namespace('ns').check('{verb}').allowed()"}},
                {{"expression":"authorizer.requestResource.check('{verb}').allowed() && !authorizer.serviceAccount('ns','sa').path('/x').check('never').allowed()"}}]"#
        )
    };
    assert!(ask(&world(&with("get"), ""), "deployments.apps", "{}").is_ok());
    assert!(ask(&world(&with("never"), ""), "deployments.apps", "{}").is_err());
}

#[test]
fn a_binding_narrows_and_says_what_follows() {
    let spec = r#""validations":[{"expression":"false","message":"no"}],"auditAnnotations":[{"key":"k","valueExpression":"'seen ' + request.name"},{"key":"n","valueExpression":"null"}]"#;
    let selector = |label: &str| {
        format!(r#""matchResources":{{"namespaceSelector":{{"matchLabels":{{"env":"{label}"}}}}}}"#)
    };
    check(spec, &selector("prod"), "{}", Some("no"));
    check(spec, &selector("test"), "{}", None);
    check(spec, r#""matchResources":{"objectSelector":{"matchLabels":{"a":"b"}}}"#, "{}", None);
    check(
        spec,
        r#""matchResources":{"excludeResourceRules":[{"operations":["CREATE"],"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments"]}]}"#,
        "{}",
        None,
    );
    let mut world = world(spec, "");
    let binding =
        r#"{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Warn","Audit"]}}"#;
    let policy = world.rules.policies[0].policy.clone();
    world.rules = Rulebook::new(vec![("p".into(), policy)], vec![Binding::read(&parse(binding))]);
    let notes = ask(&world, "deployments.apps", "{}").unwrap();
    assert_eq!(notes.warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]);
    let failure = parse(&notes.audit[0].1);
    assert_eq!(failure.as_array().unwrap()[0].str_at(&["message"]), Some("no"));
    assert_eq!(notes.audit[1], ("p/k".to_string(), "seen x".to_string()));
    assert_eq!(notes.audit.len(), 2);
}

#[test]
fn what_costs_too_much_is_refused() {
    let items: Vec<String> = (0..250).map(|index| index.to_string()).collect();
    let object = format!(r#"{{"a":[{}]}}"#, items.join(","));
    let spec = r#""validations":[{"expression":"object.a.all(x, object.a.all(y, object.a.all(z, x + y + z >= 0)))"}]"#;
    check(
        spec,
        "",
        &object,
        Some(
            "expression 'object.a.all(x, object.a.all(y, object.a.all(z, x + y + z >= 0)))' resulted in error: operation cancelled: actual cost limit exceeded",
        ),
    );
    // What is just affordable is computed elsewhere, and comes out right.
    let spec = r#""validations":[{"expression":"object.a.all(x, object.a.all(y, x + y >= 0))"}]"#;
    check(spec, "", &object, None);
    let many: Vec<&str> =
        std::iter::repeat_n(r#"{"expression":"object.a.all(x, object.a.all(y, x + y >= 0))"}"#, 60).collect();
    let spec = format!(r#""validations":[{}]"#, many.join(","));
    check(
        &spec,
        "",
        &object,
        Some("validation failed due to running out of cost budget, no further validation rules will be run"),
    );
}

#[test]
fn what_does_not_compile_is_told() {
    #[track_caller]
    fn check(spec: &str, expected: &[&str]) {
        let policy = Policy::compile(&parse(spec));
        let found: Vec<String> = policy.problems().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}");
        }
    }
    check(
        r#"{"matchConditions":[{"name":"a","expression":"variables.x"}],"variables":[{"name":"x","expression":"1 +"}],
            "validations":[{"expression":"variables.x == 1 && variables.y","messageExpression":"1"}],
            "auditAnnotations":[{"key":"k","valueExpression":"1"}]}"#,
        &[
            r#"spec.matchConditions[0].expression: Invalid value: "variables.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables'"#,
            r#"spec.variables[0].expression: Invalid value: "1 +": compilation failed: ERROR: <input>:1:4: Syntax error"#,
            r#"spec.validations[0].expression: Invalid value: "variables.x == 1 && variables.y": compilation failed: ERROR: <input>:1:30: undefined field 'y'"#,
            r#"spec.validations[0].messageExpression: Invalid value: "1": must evaluate to string but got int"#,
            r#"spec.auditAnnotations[0].valueExpression: Invalid value: "1": must evaluate to one of [string null_type] but got int"#,
        ],
    );
}

#[test]
fn confused_types_are_told() {
    use polder_machinery::schema::rules::object_shape;
    use polder_machinery::schema::table::builtin;
    let table = builtin();
    let root = table.resources.iter().find(|resource| resource.plural == "deployments").unwrap();
    let schema = table.schema(&root.type_name).unwrap();
    let kind = GroupVersionKind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() };
    let kinds = [CheckedKind { kind, shape: object_shape(&schema).unwrap() }];
    let spec = parse(
        r#"{"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"resources":["deployments","deployments/scale"]}]},
            "variables":[{"name":"n","expression":"object.spec.replicas"}],
            "validations":[{"expression":"variables.n > 1 && object.metadata.labels['a'] == 'b'"},
            {"expression":"object.spec.replicas > '1'","messageExpression":"'got ' + object.spec.replicas"},{"expression":"object.spec.none == 1"}]}"#,
    );
    assert_eq!(kinds_to_check(&spec), [("apps".into(), "v1".into(), "deployments".into())]);
    let warnings: Vec<Value> = type_warnings(&spec, &kinds, None);
    let shown: Vec<(&str, &str)> = warnings
        .iter()
        .map(|warning| (warning.str_at(&["fieldRef"]).unwrap(), warning.str_at(&["warning"]).unwrap()))
        .map(|(field, text)| (field, text.lines().next().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [
            (
                "spec.validations[1].expression",
                "apps/v1, Kind=Deployment: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'"
            ),
            (
                "spec.validations[1].messageExpression",
                "apps/v1, Kind=Deployment: ERROR: <input>:1:8: found no matching overload for '_+_' applied to '(string, int)'"
            ),
            (
                "spec.validations[2].expression",
                "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'none'"
            ),
        ]
    );
}

#[test]
fn variables_cannot_make_a_value_that_takes_all_of_the_stack() {
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(200), "]".repeat(200));
    let one = |at: usize| {
        let inner = if at == 0 { "1".to_owned() } else { format!("dyn(variables.v{})", at - 1) };
        format!(r#"{{"name":"v{at}","expression":"{}"}}"#, nested(&inner))
    };
    let chain: Vec<String> = (0..200).map(one).collect();
    let spec = format!(
        r#""variables":[{}],"validations":[{{"expression":"variables.v199 == variables.v199"}}]"#,
        chain.join(",")
    );
    let world = world(&spec, "");
    let refused = ask(&world, "deployments.apps", "{}").unwrap_err();
    assert!(
        refused.ends_with("variables that build on each other make a value that is too large"),
        "{refused}"
    );
}

/// A thousand bad patterns cost no more than some: the others are not tried.
#[test]
fn the_patterns_of_a_policy_are_compiled_out_of_one_effort() {
    let one = |index: usize| {
        format!(r#"{{"expression":"object.kind.matches('((a{{100}}){{100}}){{100}}{index}')"}}"#)
    };
    let all: Vec<String> = (0..1000).map(one).collect();
    let spec = Value::parse(format!(r#"{{"validations":[{}]}}"#, all.join(",")).as_bytes()).unwrap();
    let policy = Policy::compile(&spec);
    let count = |text: &str| policy.problems().iter().filter(|one| one.to_string().contains(text)).count();
    let (bad, untried) = (count("invalid matches argument"), count("are too large together"));
    assert!(bad > 0 && bad < 100 && bad + untried == 1000, "{bad} {untried}");
}
