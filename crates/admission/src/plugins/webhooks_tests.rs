//! Webhooks over a world of plain values.

use polder_model::{Value, json};

use super::webhooks::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};
use crate::Chain;
use crate::attributes::Operation;
use crate::dynamic::{Rulebook, Webhook};
use crate::fake::{Fake, Request, now, parse};
use crate::notes::Notes;
use crate::plugin::{Kind, Place, Plugin};

const RULES: &str = r#""rules":[{"operations":["CREATE","UPDATE","DELETE"],"apiGroups":["*"],"apiVersions":["v1"],"resources":["*"]}]"#;

fn webhook(name: &str, more: &str) -> String {
    format!(
        r#"{{"name":"{name}","clientConfig":{{"url":"https://{name}/"}},"sideEffects":"None","admissionReviewVersions":["v1"],{RULES}{}{more}}}"#,
        if more.is_empty() { "" } else { "," }
    )
}

fn webhooks(all: &[String]) -> Vec<Webhook> {
    let text = format!(r#"{{"metadata":{{"name":"c"}},"webhooks":[{}]}}"#, all.join(","));
    Webhook::read_all(&parse(&text)).0
}

fn world(mutating: &[String], validating: &[String]) -> Fake {
    let mut world = Fake::of(&[("namespaces", r#"{"metadata":{"name":"ns","labels":{"env":"prod"}}}"#)]);
    world.rules = Rulebook::default().with_webhooks(webhooks(mutating), webhooks(validating));
    world
}

fn patch(operations: &str) -> Value {
    use base64::Engine as _;
    let patch = base64::engine::general_purpose::STANDARD.encode(operations);
    json!({"allowed": true, "patch": patch, "patchType": "JSONPatch"})
}

fn admit(world: &Fake, object: &str) -> Result<Value, String> {
    let plugin: &dyn Plugin = &MutatingAdmissionWebhook;
    Request { plugin, world, path: "configmaps", operation: Operation::Create }.admit(object, None)
}

fn validate(world: &Fake, path: &str, object: &str) -> Result<Notes, String> {
    let plugin: &dyn Plugin = &ValidatingAdmissionWebhook;
    Request { plugin, world, path, operation: Operation::Create }.validate(object, None)
}

#[test]
fn patches_are_applied_one_after_the_other() {
    let mut world = world(&[webhook("a.x.y", ""), webhook("b.x.y", "")], &[]);
    world.webhook = |url, review| {
        let stage = review.at(&["request", "object", "data", "a"]).is_some();
        Ok(match (url, stage) {
            ("https://a.x.y/", _) => patch(
                r#"[{"op":"add","path":"/data/a","value":"1"},{"op":"add","path":"/pruned","value":1}]"#,
            ),
            ("https://b.x.y/", true) => patch(r#"[{"op":"add","path":"/data/b","value":"2"}]"#),
            _ => json!({"allowed": false}),
        })
    };
    assert_eq!(admit(&world, r#"{"data":{}}"#), Ok(parse(r#"{"data":{"a":"1","b":"2"}}"#)));
    let calls = world.calls.lock();
    let request = calls[0].1.get("request").unwrap();
    assert_eq!(request.str_at(&["operation"]), Some("CREATE"));
    assert_eq!(request.str_at(&["resource", "resource"]), Some("configmaps"));
    assert_eq!(request.str_at(&["userInfo", "username"]), Some("jane"));
    assert_eq!(request.str_at(&["options", "kind"]), Some("CreateOptions"));
    assert_eq!(request.at(&["oldObject"]), Some(&Value::Null));
}

#[test]
fn failures_follow_the_failure_policy() {
    let failing = world(&[webhook("a.x.y", "")], &[]);
    assert_eq!(
        admit(&failing, "{}").unwrap_err(),
        "Internal error occurred: failed calling webhook \"a.x.y\": failed to call webhook: nobody is there"
    );
    let ignoring = world(&[webhook("a.x.y", r#""failurePolicy":"Ignore""#)], &[]);
    assert_eq!(admit(&ignoring, "{}"), Ok(parse("{}")));
    let mut odd = world(&[webhook("a.x.y", "")], &[]);
    odd.webhook = |_, _| Ok(json!({"allowed": true, "patch": "e30=", "patchType": "JSONPatch"}));
    let why = admit(&odd, "{}").unwrap_err();
    assert!(why.contains("received undecodable patch in webhook response"), "{why}");
    odd.webhook = |_, _| Ok(patch(r#"[{"op":"remove","path":"/none"}]"#));
    assert!(admit(&odd, "{}").unwrap_err().starts_with("Internal error occurred: "));
}

#[test]
fn all_that_judge_must_agree() {
    let mut world = world(&[], &[webhook("a.x.y", ""), webhook("b.x.y", "")]);
    world.webhook = |url, _| {
        Ok(match url {
            "https://a.x.y/" => {
                json!({"allowed": true, "warnings": ["careful"], "auditAnnotations": {"k": "v"}})
            }
            _ => json!({"allowed": false, "status": {"message": "no", "code": 403}}),
        })
    };
    assert_eq!(
        validate(&world, "configmaps", "{}").unwrap_err(),
        "admission webhook \"b.x.y\" denied the request: no"
    );
    world.webhook = |url, _| match url {
        "https://a.x.y/" => {
            Ok(json!({"allowed": true, "warnings": ["careful"], "auditAnnotations": {"k": "v"}}))
        }
        _ => Ok(json!({"allowed": true})),
    };
    let notes = validate(&world, "configmaps", "{}").unwrap();
    assert_eq!(notes.warnings, ["careful"]);
    assert_eq!(notes.audit, [("a.x.y/k".to_string(), "v".to_string())]);
}

#[test]
fn only_whom_it_concerns_is_asked() {
    #[track_caller]
    fn check(more: &str, path: &str, object: &str, expected: Result<usize, &str>) {
        let mut world = world(&[], &[webhook("a.x.y", more)]);
        world.webhook = |_, _| Ok(json!({"allowed": true}));
        let found = validate(&world, path, object).map(|_| world.calls.lock().len());
        assert_eq!(found, expected.map_err(str::to_owned), "{more}");
    }
    let maps = "configmaps";
    check("", maps, "{}", Ok(1));
    check("", "pods/status", "{}", Ok(0));
    check(r#""namespaceSelector":{"matchLabels":{"env":"prod"}}"#, maps, "{}", Ok(1));
    check(r#""namespaceSelector":{"matchLabels":{"env":"test"}}"#, maps, "{}", Ok(0));
    check(r#""objectSelector":{"matchLabels":{"a":"b"}}"#, maps, "{}", Ok(0));
    check(
        r#""objectSelector":{"matchLabels":{"a":"b"}}"#,
        maps,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        Ok(1),
    );
    let condition =
        |expression: &str| format!(r#""matchConditions":[{{"name":"c","expression":"{expression}"}}]"#);
    check(&condition("object.data.a == 'x'"), maps, r#"{"data":{"a":"x"}}"#, Ok(1));
    check(&condition("object.data.a == 'x'"), maps, r#"{"data":{"a":"y"}}"#, Ok(0));
    check(&condition("authorizer.requestResource.check('never').allowed()"), maps, "{}", Ok(0));
    check(
        &condition("object.none == 1"),
        maps,
        "{}",
        Err(
            "configmaps \"x\" is forbidden: expression 'object.none == 1' resulted in error: no such key: none",
        ),
    );
    check(&format!(r#""failurePolicy":"Ignore",{}"#, condition("object.none == 1")), maps, "{}", Ok(0));
}

static BOTH: &[Place] = &[Place::On(&MutatingAdmissionWebhook), Place::On(&ValidatingAdmissionWebhook)];

#[test]
fn who_wants_it_is_asked_again_after_a_change() {
    let again = r#""reinvocationPolicy":"IfNeeded""#;
    let mut world = world(&[webhook("a.x.y", again), webhook("b.x.y", ""), webhook("c.x.y", again)], &[]);
    world.webhook = |url, review| {
        let seen = review.at(&["request", "object", "data", "b"]).is_some();
        Ok(match url {
            "https://b.x.y/" => patch(r#"[{"op":"add","path":"/data/b","value":"1"}]"#),
            "https://a.x.y/" if seen => patch(r#"[{"op":"add","path":"/data/a","value":"1"}]"#),
            _ => json!({"allowed": true}),
        })
    };
    let chain = Chain::new(BOTH, Kind { group: "", resource: "configmaps", namespaced: true });
    let mut object = parse(r#"{"data":{}}"#);
    let request = Request {
        plugin: &MutatingAdmissionWebhook,
        world: &world,
        path: "configmaps",
        operation: Operation::Create,
    };
    let outcome = request
        .through(&mut object, |request, object, notes| now(chain.admit(request, object, &world, notes)));
    outcome.unwrap();
    assert_eq!(object, parse(r#"{"data":{"a":"1","b":"1"}}"#));
    let urls: Vec<String> = world.calls.lock().iter().map(|(url, _)| url[8..9].to_string()).collect();
    // The one behind the change is asked again because the first one changed something in the second round.
    assert_eq!(urls.concat(), "abcac");
}

#[test]
fn a_dry_run_is_only_for_those_who_can() {
    let mut world =
        world(&[], &[webhook("a.x.y", "").replace(r#""sideEffects":"None""#, r#""sideEffects":"Some""#)]);
    world.webhook = |_, _| Ok(json!({"allowed": true}));
    let chain = Chain::new(BOTH, Kind { group: "", resource: "configmaps", namespaced: true });
    let request = Request {
        plugin: &ValidatingAdmissionWebhook,
        world: &world,
        path: "configmaps",
        operation: Operation::Create,
    };
    let mut object = parse("{}");
    let outcome = request.through(&mut object, |request, object, notes| {
        let request = crate::Attributes { dry_run: true, ..*request };
        now(chain.validate(&request, Some(object), &world, notes))
    });
    assert_eq!(outcome.unwrap_err(), "admission webhook \"a.x.y\" does not support dry run");
}
