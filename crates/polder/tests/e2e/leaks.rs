//! What strangers and neighbors could learn from what they are told, and what they could make others read: refusals, numbers,
//! the server's log and the provider's audit log.

use std::fs;

use polder_test_support::issuer::TokenIssuer;
use polder_test_support::webhook::WebhookServer;
use polder_test_support::{Client, Reply, Value, eventually, json};

use crate::process::{MAPS, PLANES, Polder};

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

/// Everything an answer says, but for what differs between any two: its number, and the time.
fn said(reply: &Reply, plane: &str) -> String {
    let headers = reply.headers.iter().filter(|(name, _)| !["audit-id", "date"].contains(&name.as_str()));
    let headers: String = headers.map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!("{}\n{headers}{}", reply.code, reply.text()).replace(plane, "PLANE")
}

/// Whoever is not of a plane is told the same about it, byte by byte, whether it exists or not: with whichever credential, by
/// whichever address, whatever is asked.
#[test]
fn planes_that_exist_and_planes_that_do_not_look_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens.csv");
    fs::write(&tokens, "guest,bob,2\n").unwrap();
    let polder = Polder::start_in(directory, &format!("tokenFile: {}\n", tokens.display()));
    let acme = polder.plane("acme");
    // Names of one length, so that lengths can be compared too.
    let globex = polder.plane("globex");
    globex.post(MAPS, &json!({"metadata": {"name": "a"}})).expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let account =
        acme.post("/api/v1/namespaces/default/serviceaccounts/default/token", &request).expect(201).json();
    let with = |token: &str| acme.with_token(token).unwrap();
    let callers = [
        ("nobody", acme.anonymous().unwrap()),
        ("certificate", acme.clone()),
        ("account", with(account["status"]["token"].as_str().unwrap())),
        ("guest", with("guest")),
        ("unknown token", with("unknown")),
        ("bootstrap token", with("abcdef.0123456789abcdef")),
        ("forged account", with("eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJodHRwczovL3gifQ.AAAA")),
        ("no token", with("")),
        ("somebody else", acme.clone().with_header("Impersonate-User", "admin")),
        ("a proxy", acme.anonymous().unwrap().with_header("X-Remote-User", "admin")),
    ];
    let one = format!("{MAPS}/a");
    let asks = [
        ("GET", "/"),
        ("GET", "/api"),
        ("GET", "/apis"),
        ("GET", "/apis/apps"),
        ("GET", "/livez"),
        ("GET", "/livez/ping"),
        ("GET", "/version"),
        ("GET", "/metrics"),
        ("GET", "/openapi/v2"),
        ("GET", "/nothing"),
        ("GET", "/.well-known/openid-configuration"),
        ("GET", "/openid/v1/jwks"),
        ("GET", MAPS),
        ("GET", "/api/v1/configmaps?watch=true"),
        ("GET", "/api/v1/configmaps?timeout=nonsense"),
        ("GET", "/api/v1/configmaps?continue=nonsense&limit=1"),
        ("GET", "/apis/nothing.example/v1/things"),
        ("GET", "/apis/audit.polder.dev/v1alpha1/events"),
        ("GET", &one),
        ("HEAD", &one),
        ("POST", MAPS),
        ("PUT", &one),
        ("PATCH", &one),
        ("DELETE", &one),
        ("DELETE", MAPS),
        ("OPTIONS", MAPS),
        ("GET", "/api/v1/%2e%2e"),
        ("GET", "/clusters/acme/api"),
    ];
    let ask_all = |who: &str, caller: &Client| {
        for (method, path) in asks {
            let by_path = |plane: &str| caller.in_plane(plane).must(method, path, &[], b"");
            let by_name = |plane: &str| {
                let caller = caller.at_root().by_name(&format!("{plane}.localhost")).unwrap();
                caller.must(method, path, &[], b"")
            };
            let (there, nowhere) = (by_path("globex"), by_path("xyzzyx"));
            assert_eq!(said(&there, "globex"), said(&nowhere, "xyzzyx"), "{who}: {method} {path}");
            let (there, nowhere) = (by_name("globex"), by_name("xyzzyx"));
            assert_eq!(said(&there, "globex"), said(&nowhere, "xyzzyx"), "{who} by name: {method} {path}");
        }
    };
    // Whoever is turned away waits a moment: all at once.
    std::thread::scope(|scope| {
        for (who, caller) in &callers {
            scope.spawn(|| ask_all(who, caller));
        }
    });
    // Making a plane is the provider's business, so that a name is taken is not told either.
    for name in ["globex", "xyzzyx"] {
        let plane = json!({"apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name}});
        let reply = acme.at_root().post(PLANES, &plane);
        assert_eq!(reply.code, 404, "{}", reply.text());
        assert!(!reply.text().contains(name), "{}", reply.text());
    }
}

/// A plane that binds something to nobody in particular has chosen to be seen: by what it names, and from then until it takes that
/// back. Others still do not exist for strangers.
#[test]
fn a_plane_opens_itself_to_strangers() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let bind = |plane: &Client, name: &str, kind: &str, subject: &str, role: &str| {
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject}],
        });
        plane.post(bindings, &binding).expect(201);
    };
    // What is bound to everybody who is somebody is for nobody of these.
    bind(&globex, "known", "Group", "system:authenticated", "view");
    let nobody = acme.anonymous().unwrap();
    let same_as_nowhere = |method: &str, path: &str, plane: &str| {
        let ask = |plane: &str| said(&nobody.in_plane(plane).must(method, path, &[], b"{}"), plane);
        assert_eq!(ask(plane), ask("xyzzyx"), "{method} {path} in {plane}");
        assert!(ask(plane).starts_with("403"), "{method} {path} in {plane}");
    };
    same_as_nowhere("GET", MAPS, "acme");
    bind(&acme, "readers", "Group", "system:unauthenticated", "view");
    for path in [MAPS, "/api/v1/configmaps?limit=1", "/apis/apps/v1/deployments"] {
        nobody.get(path).expect(200);
        same_as_nowhere("GET", path, "globex");
    }
    for (method, path) in [("GET", "/api/v1/secrets"), ("POST", MAPS), ("GET", "/metrics"), ("GET", "/api")] {
        same_as_nowhere(method, path, "acme");
    }
    let mut watch = nobody.watch(&format!("{MAPS}?watch=true"));
    acme.post(MAPS, &json!({"metadata": {"name": "seen"}})).expect(201);
    while watch.next_name() != "ADDED seen" {}
    bind(&acme, "writers", "User", "system:anonymous", "edit");
    nobody.post(MAPS, &json!({"metadata": {"name": "theirs"}})).expect(201);
    // A credential that is no good makes nobody in particular of nobody.
    acme.with_token("nonsense").unwrap().get(MAPS).expect(401);
    globex.get(&format!("{MAPS}/theirs")).expect(404);
    // What a review says is what happens.
    let ask = json!({"spec": {"user": "system:anonymous", "groups": ["system:unauthenticated"],
        "resourceAttributes": {"verb": "list", "resource": "configmaps"}}});
    let reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    assert_eq!(acme.post(reviews, &ask).expect(201).json()["status"]["allowed"], true);
    assert_eq!(globex.post(reviews, &ask).expect(201).json()["status"]["allowed"], false);
    for name in ["readers", "writers"] {
        acme.delete(&format!("{bindings}/{name}")).expect(200);
    }
    same_as_nowhere("GET", MAPS, "acme");
    same_as_nowhere("POST", MAPS, "acme");
}

/// The server's numbers name no plane, namespace, user, object, group or host of a tenant, whatever went on.
#[test]
fn metrics_name_no_tenant() {
    let issuer = TokenIssuer::start().unwrap();
    let polder = Polder::start_with("webhookNetworks: [127.0.0.0/8]\naudit: {trail: {}}\n");
    let zebra = polder.plane("zebra-plane");
    let body = json!({"spec": {"authentication": {"jwt": [issuer.entry("zebra-")]}}});
    polder.admin.patch(&format!("{PLANES}/zebra-plane"), "merge", &body).expect(200);
    let space = "/api/v1/namespaces/zebra-space";
    zebra.post("/api/v1/namespaces", &json!({"metadata": {"name": "zebra-space"}})).expect(201);
    let maps = format!("{space}/configmaps");
    zebra
        .post(&maps, &json!({"metadata": {"name": "zebra-map"}, "data": {"zebra-key": "zebra"}}))
        .expect(201);
    let _watch = zebra.watch(&format!("{maps}?watch=true&labelSelector=zebra-label=x"));
    let version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    });
    let names = json!({"plural": "zebras", "singular": "zebra", "kind": "Zebra", "listKind": "ZebraList"});
    let spec =
        json!({"group": "zebra.example", "scope": "Namespaced", "names": names, "versions": [version]});
    zebra
        .post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &json!({"metadata": {"name": "zebras.zebra.example"}, "spec": spec}),
        )
        .expect(201);
    eventually("the kind is served", || zebra.get("/apis/zebra.example/v1/zebras").code == 200);
    let zebras = "/apis/zebra.example/v1/namespaces/zebra-space/zebras";
    zebra
        .post(
            zebras,
            &json!({"apiVersion": "zebra.example/v1", "kind": "Zebra", "metadata": {"name": "zebra-one"}}),
        )
        .expect(201);
    let webhook = WebhookServer::start(|_, _| Err((500, "zebra".into()))).unwrap();
    let configuration = json!({"metadata": {"name": "zebra-hook"}, "webhooks": [{
        "name": "hook.zebra.example", "clientConfig": webhook.client_config("/zebra"), "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
    }]});
    zebra.post(VALIDATING, &configuration).expect(201);
    let secret = json!({"metadata": {"name": "zebra-secret"}});
    eventually("the webhook is asked", || zebra.post(&format!("{space}/secrets"), &secret).code == 500);
    let service = json!({
        "metadata": {"name": "v1.ext.zebra.example"},
        "spec": {
            "group": "ext.zebra.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
            "service": {"namespace": "zebra-space", "name": "zebra"}, "insecureSkipTLSVerify": true,
        },
    });
    zebra.post("/apis/apiregistration.k8s.io/v1/apiservices", &service).expect(201);
    zebra.get("/apis/ext.zebra.example/v1/zebras").expect(503);
    let flow = json!({"metadata": {"name": "zebra-flow"}, "spec": {
        "priorityLevelConfiguration": {"name": "zebra-level"}, "matchingPrecedence": 100,
        "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "zebra-ann"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }],
    }});
    zebra.post("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", &flow).expect(201);
    // Refused, not found, not understood, not known, as somebody else, by another program.
    let ann = zebra.with_token(&issuer.token(&json!({"sub": "ann"})).unwrap()).unwrap();
    ann.get(&maps).expect(403);
    zebra.get(&format!("{maps}/zebra-none")).expect(404);
    zebra.get("/zebra/none").expect(404);
    zebra.post(&maps, &json!({"metadata": {"name": "Zebra Zebra"}})).expect(422);
    zebra.with_token("zebra-token").unwrap().get(&maps).expect(401);
    zebra.must("GET", &maps, &[("Impersonate-User", "zebra-bob")], b"").expect(403);
    zebra.must("GET", &maps, &[("User-Agent", "zebra/1"), ("Accept", "zebra/zebra")], b"");
    zebra.must("ZEBRA", &maps, &[], b"");
    zebra.at_root().by_name("zebra-plane.localhost").unwrap().get(&maps).expect(200);
    for path in ["/metrics", "/metrics/slis"] {
        let text = polder.admin.get(path).expect(200).text();
        let told: Vec<&str> = text.lines().filter(|line| line.to_lowercase().contains("zebra")).collect();
        assert!(told.is_empty(), "{path}: {told:#?}");
        // Numbers of other planes are not told in a plane either.
        let text = polder.plane(&format!("other{}", path.len())).get(path).expect(200).text();
        assert!(!text.to_lowercase().contains("zebra"), "{path}: {text}");
    }
}

/// What tenants write does not make lines of its own in the server's log or the provider's audit log, nor does it reach a terminal.
#[test]
fn logs_have_no_lines_that_nobody_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.yaml");
    let noted = directory.path().join("audit.log");
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n")
        .unwrap();
    let configuration = format!(
        "webhookNetworks: [127.0.0.0/8]\naudit: {{policy: {}, log: {{path: {}}}, trail: {{}}}}\n",
        policy.display(),
        noted.display()
    );
    let polder = Polder::start_talkative(&configuration);
    let acme = polder.plane("acme");
    let forged = "x\nFORGED \u{1b}[31mred\u{9b}2J\r\n{\"FORGED\":1}\u{2028}FORGED";
    // Who somebody is.
    let issuer = TokenIssuer::start().unwrap();
    let body = json!({"spec": {"authentication": {"jwt": [issuer.entry("")]}}});
    polder.admin.patch(&format!("{PLANES}/acme"), "merge", &body).expect(200);
    let ann = acme.with_token(&issuer.token(&json!({"sub": forged})).unwrap()).unwrap();
    ann.get(MAPS);
    let wrong = issuer.token(&json!({"sub": forged, "aud": forged, "iss": forged})).unwrap();
    acme.with_token(&wrong).unwrap().get(MAPS).expect(401);
    acme.with_token("FORGED\u{9b}31m").unwrap().get(MAPS);
    // Names, paths, programs, media types, selectors.
    let named = |path: &str| acme.post(path, &json!({"metadata": {"name": forged}, "rules": []}));
    named(ROLES);
    assert_eq!(named(MAPS).code, 422);
    for path in
        ["/%0AFORGED", "/api/v1/%1b%5b31mFORGED", "/FORGED%c2%9b", "/api/v1/pods?labelSelector=a%0AFORGED"]
    {
        acme.must("GET", path, &[], b"");
    }
    for (name, value) in [
        ("User-Agent", "a\tFORGED\u{9b}31m {\"FORGED\":1}"),
        ("Accept", "FORGED/\u{9b}31m"),
        ("Audit-ID", "FORGED\u{9b}31m"),
        ("X-Forwarded-For", "FORGED\u{9b}31m"),
        ("Impersonate-User", "FORGED\u{9b}31m"),
    ] {
        acme.must("GET", MAPS, &[(name, value)], b"");
    }
    // What webhooks say: to clients, and to controllers that try again.
    let webhook = WebhookServer::start(|path, _| {
        let text = "x\nFORGED \u{1b}[31mred\u{9b}2J\r\n{\"FORGED\":1}\u{2028}FORGED";
        match path.contains("deny") {
            true => {
                Ok(json!({"allowed": false, "status": {"message": text, "code": 500}, "warnings": [text]}))
            }
            false => Err((500, text.to_owned())),
        }
    });
    let webhook = webhook.unwrap();
    for (name, resources) in [("deny", ["configmaps", "serviceaccounts"]), ("fail", ["secrets", "endpoints"])]
    {
        let configuration = json!({"metadata": {"name": name}, "webhooks": [{
            "name": format!("{name}.example.com"), "clientConfig": webhook.client_config(&format!("/{name}")),
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}],
        }]});
        acme.post(VALIDATING, &configuration).expect(201);
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    eventually("the webhook is asked", || {
        acme.post(secrets, &json!({"metadata": {"name": "s"}})).code == 500
    });
    // Whoever publishes the server's authority in every namespace.
    acme.post("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).expect(201);
    // Both what is answered and what controllers meet.
    let said = |word: &str| polder.log().lines().any(|line| line.contains(word) && line.contains("FORGED"));
    eventually("the log has what a webhook said", || said("a request failed"));
    eventually("the log has what a controller was told", || {
        said("is tried again") || said("cannot be reconciled")
    });
    eventually("the audit log has it", || fs::read_to_string(&noted).unwrap().contains("FORGED"));
    let (_, directory) = polder.stop();
    let log = fs::read_to_string(directory.path().join("log")).unwrap();
    for line in log.lines() {
        let has_time = line.get(..5).is_some_and(|start| start.starts_with("20") && start.ends_with('-'));
        assert!(has_time, "no event begins like this: {line:?}");
        assert!(!line.contains(|char: char| char.is_control() || char == '\u{2028}'), "{line:?}");
    }
    for line in fs::read_to_string(&noted).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(event["kind"], "Event", "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

/// Answers carry what clients sent only where it does nothing: no header of an answer has a line that a client wrote.
#[test]
fn answers_have_no_headers_that_nobody_wrote() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let check = |client: &Client, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]| {
        let reply = client.must(method, path, headers, body);
        assert_eq!(reply.header("x-forged"), None, "{method} {path}: {reply:?}");
        assert_eq!(reply.header("set-cookie"), None, "{method} {path}: {reply:?}");
    };
    for path in [
        "/api%0d%0aX-Forged:%20a",
        "/api/v1/namespaces/default/configmaps/a%0d%0aX-Forged:%20a",
        "/api/v1/pods?fieldSelector=a%0d%0aX-Forged:%20a%3Db",
        "/apis/a%0d%0aX-Forged:%20a/v1/x",
    ] {
        check(&acme, "GET", path, &[], b"");
    }
    let map = json!({"metadata": {"name": "a"}, "x\r\nX-Forged: a": "\r\nX-Forged: a", "data": {"a\r\nX-Forged: b": "c"}});
    let json = ("Content-Type", "application/json");
    for validation in ["Warn", "Strict"] {
        let path = format!("{MAPS}?fieldValidation={validation}&fieldManager=a%0d%0aX-Forged:%20a");
        check(&acme, "POST", &path, &[json], map.to_string().as_bytes());
        let path = format!("{MAPS}?fieldValidation={validation}");
        check(&acme, "POST", &path, &[json], map.to_string().as_bytes());
    }
    check(&acme, "GET", MAPS, &[("Audit-ID", "a\tb"), ("Accept", "application/json;x=\"\ta\"")], b"");
}

/// Somebody whose webhook is broken makes requests fail as often as they like: the log says so now and then, and has room for what
/// others have to say.
#[test]
fn failures_fill_no_log() {
    let polder = Polder::start_with("webhookNetworks: [127.0.0.0/8]\n");
    let webhook = WebhookServer::start(|_, _| Err((500, "it broke".into()))).unwrap();
    for (plane, times) in [("acme", 200), ("globex", 1)] {
        let client = polder.plane(plane);
        let configuration = json!({"metadata": {"name": "v"}, "webhooks": [{
            "name": "v.example.com", "clientConfig": webhook.client_config("/x"), "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"]}],
        }]});
        client.post(VALIDATING, &configuration).expect(201);
        let secret = json!({"metadata": {"name": "s"}});
        for _ in 0..times {
            client.post("/api/v1/namespaces/default/secrets", &secret).expect(500);
        }
    }
    let log = polder.log();
    let about = |plane: &str| {
        let own = format!("plane=\"{plane}\"");
        log.lines().filter(|line| line.contains("a request failed") && line.contains(&own)).count()
    };
    assert!((1..50).contains(&about("acme")), "{}", about("acme"));
    assert_eq!(about("globex"), 1, "{log}");
}
