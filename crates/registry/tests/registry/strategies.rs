//! Where kinds differ from each other and from custom resources in what they keep, note and refuse.

use polder_model::{Value, json};
use polder_registry::write::PatchKind;

use crate::world::{World, code};

const REQUEST: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQgotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

#[tokio::test]
async fn a_node_registers_with_its_status() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let node = json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "4"}}});
    let made = plane.create("v1/nodes", node).await.unwrap();
    assert_eq!(made.str_at(&["status", "allocatable", "cpu"]), Some("4"));
    assert_eq!(made.str_at(&["status", "nodeInfo", "osImage"]), Some(""));
    let replaced = plane.update("v1/nodes/n", json!({"metadata": {"name": "n"}})).await.unwrap();
    assert_eq!(replaced.str_at(&["status", "capacity", "cpu"]), Some("4"), "later it has its own endpoint");
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Running"},
    });
    let made = plane.create("v1/pods/default", pod).await.unwrap();
    assert_eq!(made.str_at(&["status", "phase"]), Some("Pending"), "other kinds do not");
}

#[tokio::test]
async fn a_signing_request_names_who_asks_and_who_judges() {
    const REQUESTS: &str = "certificates.k8s.io/v1/certificatesigningrequests";
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let request = json!({"metadata": {"name": "r"}, "spec": {
        "request": REQUEST, "signerName": "a.b/c", "usages": ["client auth"], "username": "somebody-else",
    }});
    let made = plane.create(REQUESTS, request).await.unwrap();
    assert_eq!(made.str_at(&["spec", "username"]), Some("system:apiserver"));
    let groups: Vec<&str> = made.array_at(&["spec", "groups"]).iter().filter_map(Value::as_str).collect();
    assert_eq!(groups, ["system:masters", "system:authenticated"]);

    let approval =
        |conditions: Value| json!({"metadata": {"name": "r"}, "status": {"conditions": conditions}});
    let part = format!("{REQUESTS}/r/approval");
    let rows = [
        (
            json!([{"type": "Approved", "status": "False"}]),
            r#"status.conditions[0].status: Unsupported value: "False": supported values: "True""#,
        ),
        (
            json!([{"type": "", "status": ""}]),
            "[status.conditions[0].type: Required value, status.conditions[0].status: Required value]",
        ),
        (
            json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]),
            r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
        ),
    ];
    for (conditions, expected) in rows {
        let found = code(plane.update(&part, approval(conditions)).await);
        let text = format!(r#"CertificateSigningRequest.certificates.k8s.io "r" is invalid: {expected}"#);
        assert_eq!(found, (422, text));
    }
    let approved = approval(json!([{"type": "Approved", "status": "True", "reason": "r"}]));
    let approved = plane.update(&part, approved).await.unwrap();
    let condition = &approved.array_at(&["status", "conditions"])[0];
    for time in ["lastUpdateTime", "lastTransitionTime"] {
        assert_eq!(condition.str_at(&[time]), Some("2026-01-01T00:00:00Z"), "{time}");
    }
    assert_eq!(approved.str_at(&["spec", "username"]), Some("system:apiserver"));
}

#[tokio::test]
async fn what_exists_may_be_on_its_way_out() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let object = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    let path = "v1/configmaps/default";
    plane.create(path, object.clone()).await.unwrap();
    assert_eq!(code(plane.create(path, object.clone()).await).1, r#"configmaps "a" already exists"#);
    plane.delete("v1/configmaps/default/a", json!({})).await.unwrap();
    let text = r#"object is being deleted: configmaps "a" already exists"#;
    assert_eq!(code(plane.create(path, object.clone()).await), (409, text.into()));
    let dry = plane.create_with(path, object.clone(), &[("dryRun", "All")]).await;
    assert_eq!(code(dry), (409, text.into()));
    let mut prefixed = object;
    prefixed.set_at(&["metadata", "generateName"], "a-");
    let text = format!("{text}, the server was not able to generate a unique name for the object");
    assert_eq!(code(plane.create(path, prefixed).await), (409, text));
}

#[tokio::test]
async fn a_uid_says_which_object_is_meant() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let made = plane.create(
        "v1/services/default",
        json!({
            "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]},
        }),
    );
    let made = made.await.unwrap();
    let own = made.str_at(&["metadata", "uid"]).unwrap();
    let other = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"ports": [{"port": 80}]}});
    let refusal = |own: &str| {
        format!(
            "Operation cannot be fulfilled on services \"a\": StorageError: invalid object, Code: 4, Key: \
             /services/specs/default/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
             precondition: u, UID in object meta: {own}"
        )
    };
    assert_eq!(code(plane.update("v1/services/default/a", other.clone()).await), (409, refusal(own)));
    let patch = json!({"metadata": {"uid": "u"}});
    assert_eq!(
        code(plane.patch("v1/services/default/a", PatchKind::Merge, patch).await),
        (422, r#"Service "a" is invalid: metadata.uid: Invalid value: "u": field is immutable"#.into())
    );
    let wrong = json!({"preconditions": {"uid": "u"}});
    assert_eq!(
        code(plane.delete("v1/services/default/a", wrong).await).1,
        format!(
            "Operation cannot be fulfilled on Service \"a\": the UID in the precondition (u) does not match the UID \
             in record ({own}). The object might have been deleted and then recreated"
        )
    );
    plane.delete("v1/services/default/a", json!({})).await.unwrap();
    // A PUT would create a service, but not one that has been somewhere else. It creates no config maps at all.
    assert_eq!(code(plane.update("v1/services/default/a", other).await), (409, refusal("")));
    let map = json!({"metadata": {"name": "a", "uid": "u"}});
    assert_eq!(code(plane.update("v1/configmaps/default/a", map).await).0, 404);
}

#[tokio::test]
async fn metadata_is_refused_like_upstream() {
    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
         end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation \
         is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": true});
    let rows = [
        (
            json!({"finalizers": ["x"]}),
            r#"metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified"#
                .to_owned(),
        ),
        (
            json!({"finalizers": ["orphan", "foregroundDeletion"]}),
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#
                .into(),
        ),
        (
            json!({"labels": {"": "d"}}),
            format!(
                r#"[metadata.labels: Invalid value: "": name part must be non-empty, metadata.labels: Invalid value: "": {NAME_PART}]"#
            ),
        ),
        (
            json!({"ownerReferences": [{"apiVersion": "v1", "kind": "", "name": "", "uid": ""}]}),
            r#"[metadata.ownerReferences.kind: Invalid value: "": must not be empty, metadata.ownerReferences.name: Invalid value: "": must not be empty, metadata.ownerReferences.uid: Invalid value: "": must not be empty]"#
                .into(),
        ),
        (
            json!({"ownerReferences": [(owner("a", "1")), (owner("b", "2"))]}),
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1","controller":true},{"apiVersion":"v1","kind":"Pod","name":"b","uid":"2","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b"#
                .into(),
        ),
    ];
    for (mut metadata, expected) in rows {
        metadata.set_at(&["name"], "probe");
        let found = code(plane.create("v1/configmaps/default", json!({"metadata": metadata})).await);
        assert_eq!(found, (422, format!(r#"ConfigMap "probe" is invalid: {expected}"#)));
    }
    let (_, text) = code(plane.create("v1/namespaces", json!({"metadata": {"name": "a.b"}})).await);
    assert_eq!(
        text,
        r#"Namespace "a.b" is invalid: metadata.name: Invalid value: "a.b": must not contain dots"#
    );
    // Leases take any finalizer, and so do custom resources.
    let lease = json!({"metadata": {"name": "l", "finalizers": ["x"]}});
    plane.create("coordination.k8s.io/v1/leases/default", lease).await.unwrap();
    let event = json!({"metadata": {"name": "e"}, "type": "Normal"});
    let (_, text) = code(plane.create("events.k8s.io/v1/events/default", event).await);
    assert!(text.starts_with(r#"Event "e" is invalid: "#), "{text}");
}

#[tokio::test]
async fn generations_and_prefixes() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let deployment = json!({"metadata": {"name": "d", "labels": {"l": "1"}, "generateName": "x-"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let path = "apps/v1/deployments/default/d";
    plane.create("apps/v1/deployments/default", deployment).await.unwrap();
    let generation = |object: &Value| object.i64_at(&["metadata", "generation"]);
    let rows = [
        (path, json!({"metadata": {"annotations": {"a": "b"}}}), Some(2)),
        (path, json!({"metadata": {"labels": {"l": "2"}, "generateName": "y-"}}), Some(2)),
        (path, json!({"metadata": {"annotations": {"a": "c"}}, "spec": {"replicas": 2}}), Some(3)),
        (
            "apps/v1/deployments/default/d/status",
            json!({"metadata": {"annotations": {"a": "d"}, "labels": {"l": "3"}}, "status": {"replicas": 1}}),
            Some(3),
        ),
    ];
    let mut last = Value::Null;
    for (path, patch, expected) in rows {
        last = plane.patch(path, PatchKind::Merge, patch).await.unwrap();
        assert_eq!(generation(&last), expected, "{last}");
    }
    assert_eq!(last.str_at(&["metadata", "labels", "l"]), Some("2"), "a report does not label");
    assert_eq!(last.str_at(&["metadata", "annotations", "a"]), Some("d"));
    assert_eq!(last.str_at(&["metadata", "generateName"]), Some("y-"));

    let class = json!({"metadata": {"name": "p"}, "value": 1});
    let made = plane.create("scheduling.k8s.io/v1/priorityclasses", class).await.unwrap();
    let described = json!({"description": "x"});
    let path = "scheduling.k8s.io/v1/priorityclasses/p";
    let changed = plane.patch(path, PatchKind::Merge, described).await.unwrap();
    assert_eq!((generation(&made), generation(&changed)), (Some(1), Some(1)));

    let driver = json!({"metadata": {"name": "d"}, "spec": {}});
    let made = plane.create("storage.k8s.io/v1/csidrivers", driver).await.unwrap();
    let path = "storage.k8s.io/v1/csidrivers/d";
    let changed =
        plane.patch(path, PatchKind::Merge, json!({"spec": {"requiresRepublish": true}})).await.unwrap();
    assert_eq!((generation(&made), generation(&changed)), (None, Some(1)));
}
