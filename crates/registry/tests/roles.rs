//! Who may do what in a plane because its roles and bindings say so.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod world;

use polder_auth::UserInfo;
use polder_model::{SmolStr, Status, Value, json};
use polder_registry::write::PatchKind;
use world::{Plane, World, code};

const RBAC: &str = "rbac.authorization.k8s.io/v1";

fn path(kind: &str, rest: &str) -> String {
    format!("{RBAC}/{kind}{rest}")
}

fn role(name: &str, verbs: &[&str], resources: &[&str]) -> Value {
    let list = |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::from(*text)).collect());
    json!({
        "metadata": {"name": name},
        "rules": [{"verbs": (list(verbs)), "apiGroups": [""], "resources": (list(resources))}],
    })
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    })
}

async fn grant(
    plane: &Plane<'_>,
    namespace: &str,
    name: &str,
    verbs: &[&str],
    resources: &[&str],
    user: &str,
) {
    let at = format!("/{namespace}");
    plane.create(&path("roles", &at), role(name, verbs, resources)).await.unwrap();
    plane.create(&path("rolebindings", &at), binding(name, "Role", name, user)).await.unwrap();
}

fn config(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn text<T: std::fmt::Debug>(outcome: Result<T, Status>, expected: u16) -> String {
    let (found, text) = code(outcome);
    assert_eq!(found, expected, "{text}");
    text
}

/// A change of roles and bindings is in force in the next request, and in its plane only.
#[tokio::test]
async fn rights_come_and_go_with_bindings() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let other = world.plane("other", json!({})).await;
    let ann = acme.as_user("ann", &[]);
    let maps = "v1/configmaps/default";
    let refused = text(ann.create(maps, config("a")).await, 403);
    assert_eq!(
        refused,
        r#"configmaps is forbidden: User "ann" cannot create resource "configmaps" in API group "" in the namespace "default""#
    );
    grant(&acme, "default", "writers", &["create", "get"], &["configmaps"], "ann").await;
    ann.create(maps, config("a")).await.unwrap();
    ann.get("v1/configmaps/default/a").await.unwrap();
    text(ann.get("v1/configmaps/kube-system/a").await, 403);
    text(ann.get("v1/secrets/default/a").await, 403);
    text(ann.list(maps, &[]).await, 403);
    text(other.as_user("ann", &[]).create(maps, config("a")).await, 403);

    let more = json!({"rules": [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}]});
    acme.patch(&path("roles", "/default/writers"), PatchKind::Merge, more).await.unwrap();
    ann.list(maps, &[]).await.unwrap();
    text(ann.create(maps, config("b")).await, 403);
    acme.delete(&path("roles", "/default/writers"), json!({})).await.unwrap();
    let refused = text(ann.list(maps, &[]).await, 403);
    assert!(refused.ends_with(r#": RBAC: role.rbac.authorization.k8s.io "writers" not found"#), "{refused}");
    acme.create(&path("roles", "/default"), role("writers", &["*"], &["*"])).await.unwrap();
    ann.create(maps, config("b")).await.unwrap();
    acme.delete(&path("rolebindings", "/default/writers"), json!({})).await.unwrap();
    text(ann.create(maps, config("c")).await, 403);
}

/// A fork goes on with the rights of its source, and each goes its own way after that.
#[tokio::test]
async fn forks_have_the_rights_of_their_source() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    grant(&acme, "default", "writers", &["create"], &["configmaps"], "ann").await;
    let copy = world.plane("copy", json!({"forkFrom": "acme"})).await;
    let maps = "v1/configmaps/default";
    copy.as_user("ann", &[]).create(maps, config("a")).await.unwrap();
    copy.delete(&path("rolebindings", "/default/writers"), json!({})).await.unwrap();
    text(copy.as_user("ann", &[]).create(maps, config("b")).await, 403);
    acme.as_user("ann", &[]).create(maps, config("b")).await.unwrap();
}

/// One object needs no more than the right to that one, also when it is looked for.
#[tokio::test]
async fn rights_to_one_object() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let (ann, maps) = (acme.as_user("ann", &[]), "v1/configmaps/default");
    let mut one = role("one", &["get", "list", "create", "deletecollection"], &["configmaps"]);
    one.at_mut(&["rules"]).unwrap().as_array_mut().unwrap()[0].set_at(&["resourceNames"], json!(["a"]));
    acme.create(&path("roles", "/default"), one).await.unwrap();
    acme.create(&path("rolebindings", "/default"), binding("one", "Role", "one", "ann")).await.unwrap();
    acme.create(maps, config("a")).await.unwrap();
    ann.get("v1/configmaps/default/a").await.unwrap();
    text(ann.get("v1/configmaps/default/b").await, 403);
    text(ann.list(maps, &[]).await, 403);
    let (names, _) = ann.list(maps, &[("fieldSelector", "metadata.name=a")]).await.unwrap();
    assert_eq!(names, ["default/a"]);
    text(ann.list(maps, &[("fieldSelector", "metadata.name=b")]).await, 403);
    text(ann.create(maps, config("a")).await, 403);

    // A namespace is in itself.
    grant(&acme, "default", "looker", &["get"], &["namespaces"], "ann").await;
    ann.get("v1/namespaces/default").await.unwrap();
    let refused = text(ann.get("v1/namespaces/kube-system").await, 403);
    assert!(refused.ends_with(r#"in the namespace "kube-system""#), "{refused}");
}

/// What every plane starts with: whoever has a name may ask about itself, and no more.
#[tokio::test]
async fn default_roles_are_in_force() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let ann = acme.as_user("ann", &[]);
    let ask = async |who: &Plane<'_>, verb: &str, resource: &str| -> Value {
        let attributes = json!({"verb": verb, "resource": resource, "namespace": "default"});
        let question = json!({"spec": {"resourceAttributes": attributes}});
        let answer = who.create("authorization.k8s.io/v1/selfsubjectaccessreviews", question).await.unwrap();
        answer.get("status").unwrap().clone()
    };
    assert_eq!(ask(&ann, "get", "pods").await, json!({"allowed": false}));
    let admin = |role: &str| binding("ann", "ClusterRole", role, "ann");
    acme.create(&path("rolebindings", "/default"), admin("edit")).await.unwrap();
    let reason = r#"RBAC: allowed by RoleBinding "ann/default" of ClusterRole "edit" to User "ann""#;
    assert_eq!(ask(&ann, "create", "pods").await, json!({"allowed": true, "reason": reason}));
    assert_eq!(ask(&ann, "create", "rolebindings").await, json!({"allowed": false}));

    // Somebody else is asked about by those who may.
    let question = |group: &str| {
        json!({"spec": {
            "user": "bob", "groups": [group],
            "resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "kube-system"},
        }})
    };
    let reviews = "authorization.k8s.io/v1/subjectaccessreviews";
    text(ann.create(reviews, question("x")).await, 403);
    let answer = async |group: &str| {
        let answer = acme.create(reviews, question(group)).await.unwrap();
        answer.at(&["status", "allowed"]).cloned()
    };
    assert_eq!(answer("system:authenticated").await, Some(Value::from(false)));
    assert_eq!(answer("system:masters").await, Some(Value::from(true)));

    let question = json!({"spec": {"namespace": "default"}});
    let answer = ann.create("authorization.k8s.io/v1/selfsubjectrulesreviews", question).await.unwrap();
    let rules = answer.array_at(&["status", "resourceRules"]);
    let has = |resource: &str| {
        rules
            .iter()
            .any(|rule| rule.array_at(&["resources"]).iter().any(|own| own.as_str() == Some(resource)))
    };
    assert!(has("selfsubjectreviews") && has("deployments") && !has("rolebindings"), "{answer}");
    assert!(!answer.array_at(&["status", "nonResourceRules"]).is_empty(), "{answer}");
}

/// Nobody gives what they do not have.
#[tokio::test]
async fn nobody_gives_more_than_they_have() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let ann = acme.as_user("ann", &["dikes"]);
    let rbac = json!({
        "metadata": {"name": "ann"},
        "rules": [
            {"verbs": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"]},
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
        ],
    });
    acme.create(&path("roles", "/default"), rbac).await.unwrap();
    acme.create(&path("rolebindings", "/default"), binding("ann", "Role", "ann", "ann")).await.unwrap();

    let (roles, bindings) = (path("roles", "/default"), path("rolebindings", "/default"));
    // `*` on roles says `escalate` too: so it is taken away.
    let verbs = json!({"rules": [
        {"verbs": ["create", "update", "patch", "get"], "apiGroups": ["rbac.authorization.k8s.io"],
         "resources": ["roles", "rolebindings"]},
        {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
    ]});
    acme.patch(&path("roles", "/default/ann"), PatchKind::Merge, verbs).await.unwrap();
    ann.create(&roles, role("reader", &["get", "list"], &["pods"])).await.unwrap();
    let refused =
        text(ann.create(&roles, role("more", &["get", "watch", "delete"], &["pods", "secrets"])).await, 403);
    assert_eq!(
        refused,
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"dikes\" \"system:authenticated\"]) \
         is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\" \"delete\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"watch\" \"delete\"]}"
    );
    let widen = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    text(ann.patch(&path("roles", "/default/reader"), PatchKind::Merge, widen).await, 403);
    // What others gave may be kept as it is, but for what the garbage collector does.
    acme.create(&roles, role("wide", &["*"], &["*"])).await.unwrap();
    let finalizers = json!({"metadata": {"finalizers": ["x.y/z"]}});
    ann.patch(&path("roles", "/default/wide"), PatchKind::Merge, finalizers).await.unwrap();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    text(ann.patch(&path("roles", "/default/wide"), PatchKind::Merge, labels).await, 403);

    ann.create(&bindings, binding("bob", "Role", "reader", "bob")).await.unwrap();
    let refused = text(ann.create(&bindings, binding("admins", "ClusterRole", "admin", "bob")).await, 403);
    assert!(refused.contains("is attempting to grant RBAC permissions not currently held:\n"), "{refused}");
    text(ann.create(&bindings, binding("lost", "Role", "nowhere", "bob")).await, 404);
    text(
        ann.create(&path("clusterrolebindings", ""), binding("all", "ClusterRole", "view", "bob")).await,
        403,
    );

    // The verbs that say so.
    let bind = json!({
        "metadata": {"name": "binder"},
        "rules": [{"verbs": ["bind"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"],
                   "resourceNames": ["view"]}],
    });
    acme.create(&roles, bind).await.unwrap();
    acme.create(&bindings, binding("binder", "Role", "binder", "ann")).await.unwrap();
    ann.create(&bindings, binding("viewer", "ClusterRole", "view", "bob")).await.unwrap();
    text(ann.create(&bindings, binding("editor", "ClusterRole", "edit", "bob")).await, 403);
}

/// Who belongs to no plane is nobody in one that has no binding for them, though they be somebody.
#[tokio::test]
async fn guests_are_known_by_their_bindings() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let plane = acme.context().plane;
    let review = async |user: &UserInfo| {
        let guest = Plane { user: user.clone(), ..Plane::new(&world, "acme") };
        guest.create("authentication.k8s.io/v1/selfsubjectreviews", json!({})).await
    };
    let user = UserInfo::authenticated("ann", [SmolStr::new("dikes")]);
    assert!(!world.registry.knows(&plane, &user).await.unwrap());
    text(review(&user).await, 403);
    let mut bound = binding("dikes", "ClusterRole", "view", "dikes");
    bound.at_mut(&["subjects"]).unwrap().as_array_mut().unwrap()[0].set_at(&["kind"], "Group");
    acme.create(&path("rolebindings", "/default"), bound).await.unwrap();
    assert!(world.registry.knows(&plane, &user).await.unwrap());
    review(&user).await.unwrap();
    assert!(!world.registry.knows(&plane, &UserInfo::authenticated("bob", [])).await.unwrap());
}

/// Nobody reads through a policy what they may not read.
#[tokio::test]
async fn policies_look_where_their_writer_may() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let ann = acme.as_user("ann", &[]);
    let policies = json!({
        "metadata": {"name": "policies"},
        "rules": [{"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]}],
    });
    acme.create(&path("clusterroles", ""), policies).await.unwrap();
    acme.create(&path("clusterrolebindings", ""), binding("policies", "ClusterRole", "policies", "ann"))
        .await
        .unwrap();
    let policy = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "paramKind": {"apiVersion": "v1", "kind": "Secret"},
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]},
            "validations": [{"expression": "true"}],
        }})
    };
    let bound = |name: &str, namespace: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "policyName": "looks", "validationActions": ["Deny"],
            "paramRef": {"name": "s", "namespace": namespace, "parameterNotFoundAction": "Deny"},
        }})
    };
    let at = "admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let bindings = "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let refused = text(ann.create(at, policy("looks")).await, 422);
    assert_eq!(
        refused,
        "ValidatingAdmissionPolicy.admissionregistration.k8s.io \"looks\" is invalid: spec.paramKind: Forbidden: user \
         &{ann  [system:authenticated] map[]} must have \"get\" permission on all objects of the referenced paramKind \
         (kind=Secret, apiVersion=v1)"
    );
    acme.create(at, policy("looks")).await.unwrap();
    // What others made may be changed where it is not about parameters.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ann.patch(&format!("{at}/looks"), PatchKind::Merge, label).await.unwrap();
    let refused = text(ann.create(bindings, bound("b", "default")).await, 422);
    assert!(
        refused.contains("does not have \"get\" permission on the object referenced by paramRef"),
        "{refused}"
    );
    grant(&acme, "default", "reader", &["get"], &["secrets"], "ann").await;
    ann.create(bindings, bound("b", "default")).await.unwrap();
    text(ann.create(bindings, bound("c", "kube-system")).await, 422);
    text(ann.create(at, policy("more")).await, 422);
}
