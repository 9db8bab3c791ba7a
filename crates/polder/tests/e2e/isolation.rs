//! Everything somebody in plane A can get hold of, tried on plane B.

use std::time::Duration;

use polder_test_support::http2::Http2;
use polder_test_support::{Client, Value, json};

use crate::process::{MAPS, OWN, PLANES, Polder};

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"mine": (name)}})
}

/// Nothing of the answer may come from plane B.
#[track_caller]
fn closed(client: &Client, path: &str) {
    let reply = client.must("GET", path, &[], b"");
    assert!(matches!(reply.code, 400 | 401 | 403 | 404 | 421), "{path}: {} {}", reply.code, reply.text());
    assert!(!reply.text().contains("of-globex"), "{path}: {}", reply.text());
}

/// A plane's credential opens no other plane: by path, by host name, by handshake, by header, or by both at once.
#[test]
fn credentials_stay_at_home() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    globex.post(MAPS, &secret("of-globex")).expect(201);
    acme.get(MAPS).expect(200);
    let paths = [
        MAPS,
        "/api/v1/namespaces",
        "/api",
        "/apis",
        "/openapi/v2",
        "/api/v1/namespaces/default/configmaps/of-globex",
        "/api/v1/configmaps?watch=true",
    ];
    let there = acme.in_plane("globex");
    let by_name = acme.at_root().by_name("globex.localhost").unwrap();
    let by_host = acme.at_root().with_host("globex.localhost");
    let by_sni = by_name.with_host(&acme.host);
    let both = by_name.in_plane("acme");
    let core = acme.at_root();
    for client in [&there, &by_name, &by_host, &by_sni, &both, &core] {
        for path in paths {
            closed(client, path);
        }
    }
    // What is refused looks like what is not there.
    let mut refused = there.get(MAPS).json();
    let mut missing = acme.in_plane("nowhere").get(MAPS).json();
    assert_eq!(refused["code"], 404);
    for status in [&mut refused, &mut missing] {
        let text = status.to_string().replace("nowhere", "globex");
        *status = polder_test_support::Value::String(text);
    }
    assert_eq!(refused, missing);
    // Writes neither.
    there.post(MAPS, &secret("smuggled")).expect(404);
    there.delete(&format!("{MAPS}/of-globex")).expect(404);
    there.patch(&format!("{MAPS}/of-globex"), "merge", &json!({"data": null})).expect(404);
    assert_eq!(globex.get(&format!("{MAPS}/of-globex")).expect(200).json()["data"]["mine"], "of-globex");
    // The planes themselves are the provider's business.
    let parts = ["", "/globex", "/acme", "/globex/export", "/acme/export", "/globex/import"];
    for path in parts.map(|part| format!("{PLANES}{part}")) {
        closed(&core, &path);
        closed(&acme, &path);
    }
    for client in [&core, &acme] {
        let reply = client.post(&format!("{PLANES}/globex/kubeconfig"), &json!({}));
        assert!(matches!(reply.code, 403 | 404), "{}", reply.text());
    }
}

/// Headers that proxies use to say who and where have no say here.
#[test]
fn headers_choose_nothing() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    globex.post(MAPS, &secret("of-globex")).expect(201);
    for (name, value) in [
        ("X-Forwarded-Host", "globex.localhost"),
        ("X-Forwarded-Prefix", "/clusters/globex"),
        ("X-Original-URL", "/clusters/globex/api/v1/namespaces/default/configmaps"),
        ("X-Rewrite-URL", "/clusters/globex/api/v1/namespaces/default/configmaps"),
        ("Forwarded", "host=globex.localhost"),
        ("X-Kubernetes-Cluster", "globex"),
        ("X-Remote-User", "admin"),
        ("X-Remote-Group", "system:masters"),
    ] {
        let reply = acme.must("GET", MAPS, &[(name, value)], b"").expect(200);
        assert!(!reply.text().contains("of-globex"), "{name}");
        let nobody = acme.anonymous().unwrap().must("GET", MAPS, &[(name, value)], b"");
        assert_eq!(nobody.code, 403, "{name}");
    }
}

/// A prefix is used once, spelled plainly; everything else selects nothing.
#[test]
fn paths_choose_once() {
    let polder = Polder::start();
    let (_, globex) = (polder.plane("acme"), polder.plane("globex"));
    globex.post(MAPS, &secret("of-globex")).expect(201);
    let end = "api/v1/namespaces/default/configmaps";
    for path in [
        format!("/clusters/acme/clusters/globex/{end}"),
        format!("/clusters/acme/../globex/{end}"),
        format!("/clusters/acme/%2e%2e/globex/{end}"),
        format!("/clusters/acme%2f..%2fglobex/{end}"),
        format!("/clusters/%67lobex/{end}"),
        format!("/clusters/GLOBEX/{end}"),
        format!("/clusters//globex/{end}"),
        format!("//clusters/globex/{end}"),
        format!("/clusters/globex//{end}"),
        format!("/clusters/globex;/{end}"),
        format!("/clusters/globex%00/{end}"),
        format!("/./clusters/globex/{end}"),
        format!("/%63lusters/globex/{end}"),
        format!("/clusters\\globex/{end}"),
        format!("/clusters/acme/{end}/../../../../../../globex/{end}"),
    ] {
        // As the provider, who may see everything: what is not found is not even looked for.
        let reply = polder.admin.must("GET", &path, &[], b"");
        assert!(matches!(reply.code, 400 | 404), "{path}: {}", reply.code);
        assert!(!reply.text().contains("of-globex"), "{path}");
    }
    let unknown = polder.admin.in_plane("nowhere").get(MAPS).expect(404).json();
    assert_eq!((&unknown["kind"], &unknown["reason"]), (&json!("Status"), &json!("NotFound")));
    assert_eq!(unknown["message"], "planes.polder.dev \"nowhere\" not found");
    let named = polder.admin.by_name("globex.localhost").unwrap();
    assert!(named.get(MAPS).expect(200).text().contains("of-globex"));
    named.in_plane("acme").get(MAPS).expect(404);
    polder.admin.by_name("nowhere.localhost").unwrap().get(MAPS).expect(404);
}

/// Versions, tokens and identities of one plane mean nothing in another.
#[test]
fn leavings_open_nothing() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    for index in 0..5 {
        globex.post(MAPS, &secret(&format!("of-globex-{index}"))).expect(201);
        acme.post(MAPS, &secret(&format!("mine-{index}"))).expect(201);
    }
    let page = globex.get(&format!("{MAPS}?limit=2")).expect(200).json();
    let token = page["metadata"]["continue"].as_str().unwrap();
    let version = page["metadata"]["resourceVersion"].as_str().unwrap();
    for query in [
        format!("continue={token}&limit=10"),
        format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        format!("limit=10&resourceVersion={version}"),
    ] {
        let reply = acme.get(&format!("{MAPS}?{query}"));
        assert!(!reply.text().contains("of-globex"), "{query}: {}", reply.text());
    }
    let path = format!("{MAPS}/of-globex-0");
    let theirs = globex.get(&path).json();
    acme.put(&path, &theirs).expect(404);
    let uid = json!({"preconditions": {"uid": (theirs["metadata"]["uid"])}});
    acme.delete_with(&path, &uid).expect(404);
    globex.get(&path).expect(200);
    let mut watch = acme.watch(&format!("/api/v1/configmaps?watch=true&resourceVersion={version}"));
    globex.post(MAPS, &secret("of-globex-new")).expect(201);
    acme.post(MAPS, &secret("mine-new")).expect(201);
    loop {
        let event = watch.must();
        assert!(!event.to_string().contains("of-globex"), "{event}");
        if event["object"]["metadata"]["name"] == "mine-new" {
            break;
        }
    }
    assert!(watch.silent(Duration::from_millis(300)));
}

/// Planes have the same names for different things, and a fork leaves its source alone.
#[test]
fn same_names_different_things() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    acme.post(MAPS, &secret("a")).expect(201);
    globex.post(MAPS, &json!({"metadata": {"name": "a"}, "data": {"x": "y"}})).expect(201);
    let uid = |client: &Client| client.get(&format!("{MAPS}/a")).json()["metadata"]["uid"].clone();
    assert_ne!(uid(&acme), uid(&globex));
    polder
        .admin
        .post(PLANES, &json!({"metadata": {"name": "fork"}, "spec": {"forkFrom": "acme"}}))
        .expect(201);
    let fork = polder.admin.in_plane("fork");
    assert_eq!(uid(&fork), uid(&acme));
    fork.delete(&format!("{MAPS}/a")).expect(200);
    fork.post(MAPS, &secret("fresh")).expect(201);
    acme.get(&format!("{MAPS}/a")).expect(200);
    acme.get(&format!("{MAPS}/fresh")).expect(404);
    acme.delete(&format!("{MAPS}/a")).expect(200);
    globex.get(&format!("{MAPS}/a")).expect(200);
    // The old plane's credentials are not the fork's.
    acme.in_plane("fork").get(MAPS).expect(404);
}

/// A plane that is deleted is gone at once, watches end, and one made again under its name is another.
#[test]
fn a_name_used_again() {
    let polder = Polder::start();
    let old = polder.plane("acme");
    old.post(MAPS, &secret("of-old")).expect(201);
    let mut watch = old.watch(&format!("{MAPS}?watch=true&{OWN}"));
    assert_eq!(watch.next_name(), "ADDED of-old");
    polder.admin.delete(&format!("{PLANES}/acme")).expect(200);
    old.get(MAPS).expect(404);
    while let Ok(Some(event)) = watch.next_event() {
        assert!(event["type"] == "ERROR" || event["type"] == "DELETED", "{event}");
    }
    let new = polder.plane("acme");
    new.get(&format!("{MAPS}/of-old")).expect(404);
    old.get(MAPS).expect(404);
}

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings";

/// Gives somebody one of the default roles in the default namespace.
fn binding(name: &str, user: &str, role: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    })
}

/// Tokens may be confined to one plane, and then are nobody in all others.
#[test]
fn tokens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.csv");
    let first = Polder::start();
    first.plane("acme");
    // A plane's number is the revision it was made by.
    let plane = first.admin.get(&format!("{PLANES}/acme")).json();
    let number = plane["metadata"]["resourceVersion"].as_str().unwrap();
    let users = format!("all,ann,1,system:masters\nnone,bob,2\nhome,cat,3,system:masters,{number}\n");
    std::fs::write(&path, users).unwrap();
    let (_, data) = first.stop();
    let polder = Polder::start_in(data, &format!("tokenFile: {}\n", path.display()));
    polder.plane("globex").post(MAPS, &secret("of-globex")).expect(201);
    let acme = polder.admin.in_plane("acme");
    let home = acme.with_token("home").unwrap();
    home.get(MAPS).expect(200);
    for client in [home.in_plane("globex"), home.at_root(), home.at_root().with_host("globex.localhost")] {
        closed(&client, MAPS);
        closed(&client, PLANES);
    }
    acme.with_token("all").unwrap().get(MAPS).expect(200);
    polder.admin.post(&format!("{PLANES}/core/kubeconfig"), &json!({})).expect(400);
    // To somebody without a plane, those do not exist that have no binding for them.
    let bob = acme.with_token("none").unwrap();
    assert_eq!(
        bob.get(MAPS).expect(404).text(),
        bob.in_plane("none").get(MAPS).expect(404).text().replace("none", "acme")
    );
    acme.post(BINDINGS, &binding("bob", "bob", "view")).expect(201);
    bob.get(MAPS).expect(404);
    acme.post(BINDINGS, &binding("guest", "provider:bob", "view")).expect(201);
    bob.get(MAPS).expect(200);
    let refused = bob.post(MAPS, &secret("of-bob")).expect(403).json();
    assert!(
        refused["message"].as_str().unwrap().contains("User \"provider:bob\" cannot create"),
        "{refused}"
    );
    bob.in_plane("globex").get(MAPS).expect(404);
    bob.at_root().get(MAPS).expect(403);
    acme.delete(&format!("{BINDINGS}/guest")).expect(200);
    bob.get(MAPS).expect(404);
    acme.with_token("other").unwrap().get(MAPS).expect(401);
}

/// What the handshake, the host and the path say must be one plane: whoever is trusted in front of us may go by any.
#[test]
fn addresses_agree() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    globex.post(MAPS, &secret("of-globex")).expect(201);
    acme.post(MAPS, &secret("of-acme")).expect(201);
    let admin = &polder.admin;
    let port = admin.address.port();
    // The provider may see all planes; a connection for one plane still carries no other.
    let by_acme = admin.by_name("acme.localhost").unwrap();
    assert!(by_acme.get(MAPS).expect(200).text().contains("of-acme"));
    let rows = [
        (by_acme.with_host("globex.localhost"), MAPS.to_string(), 421),
        (by_acme.with_host("globex.localhost."), MAPS.to_string(), 421),
        (by_acme.with_host("GLOBEX.LOCALHOST"), MAPS.to_string(), 421),
        (by_acme.with_host(&admin.host), format!("/clusters/globex{MAPS}"), 421),
        (by_acme.with_host(&admin.host), MAPS.to_string(), 421),
        // Two names at once: the host's wins over no path, and no path is looked for behind it.
        (by_acme.clone(), format!("/clusters/globex{MAPS}"), 404),
        (by_acme.with_host("globex.localhost"), format!("/clusters/core{MAPS}"), 404),
        (admin.with_host(&format!("localhost:{port}\r\nHost: globex.localhost")), MAPS.to_string(), 400),
    ];
    for (client, path, code) in rows {
        let reply = client.must("GET", &path, &[], b"");
        assert_eq!(reply.code, code, "{} {path}: {}", client.host, reply.text());
        assert!(!reply.text().contains("of-globex"), "{} {path}", client.host);
        if code == 421 {
            let status = reply.json();
            let told = status["message"].as_str().unwrap();
            let begins =
                "this connection was made for the host name of plane acme: open another one for plane ";
            assert!(status["kind"] == "Status" && told.starts_with(begins), "{status}");
        }
    }
    // Probes need no credentials, by whichever name they ask.
    by_acme.anonymous().unwrap().get("/readyz").expect(200);
    // The absolute form of a request line.
    let absolute = |client: &Client, host: &str, target: &str| {
        let head = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.connect().unwrap().send(&head, b"").unwrap()
    };
    let there = format!("https://globex.localhost{MAPS}");
    assert!(absolute(admin, "globex.localhost", &there).expect(200).text().contains("of-globex"));
    absolute(admin, "acme.localhost", &there).expect(400);
    absolute(&by_acme, "globex.localhost", &there).expect(421);
    absolute(&acme, "globex.localhost", &there).expect(404);
    for target in ["https://x/../clusters/globex/api", "*", "globex.localhost:443"] {
        let reply = absolute(&acme, "x", target);
        assert!(reply.code >= 400 && !reply.text().contains("of-globex"), "{target}: {}", reply.text());
    }
}

/// HTTP/2 says the host in a field of its own; a `Host` header beside it must not say another. One connection may
/// ask for many planes, and each answer is of the plane that was asked for.
#[test]
fn addresses_agree_in_http2() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    globex.post(MAPS, &secret("of-globex")).expect(201);
    acme.post(MAPS, &secret("of-acme")).expect(201);
    let mut admin = Http2::open(&polder.admin, 1 << 20).unwrap();
    let mut ask = |host: &str, path: &str, more: &[(&str, &str)]| {
        let stream = admin.get(host, path, more).unwrap();
        admin.body(stream).unwrap()
    };
    for (plane, other) in [("acme", "globex"), ("globex", "acme"), ("acme", "globex")] {
        for answer in [
            ask("127.0.0.1", &format!("/clusters/{plane}{MAPS}"), &[]),
            ask(&format!("{plane}.localhost"), MAPS, &[]),
        ] {
            assert!(
                answer.contains(&format!("of-{plane}")) && !answer.contains(&format!("of-{other}")),
                "{answer}"
            );
        }
    }
    assert!(ask("acme.localhost", MAPS, &[("host", "globex.localhost")]).contains("\"code\":400"));
    assert!(ask("acme.localhost", "/clusters/globex/api", &[]).contains("\"code\":404"));
    let mut home = Http2::open(&acme, 1 << 20).unwrap();
    for (host, path) in
        [("globex.localhost", MAPS.to_string()), ("127.0.0.1", format!("/clusters/globex{MAPS}"))]
    {
        let stream = home.get(host, &path, &[]).unwrap();
        let answer = home.body(stream).unwrap();
        assert!(answer.contains("\"code\":404"), "{answer}");
    }
    let stream = home.get("acme.localhost", MAPS, &[]).unwrap();
    assert!(home.body(stream).unwrap().contains("of-acme"), "the connection goes on");
}

/// Acting as somebody else is for those who may, never gives more than they have, and is never overheard.
#[test]
fn impersonation() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens.csv");
    std::fs::write(&path, "weak,bob,2\n").unwrap();
    let polder = Polder::start_with(&format!("tokenFile: {}\n", path.display()));
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    globex.post(MAPS, &secret("of-globex")).expect(201);
    let masters = [("Impersonate-User", "ann"), ("Impersonate-Group", "system:masters")];
    let as_ann = |client: &Client, more: &[(&str, &str)]| client.must("GET", MAPS, more, b"");
    // Whoever may everything may be anybody, and then may what that one may.
    as_ann(&acme, &masters).expect(200);
    let less = as_ann(&acme, &masters[..1]).expect(403).json();
    assert!(less["message"].as_str().unwrap().contains("User \"ann\" cannot list"), "{less}");
    as_ann(&acme, &[("Impersonate-User", "system:anonymous")]).expect(403);
    // Who one is and what one may is no secret; what there is to be had is one.
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let review = acme.must("POST", reviews, &masters[..1], b"{}").expect(201).json();
    assert_eq!(review["status"]["userInfo"]["username"], "ann");
    let unknown = acme.must("GET", "/apis/none.example/v1/things", &masters[..1], b"").expect(403).json();
    assert_eq!(
        unknown["message"],
        "things.none.example is forbidden: User \"ann\" cannot list resource \"things\" in API group \"none.example\" at the cluster scope"
    );
    as_ann(&acme, &masters[1..]).expect(400);
    // Nobody leaves their plane by another name.
    for client in [acme.in_plane("globex"), acme.at_root()] {
        let reply = as_ann(&client, &masters);
        assert!(matches!(reply.code, 403 | 404) && !reply.text().contains("of-globex"), "{}", reply.text());
    }
    // Whoever may not, may not.
    let weak = acme.with_token("weak").unwrap();
    as_ann(&weak, &masters).expect(404);
    acme.post(BINDINGS, &binding("guest", "provider:bob", "edit")).expect(201);
    let refused = as_ann(&weak, &masters).expect(403).json();
    assert_eq!(
        refused["message"],
        "users \"ann\" is forbidden: User \"provider:bob\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
    as_ann(&acme.anonymous().unwrap(), &masters).expect(403);
}
