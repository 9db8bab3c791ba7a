//! A server of our own: the real binary, in its own process, on a free port, with its data in a temporary directory.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::kubeconfig::Kubeconfig;
use crate::process::Process;

/// A start that takes longer has failed.
const READY_PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Server {
    child: Child,
    directory: PathBuf,
    /// From the start of the process to its ready line.
    pub(crate) ready_after: Duration,
    pub(crate) process: Process,
}

impl Server {
    /// Starts a server on a data directory and waits until it is ready. Blocks: nothing else is going on.
    pub(crate) fn start(binary: &Path, directory: &Path) -> anyhow::Result<Server> {
        std::fs::create_dir_all(directory)?;
        let configuration = directory.join("server.yaml");
        // The bench fills one plane with more than a tenant may have.
        std::fs::write(
            &configuration,
            "apiVersion: config.polder.dev/v1alpha1\nkind: ServerConfiguration\n\
             defaultLimits: {objects: 0, storedBytes: 0, watches: 0, requestsInFlight: 0}\n",
        )?;
        let started = Instant::now();
        let mut child = Command::new(binary)
            .arg("serve")
            .arg("--data-dir")
            .arg(directory)
            .args(["--listen", "127.0.0.1:0", "--config"])
            .arg(&configuration)
            .env("POLDER_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let process = Process::new(vec![child.id()]);
        let mut server = Server {
            child,
            directory: directory.to_path_buf(),
            ready_after: Duration::ZERO,
            process: process?,
        };
        let (said, heard) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = BufReader::new(stdout).read_line(&mut line);
            said.send(read.map(|_| line)).ok();
        });
        let line = heard.recv_timeout(READY_PATIENCE).context("the server did not become ready")??;
        server.ready_after = started.elapsed();
        anyhow::ensure!(
            line.contains("ready at https://"),
            "the server said {line:?} instead of being ready"
        );
        Ok(server)
    }

    pub(crate) fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        Kubeconfig::read(&self.directory.join("admin.kubeconfig"))
    }

    /// Stops it in good order and waits until it is gone.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        self.end(Signal::TERM)
    }

    /// Kills it as a crash would.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.end(Signal::KILL)
    }

    fn end(&mut self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A case that failed leaves no server behind.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Bytes of all files below a directory.
pub(crate) fn disk_bytes(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { disk_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
