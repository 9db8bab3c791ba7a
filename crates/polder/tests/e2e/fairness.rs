//! Priority and fairness within a plane, by the plane's own objects.

use std::time::{Duration, Instant};

use polder_test_support::{Client, Connection, Value, json};

use crate::process::{MAPS, Polder};

const FLOWS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// A user with all rights in the plane, none of whose requests are exempt.
fn user(acme: &Client, name: &str) -> Client {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}]
    });
    acme.post(BINDINGS, &binding).expect(201);
    acme.clone().with_header("Impersonate-User", name)
}

/// A level, and a schema that puts a user's requests into it.
fn level(acme: &Client, user: &str, limited: &Value) {
    let spec = json!({"type": "Limited", "limited": limited});
    acme.post(
        &format!("{FLOWS}/prioritylevelconfigurations"),
        &json!({"metadata": {"name": user}, "spec": spec}),
    )
    .expect(201);
    let rules = json!({
        "subjects": [{"kind": "User", "user": {"name": user}}],
        "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]
    });
    let spec = json!({
        "matchingPrecedence": 50, "priorityLevelConfiguration": {"name": user}, "rules": [rules]
    });
    acme.post(&format!("{FLOWS}/flowschemas"), &json!({"metadata": {"name": user}, "spec": spec}))
        .expect(201);
}

/// A write whose body is never sent to its end: it is under way until it is dropped.
fn half(client: &Client) -> Connection {
    let mut connection = client.connect().unwrap();
    let head = client.head("POST", MAPS, &[("Content-Type", "application/json")], &[b' '; 100]);
    connection.write(format!("{head}{{").as_bytes()).unwrap();
    connection
}

/// Waits until the plane's own numbers say so.
#[track_caller]
fn until(acme: &Client, line: &str) {
    let started = Instant::now();
    loop {
        let text = acme.get("/metrics").expect(200).text();
        if text.lines().any(|own| own == line) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "never {line:?}: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

const WAITING: &str = "apiserver_flowcontrol_current_inqueue_requests";

/// What is too much for a level waits in its line, and is turned away when that is full; other levels do not notice.
#[test]
fn levels_wait_in_their_own_lines() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"requestsInFlight": 40}));
    let (eve, bob) = (user(&acme, "eve"), user(&acme, "bob"));
    // Two of 247 shares are one seat; no more can be borrowed, and one may wait.
    let queuing = json!({"queues": 1, "handSize": 1, "queueLengthLimit": 1});
    let tiny = json!({
        "nominalConcurrencyShares": 2, "borrowingLimitPercent": 0, "lendablePercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing}
    });
    level(&acme, "eve", &tiny);
    let sits = half(&eve);
    until(&acme, "apiserver_flowcontrol_current_executing_seats 2");
    let waits = std::thread::spawn({
        let eve = eve.clone();
        move || eve.get(MAPS)
    });
    until(&acme, &format!("{WAITING} 1"));
    let refused = eve.get(MAPS).expect(429);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(refused.text().contains(r#"priority level \"eve\" wait"#), "{}", refused.text());
    assert!(refused.header("x-kubernetes-pf-prioritylevel-uid").is_some());
    // Others, and the plane's administrator, are served.
    bob.get(MAPS).expect(200);
    acme.get(MAPS).expect(200);
    polder.plane("globex").get(MAPS).expect(200);
    assert!(!waits.is_finished());
    drop(sits);
    waits.join().unwrap().expect(200);
    until(&acme, &format!("{WAITING} 0"));

    // The level changes while somebody is under way: it holds for whoever comes next.
    let _sits = half(&eve);
    until(&acme, "apiserver_flowcontrol_current_executing_seats 2");
    let more = json!({"spec": {"limited": {"nominalConcurrencyShares": 100}}});
    let path = format!("{FLOWS}/prioritylevelconfigurations/eve");
    acme.patch(&path, "merge", &more).expect(200);
    eve.get(MAPS).expect(200);
}

/// A level without lines turns away at once, and who hangs up while it waits is not in the way.
#[test]
fn levels_that_do_not_wait_and_clients_that_do_not() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"requestsInFlight": 40}));
    let eve = user(&acme, "eve");
    let limited = json!({
        "nominalConcurrencyShares": 2, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}
    });
    level(&acme, "eve", &limited);
    let sits = half(&eve);
    until(&acme, "apiserver_flowcontrol_current_executing_seats 2");
    eve.get(MAPS).expect(429);
    drop(sits);
    let queue = json!({"spec": {"limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 1, "handSize": 1, "queueLengthLimit": 5}}}}});
    let path = format!("{FLOWS}/prioritylevelconfigurations/eve");
    acme.patch(&path, "merge", &queue).expect(200);
    let sits = half(&eve);
    until(&acme, "apiserver_flowcontrol_current_executing_seats 2");
    let hangs_up: Vec<Connection> = (0..5)
        .map(|_| {
            let mut connection = eve.connect().unwrap();
            connection.write(eve.head("GET", MAPS, &[], b"").as_bytes()).unwrap();
            connection
        })
        .collect();
    until(&acme, &format!("{WAITING} 5"));
    drop(hangs_up);
    until(&acme, &format!("{WAITING} 0"));
    drop(sits);
    eve.get(MAPS).expect(200);
}

/// A watch has its seat until it has been told what is there, not for as long as it is open.
#[test]
fn watches_sit_for_a_moment() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"requestsInFlight": 40}));
    let eve = user(&acme, "eve");
    let limited = json!({
        "nominalConcurrencyShares": 2, "borrowingLimitPercent": 0, "limitResponse": {"type": "Reject"}
    });
    level(&acme, "eve", &limited);
    acme.post(MAPS, &json!({"metadata": {"name": "one"}})).expect(201);
    let mut open: Vec<_> = (0..5)
        .map(|_| {
            let mut watch = eve.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Done"));
            assert_eq!(watch.next_name(), "ADDED one");
            until(&acme, "apiserver_flowcontrol_current_executing_seats 1");
            watch
        })
        .collect();
    eve.get(MAPS).expect(200);
    acme.delete(&format!("{MAPS}/one")).expect(200);
    open.iter_mut().for_each(|watch| assert_eq!(watch.next_name(), "DELETED one"));
}
