//! Who decides what somebody may do: webhooks of the provider's in an order that can change while the server runs, and nodes by
//! their pods; in one plane without the other.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polder_test_support::issuer::access_webhook;
use polder_test_support::{Client, Value, eventually, json};

use crate::process::{MAPS, PLANES, Polder, refused, serve};

/// People of planes, by static tokens: the number of a plane is behind their groups.
fn tokens(acme: u64, other: u64) -> String {
    format!(
        "ann-token,ann,1,\"dev\",{acme}\nbob-token,bob,2,\"dev\",{acme}\nann-other,ann,3,\"dev\",{other}\n\
         node-token,system:node:a,4,\"system:nodes\",{acme}\nnode-other,system:node:a,5,\"system:nodes\",{other}\n"
    )
}

fn entry(name: &str, kubeconfig: &Path, changes: &[(&str, Value)]) -> Value {
    let mut webhook = json!({
        "timeout": "1s", "authorizedTTL": "5m", "unauthorizedTTL": "30s", "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": kubeconfig},
    });
    for (name, value) in changes {
        webhook[*name] = value.clone();
    }
    json!({"type": "Webhook", "name": name, "webhook": webhook})
}

fn file(authorizers: &[Value]) -> String {
    let all: Vec<Value> =
        authorizers.iter().cloned().chain([json!({"type": "RBAC", "name": "roles"})]).collect();
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": all})
        .to_string()
}

/// A server with two planes, people in both, and a file that says who decides.
fn start(directory: tempfile::TempDir, authorization: &str) -> (Polder, Client, Client) {
    let (tokens_file, authz) = (directory.path().join("tokens.csv"), directory.path().join("authz.yaml"));
    fs::write(&tokens_file, "").unwrap();
    fs::write(&authz, authorization).unwrap();
    let configuration =
        format!("tokenFile: {}\nauthorization:\n  config: {}\n", tokens_file.display(), authz.display());
    let polder = Polder::start_in(directory, &configuration);
    let (acme, other) = (polder.plane("acme"), polder.plane("other"));
    let number = |name: &str| {
        let plane = polder.admin.get(&format!("{PLANES}/{name}")).expect(200).json();
        plane["status"]["number"].as_u64().unwrap()
    };
    fs::write(&tokens_file, tokens(number("acme"), number("other"))).unwrap();
    eventually("tokens are known", || acme.with_token("ann-token").unwrap().get("/api").code != 401);
    (polder, acme, other)
}

fn metric(polder: &Polder, name: &str) -> u64 {
    let text = polder.admin.get("/metrics").expect(200).text();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or_default()
}

/// A webhook decides for the plane its question names; the file is read again when it changes, and not taken over when it is wrong.
#[test]
fn authorization_webhooks() {
    let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
    let (noted, lets_bob) = (asked.clone(), Arc::new(AtomicBool::new(false)));
    let bob_may = lets_bob.clone();
    let webhook = access_webhook(move |spec| {
        noted.lock().unwrap().push(spec.clone());
        let plane = &spec["extra"]["authorization.polder.dev/plane"];
        match (spec["user"].as_str(), plane == &json!(["acme"])) {
            (Some("ann"), true) => json!({"allowed": true, "reason": "ann of acme"}),
            (Some("bob"), true) if bob_may.load(Ordering::Relaxed) => json!({"allowed": true}),
            (Some("bob"), _) => json!({"allowed": false, "denied": true, "reason": "bob is out"}),
            _ => json!({"allowed": false}),
        }
    });
    let webhook = webhook.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("iam.kubeconfig");
    fs::write(&kubeconfig, webhook.kubeconfig("/authorize")).unwrap();
    let own = entry("iam", &kubeconfig, &[]);
    let (polder, acme, other) = start(directory, &file(std::slice::from_ref(&own)));
    let (ann, bob) = (acme.with_token("ann-token").unwrap(), acme.with_token("bob-token").unwrap());
    ann.get(MAPS).expect(200);
    let before = asked.lock().unwrap().len();
    ann.get(MAPS).expect(200);
    assert_eq!(asked.lock().unwrap().len(), before, "a yes is remembered");
    let spec = asked.lock().unwrap().last().cloned().unwrap();
    assert_eq!(spec["resourceAttributes"]["resource"], "configmaps");
    assert!(spec["extra"]["authorization.polder.dev/plane-number"][0].is_string());
    let said = bob.get(MAPS).expect(403).text();
    assert!(said.contains("bob is out"), "{said}");
    other.with_token("ann-other").unwrap().get(MAPS).expect(403);
    // Nobody else is asked about whoever is of another plane, or may do everything.
    let before = asked.lock().unwrap().len();
    other.with_token("ann-token").unwrap().get(MAPS).expect(404);
    acme.get(MAPS).expect(200);
    assert_eq!(asked.lock().unwrap().len(), before);
    let decided =
        "apiserver_authorization_decisions_total{type=\"Webhook\",name=\"iam\",decision=\"denied\"}";
    assert_eq!(metric(&polder, decided), 1);

    // Another condition, then none at all, then a file that is wrong.
    let authz = polder.directory().join("authz.yaml");
    let reloads = |status: &str| {
        metric(
            &polder,
            &format!(
                "apiserver_authorization_config_controller_automatic_reloads_total{{status=\"{status}\"}}"
            ),
        )
    };
    let condition = json!([{"expression": "request.user != 'bob'"}]);
    fs::write(&authz, file(&[entry("iam", &kubeconfig, &[("matchConditions", condition)])])).unwrap();
    eventually("the new file is taken over", || reloads("success") == 1);
    let said = bob.get(MAPS).expect(403).text();
    assert!(!said.contains("bob is out"), "{said}");
    assert!(metric(&polder, "apiserver_authorization_match_condition_exclusions_total{name=\"iam\"}") > 0);
    fs::write(&authz, file(&[entry("iam", &kubeconfig, &[("timeout", json!("1h"))])])).unwrap();
    eventually("the bad file is noticed", || reloads("failure") == 1);
    ann.get(MAPS).expect(200);
    fs::write(&authz, file(&[own])).unwrap();
    eventually("the first file is back", || reloads("success") == 2);
    lets_bob.store(true, Ordering::Relaxed);
    bob.get(MAPS).expect(200);
    fs::write(&authz, file(&[])).unwrap();
    eventually("only roles decide", || ann.get(MAPS).code == 403);
    bob.get(MAPS).expect(403);
    let log = fs::read_to_string(polder.directory().join("log")).unwrap();
    assert!(log.contains("authorizers[0].timeout: Invalid value: \"1h\": must be > 0s and <= 30s"), "{log}");
}

/// A webhook that is dead, or hangs, is passed over or stands in the way, as the file says; health does not wait for it.
#[test]
fn dead_authorization_webhooks() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let hanging = access_webhook(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(3600));
        json!({"allowed": true})
    });
    let hanging = hanging.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (hangs, dead) = (directory.path().join("hangs"), directory.path().join("dead"));
    fs::write(&hangs, hanging.kubeconfig("/")).unwrap();
    // Nobody listens there.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = hanging.address.to_string();
    fs::write(&dead, hanging.kubeconfig("/").replace(&address, &nobody.to_string())).unwrap();
    let (polder, acme, _other) = start(directory, &file(&[]));
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "ann"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}],
    });
    acme.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).expect(201);
    let (ann, bob) = (acme.with_token("ann-token").unwrap(), acme.with_token("bob-token").unwrap());
    let authz = polder.directory().join("authz.yaml");
    let mut taken = 0;
    for kubeconfig in [&hangs, &dead] {
        for (policy, codes) in [("NoOpinion", [200, 500]), ("Deny", [500, 500])] {
            let own = entry("iam", kubeconfig, &[("failurePolicy", json!(policy))]);
            fs::write(&authz, file(&[own])).unwrap();
            taken += 1;
            let name =
                "apiserver_authorization_config_controller_automatic_reloads_total{status=\"success\"}";
            eventually("the file is taken over", || metric(&polder, name) == taken);
            assert_eq!([ann.get(MAPS).code, bob.get(MAPS).code], codes, "{policy} {}", kubeconfig.display());
            // The provider's administrator, and health, need no answer.
            acme.get(MAPS).expect(200);
            ann.get("/livez").expect(200);
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    let evaluations = |result: &str| {
        metric(
            &polder,
            &format!("apiserver_authorization_webhook_evaluations_total{{name=\"iam\",result=\"{result}\"}}"),
        )
    };
    assert_eq!((evaluations("timeout"), evaluations("error")), (4, 4));
    assert_eq!(
        metric(&polder, "apiserver_authorization_webhook_evaluations_fail_open_total{name=\"iam\"}"),
        4
    );
    let log = fs::read_to_string(polder.directory().join("log")).unwrap();
    assert!(log.contains("cannot ask an authorization webhook"), "{log}");
}

/// A server does not start with a file that is wrong, and says where.
#[test]
fn wrong_authorization_files_are_named() {
    for (text, expected) in [
        (
            file(&[json!({"type": "AlwaysAllow", "name": "a"})]),
            "authorizers[0].type: Unsupported value: \"AlwaysAllow\"",
        ),
        (file(&[entry("a", Path::new("/nowhere/iam.kubeconfig"), &[])]), "/nowhere/iam.kubeconfig"),
        ("authorizers: [".to_owned(), "authz.yaml"),
        (file(&[]).replace("authorizers", "authorisers"), "unknown field \"authorisers\""),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let authz = directory.path().join("authz.yaml");
        fs::write(&authz, text).unwrap();
        let head = crate::process::CONFIG_HEAD;
        let configuration = format!("{head}authorization:\n  config: {}\n", authz.display());
        fs::write(directory.path().join("config.yaml"), configuration).unwrap();
        let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
        command.arg("--config").arg(directory.path().join("config.yaml"));
        let said = refused(command);
        assert!(said.contains("authz.yaml") && said.contains(expected), "{said}");
    }
}

/// A node works in its plane: it registers, sees what its pods need, reports, and gets tokens for them; in another plane, and about
/// other nodes' pods, it may nothing of that.
#[test]
fn nodes_work_in_their_plane() {
    let directory = tempfile::tempdir().unwrap();
    let nodes = json!({"type": "Node", "name": "nodes"});
    let (_polder, acme, other) = start(directory, &file(&[nodes]));
    let (node, elsewhere) = (acme.with_token("node-token").unwrap(), other.with_token("node-other").unwrap());
    let secrets = "/api/v1/namespaces/default/secrets";
    let pods = "/api/v1/namespaces/default/pods";
    node.post("/api/v1/nodes", &json!({"metadata": {"name": "a"}})).expect(201);
    node.get("/api/v1/nodes/a").expect(200);
    node.get("/api/v1/nodes").expect(403);
    for plane in [&acme, &other] {
        plane.post(secrets, &json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}})).expect(201);
    }
    let pod = |name: &str, node: &str, secret: &str| {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [
            {"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": secret}}]}]}})
    };
    acme.post(pods, &pod("mine", "a", "s")).expect(201);
    acme.post(pods, &pod("theirs", "b", "t")).expect(201);
    other.post(pods, &pod("theirs", "b", "s")).expect(201);
    node.get(&format!("{secrets}/s")).expect(200);
    node.get(&format!("{secrets}/t")).expect(403);
    let said = elsewhere.get(&format!("{secrets}/s")).expect(403).text();
    assert!(said.contains("no relationship found between node 'a' and this object"), "{said}");
    // The node of one plane is nobody in the other.
    other.with_token("node-token").unwrap().get(&format!("{secrets}/s")).expect(404);
    node.get(&format!("{pods}?fieldSelector=spec.nodeName%3Da")).expect(200);
    node.get(pods).expect(403);
    let status = json!({"status": {"phase": "Running"}});
    node.patch(&format!("{pods}/mine/status"), "merge", &status).expect(200);
    node.patch(&format!("{pods}/theirs/status"), "merge", &status).expect(403);

    let uid = |name: &str| acme.get(&format!("{pods}/{name}")).expect(200).json()["metadata"]["uid"].clone();
    let token = |name: &str| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid(name)});
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": bound}});
        node.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request)
    };
    let made = token("mine").expect(201).json();
    let account = acme.with_token(made["status"]["token"].as_str().unwrap()).unwrap();
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let user = account.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).expect(201).json();
    assert_eq!(user["status"]["userInfo"]["username"], "system:serviceaccount:default:default");
    let said = token("theirs").expect(403).text();
    assert!(said.contains("node requested token bound to a pod scheduled on a different node"), "{said}");

    // When the pod is gone so is what it showed.
    acme.delete_with(&format!("{pods}/mine"), &json!({"gracePeriodSeconds": 0}));
    node.get(&format!("{secrets}/s")).expect(403);
    account.get(MAPS).expect(401);
}

/// A default role that was deleted is there again when its plane is used after a start.
#[test]
fn default_roles_come_back_after_a_start() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user";
    acme.delete(role).expect(200);
    acme.get(role).expect(404);
    let (_, directory) = polder.stop();
    let polder = Polder::start_in(directory, "");
    let acme = polder.admin.in_plane("acme");
    eventually("the role is back", || acme.get(role).code == 200);
}
