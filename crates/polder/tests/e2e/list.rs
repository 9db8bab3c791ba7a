//! Reference sections 9.1, 9.2 and 10: lists.

use std::time::{Duration, Instant};

use polder_test_support::{Client, Value, json};

use crate::process::{MAPS, Polder};

fn fill(client: &Client, count: usize) {
    let mut connection = client.connect().unwrap();
    for index in 0..count {
        let object = json!({"metadata": {"name": (format!("m-{index:04}")), "labels": {"odd": (index % 2 == 1).to_string()}}});
        let body = object.to_string();
        let head = client.head("POST", MAPS, &[("Content-Type", "application/json")], body.as_bytes());
        connection.send(&head, body.as_bytes()).unwrap().expect(201);
    }
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|item| item["metadata"]["name"].as_str().unwrap().to_string()).collect()
}

fn encode(token: &Value) -> String {
    token.as_str().unwrap().replace('=', "%3D").replace('+', "%2B")
}

/// Pages are parts of one state, whatever is written meanwhile, and count what is left.
#[test]
fn pages_are_consistent() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    fill(&acme, 10);
    let first = acme.get(&format!("{MAPS}?limit=4")).expect(200).json();
    assert_eq!(names(&first).len(), 4);
    let total = 4 + first["metadata"]["remainingItemCount"].as_u64().unwrap();
    acme.delete(&format!("{MAPS}/m-0009")).expect(200);
    acme.post(MAPS, &json!({"metadata": {"name": "m-0005a"}})).expect(201);
    let mut all = names(&first);
    let mut page = first.clone();
    while let Some(token) = page["metadata"].get("continue").filter(|token| token.is_string()) {
        page = acme.get(&format!("{MAPS}?limit=4&continue={}", encode(token))).expect(200).json();
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        all.extend(names(&page));
    }
    assert_eq!(all.len() as u64, total);
    assert!(all.contains(&"m-0009".into()) && !all.contains(&"m-0005a".into()), "{all:?}");
    assert!(all.is_sorted());
    let token = encode(&first["metadata"]["continue"]);
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    acme.get(&format!("{MAPS}?limit=4&continue={token}&resourceVersion={version}")).expect(400);
    acme.get(&format!("{MAPS}?limit=4&continue=nonsense")).expect(400);
    let exact =
        acme.get(&format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")).expect(200).json();
    assert_eq!(names(&exact), all);
    let selected = acme.get(&format!("{MAPS}?limit=2&labelSelector=odd%3Dtrue")).expect(200).json();
    assert_eq!(names(&selected), ["m-0001", "m-0003"]);
    assert_eq!(selected["metadata"]["remainingItemCount"], Value::Null);
}

/// A token older than the history is refused with a fresh one; a watch and an exact list from there as well.
#[test]
fn what_is_forgotten_is_said() {
    let polder = Polder::start_with("historySeconds: 1\n");
    let acme = polder.plane("acme");
    fill(&acme, 10);
    let first = acme.get(&format!("{MAPS}?limit=4")).expect(200).json();
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let token = encode(&first["metadata"]["continue"]);
    // A thousand revisions are kept however old they are.
    let mut connection = acme.connect().unwrap();
    let started = Instant::now();
    let expired = loop {
        for index in 0..250 {
            let body = json!({"data": {"a": (format!("{:?} {index}", started.elapsed()))}}).to_string();
            let kind = [("Content-Type", "application/merge-patch+json")];
            let head = acme.head("PATCH", &format!("{MAPS}/m-0000"), &kind, body.as_bytes());
            connection.send(&head, body.as_bytes()).unwrap().expect(200);
        }
        let reply = acme.get(&format!("{MAPS}?limit=4&continue={token}"));
        if reply.code == 410 {
            break reply.json();
        }
        assert!(started.elapsed() < Duration::from_secs(60), "the history is never forgotten");
    };
    assert_eq!(expired["reason"], "Expired");
    let fresh = encode(&expired["metadata"]["continue"]);
    let rest = acme.get(&format!("{MAPS}?continue={fresh}")).expect(200).json();
    assert_eq!(names(&rest)[0], names(&acme.get(MAPS).json())[4]);
    let exact = format!("{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    assert_eq!(acme.get(&exact).expect(410).json()["reason"], "Expired");
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&resourceVersion={version}"));
    let event = watch.must();
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    let text = event["object"]["message"].as_str().unwrap();
    assert!(text.starts_with(&format!("too old resource version: {version} (")), "{text}");
    assert!(matches!(watch.next_event(), Ok(None)), "the watch ends in good order");
}

/// Which state is meant, and which questions make no sense.
#[test]
fn resource_versions() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    fill(&acme, 3);
    let list = |query: &str| acme.get(&format!("{MAPS}?{query}"));
    let all = names(&list("").json()).len();
    assert_eq!(
        names(&list("resourceVersion=0&limit=1").expect(200).json()).len(),
        all,
        "any state is not paged"
    );
    for query in [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Other&resourceVersion=5",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "sendInitialEvents=true",
    ] {
        assert_eq!(list(query).expect(422).json()["reason"], "Invalid", "{query}");
    }
    list("resourceVersion=x").expect(400);
    list("labelSelector=%21%21").expect(400);
    let future = list("resourceVersion=999999999").expect(504).json();
    assert_eq!(future["reason"], "Timeout");
    assert_eq!(future["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    acme.get(&format!("{MAPS}/m-0000?resourceVersion=999999999")).expect(504);
}

/// Selectors by label and by field.
#[test]
fn selectors() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let pods = "/api/v1/namespaces/default/pods";
    for (name, node, app) in [("a", "n1", "web"), ("b", "n2", "web"), ("c", "n1", "db")] {
        let pod = json!({"metadata": {"name": name, "labels": {"app": app}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
        acme.post(pods, &pod).expect(201);
    }
    let rows = [
        ("labelSelector=app%3Dweb", vec!["a", "b"]),
        ("labelSelector=app+in+(db,x)", vec!["c"]),
        ("labelSelector=app+notin+(db)", vec!["a", "b"]),
        ("labelSelector=%21app", vec![]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=spec.nodeName%3Dn1", vec!["a", "c"]),
        ("fieldSelector=spec.nodeName!%3Dn1,metadata.namespace%3Ddefault", vec!["b"]),
        ("fieldSelector=status.phase%3DPending&labelSelector=app%3Ddb", vec!["c"]),
    ];
    for (query, expected) in rows {
        assert_eq!(names(&acme.get(&format!("{pods}?{query}")).expect(200).json()), expected, "{query}");
    }
    let refused = acme.get(&format!("{pods}?fieldSelector=spec.image%3Dx")).expect(400).json();
    assert!(
        refused["message"].as_str().unwrap().contains("field label not supported: spec.image"),
        "{refused}"
    );
    let all = acme.get("/api/v1/pods?fieldSelector=metadata.namespace%3Ddefault").expect(200).json();
    assert_eq!(names(&all), ["a", "b", "c"]);
    assert_eq!(all["kind"], "PodList");
    assert_eq!(all["items"][0].get("kind"), None, "items of built-in lists carry no kind");
}

/// Tables and bare metadata, for those who ask.
#[test]
fn projections() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    fill(&acme, 2);
    let form =
        |accept: &str, path: &str| acme.must("GET", path, &[("Accept", accept)], b"").expect(200).json();
    let table = form("application/json;as=Table;g=meta.k8s.io;v=v1", MAPS);
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    let rows = table["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["cells"][0] == "m-0001" && row["cells"][1] == 0), "{rows:?}");
    let bare = form("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", MAPS);
    assert_eq!(bare["kind"], "PartialObjectMetadataList");
    assert_eq!(bare["items"][0].get("data"), None);
    let one = form("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", &format!("{MAPS}/m-0000"));
    assert_eq!(one["kind"], "PartialObjectMetadata");
}
