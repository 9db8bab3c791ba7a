//! A plugin in the test, good and bad. `polder`'s end-to-end tests have one that Kubernetes' own library serves.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::UnixListener;

use super::*;
use crate::grpc::protobuf::put;

/// How the plugin answers: a gRPC code and a message, or nothing for ever.
type Answer = Option<(u32, Vec<u8>)>;

/// A plugin that answers as a function says, and the thread that it runs on.
struct Server {
    directory: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Server {
    fn start(answer: impl Fn(&str, &[u8]) -> Answer + Send + Sync + 'static) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let path = directory.path().join("kms.sock");
        let listener = {
            let _guard = runtime.enter();
            UnixListener::bind(path).unwrap()
        };
        let answer = Arc::new(answer);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let service = service_fn(move |request| serve(request, answer.clone()));
                let serving =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                serving.await.ok();
            }
        });
        Server { directory, _runtime: runtime }
    }

    fn plugin(&self) -> Plugin {
        Plugin::new(self.directory.path().join("kms.sock"), Duration::from_millis(700))
    }
}

type Body = http_body_util::StreamBody<
    futures_util::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, std::convert::Infallible>>>,
>;

async fn serve(
    request: Request<Incoming>,
    answer: Arc<impl Fn(&str, &[u8]) -> Answer>,
) -> Result<Response<Body>, std::convert::Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let message = request.into_body().collect().await.unwrap().to_bytes();
    let Some((code, message)) = answer(&method, &message[5..]) else {
        return std::future::pending().await;
    };
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static("as the test says"));
    let frames = vec![Ok(Frame::data(Bytes::from(frame))), Ok(Frame::trailers(trailers))];
    let body = http_body_util::StreamBody::new(futures_util::stream::iter(frames));
    Ok(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
}

fn status(version: &str, healthz: &str, key_id: &str) -> Vec<u8> {
    let mut out = vec![0x48, 1];
    for (field, value) in [(1, version), (2, healthz), (3, key_id)] {
        put(field, value.as_bytes(), &mut out);
    }
    out
}

#[test]
fn a_plugin_that_does_its_part() {
    let server = Server::start(|method, message| {
        let mut out = Vec::new();
        match method {
            "Status" => out = status("v2", "ok", "k1"),
            "Encrypt" => {
                let given = wire::parse_decrypted(message).unwrap();
                let ciphertext = given.iter().rev().copied().collect();
                let annotations =
                    BTreeMap::from([("a.example.com".to_owned(), vec![1, 2]), ("b".to_owned(), vec![])]);
                out = wire::encrypted(&Encrypted { ciphertext, key_id: "k1".into(), annotations });
            }
            _ => {
                // Ciphertext, uid, key, annotations: another order than that of an answer.
                let given = wire::parse_decrypted(message).unwrap();
                put(1, &given.iter().rev().copied().collect::<Vec<_>>(), &mut out);
            }
        }
        Some((0, out))
    });
    let plugin = server.plugin();
    assert_eq!(plugin.status().unwrap().key_id, "k1");
    let encrypted = plugin.encrypt(b"a key of some bytes").unwrap();
    assert_eq!((encrypted.key_id.as_str(), encrypted.annotations.len()), ("k1", 2));
    assert_eq!(Encrypted::from_bytes(&encrypted.to_bytes()), Some(encrypted.clone()));
    assert_eq!(plugin.decrypt(&encrypted).unwrap(), b"a key of some bytes");
}

#[track_caller]
fn check_status(answer: Answer, expected: &str) {
    let server = Server::start(move |_, _| answer.clone());
    let said = server.plugin().status().unwrap_err().to_string();
    assert!(said.contains(expected), "{said}");
}

#[test]
fn plugins_that_do_not() {
    check_status(None, "does not answer within");
    check_status(Some((14, Vec::new())), "refuses, with code 14: as the test says");
    check_status(Some((0, vec![0xff; 20])), "no message of its kind");
    check_status(Some((0, status("v1", "ok", "k"))), "a version that is not v2");
    check_status(Some((0, status("v2", "no", "k"))), "that it is not well");
    check_status(Some((0, status("v2", "ok", ""))), "an empty key id");
    check_status(Some((0, status("v2", "ok", &"k".repeat(2_000)))), "a key id that is too long");
    check_status(Some((0, status("v2", "ok", &"k".repeat(100_000)))), "does not speak gRPC");

    let nobody = Plugin::new("/nowhere/kms.sock".into(), Duration::from_secs(1));
    assert!(matches!(nobody.status(), Err(KmsError::Connect { .. })));
    for (ciphertext, expected) in
        [(vec![], "an empty ciphertext"), (vec![1; 2_000], "a ciphertext that is too long")]
    {
        let bad = wire::encrypted(&Encrypted { ciphertext, key_id: "k".into(), ..Encrypted::default() });
        let server = Server::start(move |_, _| Some((0, bad.clone())));
        let said = server.plugin().encrypt(b"x").unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn what_is_no_message_is_refused_and_never_more() {
    let good = wire::encrypted(&Encrypted {
        ciphertext: vec![7; 40],
        key_id: "key".into(),
        annotations: BTreeMap::from([("a".into(), vec![1])]),
    });
    for len in 0..good.len() {
        wire::parse_encrypted(&good[..len]);
    }
    for index in 0..good.len() {
        for byte in [0, 0x7f, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[index] = byte;
            wire::parse_encrypted(&bad);
            wire::parse_status(&bad);
        }
    }
    assert!(
        wire::parse_encrypted(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).is_none()
    );
}
