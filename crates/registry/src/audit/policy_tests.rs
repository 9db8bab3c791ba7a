//! Which rule decides, what a policy may say, and what none can change.

use polder_model::FieldPath;

use super::*;

fn policy(rules: &str) -> Policy {
    let value = Value::parse(format!(r#"{{"rules":[{rules}]}}"#).as_bytes()).unwrap();
    Policy::read(&value, &FieldPath::root("policy")).unwrap()
}

/// `verb group/resource[/part] [namespace/]name`, or `verb path`, by `user`.
fn level(policy: &Policy, user: &UserInfo, request: &str) -> Level {
    let parts: Vec<&str> = request.split(' ').collect();
    let (resource, path) = match parts.as_slice() {
        [_, path] if path.starts_with('/') => (None, *path),
        [_, kind, rest @ ..] => {
            let kind: Vec<&str> = kind.split('/').collect();
            let (namespace, name) =
                rest.first().map_or(("", ""), |name| name.split_once('/').unwrap_or(("", name)));
            let subresource = kind.get(2).copied().unwrap_or_default();
            (Some(AskedResource { group: kind[0], resource: kind[1], subresource, namespace, name }), "")
        }
        other => panic!("{other:?}"),
    };
    policy.judge(&Asked { user: Some(user), verb: parts[0], resource, path }).level
}

#[track_caller]
fn check(rules: &str, rows: &[(&str, Level)]) {
    let policy = policy(rules);
    let user = UserInfo::authenticated("ann", [SmolStr::new_static("devs")]);
    for (request, expected) in rows {
        assert_eq!(level(&policy, &user, request), *expected, "{request}");
    }
}

#[test]
fn the_first_rule_decides() {
    use Level::{Metadata, None, Request, RequestResponse};
    check(
        r#"{"level":"None","users":["bob"]},
        {"level":"Request","userGroups":["devs"],"verbs":["delete"]},
        {"level":"Metadata","nonResourceURLs":["/api*","/version"]},
        {"level":"RequestResponse","resources":[{"group":"","resources":["pods"]},{"group":"apps"}]},
        {"level":"Metadata","resources":[{"group":"","resources":["pods/*","*/status"],"resourceNames":["x"]}]},
        {"level":"Request","namespaces":["kube-system"]}"#,
        &[
            ("delete /pods a/b", Request),
            ("get /api", Metadata),
            ("get /apis/apps", Metadata),
            ("get /version", Metadata),
            ("get /version/x", None),
            ("get /pods a/b", RequestResponse),
            ("get apps/deployments/status a/b", RequestResponse),
            ("get /pods/log a/x", Metadata),
            ("get /pods/log a/y", None),
            ("get /nodes/status x", Metadata),
            ("get /services kube-system/x", Request),
            ("get /services other/x", None),
            ("get batch/jobs a/b", None),
        ],
    );
    check(
        r#"{"level":"Metadata","resources":[{"group":"","resources":["*"]}]}"#,
        &[("get /pods/log a/b", Metadata)],
    );
}

#[test]
fn bodies_with_credentials_are_never_noted() {
    use Level::{Metadata, RequestResponse};
    check(
        r#"{"level":"RequestResponse"}"#,
        &[
            ("create /secrets a/b", Metadata),
            ("list /secrets a/", Metadata),
            ("create /serviceaccounts/token a/b", Metadata),
            ("create authentication.k8s.io/tokenreviews", Metadata),
            ("create polder.dev/planes/kubeconfig x", Metadata),
            ("get polder.dev/planes/export x", Metadata),
            ("list audit.polder.dev/events", Metadata),
            ("create /configmaps a/b", RequestResponse),
            ("create /serviceaccounts a/b", RequestResponse),
        ],
    );
}

#[test]
fn planes_note_who_changed_what() {
    use Level::{Metadata, None};
    let policy = Policy::of_planes();
    let ann = UserInfo::authenticated("ann", []);
    let scheduler = UserInfo::authenticated("system:kube-scheduler", []);
    let node = UserInfo::authenticated("system:node:a", [SmolStr::new_static("system:nodes")]);
    for (user, request, expected) in [
        (&ann, "create /configmaps a/b", Metadata),
        (&ann, "delete /pods a/b", Metadata),
        (&ann, "patch apps/deployments/scale a/b", Metadata),
        (&ann, "get /pods a/b", None),
        (&ann, "list /pods a/", None),
        (&ann, "update coordination.k8s.io/leases a/b", None),
        (&ann, "create /events a/b", None),
        (&ann, "create authorization.k8s.io/selfsubjectaccessreviews", None),
        (&ann, "get /version", None),
        (&node, "patch /nodes/status a", None),
        (&node, "create /configmaps a/b", Metadata),
        (&scheduler, "create /pods/binding a/b", None),
        // A name alone hides nobody: a plane's administrators can give it.
        (&scheduler, "create /configmaps a/b", Metadata),
    ] {
        assert_eq!(level(&policy, user, request), expected, "{} {request}", user.name);
    }
}

#[test]
fn stages_and_managed_fields() {
    let value = Value::parse(
        br#"{"omitStages":["RequestReceived"],"omitManagedFields":true,"rules":[
            {"level":"Metadata","verbs":["get"],"omitStages":["Panic"]},
            {"level":"Metadata","omitManagedFields":false}]}"#,
    );
    let policy = Policy::read(&value.unwrap(), &FieldPath::root("policy")).unwrap();
    let judge = |verb| policy.judge(&Asked { user: None, verb, resource: None, path: "/x" });
    let get = judge("get");
    assert!(!get.notes(Stage::RequestReceived) && !get.notes(Stage::Panic));
    assert!(get.notes(Stage::ResponseStarted) && get.notes(Stage::ResponseComplete));
    assert!(get.omit_managed_fields);
    let put = judge("put");
    assert!(put.notes(Stage::Panic) && !put.notes(Stage::RequestReceived) && !put.omit_managed_fields);
}

#[test]
fn mistakes_are_told() {
    for (text, expected) in [
        (r#"[]"#, "must be an object"),
        (r#"{"rules":{}}"#, "must be a list"),
        (r#"{"rule":[]}"#, "policy.rule: Forbidden: unknown field"),
        (r#"{"rules":[{}]}"#, "policy.rules[0].level: Required value"),
        (
            r#"{"rules":[{"level":"All"}]}"#,
            r#"supported values: "None", "Metadata", "Request", "RequestResponse""#,
        ),
        (r#"{"rules":[{"level":"None","omitStages":["Begin"]}]}"#, "allowed stages are RequestReceived,"),
        (r#"{"rules":[{"level":"None","user":["x"]}]}"#, "policy.rules[0].user: Forbidden"),
        (r#"{"rules":[{"level":"None","users":[1]}]}"#, "policy.rules[0].users[0]: Invalid value"),
        (r#"{"rules":[{"level":"None","nonResourceURLs":["api"]}]}"#, "must begin with a '/' character"),
        (r#"{"rules":[{"level":"None","nonResourceURLs":["/a*b"]}]}"#, "must be the final character"),
        (
            r#"{"rules":[{"level":"None","nonResourceURLs":["/a"],"namespaces":["x"]}]}"#,
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (
            r#"{"rules":[{"level":"None","resources":[{"group":"apps/v1"}]}]}"#,
            "policy.rules[0].resources[0].group: Invalid value",
        ),
        (
            r#"{"rules":[{"level":"None","resources":[{"resourceNames":["x"]}]}]}"#,
            "using resourceNames requires at least one resource",
        ),
    ] {
        let value = Value::parse(text.as_bytes()).unwrap();
        let errors = Policy::read(&value, &FieldPath::root("policy")).unwrap_err();
        let said = polder_model::field::join(&errors);
        assert!(said.contains(expected), "{text}: {said}");
    }
    for text in [r#"{"kind":"Policy"}"#, r#"{"apiVersion":"audit.k8s.io/v1","kind":"Policy"}"#] {
        Policy::document(&Value::parse(text.as_bytes()).unwrap()).unwrap_err();
    }
}
