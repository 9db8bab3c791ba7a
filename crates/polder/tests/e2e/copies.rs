//! Backups, and stores that go from one kind to another: nothing is lost, nobody needs another credential, and resource versions
//! only grow.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use polder_test_support::{Client, Value, etcd, json};

use crate::process::{MAPS, PLANES, Polder, polder};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const PLAIN: &str = "c2VocmdlaGVpbQ==";

fn store(arguments: &[&str], data: &Path) -> Command {
    let mut command = polder();
    command.arg("store").args(arguments).arg("--data-dir").arg(data);
    command
}

/// What a command says that must succeed.
#[track_caller]
fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}

/// Two planes with something in them, one a fork that differs; the first one's own kubeconfig.
fn furnish(polder: &Polder) -> String {
    let acme = polder.plane("acme");
    acme.post(SECRETS, &json!({"metadata": {"name": "s"}, "data": {"password": PLAIN}})).expect(201);
    acme.post(MAPS, &json!({"metadata": {"name": "kept"}, "data": {"of": "acme"}})).expect(201);
    acme.post(MAPS, &json!({"metadata": {"name": "deleted"}})).expect(201);
    let fork = json!({"metadata": {"name": "preview"}, "spec": {"forkFrom": "acme"}});
    polder.admin.post(PLANES, &fork).expect(201);
    acme.delete(&format!("{MAPS}/deleted")).expect(200);
    fs::read_to_string(polder.plane_kubeconfig("acme")).unwrap()
}

/// All of it is there, for the credential of before. Returns the newest resource version.
#[track_caller]
fn check_furniture(polder: &Polder, kubeconfig: &str) -> u64 {
    let acme = Client::from_kubeconfig(kubeconfig).unwrap().at(polder.admin.address);
    assert_eq!(acme.get(&format!("{SECRETS}/s")).expect(200).json()["data"]["password"], PLAIN);
    assert_eq!(acme.get(&format!("{MAPS}/kept")).expect(200).json()["data"]["of"], "acme");
    acme.get(&format!("{MAPS}/deleted")).expect(404);
    let preview = polder.admin.in_plane("preview");
    preview.get(&format!("{MAPS}/deleted")).expect(200);
    assert_eq!(preview.get(&format!("{SECRETS}/s")).expect(200).json()["data"]["password"], PLAIN);
    version(&acme.get(MAPS).expect(200).json())
}

fn give_key(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("keys")).unwrap();
    fs::copy(from.join("keys/encryption.key"), to.join("keys/encryption.key")).unwrap();
}

/// A server is backed up while it runs; what it writes afterwards is not in the backup; and what comes of the backup is a server that
/// knows everybody.
#[test]
fn a_backup_is_a_server_again() {
    let polder = Polder::start();
    if polder.data().join("replica").exists() {
        // Not with `cargo xtask test --store etcd`: what is restored here is a store of a server alone.
        return;
    }
    let kubeconfig = furnish(&polder);
    let backup = polder.directory().join("backup");
    let file = backup.to_str().unwrap();
    let told = said(store(&["backup", file], &polder.data()));
    assert!(told.contains("3 planes"), "{told}");
    assert!(!fs::read(&backup).unwrap().windows(PLAIN.len()).any(|window| window == PLAIN.as_bytes()));
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&backup).unwrap().permissions()) & 0o777,
        0o600
    );
    let acme = polder.admin.in_plane("acme");
    let later = acme.post(MAPS, &json!({"metadata": {"name": "later"}})).expect(201).json();

    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    assert!(refused(store(&["restore", file], &data)).contains("encryption key is not here"));
    assert!(!data.exists(), "nothing is left of what could not be");
    assert!(refused(store(&["restore", file], &polder.data())).contains("is there already"));
    give_key(&polder.data(), &data);
    let told = said(store(&["restore", file], &data));
    assert!(told.contains("3 planes"), "{told}");
    assert!(said(store(&["verify"], &data)).contains("0 in plain"));
    drop(polder);

    let again = Polder::start_in(directory, "");
    let newest = check_furniture(&again, &kubeconfig);
    assert!(newest > version(&later), "clients have seen versions that the backup has not");
    let acme = again.admin.in_plane("acme");
    acme.get(&format!("{MAPS}/later")).expect(404);
    acme.post(MAPS, &json!({"metadata": {"name": "later"}})).expect(201);
    // Whoever watched what is not there any more begins anew.
    let from = version(&later);
    let watch = acme.get(&format!("{MAPS}?watch=true&resourceVersion={from}&timeoutSeconds=1"));
    assert!(watch.code == 410 || watch.text().contains("\"code\":410"), "{} {}", watch.code, watch.text());
}

#[test]
fn damaged_backups_are_not_restored() {
    let polder = Polder::start();
    if polder.data().join("replica").exists() {
        return;
    }
    furnish(&polder);
    let backup = polder.directory().join("backup");
    said(store(&["backup", backup.to_str().unwrap()], &polder.data()));
    let whole = fs::read(&backup).unwrap();
    let data = polder.directory().join("other");
    give_key(&polder.data(), &data);
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x10;
    for (damage, contents) in
        [("half", &whole[..middle]), ("flipped", &flipped), ("foreign", b"apiVersion: v1\n")]
    {
        fs::write(&backup, contents).unwrap();
        let told = refused(store(&["restore", backup.to_str().unwrap()], &data));
        assert!(told.contains("damaged") || told.contains("no backup"), "{damage}: {told}");
        assert!(!data.join("store").exists(), "{damage}: half a store was left");
    }
}

/// Starts `polder store migrate`.
fn migrate(arguments: &[&str], data: &Path) -> Child {
    let mut command = store(&["migrate"], data);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[track_caller]
fn migrated(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A server goes from its own disk to etcd and back while somebody writes: all that was acknowledged is there.
#[test]
fn stores_go_from_one_kind_to_another() {
    let polder = Polder::start();
    let Some(etcd) = etcd::shared().filter(|_| !polder.data().join("replica").exists()) else { return };
    let kubeconfig = furnish(&polder);
    let url = etcd.replace("http://", "etcd://");
    let child = migrate(&["--from", "embedded", "--to", &url, "--etcd-prefix", "/moved"], &polder.data());
    // While it is copied: planes come and go, and objects are written.
    let acme = polder.admin.in_plane("acme");
    for round in 0..30 {
        acme.post(MAPS, &json!({"metadata": {"name": format!("while-{round}")}})).expect(201);
        if round % 10 == 5 {
            let fork = json!({"metadata": {"name": format!("fork-{round}")}, "spec": {"forkFrom": "acme"}});
            polder.admin.post(PLANES, &fork).expect(201);
        }
    }
    polder.admin.delete(&format!("{PLANES}/fork-5")).expect(200);
    let newest = version(&acme.get(MAPS).expect(200).json());
    let (_, directory) = polder.stop();
    let told = migrated(child);
    assert!(told.contains("copied and checked"), "{told}");

    let check = |polder: &Polder| {
        assert!(check_furniture(polder, &kubeconfig) >= newest);
        let acme = polder.admin.in_plane("acme");
        (0..30).for_each(|round| drop(acme.get(&format!("{MAPS}/while-{round}")).expect(200)));
        polder.admin.get(&format!("{PLANES}/fork-5")).expect(404);
        polder.admin.in_plane("fork-15").get(&format!("{MAPS}/while-15")).expect(200);
    };
    let key = directory.path().join("data/keys/encryption.key");
    let own_key = tempfile::tempdir().unwrap();
    let kept = own_key.path().join("encryption.key");
    fs::copy(&key, &kept).unwrap();
    let shared = Polder::start_replica(etcd, "/moved", &kept, directory);
    check(&shared);
    // A second one finds the same, and the same authorities.
    let second = Polder::start_replica(etcd, "/moved", &kept, tempfile::tempdir().unwrap());
    check(&second);
    second.stop();

    let back = tempfile::tempdir().unwrap();
    let data = back.path().join("data");
    fs::create_dir_all(data.join("keys")).unwrap();
    fs::copy(&kept, data.join("keys/encryption.key")).unwrap();
    // Into what is in use nothing is copied.
    let told = refused({
        let mut command = store(&["migrate", "--from", &url, "--to", &url, "--etcd-prefix", "/moved"], &data);
        command.stdin(Stdio::null());
        command
    });
    assert!(told.contains("there is a store already"), "{told}");
    let mut child =
        migrate(&["--from", &url, "--to", "embedded", "--etcd-prefix", "/moved", "--follow"], &data);
    shared.admin.in_plane("acme").post(MAPS, &json!({"metadata": {"name": "last"}})).expect(201);
    shared.stop();
    drop(child.stdin.take());
    migrated(child);
    let alone = Polder::start_in(back, "");
    check(&alone);
    alone.admin.in_plane("acme").get(&format!("{MAPS}/last")).expect(200);
}
