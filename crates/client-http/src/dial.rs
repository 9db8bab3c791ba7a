//! Connections to servers that tenants name: to addresses that are allowed, over TLS, with bounded look-ups of names.
//!
//! The address that was looked at is the one that is connected to. Failures are told in the words of Go's programs,
//! because people search for those.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::TaskTracker;

use crate::egress::Egress;
use crate::tls::{self, ClientIdentity, Trust};

/// Names that are looked up at one time, by all and by one tenant: each takes a thread, and may take long.
const LOOKUPS_MAX: usize = 64;
const TENANT_LOOKUPS_MAX: usize = 2;
/// TLS settings that are kept: one for each set of authorities and each identity.
const SETTINGS_LEN_MAX: usize = 256;
/// Longer sets are read anew each time.
const KEPT_LEN_MAX: usize = 64 << 10;

/// Which server is meant.
#[derive(Clone, Copy)]
pub(crate) struct Dial<'a> {
    pub(crate) tenant: u64,
    /// The name its certificate has.
    pub(crate) host: &'a str,
    /// Where it is.
    pub(crate) to: (&'a str, u16),
    pub(crate) trust: Trust<'a>,
    /// Who this side says it is.
    pub(crate) identity: Option<ClientIdentity<'a>>,
    /// Any address is allowed.
    pub(crate) trusted: bool,
}

pub(crate) struct Dialer {
    egress: Egress,
    names: Names,
    settings: Mutex<Kept>,
}

/// What settings depend on, and nothing else: the certificate of this side, and by what the server is known.
type Settings = (Vec<u8>, bool, Vec<u8>);

/// Settings that were made. They hold nothing of any connection, so tenants with the same share them.
#[derive(Default)]
struct Kept {
    made: HashMap<Settings, Made>,
    clock: u64,
}

struct Made {
    config: Arc<ClientConfig>,
    /// Who needed them first, and when they were last used.
    tenant: u64,
    used: u64,
}

impl Kept {
    fn get(&mut self, key: &Settings) -> Option<Arc<ClientConfig>> {
        self.clock += 1;
        let made = self.made.get_mut(key)?;
        made.used = self.clock;
        Some(made.config.clone())
    }

    /// Keeps one more. When there are too many, it is the tenant with the most that loses what it used longest ago.
    fn put(&mut self, key: Settings, config: Arc<ClientConfig>, tenant: u64) {
        self.clock += 1;
        self.made.insert(key, Made { config, tenant, used: self.clock });
        if self.made.len() <= SETTINGS_LEN_MAX {
            return;
        }
        let mut counts: HashMap<u64, usize> = HashMap::new();
        self.made.values().for_each(|made| *counts.entry(made.tenant).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(tenant, count)| (*count, *tenant));
        let own = self.made.iter().filter(|(_, made)| most.is_some_and(|(tenant, _)| tenant == made.tenant));
        let oldest = own.min_by_key(|(_, made)| made.used).map(|(key, _)| key.clone());
        oldest.and_then(|oldest| self.made.remove(&oldest));
    }
}

impl Dialer {
    pub(crate) fn new(egress: Egress) -> Dialer {
        Dialer { egress, names: Names::default(), settings: Mutex::default() }
    }

    pub(crate) async fn connect(&self, dial: Dial<'_>) -> Result<TlsStream<TcpStream>, String> {
        let Dial { host, to: (dial_host, dial_port), .. } = dial;
        let settings = self.settings(dial.tenant, dial.trust, dial.identity)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
        let addresses: Vec<SocketAddr> = match dial_host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, dial_port)],
            Err(_) => {
                self.names.look_up(dial.tenant, dial_host, dial_port).await.map_err(|_| unknown(dial_host))?
            }
        };
        let mut problem = unknown(dial_host);
        let mut stream = None;
        for address in addresses {
            if !dial.trusted && !self.egress.permits(address.ip()) {
                // Where a name leads is not told, nor whether it leads anywhere: it may be known only here.
                if dial_host.parse::<IpAddr>().is_ok() {
                    problem = format!("dial tcp: this server does not connect to {dial_host}");
                }
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(connected) => {
                    stream = Some(connected);
                    break;
                }
                Err(error) => problem = format!("dial tcp {address}: {}", connect_problem(&error)),
            }
        }
        let stream = stream.ok_or(problem)?;
        stream.set_nodelay(true).ok();
        let stream = TlsConnector::from(settings).connect(name, stream).await;
        stream.map_err(|error| tls_problem(&error, host))
    }

    fn settings(
        &self,
        tenant: u64,
        trust: Trust<'_>,
        identity: Option<ClientIdentity<'_>>,
    ) -> Result<Arc<ClientConfig>, String> {
        let (anybody, authorities) = match trust {
            Trust::Authorities(pem) => (false, pem),
            Trust::Anybody => (true, &[][..]),
        };
        let certificate = identity.map_or(&[][..], |identity| identity.certificate);
        let key = (certificate.to_vec(), anybody, authorities.to_vec());
        if let Some(known) = self.settings.lock().get(&key) {
            return Ok(known.clone());
        }
        let made = tls::server_config(trust, identity);
        let mut made = made.map_err(|error| format!("unable to load root certificates: {error}"))?;
        // A session that one tenant's server began is not gone on with by another's, and each server proves who it is.
        made.resumption = Resumption::disabled();
        let made = Arc::new(made);
        if authorities.len() <= KEPT_LEN_MAX {
            self.settings.lock().put(key, made.clone(), tenant);
        }
        Ok(made)
    }
}

/// Who looks up names.
struct Names {
    all: Arc<Semaphore>,
    tenants: Mutex<HashMap<u64, Arc<Semaphore>>>,
    tasks: TaskTracker,
}

impl Default for Names {
    fn default() -> Names {
        Names {
            all: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            tenants: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }
}

impl Names {
    async fn look_up(&self, tenant: u64, host: &str, port: u16) -> std::io::Result<Vec<SocketAddr>> {
        if is_local(host) {
            return Ok(vec![(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()]);
        }
        let own = {
            let mut tenants = self.tenants.lock();
            if tenants.len() > LOOKUPS_MAX {
                tenants.retain(|_, own| Arc::strong_count(own) > 1);
            }
            tenants.entry(tenant).or_insert_with(|| Arc::new(Semaphore::new(TENANT_LOOKUPS_MAX))).clone()
        };
        let turn = own.acquire_owned().await.map_err(std::io::Error::other)?;
        let place = self.all.clone().acquire_owned().await.map_err(std::io::Error::other)?;
        let host = host.to_owned();
        // Its thread is taken until it ends, also when nobody waits for it any more.
        let looking = self.tasks.spawn(async move {
            let found = tokio::net::lookup_host((host.as_str(), port)).await.map(Iterator::collect);
            drop((turn, place));
            found
        });
        looking.await.map_err(std::io::Error::other)?
    }
}

/// Names of this machine to itself (RFC 6761): nobody else is asked about them. Whether it may be connected to is another
/// question.
fn is_local(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let last = host.rsplit('.').next().unwrap_or_default();
    last.eq_ignore_ascii_case("localhost")
}

/// The same for a name that nobody knows and for one that leads where this server does not connect to.
fn unknown(host: &str) -> String {
    format!("dial tcp: lookup {host}: no such host, or none that this server connects to")
}

fn connect_problem(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        ErrorKind::HostUnreachable => "connect: no route to host".into(),
        ErrorKind::TimedOut => "i/o timeout".into(),
        _ => format!("connect: {error}"),
    }
}

fn tls_problem(error: &std::io::Error, host: &str) -> String {
    use rustls::CertificateError as Certificate;
    let source = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    let verify = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
    match source {
        Some(rustls::Error::InvalidCertificate(problem)) => match problem {
            // The last one: a certificate that could sign others and is not listed itself.
            Certificate::UnknownIssuer | Certificate::BadSignature | Certificate::Other(_) => {
                verify("certificate signed by unknown authority")
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                verify("certificate has expired or is not yet valid")
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                verify("certificate has expired or is not yet valid")
            }
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                verify(&format!("certificate is not valid for {host}"))
            }
            other => verify(&other.to_string()),
        },
        Some(other) => format!("tls: {other}"),
        None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".into(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_names() {
        for (host, expected) in [
            ("localhost", true),
            ("api.localhost", true),
            ("api.LOCALHOST.", true),
            ("localhost.example", false),
            ("notlocalhost", false),
            ("", false),
        ] {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }

    #[test]
    fn settings_are_shared_and_bounded() {
        let dialer = Dialer::new(Egress::default());
        let anybody = |tenant| dialer.settings(tenant, Trust::Anybody, None).unwrap();
        let first = anybody(1);
        assert!(Arc::ptr_eq(&first, &anybody(2)), "they are the same for everybody");
        let key = |text: &str| (Vec::new(), false, text.as_bytes().to_vec());
        let mut kept = dialer.settings.lock();
        for tenant in 10..20 {
            kept.put(key(&format!("of {tenant}")), first.clone(), tenant);
        }
        for count in 0..10 * SETTINGS_LEN_MAX {
            kept.put(key(&format!("text {count}")), first.clone(), 3);
            assert!(kept.made.len() <= SETTINGS_LEN_MAX);
        }
        let others = (10..20).filter(|tenant| kept.get(&key(&format!("of {tenant}"))).is_some()).count();
        assert_eq!(others, 10, "nobody pushes out what others use");
        let newest = format!("text {}", 10 * SETTINGS_LEN_MAX - 1);
        assert!(kept.get(&key(&newest)).is_some() && kept.get(&key("text 0")).is_none());
    }
}
