//! Watches over web sockets (RFC 6455), as pages in browsers have them: each event is a message.
//!
//! A watch is answered as any other; here its pieces are taken from the answer and sent as messages, by the task of the
//! connection, which is nothing else from then on. What the client sends is not listened to, but for goodbyes and pings.
//!
//! Invariant: what is read of a client is bounded, and a session ends when its watch would have.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Response, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use polder_model::Status;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::answer::Answer;
use crate::body::AnswerBody;

/// What every server puts behind a client's key before it takes the digest.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Messages of clients are thrown away, those that are longer end the session.
const MESSAGE_BYTES_MAX: u64 = 64 * 1024;
/// What is made into messages at a time.
const SEND_BYTES_MAX: usize = 64 * 1024;
const READ_BYTES: usize = 4 * 1024;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Marks an answer whose pieces are events.
#[derive(Clone, Copy)]
pub(crate) struct IsWatch;

/// What a client asked for in its head.
pub(crate) struct Wish {
    accept: HeaderValue,
    protocol: Option<HeaderValue>,
    upgrade: OnUpgrade,
}

/// A watch that goes on in messages.
pub(crate) struct Session {
    upgrade: OnUpgrade,
    events: AnswerBody,
}

/// Whether the words of a header name this one.
pub(crate) fn says(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
}

/// Whether somebody wants to go on with a web socket.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    says(headers, header::CONNECTION, "upgrade") && says(headers, header::UPGRADE, "websocket")
}

impl Wish {
    /// What a request asks for; nothing if it is no web socket, or none that can be had.
    pub(crate) fn of<B>(request: &mut http::Request<B>) -> Option<Wish> {
        let headers = request.headers();
        if request.method() != Method::GET
            || request.version() != Version::HTTP_11
            || !is_wanted(headers)
            || headers.get(header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13")
        {
            return None;
        }
        if is_foreign(headers) {
            return None;
        }
        let accept = accept(headers.get(header::SEC_WEBSOCKET_KEY)?.as_bytes())?;
        // A token among them has been looked at, and is not repeated.
        let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
        let offered = offered.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
        let chosen =
            offered.map(str::trim).find(|one| !one.is_empty() && !one.starts_with("base64url.bearer."));
        let protocol = chosen.and_then(|one| HeaderValue::from_str(one).ok());
        Some(Wish { accept, protocol, upgrade: hyper::upgrade::on(request) })
    }

    /// An answer as it is, unless it is a watch: then that it goes on otherwise, and how.
    pub(crate) fn granted(self, answer: Answer) -> (Answer, Option<Session>) {
        if answer.status() != StatusCode::OK || answer.extensions().get::<IsWatch>().is_none() {
            return (answer, None);
        }
        let session = Session { upgrade: self.upgrade, events: answer.into_body() };
        let mut switched = Response::new(AnswerBody::empty());
        *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = switched.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, self.accept);
        if let Some(protocol) = self.protocol {
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        (switched, Some(session))
    }
}

/// What proves to a client that its key was understood.
/// Whether a page of another site asks in the name of whoever looks at it: browsers show certificates by themselves, and let any page
/// read from a web socket. Who brings a token knows it.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let Some(origin) = text(header::ORIGIN) else { return headers.contains_key(header::ORIGIN) };
    let has_token = headers.contains_key(header::AUTHORIZATION)
        || headers
            .get_all(header::SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .any(|offered| offered.to_str().is_ok_and(|offered| offered.contains("base64url.bearer.")));
    let is_own = origin
        .strip_prefix("https://")
        .is_some_and(|host| text(header::HOST).is_some_and(|own| own.eq_ignore_ascii_case(host)));
    !is_own && !has_token
}

fn accept(key: &[u8]) -> Option<HeaderValue> {
    let is_key = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    let proof = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, MAGIC.as_bytes()].concat());
    is_key.then(|| HeaderValue::from_str(&STANDARD.encode(proof)).ok())?
}

impl Session {
    /// Sends events until there are no more, the client says goodbye or its time is over.
    pub(crate) async fn run(self) -> Result<(), std::io::Error> {
        let Session { upgrade, events } = self;
        let Ok(upgraded) = upgrade.await else { return Ok(()) };
        let deadline = events.deadline();
        let exchange = exchange(TokioIo::new(upgraded), events);
        match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, exchange).await.unwrap_or(Ok(())),
            None => exchange.await,
        }
    }
}

async fn exchange(mut stream: TokioIo<Upgraded>, mut events: AnswerBody) -> Result<(), std::io::Error> {
    let (mut heard, mut rest) = (BytesMut::with_capacity(READ_BYTES), Bytes::new());
    loop {
        let mut out = BytesMut::new();
        let mut is_over = false;
        if rest.is_empty() {
            tokio::select! {
                piece = events.frame() => match piece.map(|piece| piece.map(http_body::Frame::into_data)) {
                    Some(Ok(Ok(piece))) => rest = piece,
                    Some(Ok(Err(_))) => {}
                    Some(Err(_)) | None => is_over = true,
                },
                read = stream.read_buf(&mut heard) => is_over = read? == 0,
            }
        }
        while !rest.is_empty() && out.len() < SEND_BYTES_MAX {
            let (kind, event) = event(&mut rest);
            put(&mut out, kind, &event);
        }
        while let Some((kind, payload)) = message(&mut heard).unwrap_or(Some((CLOSE, Bytes::new()))) {
            match kind {
                CLOSE => is_over = true,
                PING => put(&mut out, PONG, &payload),
                _ => {}
            }
            if is_over {
                break;
            }
        }
        if is_over {
            // That all went well.
            put(&mut out, CLOSE, &1000u16.to_be_bytes());
        }
        stream.write_all(&out).await?;
        stream.flush().await?;
        if is_over {
            return stream.shutdown().await;
        }
    }
}

/// Takes the first event from those of a piece: a line of text, or a message behind its length.
fn event(piece: &mut Bytes) -> (u8, Bytes) {
    match piece.first() {
        Some(b'{') | None => {
            let end = piece.iter().position(|byte| *byte == b'\n').map_or(piece.len(), |at| at + 1);
            (TEXT, piece.split_to(end))
        }
        Some(_) if piece.len() < 4 => (BINARY, piece.split_to(piece.len())),
        Some(_) => {
            let len = usize::try_from(piece.get_u32()).unwrap_or(usize::MAX).min(piece.len());
            (BINARY, piece.split_to(len))
        }
    }
}

/// Writes a whole message. Those of servers are not masked.
fn put(out: &mut BytesMut, kind: u8, payload: &[u8]) {
    out.put_u8(0x80 | kind);
    match payload.len() {
        len @ 0..=125 => out.put_slice(&len.to_le_bytes()[..1]),
        len @ 126..=0xffff => {
            out.put_u8(126);
            out.put_slice(&len.to_be_bytes()[size_of::<usize>() - 2..]);
        }
        len => {
            out.put_u8(127);
            out.put_u64(len as u64);
        }
    }
    out.put_slice(payload);
}

/// Takes the first part of a message a client has sent, if all of it is there. An error if it is none, or too long.
fn message(heard: &mut BytesMut) -> Result<Option<(u8, Bytes)>, Status> {
    let refused = || Status::bad_request("this is no message of a web socket");
    let [first, second, ..] = heard[..] else { return Ok(None) };
    let (kind, is_masked) = (first & 0x0f, second & 0x80 != 0);
    let (head, len) = match (second & 0x7f, &heard[2..]) {
        (126, [a, b, ..]) => (4, u64::from(u16::from_be_bytes([*a, *b]))),
        (127, [a, b, c, d, e, f, g, h, ..]) => (10, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h])),
        (126 | 127, _) => return Ok(None),
        (len, _) => (2, u64::from(len)),
    };
    // Clients mask what they send, and what is about the session is short.
    if !is_masked || len > MESSAGE_BYTES_MAX || (kind >= CLOSE && len > 125) {
        return Err(refused());
    }
    let len = usize::try_from(len).map_err(|_| refused())?;
    if heard.len() < head + 4 + len {
        return Ok(None);
    }
    heard.advance(head);
    let mask: [u8; 4] = heard.split_to(4)[..].try_into().map_err(|_| refused())?;
    let mut payload = heard.split_to(len);
    for (byte, mask) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok(Some((kind, payload.freeze())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_sites_bring_a_token() {
        #[track_caller]
        fn check(headers: &[(HeaderName, &'static str)], expected: bool) {
            let headers = headers.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value)));
            assert_eq!(is_foreign(&headers.collect()), expected);
        }
        let host = (header::HOST, "acme.example.com:6443");
        check(std::slice::from_ref(&host), false);
        check(&[host.clone(), (header::ORIGIN, "https://acme.example.com:6443")], false);
        for other in
            ["https://evil.example", "http://acme.example.com:6443", "https://acme.example.com", "null", ""]
        {
            check(&[host.clone(), (header::ORIGIN, other)], true);
            check(&[host.clone(), (header::ORIGIN, other), (header::AUTHORIZATION, "Bearer x")], false);
            let offered = (header::SEC_WEBSOCKET_PROTOCOL, "v1, base64url.bearer.authorization.k8s.io.eA");
            check(&[host.clone(), (header::ORIGIN, other), offered], false);
        }
    }

    #[test]
    fn keys_are_answered() {
        // The example of the RFC.
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ==").unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for other in ["", "short", "dGhlIHNhbXBsZSBub25jZQ"] {
            assert!(accept(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn messages_are_read() {
        // The examples of the RFC: `Hello`, masked, behind half of one.
        let hello = [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
        let mut heard = BytesMut::from(&hello[..4]);
        assert_eq!(message(&mut heard).unwrap(), None);
        heard.extend_from_slice(&hello[4..]);
        heard.extend_from_slice(&[0x89, 0x80, 0, 0, 0, 0]);
        assert_eq!(message(&mut heard).unwrap(), Some((TEXT, Bytes::from_static(b"Hello"))));
        assert_eq!(message(&mut heard).unwrap(), Some((PING, Bytes::new())));
        assert_eq!(message(&mut heard).unwrap(), None);
        for (what, bytes) in [
            ("not masked", &[0x81, 0x05, b'H', b'e', b'l', b'l', b'o'][..]),
            ("a long ping", &[0x89, 0xfe, 0x01, 0x00]),
            ("an endless message", &[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        ] {
            assert!(message(&mut BytesMut::from(bytes)).is_err(), "{what}");
        }
    }

    #[test]
    fn messages_are_written() {
        let written = |payload: &[u8]| {
            let mut out = BytesMut::new();
            put(&mut out, BINARY, payload);
            out[..out.len() - payload.len()].to_vec()
        };
        assert_eq!(written(b"Hello"), [0x82, 5]);
        assert_eq!(written(&[0; 125]), [0x82, 125]);
        assert_eq!(written(&[0; 256]), [0x82, 126, 1, 0]);
        assert_eq!(written(&[0; 65536]), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn each_event_is_a_message() {
        let mut lines = Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n");
        assert_eq!(event(&mut lines), (TEXT, Bytes::from_static(b"{\"a\":1}\n")));
        assert_eq!(event(&mut lines), (TEXT, Bytes::from_static(b"{\"b\":2}\n")));
        assert!(lines.is_empty());
        let mut messages = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c");
        assert_eq!(event(&mut messages), (BINARY, Bytes::from_static(b"ab")));
        assert_eq!(event(&mut messages), (BINARY, Bytes::from_static(b"c")));
        assert!(messages.is_empty());
    }
}
