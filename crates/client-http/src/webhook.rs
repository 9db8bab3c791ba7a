//! Posts to servers that tenants name: HTTPS only, to addresses that are allowed, in bounded time and memory.
//!
//! Failures are told in the words that kube-apiserver uses, because people search for those. Connections are kept for
//! a while, each for one plane; names are looked up for each new one, and the address that was looked at is the one that
//! is connected to.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_util::task::TaskTracker;

use crate::egress::Egress;
use crate::room::{Held, Room};
use crate::tls;

/// What is read of an answer: a patch of the largest object, twice.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Of an answer that is a failure, this much is shown.
const SHOWN_LEN_MAX: usize = 1024;
/// Connections that wait for the next call, in all, of one tenant and for one server: each is a socket and a task.
const IDLE_LEN_MAX: usize = 512;
const IDLE_TENANT_MAX: usize = 32;
const IDLE_EACH_MAX: usize = 4;
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Said when other calls hold too much.
const NO_ROOM: &str = "too many long webhook calls are under way";
/// Names that are looked up at one time, by all and by one tenant: each takes a thread, and may take long.
const LOOKUPS_MAX: usize = 64;
const TENANT_LOOKUPS_MAX: usize = 2;
/// TLS settings that are kept: one for each set of authorities.
const SETTINGS_LEN_MAX: usize = 256;
/// Longer sets are read anew each time.
const KEPT_LEN_MAX: usize = 64 << 10;

/// One call.
#[derive(Debug)]
pub struct Post<'a> {
    /// Connections are not shared with other tenants.
    pub tenant: u64,
    pub url: &'a str,
    /// Where to connect to instead of the host of the URL.
    pub dial: Option<(&'a str, u16)>,
    /// PEM; empty means those of the system.
    pub authorities: &'a [u8],
    pub body: Vec<u8>,
    pub timeout: Duration,
    /// Any address is allowed.
    pub trusted: bool,
}

/// Posts, and keeps connections.
pub struct Poster {
    egress: Egress,
    room: Arc<Room>,
    names: Names,
    settings: Mutex<HashMap<Vec<u8>, Arc<ClientConfig>>>,
    idle: Mutex<Idle>,
    tasks: TaskTracker,
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

type Sender = SendRequest<Full<Bytes>>;
type Place = (u64, String, u16, u64);

#[derive(Default)]
struct Idle {
    places: HashMap<Place, Vec<(Sender, Instant)>>,
    len: usize,
    /// When those that had waited too long were last let go.
    swept: Option<Instant>,
}

impl Idle {
    fn take(&mut self, place: &Place) -> Option<Sender> {
        let senders = self.places.get_mut(place)?;
        let mut found = None;
        while let Some((sender, since)) = senders.pop() {
            self.len -= 1;
            if since.elapsed() < IDLE_MAX && sender.is_ready() {
                found = Some(sender);
                break;
            }
        }
        if senders.is_empty() {
            self.places.remove(place);
        }
        found
    }

    fn give_back(&mut self, place: Place, sender: Sender) {
        if self.len >= IDLE_LEN_MAX || self.swept.is_none_or(|swept| swept.elapsed() >= IDLE_MAX) {
            self.swept = Some(Instant::now());
            self.places.retain(|_, senders| {
                senders.retain(|(sender, since)| since.elapsed() < IDLE_MAX && !sender.is_closed());
                !senders.is_empty()
            });
            self.len = self.places.values().map(Vec::len).sum();
        }
        let own = self.places.iter().filter(|((tenant, ..), _)| *tenant == place.0);
        let own: usize = own.map(|(_, senders)| senders.len()).sum();
        let each = self.places.get(&place).map_or(0, Vec::len);
        if self.len < IDLE_LEN_MAX && own < IDLE_TENANT_MAX && each < IDLE_EACH_MAX {
            self.places.entry(place).or_default().push((sender, Instant::now()));
            self.len += 1;
        }
    }
}

impl Poster {
    pub fn new(egress: Egress) -> Poster {
        Poster {
            egress,
            room: Arc::default(),
            names: Names::default(),
            settings: Mutex::default(),
            idle: Mutex::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// The body of the answer, or why there is none.
    pub async fn post(&self, post: Post<'_>) -> Result<Vec<u8>, String> {
        let (url, timeout) = (post.url, post.timeout);
        let failed = |why: String| format!("Post {url:?}: {why}");
        match tokio::time::timeout(timeout, self.try_post(post)).await {
            Err(_) => Err(failed("context deadline exceeded".into())),
            Ok(Err(Trouble::OnTheWay(why))) => Err(failed(why)),
            Ok(Err(Trouble::Answer(why))) => Err(why),
            Ok(Ok(body)) => Ok(body),
        }
    }

    async fn try_post(&self, post: Post<'_>) -> Result<Vec<u8>, Trouble> {
        let way = |why: &str| Trouble::OnTheWay(why.to_owned());
        let uri: Uri = post.url.parse().map_err(|_| way("invalid URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(way("unsupported protocol scheme"));
        }
        let host =
            uri.host().ok_or_else(|| way("no Host in request URL"))?.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(443);
        let mut hash = DefaultHasher::new();
        (post.authorities, post.dial, post.trusted).hash(&mut hash);
        let place: Place = (post.tenant, host.clone(), port, hash.finish());
        let mut held = Held::new(&self.room, post.tenant);
        if !held.grow(post.body.len()) {
            return Err(way(NO_ROOM));
        }
        let body = Bytes::from(post.body);
        let request = || {
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            Request::post(path)
                .header(header::HOST, uri.authority().map_or("", |authority| authority.as_str()))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json, */*")
                .header(header::USER_AGENT, "kube-apiserver-admission")
                .body(Full::new(body.clone()))
                .map_err(|_| way("invalid URL"))
        };
        let kept = self.idle.lock().take(&place);
        if let Some(mut sender) = kept {
            match sender.send_request(request()?).await {
                Ok(response) => return self.read(place, sender, response, held).await,
                // It was closed while nobody used it: another one is tried.
                Err(error) if error.is_canceled() || error.is_incomplete_message() => {}
                Err(error) => return Err(way(&error.to_string())),
            }
        }
        let dial = post.dial.unwrap_or((&host, port));
        let mut sender = self.connect(post.tenant, &host, dial, post.authorities, post.trusted).await?;
        match sender.send_request(request()?).await {
            Ok(response) => self.read(place, sender, response, held).await,
            Err(error) if error.is_incomplete_message() => Err(way("EOF")),
            Err(error) => Err(way(&error.to_string())),
        }
    }

    async fn connect(
        &self,
        tenant: u64,
        host: &str,
        (dial_host, dial_port): (&str, u16),
        authorities: &[u8],
        trusted: bool,
    ) -> Result<Sender, Trouble> {
        let way = Trouble::OnTheWay;
        let settings = self.settings(authorities).map_err(way)?;
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| way(format!("dial tcp: lookup {host}: no such host")))?;
        let addresses: Vec<SocketAddr> = match dial_host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, dial_port)],
            Err(_) => self
                .names
                .look_up(tenant, dial_host, dial_port)
                .await
                .map_err(|_| way(format!("dial tcp: lookup {dial_host}: no such host")))?,
        };
        let mut problem = format!("dial tcp: lookup {dial_host}: no such host");
        let mut stream = None;
        for address in addresses {
            if !trusted && !self.egress.permits(address.ip()) {
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
        let stream = stream.ok_or_else(|| way(problem))?;
        stream.set_nodelay(true).ok();
        let stream = TlsConnector::from(settings).connect(name, stream).await;
        let stream = stream.map_err(|error| way(tls_problem(&error, host)))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| way(error.to_string()))?;
        self.tasks.spawn(async move {
            // Whoever uses the connection learns of its end.
            connection.await.ok();
        });
        Ok(sender)
    }

    async fn read(
        &self,
        place: Place,
        sender: Sender,
        response: http::Response<hyper::body::Incoming>,
        mut held: Held,
    ) -> Result<Vec<u8>, Trouble> {
        let status = response.status();
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_text = kind.is_none_or(|kind| kind.starts_with("text/"));
        let mut incoming = response.into_body();
        let mut body = Vec::new();
        while let Some(frame) = incoming.frame().await {
            let frame = frame.map_err(|_| Trouble::OnTheWay("unexpected EOF".into()))?;
            let Ok(piece) = frame.into_data() else { continue };
            let len = body.len() + piece.len();
            if len > ANSWER_BYTES_MAX {
                let why = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
                return Err(Trouble::OnTheWay(why));
            }
            if !held.grow(len) {
                return Err(Trouble::OnTheWay(NO_ROOM.into()));
            }
            body.extend_from_slice(&piece);
        }
        self.idle.lock().give_back(place, sender);
        if status.is_success() {
            return Ok(body);
        }
        let shown = match is_text {
            true => String::from_utf8_lossy(&body[..body.len().min(SHOWN_LEN_MAX)]).trim().to_owned(),
            false => "unknown".to_owned(),
        };
        Err(Trouble::Answer(unsuccessful(status, shown)))
    }

    fn settings(&self, authorities: &[u8]) -> Result<Arc<ClientConfig>, String> {
        if let Some(known) = self.settings.lock().get(authorities) {
            return Ok(known.clone());
        }
        let made = tls::server_config((!authorities.is_empty()).then_some(authorities));
        let made = Arc::new(made.map_err(|error| format!("unable to load root certificates: {error}"))?);
        if authorities.len() > KEPT_LEN_MAX {
            return Ok(made);
        }
        let mut settings = self.settings.lock();
        if settings.len() >= SETTINGS_LEN_MAX {
            settings.clear();
        }
        settings.insert(authorities.to_vec(), made.clone());
        Ok(made)
    }
}

enum Trouble {
    OnTheWay(String),
    /// It answered, and this is what upstream makes of that.
    Answer(String),
}

/// What client-go says about an answer that is no success.
fn unsuccessful(status: StatusCode, shown: String) -> String {
    let fixed = match status {
        StatusCode::BAD_REQUEST => "the server rejected our request for an unknown reason",
        StatusCode::UNAUTHORIZED => "the server has asked for the client to provide credentials",
        StatusCode::FORBIDDEN | StatusCode::NOT_ACCEPTABLE | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            return shown;
        }
        StatusCode::NOT_FOUND => "the server could not find the requested resource",
        StatusCode::METHOD_NOT_ALLOWED => "the server does not allow this method on the requested resource",
        StatusCode::CONFLICT => "the server reported a conflict",
        StatusCode::UNPROCESSABLE_ENTITY => "the server rejected our request due to an error in our request",
        StatusCode::TOO_MANY_REQUESTS => {
            "the server has received too many requests and has asked us to try again later"
        }
        StatusCode::SERVICE_UNAVAILABLE => "the server is currently unable to handle the request",
        StatusCode::GATEWAY_TIMEOUT => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        _ if status.is_server_error() => {
            return format!("an error on the server ({shown:?}) has prevented the request from succeeding");
        }
        _ => {
            let code = status.as_u16();
            return format!(
                "the server responded with the status code {code} but did not return more information"
            );
        }
    };
    fixed.to_owned()
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
            Certificate::UnknownIssuer | Certificate::BadSignature => {
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
