//! Keys and certificates of the server are turned over while it works: nobody who was let in before is turned away, and nobody
//! notices, until an operator says that something is in wrong hands.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use polder_test_support::extension::{Asked, ExtensionServer};
use polder_test_support::{Client, Value, eventually, json};

use crate::aggregation::{authority, event, networks, polite, register};
use crate::audit::EVENTS;
use crate::process::{MAPS, PLANES, Polder, polder};
use crate::tools;

const ROOT_CA: &str = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
const TOKENS: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const JWKS: &str = "/openid/v1/jwks";

fn keys(data: &Path, arguments: &[&str]) -> Output {
    polder().arg("keys").args(arguments).arg("--data-dir").arg(data).output().unwrap()
}

#[track_caller]
fn keys_ok(data: &Path, arguments: &[&str]) -> String {
    let output = keys(data, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn token(plane: &Client) -> String {
    let made = plane.post(TOKENS, &json!({"spec": {"expirationSeconds": 3600}})).expect(201).json();
    made["status"]["token"].as_str().unwrap().to_string()
}

/// The token that a secret of an account has, once it is another than this one.
fn token_secret(plane: &Client, not: &str) -> String {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let secret = json!({
        "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    });
    plane.post(SECRETS, &secret);
    let mut found = String::new();
    eventually("the secret has a token", || {
        let secret = plane.get(&format!("{SECRETS}/robot")).expect(200).json();
        let token = STANDARD.decode(secret["data"]["token"].as_str().unwrap_or_default()).unwrap();
        found = String::from_utf8(token).unwrap();
        !found.is_empty() && found != not
    });
    found
}

fn key_id(token: &str) -> String {
    let header = URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    let header: Value = serde_json_of(&header);
    header["kid"].as_str().unwrap().to_string()
}

fn serde_json_of(bytes: &[u8]) -> Value {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

/// The names of the keys by which outsiders verify tokens of a plane.
fn published(plane: &Client) -> Vec<String> {
    let set = plane.get(JWKS).expect(200).json();
    set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().into()).collect()
}

fn certificates(pem: &str) -> usize {
    pem.matches("BEGIN CERTIFICATE").count()
}

/// How many authorities a plane tells its programs of.
fn told(plane: &Client) -> usize {
    certificates(plane.get(ROOT_CA).expect(200).json()["data"]["ca.crt"].as_str().unwrap())
}

/// How many authorities the administrator's kubeconfig names.
fn told_admin(polder: &Polder) -> usize {
    let text = fs::read_to_string(polder.data().join("admin.kubeconfig")).unwrap();
    let (_, rest) = text.split_once("certificate-authority-data: ").unwrap();
    certificates(&String::from_utf8(STANDARD.decode(rest.lines().next().unwrap()).unwrap()).unwrap())
}

fn metric(polder: &Polder, name: &str) -> Option<f64> {
    let text = polder.admin.get("/metrics").expect(200).text();
    let start = format!("polder_key_expiry_seconds{{name=\"{name}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok())
}

/// Everything is turned over at once while clients of every kind go on: with old certificates, old tokens, old authorities, on
/// old connections and new ones. Not one request fails.
#[test]
fn everything_turns_over_and_nobody_notices() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let old = token(&acme);
    let bearer = acme.with_token(&old).unwrap();
    assert_eq!((told(&acme), told_admin(&polder), published(&acme).len()), (1, 1, 1));
    let year = 365.0 * 86_400.0;
    assert!(metric(&polder, "serving").unwrap() > year - 3_600.0);
    assert!(metric(&polder, "authority-1").unwrap() > 9.0 * year && metric(&polder, "authority-2").is_none());

    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let work = |client: Client, code: u16, stays: bool| {
            let (stop, asked) = (&stop, &asked);
            scope.spawn(move || {
                let mut connection = client.connect().unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if !stays {
                        connection = client.connect().unwrap();
                    }
                    let reply = connection.send(&client.head("GET", MAPS, &[], b""), b"").unwrap();
                    assert_eq!(reply.code, code, "{}", reply.text());
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        for stays in [false, true] {
            work(polder.admin.clone(), 200, stays);
            work(acme.clone(), 200, stays);
            // Known, and allowed nothing.
            work(bearer.clone(), 403, stays);
        }
        let said = keys_ok(&polder.data(), &["rotate", "all", "--now"]);
        assert!(
            said.contains("authority-2 rotated, in use from now") && said.contains("serving rotated"),
            "{said}"
        );
        eventually("everybody is told", || {
            told(&acme) == 2 && told_admin(&polder) == 2 && published(&acme).len() == 2
        });
        let before = asked.load(Ordering::Relaxed);
        eventually("clients go on", || asked.load(Ordering::Relaxed) > before + 50);
        stop.store(true, Ordering::Relaxed);
    });

    let new = token(&acme);
    assert_ne!(key_id(&new), key_id(&old));
    assert_eq!(published(&acme), [key_id(&new), key_id(&old)], "outsiders verify both");
    for token in [&old, &new] {
        acme.with_token(token).unwrap().get(MAPS).expect(403);
    }
    // A plane that is made now is told at once, and so is a namespace.
    let later = polder.plane("later");
    eventually("a new plane is told", || told(&later) == 2);
    later.post("/api/v1/namespaces", &json!({"metadata": {"name": "x"}})).expect(201);
    let map = "/api/v1/namespaces/x/configmaps/kube-root-ca.crt";
    eventually("a new namespace is told", || later.get(map).code == 200);
    assert_eq!(certificates(later.get(map).json()["data"]["ca.crt"].as_str().unwrap()), 2);
    assert!(metric(&polder, "authority-2").is_some() && metric(&polder, "service-accounts-2").is_some());

    // A restart goes on with both.
    let (_, directory) = polder.stop();
    let polder = Polder::start_in(directory, "");
    let acme = acme.at(polder.admin.address);
    acme.get(MAPS).expect(200);
    acme.with_token(&old).unwrap().get(MAPS).expect(403);
    assert_eq!(told(&acme), 2);
}

/// A key in wrong hands is dropped: what it signed is refused in the next request, on connections that are open too.
#[test]
fn what_is_dropped_is_believed_no_more() {
    let polder = Polder::start_with(&format!("{}audit: {{trail: {{}}}}\n", networks()));
    let acme = polder.plane("acme");
    let flunders = |_: &Asked, out: &mut dyn Write| {
        out.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        )?;
        event(out, "first")?;
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    };
    let server = ExtensionServer::start("api.default.svc", &authority(&polder), polite(flunders)).unwrap();
    register(&acme, &server);
    let old = token(&acme);
    let bearer = acme.with_token(&old).unwrap();
    let mut connection = acme.connect().unwrap();
    let mut ask = || connection.send(&acme.head("GET", MAPS, &[], b""), b"").unwrap().code;
    assert_eq!(ask(), 200);
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&fieldSelector=metadata.name%3Dlater"));
    let mut trail = acme.watch(&format!("{EVENTS}?watch=true&fieldSelector=verb%3Dnone"));
    let mut stream = acme.watch("/apis/wardle.example.com/v1alpha1/namespaces/default/flunders?watch=true");
    assert!(stream.next_event().unwrap().is_some());
    let robot = token_secret(&acme, "");
    let data = polder.data();
    let refused = keys(&data, &["drop", "authority-1"]);
    assert!(!refused.status.success());
    assert_eq!(String::from_utf8_lossy(&refused.stderr), "error: authority-1 is in use: rotate it first\n");
    for family in ["authority", "service-accounts"] {
        keys_ok(&data, &["rotate", family, "--now"]);
    }
    let refused = keys(&data, &["drop", "authority-1", "service-accounts-2"]);
    assert!(!refused.status.success(), "all or none");
    let dropped = keys_ok(&data, &["drop", "authority-1", "service-accounts-1"]);
    assert_eq!(dropped, "authority-1 dropped\nservice-accounts-1 dropped\n");
    eventually("the open connection is nobody's", || ask() == 401);
    for (what, watch) in
        [("objects", &mut watch), ("a trail", &mut trail), ("an extension server", &mut stream)]
    {
        assert!(
            watch.next_event().unwrap().is_none(),
            "a watch of {what} by somebody who is nobody now has ended"
        );
    }
    assert!(acme.connect().and_then(|mut new| new.send(&acme.head("GET", MAPS, &[], b""), b"")).is_err());
    eventually("the administrator has a new kubeconfig", || {
        let text = fs::read_to_string(data.join("admin.kubeconfig")).unwrap();
        let admin = Client::from_kubeconfig(&text).unwrap();
        admin.send("GET", MAPS, &[], b"").is_ok_and(|reply| reply.code == 200)
    });
    let admin = Client::from_kubeconfig(&fs::read_to_string(data.join("admin.kubeconfig")).unwrap()).unwrap();
    let made = admin.post(&format!("{PLANES}/acme/kubeconfig"), &json!({})).expect(201).json();
    let acme = Client::from_kubeconfig(made["kubeconfig"].as_str().unwrap()).unwrap();
    let named = |token: &str| acme.with_token(token).unwrap().post(REVIEWS, &json!({})).code;
    assert_eq!((named(&old), named(&token(&acme))), (401, 201));
    assert!(bearer.send("GET", MAPS, &[], b"").is_err(), "nobody knows who that server is");
    let renewed = token_secret(&acme, &robot);
    assert_eq!(named(&renewed), 201, "the secret of an account has another token");
    eventually("planes are told of one", || told(&acme) == 1);
}

/// A kill at any moment of a rotation leaves a server that starts and believes all it believed before.
#[test]
fn a_kill_in_a_rotation_turns_nobody_away() {
    let mut polder = Polder::start();
    let mut all: Vec<(Client, String)> = Vec::new();
    for round in 0..4_u64 {
        let acme = match round {
            0 => polder.plane("acme"),
            _ => {
                let made = polder.admin.post(&format!("{PLANES}/acme/kubeconfig"), &json!({})).expect(201);
                Client::from_kubeconfig(made.json()["kubeconfig"].as_str().unwrap()).unwrap()
            }
        };
        let token = token(&acme);
        all.push((acme, token));
        keys_ok(&polder.data(), &["rotate", "all", "--now"]);
        // Before the server has looked, while it tells planes, and after.
        std::thread::sleep(Duration::from_millis(400 * round));
        polder = Polder::start_in(polder.kill(), "");
        for (acme, token) in &all {
            let acme = acme.at(polder.admin.address);
            acme.get(MAPS).expect(200);
            acme.with_token(token).unwrap().get(MAPS).expect(403);
        }
    }
    let acme = polder.admin.in_plane("acme");
    eventually("the plane is told of all", || told(&acme) == 5 && published(&acme).len() == 5);
}

/// What `polder keys` prints.
#[test]
fn keys_are_listed() {
    let polder = Polder::start();
    let data = polder.data();
    let text = keys_ok(&data, &["list"]);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "STATUS", "AGE", "EXPIRES", "NEXT"]);
    let heads: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1])).collect();
    let used = ["admin", "serving", "authority-1", "service-accounts-1", "front-proxy-1"];
    assert_eq!(heads, used.map(|name| (name, "InUse")));
    let said = keys_ok(&data, &["rotate", "service-accounts"]);
    assert!(said.starts_with("service-accounts-2 rotated, in use from 20"), "{said}");
    let again = keys_ok(&data, &["rotate", "service-accounts"]);
    assert!(
        again.starts_with("service-accounts-2 unchanged: it was made before, and is in use from 20"),
        "{again}"
    );
    let json: Value = keys_ok(&data, &["list", "-o", "json"]).parse().unwrap();
    let next = json["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|item| item["metadata"]["name"] == "service-accounts-2");
    assert_eq!(next.unwrap()["status"]["phase"], "Next", "{json}");
    assert_eq!(next.unwrap()["status"]["next"]["what"], "used");
    assert!(keys_ok(&data, &["list", "-o", "name"]).contains("service-accounts-2\n"));
    let acme = polder.plane("acme");
    let old = token(&acme);
    eventually("it is told", || published(&acme).len() == 2);
    assert_eq!(key_id(&token(&acme)), key_id(&old), "it is not used before outsiders had time to hear of it");
    let nowhere = tempfile::tempdir().unwrap();
    let refused = keys(nowhere.path(), &["list"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.starts_with("error: there are no keys of a server in"),
        "{said}"
    );
}

/// kubectl with a kubeconfig from before a rotation works on, and so does one with the new one.
#[test]
fn kubectl_across_a_rotation() {
    let Some(kubectl) = tools::find("POLDER_TEST_KUBECTL_CURRENT", "kubectl 1.35") else { return };
    let polder = Polder::start();
    polder.plane("acme");
    let old = polder.plane_kubeconfig("acme");
    let get = |kubeconfig: &Path| {
        let output = std::process::Command::new(&kubectl)
            .args(["get", "configmaps", "--kubeconfig"])
            .arg(kubeconfig)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    get(&old);
    keys_ok(&polder.data(), &["rotate", "all", "--now"]);
    eventually("everybody is told", || told_admin(&polder) == 2);
    get(&old);
    get(&polder.data().join("admin.kubeconfig"));
    let renewed = polder.admin.post(&format!("{PLANES}/acme/kubeconfig"), &json!({})).expect(201).json();
    get(&polder.file("renewed.kubeconfig", renewed["kubeconfig"].as_str().unwrap()));
}
