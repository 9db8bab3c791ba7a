//! Planes as their provider sees them: what they say of themselves, and the command line that makes and moves them.

use polder_test_support::{Value, json};

use crate::process::{MAPS, PLANES, Polder, polder};

/// A plane says where it is and what is in it, and is there when its create has answered.
#[test]
fn status() {
    let polder = Polder::start();
    polder.admin.post(PLANES, &json!({"metadata": {"name": "acme"}})).expect(201);
    let acme = polder.admin.in_plane("acme");
    acme.get("/api/v1/namespaces/default").expect(200);
    let status = || polder.admin.get(&format!("{PLANES}/acme")).expect(200).json()["status"].clone();
    let count = |status: &Value, what: &str| status[what].as_u64().unwrap_or(0);
    let before = status();
    acme.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"a": "b"}})).expect(201);
    let after = status();
    assert_eq!(after["phase"], "Ready");
    assert!(after["url"].as_str().unwrap().ends_with("/clusters/acme"), "{after}");
    assert!(after["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty()), "{after}");
    assert!(after["lastActivity"].is_string(), "{after}");
    assert_eq!(count(&after, "objectCount"), count(&before, "objectCount") + 1);
    assert!(count(&after, "storedBytes") > count(&before, "storedBytes"));
}

/// A plane says what it may use, and which of that is by default. A fork has what its source has, unless it says otherwise, so that
/// nobody gets more by forking; one of a layer has what it says.
#[test]
fn limits_are_told_and_kept_by_forks() {
    let polder = Polder::start_with("defaultLimits:\n  watches: 7\n");
    let make = |name: &str, spec: Value| {
        polder.admin.post(PLANES, &json!({"metadata": {"name": name}, "spec": spec})).expect(201);
        polder.admin.get(&format!("{PLANES}/{name}")).expect(200).json()
    };
    let policy = json!({"rules": [{"level": "Metadata"}]});
    let acme = make(
        "acme",
        json!({"limits": {"objects": 900, "requestsPerSecond": 500}, "simulatedNodes": 2, "auditPolicy": policy}),
    );
    let limits = json!({
        "objects": 900, "storedBytes": (1 << 30), "objectBytes": (3 << 19), "watches": 7, "requestsInFlight": 400,
        "requestsPerSecond": 500, "weight": 100,
    });
    assert_eq!(acme["status"]["limits"], limits);
    let defaults = json!(["storedBytes", "objectBytes", "watches", "requestsInFlight", "weight"]);
    assert_eq!(acme["status"]["defaultLimits"], defaults);
    let fork = make("fork", json!({"forkFrom": "acme", "limits": {"objects": 800}, "simulatedNodes": 0}));
    assert_eq!(fork["spec"]["limits"], json!({"objects": 800, "requestsPerSecond": 500}));
    assert_eq!((&fork["spec"]["auditPolicy"], &fork["spec"]["simulatedNodes"]), (&policy, &json!(0)));
    let same = make("same", json!({"forkFrom": "fork"}));
    assert_eq!(
        (&same["spec"]["limits"], &same["status"]["limits"]["objects"]),
        (&fork["spec"]["limits"], &json!(800))
    );
    let nodes = make("nodes", json!({"forkFrom": "acme"}));
    assert_eq!(nodes["spec"]["simulatedNodes"], 2);
    let layer = json!({"metadata": {"name": "golden"}, "spec": {"plane": "acme"}});
    polder.admin.post("/apis/polder.dev/v1alpha1/layers", &layer).expect(201);
    assert_eq!(
        make("again", json!({"forkFrom": "layer/golden"}))["spec"],
        json!({"forkFrom": "layer/golden"})
    );
}

/// The provider's own plane is not made, and does not go away.
#[test]
fn the_core_plane_stays() {
    let polder = Polder::start();
    let made = polder.admin.post(PLANES, &json!({"metadata": {"name": "core"}}));
    assert!(matches!(made.code, 403 | 409 | 422), "{}", made.text());
    let gone = polder.admin.delete(&format!("{PLANES}/core"));
    assert!(matches!(gone.code, 403 | 404 | 422), "{}", gone.text());
    polder.admin.get(MAPS).expect(200);
}

/// Every subcommand of `polder plane`, and what it did, seen through the API.
#[test]
fn command_line() {
    let server = Polder::start();
    let kubeconfig = server.data().join("admin.kubeconfig");
    let run = |line: &str| {
        let mut command = polder();
        command.arg("plane").args(line.split(' ')).env("KUBECONFIG", &kubeconfig);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("create acme");
    let acme = server.admin.in_plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"a": "b"}})).expect(201);
    assert!(run("list").contains("acme"));
    assert!(run("get acme").contains("acme"));
    run("fork acme preview");
    server.admin.in_plane("preview").get(&format!("{MAPS}/a")).expect(200);
    run("snapshot acme golden");
    run("create again --fork-from layer/golden");
    server.admin.in_plane("again").get(&format!("{MAPS}/a")).expect(200);
    assert!(run("kubeconfig acme").contains("/clusters/acme"));
    run("create --count 5 --prefix many-");
    let planes = server.admin.get(PLANES).json();
    let many = |planes: &Value| {
        let items = planes["items"].as_array().unwrap().iter();
        items.filter(|plane| plane["metadata"]["name"].as_str().unwrap().starts_with("many-")).count()
    };
    assert_eq!(many(&planes), 5);
    let file = server.data().join("acme.export");
    let version =
        |reply: Value| -> u64 { reply["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap() };
    let old = version(acme.get(MAPS).json());
    run(&format!("export acme --file {}", file.display()));
    run(&format!("import moved --file {}", file.display()));
    let moved = server.admin.in_plane("moved").get(MAPS).expect(200).json();
    assert_eq!(moved["items"][0]["data"]["a"], "b");
    assert!(version(moved) >= old, "versions grow on");
    run("delete again preview moved --yes");
    server.admin.in_plane("moved").get(MAPS).expect(404);
}
