//! Long lists in every form a client can ask for: written as they are taken, and complete.

use std::io::Read as _;

use polder_test_support::{Client, Reply, Value, json};

use crate::process::{MAPS, Polder};

const COUNT: usize = 700;
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PROTOBUF_METADATA: &str =
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Fills a plane with objects of so many bytes.
fn fill(client: &Client, count: usize, bytes: usize) {
    let mut connection = client.connect().unwrap();
    for index in 0..count {
        let name = format!("m-{index:04}");
        // No two alike, and nothing that compression makes small.
        let mut state = index as u64 + 1;
        let text: String = (0..bytes)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                char::from(b'a' + u8::try_from(state % 26).unwrap())
            })
            .collect();
        let object = json!({"metadata": {"name": name, "annotations": {"a": text}}, "data": {"line": "a\nb: \"c\"\n"}});
        let body = object.to_string();
        let head = client.head("POST", MAPS, &[("Content-Type", "application/json")], body.as_bytes());
        connection.send(&head, body.as_bytes()).unwrap().expect(201);
    }
}

fn list(client: &Client, accept: &str, query: &str, gzip: bool) -> Reply {
    let encoding = if gzip { "gzip" } else { "identity" };
    let headers = [("Accept", accept), ("Accept-Encoding", encoding)];
    client.must("GET", &format!("{MAPS}{query}"), &headers, b"").expect(200)
}

fn unzipped(reply: &Reply) -> Vec<u8> {
    assert_eq!(reply.header("content-encoding"), Some("gzip"));
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut plain).unwrap();
    plain
}

/// The names of a list or table.
fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().or(list["rows"].as_array()).unwrap();
    let name = |item: &'_ Value| item["metadata"]["name"].as_str().map(str::to_string);
    assert!(items.iter().all(|item| name(item).or(name(&item["object"])).is_some()));
    items
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str().or(item["object"]["metadata"]["name"].as_str()))
        .collect()
}

/// Counts the items of a list message; its lengths must fit to the byte.
fn messages(bytes: &[u8]) -> usize {
    fn field<'a>(bytes: &mut &'a [u8]) -> (u8, &'a [u8]) {
        let tag = bytes[0];
        let (mut length, mut shift, mut at) = (0usize, 0, 1);
        loop {
            length |= usize::from(bytes[at] & 127) << shift;
            (shift, at) = (shift + 7, at + 1);
            if bytes[at - 1] < 128 {
                break;
            }
        }
        let payload = &bytes[at..at + length];
        *bytes = &bytes[at + length..];
        (tag >> 3, payload)
    }
    let mut rest = bytes.strip_prefix(b"k8s\0").unwrap();
    assert_eq!(field(&mut rest).0, 1);
    let (number, mut list) = field(&mut rest);
    assert_eq!((number, rest), (2, &b"\x1a\0\x22\0"[..]));
    assert_eq!(field(&mut list).0, 1, "metadata");
    let mut count = 0;
    while !list.is_empty() {
        assert_eq!(field(&mut list).0, 2);
        count += 1;
    }
    count
}

/// A table without the last cell of its rows, which tells how old they are.
fn ageless(table: &[u8]) -> Value {
    let mut table: Value = serde_json::from_slice(table).unwrap();
    for row in table["rows"].as_array_mut().unwrap() {
        row["cells"].as_array_mut().unwrap().pop();
    }
    table
}

#[test]
fn long_lists() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    fill(&acme, COUNT, 600);
    let expected: Vec<String> = (0..COUNT).map(|index| format!("m-{index:04}")).collect();
    let own = |list: &Value| -> Vec<String> {
        names(list).into_iter().filter(|name| name.starts_with("m-")).map(str::to_string).collect()
    };
    let plain = list(&acme, "application/json", "", false);
    assert_eq!(plain.header("transfer-encoding"), Some("chunked"), "a long list is not made at once");
    let plain_list = plain.json();
    assert_eq!(own(&plain_list), expected);
    for accept in ["application/json", "application/yaml", TABLE, METADATA, PROTOBUF, PROTOBUF_METADATA] {
        for query in ["", "?limit=650", "?labelSelector=!none", "?labelSelector=!none&limit=650"] {
            let reply = list(&acme, accept, query, false);
            // Lists tell a version, which may change between two answers: one of a few pairs is equal.
            let same = (0..4).any(|_| {
                let plain = list(&acme, accept, query, false);
                let zipped = unzipped(&list(&acme, accept, query, true));
                if accept == TABLE { ageless(&zipped) == ageless(&plain.body) } else { zipped == plain.body }
            });
            assert!(same, "{accept} {query}: zipped and plain differ");
            let count = if query.contains("limit") { 650 } else { names(&plain_list).len() };
            if accept.starts_with(PROTOBUF) {
                assert_eq!(messages(&reply.body), count, "{accept} {query}");
                continue;
            }
            let found: Value = if accept.ends_with("yaml") {
                serde_saphyr::from_str(&reply.text()).unwrap()
            } else {
                reply.json()
            };
            assert_eq!(names(&found).len(), count, "{accept} {query}");
            let total = found["metadata"]["remainingItemCount"].as_u64().map(|rest| rest + 650);
            let counted = query == "?limit=650";
            assert_eq!(total, counted.then_some(names(&plain_list).len() as u64), "{accept} {query}");
            if accept.starts_with("application/json") && !accept.contains("as=") {
                let pretty = list(
                    &acme,
                    accept,
                    &format!("{query}{}pretty=true", if query.is_empty() { "?" } else { "&" }),
                    false,
                );
                // The version of a list, and so its token, may change between two answers.
                let items = |list: &Value| list["items"].clone();
                assert_eq!(items(&pretty.json()), items(&found), "{query}");
                let (text, start) =
                    (pretty.text(), "{\n  \"kind\": \"ConfigMapList\",\n  \"apiVersion\": \"v1\",\n");
                assert!(text.starts_with(start), "{query}: {}", &text[..200]);
                assert!(
                    text.contains("\n  \"items\": [\n    {\n      \"metadata\": {\n"),
                    "{query}: {}",
                    &text[..400]
                );
                assert!(pretty.text().ends_with("\n}\n"), "{query}");
            } else if accept.ends_with("yaml") && query.is_empty() {
                assert_eq!(found["items"], plain_list["items"]);
            }
        }
    }
    // Short ones have their length, whatever their form.
    for accept in ["application/json", "application/yaml", TABLE, METADATA, PROTOBUF] {
        let short = list(&acme, accept, "?limit=2", true);
        assert!(
            short.header("content-length").is_some() && short.header("content-encoding").is_none(),
            "{accept}"
        );
    }
    let empty = list(&acme, "application/json", "?labelSelector=none&pretty=true", false);
    assert!(empty.text().ends_with("  \"items\": []\n}\n"), "{}", empty.text());
    let empty = list(&acme, TABLE, "?labelSelector=none", false).json();
    assert_eq!(
        (empty["rows"].as_array().unwrap().len(), empty["columnDefinitions"].as_array().unwrap().len()),
        (0, 3)
    );
    assert!(list(&acme, "application/yaml", "?labelSelector=none", false).text().contains("\nitems: []\n"));
}

/// A list that nobody takes is still in flight, in every form; one that is hung up on is not.
#[test]
fn untaken_lists_are_in_flight() {
    let polder = Polder::start();
    // More than the buffers between two processes hold.
    fill(&polder.plane_with("acme", json!({"requestsInFlight": 2})), 100, 200_000);
    let acme = polder.admin.in_plane("acme");
    for (accept, query) in [
        ("application/json", ""),
        ("application/json", "?pretty=true"),
        ("application/yaml", ""),
        (TABLE, "?includeObject=Object"),
        (METADATA, ""),
        (PROTOBUF, ""),
    ] {
        let open: Vec<_> = (0..2)
            .map(|_| {
                let mut connection = acme.connect().unwrap();
                let head = acme.head("GET", &format!("{MAPS}{query}"), &[("Accept", accept)], b"");
                assert_eq!(connection.start(&head, b"").unwrap().code, 200);
                connection
            })
            .collect();
        let refused = acme.get(&format!("{MAPS}/m-0000")).expect(429);
        assert!(
            refused.text().contains("limit of 2 requests in flight"),
            "{accept} {query}: {}",
            refused.text()
        );
        drop(open);
        let started = std::time::Instant::now();
        // Both: only the request that asks is in flight.
        let alone = "\napiserver_current_inflight_requests 1\n";
        while !polder.admin.get("/metrics").expect(200).text().contains(alone) {
            assert!(
                started.elapsed().as_secs() < 20,
                "{accept} {query}: what was hung up on is still counted"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Rows of finished pods say so: clients show them apart.
#[test]
fn rows_say_what_is_finished() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    acme.post(pods, &pod).expect(201);
    let conditions = || {
        let table = acme.must("GET", pods, &[("Accept", TABLE)], b"").expect(200).json();
        table["rows"][0]["conditions"].clone()
    };
    assert_eq!(conditions(), Value::Null);
    acme.patch(&format!("{pods}/p/status"), "merge", &json!({"status": {"phase": "Failed"}})).expect(200);
    let failed =
        json!([{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]);
    assert_eq!(conditions(), failed);
}

/// An event is one object in two groups, with a message in each: whoever reads it in one does not get that of the other, whichever
/// was read before.
#[test]
fn events_have_a_message_in_each_group() {
    let polder = Polder::start();
    let acme = polder.plane("acme").with_header("Accept", PROTOBUF);
    for (index, order) in [["v1", "events.k8s.io/v1"], ["events.k8s.io/v1", "v1"]].iter().enumerate() {
        let name = format!("e{index}");
        let event = json!({
            "metadata": {"name": name}, "type": "Normal", "reason": "r", "message": "what is to be noted",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
        });
        acme.post("/api/v1/namespaces/default/events", &event).expect(201);
        for version in [order[0], order[1], order[0]] {
            let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
            let body = acme.get(&format!("{root}/namespaces/default/events/{name}")).expect(200).body;
            // The text is number 4 of one message, and number 10 of the other.
            let number = if version == "v1" { 4 } else { 10 };
            let text = [&[number << 3 | 2, 19][..], b"what is to be noted"].concat();
            assert!(body.windows(text.len()).any(|window| window == text), "{order:?} {version}");
        }
    }
}
