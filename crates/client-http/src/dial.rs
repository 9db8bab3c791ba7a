//! Connections to servers that tenants name: to addresses that are allowed, over TLS, with bounded look-ups of names.
//!
//! The address that was looked at is the one that is connected to. Failures are told in the words of Go's programs,
//! because people search for those.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::ClientConfig;
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
    settings: Mutex<HashMap<Settings, Arc<ClientConfig>>>,
}

/// What settings depend on: the certificate of this side, and by what the server is known.
type Settings = (Vec<u8>, bool, Vec<u8>);

impl Dialer {
    pub(crate) fn new(egress: Egress) -> Dialer {
        Dialer { egress, names: Names::default(), settings: Mutex::default() }
    }

    pub(crate) async fn connect(&self, dial: Dial<'_>) -> Result<TlsStream<TcpStream>, String> {
        let Dial { host, to: (dial_host, dial_port), .. } = dial;
        let settings = self.settings(dial.trust, dial.identity)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
        let addresses: Vec<SocketAddr> = match dial_host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, dial_port)],
            Err(_) => self
                .names
                .look_up(dial.tenant, dial_host, dial_port)
                .await
                .map_err(|_| format!("dial tcp: lookup {dial_host}: no such host"))?,
        };
        let mut problem = format!("dial tcp: lookup {dial_host}: no such host");
        let mut stream = None;
        for address in addresses {
            if !dial.trusted && !self.egress.permits(address.ip()) {
                // Where a name leads is not told: it may be known only here.
                problem = format!("dial tcp: this server does not connect to {dial_host}");
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
        let made = Arc::new(made.map_err(|error| format!("unable to load root certificates: {error}"))?);
        if authorities.len() > KEPT_LEN_MAX {
            return Ok(made);
        }
        let mut settings = self.settings.lock();
        if settings.len() >= SETTINGS_LEN_MAX {
            settings.clear();
        }
        settings.insert(key, made.clone());
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
