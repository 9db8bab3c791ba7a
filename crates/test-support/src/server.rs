//! A whole server in this process: memory store, free port, certificates of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use polder_auth::authn::{Authenticators, Sources};
use polder_auth::authz::Chain;
use polder_client::Runner;
use polder_client::extension::ExtensionProbe;
use polder_model::SmolStr;
use polder_registry::client::LocalClient;
use polder_registry::{Registry, RegistryOptions, bootstrap};
use polder_server::audit::{Audit, AuditOptions, TrailOptions};
use polder_server::{Aggregator, Bounds, ExtensionClient, Pki, Server, State};
use polder_store::memory::MemoryEngine;
use polder_store::{Limits, Store, StoreOptions};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::json;

/// A running server. Dropping it stops it and waits for its end.
pub struct TestServer {
    /// Somebody who may do everything, at the core plane.
    pub admin: Client,
    /// What the server answers from.
    pub registry: Arc<Registry>,
    /// Stop signal and thread.
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<anyhow::Result<u64>>>,
    _directory: tempfile::TempDir,
}

impl TestServer {
    /// Starts a server that has the core plane and nothing else. Panics if it cannot.
    #[track_caller]
    pub fn start() -> TestServer {
        TestServer::start_with(Bounds::default())
    }

    /// The same with less patience or memory than servers have.
    #[track_caller]
    pub fn start_with(bounds: Bounds) -> TestServer {
        match TestServer::try_start(bounds, None) {
            Ok(server) => server,
            Err(error) => panic!("no test server: {error:#}"),
        }
    }

    /// With everything a server may have: planes read their audit trail, and reach extension servers.
    #[track_caller]
    pub fn start_whole(extensions: Arc<dyn ExtensionClient>) -> TestServer {
        match TestServer::try_start(Bounds::default(), Some(extensions)) {
            Ok(server) => server,
            Err(error) => panic!("no test server: {error:#}"),
        }
    }

    fn try_start(bounds: Bounds, extensions: Option<Arc<dyn ExtensionClient>>) -> anyhow::Result<TestServer> {
        let directory = tempfile::tempdir()?;
        let pki_directory = directory.path().join("pki");
        let trail_directory = directory.path().join("audit");
        let stop = CancellationToken::new();
        let (ready, started) = mpsc::sync_channel(1);
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || -> anyhow::Result<u64> {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            runtime.block_on(async {
                let server = Server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
                let url = format!("https://{}", server.address());
                let hosts = ["127.0.0.1", "localhost", "*.localhost"].map(String::from);
                let pki = Arc::new(Pki::open(&pki_directory, &hosts, now())?);
                let kubeconfig = pki.admin_kubeconfig(&url, now())?;
                let site = bootstrap::Site {
                    ca: pki.ca().into(),
                    address: Some(server.address()),
                    front_proxy_ca: pki.front_proxy_ca().into(),
                };
                let store = memory_store(&site)?;
                let accounts = Some(pki.account_tokens());
                let authenticators = Arc::new(Authenticators::new(accounts, Sources::default()));
                let options = RegistryOptions {
                    base_url: url,
                    default_limits: Limits::default(),
                    clock: now,
                    authenticators,
                    plugins: Default::default(),
                };
                let trail = extensions.as_ref().map(|_| {
                    let trail = Some((trail_directory, TrailOptions::default()));
                    Audit::open(AuditOptions { trail, ..AuditOptions::default() })
                });
                let audit = trail.transpose()?;
                let mut registry = Registry::new(store.clone(), Chain::default(), options);
                if let Some(ledger) = audit.as_ref().and_then(|audit| audit.ledger()) {
                    registry = registry.with_audit_trail(ledger);
                }
                let registry = Arc::new(registry);
                let aggregator = extensions
                    .map(|client| Arc::new(Aggregator::new(registry.clone(), client, pki.front_proxy())));
                ready.send((kubeconfig, registry.clone())).ok().context("nobody waits for the server")?;
                registry.tasks.spawn(registry.clone().run_chores());
                let client = Arc::new(LocalClient::new(registry.clone()));
                let controllers = polder_controllers::Options {
                    kept: bootstrap::kept(&site),
                    root_ca: site.ca.as_str().into(),
                    authority: Some(pki.plane_authority()),
                    token_keys: Some(pki.token_keys()),
                    front_proxy_ca: site.front_proxy_ca.as_str().into(),
                    extensions: aggregator
                        .clone()
                        .map(|aggregator| -> Arc<dyn ExtensionProbe> { aggregator }),
                };
                let runner = Arc::new(Runner::new(client, polder_controllers::all(&controllers)));
                let controllers = registry.tasks.spawn(runner.run(
                    registry.tasks.clone(),
                    [Handle::current(), Handle::current()],
                    stopped.clone(),
                ));
                let domains = vec![SmolStr::new_static("localhost")];
                let delay = std::time::Duration::ZERO;
                let mut state = State::new(registry, pki, domains, delay).with_audit(audit.clone());
                if let Some(aggregator) = aggregator {
                    state.registry.set_extension_caller(aggregator.clone());
                    state = state.with_aggregator(aggregator);
                }
                let unfinished = server.run(Arc::new(state.with_bounds(bounds)), stopped).await?;
                controllers.await?;
                store.close();
                if let Some(audit) = audit {
                    audit.close();
                }
                Ok(unfinished)
            })
        });
        let (kubeconfig, registry) = started.recv().context("the server did not start")?;
        let admin = Client::from_kubeconfig(&kubeconfig)?;
        Ok(TestServer { admin, registry, stop, thread: Some(thread), _directory: directory })
    }

    /// Stops the server and waits for its end. Returns how many requests it did not finish.
    pub fn stop(mut self) -> anyhow::Result<u64> {
        self.stop.cancel();
        let thread = self.thread.take().context("the server has been stopped")?;
        thread.join().map_err(|_| anyhow::anyhow!("the server panicked"))?
    }

    /// A number from the server's metrics.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.admin.get("/metrics").expect(200).text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        match line.and_then(|value| value.parse().ok()) {
            Some(value) => value,
            None => panic!("no metric {name} in\n{text}"),
        }
    }

    /// Makes a plane and returns its administrator, who is nobody anywhere else.
    #[track_caller]
    pub fn plane(&self, name: &str) -> Client {
        plane(&self.admin, name)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Makes a plane and returns its administrator, who is nobody anywhere else.
#[track_caller]
pub fn plane(admin: &Client, name: &str) -> Client {
    let planes = "/apis/polder.dev/v1alpha1/planes";
    let plane = json!({"apiVersion": "polder.dev/v1alpha1", "kind": "Plane", "metadata": {"name": name}});
    admin.post(planes, &plane).expect(201);
    let kubeconfig = admin.post(&format!("{planes}/{name}/kubeconfig"), &json!({})).expect(201).json();
    let kubeconfig = kubeconfig["kubeconfig"].as_str().unwrap_or_default();
    match Client::from_kubeconfig(kubeconfig) {
        Ok(client) => client,
        Err(error) => panic!("not a kubeconfig: {error:#}\n{kubeconfig}"),
    }
}

fn memory_store(site: &bootstrap::Site) -> anyhow::Result<Arc<Store>> {
    let created = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let engine = Box::new(MemoryEngine::default());
    let store =
        Store::open(engine, StoreOptions::default(), &bootstrap::digest(site), |profile, resource_id| {
            bootstrap::records(profile, &created, site, resource_id)
        });
    Ok(store?)
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two servers in one process share nothing.
    #[test]
    fn servers_are_apart() {
        let (one, other) = (TestServer::start(), TestServer::start());
        let maps = "/api/v1/namespaces/default/configmaps";
        let map = json!({"metadata": {"name": "a"}});
        one.plane("acme").post(maps, &map).expect(201);
        one.admin.in_plane("acme").get(&format!("{maps}/a")).expect(200);
        other.plane("acme").get(&format!("{maps}/a")).expect(404);
        let stranger = one.admin.at(other.admin.address);
        assert!(
            stranger.send("GET", "/api", &[], b"").is_err(),
            "the other server's certificate is not trusted"
        );
    }
}
