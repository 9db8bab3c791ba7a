//! Starting, stopping, and refusing to start.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polder_test_support::json;

use crate::process::{CONFIG_HEAD, MAPS, OWN, PLANES, Polder, refused, serve};

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
    let mut watch = acme.watch(&format!("{MAPS}?watch=true&{OWN}"));
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

/// Damage that is found while the server runs: what is whole is served, and whoever looks after the server hears of it.
#[test]
fn damage_found_later() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    // Text that does not compress takes pages of its own. Each begins with the number of the next.
    let noise: String =
        (0u64..40_000).map(|index| format!("{:x}", index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    let large = json!({"metadata": {"name": "large"}, "data": {"noise": noise}});
    acme.post(MAPS, &large).expect(201);
    // The last: controllers read again what was written last.
    acme.post(MAPS, &json!({"metadata": {"name": "whole"}})).expect(201);
    let (_, directory) = polder.stop();
    let file = directory.path().join("data/store/store.db");
    let mut bytes = fs::read(&file).unwrap();
    let chained: Vec<usize> = (0..bytes.len() / 8192)
        .filter(|page| bytes[page * 8192..][..4] == u32::try_from(page + 2).unwrap().to_be_bytes())
        .collect();
    // Free pages are chained too, but hardly one after the other.
    let runs = chained.chunk_by(|one, next| one + 1 == *next);
    let longest = runs.max_by_key(|run| run.len()).unwrap_or_default();
    assert!(longest.len() > 20, "{chained:?}");
    bytes[longest[longest.len() / 2] * 8192 + 4000] ^= 0x55;
    fs::write(&file, &bytes).unwrap();

    let polder = Polder::start_in(directory, "");
    let (acme, anybody) = (polder.admin.in_plane("acme"), polder.admin.anonymous().unwrap());
    // Controllers may have found it before.
    acme.get(&format!("{MAPS}/large")).expect(500);
    let report = anybody.get("/readyz?verbose").expect(500).text();
    assert!(report.contains("[-]stored-data failed") && report.contains("[+]store ok"), "{report}");
    anybody.get("/readyz").expect(500);
    anybody.get("/readyz?exclude=stored-data").expect(200);
    for path in ["/livez", "/healthz"] {
        anybody.get(path).expect(200);
    }
    acme.get(&format!("{MAPS}/whole")).expect(200);
    acme.post(MAPS, &json!({"metadata": {"name": "later"}})).expect(201);
}

/// A disk that is full from the start: what cannot be written is named. Needs the right to mount a small one.
#[test]
fn a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path(), "1m") else {
        // Not `eprintln!`: the line must be seen although the test passes.
        writeln!(std::io::stderr(), "left out: no file system can be mounted here").ok();
        return;
    };
    let data = disk.0.join("data");
    let ballast = fs::write(disk.0.join("ballast"), vec![1; 2 << 20]);
    assert!(ballast.is_err(), "it is not full");
    let said = refused(serve(&data, "127.0.0.1:0"));
    assert!(said.starts_with("error: ") && said.contains(data.to_str().unwrap()), "{said}");
    assert!(said.to_lowercase().contains("no space "), "{said}");
    // With room for a part of it, too; and with room for all of it the same directory works.
    let room = fs::OpenOptions::new().write(true).open(disk.0.join("ballast")).unwrap();
    room.set_len((1 << 20) - (100 << 10)).unwrap();
    let said = refused(serve(&data, "127.0.0.1:0"));
    assert!(said.contains(data.to_str().unwrap()), "{said}");
    assert!(said.to_lowercase().contains("no space "), "{said}");
    let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&disk.0).status();
    assert!(grown.unwrap().success());
    let mut child = serve(&data, "127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("polder: ready at "), "{line}");
}

/// A mounted file system; unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, size: &str) -> Option<SmallDisk> {
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// The ready line says where clients reach the server, and where it listens if that is something else.
#[test]
fn the_ready_line() {
    for (configuration, is_elsewhere) in [("", false), ("externalUrl: https://planes.example.org/\n", true)] {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config.yaml");
        fs::write(&config, format!("{CONFIG_HEAD}{configuration}")).unwrap();
        let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
        let mut child = command.arg("--config").arg(&config).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let place = match is_elsewhere {
            true => line.strip_prefix("polder: ready at https://planes.example.org (listening on "),
            false => line.strip_prefix("polder: ready at https://"),
        };
        let address = place.unwrap_or_else(|| panic!("{line}")).split([' ', ')']).next().unwrap();
        TcpStream::connect(address).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(line.contains(", 0 planes, kubeconfig "), "{line}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Whoever is refused fills no log, unless somebody wants to see it.
#[test]
fn refused_clients_are_not_logged() {
    let polder = Polder::start();
    let nobody = polder.admin.anonymous().unwrap();
    nobody.get(MAPS).expect(403);
    polder.admin.with_token("wrong").unwrap().get(MAPS).expect(401);
    polder.admin.in_plane("nowhere").get(MAPS).expect(404);
    polder.admin.post(MAPS, &json!({"metadata": {"name": "No Name"}})).expect(422);
    for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\x00\x05hello", b""] {
        let mut stranger = TcpStream::connect(polder.admin.address).unwrap();
        stranger.write_all(said).unwrap();
    }
    // Within TLS: no request, half a request, a head that is too long, a goodbye in the middle of an answer.
    for said in [
        b"\0\0\0\r\n\r\n".to_vec(),
        b"GET / HT".to_vec(),
        vec![b'x'; 100_000],
        b"GET /openapi/v2 HTTP/1.1\r\n\r\n".to_vec(),
    ] {
        let mut connection = polder.admin.connect().unwrap();
        connection.write(&said).ok();
    }
    polder.admin.get("/readyz").expect(200);
    let log = polder.directory().join("log");
    let (status, directory) = polder.stop();
    assert!(status.success());
    let logged = fs::read_to_string(&log).unwrap();
    let lines: Vec<&str> = logged.lines().filter(|line| !line.contains("serve: stop")).collect();
    assert_eq!(lines, Vec::<&str>::new());
    drop(directory);
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
    let rows = [
        ("admission: {enable: [Nonsense]}", r#"no admission plugin "Nonsense": choose among LimitRanger, "#),
        (
            "admission: {disable: [NamespaceLifecycle]}",
            r#"admission plugin "NamespaceLifecycle" cannot be turned off"#,
        ),
        (
            "authentication: {serviceAccountMaxTokenExpirationSeconds: 60}",
            "serviceAccountMaxTokenExpirationSeconds is 60, and must be between 1 hour (3600) and 2^32 seconds",
        ),
    ];
    for (line, why) in rows {
        fs::write(&path, format!("{CONFIG_HEAD}{line}\n")).unwrap();
        let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
        command.arg("--config").arg(&path);
        let said = refused(command);
        assert!(said.contains(why) && said.contains(path.to_str().unwrap()), "{said}");
    }
}

/// A plugin that is usually off: whoever makes an owner wait must be allowed to change that one's finalizers.
#[test]
fn admission_plugins_are_chosen() {
    let polder = Polder::start_with("admission: {enable: [OwnerReferencesPermissionEnforcement]}");
    let acme = polder.plane("acme");
    let group = "rbac.authorization.k8s.io";
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]);
    acme.post(
        &format!("/apis/{group}/v1/clusterroles"),
        &json!({"metadata": {"name": "maps"}, "rules": rules}),
    )
    .expect(201);
    let binding = json!({
        "metadata": {"name": "maps"}, "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "maps"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "eve"}],
    });
    acme.post(&format!("/apis/{group}/v1/clusterrolebindings"), &binding).expect(201);
    let owned = |name: &str, blocks: bool| {
        let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u", "blockOwnerDeletion": blocks});
        json!({"metadata": {"name": name, "ownerReferences": [owner]}})
    };
    let eve = acme.clone().with_header("Impersonate-User", "eve");
    eve.post(MAPS, &owned("a", false)).expect(201);
    let refused = eve.post(MAPS, &owned("b", true)).expect(403).text();
    assert!(refused.contains("cannot set blockOwnerDeletion"), "{refused}");
    acme.post(MAPS, &owned("b", true)).expect(201);
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
