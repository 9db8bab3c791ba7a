//! A client of one plane, made from a kubeconfig. Every part of how it presents itself can be replaced.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;

use crate::http::{Connection, Reply};

/// Who asks, where, and how the requests are addressed.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    /// What comes before every path: `/clusters/<plane>` or nothing.
    pub prefix: String,
    /// The name asked for in the TLS handshake.
    pub server_name: ServerName<'static>,
    /// The `Host` header.
    pub host: String,
    /// Sent with every request.
    pub headers: Vec<(String, String)>,
    tls: Arc<ClientConfig>,
    roots: Arc<RootCertStore>,
}

impl Client {
    /// The current user and cluster of a kubeconfig with everything inline.
    pub fn from_kubeconfig(text: &str) -> anyhow::Result<Client> {
        let config: Value = serde_saphyr::from_str(text).context("not YAML")?;
        let decode = |pointer: &str| -> anyhow::Result<Vec<u8>> {
            let text = config.pointer(pointer).and_then(Value::as_str);
            let text = text.with_context(|| format!("the kubeconfig has no {pointer}"))?;
            Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
        };
        let url = config.pointer("/clusters/0/cluster/server").and_then(Value::as_str);
        let url =
            url.and_then(|url| url.strip_prefix("https://")).context("no https URL in the kubeconfig")?;
        let (host, path) = url.split_once('/').unwrap_or((url, ""));
        let address = host.to_socket_addrs()?.next().context("the server's name has no address")?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let mut roots = RootCertStore::empty();
        for ca in CertificateDer::pem_slice_iter(&decode("/clusters/0/cluster/certificate-authority-data")?) {
            roots.add(ca?)?;
        }
        let roots = Arc::new(roots);
        let certificate = CertificateDer::from_pem_slice(&decode("/users/0/user/client-certificate-data")?)?;
        let key = PrivateKeyDer::from_pem_slice(&decode("/users/0/user/client-key-data")?)?;
        let tls = builder(&roots)?.with_client_auth_cert(vec![certificate], key)?;
        Ok(Client {
            address,
            prefix: if path.is_empty() { String::new() } else { format!("/{path}") },
            server_name: ServerName::try_from(name.to_string())?,
            host: host.to_string(),
            headers: Vec::new(),
            tls: Arc::new(tls),
            roots,
        })
    }

    /// The same person at a plane's path.
    pub fn in_plane(&self, plane: &str) -> Client {
        Client { prefix: format!("/clusters/{plane}"), ..self.clone() }
    }

    /// The same person at the root path.
    pub fn at_root(&self) -> Client {
        Client { prefix: String::new(), ..self.clone() }
    }

    /// The same person at another server.
    pub fn at(&self, address: SocketAddr) -> Client {
        Client { address, ..self.clone() }
    }

    /// The same connection with another `Host` header.
    pub fn with_host(&self, host: &str) -> Client {
        Client { host: host.into(), ..self.clone() }
    }

    /// Nobody in particular.
    pub fn anonymous(&self) -> anyhow::Result<Client> {
        Ok(Client { tls: Arc::new(builder(&self.roots)?.with_no_client_auth()), ..self.clone() })
    }

    /// Somebody with a certificate and its key, in PEM.
    pub fn with_certificate(&self, certificate: &str, key: &str) -> anyhow::Result<Client> {
        let certificate = CertificateDer::from_pem_slice(certificate.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let tls = builder(&self.roots)?.with_client_auth_cert(vec![certificate], key)?;
        Ok(Client { tls: Arc::new(tls), ..self.clone() })
    }

    /// Somebody with a bearer token and no certificate.
    pub fn with_token(&self, token: &str) -> anyhow::Result<Client> {
        Ok(self.anonymous()?.with_header("Authorization", &format!("Bearer {token}")))
    }

    pub fn with_header(mut self, name: &str, value: &str) -> Client {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Asks for a host name in the handshake and in the header.
    pub fn by_name(&self, name: &str) -> anyhow::Result<Client> {
        let host = format!("{name}:{}", self.address.port());
        Ok(Client { server_name: ServerName::try_from(name.to_string())?, host, ..self.clone() })
    }

    /// How this client does its handshake.
    pub(crate) fn tls_config(&self) -> ClientConfig {
        ClientConfig::clone(&self.tls)
    }

    pub fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(self.address, &self.server_name, self.tls.clone())
    }

    /// One request on a connection of its own. The path goes out as it is, behind the prefix.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> anyhow::Result<Reply> {
        let mut connection = self.connect()?;
        connection.send(&self.head(method, path, headers, body), body)
    }

    /// The head of a request, down to the empty line.
    pub fn head(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
        let mut head = format!("{method} {}{path} HTTP/1.1\r\nHost: {}\r\n", self.prefix, self.host);
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in own.chain(headers.iter().copied()) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head + "\r\n"
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Reply {
        self.must("GET", path, &[], b"")
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.must("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    #[track_caller]
    pub fn put(&self, path: &str, body: &Value) -> Reply {
        self.must("PUT", path, &[("Content-Type", "application/json")], body.to_string().as_bytes())
    }

    /// `kind` is `json`, `merge` or `strategic-merge`.
    #[track_caller]
    pub fn patch(&self, path: &str, kind: &str, body: &Value) -> Reply {
        let media = format!("application/{kind}-patch+json");
        self.must("PATCH", path, &[("Content-Type", &media)], body.to_string().as_bytes())
    }

    #[track_caller]
    pub fn delete(&self, path: &str) -> Reply {
        self.must("DELETE", path, &[], b"")
    }

    /// Deletes with options.
    #[track_caller]
    pub fn delete_with(&self, path: &str, options: &Value) -> Reply {
        self.must("DELETE", path, &[("Content-Type", "application/json")], options.to_string().as_bytes())
    }

    /// A request whose answer must come, whatever it says.
    #[track_caller]
    pub fn must(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        match self.send(method, path, headers, body) {
            Ok(reply) => reply,
            Err(error) => panic!("{method} {}{path}: {error:#}", self.prefix),
        }
    }

    /// Opens a watch; the answer must be a stream.
    #[track_caller]
    pub fn watch(&self, path: &str) -> WatchStream {
        match self.try_watch(path) {
            Ok(stream) => stream,
            Err(error) => panic!("watch {}{path}: {error:#}", self.prefix),
        }
    }

    pub fn try_watch(&self, path: &str) -> anyhow::Result<WatchStream> {
        let mut connection = self.connect()?;
        let reply = connection.start(&self.head("GET", path, &[], b""), b"")?;
        ensure!(reply.code == 200, "the server answered {}", reply.code);
        Ok(WatchStream { connection, rest: Vec::new() })
    }
}

/// The events of a watch.
pub struct WatchStream {
    connection: Connection,
    rest: Vec<u8>,
}

impl WatchStream {
    /// The next event; `None` when the server has ended the watch in good order. An error if the connection broke or
    /// nothing came in time.
    pub fn next_event(&mut self) -> anyhow::Result<Option<Value>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                // In every namespace: tests are about what they made.
                let name = event.pointer("/object/metadata/name").and_then(Value::as_str);
                if name == Some("kube-root-ca.crt") {
                    continue;
                }
                return Ok(Some(event));
            }
            match self.connection.chunk()? {
                Some(piece) => self.rest.extend(piece),
                None => return Ok(None),
            }
        }
    }

    /// The next event as `TYPE name`, which must come.
    #[track_caller]
    pub fn next_name(&mut self) -> String {
        let event = self.must();
        let name = event.pointer("/object/metadata/name").and_then(Value::as_str).unwrap_or("-");
        format!("{} {name}", event["type"].as_str().unwrap_or_default())
    }

    /// The next event, which must come.
    #[track_caller]
    pub fn must(&mut self) -> Value {
        match self.next_event() {
            Ok(Some(event)) => event,
            Ok(None) => panic!("the watch has ended"),
            Err(error) => panic!("no event: {error:#}"),
        }
    }

    /// Whether nothing comes for a while.
    pub fn silent(&mut self, patience: Duration) -> bool {
        self.connection.set_patience(patience).is_ok() && self.next_event().is_err()
    }
}

fn builder(
    roots: &Arc<RootCertStore>,
) -> anyhow::Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots.clone()))
}
