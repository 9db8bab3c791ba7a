//! One call of gRPC: a message in a frame there, a message in a frame back, and how it went in the trailers.

use std::path::Path;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixStream;

use super::KmsError;

const ANSWER_LEN_MAX: usize = 64 << 10;
/// So much of what a plugin says goes into a message.
const MESSAGE_LEN_MAX: usize = 512;

pub(super) async fn call(
    path: &Path,
    timeout: Duration,
    method: &str,
    message: Vec<u8>,
) -> Result<Vec<u8>, KmsError> {
    let called = tokio::time::timeout(timeout, exchange(path, timeout, method, message)).await;
    called.unwrap_or_else(|_| Err(KmsError::Timeout { path: path.to_owned(), timeout }))
}

async fn exchange(
    path: &Path,
    timeout: Duration,
    method: &str,
    message: Vec<u8>,
) -> Result<Vec<u8>, KmsError> {
    let stream = UnixStream::connect(path).await;
    let stream = stream.map_err(|source| KmsError::Connect { path: path.to_owned(), source })?;
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| KmsError::Protocol {
        path: path.to_owned(),
        source,
    };
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(error.into()))?;

    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(&message);
    let request = Request::post(format!("http://localhost/v2.KeyManagementService/{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header(header::TE, "trailers")
        .header(header::USER_AGENT, "polder")
        .header("grpc-timeout", format!("{}m", timeout.as_millis()))
        .body(Full::new(frame.freeze()))
        .map_err(|error| failed(error.into()))?;
    let answered = async {
        let response = sender.send_request(request).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_LEN_MAX).collect().await?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((head, trailers, body.to_bytes()))
    };
    // The connection is driven here: it ends with the call.
    let (head, trailers, body) = tokio::select! {
        answered = answered => answered.map_err(failed)?,
        ended = connection => {
            let source = ended.map_or_else(Into::into, |()| "the connection ended".into());
            return Err(failed(source));
        }
    };
    if !head.status.is_success() {
        return Err(failed(format!("it answers with HTTP status {}", head.status.as_u16()).into()));
    }
    // An answer without a message has its trailers in its head.
    match status(&trailers).or_else(|| status(&head.headers)) {
        Some((0, _)) => unframed(&body).ok_or_else(|| failed("its message is cut off".into())),
        Some((code, message)) => Err(KmsError::Refused { path: path.to_owned(), code, message }),
        None => Err(failed("it does not say how the call went".into())),
    }
}

/// Code and words of an outcome.
fn status(headers: &HeaderMap) -> Option<(u32, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
    Some((code, message.chars().filter(|char| !char.is_control()).take(MESSAGE_LEN_MAX).collect()))
}

/// The one message of an answer; compressed ones were not asked for.
fn unframed(body: &Bytes) -> Option<Vec<u8>> {
    let (&[0, a, b, c, d], message) = body.split_first_chunk::<5>()? else { return None };
    (message.len() == u32::from_be_bytes([a, b, c, d]) as usize).then(|| message.to_vec())
}
