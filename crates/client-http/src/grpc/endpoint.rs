//! Where a gRPC server is, and how it is known.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::tls;

/// Who this side says it is and whom it believes, in PEM.
#[derive(Clone, Default)]
pub struct Identity {
    /// Who vouches for servers; nobody: those of the system.
    pub authorities: Option<Vec<u8>>,
    /// A certificate with what leads to its authority, and its key.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl Identity {
    /// How TLS is spoken by whoever is this.
    pub fn client_config(&self) -> Result<ClientConfig, Box<dyn std::error::Error + Send + Sync>> {
        let certificate = self.certificate.as_ref();
        let certificate = certificate.map(|(chain, key)| (chain.as_slice(), key.as_slice()));
        Ok(tls::operator_config(self.authorities.as_deref(), certificate)?)
    }
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("{url:?} is not like https://host:port or http://host:port")]
    Url { url: String },
    #[error("the certificates for {url} cannot be used")]
    Certificates {
        url: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A server, by its address.
#[derive(Clone)]
pub struct Endpoint {
    pub(super) url: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Endpoint {
    /// `https://host:port`, or `http://host:port` for a server that has no certificate.
    pub fn new(url: &str, identity: &Identity) -> Result<Endpoint, EndpointError> {
        let bad = || EndpointError::Url { url: url.to_owned() };
        let uri: http::Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().ok_or_else(bad)?;
        if !matches!(uri.path_and_query().map(|path| path.as_str()), None | Some("" | "/")) {
            return Err(bad());
        }
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => {
                let config = identity.client_config();
                let mut config =
                    config.map_err(|source| EndpointError::Certificates { url: url.to_owned(), source })?;
                config.alpn_protocols = vec![b"h2".to_vec()];
                let name = ServerName::try_from(host.clone()).map_err(|_| bad())?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            _ => return Err(bad()),
        };
        Ok(Endpoint { url: url.trim_end_matches('/').to_owned(), host, port, tls })
    }

    /// As it was given, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }
}
