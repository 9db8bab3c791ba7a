//! `polder serve`: opens the store, makes certificates, listens, and stops in good order.

use std::io::{IsTerminal as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use polder_auth::authn::Authenticators;
use polder_auth::authz::Chain;
use polder_client::Runner;
use polder_client_http::{Egress, Network};
use polder_controllers::Told;
use polder_model::SmolStr;
use polder_registry::client::LocalClient;
use polder_registry::{Registry, RegistryOptions, bootstrap};
use polder_server::{Aggregator, Server, State};
use polder_store::Store;
use tokio::runtime::{Handle, Runtime};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::authentication::{Files, Issuers};
use crate::config::{Configuration, TlsFiles};
use crate::extensions::Extensions;
use crate::follow::follow;
use crate::keys::Keeper;
use crate::log::OneLine;
use crate::opening::{Opened, Opening};
use crate::precedence::{self, Yielding};
use crate::storage::StoreSettings;
use crate::stored_keys::StoredKeys;
use crate::terms::Terms;
use crate::webhooks::Webhooks;

/// How long the last audit events may take to leave.
const AUDIT_PATIENCE: Duration = Duration::from_secs(10);

/// How often what replicas share is asked whether it is there.
const IN_TOUCH: Duration = Duration::from_secs(2);

/// What `--help` says last.
const ENVIRONMENT: &str = "\
Environment:
  POLDER_LOG  What is logged to stderr: off, error, warn, info, debug or trace, or a filter such as
              info,polder_store=debug [default: info]";

#[derive(clap::Args)]
#[command(after_help = ENVIRONMENT)]
pub(crate) struct Serve {
    /// Where everything is kept. Made if it is missing.
    #[arg(long, value_name = "DIR", env = "POLDER_DATA_DIR")]
    data_dir: PathBuf,
    /// Address and port to listen on; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443", value_parser = listen_address)]
    listen: SocketAddr,
    #[command(flatten)]
    store: StoreSettings,
    /// The encryption keys, if not in the data directory; servers that share a store need the same.
    #[arg(long, value_name = "FILE", env = "POLDER_ENCRYPTION_KEY_FILE")]
    encryption_key_file: Option<PathBuf>,
    /// A file with everything else: limits, domains, who people are and what they may do, encryption, audit.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Where what runs, beside requests of planes that use little.
struct Threads {
    busy: Vec<Handle>,
    feed: Handle,
    controllers: [Handle; 2],
}

/// A runtime of one thread.
fn single(name: &str) -> tokio::runtime::Builder {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name(name).enable_all();
    builder
}

impl Serve {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let started = Instant::now();
        let filter = log_filter(&std::env::var("POLDER_LOG").unwrap_or_default())?;
        let colors = std::io::stderr().is_terminal();
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(move || OneLine::new(std::io::stderr(), colors))
            .with_ansi(colors)
            .init();
        take_files();
        precedence::come_first();
        let yielding = Yielding::new();
        let give_way = || {
            let yielding = yielding.clone();
            move || yielding.enter()
        };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        // Under load, look for new requests often: a turn is short, and a quiet plane's request should not wait for many.
        let runtime = runtime.enable_all().event_interval(8).build()?;
        // Planes that use much are served on threads that come after the others. Each is a runtime of its own: in one of several
        // threads, whoever is woken from outside, as by each commit, wakes another to look for more.
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let busy = (0..cores).map(|_| {
            let mut busy = single("busy");
            busy.event_interval(8).on_thread_start(give_way()).build()
        });
        let busy = busy.collect::<Result<Vec<_>, _>>()?;
        // Controllers have threads of their own: whatever they compute, requests are answered. Those of planes that need much
        // have others, which give way too: whatever these compute, the others go on. One follows what happens, and no more.
        let feed = single("feed").build()?;
        let mut light = tokio::runtime::Builder::new_multi_thread();
        let light = light.thread_name("controllers").enable_all().build()?;
        let mut long = tokio::runtime::Builder::new_multi_thread();
        let long = long.thread_name("controllers-long").enable_all().on_thread_start(give_way()).build()?;
        runtime.spawn(yielding.look_after());
        let handle = |runtime: &Runtime| runtime.handle().clone();
        let threads = Threads {
            busy: busy.iter().map(handle).collect(),
            feed: handle(&feed),
            controllers: [handle(&light), handle(&long)],
        };
        runtime.block_on(self.serve(started, threads))
    }

    async fn serve(self, started: Instant, threads: Threads) -> anyhow::Result<()> {
        let mut configuration = match &self.config {
            Some(path) => Configuration::read(path)?,
            None => Configuration::default(),
        };
        let storage = self.store.clone().or(std::mem::take(&mut configuration.store)).storage()?;
        let encryption = std::mem::take(&mut configuration.encryption);
        configuration.encryption = encryption.with_key_file(self.encryption_key_file.clone());
        // Listen first: a port in use is the cheapest thing to find out.
        let server = Server::bind(self.listen).await?;
        let address = server.address();
        let url = match &configuration.external_url {
            Some(url) => url.trim_end_matches('/').to_string(),
            None => format!("https://{}", server.address()),
        };
        if self.data_dir.join("pki").exists() && !storage.is_begun(&self.data_dir) && !storage.is_shared() {
            tracing::warn!("{} has certificates but no store: a new one is made", self.data_dir.display());
        }
        let hosts = hosts(&configuration, &url, &server);
        let serving = TlsFiles::read_all(&configuration.tls).context("tls")?;
        let shared = storage.is_shared().then(StoredKeys::resource);
        let keyring = configuration.encryption.keyring(&self.data_dir, shared)?;
        let opening = Opening {
            storage: &storage,
            data_dir: &self.data_dir,
            configuration: &configuration,
            address: advertised(self.listen, &url),
            keyring: keyring.clone(),
        };
        let Opened { store, pki, site, resign } = opening.open(&hosts, &serving)?;
        pki.set_proxies(configuration.authentication.proxy_authorities()?, now())?;
        let kubeconfig = self.data_dir.join("admin.kubeconfig");
        let written = pki.admin_write(&kubeconfig, &url, now());
        match written {
            // On a full disk the server still starts.
            Err(error) if kubeconfig.exists() => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the administrator's kubeconfig stays as it was");
            }
            written => written?,
        }
        let files = Files::new(configuration.token_file.clone(), configuration.authentication.clone(), &url);
        let accounts = Some(pki.account_tokens());
        let (sources, held) = files.load(&store)?;
        let authenticators = Authenticators::new(accounts, sources)
            .with_account_seconds_max(configuration.authentication.account_seconds_max()?);
        let authenticators = Arc::new(authenticators);
        let options = RegistryOptions {
            base_url: url.clone(),
            default_limits: configuration.default_limits.into(),
            clock: now,
            authenticators: authenticators.clone(),
            plugins: configuration.admission.plugins()?,
        };
        let audit = configuration.audit.as_ref().map(|audit| audit.open(&self.data_dir)).transpose()?;
        let mut registry = Registry::new(store.clone(), Chain::default(), options);
        if let Some(ledger) = audit.as_ref().and_then(|audit| audit.ledger()) {
            registry = registry.with_audit_trail(ledger);
        }
        let registry = Arc::new(registry);
        registry.follow_others();
        let networks =
            |all: &[String]| -> Result<Vec<Network>, _> { all.iter().map(|one| one.parse()).collect() };
        let egress = Egress {
            allowed: networks(&configuration.webhook_networks).context("webhookNetworks")?,
            denied: networks(&configuration.webhook_denied_networks).context("webhookDeniedNetworks")?,
        };
        authenticators.set_issuer_client(Arc::new(Issuers::new(egress.clone())));
        let extensions = Arc::new(Extensions::new(egress.clone()));
        let aggregator = Arc::new(Aggregator::new(registry.clone(), extensions, pki.front_proxy()));
        registry.set_extension_caller(aggregator.clone());
        registry.set_webhook_client(Arc::new(Webhooks::new(egress)));
        registry.tasks.spawn(registry.clone().run_chores());
        let stop = CancellationToken::new();
        if store.is_shared() {
            registry.tasks.spawn(stay_in_touch(store.clone(), stop.clone()));
        }
        registry.tasks.spawn(configuration.encryption.clone().keep_up(keyring, stop.clone()));
        if let Some(followed) = files.followed(held.clone(), authenticators, store.clone()) {
            registry.tasks.spawn(follow(followed, held, stop.clone()));
        }
        if let Some((files, held)) = configuration.authorization.load(&registry)? {
            registry.tasks.spawn(follow(files, held, stop.clone()));
        }
        let client = Arc::new(LocalClient::new(registry.clone()));
        let controllers = polder_controllers::Options {
            kept: bootstrap::kept(&site),
            root_ca: Told::from(site.ca.as_str()),
            authority: Some(pki.plane_authority()),
            token_keys: Some(pki.token_keys()),
            front_proxy_ca: Told::from(site.front_proxy_ca.as_str()),
            extensions: Some(aggregator.clone()),
        };
        let (root_ca, front_proxy_ca) = (controllers.root_ca.clone(), controllers.front_proxy_ca.clone());
        let terms = Terms::new(move || Runner::new(client.clone(), polder_controllers::all(&controllers)));
        let terms = Arc::new(terms);
        let keeper = Keeper {
            pki: pki.clone(),
            settings: configuration.authentication.clone(),
            tls: configuration.tls.clone(),
            root_ca,
            front_proxy_ca,
            controllers: terms.clone(),
            data_dir: self.data_dir.clone(),
            kubeconfig: kubeconfig.clone(),
            url: url.clone(),
            clock: now,
            store: store.clone(),
            believed: Arc::new(parking_lot::Mutex::new(pki.ends(now()))),
        };
        registry.tasks.spawn(keeper.keep_up(stop.clone()));
        let running_controllers =
            terms.run(store.clone(), registry.tasks.clone(), threads.controllers, stop.clone());
        let controllers = registry.tasks.spawn_on(running_controllers, &threads.feed);
        let domains = configuration.base_domains.iter().map(SmolStr::new);
        let domains = std::iter::once(SmolStr::new_static("localhost")).chain(domains).collect();
        let delay = Duration::from_secs(configuration.shutdown_delay_seconds);
        let state = State::new(registry, pki, domains, delay)
            .with_aggregator(aggregator)
            .with_busy_threads(threads.busy)
            .with_audit(audit.clone());
        let posted = CancellationToken::new();
        let posting = audit.clone().map(|audit| state.registry.tasks.spawn(audit.post(posted.clone())));
        let state = Arc::new(state);

        let running = server.run(state, stop.clone());
        let mut out = std::io::stdout();
        let milliseconds = started.elapsed().as_millis();
        let planes = super::output::planes(store.planes_len() - 1);
        let place = match &configuration.external_url {
            Some(_) => format!(" (listening on {address})"),
            None => String::new(),
        };
        writeln!(
            out,
            "polder: ready at {url}{place} after {milliseconds} ms, {planes}, kubeconfig {}",
            kubeconfig.display()
        )?;
        out.flush()?;
        let signalled = async {
            stop_signal().await;
            tracing::info!("stopping");
            stop.cancel();
        };
        let controllers = async {
            if let Err(error) = controllers.await {
                tracing::error!(%error, "controllers have ended: restart the server");
            }
            // While the last requests are answered here, another replica's can begin.
            resign();
        };
        let (outcome, (), ()) = tokio::join!(running, signalled, controllers);
        store.close();
        if let Some(audit) = audit {
            audit.close();
            posted.cancel();
        }
        if let Some(posting) = posting
            && tokio::time::timeout(AUDIT_PATIENCE, posting).await.is_err()
        {
            tracing::warn!("the audit webhook does not take the last events: they are lost");
        }
        tracing::info!("stopped");
        outcome?;
        Ok(())
    }
}

/// Asks what is newest now and then, so that whoever asks whether this replica is ready hears of it.
async fn stay_in_touch(store: Arc<Store>, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(IN_TOUCH)).await.is_some() {
        // How it went is remembered where it is asked.
        store.fresh().await.ok();
    }
}

/// An address with its port.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |hint: String| format!("write an IP address and a port, such as {hint}");
    text.parse().map_err(|_| match (text.parse::<IpAddr>(), text.rsplit_once(':')) {
        (Ok(ip), _) => wrong(SocketAddr::from((ip, 6443)).to_string()),
        (_, Some(("", port))) => wrong(format!("0.0.0.0:{port} for all addresses")),
        (_, Some(("localhost", port))) => wrong(format!("127.0.0.1:{port}")),
        _ => wrong("127.0.0.1:6443 or [::1]:6443".into()),
    })
}

/// What is logged. A word that is no level would be taken for the name of a part, and silence all others.
fn log_filter(text: &str) -> anyhow::Result<EnvFilter> {
    if text.trim().is_empty() {
        return Ok("info".into());
    }
    let levels = "off, error, warn, info, debug or trace";
    for part in text.split(',').map(str::trim).filter(|part| !part.contains(['=', '['])) {
        let is_level = part.is_empty() || part.parse::<LevelFilter>().is_ok();
        anyhow::ensure!(is_level, "POLDER_LOG: {part:?} is no level: write {levels}, or PART=LEVEL");
    }
    text.parse().with_context(|| format!("POLDER_LOG: {text:?} is no filter: write {levels}, or PART=LEVEL"))
}

/// The address that planes tell of the API: that of the URL if it has one, or else the one to listen on. It does not
/// depend on which free port was taken, so that a restart finds the layer of objects it made.
fn advertised(listen: SocketAddr, url: &str) -> SocketAddr {
    let authority = url.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let told = authority.parse().ok().or_else(|| {
        let ip = authority.trim_matches(['[', ']']).parse().ok()?;
        Some(SocketAddr::new(ip, 443))
    });
    let mut address = told.filter(|_| listen.port() != 0).unwrap_or(listen);
    if address.ip().is_unspecified() {
        address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    }
    if address.port() == 0 {
        address.set_port(6443);
    }
    address
}

/// Names and addresses the serving certificate is good for.
fn hosts(configuration: &Configuration, url: &str, server: &Server) -> Vec<String> {
    let mut hosts: Vec<String> = [
        "localhost",
        "*.localhost",
        "127.0.0.1",
        "::1",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ]
    .map(String::from)
    .to_vec();
    hosts.push(server.address().ip().to_string());
    for domain in &configuration.base_domains {
        hosts.push(domain.clone());
        hosts.push(format!("*.{domain}"));
    }
    let host = url.trim_start_matches("https://").split(['/', ':']).next().unwrap_or_default();
    hosts.push(host.to_string());
    hosts.extend(configuration.hosts.iter().cloned());
    hosts.retain(|host| !host.is_empty());
    hosts.sort();
    hosts.dedup();
    hosts
}

pub(crate) fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// Lets the process have as many files open as it may give itself: each client takes one.
fn take_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::debug!(%error, "no more files may be open than before");
    }
}

/// Ctrl-C or SIGTERM.
async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_addresses() {
        for (text, expected) in [
            ("127.0.0.1:6443", Ok(())),
            ("[::1]:0", Ok(())),
            ("127.0.0.1", Err("127.0.0.1:6443")),
            ("::1", Err("[::1]:6443")),
            ("localhost:80", Err("127.0.0.1:80")),
            (":6443", Err("0.0.0.0:6443")),
            ("example.org:6443", Err("127.0.0.1:6443 or")),
            ("6443", Err("127.0.0.1:6443 or")),
        ] {
            match (listen_address(text), expected) {
                (Ok(_), Ok(())) => {}
                (Err(said), Err(hint)) => {
                    assert!(said.contains(&format!("such as {hint}")), "{text}: {said}")
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn log_filters() {
        for text in ["", "debug", "OFF", "info,polder_store=debug", "polder=trace, warn", "[request]=debug"] {
            log_filter(text).unwrap();
        }
        for text in ["bogus", "debgu", "info,polder_store", "polder=loud"] {
            let said = format!("{:#}", log_filter(text).unwrap_err());
            assert!(said.starts_with("POLDER_LOG: ") && said.contains("warn, info"), "{said}");
        }
    }

    #[track_caller]
    fn check_advertised(listen: &str, url: &str, expected: &str) {
        assert_eq!(advertised(listen.parse().unwrap(), url).to_string(), expected);
    }

    #[test]
    fn planes_are_told_an_address_that_stays() {
        check_advertised("127.0.0.1:0", "https://127.0.0.1:45123", "127.0.0.1:6443");
        check_advertised("127.0.0.1:7443", "https://127.0.0.1:7443", "127.0.0.1:7443");
        check_advertised("0.0.0.0:6443", "https://192.0.2.1", "192.0.2.1:443");
        check_advertised("0.0.0.0:6443", "https://[2001:db8::1]:8443/x", "[2001:db8::1]:8443");
        check_advertised("0.0.0.0:6443", "https://api.example.com", "127.0.0.1:6443");
    }
}
