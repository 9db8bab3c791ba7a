//! An extension API server: a real HTTPS server on threads of its own, that tells its test who asked for what and answers
//! as the test says, well or badly.

use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use base64::Engine as _;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

/// One request, as it arrived.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The client's verified certificate, in DER.
    pub certificate: Option<Vec<u8>>,
}

impl Asked {
    /// All values of a header.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether the client's certificate has a text in it.
    pub fn certificate_says(&self, text: &str) -> bool {
        let bytes = self.certificate.as_deref().unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Writes a whole HTTP answer, or a part of one. The connection ends when it fails.
pub type Handler = Arc<dyn Fn(&Asked, &mut dyn Write) -> std::io::Result<()> + Send + Sync>;

/// What endpoints call this machine. They may have no loopback address, but a name that leads to one; whether a server
/// connects to it is up to its configuration.
pub const LOCAL_NAME: &str = "api.localhost";

/// A running server, on loopback. Its threads end with the process.
pub struct ExtensionServer {
    pub address: SocketAddr,
    /// For `spec.caBundle`.
    pub ca_bundle: String,
}

impl ExtensionServer {
    /// With a certificate for a service, believing client certificates of an authority (PEM).
    pub fn start(host: &str, client_ca: &str, handler: Handler) -> anyhow::Result<ExtensionServer> {
        let (certificate, key) = certificate(host)?;
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes())?];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(client_ca.as_bytes())?)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)?;
        let config = Arc::new(config);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, handler) = (config.clone(), handler.clone());
                std::thread::spawn(move || serve(stream, config, &handler));
            }
        });
        Ok(ExtensionServer { address, ca_bundle: ca_bundle(&certificate) })
    }

    /// The objects that lead a plane to it, with the paths they are posted to: a service, where it is, an `APIService`.
    pub fn objects(&self, namespace: &str, name: &str, group: &str, version: &str) -> [(String, Value); 3] {
        let port = self.address.port();
        [
            (
                format!("/api/v1/namespaces/{namespace}/services"),
                json!({"metadata": {"name": name}, "spec": {"ports": [{"name": "https", "port": 443}]}}),
            ),
            (
                format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"),
                json!({
                    "metadata": {"name": format!("{name}-1"), "labels": {"kubernetes.io/service-name": name}},
                    "addressType": "FQDN", "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
                    "endpoints": [{"addresses": [LOCAL_NAME], "conditions": {"ready": true}}],
                }),
            ),
            (
                "/apis/apiregistration.k8s.io/v1/apiservices".into(),
                json!({
                    "metadata": {"name": format!("{version}.{group}")},
                    "spec": {
                        "group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
                        "service": {"namespace": namespace, "name": name}, "caBundle": self.ca_bundle,
                    },
                }),
            ),
        ]
    }
}

/// A certificate for a host that signs itself, and its key, both in PEM.
pub fn certificate(host: &str) -> anyhow::Result<(String, String)> {
    let key_pair = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(vec![host.to_owned()])?.self_signed(&key_pair)?;
    Ok((certificate.pem(), key_pair.serialize_pem()))
}

/// For `spec.caBundle`.
pub fn ca_bundle(certificate: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(certificate)
}

/// Writes an answer with a body of JSON.
pub fn answer_json(out: &mut dyn Write, code: u16, body: &Value) -> std::io::Result<()> {
    answer(out, code, "application/json", body.to_string().as_bytes())
}

pub fn answer(out: &mut dyn Write, code: u16, media: &str, body: &[u8]) -> std::io::Result<()> {
    let len = body.len();
    write!(out, "HTTP/1.1 {code} X\r\nContent-Type: {media}\r\nContent-Length: {len}\r\n\r\n")?;
    out.write_all(body)?;
    out.flush()
}

/// Answers until the client goes.
fn serve(stream: TcpStream, config: Arc<ServerConfig>, handler: &Handler) -> Option<()> {
    let connection = ServerConnection::new(config).ok()?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let mut words = line.split(' ');
        let mut asked =
            Asked { method: words.next()?.to_owned(), path: words.next()?.to_owned(), ..Asked::default() };
        let mut len = 0;
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim_end().split_once(':') else { break };
            let (name, value) = (name.to_ascii_lowercase(), value.trim().to_owned());
            if name == "content-length" {
                len = value.parse().ok()?;
            }
            asked.headers.push((name, value));
        }
        asked.body = vec![0; len];
        stream.read_exact(&mut asked.body).ok()?;
        let certificates = stream.get_ref().conn.peer_certificates().unwrap_or_default();
        asked.certificate = certificates.first().map(|certificate| certificate.to_vec());
        handler(&asked, stream.get_mut()).ok()?;
    }
}
