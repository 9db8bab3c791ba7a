//! PostgreSQL for tests: a server of our own, as somebody who is not root, because it refuses to run as root.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(crate) use polder_store::conformance::way::{Way, free_port};
use polder_store_postgres::JournalOptions;
use tokio_postgres::SimpleQueryMessage;

/// Ends the server, and removes what it wrote, when the tests end, however they do: then nobody holds the other end of its input.
const KEEPER: &str = r#"directory=$1; shift; "$@" >>"$directory/log" 2>&1 & pid=$!; cat >/dev/null; kill -QUIT $pid; wait $pid; test -e "$directory/keep" || rm -rf "$directory""#;

/// `nobody`, on any Linux.
const NOBODY: u32 = 65_534;

/// A server of its own. It ends with this value.
pub(crate) struct Postgres {
    directory: PathBuf,
    port: u16,
    arguments: Vec<String>,
    keeper: Option<Child>,
}

fn program() -> Option<PathBuf> {
    let program = std::env::var_os("POLDER_TEST_POSTGRES").map(PathBuf::from).filter(|path| path.exists());
    if program.is_none() {
        // Not `eprintln!`: the line must be seen although the test passes.
        writeln!(std::io::stderr(), "left out: no PostgreSQL (POLDER_TEST_POSTGRES is not set)").ok();
    }
    program
}

/// As whom the server runs: not root.
fn unprivileged(command: &mut Command, directory: &Path) {
    if fs::metadata(directory).unwrap().uid() == NOBODY {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(directory);
}

impl Postgres {
    pub(crate) fn start(arguments: &[&str]) -> Option<Postgres> {
        Postgres::start_with("trust", arguments, |_| {})
    }

    /// The same, with a way to know users; `prepare` is given the directory, in which the server has its own, `data`.
    pub(crate) fn start_with(
        auth: &str,
        arguments: &[&str],
        prepare: impl FnOnce(&Path),
    ) -> Option<Postgres> {
        let program = program()?;
        let directory = tempfile::Builder::new().prefix("postgres").tempdir().unwrap().keep();
        if fs::metadata(&directory).unwrap().uid() == 0 {
            chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let mut command = Command::new(program.with_file_name("initdb"));
        unprivileged(&mut command, &directory);
        if !command.arg("--version").output().is_ok_and(|output| output.status.success()) {
            let who = if fs::metadata(&directory).unwrap().uid() == NOBODY { "nobody" } else { "this user" };
            writeln!(std::io::stderr(), "left out: {who} may not run {}", program.display()).ok();
            fs::remove_dir_all(&directory).ok();
            return None;
        }
        fs::write(directory.join("password"), "geheim\n").unwrap();
        own(&directory.join("password"), &directory);
        let mut command = Command::new(program.with_file_name("initdb"));
        unprivileged(&mut command, &directory);
        let initialized = command
            .args(["--username=polder", "--no-sync", "--encoding=UTF8", "--locale=C", "--pwfile=password"])
            .args(["-A", auth, "-D", "data"])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&initialized.stderr);
        assert!(initialized.status.success(), "initdb: {told}");
        prepare(&directory);
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let mut server = Postgres { directory, port: free_port(), arguments, keeper: None };
        server.run();
        Some(server)
    }

    fn run(&mut self) {
        let mut command = Command::new("sh");
        unprivileged(&mut command, &self.directory);
        let keeper = command
            .args(["-c", KEEPER, "sh"])
            .arg(&self.directory)
            .arg(program().unwrap())
            .args(["-D", "data", "-p", &self.port.to_string(), "-k", ""])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400"])
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.keeper = Some(keeper);
        let patience = Instant::now() + Duration::from_secs(60);
        let log = || fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        while !log().contains("ready to accept connections") {
            assert!(Instant::now() < patience, "PostgreSQL does not start: {}", log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it at once, as when its machine goes, but keeps what it has.
    pub(crate) fn stop(&mut self) {
        fs::write(self.directory.join("keep"), "").unwrap();
        let mut keeper = self.keeper.take().unwrap();
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
        fs::remove_file(self.directory.join("log")).unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        fs::remove_file(self.directory.join("keep")).unwrap();
        self.run();
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What somebody who looks at the tables sees, a line for each row.
    pub(crate) fn ask(&self, text: &str) -> Vec<String> {
        ask(self.port, text)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            drop(keeper.stdin.take());
            keeper.wait().ok();
        }
    }
}

/// Gives a file to whoever has another.
pub(crate) fn own(file: &Path, like: &Path) {
    let like = fs::metadata(like).unwrap();
    if like.uid() == NOBODY {
        chown(file, Some(like.uid()), Some(like.gid())).unwrap();
    }
}

pub(crate) fn ask(port: u16, text: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("postgres://polder@127.0.0.1:{port}/postgres");
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let asking = async {
            let rows = client.simple_query(text).await.unwrap();
            drop(client);
            let rows = rows.into_iter().filter_map(|row| match row {
                SimpleQueryMessage::Row(row) => {
                    let columns = (0..row.len()).map(|column| row.get(column).unwrap_or("-").to_owned());
                    Some(columns.collect::<Vec<_>>().join(" "))
                }
                _ => None,
            });
            rows.collect()
        };
        let (rows, _) = tokio::join!(asking, connection);
        rows
    })
}

/// The one that most tests share.
pub(crate) fn shared() -> Option<u16> {
    static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
    let server = SHARED.get_or_init(|| Postgres::start(&["-c", "fsync=off"]));
    server.as_ref().map(|server| server.port)
}

/// An empty history.
pub(crate) fn history(port: u16) -> JournalOptions {
    static SCHEMAS: AtomicU32 = AtomicU32::new(0);
    let schema = format!("test_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
    JournalOptions { schema, history: None, ..options(port) }
}

/// The same history, by another way.
pub(crate) fn through(port: u16, options: &JournalOptions) -> JournalOptions {
    JournalOptions { config: self::options(port).config, ..options.clone() }
}

fn options(port: u16) -> JournalOptions {
    let url = format!("postgres://polder@127.0.0.1:{port}/postgres?sslmode=disable");
    JournalOptions { lease: Duration::from_secs(5), ..JournalOptions::parse(&url, None).unwrap() }
}
