//! Hands requests on to servers that tenants name, and their answers back: HTTPS only, to addresses that are allowed,
//! bodies in pieces as they come.
//!
//! A call ends when either side goes: whoever drops the answer, or stops waiting for it, closes the connection. A
//! connection is used again only after an answer that was read to its end. How long a call may take is up to the caller.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::dial::{Dial, Dialer};
use crate::egress::Egress;
use crate::idle::{Idle, Place};
use crate::tls::{ClientIdentity, Trust};

/// A server that does not take a connection within this is not there.
const DIAL_PATIENCE: Duration = Duration::from_secs(10);
/// The head of an answer, and what is read of it at a time.
const BUFFER_BYTES_MAX: usize = 64 << 10;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body in either direction: pieces as they come.
pub type ForwardBody = UnsyncBoxBody<Bytes, BoxError>;

/// One call.
pub struct Forward<'a> {
    /// Connections are not shared with other tenants.
    pub tenant: u64,
    /// The name the server's certificate has.
    pub host: &'a str,
    /// Where it is.
    pub dial: (&'a str, u16),
    pub trust: Trust<'a>,
    /// Who this side says it is.
    pub identity: ClientIdentity<'a>,
    /// Any address is allowed.
    pub trusted: bool,
    /// Its URI is path and query.
    pub request: Request<ForwardBody>,
}

/// Hands requests on, and keeps connections.
pub struct Forwarder {
    dialer: Dialer,
    idle: Arc<Mutex<Idle<ForwardBody>>>,
    tasks: TaskTracker,
}

impl Forwarder {
    pub fn new(egress: Egress) -> Forwarder {
        Forwarder { dialer: Dialer::new(egress), idle: Arc::default(), tasks: TaskTracker::new() }
    }

    /// The answer with whatever code, or why there is none.
    pub async fn forward(&self, call: Forward<'_>) -> Result<Response<ForwardBody>, String> {
        let Forward { tenant, host, dial, trust, identity, trusted, request } = call;
        let mut hash = DefaultHasher::new();
        (trust, dial, identity.certificate, trusted).hash(&mut hash);
        let place: Place = (tenant, host.to_owned(), dial.1, hash.finish());
        let kept = self.idle.lock().take(&place);
        let request = match kept {
            None => request,
            Some(mut sender) => {
                // A question can be asked twice.
                let is_question = matches!(*request.method(), Method::GET | Method::HEAD);
                let again = (is_question && request.body().is_end_stream()).then(|| bare(&request));
                match sender.try_send_request(request).await {
                    Ok(response) => return Ok(self.answered(place, sender, response)),
                    // It was closed while nobody used it: another one is tried.
                    Err(mut error) => match (error.take_message(), again) {
                        (Some(unsent), _) => unsent,
                        (None, Some(again)) => again,
                        (None, None) => return Err(told(error.error())),
                    },
                }
            }
        };
        let dial = Dial { tenant, host, to: dial, trust, identity: Some(identity), trusted };
        let stream = tokio::time::timeout(DIAL_PATIENCE, self.dialer.connect(dial)).await;
        let stream = stream.map_err(|_| "dial tcp: i/o timeout")??;
        let handshake = http1::Builder::new().max_buf_size(BUFFER_BYTES_MAX).handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(|error| told(&error))?;
        self.tasks.spawn(async move {
            // Whoever uses the connection learns of its end.
            connection.await.ok();
        });
        let response = sender.send_request(request).await.map_err(|error| told(&error))?;
        Ok(self.answered(place, sender, response))
    }

    fn answered(
        &self,
        place: Place,
        sender: SendRequest<ForwardBody>,
        response: Response<Incoming>,
    ) -> Response<ForwardBody> {
        let (back, idle) = (Some((place, sender)), self.idle.clone());
        response.map(|incoming| UnsyncBoxBody::new(Forwarded { incoming, back, idle }))
    }
}

/// The same request without a body.
fn bare(request: &Request<ForwardBody>) -> Request<ForwardBody> {
    let empty = http_body_util::Empty::new().map_err(|never| match never {});
    let mut copy = Request::new(UnsyncBoxBody::new(empty));
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    copy
}

fn told(error: &hyper::Error) -> String {
    if error.is_incomplete_message() { "EOF".into() } else { error.to_string() }
}

/// The body of an answer. Its connection is used again when it has been read to the end, and closed when it is dropped.
struct Forwarded {
    incoming: Incoming,
    back: Option<(Place, SendRequest<ForwardBody>)>,
    idle: Arc<Mutex<Idle<ForwardBody>>>,
}

impl Body for Forwarded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.incoming).poll_frame(context);
        if let Poll::Ready(None) = &polled
            && let Some((place, sender)) = self.back.take()
        {
            self.idle.lock().give_back(place, sender);
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        // Not before the end was read, or the connection would not be given back.
        false
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
