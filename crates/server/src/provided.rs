//! Certificates of the provider's: shown to whoever asks for one of their names. To everybody else the server shows its own, so that
//! those who know only its authority (on loopback, or inside of planes) still find it.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::extensions::GeneralName;

use crate::certificate::ServerCertificates;

/// A certificate and its key, as files have them.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingFiles {
    /// What they are called, for people.
    pub name: String,
    /// In PEM: the certificate, then those that lead from it to an authority.
    pub certificates: String,
    /// In PEM.
    pub key: String,
    /// In PEM: the authority behind it. Without one, whoever is told what to trust is told the last certificate above.
    pub authority: Option<String>,
    /// The names it is shown for, such as `*.example.org`; without any, those in it.
    pub names: Vec<String>,
}

/// One that can be used.
pub(crate) struct Provided {
    names: Vec<String>,
    /// Whoever connects to an address says no name.
    has_address: bool,
    key: Arc<CertifiedKey>,
    /// What to trust it by, in PEM.
    pub(crate) authority: String,
    pub(crate) expires: i64,
}

impl Provided {
    /// Or why it cannot be used.
    pub(crate) fn read(files: &ServingFiles, provider: &CryptoProvider) -> Result<Provided, String> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(files.certificates.as_bytes()).collect();
        let chain = chain.map_err(|error| format!("it is no certificate in PEM: {error}"))?;
        let (Some(first), Some(last)) = (chain.first(), chain.last()) else {
            return Err("there is no certificate in it".into());
        };
        let authority = match &files.authority {
            Some(pem) => match CertificateDer::pem_slice_iter(pem.as_bytes()).next() {
                Some(Ok(_)) => with_end(pem),
                _ => return Err("there is no certificate of its authority".into()),
            },
            None => pem(last),
        };
        let (_, parsed) = x509_parser::parse_x509_certificate(first)
            .map_err(|error| format!("its certificate cannot be read: {error}"))?;
        let (mut names, mut has_address) = (Vec::new(), false);
        let alternative = parsed.subject_alternative_name().ok().flatten();
        for name in alternative.iter().flat_map(|found| &found.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase()),
                GeneralName::IPAddress(_) => has_address = true,
                _ => {}
            }
        }
        if !files.names.is_empty() {
            names = files.names.iter().map(|name| name.to_ascii_lowercase()).collect();
            // Whoever says for which names it is says for which connections.
            has_address = names.iter().any(|name| name.parse::<std::net::IpAddr>().is_ok());
        }
        if names.is_empty() && !has_address {
            return Err("its certificate is for no name: name some".into());
        }
        let expires = parsed.validity().not_after.timestamp();
        let key = PrivateKeyDer::from_pem_slice(files.key.as_bytes())
            .map_err(|error| format!("its key is none in PEM: {error}"))?;
        let key = CertifiedKey::from_der(chain, key, provider)
            .map_err(|error| format!("its certificate and its key do not go together: {error}"))?;
        Ok(Provided { names, has_address, key: Arc::new(key), authority, expires })
    }

    /// A wildcard stands for one label, as everywhere.
    fn is_for(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        self.names.iter().any(|own| match own.strip_prefix("*.") {
            Some(domain) => name.split_once('.').is_some_and(|(_, rest)| rest == domain),
            None => *own == name,
        })
    }
}

/// What the server shows to whom.
pub(crate) struct Shown {
    pub(crate) own: Arc<ServerCertificates>,
    pub(crate) provided: Arc<[Provided]>,
}

impl Shown {
    fn provided(&self, name: Option<&str>) -> Option<&Provided> {
        self.provided.iter().find(|one| name.map_or(one.has_address, |name| one.is_for(name)))
    }

    #[cfg(test)]
    pub(crate) fn chain(&self, name: Option<&str>) -> &[CertificateDer<'static>] {
        self.provided(name).map_or(self.own.chain(), |one| &one.key.cert)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        match self.provided(hello.server_name()) {
            Some(provided) => Some(provided.key.clone()),
            None => self.own.resolve(hello),
        }
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shown").field("own", &self.own).finish_non_exhaustive()
    }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(certificate);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out + "-----END CERTIFICATE-----\n"
}

fn with_end(text: &str) -> String {
    format!("{}\n", text.trim_end())
}
