//! Starting, stopping, and refusing to start.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use polder_test_support::json;

use crate::process::{MAPS, PLANES, Polder, refused, serve};

/// The admin kubeconfig is for its owner's eyes only.
#[test]
fn kubeconfig_is_private() {
    let polder = Polder::start();
    let mode = fs::metadata(polder.data().join("admin.kubeconfig")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Probes and version answer anybody, also check by check; everything else wants to know who asks.
#[test]
fn health() {
    let polder = Polder::start();
    let anonymous = polder.admin.anonymous().unwrap();
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(anonymous.get(path).expect(200).text(), "ok");
        let verbose = anonymous.get(&format!("{path}?verbose")).expect(200).text();
        // Under the names upstream has for them too: its own tests and other people's dashboards look for those.
        for name in ["ping", "etcd", "poststarthook/crd-informer-synced", "autoregister-completion"] {
            assert!(verbose.contains(&format!("[+]{name} ok\n")), "{verbose}");
        }
        assert_eq!(verbose.contains("[+]informer-sync ok\n"), path == "/readyz", "{verbose}");
        assert!(verbose.ends_with(&format!("{} check passed\n", &path[1..])), "{verbose}");
    }
    assert_eq!(polder.admin.get("/livez/ping").expect(200).text(), "ok");
    assert_eq!(polder.admin.get("/livez/poststarthook/crd-informer-synced").expect(200).text(), "ok");
    polder.admin.get("/livez/nothing").expect(404);
    let version = anonymous.get("/version").expect(200).json();
    assert_eq!((version["major"].as_str(), version["minor"].as_str()), (Some("1"), Some("35")));
    let metrics = polder.admin.get("/metrics").expect(200).text();
    assert!(metrics.contains("apiserver_request_total"), "{metrics}");
    anonymous.get("/metrics").expect(403);
    let indicators = polder.admin.get("/metrics/slis").expect(200).text();
    assert!(indicators.contains("kubernetes_healthcheck{name=\"etcd\",type=\"readyz\"} 1\n"), "{indicators}");
    // A tenant sees numbers of its own plane.
    let acme = polder.plane("acme");
    let objects = acme.get("/metrics").expect(200).text();
    assert!(objects.contains("polder_plane_objects ") && !objects.contains("polder_planes"), "{objects}");
    acme.get("/metrics/slis").expect(200);
}

/// SIGTERM: watches end in good order, the process exits with 0, and the next start has everything.
#[test]
fn stop_and_start_again() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(MAPS, &json!({"metadata": {"name": "kept"}, "data": {"a": "b"}})).expect(201);
    let uid = acme.get(&format!("{MAPS}/kept")).json()["metadata"]["uid"].clone();
    let mut watch = acme.watch(&format!("{MAPS}?watch=true"));
    assert_eq!(watch.next_name(), "ADDED kept");

    polder.terminate();
    assert!(matches!(watch.next_event(), Ok(None)), "the watch ends with its last chunk");
    let (status, directory) = polder.wait();
    assert_eq!(status.code(), Some(0));

    let polder = Polder::start_in(directory, "");
    let kept = polder.admin.in_plane("acme").get(&format!("{MAPS}/kept")).expect(200).json();
    assert_eq!(kept["metadata"]["uid"], uid);
    assert_eq!(kept["data"], json!({"a": "b"}));
    let planes = polder.admin.get(PLANES).expect(200).json();
    assert_eq!(planes["items"][0]["metadata"]["name"], "acme");
}

/// Certificates outlive a restart: a plane's kubeconfig of before works after.
#[test]
fn kubeconfigs_outlive_a_restart() {
    let polder = Polder::start();
    let before = polder.plane("acme");
    let (_, directory) = polder.stop();
    let polder = Polder::start_in(directory, "");
    let after = before.at(polder.admin.address);
    after.get("/api/v1/namespaces/default").expect(200);
}

/// Two servers never share a data directory.
#[test]
fn a_second_server_is_refused() {
    let polder = Polder::start();
    let said = refused(serve(&polder.data(), "127.0.0.1:0"));
    assert!(said.contains(polder.data().to_str().unwrap()), "{said}");
    assert!(said.contains("another") || said.contains("in use") || said.contains("lock"), "{said}");
    polder.admin.get("/readyz").expect(200);
}

/// A port in use is named.
#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let directory = tempfile::tempdir().unwrap();
    let said = refused(serve(&directory.path().join("data"), &address));
    assert!(said.starts_with("error: ") && said.contains(&address), "{said}");
}

/// A directory that cannot be made or written is named. (A file in its place, because tests may run as root.)
#[test]
fn an_unwritable_directory() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let data = file.join("data");
    let said = refused(serve(&data, "127.0.0.1:0"));
    assert!(said.contains(data.to_str().unwrap()), "{said}");
}

/// A damaged store is reported, and left as it is for somebody to repair.
#[test]
fn a_damaged_store() {
    let polder = Polder::start();
    polder.plane("acme");
    let (_, directory) = polder.stop();
    let store = directory.path().join("data/store");
    let mut files: Vec<_> = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort_by_key(|path| fs::metadata(path).unwrap().len());
    let largest = files.pop().unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    // Every page after the first gets a wound, so that whatever is read first is damaged.
    for page in 1..bytes.len() / 4096 {
        bytes[page * 4096 + 2000] ^= 0x55;
        bytes[page * 4096 + 3000] ^= 0x55;
    }
    fs::write(&largest, &bytes).unwrap();
    let said = refused(serve(&directory.path().join("data"), "127.0.0.1:0"));
    assert!(said.contains(directory.path().to_str().unwrap()), "{said}");
    assert!(said.contains("damaged") || said.contains("checksum"), "{said}");
    assert_eq!(fs::read(&largest).unwrap().len(), bytes.len());
}

/// What is wrong with a configuration file is said with its name.
#[test]
fn a_wrong_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    fs::write(&path, "apiVersion: v1\nkind: ServerConfiguration\n").unwrap();
    let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
    command.arg("--config").arg(&path);
    let said = refused(command);
    assert!(said.contains(path.to_str().unwrap()), "{said}");
}

/// Killed while clients write, again and again: whatever was answered is there.
#[test]
fn killed() {
    let mut polder = Polder::start();
    polder.plane("acme");
    let mut acknowledged: Vec<String> = Vec::new();
    for round in 0..3 {
        let acme = polder.admin.in_plane("acme");
        let writer = std::thread::spawn(move || {
            let mut made = Vec::new();
            for index in 0.. {
                let name = format!("m-{round}-{index:05}");
                let object = polder_test_support::json!({"metadata": {"name": name}}).to_string();
                let headers = [("Content-Type", "application/json")];
                match acme.send("POST", MAPS, &headers, object.as_bytes()) {
                    Ok(reply) if reply.code == 201 => made.push(name),
                    _ => return made,
                }
            }
            made
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        let directory = polder.kill();
        acknowledged.extend(writer.join().unwrap());
        polder = Polder::start_in(directory, "");
        let list = polder.admin.in_plane("acme").get(MAPS).expect(200).text();
        for name in &acknowledged {
            assert!(list.contains(&format!("\"{name}\"")), "{name} was acknowledged and is lost");
        }
    }
    assert!(acknowledged.len() > 3, "{} writes are no test", acknowledged.len());
}
