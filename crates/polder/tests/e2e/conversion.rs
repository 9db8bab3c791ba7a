//! Custom resources whose versions a webhook turns into one another, over real HTTPS: what the conformance suite does in
//! `crd_conversion_webhook.go` and `crd_selectable_fields.go`, and what goes wrong.

use polder_test_support::webhook::WebhookServer;
use polder_test_support::{Value, json};

use crate::process::Polder;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const LOOPBACK: &str = "webhookNetworks: [127.0.0.0/8]\n";

fn path(version: &str) -> String {
    format!("/apis/stable.example.com/{version}/namespaces/default/e2e-tests")
}

/// `hostPort` in `v1` is `host` and `port` in `v2`.
fn answer(path: &str, request: &Value) -> Result<Value, (u16, String)> {
    match path.split('?').next().unwrap_or_default() {
        "/broken" => return Err((500, "it broke".into())),
        "/large" => return Err((200, "x".repeat(20 << 20))),
        "/text" => return Err((200, "no JSON".into())),
        "/wrong" => {
            return Ok(json!({"result": {"status": "Success"}, "convertedObjects": [{"kind": "Pod"}]}));
        }
        "/slow" => std::thread::sleep(std::time::Duration::from_secs(40)),
        _ => {}
    }
    let desired = &request["desiredAPIVersion"];
    let objects = request["objects"].as_array().unwrap().iter().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = desired.clone();
        let members = object.as_object_mut().unwrap();
        let mut take = |name: &str| {
            members.remove(name).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
        };
        if desired == "stable.example.com/v2" {
            let address = take("hostPort");
            let (host, port) = address.split_once(':').unwrap_or_default();
            members.extend([("host".to_owned(), json!(host)), ("port".to_owned(), json!(port))]);
        } else {
            let address = format!("{}:{}", take("host"), take("port"));
            members.insert("hostPort".into(), json!(address));
        }
        object
    });
    Ok(json!({"result": {"status": "Success"}, "convertedObjects": objects.collect::<Vec<Value>>()}))
}

fn versions(storage: &str) -> Value {
    let version = |name: &str, fields: &[&str]| {
        let fields = fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"})));
        let properties: Value = Value::Object(fields.collect());
        let columns: Vec<Value> = match name {
            "v2" => vec![json!({"name": "Host", "type": "string", "jsonPath": ".host"})],
            _ => Vec::new(),
        };
        let selectable = if name == "v2" { json!([{"jsonPath": ".host"}]) } else { json!([]) };
        json!({
            "name": name, "served": true, "storage": name == storage, "additionalPrinterColumns": columns,
            "selectableFields": selectable,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        })
    };
    json!([version("v1", &["hostPort"]), version("v2", &["host", "port"])])
}

fn crd(client: Value) -> Value {
    json!({
        "metadata": {"name": "e2e-tests.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "e2e-tests", "kind": "E2eTest"}, "versions": versions("v1"),
            "conversion": {"strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1", "v1beta1"]}},
        },
    })
}

fn instance(name: &str) -> Value {
    json!({"kind": "E2eTest", "apiVersion": "stable.example.com/v1", "metadata": {"name": name},
        "hostPort": "localhost:8080"})
}

#[track_caller]
fn is_v1(object: &Value) {
    assert_eq!(object["apiVersion"], "stable.example.com/v1");
    assert_eq!(
        (&object["hostPort"], &object["host"], &object["port"]),
        (&json!("localhost:8080"), &Value::Null, &Value::Null)
    );
}

#[track_caller]
fn is_v2(object: &Value) {
    assert_eq!(object["apiVersion"], "stable.example.com/v2");
    assert_eq!(
        (&object["hostPort"], &object["host"], &object["port"]),
        (&Value::Null, &json!("localhost"), &json!("8080"))
    );
}

/// A CRD's webhook converts what is read and written in another version than the stored one; lists may be mixed.
#[test]
fn a_webhook_converts() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start_with(LOOPBACK);
    let acme = polder.plane("acme");
    acme.post(CRDS, &crd(server.client_config("/crdconvert"))).expect(201);
    is_v1(&acme.post(&path("v1"), &instance("cr-instance-1")).expect(201).json());
    is_v2(&acme.get(&format!("{}/cr-instance-1", path("v2"))).expect(200).json());
    let definition = format!("{CRDS}/e2e-tests.stable.example.com");
    acme.patch(&definition, "merge", &json!({"spec": {"versions": versions("v2")}})).expect(200);
    is_v1(&acme.post(&path("v1"), &instance("cr-instance-2")).expect(201).json());
    for (version, check) in [("v1", is_v1 as fn(&Value)), ("v2", is_v2)] {
        let list = acme.get(&path(version)).expect(200).json();
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), 2);
        items.iter().for_each(check);
        let mut watch = acme.watch(&format!("{}?watch=1", path(version)));
        for _ in 0..2 {
            check(&watch.must()["object"]);
        }
    }
    let table = acme.clone().with_header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let table = table.get(&path("v2")).expect(200).json();
    assert_eq!(table["rows"][0]["cells"], json!(["cr-instance-1", "localhost"]));
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = acme.clone().with_header("Accept", partial).get(&path("v1")).expect(200).json();
    assert_eq!(partial["items"][1]["metadata"]["name"], "cr-instance-2");
    let selected = |host: &str| {
        let list = acme.get(&format!("{}?fieldSelector=host%3D{host}", path("v2"))).expect(200).json();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!((selected("localhost"), selected("elsewhere")), (2, 0));
    let mut some = acme.watch(&format!("{}?watch=1&fieldSelector=host%3Delsewhere", path("v2")));
    let change = json!({"hostPort": "elsewhere:1"});
    acme.patch(&format!("{}/cr-instance-1", path("v1")), "merge", &change).expect(200);
    let told = some.must();
    assert_eq!((&told["type"], &told["object"]["host"]), (&json!("ADDED"), &json!("elsewhere")));
    acme.delete(&path("v2")).expect(200);
    assert_eq!(acme.get(&path("v1")).expect(200).json()["items"], json!([]));
    let stored = acme.get(&definition).expect(200).json();
    assert_eq!(stored["status"]["storedVersions"], json!(["v1", "v2"]));
}

/// What goes wrong is told as kube-apiserver tells it, to those who need the webhook and to nobody else.
#[test]
fn webhooks_that_do_not_convert() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start_with(LOOPBACK);
    let kind = "conversion webhook for stable.example.com/v1, Kind=E2eTest";
    let url = |path: &str| format!("Post \"https://{}{path}?timeout=30s\": ", server.address);
    let rows = [
        ("/broken", "failed: an error on the server (\"it broke\") has prevented the request from succeeding".to_owned()),
        ("/large", format!("failed: {}the answer is longer than", url("/large"))),
        ("/text", "failed: couldn't get version/kind; json parse error".to_owned()),
        ("/wrong", "returned invalid object at index 0: invalid groupVersion (expected stable.example.com/v2, received )".to_owned()),
    ];
    for (index, (at, expected)) in rows.into_iter().enumerate() {
        let plane = polder.plane(&format!("p{index}"));
        plane.post(CRDS, &crd(server.client_config(at))).expect(201);
        plane.post(&path("v1"), &instance("a")).expect(201);
        for reply in [plane.get(&format!("{}/a", path("v2"))), plane.get(&path("v2"))] {
            let message = reply.expect(500).json()["message"].as_str().unwrap().to_owned();
            assert!(message.starts_with(&format!("{kind} {expected}")), "{message}");
        }
        is_v1(&plane.get(&path("v1")).expect(200).json()["items"][0]);
        plane.delete(&format!("{CRDS}/e2e-tests.stable.example.com")).expect(200);
        for _ in 0..500 {
            if plane.get(CRDS).expect(200).json()["items"] == json!([]) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert_eq!(plane.get(CRDS).expect(200).json()["items"], json!([]), "{at}");
    }
}

/// A webhook that never answers hurts those who need it, and nobody else.
#[test]
fn a_dead_conversion_hurts_those_who_need_it_only() {
    let server = WebhookServer::start(answer).unwrap();
    let polder = Polder::start_with(LOOPBACK);
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    acme.post(CRDS, &crd(server.client_config("/slow"))).expect(201);
    globex.post(CRDS, &crd(server.client_config("/convert"))).expect(201);
    acme.post(&path("v1"), &instance("a")).expect(201);
    globex.post(&path("v1"), &instance("a")).expect(201);
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..40)
            .map(|_| {
                let acme = &acme;
                scope.spawn(move || acme.get(&format!("{}?timeout=3s", path("v2"))).code)
            })
            .collect();
        for _ in 0..20 {
            is_v2(&globex.get(&format!("{}/a", path("v2"))).expect(200).json());
            is_v1(&acme.get(&format!("{}/a", path("v1"))).expect(200).json());
        }
        for code in waiting {
            assert!(code.join().unwrap() >= 500);
        }
    });
}
