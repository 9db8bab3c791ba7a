//! Posts to servers that tenants name: HTTPS only, to addresses that are allowed, in bounded time and memory.
//!
//! Failures are told in the words that kube-apiserver uses, because people search for those. Connections ([`crate::dial`])
//! are kept for a while, each for one plane.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::dial::{Dial, Dialer};
use crate::egress::Egress;
use crate::idle::{Idle, Place};
use crate::room::{Held, Room};
use crate::tls::Trust;

/// What is read of an answer: a patch of the largest object, twice.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Of an answer that is a failure, this much is shown.
const SHOWN_LEN_MAX: usize = 1024;
/// Said when other calls hold too much.
const NO_ROOM: &str = "too many long webhook calls are under way";
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
    dialer: Dialer,
    room: Arc<Room>,
    idle: Mutex<Idle<Full<Bytes>>>,
    tasks: TaskTracker,
}

type Sender = SendRequest<Full<Bytes>>;

impl Poster {
    pub fn new(egress: Egress) -> Poster {
        Poster {
            dialer: Dialer::new(egress),
            room: Arc::default(),
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
        let dial = Dial {
            tenant: post.tenant,
            host: &host,
            to: post.dial.unwrap_or((&host, port)),
            trust: Trust::Authorities(post.authorities),
            identity: None,
            trusted: post.trusted,
        };
        let mut sender = self.connect(dial).await?;
        match sender.send_request(request()?).await {
            Ok(response) => self.read(place, sender, response, held).await,
            Err(error) if error.is_incomplete_message() => Err(way("EOF")),
            Err(error) => Err(way(&error.to_string())),
        }
    }

    async fn connect(&self, dial: Dial<'_>) -> Result<Sender, Trouble> {
        let stream = self.dialer.connect(dial).await.map_err(Trouble::OnTheWay)?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|error| Trouble::OnTheWay(error.to_string()))?;
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
