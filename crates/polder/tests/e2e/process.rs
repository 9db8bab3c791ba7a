//! A `polder serve` of this build, in a directory and on a port of its own.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use polder_test_support::{Client, json};

pub(crate) const CONFIG_HEAD: &str = "apiVersion: config.polder.dev/v1alpha1\nkind: ServerConfiguration\n";
pub(crate) const PLANES: &str = "/apis/polder.dev/v1alpha1/planes";
/// Selects all config maps but the one every namespace has.
pub(crate) const OWN: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";
pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A running server. Dropping it kills it.
pub(crate) struct Polder {
    /// May do everything, everywhere.
    pub(crate) admin: Client,
    directory: tempfile::TempDir,
    child: Child,
}

impl Polder {
    pub(crate) fn start() -> Polder {
        Polder::start_with("")
    }

    /// Starts with lines of configuration.
    pub(crate) fn start_with(configuration: &str) -> Polder {
        Polder::start_in(tempfile::tempdir().unwrap(), configuration)
    }

    /// Starts on what an earlier server left.
    pub(crate) fn start_in(directory: tempfile::TempDir, configuration: &str) -> Polder {
        let command = serve(&directory.path().join("data"), "127.0.0.1:0");
        Polder::start_as(command, directory, configuration)
    }

    /// Starts one of several servers over one etcd, all with the same encryption key.
    pub(crate) fn start_replica(
        etcd: &str,
        prefix: &str,
        key: &Path,
        directory: tempfile::TempDir,
    ) -> Polder {
        let command = replica(etcd, prefix, key, &directory.path().join("data"));
        Polder::start_as(command, directory, "")
    }

    /// Starts a server that tells everything it can in its log.
    pub(crate) fn start_talkative(configuration: &str) -> Polder {
        let directory = tempfile::tempdir().unwrap();
        let mut command = serve(&directory.path().join("data"), "127.0.0.1:0");
        command.env("POLDER_LOG", "polder_server=debug,polder_registry=debug,polder_auth=debug,polder_client=debug,polder_controllers=debug,polder=debug,info");
        Polder::start_as(command, directory, configuration)
    }

    /// Starts a server that may have so many files open.
    pub(crate) fn start_with_files(files_max: u32) -> Polder {
        Polder::start_after(&format!("ulimit -n {files_max}"), tempfile::tempdir().unwrap(), "")
    }

    /// Starts from a shell that lets everybody read and write what is made.
    pub(crate) fn start_generous(directory: tempfile::TempDir, configuration: &str) -> Polder {
        Polder::start_after("umask 0", directory, configuration)
    }

    /// Starts from a shell that was told something before.
    fn start_after(told: &str, directory: tempfile::TempDir, configuration: &str) -> Polder {
        let own = serve(&directory.path().join("data"), "127.0.0.1:0");
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{told} && exec \"$0\" \"$@\"")).arg(own.get_program());
        command.args(own.get_args()).stdin(Stdio::null()).env("POLDER_LOG", "info");
        Polder::start_as(command, directory, configuration)
    }

    fn start_as(mut command: Command, directory: tempfile::TempDir, configuration: &str) -> Polder {
        fs::write(directory.path().join("config.yaml"), format!("{CONFIG_HEAD}{configuration}")).unwrap();
        command.arg("--config").arg(directory.path().join("config.yaml")).stdout(Stdio::piped());
        command.stderr(fs::File::create(directory.path().join("log")).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if !line.starts_with("polder: ready at ") {
            let log = fs::read_to_string(directory.path().join("log")).unwrap();
            panic!("not ready: {line:?} {log}");
        }
        let kubeconfig = fs::read_to_string(directory.path().join("data/admin.kubeconfig")).unwrap();
        let admin = Client::from_kubeconfig(&kubeconfig).unwrap();
        Polder { admin, directory, child }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Where the data, the configuration and the log are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file beside the data, for clients of this server.
    pub(crate) fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::write(&path, contents).unwrap();
        path
    }

    /// Makes a plane; its administrator is nobody anywhere else.
    #[track_caller]
    pub(crate) fn plane(&self, name: &str) -> Client {
        polder_test_support::plane(&self.admin, name)
    }

    /// Makes a plane with limits.
    #[track_caller]
    pub(crate) fn plane_with(&self, name: &str, limits: polder_test_support::Value) -> Client {
        let plane = json!({"metadata": {"name": name}, "spec": {"limits": limits}});
        self.admin.post(PLANES, &plane).expect(201);
        self.admin.in_plane(name)
    }

    /// A kubeconfig file for one plane.
    pub(crate) fn plane_kubeconfig(&self, name: &str) -> PathBuf {
        let answer = self.admin.post(&format!("{PLANES}/{name}/kubeconfig"), &json!({})).expect(201).json();
        self.file(&format!("{name}.kubeconfig"), answer["kubeconfig"].as_str().unwrap())
    }

    /// What the server holds in memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// What the server has said so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    }

    /// Waits for the end; the directory stays.
    pub(crate) fn wait(mut self) -> (ExitStatus, tempfile::TempDir) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < Duration::from_secs(40), "the server does not stop");
            std::thread::sleep(Duration::from_millis(20));
        };
        (status, std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap()))
    }

    /// Ends it at once, as a power failure would.
    pub(crate) fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.wait().1
    }

    pub(crate) fn stop(self) -> (ExitStatus, tempfile::TempDir) {
        self.terminate();
        self.wait()
    }
}

impl Drop for Polder {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The command of this build.
pub(crate) fn polder() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polder"));
    command
        .stdin(Stdio::null())
        .env_remove("POLDER_DATA_DIR")
        .env_remove("POLDER_STORE")
        .env_remove("KUBECONFIG")
        .env("POLDER_LOG", "info");
    command
}

pub(crate) fn serve(data: &Path, listen: &str) -> Command {
    let mut command = polder();
    command.arg("serve").arg("--data-dir").arg(data).args(["--listen", listen]);
    if std::env::var("POLDER_TEST_STORE").is_ok_and(|store| store == "etcd") {
        let etcd = polder_test_support::etcd::shared().unwrap();
        // Another one for each directory: who starts there again finds what was there.
        let prefix: String = data.to_string_lossy().chars().filter(char::is_ascii_alphanumeric).collect();
        let key = data.join("keys/encryption.key");
        if !key.exists() {
            add_key(&key);
        }
        share(&mut command, etcd, &format!("/{prefix}"));
    }
    command
}

/// One of several servers over one etcd.
pub(crate) fn replica(etcd: &str, prefix: &str, key: &Path, data: &Path) -> Command {
    let mut command = polder();
    command.arg("serve").arg("--data-dir").arg(data).args(["--listen", "127.0.0.1:0"]);
    share(&mut command, etcd, prefix);
    command.arg("--encryption-key-file").arg(key);
    command
}

fn share(command: &mut Command, etcd: &str, prefix: &str) {
    let url = etcd.replace("http://", "etcd://");
    command.args(["--store", &url, "--etcd-prefix", prefix]);
}

/// Makes an encryption key.
pub(crate) fn add_key(path: &Path) {
    let made = polder().args(["store", "add-key"]).arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// Runs a server that must not start; returns what it says.
#[track_caller]
pub(crate) fn refused(mut command: Command) -> String {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("the server started although it must not");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    said.lines().last().unwrap_or_default().to_string()
}
