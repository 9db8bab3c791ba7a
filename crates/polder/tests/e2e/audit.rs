//! What is noted of requests: the provider's log and webhook, and the trail that each plane reads, and nobody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use polder_test_support::webhook::WebhookServer;
use polder_test_support::{Client, Value, json};

use crate::process::{MAPS, PLANES, Polder};
use crate::tools;

pub(crate) const EVENTS: &str = "/apis/audit.polder.dev/v1alpha1/events";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// What must never be found in anything that is noted.
const HIDDEN: &str = "aGlkZGVuIHdvcmRz";

fn trail() -> Polder {
    Polder::start_with("audit: {trail: {}}\n")
}

/// Waits until something is there: events are written a moment after the answer.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "never seen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn events(client: &Client, query: &str) -> Vec<Value> {
    client.get(&format!("{EVENTS}{query}")).expect(200).json()["items"].as_array().unwrap().clone()
}

/// Waits for so many events.
#[track_caller]
fn some(client: &Client, query: &str, count: usize) -> Vec<Value> {
    until(&format!("{count} of {query}"), || Some(events(client, query)).filter(|all| all.len() >= count))
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"a": "b"}})
}

/// A plane's administrator sees who changed what: fields as upstream's events have them, selected, in pages and as a table.
#[test]
fn a_plane_reads_its_trail() {
    let polder = trail();
    let acme = polder.plane("acme");
    acme.post(MAPS, &map("one")).expect(201);
    acme.post(MAPS, &json!({"metadata": {"generateName": "made-"}})).expect(201);
    acme.delete(&format!("{MAPS}/one")).expect(200);
    acme.post(MAPS, &json!({"metadata": {"name": "Bad Name"}})).expect(422);
    let all = some(&acme, "?fieldSelector=objectRef.resource=configmaps,objectRef.name=one", 2);
    let created = &all[0];
    assert_eq!(created["kind"], "Event");
    assert_eq!(created["apiVersion"], "audit.polder.dev/v1alpha1");
    assert_eq!(created["level"], "Metadata");
    assert_eq!(created["stage"], "ResponseComplete");
    assert_eq!(created["verb"], "create");
    assert_eq!(created["responseStatus"]["code"], 201);
    assert_eq!(created["objectRef"]["namespace"], "default");
    assert_eq!(created["objectRef"]["apiVersion"], "v1");
    assert_eq!(created["annotations"]["polder.dev/plane"], "acme");
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(created["sourceIPs"][0], "127.0.0.1");
    assert!(created["requestURI"].as_str().unwrap().ends_with(MAPS), "{created}");
    assert!(created.get("requestObject").is_none());
    assert_eq!(all[1]["verb"], "delete");
    let failed = some(&acme, "?fieldSelector=responseStatus.code=422", 1);
    assert_eq!(failed[0]["responseStatus"]["reason"], "Invalid");
    let made =
        some(&acme, "?fieldSelector=objectRef.resource=configmaps,verb=create,responseStatus.code=201", 2);
    assert!(made[1]["objectRef"]["name"].as_str().unwrap().starts_with("made-"), "{}", made[1]);
    // One by its name, and none that is not there.
    let name = created["metadata"]["name"].as_str().unwrap();
    assert_eq!(acme.get(&format!("{EVENTS}/{name}")).expect(200).json()["auditID"], created["auditID"]);
    acme.get(&format!("{EVENTS}/9999999999999999")).expect(404);
    acme.get(&format!("{EVENTS}/x")).expect(404);
    // Page by page it is the same.
    let whole = acme.get(EVENTS).expect(200).json();
    let (mut paged, mut token) = (Vec::new(), String::new());
    loop {
        let page = acme.get(&format!("{EVENTS}?limit=2&continue={token}")).expect(200).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2);
        paged.extend(items.iter().cloned());
        match page["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) {
            Some(next) => token = next.to_string(),
            None => break,
        }
    }
    assert_eq!(whole["items"], Value::Array(paged));
    // As a table.
    let accept = [("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = acme.must("GET", EVENTS, &accept, b"").expect(200).json();
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Name", "Time", "User", "Verb", "Object", "Code", "Stage", "Source", "Agent"]);
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(cells[3..6], [json!("create"), json!("configmaps default/one"), json!(201)]);
    // It is in discovery, with the verbs it has.
    let listed = acme.get("/apis/audit.polder.dev/v1alpha1").expect(200).json();
    assert_eq!(listed["resources"][0]["verbs"], json!(["get", "list", "watch"]));
    // Nobody writes it.
    acme.post(EVENTS, &json!({"metadata": {"name": "x"}})).expect(405);
    acme.put(&format!("{EVENTS}/{name}"), created).expect(405);
    acme.patch(&format!("{EVENTS}/{name}"), "merge", &json!({})).expect(405);
    acme.delete(&format!("{EVENTS}/{name}")).expect(405);
    acme.delete(EVENTS).expect(405);
}

/// Watches tell what comes, go on where they ended, and say when that is too long ago or still to come.
#[test]
fn a_trail_is_watched() {
    let polder = trail();
    let acme = polder.plane("acme");
    let globex = polder.plane("globex");
    acme.post(MAPS, &map("first")).expect(201);
    some(&acme, "?fieldSelector=objectRef.name=first", 1);
    let version =
        acme.get(EVENTS).expect(200).json()["metadata"]["resourceVersion"].as_str().unwrap().to_string();
    let path = format!("{EVENTS}?watch=true&resourceVersion={version}");
    let mut watch = acme.watch(&path);
    globex.post(MAPS, &map("elsewhere")).expect(201);
    acme.post(MAPS, &map("second")).expect(201);
    let event = watch.must();
    assert_eq!((&event["type"], &event["object"]["objectRef"]["name"]), (&json!("ADDED"), &json!("second")));
    drop(watch);
    acme.post(MAPS, &map("third")).expect(201);
    let after = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = acme.watch(&format!("{EVENTS}?watch=true&resourceVersion={after}"));
    assert_eq!(watch.must()["object"]["objectRef"]["name"], "third");
    // From the beginning.
    let selected = "fieldSelector=objectRef.resource=configmaps";
    let mut whole = acme.watch(&format!("{EVENTS}?watch=true&{selected}"));
    for name in ["first", "second", "third"] {
        assert_eq!(whole.must()["object"]["objectRef"]["name"], name);
    }
    acme.get(&format!("{EVENTS}?watch=true&resourceVersion=99999999999999999")).expect(504);
    // A watch ends with its plane.
    polder.admin.delete(&format!("{PLANES}/acme")).expect(200);
    until("the end of the watch", || watch.next_event().ok().filter(Option::is_none));
}

/// Nobody reads another plane's trail: not by path, name, token, position, as a guest, as an administrator elsewhere, or
/// as whoever has the name of a plane that is gone.
#[test]
fn trails_stay_at_home() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    fs::write(&tokens, "guest,gus,1\nmaster,max,2,system:masters\n").unwrap();
    let polder =
        Polder::start_in(directory, &format!("audit: {{trail: {{}}}}\ntokenFile: {}\n", tokens.display()));
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    for number in 0..6 {
        globex.post(MAPS, &map(&format!("of-globex-{number}"))).expect(201);
        acme.post(MAPS, &map(&format!("of-acme-{number}"))).expect(201);
    }
    let theirs = some(&globex, "?fieldSelector=verb=create,objectRef.resource=configmaps", 6);
    let name = theirs[0]["metadata"]["name"].as_str().unwrap();
    let own = some(&acme, "?fieldSelector=verb=create,objectRef.resource=configmaps", 6);
    assert!(!json!(own).to_string().contains("of-globex"));
    // By path, host name, handshake.
    let there = acme.in_plane("globex");
    let by_name = acme.at_root().by_name("globex.localhost").unwrap();
    let by_host = acme.at_root().with_host("globex.localhost");
    for client in [&there, &by_name, &by_host, &acme.at_root()] {
        for path in [EVENTS.to_string(), format!("{EVENTS}/{name}"), format!("{EVENTS}?watch=true")] {
            let reply = client.must("GET", &path, &[], b"");
            assert!(matches!(reply.code, 401 | 403 | 404 | 421), "{path}: {}", reply.code);
            assert!(!reply.text().contains("of-globex"));
        }
    }
    // By name and by position in their own plane.
    acme.get(&format!("{EVENTS}/{name}")).expect(404);
    let page = globex.get(&format!("{EVENTS}?limit=1")).expect(200).json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let refused = acme.get(&format!("{EVENTS}?limit=1&continue={token}")).expect(400);
    assert!(refused.text().contains("it is of another plane"), "{}", refused.text());
    let version = theirs[0]["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = acme.watch(&format!("{EVENTS}?watch=true&resourceVersion={version}"));
    for _ in 0..5 {
        let event = watch.must();
        assert!(event["object"]["objectRef"]["name"].as_str().unwrap().starts_with("of-acme-"), "{event}");
    }
    // Somebody of the plane who has no right to it.
    let user = acme.clone().with_header("Impersonate-User", "somebody");
    user.get(EVENTS).expect(403);
    user.get(&format!("{EVENTS}/{name}")).expect(403);
    user.must("GET", &format!("{EVENTS}?watch=true"), &[], b"").expect(403);
    acme.anonymous().unwrap().in_plane("acme").get(EVENTS).expect(403);
    // A guest for whom no plane has a binding; the core plane's own trail is nobody else's either.
    let guest = acme.with_token("guest").unwrap();
    guest.in_plane("globex").get(EVENTS).expect(404);
    guest.at_root().get(EVENTS).expect(403);
    // The provider's administrators read every plane's, one at a time.
    let master = acme.with_token("master").unwrap();
    assert!(!master.in_plane("acme").get(EVENTS).expect(200).text().contains("of-globex"));
    assert!(!master.at_root().get(EVENTS).expect(200).text().contains("of-globex"));
    // Whoever has a right to it, and to nothing else.
    let role = json!({"metadata": {"name": "auditor"}, "rules": [
        {"apiGroups": ["audit.polder.dev"], "resources": ["events"], "verbs": ["get", "list", "watch"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    acme.post(&format!("{rbac}/clusterroles"), &role).expect(201);
    let binding = json!({"metadata": {"name": "auditor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "auditor"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}]});
    acme.post(&format!("{rbac}/clusterrolebindings"), &binding).expect(201);
    user.get(EVENTS).expect(200);
    user.in_plane("globex").get(EVENTS).expect(404);
    // A plane of the same name is another plane.
    polder.admin.delete(&format!("{PLANES}/globex")).expect(200);
    until("the plane is gone", || {
        let code = polder.admin.get(&format!("{PLANES}/globex")).code;
        (code == 404).then_some(())
    });
    let again = polder.plane("globex");
    again.post(MAPS, &map("new")).expect(201);
    let all = some(&again, "?fieldSelector=objectRef.name=new", 1);
    assert_eq!(all.len(), 1);
    assert!(!again.get(EVENTS).expect(200).text().contains("of-globex"));
    again.get(&format!("{EVENTS}/{name}")).expect(404);
}

/// A trail survives the end of the server, whatever end that is, and its numbers go on.
#[test]
fn a_trail_survives() {
    let polder = trail();
    let acme = polder.plane("acme");
    acme.post(MAPS, &map("before")).expect(201);
    let before = some(&acme, "?fieldSelector=objectRef.name=before", 1);
    let polder = Polder::start_in(polder.kill(), "audit: {trail: {}}\n");
    let acme = polder.admin.in_plane("acme");
    let again = some(&acme, "?fieldSelector=objectRef.name=before", 1);
    assert_eq!(before, again);
    acme.post(MAPS, &map("after")).expect(201);
    let after = some(&acme, "?fieldSelector=objectRef.name=after", 1);
    let number = |event: &Value| event["metadata"]["name"].as_str().unwrap().to_string();
    assert!(number(&after[0]) > number(&before[0]));
    let mode = fs::metadata(polder.data().join("audit")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // Without a trail there is no such resource.
    let (_, directory) = polder.stop();
    let polder = Polder::start_in(directory, "");
    polder.admin.in_plane("acme").get(EVENTS).expect(404);
}

/// `Plane.spec.auditPolicy` says what its trail has; credentials are in none, whatever it says.
#[test]
fn a_plane_has_a_policy() {
    let polder = trail();
    let policy = json!({"rules": [{"level": "RequestResponse", "omitStages": ["RequestReceived"]}]});
    let plane = json!({"metadata": {"name": "acme"}, "spec": {"auditPolicy": policy}});
    polder.admin.post(PLANES, &plane).expect(201);
    let wrong = json!({"metadata": {"name": "x"}, "spec": {"auditPolicy": {"rules": [{"level": "Much"}]}}});
    polder.admin.post(PLANES, &wrong).expect(422);
    let acme = polder.admin.in_plane("acme");
    acme.post(MAPS, &map("seen")).expect(201);
    acme.get(&format!("{MAPS}/seen")).expect(200);
    let all = some(&acme, "?fieldSelector=objectRef.name=seen", 2);
    assert_eq!(all[0]["requestObject"]["data"]["a"], "b");
    assert_eq!(all[0]["responseObject"]["metadata"]["name"], "seen");
    assert_eq!(all[1]["verb"], "get");
    assert_eq!(all[1]["responseObject"]["data"]["a"], "b");
    // Another one is in force with the next request, though the plane is in use.
    let own = format!("{PLANES}/acme");
    let noted = |level: &str| json!({"spec": {"auditPolicy": {"rules": [{"level": level, "omitStages": ["RequestReceived"]}]}}});
    for (level, name) in [("None", "unseen"), ("Metadata", "told")] {
        polder.admin.patch(&own, "merge", &noted(level)).expect(200);
        acme.post(MAPS, &map(name)).expect(201);
    }
    let told = some(&acme, "?fieldSelector=objectRef.name=told", 1);
    assert!(told[0].get("requestObject").is_none(), "{}", told[0]);
    assert!(!acme.get(EVENTS).expect(200).text().contains("unseen"));
    polder.admin.patch(&own, "merge", &noted("RequestResponse")).expect(200);
    // More than is noted of a body.
    let long = json!({"metadata": {"name": "long"}, "data": {"a": ("x".repeat(200_000))}});
    acme.post(MAPS, &long).expect(201);
    let cut = some(&acme, "?fieldSelector=objectRef.name=long", 1);
    assert_eq!(cut[0]["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(cut[0].get("requestObject").is_none() && cut[0].get("responseObject").is_none());
    // Credentials.
    let secret = json!({"metadata": {"name": "s"}, "data": {"a": HIDDEN}});
    acme.post(SECRETS, &secret).expect(201);
    acme.get(SECRETS).expect(200);
    acme.patch(&format!("{SECRETS}/s"), "merge", &json!({"data": {"b": HIDDEN}})).expect(200);
    acme.post(SECRETS, &json!({"metadata": {"name": "t"}, "data": {"a": (format!("{HIDDEN}!"))}}));
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": HIDDEN}});
    acme.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).expect(201);
    let token =
        acme.post("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({})).expect(201).json();
    acme.get(&format!("{MAPS}?token={HIDDEN}")).expect(200);
    some(&acme, "?fieldSelector=objectRef.resource=secrets,objectRef.name=s,verb=patch", 1);
    some(&acme, "?fieldSelector=objectRef.subresource=token", 1);
    let text = acme.get(EVENTS).expect(200).text();
    assert!(!text.contains(HIDDEN), "a credential is in the trail");
    assert!(!text.contains(token["status"]["token"].as_str().unwrap()));
    let kept = fs::read_dir(polder.data().join("audit")).unwrap();
    for file in kept {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(HIDDEN));
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ['system:apiserver', 'system:kube-controller-manager']
- level: None
  userGroups: ['system:serviceaccounts']
- {level: RequestResponse, resources: [{group: '', resources: [configmaps, secrets]}]}
- level: Metadata
";

/// The provider's log has what its policy says of every plane, with the plane in each event; also who was refused, and
/// both names of whoever acts as somebody else.
#[test]
fn the_provider_has_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let (policy, log) = (directory.path().join("policy.yaml"), directory.path().join("audit.log"));
    fs::write(&policy, POLICY).unwrap();
    let (policy_path, log_path) = (policy.display(), log.display());
    let polder = Polder::start_in(
        directory,
        &format!("audit: {{policy: {policy_path}, log: {{path: {log_path}}}}}\n"),
    );
    let acme = polder.plane("acme");
    acme.post(MAPS, &map("one")).expect(201);
    acme.clone().with_header("Impersonate-User", "bob").get(MAPS).expect(403);
    acme.with_token("nonsense").unwrap().get(MAPS).expect(401);
    acme.post(SECRETS, &json!({"metadata": {"name": "s"}, "data": {"a": HIDDEN}})).expect(201);
    // A secret that was sent to where it does not belong is one all the same.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lost"}, "stringData": {"a": HIDDEN}});
    acme.post(MAPS, &secret).expect(400);
    acme.post(MAPS, &json!({"metadata": {"name": "lost"}, "stringData": {"a": HIDDEN}}));
    for media in ["application/vnd.kubernetes.protobuf", "application/yaml"] {
        let agent = format!("reads {media}");
        let reader = acme.clone().with_header("Accept", media).with_header("User-Agent", &agent);
        reader.get(&format!("{MAPS}/one")).expect(200);
    }
    let mut watch = acme.watch(&format!("{MAPS}?watch=true"));
    watch.must();
    let find = |what: &str, test: &dyn Fn(&Value) -> bool| {
        until(what, || lines(&log).into_iter().find(|event| test(event)))
    };
    let created =
        find("the config map", &|event| event["verb"] == "create" && event["objectRef"]["name"] == "one");
    assert_eq!((&created["kind"], &created["apiVersion"]), (&json!("Event"), &json!("audit.k8s.io/v1")));
    assert_eq!(created["annotations"]["polder.dev/plane"], "acme");
    assert_eq!(created["requestObject"]["data"]["a"], "b");
    find("what was lost", &|event| event["verb"] == "create" && event["objectRef"]["name"] == "lost");
    for media in ["application/vnd.kubernetes.protobuf", "application/yaml"] {
        let read = find(media, &|event| event["userAgent"] == format!("reads {media}"));
        assert_eq!(read["responseObject"]["data"]["a"], "b", "{media}: {read}");
    }
    let refused = find("bob", &|event| event["impersonatedUser"]["username"] == "bob");
    assert_eq!(refused["responseStatus"]["code"], 403);
    assert_eq!(refused["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_ne!(refused["user"]["username"], "bob");
    let unknown = find("nobody", &|event| event["responseStatus"]["code"] == 401);
    assert_eq!(unknown["user"], json!({}));
    let started = find("the watch", &|event| event["verb"] == "watch" && event["stage"] == "ResponseStarted");
    drop(watch);
    let ended = find("its end", &|event| event["verb"] == "watch" && event["stage"] == "ResponseComplete");
    assert_eq!(started["auditID"], ended["auditID"]);
    find("the secret", &|event| event["objectRef"]["resource"] == "secrets" && event["level"] == "Metadata");
    assert!(!fs::read_to_string(&log).unwrap().contains(HIDDEN));
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    // Without a trail, planes have no such resource.
    acme.get(EVENTS).expect(404);
    // A policy that is changed is taken; one that is wrong is not.
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Much}]\n").unwrap();
    let said = || fs::read_to_string(polder.directory().join("log")).unwrap();
    until("the refusal of the policy", || said().contains("the audit policy stays as it was").then_some(()));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n").unwrap();
    until("the new policy", || said().contains("the audit policy has changed").then_some(()));
    let before = lines(&log).len();
    acme.post(MAPS, &map("two")).expect(201);
    assert!(polder.admin.get("/metrics").expect(200).text().contains("apiserver_audit_event_total"));
    let (_, _directory) = polder.stop();
    assert_eq!(lines(&log).len(), before);
}

/// kubectl shows a plane's trail.
#[test]
fn kubectl_shows_the_trail() {
    for (variable, what) in
        [("POLDER_TEST_KUBECTL_OLD", "kubectl 1.20"), ("POLDER_TEST_KUBECTL_CURRENT", "kubectl 1.35")]
    {
        let Some(kubectl) = tools::find(variable, what) else { continue };
        let polder = trail();
        let acme = polder.plane("acme");
        acme.post(MAPS, &map("one")).expect(201);
        some(&acme, "?fieldSelector=objectRef.name=one", 1);
        let kubeconfig = polder.plane_kubeconfig("acme");
        let run = |arguments: &[&str]| {
            let mut command = Command::new(&kubectl);
            command.env("HOME", polder.directory()).arg("--kubeconfig").arg(&kubeconfig).args(arguments);
            let out = command.output().unwrap();
            assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()
        };
        let shown = run(&["get", "events.audit.polder.dev", "--field-selector", "objectRef.name=one"]);
        let head: Vec<&str> = shown.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(head, ["NAME", "TIME", "USER", "VERB", "OBJECT", "CODE"]);
        assert!(shown.contains("configmaps default/one"), "{shown}");
        let yaml = run(&["get", "events.audit.polder.dev", "-o", "yaml"]);
        assert!(yaml.contains("stage: ResponseComplete"), "{yaml}");
        let explained = run(&["explain", "events.objectRef", "--api-version=audit.polder.dev/v1alpha1"]);
        assert!(explained.contains("subresource"), "{explained}");
    }
}

/// What the policy wants noted reaches a real webhook, at the path its kubeconfig names.
#[test]
fn events_reach_the_webhook() {
    static NOTED: AtomicUsize = AtomicUsize::new(0);
    let webhook = WebhookServer::start(|path, _| {
        NOTED.fetch_add(usize::from(path == "/note/events"), Ordering::Relaxed);
        Err((200, "{}".into()))
    });
    let directory = tempfile::tempdir().unwrap();
    let (policy, file) = (directory.path().join("policy.yaml"), directory.path().join("webhook.kubeconfig"));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n").unwrap();
    fs::write(&file, webhook.unwrap().kubeconfig("/note/events")).unwrap();
    let configuration = format!(
        "audit: {{policy: {}, webhook: {{kubeconfig: {}, batchSeconds: 1}}}}\n",
        policy.display(),
        file.display()
    );
    let polder = Polder::start_in(directory, &configuration);
    polder.plane("acme").post(MAPS, &json!({"metadata": {"name": "a"}})).expect(201);
    until("the webhook has heard of it", || (NOTED.load(Ordering::Relaxed) > 0).then_some(()));
    let text = polder.admin.get("/metrics").expect(200).text();
    let lost = text.lines().filter(|line| line.starts_with("polder_audit_lost_events_total"));
    assert!(lost.clone().all(|line| line.ends_with(" 0")), "{:?}", lost.collect::<Vec<_>>());
}
