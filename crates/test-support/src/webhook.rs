//! A webhook: a real HTTPS server on threads of its own, with a certificate of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};

/// What a webhook does with a path and a review: the `response`, or a code and a body instead.
pub type Answer = fn(&str, &Value) -> Result<Value, (u16, String)>;

/// What any HTTPS server of a test does: a path and a document (null without one) in, a code and a body out.
pub(crate) type Handler = Arc<dyn Fn(&str, &Value) -> (u16, String) + Send + Sync>;

/// A running webhook. Its threads end with the process.
pub struct WebhookServer {
    pub address: SocketAddr,
    /// For `clientConfig.caBundle`.
    pub ca_bundle: String,
}

impl WebhookServer {
    pub fn start(answer: Answer) -> anyhow::Result<WebhookServer> {
        WebhookServer::start_with(answer, rcgen::IsCa::NoCa)
    }

    /// With a certificate that could sign others, as people make them by hand.
    pub fn start_as_authority(answer: Answer) -> anyhow::Result<WebhookServer> {
        WebhookServer::start_with(answer, rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained))
    }

    fn start_with(answer: Answer, is_ca: rcgen::IsCa) -> anyhow::Result<WebhookServer> {
        let handler = move |path: &str, review: &Value| match answer(path, &review["request"]) {
            Err((code, body)) => (code, body),
            Ok(mut response) => {
                response["uid"] = review["request"]["uid"].clone();
                let review =
                    json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
                (200, review.to_string())
            }
        };
        WebhookServer::start_any(Arc::new(handler), is_ca)
    }

    /// Any HTTPS server.
    pub(crate) fn start_any(handler: Handler, is_ca: rcgen::IsCa) -> anyhow::Result<WebhookServer> {
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        params.is_ca = is_ca;
        let key_pair = rcgen::KeyPair::generate()?;
        let certificate = params.self_signed(&key_pair)?;
        let key = PrivateKeyDer::try_from(key_pair.serialize_der()).map_err(anyhow::Error::msg)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, handler) = (config.clone(), handler.clone());
                std::thread::spawn(move || serve(stream, config, &handler));
            }
        });
        let ca_bundle = base64::engine::general_purpose::STANDARD.encode(certificate.pem());
        Ok(WebhookServer { address, ca_bundle })
    }

    /// A kubeconfig for whoever asks it at a path.
    pub fn kubeconfig(&self, path: &str) -> String {
        let server = format!("https://{}{path}", self.address);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "w",
            "clusters": [{"name": "w", "cluster": {"server": server, "certificate-authority-data": self.ca_bundle}}],
            "users": [{"name": "w", "user": {}}],
            "contexts": [{"name": "w", "context": {"cluster": "w", "user": "w"}}],
        });
        config.to_string()
    }

    /// `clientConfig` of a webhook that is asked at a path.
    pub fn client_config(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.ca_bundle})
    }
}

/// Answers until the client goes.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, handler: &Handler) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let mut len = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).ok()?;
            let header = header.trim().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                len = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; len];
        stream.read_exact(&mut body).ok()?;
        let document = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).ok()? };
        let (code, body) = handler(&path, &document);
        let head = format!("HTTP/1.1 {code} X\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all(head.as_bytes()).ok()?;
        stream.get_mut().write_all(body.as_bytes()).ok()?;
        stream.get_mut().flush().ok()?;
    }
}
