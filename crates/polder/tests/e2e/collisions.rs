//! Names, selectors, tokens and references that would mean something else if they were joined, split or followed carelessly.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polder_test_support::{Client, Value, eventually, json};

use crate::process::{MAPS, OWN, PLANES, Polder};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";

fn names(client: &Client, path: &str) -> Vec<String> {
    let list = client.get(path).expect(200).json();
    let name = |item: &Value| {
        let text = |field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("namespace"), text("name"))
    };
    list["items"].as_array().unwrap().iter().map(name).collect()
}

/// Planes, namespaces and names that read the same when they are joined are different things, for reads, watches and deletions.
#[test]
fn joined_names_do_not_collide() {
    let polder = Polder::start();
    let planes = ["a", "a-b", "a-b-c", "a--b"].map(|name| (name, polder.plane(name)));
    let spaces = ["a", "b", "b-c", "a-b", "c", "a-b-c", "b--c"];
    let own = ["a", "a.b", "a-b", "b.c", "a.b.c", "a-b.c", "0"];
    for (plane, client) in &planes {
        for space in spaces {
            client.post("/api/v1/namespaces", &json!({"metadata": {"name": space}})).expect(201);
            for name in own {
                let map =
                    json!({"metadata": {"name": name}, "data": {"of": format!("{plane}/{space}/{name}")}});
                client.post(&format!("/api/v1/namespaces/{space}/configmaps"), &map).expect(201);
            }
        }
    }
    let (_, first) = &planes[0];
    let mut watch =
        planes[1].1.watch(&format!("/api/v1/namespaces/b/configmaps?watch=true&resourceVersion=0&{OWN}"));
    let mut seen: Vec<String> =
        (0..own.len()).map(|_| watch.must()["object"]["data"]["of"].as_str().unwrap().to_owned()).collect();
    seen.sort();
    let mut expected: Vec<String> = own.iter().map(|name| format!("a-b/b/{name}")).collect();
    expected.sort();
    assert_eq!(seen, expected);
    // One namespace of one plane is emptied, and nothing else.
    first.delete(&format!("/api/v1/namespaces/b/configmaps?{OWN}")).expect(200);
    first.delete("/api/v1/namespaces/a/configmaps/a").expect(200);
    for (plane, client) in &planes {
        for space in spaces {
            for name in own {
                let gone = *plane == "a" && (space == "b" || (space, name) == ("a", "a"));
                let reply = client.get(&format!("/api/v1/namespaces/{space}/configmaps/{name}"));
                assert_eq!(reply.code, if gone { 404 } else { 200 }, "{plane}/{space}/{name}");
                if !gone {
                    assert_eq!(reply.json()["data"]["of"], format!("{plane}/{space}/{name}"));
                }
            }
            let count = names(client, &format!("/api/v1/namespaces/{space}/configmaps?{OWN}")).len();
            let expected = match (*plane, space) {
                ("a", "b") => 0,
                ("a", "a") => own.len() - 1,
                _ => own.len(),
            };
            assert_eq!(count, expected, "{plane}/{space}");
        }
    }
    assert!((0..3).all(|_| watch.silent(std::time::Duration::from_millis(100))), "of another plane");
}

/// Names with separators, ends of text and ways up in them name nothing, or one thing that can be read and deleted by its name.
#[test]
fn strange_names() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let secret = json!({"metadata": {"name": "hidden"}, "stringData": {"a": "treasure"}});
    acme.post("/api/v1/namespaces/kube-system/secrets", &secret).expect(201);
    let (longest, too_long, far_too_long) = ("ä".repeat(512), "a".repeat(1025), "a".repeat(1_000_000));
    let strange = [
        longest.as_str(),
        too_long.as_str(),
        far_too_long.as_str(),
        "a\0b",
        "\0",
        "..",
        ".",
        "a/b",
        "../../kube-system/secrets/hidden",
        "a\\b",
        "a%2fb",
        "a%00b",
        "a\nb",
        "a\u{1b}[31mb",
        "a\u{7f}b",
        "a\u{85}b",
        "a:b",
        "a b",
        "ä",
        "a\u{202e}b",
        "",
        " ",
        "-",
        "A",
    ];
    for name in strange {
        // Roles may be called almost anything.
        let made = acme.post(ROLES, &json!({"metadata": {"name": name}, "rules": []}));
        assert!([201, 422].contains(&made.code), "{name:?}: {}", made.text());
        if name.len() > 10_000 {
            // No path is that long, so nothing may have that name.
            assert_eq!(made.code, 422);
            continue;
        }
        let escaped: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let read = acme.get(&format!("{ROLES}/{escaped}"));
        assert!(!read.text().contains("treasure"), "{name:?}");
        match made.code {
            201 => {
                assert_eq!(read.code, 200, "{name:?} can be made, but not read: {}", read.text());
                assert_eq!(read.json()["metadata"]["name"], name);
                acme.delete(&format!("{ROLES}/{escaped}")).expect(200);
            }
            _ => assert!(read.code >= 400 || name.is_empty(), "{name:?}: {}", read.text()),
        }
        // In a namespace that somebody makes up.
        let reply = acme.get(&format!("/api/v1/namespaces/{escaped}/secrets"));
        assert!(!reply.text().contains("treasure"), "{name:?}: {}", reply.text());
        for part in ["generateName", "namespace", "uid", "selfLink"] {
            let reply = acme.post(MAPS, &json!({"metadata": {"name": "probe", part: name}}));
            assert!(reply.code < 500, "{part} {name:?}: {}", reply.text());
            if reply.code == 201 {
                assert_eq!(reply.json()["metadata"]["namespace"], "default");
                let made = reply.json()["metadata"]["name"].as_str().unwrap().to_owned();
                acme.delete(&format!("{MAPS}/{made}")).expect(200);
            }
        }
    }
    assert_eq!(names(&acme, ROLES).len(), 0);
}

/// Whoever sends names that cannot be stored is refused, and nobody else: their writes share commits with everybody's.
#[test]
fn bad_names_fail_alone() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    // What is read often is in memory, and is not looked up on disk before it is written.
    for _ in 0..50 {
        acme.get(ROLES).expect(200);
    }
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["a\0b", "\0", "\0a"] {
            let (acme, over) = (&acme, &over);
            scope.spawn(move || {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    acme.post(ROLES, &json!({"metadata": {"name": name}, "rules": []})).expect(422);
                }
            });
        }
        for index in 0..200 {
            globex.post(MAPS, &json!({"metadata": {"name": format!("m-{index}")}})).expect(201);
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

/// Selectors and made-up tokens of somebody who may read one namespace show that namespace and no other.
#[test]
fn selectors_and_tokens_stay_in_their_namespace() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    for space in ["default", "kube-system", "kube-public"] {
        for name in ["a", "m", "z"] {
            let secret = json!({"metadata": {"name": format!("{name}-{space}"), "labels": {"in": space}}});
            acme.post(&format!("/api/v1/namespaces/{space}/secrets"), &secret).expect(201);
        }
    }
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let token = acme.post(&format!("{accounts}/default/token"), &json!({"spec": {}})).expect(201).json();
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "default"}],
    });
    acme.post("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &binding).expect(201);
    let reader = acme.with_token(token["status"]["token"].as_str().unwrap()).unwrap();
    let secrets = "/api/v1/namespaces/default/secrets";
    let check = |query: &str| {
        for path in [format!("{secrets}?{query}"), format!("{secrets}?watch=true&timeoutSeconds=1&{query}")] {
            let reply = reader.must("GET", &path, &[], b"");
            // 504 is for versions that are yet to come.
            assert!(reply.code < 500 || reply.code == 504, "{path}: {}", reply.text());
            for space in ["kube-system", "kube-public"] {
                let text = reply.text();
                let leaks = ["a", "m", "z"].iter().any(|name| text.contains(&format!("{name}-{space}")));
                assert!(!leaks, "{path}: {text}");
            }
        }
    };
    // In all namespaces: not allowed, or not even a question.
    let refused = |query: &str| {
        let reply = reader.get(&format!("/api/v1/secrets?{query}"));
        assert!([400, 403].contains(&reply.code), "{query}: {}", reply.text());
    };
    for selector in [
        "metadata.namespace=kube-system",
        "metadata.namespace!=default",
        "metadata.namespace=default,metadata.namespace=kube-system",
        "metadata.name=a-kube-system",
        "metadata.name=../kube-system/a-kube-system",
        "metadata.name=..%2Fkube-system%2Fa-kube-system",
        "metadata.name=kube-system%00a-kube-system",
        "metadata.namespace=%00",
        "metadata.name=%00",
        "metadata.uid=x",
        "data.a=b",
        "%00=%00",
        "..=..",
    ] {
        check(&format!("fieldSelector={selector}"));
        refused(&format!("fieldSelector={selector}"));
    }
    for selector in ["in=kube-system", "in%20in%20(kube-system)", "in!=default", "../in=x", "in%00=x"] {
        check(&format!("labelSelector={selector}"));
        refused(&format!("labelSelector={selector}"));
    }
    let version =
        acme.get(secrets).expect(200).json()["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    for start in [
        "kube-system/a",
        "kube-system\0a",
        "/kube-system/a",
        "../kube-system/a",
        "../../kube-public/",
        "..\0",
        "\0",
        "/",
        "a",
        "\u{10ffff}",
        "/registry/secrets/kube-system/a",
    ] {
        for version in [version.as_str(), "-1", "0", "1", "9223372036854775807", "-9223372036854775808"] {
            let token = format!("{{\"v\":\"meta.k8s.io/v1\",\"rv\":{version},\"start\":{}}}", json!(start));
            let token = URL_SAFE_NO_PAD.encode(token);
            check(&format!("limit=500&continue={token}"));
            refused(&format!("limit=500&continue={token}"));
        }
    }
    // A token of a list of everything is none of a list of one namespace.
    let page = acme.get("/api/v1/secrets?limit=1").expect(200).json();
    check(&format!("limit=500&continue={}", page["metadata"]["continue"].as_str().unwrap()));
}

fn owned(name: &str, owner: &Value, finalizers: &[&str]) -> Value {
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": true, "controller": true,
    });
    json!({"metadata": {"name": name, "ownerReferences": [reference], "finalizers": finalizers}})
}

/// A fork has objects with the names and UIDs of its source. Deleting there, with what that owns, with finalizers and waiting for
/// dependents, does nothing to the source; and what an object of one plane says about owners in another makes it nobody's.
#[test]
fn owners_and_finalizers_stay_in_their_plane() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let owner = acme.post(MAPS, &json!({"metadata": {"name": "owner"}})).expect(201).json();
    acme.post(MAPS, &owned("owned", &owner, &[])).expect(201);
    acme.post(MAPS, &owned("held", &owner, &["example.com/hold"])).expect(201);
    let fork = json!({"metadata": {"name": "fork"}, "spec": {"forkFrom": "acme"}});
    polder.admin.post(PLANES, &fork).expect(201);
    let fork = polder.admin.in_plane("fork");
    // Foreground: the owner waits for what it owns, in its plane.
    fork.delete_with(&format!("{MAPS}/owner"), &json!({"propagationPolicy": "Foreground"})).expect(200);
    eventually("the fork's dependent is collected", || fork.get(&format!("{MAPS}/owned")).code == 404);
    assert!(fork.get(&format!("{MAPS}/held")).json()["metadata"]["deletionTimestamp"].is_string());
    // An object of a neighbor that says it is owned by one of acme's: its owner is not there, so it goes. Acme's stays.
    globex.post(MAPS, &owned("pretender", &owner, &[])).expect(201);
    eventually("what nobody owns is collected", || globex.get(&format!("{MAPS}/pretender")).code == 404);
    // An owner of the same name and kind in the neighbor, with acme's dependents' claims: deleting it takes nothing of acme's.
    globex
        .post(MAPS, &json!({"metadata": {"name": "owner", "finalizers": ["example.com/hold"]}}))
        .expect(201);
    globex.delete(&format!("{MAPS}/owner")).expect(200);
    globex.patch(&format!("{MAPS}/owner"), "merge", &json!({"metadata": {"finalizers": null}})).expect(200);
    fork.patch(&format!("{MAPS}/held"), "merge", &json!({"metadata": {"finalizers": null}})).expect(200);
    eventually("the fork's owner goes last", || fork.get(&format!("{MAPS}/owner")).code == 404);
    for name in ["owner", "owned", "held"] {
        let metadata = acme.get(&format!("{MAPS}/{name}")).expect(200).json()["metadata"].clone();
        assert!(metadata.get("deletionTimestamp").is_none(), "{metadata}");
    }
}
