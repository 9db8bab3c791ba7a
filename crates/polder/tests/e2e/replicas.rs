//! Several servers over one etcd are one server: whatever is written on one is there on all, limits hold over all of them, and any
//! of them can die.

use std::path::PathBuf;
use std::time::Instant;

use polder_test_support::etcd::{self, Way};
use polder_test_support::{Client, Value, eventually, json};

use crate::process::{MAPS, PLANES, Polder, add_key, refused, replica, serve};

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// What servers need to be replicas of each other.
struct Site {
    etcd: String,
    prefix: &'static str,
    directory: tempfile::TempDir,
}

impl Site {
    /// Nothing where there is no etcd.
    fn new(prefix: &'static str) -> Option<Site> {
        let site = Site { etcd: etcd::shared()?.into(), prefix, directory: tempfile::tempdir().unwrap() };
        add_key(&site.key());
        Some(site)
    }

    fn key(&self) -> PathBuf {
        self.directory.path().join("encryption.key")
    }

    fn start(&self) -> Polder {
        self.start_in(tempfile::tempdir().unwrap())
    }

    fn start_in(&self, directory: tempfile::TempDir) -> Polder {
        Polder::start_replica(&self.etcd, self.prefix, &self.key(), directory)
    }
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

fn leads(polder: &Polder) -> bool {
    polder.admin.get("/metrics").expect(200).text().contains("\npolder_replica_leads 1\n")
}

fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

/// What is written on one replica is there on the others, with no wait in between; credentials of one are good on all; a watch goes
/// on with another replica where the one that died has left it.
#[test]
fn replicas_are_one_server() {
    let Some(site) = Site::new("/one-server") else { return };
    let (a, b, c) = (site.start(), site.start(), site.start());
    // They have the same authority, so the administrator of one is that of all.
    let admins = [&a.admin, &a.admin.at(b.admin.address), &b.admin.at(c.admin.address)];
    admins[0].post(PLANES, &json!({"metadata": {"name": "acme"}})).expect(201);
    let planes: Vec<Client> = admins.iter().map(|admin| admin.in_plane("acme")).collect();
    let from = version(&planes[1].get(MAPS).expect(200).json());
    let mut watch = planes[1].watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    for round in 0..20 {
        let (writer, other, third) = (&planes[round % 3], &planes[(round + 1) % 3], &planes[(round + 2) % 3]);
        let name = format!("m{round}");
        let made = writer.post(MAPS, &map(&name)).expect(201).json();
        let found = other.get(&format!("{MAPS}/{name}")).expect(200).json();
        assert_eq!(version(&found), version(&made));
        // Whoever has seen a version writes to it anywhere.
        let mut changed = made.clone();
        changed["data"] = json!({"round": round.to_string()});
        let changed = third.put(&format!("{MAPS}/{name}"), &changed).expect(200).json();
        third.post(MAPS, &map(&name)).expect(409);
        writer.put(&format!("{MAPS}/{name}"), &made).expect(409);
        assert!(version(&changed) > version(&made));
        assert_eq!(
            [watch.next_name(), watch.next_name()],
            [format!("ADDED {name}"), format!("MODIFIED {name}")]
        );
    }

    // A namespace, a kind, a plane, an account and its token, each used elsewhere at once.
    planes[0].post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).expect(201);
    planes[1].post("/api/v1/namespaces/team/configmaps", &map("x")).expect(201);
    planes[1].post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd()).expect(201);
    eventually("the kind is served", || {
        let found = planes[1].get("/apis/example.com/v1/gadgets");
        found.code == 200
    });
    let gadgets = "/apis/example.com/v1/namespaces/team/gadgets";
    let gadget =
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}, "size": 3});
    planes[2].post(gadgets, &gadget).expect(201);
    assert_eq!(planes[0].get(&format!("{gadgets}/g")).expect(200).json()["size"], 3);
    let fork = json!({"metadata": {"name": "preview"}, "spec": {"forkFrom": "acme"}});
    admins[1].post(PLANES, &fork).expect(201);
    assert_eq!(admins[2].in_plane("preview").get(&format!("{gadgets}/g")).expect(200).json()["size"], 3);
    let account = json!({"metadata": {"name": "robot"}});
    planes[0].post("/api/v1/namespaces/team/serviceaccounts", &account).expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made = planes[1].post("/api/v1/namespaces/team/serviceaccounts/robot/token", &request);
    let token = made.expect(201).json()["status"]["token"].as_str().unwrap().to_string();
    let robot = planes[2].with_token(&token).unwrap();
    assert_eq!(robot.get("/api/v1/namespaces/team/secrets").expect(403).json()["kind"], "Status");
    planes[0].delete("/api/v1/namespaces/team/serviceaccounts/robot").expect(200);
    eventually("the token is good nowhere", || robot.get("/api/v1/namespaces/team/secrets").code == 401);

    // Whoever leads empties namespaces, whoever was asked to delete them.
    for (index, name) in ["one", "two", "three"].into_iter().enumerate() {
        planes[index].post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).expect(201);
        planes[index].post(&format!("/api/v1/namespaces/{name}/configmaps"), &map("x")).expect(201);
        planes[index].delete(&format!("/api/v1/namespaces/{name}")).expect(200);
    }
    for name in ["one", "two", "three"] {
        let path = format!("/api/v1/namespaces/{name}");
        eventually("the namespace is gone", || planes[0].get(&path).code == 404);
    }

    // B dies; its watch goes on with C.
    let last = version(&planes[1].patch(&format!("{MAPS}/m0"), "merge", &json!({"data": {"a": "b"}})).json());
    assert_eq!(watch.next_name(), "MODIFIED m0");
    drop(b.kill());
    planes[0].delete(&format!("{MAPS}/m0")).expect(200);
    let mut resumed = planes[2].watch(&format!("{MAPS}?watch=true&resourceVersion={last}"));
    assert_eq!(resumed.next_name(), "DELETED m0");
    admins[0].delete(&format!("{PLANES}/preview")).expect(200);
    admins[2].in_plane("preview").get(MAPS).expect(404);

    // What died comes back with what it had, and the rest of it.
    let b = site.start();
    b.admin.in_plane("acme").get(&format!("{MAPS}/m19")).expect(200);
    let (status, directory) = c.stop();
    assert!(status.success());
    planes[0].post(MAPS, &map("while-c-was-away")).expect(201);
    let c = site.start_in(directory);
    c.admin.in_plane("acme").get(&format!("{MAPS}/while-c-was-away")).expect(200);
}

/// Quotas, limits of planes, addresses and ports of services hold over all replicas, whoever writes where at the same time.
#[test]
fn limits_hold_over_replicas() {
    let Some(site) = Site::new("/limits") else { return };
    let replicas = [site.start(), site.start(), site.start()];
    let admin = &replicas[0].admin;
    admin.post(PLANES, &json!({"metadata": {"name": "acme"}})).expect(201);
    let planes: Vec<Client> = replicas.iter().map(|one| one.admin.in_plane("acme")).collect();
    let quota =
        json!({"metadata": {"name": "few"}, "spec": {"hard": {"secrets": "25", "services.nodeports": "12"}}});
    planes[0].post(QUOTAS, &quota).expect(201);
    eventually("the quota is known", || {
        let quota = planes[1].get(&format!("{QUOTAS}/few")).expect(200).json();
        quota["status"]["hard"]["secrets"] == "25"
    });
    let made =
        many(&planes, 100, "/api/v1/namespaces/default/secrets", &|name| json!({"metadata": {"name": name}}));
    let found = planes[2].get("/api/v1/namespaces/default/secrets").expect(200).json();
    assert_eq!((made, found["items"].as_array().unwrap().len()), (25, 25));
    let services = "/api/v1/namespaces/default/services";
    let made = many(
        &planes,
        30,
        services,
        &|name| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}),
    );
    let found = planes[1].get(services).expect(200).json();
    let found = found["items"].as_array().unwrap().iter().filter(|one| one["spec"]["type"] == "NodePort");
    let (mut ports, mut addresses): (Vec<i64>, Vec<String>) = found
        .map(|one| {
            let address = one["spec"]["clusterIP"].as_str().unwrap().to_string();
            (one["spec"]["ports"][0]["nodePort"].as_i64().unwrap(), address)
        })
        .unzip();
    assert_eq!((made, ports.len()), (12, 12));
    ports.sort_unstable();
    ports.dedup();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!((ports.len(), addresses.len()), (12, 12));

    // A plane's own limit, which the commit counts.
    admin.post(PLANES, &json!({"metadata": {"name": "globex"}})).expect(201);
    let objects = admin.get(&format!("{PLANES}/globex")).json()["status"]["objectCount"].as_u64().unwrap();
    let limits = json!({"spec": {"limits": {"objects": objects + 10}}});
    admin.patch(&format!("{PLANES}/globex"), "merge", &limits).expect(200);
    let planes: Vec<Client> = replicas.iter().map(|one| one.admin.in_plane("globex")).collect();
    assert_eq!(many(&planes, 60, MAPS, &|name| map(&name)), 10);
}

/// Writes so many objects through all replicas at once, and tells how many were taken.
fn many(planes: &[Client], count: usize, path: &str, make: &(dyn Fn(String) -> Value + Sync)) -> usize {
    let write = |index: usize| {
        let plane = &planes[index % planes.len()];
        // Those who lose race after race are told to try again.
        (0..20).any(|_| match plane.post(path, &make(format!("x{index}"))).code {
            201 => true,
            403 => false,
            409 | 429 | 503 | 504 => {
                std::thread::sleep(std::time::Duration::from_millis(50));
                plane.get(&format!("{path}/x{index}")).code == 200
            }
            code => panic!("{code}"),
        })
    };
    let own = |writer: usize| (0..count).filter(|one| one % 10 == writer).filter(|one| write(*one)).count();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..10).map(|writer| scope.spawn(move || own(writer))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    })
}

/// Whoever loses a right loses it on the replica that took the change at once, and on the others within a second.
#[test]
fn a_revoked_right_is_gone_everywhere() {
    let Some(site) = Site::new("/revoked") else { return };
    let (a, b) = (site.start(), site.start());
    a.admin.post(PLANES, &json!({"metadata": {"name": "acme"}})).expect(201);
    let (here, there) = (a.admin.in_plane("acme"), b.admin.in_plane("acme"));
    here.post("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "robot"}}))
        .expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let made =
        here.post("/api/v1/namespaces/default/serviceaccounts/robot/token", &request).expect(201).json();
    let token = made["status"]["token"].as_str().unwrap().to_string();
    let (robot_here, robot_there) = (here.with_token(&token).unwrap(), there.with_token(&token).unwrap());
    let role = json!({"metadata": {"name": "reader"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]});
    here.post(&format!("{RBAC}/namespaces/default/roles"), &role).expect(201);
    let binding = json!({"metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let mut slowest = std::time::Duration::ZERO;
    for _ in 0..20 {
        there.post(&bindings, &binding).expect(201);
        assert_eq!(robot_there.get(MAPS).code, 200);
        eventually("the right is there", || robot_here.get(MAPS).code == 200);
        here.delete(&format!("{bindings}/robot")).expect(200);
        let revoked = Instant::now();
        assert_eq!(robot_here.get(MAPS).code, 403);
        eventually("the right is gone there", || robot_there.get(MAPS).code == 403);
        slowest = slowest.max(revoked.elapsed());
    }
    println!("a right was gone on the other replica after at most {slowest:?}");
}

/// Controllers run on one replica. When that one is killed another takes over by itself; when it is stopped, at once.
#[test]
fn controllers_outlive_their_replica() {
    let Some(site) = Site::new("/controllers") else { return };
    let mut replicas = vec![site.start(), site.start(), site.start()];
    let plane = json!({"metadata": {"name": "acme"}, "spec": {"simulatedNodes": 1}});
    replicas[0].admin.post(PLANES, &plane).expect(201);
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}}});
    replicas[1].admin.in_plane("acme").post(DEPLOYMENTS, &deployment).expect(201);
    let is_ready = |replicas: &[Polder], count: u64| {
        let plane = replicas[0].admin.in_plane("acme");
        eventually(&format!("{count} pods are ready"), || {
            plane.get(&format!("{DEPLOYMENTS}/web")).expect(200).json()["status"]["readyReplicas"] == count
        });
    };
    let scale = |replicas: &[Polder], count: u64| {
        let plane = replicas[0].admin.in_plane("acme");
        plane
            .patch(&format!("{DEPLOYMENTS}/web"), "merge", &json!({"spec": {"replicas": count}}))
            .expect(200);
    };
    is_ready(&replicas, 1);
    let leaders = replicas.iter().filter(|one| leads(one)).count();
    assert_eq!(leaders, 1);
    let leader = replicas.iter().position(leads).unwrap();
    let begun = Instant::now();
    drop(replicas.remove(leader).kill());
    scale(&replicas, 3);
    is_ready(&replicas, 3);
    println!("controllers went on {:?} after their replica was killed", begun.elapsed());
    let leader = replicas.iter().position(leads).unwrap();
    let begun = Instant::now();
    assert!(replicas.remove(leader).stop().0.success());
    println!("their replica stopped after {:?}", begun.elapsed());
    let begun = Instant::now();
    scale(&replicas, 5);
    is_ready(&replicas, 5);
    println!("controllers went on {:?} after that", begun.elapsed());
    assert!(leads(&replicas[0]));
}

/// Without etcd nothing is written and nobody is told old news for new, in bounded time; what does not need it is answered. When it
/// is back everything goes on by itself.
#[test]
fn etcd_away_and_back() {
    let Some(mut site) = Site::new("/away") else { return };
    let way = Way::to(&site.etcd);
    let other = site.start();
    site.etcd = way.url();
    let cut_off = site.start();
    other.admin.post(PLANES, &json!({"metadata": {"name": "acme"}})).expect(201);
    let (here, there) = (cut_off.admin.in_plane("acme"), other.admin.in_plane("acme"));
    here.post(MAPS, &map("before")).expect(201);
    let from = version(&here.get(MAPS).expect(200).json());
    let mut watch = here.watch(&format!("{MAPS}?watch=true&resourceVersion={from}"));
    for round in 0..2 {
        way.cut();
        there.post(MAPS, &map(&format!("meanwhile-{round}"))).expect(201);
        let begun = Instant::now();
        let lost = format!("lost-{round}");
        let written = here.post(MAPS, &map(&lost));
        assert!([503, 504].contains(&written.code), "{} {}", written.code, written.text());
        here.get(MAPS).expect(503);
        eventually("it is not ready", || cut_off.admin.get("/readyz").code == 500);
        here.get(&format!("{MAPS}?resourceVersion=0")).expect(200);
        here.get(&format!("{MAPS}/before?resourceVersion=0")).expect(200);
        println!("without etcd that took {:?}", begun.elapsed());
        way.open();
        eventually("it goes on", || {
            let code = here.post(MAPS, &map(&format!("after-{round}"))).code;
            // It may have been made by a try whose answer got lost.
            code == 201 || code == 409
        });
        assert_eq!(watch.next_name(), format!("ADDED meanwhile-{round}"));
        let mut next = watch.next_name();
        // Nobody knew: it may have been written all the same.
        if next == format!("ADDED {lost}") {
            assert_eq!(written.code, 504);
            next = watch.next_name();
        }
        assert_eq!(next, format!("ADDED after-{round}"));
        here.get(&format!("{MAPS}/meanwhile-{round}")).expect(200);
        there.get(&format!("{MAPS}/after-{round}")).expect(200);
    }
    eventually("it is ready again", || cut_off.admin.get("/readyz").code == 200);
}

/// Keys are turned over once for all replicas, wherever the operator asks; what is dropped is believed nowhere.
#[test]
fn keys_turn_over_on_all() {
    let Some(site) = Site::new("/keys") else { return };
    let (a, b) = (site.start(), site.start());
    a.admin.post(PLANES, &json!({"metadata": {"name": "acme"}})).expect(201);
    let (here, there) = (a.admin.in_plane("acme"), b.admin.in_plane("acme"));
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    here.post(accounts, &json!({"metadata": {"name": "robot"}})).expect(201);
    let token = |plane: &Client| {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let made = plane.post(&format!("{accounts}/robot/token"), &request).expect(201).json();
        made["status"]["token"].as_str().unwrap().to_string()
    };
    let keys = |polder: &Polder, arguments: &[&str]| {
        let mut command = crate::process::polder();
        command.arg("keys").args(arguments).arg("--data-dir").arg(polder.data());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let old = token(&here);
    assert!(!a.data().join("pki/keys.json").exists(), "no key is in a file");
    assert!(keys(&a, &["list"]).contains("service-accounts-1"));
    let said = keys(&a, &["rotate", "service-accounts", "--now"]);
    assert!(said.starts_with("service-accounts-2 rotated, in use from now"), "{said}");
    eventually("the other replica knows", || {
        keys(&b, &["list", "-o", "name"]).contains("service-accounts-2")
    });
    let new = token(&there);
    let may = |plane: &Client, token: &str| plane.with_token(token).unwrap().get(MAPS).code;
    for plane in [&here, &there] {
        eventually("the new key is believed", || may(plane, &new) == 403);
        assert_eq!(may(plane, &old), 403, "what was signed stays good");
    }
    let said = keys(&b, &["drop", "service-accounts-1"]);
    assert_eq!(said, "service-accounts-1 dropped\n");
    for plane in [&here, &there] {
        eventually("the old key is believed no more", || may(plane, &old) == 401);
        assert_eq!(may(plane, &new), 403);
    }
}

/// A server that cannot be a replica does not start, and says why.
#[test]
fn what_makes_no_replica() {
    let Some(site) = Site::new("/refused") else { return };
    let _first = site.start();
    let elsewhere = tempfile::tempdir().unwrap();
    let data = elsewhere.path().join("data");
    let url = site.etcd.replace("http://", "etcd://");
    let mut keyless = serve(&data, "127.0.0.1:0");
    keyless.args(["--store", &url, "--etcd-prefix", site.prefix]);
    let said = refused(keyless);
    assert!(said.contains("the same encryption key") && said.contains("polder store add-key"), "{said}");
    let key = elsewhere.path().join("another.key");
    add_key(&key);
    let said = refused(replica(&site.etcd, site.prefix, &key, &data));
    assert!(said.contains("the store needs key") && said.contains("put its line back"), "{said}");
    let nobody = format!("http://127.0.0.1:{}", etcd::free_port());
    let said = refused(replica(&nobody, site.prefix, &site.key(), &elsewhere.path().join("other")));
    assert!(said.contains("cannot reach") && said.contains(&nobody), "{said}");
    let mut wrong = serve(&data, "127.0.0.1:0");
    wrong.args(["--store", "mysql://h:1"]);
    let said = refused(wrong);
    assert!(said.contains("none of embedded, etcd://"), "{said}");
}
