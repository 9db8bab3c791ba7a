//! `cargo xtask up`: the server on this machine with two sample planes, until Ctrl-C.
//!
//! Everything is kept in `.polder/`; a second start finds what the first one left.

use std::fs::{File, TryLockError};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::step::{quiet, show, step};
use crate::store::{Started, Store};
use crate::workspace::{Workspace, cargo, root};

/// Where Kubernetes servers are by custom.
const PORT: u16 = 6443;
const SAMPLE_PLANES: [&str; 2] = ["acme", "globex"];
/// A server that says nothing for so long will not start.
const START_PATIENCE: Duration = Duration::from_secs(60);

#[derive(clap::Args)]
pub(crate) struct Up {
    /// Build with optimizations: slower to build, several times faster to run.
    #[arg(long)]
    release: bool,
    /// What the server keeps its planes in.
    #[arg(long, value_enum, default_value = "embedded")]
    store: Store,
}

/// The server while it runs, and all that can happen to it.
struct Running {
    pid: u32,
    events: Receiver<Event>,
}

enum Event {
    /// The server wrote a line.
    Line(String),
    /// Somebody wants us to stop.
    Signal,
    /// The server is gone.
    Exited(std::io::Result<ExitStatus>),
}

impl Up {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let data = root().join(".polder");
        refuse_in_use(&data)?;
        let program = step("build", || self.build())?;
        let store = self.store.start(&program, &data.join("shared"))?;
        let running = Running::start(&program, &data, &store)?;
        let kubeconfig = data.join("admin.kubeconfig");
        let welcomed = running.wait_ready().and_then(|url| {
            sample_planes(&program, &kubeconfig)?;
            welcome(&url, &kubeconfig);
            Ok(())
        });
        if let Err(error) = welcomed {
            running.stop().ok();
            return Err(error);
        }
        running.wait_end()
    }

    fn build(&self) -> anyhow::Result<PathBuf> {
        let profile = if self.release { "release" } else { "debug" };
        let flag = self.release.then_some("--release");
        show(cargo().args(["build", "--package", "polder"]).args(flag))?;
        Ok(Workspace::read()?.target_directory.join(profile).join("polder"))
    }
}

impl Running {
    fn start(program: &Path, data: &Path, store: &Started) -> anyhow::Result<Running> {
        let server = Command::new(program)
            .arg("serve")
            .arg("--data-dir")
            .arg(data)
            .args(["--listen", &free_address()])
            .args(&store.arguments)
            .stdout(Stdio::piped())
            // A group of its own: Ctrl-C reaches only us, and we pass it on once.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let pid = server.id();
        Ok(Running { pid, events: watch(server)? })
    }

    /// Waits until the server says where it is.
    fn wait_ready(&self) -> anyhow::Result<String> {
        loop {
            match self.events.recv_timeout(START_PATIENCE) {
                Ok(Event::Line(line)) => {
                    eprintln!("{line}");
                    if let Some(rest) = line.strip_prefix("polder: ready at ") {
                        return Ok(rest.split(' ').next().unwrap_or_default().to_string());
                    }
                }
                Ok(Event::Signal) => bail!("stopped before the server was ready"),
                Ok(Event::Exited(exit)) => bail!("the server ended with {}", exit?),
                Err(RecvTimeoutError::Timeout) => {
                    bail!("the server did not get ready in {} s", START_PATIENCE.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("lost sight of the server"),
            }
        }
    }

    /// Passes signals on, and ends as the server ends.
    fn wait_end(&self) -> anyhow::Result<()> {
        for event in &self.events {
            match event {
                Event::Line(line) => eprintln!("{line}"),
                Event::Signal => self.signal()?,
                Event::Exited(exit) => {
                    let exit = exit?;
                    ensure!(exit.success(), "the server ended with {exit}");
                    eprintln!("stopped; `cargo xtask up` goes on from here");
                    return Ok(());
                }
            }
        }
        bail!("lost sight of the server")
    }

    /// Stops a server nobody asked to stop.
    fn stop(&self) -> anyhow::Result<()> {
        self.signal()?;
        self.wait_end()
    }

    fn signal(&self) -> anyhow::Result<()> {
        quiet(Command::new("kill").args(["-TERM", &self.pid.to_string()])).map(drop)
    }
}

/// Two servers never share their data: says where the other one is, before anything is built for the second.
fn refuse_in_use(data: &Path) -> anyhow::Result<()> {
    let Ok(lock) = File::open(data.join("store/LOCK")) else { return Ok(()) };
    if !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
        return Ok(());
    }
    let kubeconfig = data.join("admin.kubeconfig");
    let text = std::fs::read_to_string(&kubeconfig).unwrap_or_default();
    let url = text.lines().find_map(|line| line.trim().strip_prefix("server: "));
    bail!(
        "a server runs on {} already{}: use it with\n\n  export KUBECONFIG={}\n\nor stop it with Ctrl-C where it was started",
        data.display(),
        url.map(|url| format!(", at {}", url.trim_matches('"'))).unwrap_or_default(),
        kubeconfig.display()
    )
}

/// The usual port, or any free one.
fn free_address() -> String {
    if TcpListener::bind(("127.0.0.1", PORT)).is_ok() {
        return format!("127.0.0.1:{PORT}");
    }
    eprintln!("port {PORT} is in use: taking a free one");
    "127.0.0.1:0".into()
}

/// One channel for all that can happen: lines of the server, signals to us, the server's end.
fn watch(mut server: Child) -> anyhow::Result<Receiver<Event>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for Ctrl-C")?;
    let out = server.stdout.take().context("the server's output is not piped")?;
    let (sender, events) = mpsc::sync_channel(64);
    let signalled = sender.clone();
    std::thread::spawn(move || signals.forever().try_for_each(|_| signalled.send(Event::Signal)));
    std::thread::spawn(move || {
        // Its output ends when it ends, so the end is the last event.
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines.map(Event::Line).try_for_each(|line| sender.send(line)).ok();
        sender.send(Event::Exited(server.wait())).ok();
    });
    Ok(events)
}

/// Makes the sample planes a first start does not have yet.
fn sample_planes(program: &Path, kubeconfig: &Path) -> anyhow::Result<()> {
    for plane in SAMPLE_PLANES {
        let mut create = Command::new(program);
        create.args(["plane", "create", plane, "--kubeconfig"]).arg(kubeconfig);
        match quiet(&mut create) {
            Ok(_) => eprintln!("made plane {plane}"),
            Err(error) if error.to_string().contains("already exists") => eprintln!("found plane {plane}"),
            Err(error) => return Err(error.context(format!("cannot make the sample plane {plane}"))),
        }
    }
    Ok(())
}

fn welcome(url: &str, kubeconfig: &Path) {
    let [one, other] = SAMPLE_PLANES;
    eprintln!(
        "\nTwo control planes that know nothing of each other. Try in another terminal:\n\n  \
         export KUBECONFIG={}\n  \
         kubectl --server {url}/clusters/{one} get namespaces\n  \
         kubectl --server {url}/clusters/{other} create configmap hello --from-literal=from={other}\n  \
         kubectl --server {url}/clusters/{one} get configmap hello   # not found: it is the other plane's\n\n\
         Ctrl-C stops the server; its data stays in .polder/.",
        kubeconfig.display()
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_told_of_the_first() {
        let data = std::env::temp_dir().join(format!("polder-up-{}", std::process::id()));
        refuse_in_use(&data).unwrap();
        std::fs::create_dir_all(data.join("store")).unwrap();
        let lock = File::create(data.join("store/LOCK")).unwrap();
        refuse_in_use(&data).unwrap();
        lock.lock().unwrap();
        std::fs::write(data.join("admin.kubeconfig"), "  cluster:\n    server: https://127.0.0.1:1234\n")
            .unwrap();
        let said = refuse_in_use(&data).unwrap_err().to_string();
        assert!(said.contains("already, at https://127.0.0.1:1234"), "{said}");
        assert!(said.contains(&format!("KUBECONFIG={}", data.join("admin.kubeconfig").display())), "{said}");
        drop(lock);
        refuse_in_use(&data).unwrap();
        std::fs::remove_dir_all(&data).unwrap();
    }
}
