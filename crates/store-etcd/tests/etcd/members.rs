//! A cluster of three, whose members are killed, stopped and started again.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use parking_lot::Mutex;

use crate::cluster;

pub(crate) const MEMBERS_LEN: usize = 3;

/// Says who it is, and ends with whoever holds the other end of its input, as if it was killed.
const KEEPER: &str = r#"log=$1; shift; "$@" >>"$log" 2>&1 & pid=$!; echo $pid; cat >/dev/null; kill -9 $pid"#;

pub(crate) struct Members {
    program: OsString,
    directory: tempfile::TempDir,
    clients: [String; MEMBERS_LEN],
    peers: [String; MEMBERS_LEN],
    running: Mutex<[Option<(Child, u32)>; MEMBERS_LEN]>,
}

impl Members {
    /// All of them, once there is somebody to ask.
    pub(crate) fn start() -> Option<Members> {
        let program = cluster::program()?;
        let url = |_| format!("http://127.0.0.1:{}", cluster::free_port());
        let members = Members {
            program,
            directory: tempfile::Builder::new().prefix("etcd").tempdir().unwrap(),
            clients: std::array::from_fn(url),
            peers: std::array::from_fn(url),
            running: Mutex::default(),
        };
        (0..MEMBERS_LEN).for_each(|number| members.run(number));
        Some(members)
    }

    pub(crate) fn urls(&self) -> &[String] {
        &self.clients
    }

    /// Starts a member, with what it had.
    pub(crate) fn run(&self, number: usize) {
        let running = &mut self.running.lock()[number];
        if running.is_some() {
            return;
        }
        let cluster: Vec<String> =
            self.peers.iter().enumerate().map(|(number, peer)| format!("m{number}={peer}")).collect();
        let (client, peer) = (&self.clients[number], &self.peers[number]);
        let mut child = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(self.directory.path().join(format!("m{number}.log")))
            .arg(&self.program)
            .args(["--name", &format!("m{number}"), "--data-dir"])
            .arg(self.directory.path().join(format!("m{number}")))
            .args(["--listen-client-urls", client, "--advertise-client-urls", client])
            .args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pid = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        *running = Some((child, pid.trim().parse().unwrap()));
    }

    pub(crate) fn kill(&self, number: usize) {
        if let Some((mut child, _)) = self.running.lock()[number].take() {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    /// Lets a member do nothing, or lets it go on.
    pub(crate) fn stop(&self, number: usize, is_stopped: bool) {
        if let Some((_, pid)) = &self.running.lock()[number] {
            let signal = if is_stopped { "-STOP" } else { "-CONT" };
            Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
        }
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..MEMBERS_LEN).for_each(|number| self.kill(number));
    }
}
