//! Admission through the verbs: what plugins change, refuse and write is there, or not, in the answer itself.

use crate::world::{World, code};
use futures_util::future::join_all;
use polder_model::{Value, json};
use polder_registry::write::PatchKind;

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test]
async fn a_quota_is_exact_however_many_come_at_once() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let quota =
        json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "25", "resourcequotas": "1"}}});
    let made = plane.create("v1/resourcequotas/default", quota).await.unwrap();
    let status = |quota: &Value| quota.at(&["status"]).cloned().unwrap_or_default().to_string();
    assert_eq!(
        status(&made),
        r#"{"hard":{"configmaps":"25","resourcequotas":"1"},"used":{"configmaps":"0","resourcequotas":"1"}}"#
    );

    let creates = (0..100).map(|index| {
        let plane = &plane;
        async move { plane.create("v1/configmaps/default", named(&format!("c{index}"))).await }
    });
    let outcomes = join_all(creates).await;
    let refused: Vec<String> =
        outcomes.iter().filter_map(|one| Some(one.as_ref().err()?.message.clone())).collect();
    assert_eq!(outcomes.len() - refused.len(), 25);
    let end = "is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=25, limited: configmaps=25";
    assert!(refused.iter().all(|text| text.ends_with(end)), "{refused:?}");
    let (there, _) = plane.list("v1/configmaps/default", &[]).await.unwrap();
    assert_eq!(there.len(), 25);

    // Deletes give back what they free, at once, and as exactly.
    let deletes = there.iter().map(|name| {
        let (plane, path) = (&plane, format!("v1/configmaps/{name}"));
        async move { plane.delete(&path, json!({})).await.unwrap() }
    });
    join_all(deletes).await;
    let quota = plane.get("v1/resourcequotas/default/q").await.unwrap();
    assert_eq!(quota.str_at(&["status", "used", "configmaps"]), Some("0"));
}

#[tokio::test]
async fn quotas_count_what_is_there_and_follow_what_they_allow() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/configmaps/default", named("before")).await.unwrap();
    plane.create("v1/secrets/default", named("before")).await.unwrap();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}});
    let made = plane.create("v1/resourcequotas/default", quota).await.unwrap();
    assert_eq!(made.str_at(&["status", "used", "configmaps"]), Some("1"));
    assert_eq!(code(plane.create("v1/configmaps/default", named("c")).await).0, 403);
    // Another namespace has its own, and a dry run uses nothing.
    plane.create("v1/configmaps/kube-public", named("c")).await.unwrap();
    let patch = json!({"spec": {"hard": {"configmaps": "2", "count/secrets": "1"}}});
    let patched = plane.patch("v1/resourcequotas/default/q", PatchKind::Merge, patch).await.unwrap();
    let used = patched.at(&["status", "used"]).unwrap().to_string();
    assert_eq!(used, r#"{"configmaps":"1","count/secrets":"1"}"#);
    plane.create_with("v1/configmaps/default", named("c"), &[("dryRun", "All")]).await.unwrap();
    assert_eq!(code(plane.create_with("v1/secrets/default", named("c"), &[("dryRun", "All")]).await).0, 403);
    plane.create("v1/configmaps/default", named("c")).await.unwrap();
    assert_eq!(code(plane.create("v1/configmaps/default", named("d")).await).0, 403);
}

#[tokio::test]
async fn an_object_that_waits_for_its_finalizer_counts_until_it_goes() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "1"}}});
    plane.create("v1/resourcequotas/default", quota).await.unwrap();
    let held = json!({"metadata": {"name": "c", "finalizers": ["example.com/x"]}});
    plane.create("v1/configmaps/default", held).await.unwrap();
    plane.delete("v1/configmaps/default/c", json!({})).await.unwrap();
    let used = async || {
        let quota = plane.get("v1/resourcequotas/default/q").await.unwrap();
        quota.str_at(&["status", "used", "configmaps"]).unwrap().to_owned()
    };
    assert_eq!(used().await, "1");
    let patch = json!({"metadata": {"finalizers": null}});
    plane.patch("v1/configmaps/default/c", PatchKind::Merge, patch).await.unwrap();
    assert_eq!(used().await, "0");
}

#[tokio::test]
async fn pods_are_completed() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/namespaces", named("team")).await.unwrap();
    let limits = json!({"metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}, "max": {"cpu": "3"}},
    ]}});
    plane.create("v1/limitranges/team", limits).await.unwrap();
    let made = plane.create("v1/pods/team", pod("p")).await.unwrap();
    let text = |path: &[&str]| made.str_at(path).unwrap_or_default().to_owned();
    assert_eq!(text(&["spec", "serviceAccountName"]), "default");
    assert_eq!(made.i64_at(&["spec", "priority"]), Some(0));
    assert_eq!(made.array_at(&["spec", "tolerations"]).len(), 2);
    let container = &made.array_at(&["spec", "containers"])[0];
    assert_eq!(
        container.at(&["resources"]).unwrap().to_string(),
        r#"{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}"#
    );
    // What the limits added counts when the class is found.
    assert_eq!(text(&["status", "qosClass"]), "Burstable");
    let volume = &made.array_at(&["spec", "volumes"])[0];
    assert!(volume.str_at(&["name"]).unwrap().starts_with("kube-api-access-"));

    let mut large = pod("large");
    large.set_at(
        &["spec", "containers"],
        json!([
            {"name": "c", "image": "i", "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}}},
        ]),
    );
    assert_eq!(
        code(plane.create("v1/pods/team", large).await),
        (403, r#"pods "large" is forbidden: maximum cpu usage per Container is 3, but limit is 4"#.into())
    );
    let mut lost = pod("lost");
    lost.set_at(&["spec", "serviceAccountName"], "nobody");
    assert_eq!(
        code(plane.create("v1/pods/team", lost).await).1,
        r#"pods "lost" is forbidden: error looking up service account team/nobody: serviceaccount "nobody" not found"#
    );
    let mut missing = pod("p");
    missing.set_at(&["spec", "runtimeClassName"], "gvisor");
    assert_eq!(
        code(plane.create_with("v1/pods/team", missing, &[("dryRun", "All")]).await).1,
        r#"pods "p" is forbidden: pod rejected: RuntimeClass "gvisor" not found"#
    );
    assert_eq!(
        code(plane.create("v1/pods/nowhere", pod("p")).await),
        (404, r#"namespaces "nowhere" not found"#.into())
    );
}

#[tokio::test]
async fn namespaces_ask_for_safe_pods() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let strict =
        json!({"metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}}});
    plane.create("v1/namespaces", strict).await.unwrap();
    plane.create("v1/pods/strict", pod("plain")).await.unwrap();
    let mut host = pod("host");
    host.set_at(&["spec", "hostPID"], true);
    assert_eq!(
        code(plane.create("v1/pods/strict", host).await),
        (403, r#"pods "host" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)"#.into())
    );
    let odd = json!({"metadata": {"name": "odd", "labels": {"pod-security.kubernetes.io/enforce": "x"}}});
    assert_eq!(code(plane.create("v1/namespaces", odd).await).0, 422);
}

#[tokio::test]
async fn a_namespace_goes_with_its_quota() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    plane.create("v1/namespaces", named("team")).await.unwrap();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"configmaps": "50"}}});
    plane.create("v1/resourcequotas/team", quota).await.unwrap();
    for index in 0..20 {
        plane.create("v1/configmaps/team", named(&format!("c{index}"))).await.unwrap();
    }
    plane.delete("v1/namespaces/team", json!({})).await.unwrap();
    plane.gone("v1/namespaces/team").await;
    for kept in ["default", "kube-system", "kube-public"] {
        let refusal = format!("namespaces {kept:?} is forbidden: this namespace may not be deleted");
        assert_eq!(code(plane.delete(&format!("v1/namespaces/{kept}"), json!({})).await), (403, refusal));
    }
}

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn no_two_services_have_the_same_address_or_port() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let creates = (0..60).map(|index| {
        let spec = json!({"type": "NodePort", "ports": [{"port": 80}]});
        let (plane, object) = (&plane, service(&format!("s{index}"), spec));
        async move { plane.create("v1/services/default", object).await.unwrap() }
    });
    let made = join_all(creates).await;
    let distinct = |path: &dyn Fn(&Value) -> String| {
        let mut all: Vec<String> = made.iter().map(path).collect();
        all.sort_unstable();
        all.dedup();
        all.len()
    };
    assert_eq!(distinct(&|one| one.str_at(&["spec", "clusterIP"]).unwrap().into()), 60);
    let port = |one: &Value| one.array_at(&["spec", "ports"])[0].i64_at(&["nodePort"]).unwrap();
    assert_eq!(distinct(&|one| port(one).to_string()), 60);
    assert!(made.iter().all(|one| (30_086..=32_767).contains(&port(one))));
    let (addresses, _) = plane.list("networking.k8s.io/v1/ipaddresses", &[]).await.unwrap();
    assert_eq!(addresses.len(), 61, "these and that of the API itself");
}

/// An address that a client deleted may be another service's by now.
#[tokio::test]
async fn a_service_gives_back_only_what_is_its_own() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let address = "networking.k8s.io/v1/ipaddresses/10.96.0.77";
    let spec = || json!({"clusterIP": "10.96.0.77", "ports": [{"port": 80}]});
    plane.create("v1/services/default", service("a", spec())).await.unwrap();
    plane.delete(address, json!({})).await.unwrap();
    plane.create("v1/services/default", service("b", spec())).await.unwrap();
    plane.delete("v1/services/default/a", json!({})).await.unwrap();
    assert_eq!(plane.get(address).await.unwrap().str_at(&["spec", "parentRef", "name"]), Some("b"));
    plane.delete(address, json!({})).await.unwrap();
    plane.delete("v1/services/default/b", json!({})).await.unwrap();
}

#[tokio::test]
async fn services_get_what_they_ask_for_and_give_it_back() {
    let world = World::new();
    let plane = world.plane("acme", json!({})).await;
    let spec =
        || json!({"type": "NodePort", "clusterIP": "10.96.0.77", "ports": [{"port": 80, "nodePort": 30001}]});
    let made = plane.create("v1/services/default", service("a", spec())).await.unwrap();
    assert_eq!(made.array_at(&["spec", "clusterIPs"]), ["10.96.0.77".into()]);
    assert_eq!(made.array_at(&["spec", "ipFamilies"]), ["IPv4".into()]);
    let address = plane.get("networking.k8s.io/v1/ipaddresses/10.96.0.77").await.unwrap();
    assert_eq!(address.str_at(&["spec", "parentRef", "name"]), Some("a"));

    let refusals = [
        (
            spec(),
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.96.0.77\"]: failed to allocate IP 10.96.0.77: provided IP is already allocated",
        ),
        (
            json!({"clusterIP": "10.1.2.3", "ports": [{"port": 80}]}),
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.1.2.3\"]: failed to allocate IP 10.1.2.3: the provided network does not match the current range",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30001}]}),
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated",
        ),
        (
            json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}),
            "Service \"b\" is invalid: spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
        ),
        (
            json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]}),
            "Service \"b\" is invalid: spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
        ),
    ];
    for (spec, expected) in refusals {
        let refused = plane.create("v1/services/default", service("b", spec)).await.unwrap_err();
        assert_eq!(refused.message, expected);
    }

    // Another type needs less.
    let patch = json!({"spec": {"type": "ExternalName", "externalName": "x.example", "clusterIP": null, "clusterIPs": null, "ports": null}});
    let made = plane.patch("v1/services/default/a", PatchKind::Merge, patch).await.unwrap();
    assert_eq!(made.at(&["spec", "clusterIP"]), None);
    assert!(plane.get("networking.k8s.io/v1/ipaddresses/10.96.0.77").await.is_err());
    plane.create("v1/services/default", service("b", spec())).await.unwrap();
    plane.delete("v1/services/default/b", json!({})).await.unwrap();
    plane.create("v1/services/default", service("c", spec())).await.unwrap();

    let headless = plane
        .create(
            "v1/services/default",
            service("h", json!({"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]})),
        )
        .await
        .unwrap();
    assert_eq!(headless.array_at(&["spec", "clusterIPs"]), ["None".into()]);
    assert_eq!(headless.array_at(&["spec", "ipFamilies"]), ["IPv4".into()]);
}
