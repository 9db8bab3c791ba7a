//! What a plane may use: over a limit, the answer names the limit and its value.

use polder_test_support::{Client, Value, json};

use crate::process::{MAPS, PLANES, Polder};

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[track_caller]
fn names(text: &str, limit: &str) {
    assert!(text.contains(limit), "{text}");
}

/// Objects are counted exactly, however many clients create at once.
#[test]
fn objects_exactly() {
    let polder = Polder::start();
    let plain = polder.plane("plain");
    let own =
        polder.admin.get(&format!("{PLANES}/plain")).json()["status"]["objectCount"].as_u64().unwrap_or(0);
    drop(plain);
    let acme = polder.plane_with("acme", json!({"objects": (own + 25)}));
    let codes: Vec<(u16, String)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|thread| {
                let acme = acme.clone();
                scope.spawn(move || {
                    (0..10)
                        .map(|index| {
                            let reply = acme.post(MAPS, &map(&format!("m-{thread}-{index}")));
                            (reply.code, reply.text())
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let made = codes.iter().filter(|(code, _)| *code == 201).count();
    assert_eq!(made, 25);
    for (_, text) in codes.iter().filter(|(code, _)| *code != 201) {
        assert!(text.contains("\"code\":403"), "{text}");
        names(text, &format!("{} objects", own + 25));
    }
    // A deletion makes room for exactly one.
    let list = acme.get(MAPS).json();
    let one = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .find_map(|item| item["metadata"]["name"].as_str().filter(|name| name.starts_with("m-")));
    acme.delete(&format!("{MAPS}/{}", one.unwrap())).expect(200);
    acme.post(MAPS, &map("n-1")).expect(201);
    acme.post(MAPS, &map("n-2")).expect(403);
    // A higher limit works at once; other planes never noticed.
    polder
        .admin
        .patch(&format!("{PLANES}/acme"), "merge", &json!({"spec": {"limits": {"objects": (own + 26)}}}))
        .expect(200);
    acme.post(MAPS, &map("n-2")).expect(201);
    acme.post(MAPS, &map("n-3")).expect(403);
    polder.admin.in_plane("plain").post(MAPS, &map("a")).expect(201);
}

/// One object may be so large, all together so large.
#[test]
fn bytes() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"objectBytes": 10_000}));
    let large =
        |name: &str, bytes: usize| json!({"metadata": {"name": name}, "data": {"a": ("x".repeat(bytes))}});
    acme.post(MAPS, &large("fits", 8_000)).expect(201);
    let refused = acme.post(MAPS, &large("not", 12_000));
    assert!(matches!(refused.code, 403 | 413), "{}", refused.text());
    names(&refused.text(), "10000");
    let grown = acme.patch(&format!("{MAPS}/fits"), "merge", &json!({"data": {"b": ("y".repeat(8_000))}}));
    assert!(matches!(grown.code, 403 | 413), "{}", grown.text());
    let globex = polder.plane_with("globex", json!({"storedBytes": 100_000}));
    let refused = (0..40).map(|index| globex.post(MAPS, &large(&format!("m-{index}"), 10_000)));
    let refused = refused.into_iter().find(|reply| reply.code != 201).expect("no limit of stored bytes");
    assert_eq!(refused.code, 403);
    names(&refused.text(), "100000");
}

/// So many watches, so many requests at a time, so many a second: 429, and when to come again.
#[test]
fn at_a_time() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"watches": 3}));
    let path = format!("{MAPS}?watch=true");
    let open: Vec<_> = (0..3).map(|_| acme.watch(&path)).collect();
    let refused = acme.get(&path).expect(429);
    assert_eq!(
        (refused.json()["reason"].as_str(), refused.header("retry-after")),
        (Some("TooManyRequests"), Some("1"))
    );
    names(&refused.text(), "limit of 3 open watches");
    polder.plane("globex").watch(&path);
    acme.get(MAPS).expect(200);
    drop(open);
    let started = std::time::Instant::now();
    while acme.try_watch(&path).is_err() {
        assert!(started.elapsed().as_secs() < 10, "closed watches are still counted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }

    let slow = polder.plane_with("slow", json!({"requestsPerSecond": 5}));
    let codes: Vec<u16> = (0..30).map(|_| slow.get(MAPS).code).collect();
    let taken = codes.iter().filter(|code| **code == 200).count();
    assert!((5..30).contains(&taken), "{codes:?}");
    let refused = (0..30).map(|_| slow.get(MAPS)).find(|reply| reply.code == 429).unwrap();
    names(&refused.text(), "limit of 5 requests per second");
}

/// Requests that have not sent their body yet are in flight.
#[test]
fn in_flight() {
    let polder = Polder::start();
    let acme = polder.plane_with("acme", json!({"requestsInFlight": 2}));
    let half = |client: &Client| {
        let mut connection = client.connect().unwrap();
        let head = client.head("POST", MAPS, &[("Content-Type", "application/json")], &[b' '; 100]);
        // Half a body: the server waits for the rest, and so must not be asked for an answer.
        connection.write(format!("{head}{{").as_bytes()).unwrap();
        connection
    };
    let open = [half(&acme), half(&acme)];
    std::thread::sleep(std::time::Duration::from_millis(300));
    let refused = acme.get(MAPS).expect(429);
    names(&refused.text(), "limit of 2 requests in flight");
    drop(open);
    let started = std::time::Instant::now();
    while acme.get(MAPS).code != 200 {
        assert!(started.elapsed().as_secs() < 10, "requests that ended are still counted");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Planes that name no limits have the server's.
#[test]
fn defaults() {
    let polder = Polder::start_with("defaultLimits:\n  watches: 1\n  objectBytes: 5000\n");
    let acme = polder.plane("acme");
    let path = format!("{MAPS}?watch=true");
    let _open = acme.watch(&path);
    names(&acme.get(&path).expect(429).text(), "limit of 1 open watches");
    let large = json!({"metadata": {"name": "a"}, "data": {"a": ("x".repeat(6_000))}});
    names(&acme.post(MAPS, &large).text(), "5000");
}
