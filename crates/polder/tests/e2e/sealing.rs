//! Secrets at rest: what is in the files, and what is not.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_store_embedded::AtRest;
use polder_test_support::{Client, json};

use crate::process::{PLANES, Polder, polder, refused, serve};
use crate::tools;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn create_secret(plane: &Client, name: &str, value: &str) {
    let secret = json!({"metadata": {"name": name}, "data": {"password": STANDARD.encode(value)}});
    plane.post(SECRETS, &secret).expect(201);
}

#[track_caller]
fn check_secret(plane: &Client, name: &str, value: &str) {
    let found = plane.get(&format!("{SECRETS}/{name}")).expect(200).json();
    assert_eq!(found["data"]["password"], STANDARD.encode(value));
}

/// Runs `polder store`; whether it went well, and what it said.
fn store(command: &str, directory: &Path) -> (bool, String) {
    let mut store = polder();
    store.args(["store", command, "--data-dir"]).arg(directory.join("data"));
    let output = store.arg("--config").arg(directory.join("config.yaml")).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), said)
}

/// Whether bytes stand somewhere in a directory.
fn stands_in(directory: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => stands_in(&path, bytes),
            false => fs::read(path).unwrap().windows(bytes.len()).any(|window| window == bytes),
        }
    })
}

/// The keys of spaces as they are kept, wrapped.
fn wrapped_keys(data: &Path) -> Vec<Vec<u8>> {
    let store = AtRest::peek(&data.join("store")).unwrap();
    store.reader().keys(None, 1_000).unwrap().into_iter().map(|key| key.wrapped.to_vec()).collect()
}

#[track_caller]
fn wait_for(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(30), "it does not happen");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Secrets are sealed without being asked; a deleted plane's key is gone from the files; keys rotate while the server runs.
#[test]
fn secrets_are_sealed_and_go_with_their_plane() {
    let polder = Polder::start();
    let (acme, blue) = (polder.plane("acme"), polder.plane("blue"));
    create_secret(&acme, "db", "correct-horse-battery-staple");
    create_secret(&blue, "db", "Tr0ub4dor&3-and-some-more");
    let (status, directory) = polder.stop();
    assert!(status.success());
    let data = directory.path().join("data");
    for value in ["correct-horse-battery-staple", "Tr0ub4dor&3-and-some-more"] {
        assert!(!stands_in(&data.join("store"), value.as_bytes()));
        assert!(!stands_in(&data.join("store"), STANDARD.encode(value).as_bytes()));
    }
    let (sound, said) = store("verify", directory.path());
    assert!(sound && said.contains("0 in plain") && said.contains("found 0"), "{said}");
    let keys = wrapped_keys(&data);
    assert_eq!(keys.len(), 2, "one for each plane that has a secret");

    let polder = Polder::start_in(directory, "");
    let acme = polder.admin.in_plane("acme");
    polder.admin.delete(&format!("{PLANES}/blue")).expect(200);
    // Without a stop: the log of SQLite is cut a moment after the commit.
    let is_gone = |key: &Vec<u8>| !stands_in(&data.join("store"), key);
    wait_for(|| keys.iter().filter(|key| is_gone(key)).count() == 1);
    assert_eq!(wrapped_keys(&data).len(), 1);
    check_secret(&acme, "db", "correct-horse-battery-staple");

    // Another key, while the server runs.
    let file = data.join("keys/encryption.key");
    let first = fs::read_to_string(&file).unwrap();
    let added = crate::process::polder().args(["store", "add-key"]).arg(&file).output().unwrap();
    assert!(added.status.success());
    let said = String::from_utf8(added.stdout).unwrap();
    let second = said.trim().rsplit(' ').next().unwrap();
    wait_for(|| {
        let (sound, said) = store("keys", polder.directory());
        sound && said.contains(second) && said.lines().count() == 2
    });
    create_secret(&acme, "later", "written-with-the-other-key");
    let directory = polder.kill();
    assert!(keys.iter().all(is_gone), "no data key stands there as the old key wrapped it");

    let both = fs::read_to_string(&file).unwrap();
    let kept = both.lines().find(|line| line.starts_with(second)).unwrap();
    fs::write(&file, format!("{kept}\n")).unwrap();
    let polder = Polder::start_in(directory, "");
    check_secret(&polder.admin.in_plane("acme"), "db", "correct-horse-battery-staple");
    check_secret(&polder.admin.in_plane("acme"), "later", "written-with-the-other-key");
    let (_, directory) = polder.stop();

    // The wrong key, and none.
    fs::write(&file, first).unwrap();
    let said = refused(serve(&data, "127.0.0.1:0"));
    assert!(said.contains(second) && said.contains("needs key"), "{said}");
    fs::remove_file(&file).unwrap();
    let said = refused(serve(&data, "127.0.0.1:0"));
    assert!(said.contains("cannot read the encryption keys in"), "{said}");
    assert!(!file.exists());
    fs::write(&file, both).unwrap();
    let polder = Polder::start_in(directory, "");
    check_secret(&polder.admin.in_plane("acme"), "later", "written-with-the-other-key");
}

/// A store from before: its secrets are sealed in the background, and with `polder store seal` nothing of them is left.
#[test]
fn secrets_from_before_are_sealed() {
    let polder = Polder::start_with("encryption: {resources: []}\n");
    let acme = polder.plane("acme");
    let value = |number: u32| format!("plain-text-from-before-{number:03}-");
    for number in 0..40 {
        // Some are stored as they are, some compressed, some over several pages.
        create_secret(
            &acme,
            &format!("s{number}"),
            &value(number).repeat(if number == 7 { 2_000 } else { 3 }),
        );
    }
    for number in 0..10 {
        acme.delete(&format!("{SECRETS}/s{number}")).expect(200);
    }
    let (_, directory) = polder.stop();
    fs::write(directory.path().join("config.yaml"), crate::process::CONFIG_HEAD).unwrap();
    let (sound, said) = store("verify", directory.path());
    assert!(!sound && said.contains("plain: secrets default/s20 in"), "{said}");
    assert!(said.contains("run `polder store seal`"), "{said}");
    let (sound, said) = store("seal", directory.path());
    assert!(sound, "{said}");
    let (sound, said) = store("verify", directory.path());
    assert!(sound && said.contains("found 0"), "{said}");

    let polder = Polder::start_in(directory, "");
    check_secret(&polder.admin.in_plane("acme"), "s20", &value(20).repeat(3));
    polder.admin.in_plane("acme").get(&format!("{SECRETS}/s3")).expect(404);
}

/// What is configured is what is sealed, and with whose key.
#[test]
fn other_resources_and_another_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("elsewhere.key");
    let settings = format!("encryption: {{resources: [configmaps], keyFile: {}}}\n", file.display());
    fs::write(directory.path().join("config.yaml"), format!("{}{settings}", crate::process::CONFIG_HEAD))
        .unwrap();
    let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
    command.arg("--config").arg(directory.path().join("config.yaml"));
    let said = refused(command);
    assert!(said.contains("polder store add-key"), "{said}");
    assert!(polder().args(["store", "add-key"]).arg(&file).status().unwrap().success());
    let polder = Polder::start_in(directory, &settings);
    let acme = polder.plane("acme");
    let map = json!({"metadata": {"name": "m"}, "data": {"password": "a-word-in-a-config-map"}});
    acme.post(crate::process::MAPS, &map).expect(201);
    let (_, directory) = polder.stop();
    let (sound, said) = store("verify", directory.path());
    assert!(sound && said.contains("found 0") && !said.contains(" 0 records sealed"), "{said}");
    assert!(!stands_in(&directory.path().join("data"), b"a-word-in-a-config-map"));
    assert!(!directory.path().join("data/keys").exists());
}

/// A KMS v2 plugin has the key: one that Kubernetes' own library serves. Its key is rotated, and the old one is not needed then.
#[test]
fn a_kms_plugin_has_the_key() {
    let Some(program) = tools::find("POLDER_TEST_KMS_PLUGIN", "KMS plugin") else { return };
    let own = tempfile::tempdir().unwrap();
    let (socket, keys) = (own.path().join("kms.sock"), own.path().join("keys"));
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("k1"), "the first key").unwrap();
    let settings =
        format!("encryption: {{kms: {{name: test, endpoint: \"unix://{}\"}}}}\n", socket.display());
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.yaml"), format!("{}{settings}", crate::process::CONFIG_HEAD))
        .unwrap();
    let start = |directory: &Path| {
        let mut command = serve(&directory.join("data"), "127.0.0.1:0");
        command.arg("--config").arg(directory.join("config.yaml"));
        command
    };
    let said = refused(start(directory.path()));
    assert!(said.contains("the KMS plugin \"test\"") && said.contains("cannot reach"), "{said}");
    let mut plugin = Plugin(Command::new(program).arg(&socket).arg(&keys).spawn().unwrap());
    wait_for(|| socket.exists());

    let polder = Polder::start_in(directory, &settings);
    create_secret(&polder.plane("acme"), "db", "correct-horse-battery-staple");
    let (_, directory) = polder.stop();
    assert!(!directory.path().join("data/keys").exists());
    let (sound, said) = store("verify", directory.path());
    assert!(sound && said.contains("found 0"), "{said}");

    fs::write(keys.join("k2"), "the second key").unwrap();
    let polder = Polder::start_in(directory, &settings);
    wait_for(|| {
        let (_, said) = store("keys", polder.directory());
        said.contains("k2") && said.lines().count() == 2
    });
    // The plugin is not needed to read and write.
    plugin.0.kill().unwrap();
    let acme = polder.admin.in_plane("acme");
    check_secret(&acme, "db", "correct-horse-battery-staple");
    create_secret(&acme, "later", "written-without-the-plugin");
    let (_, directory) = polder.stop();

    fs::remove_file(&socket).ok();
    fs::remove_file(keys.join("k1")).unwrap();
    let program = tools::find("POLDER_TEST_KMS_PLUGIN", "KMS plugin").unwrap();
    let _plugin = Plugin(Command::new(program).arg(&socket).arg(&keys).spawn().unwrap());
    wait_for(|| socket.exists());
    let polder = Polder::start_in(directory, &settings);
    check_secret(&polder.admin.in_plane("acme"), "later", "written-without-the-plugin");
}

/// A running plugin; killed when it is dropped.
struct Plugin(Child);

impl Drop for Plugin {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
