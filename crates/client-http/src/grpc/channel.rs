//! One connection, and the calls on it.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::rt::{Read, Write};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::frames::{Frames, framed};
use super::{Endpoint, GrpcError, MESSAGE_LEN_MAX};

/// How often a peer that is waited for is asked whether it is there. Servers may close connections that ask more often.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_PATIENCE: Duration = Duration::from_secs(5);
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Messages of a stream that wait to be sent.
const OUTGOING_LEN_MAX: usize = 4;

/// What is called, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// `package.Service/Method`.
    pub method: &'a str,
    pub metadata: &'a [(&'static str, &'a str)],
    pub message: &'a [u8],
    /// When to give up: a call whole, a stream until it has begun.
    pub timeout: Duration,
    /// How long a message of an answer may be.
    pub answer_len_max: usize,
}

/// An open connection. It ends when this is dropped, with all calls on it.
pub struct Channel {
    sender: http2::SendRequest<Sent>,
    base: String,
    /// What drives the connection.
    _driver: JoinSet<()>,
}

impl Channel {
    /// Connects within a time.
    pub async fn connect(endpoint: &Endpoint, timeout: Duration) -> Result<Channel, GrpcError> {
        let connecting = async {
            let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
            let stream = stream.map_err(GrpcError::Connect)?;
            stream.set_nodelay(true).ok();
            match &endpoint.tls {
                None => Channel::over(TokioIo::new(stream), endpoint.url.clone()).await,
                Some((connector, name)) => {
                    let stream = connector.connect(name.clone(), stream).await;
                    let stream = stream.map_err(|error| GrpcError::Handshake(error.into()))?;
                    Channel::over(TokioIo::new(stream), endpoint.url.clone()).await
                }
            }
        };
        let connected = tokio::time::timeout(timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(GrpcError::Connect(std::io::ErrorKind::TimedOut.into())))
    }

    /// Connects to a socket of this machine.
    pub async fn connect_unix(path: &Path) -> Result<Channel, GrpcError> {
        let stream = UnixStream::connect(path).await.map_err(GrpcError::Connect)?;
        Channel::over(TokioIo::new(stream), "http://localhost".to_owned()).await
    }

    async fn over<I>(io: I, base: String) -> Result<Channel, GrpcError>
    where
        I: Read + Write + Unpin + Send + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_PATIENCE);
        let handshake = builder.handshake(io).await;
        let (sender, connection) = handshake.map_err(|error| GrpcError::Handshake(error.into()))?;
        let mut driver = JoinSet::new();
        // What breaks a connection is reported by the calls on it.
        driver.spawn(async move { connection.await.unwrap_or_default() });
        Ok(Channel { sender, base, _driver: driver })
    }

    /// Whether a call on it would come to nothing.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// A message there, a message back.
    pub async fn call(&self, call: Call<'_>) -> Result<Bytes, GrpcError> {
        let deadline = Instant::now() + call.timeout;
        let sent = Sent { first: Some(framed(call.message)), more: None };
        let timeout = format!("{}m", call.timeout.as_millis());
        let called = async {
            let mut messages = self.begin(&call, Some(&timeout), sent).await?;
            let message = messages.next().await?;
            // What is behind the message says how the call went.
            match (message, messages.next().await?) {
                (Some(message), None) => Ok(message),
                _ => Err(GrpcError::protocol("not one message is its answer")),
            }
        };
        timeout_at(deadline, called).await.unwrap_or(Err(GrpcError::Timeout))
    }

    /// A first message there; from then on either side may send more.
    pub async fn stream(&self, call: Call<'_>) -> Result<(Outgoing, Messages), GrpcError> {
        let (outgoing, more) = mpsc::channel(OUTGOING_LEN_MAX);
        let sent = Sent { first: Some(framed(call.message)), more: Some(more) };
        let begun = tokio::time::timeout(call.timeout, self.begin(&call, None, sent)).await;
        Ok((Outgoing(outgoing), begun.unwrap_or(Err(GrpcError::Timeout))?))
    }

    async fn begin(&self, call: &Call<'_>, timeout: Option<&str>, sent: Sent) -> Result<Messages, GrpcError> {
        let mut request = Request::post(format!("{}/{}", self.base, call.method))
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers")
            .header(header::USER_AGENT, "polder");
        if let Some(timeout) = timeout {
            request = request.header("grpc-timeout", timeout);
        }
        for (name, value) in call.metadata {
            request = request.header(*name, *value);
        }
        let request = request.body(sent).map_err(|error| GrpcError::Unsent(error.into()))?;
        let mut sender = self.sender.clone();
        sender.ready().await.map_err(|error| GrpcError::Unsent(error.into()))?;
        let response = sender.try_send_request(request).await.map_err(|mut error| {
            let is_whole = error.take_message().is_some();
            let error = error.into_error();
            if is_whole { GrpcError::Unsent(error.into()) } else { GrpcError::Protocol(error.into()) }
        })?;
        Messages::new(response, call.answer_len_max)
    }
}

/// What is sent on a call.
struct Sent {
    first: Option<Bytes>,
    more: Option<mpsc::Receiver<Bytes>>,
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(more) = &mut self.more else { return Poll::Ready(None) };
        let message = ready!(more.poll_recv(context));
        Poll::Ready(message.map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.more.is_none()
    }
}

/// This side of a stream. The other is told of the end when this is dropped.
pub struct Outgoing(mpsc::Sender<Bytes>);

impl Outgoing {
    /// Sends another message; false when the stream has ended.
    pub async fn send(&self, message: &[u8]) -> bool {
        self.0.send(framed(message)).await.is_ok()
    }
}

/// The other side of a stream. What is not taken is not read from the network.
pub struct Messages {
    body: Incoming,
    frames: Frames,
    /// How the call went, if its head says so: an answer without a message has its trailers there.
    told: Option<(u32, String)>,
}

impl Messages {
    fn new(response: Response<Incoming>, message_len_max: usize) -> Result<Messages, GrpcError> {
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            let status = head.status.as_u16();
            return Err(GrpcError::protocol(format!("it answers with HTTP status {status}")));
        }
        Ok(Messages { body, frames: Frames::new(message_len_max), told: status(&head.headers) })
    }

    /// The next message; `None` when the stream has ended well.
    pub async fn next(&mut self) -> Result<Option<Bytes>, GrpcError> {
        loop {
            if let Some(message) = self.frames.next().map_err(GrpcError::protocol)? {
                return Ok(Some(message));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(arrived) => self.frames.push(&arrived),
                    Err(frame) => {
                        self.told = frame.trailers_ref().and_then(status).or(self.told.take());
                    }
                },
                Some(Err(error)) => return Err(GrpcError::Protocol(error.into())),
                None => {
                    return match self.told.take() {
                        Some((0, _)) if !self.frames.is_empty() => {
                            Err(GrpcError::protocol("its message is cut off"))
                        }
                        Some((0, _)) => {
                            self.told = Some((0, String::new()));
                            Ok(None)
                        }
                        Some((code, message)) => Err(GrpcError::Status { code, message }),
                        None => Err(GrpcError::protocol("it does not say how the call went")),
                    };
                }
            }
        }
    }
}

/// Code and words of an outcome.
fn status(headers: &HeaderMap<HeaderValue>) -> Option<(u32, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
    Some((code, message.chars().filter(|char| !char.is_control()).take(MESSAGE_LEN_MAX).collect()))
}
