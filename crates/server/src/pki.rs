//! The server's own certificate authority: made on first start, kept in the data directory, trusted by every
//! kubeconfig this server writes.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use polder_auth::MASTERS;
use polder_auth::authn::{AccountTokens, PLANE_URI_SCHEME};
use polder_auth::authority::PlaneAuthorities;
use polder_client::CertificateAuthority;
use polder_store::Plane;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use crate::certificate::ServerCertificates;
use crate::client_certificate::{ClientCertificates, Signer};
use crate::front_proxy::FrontProxy;

/// Certificates made here live this long. The server makes itself a new one at every start.
pub(crate) const LEAF_DAYS: i64 = 365;
pub(crate) const CA_DAYS: i64 = 3650;

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot read or write {path}")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(
        "{path} is not a certificate or key this server can use: remove {directory} to make new ones, or restore it from a backup"
    )]
    Unusable { path: PathBuf, directory: PathBuf },
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
    #[error("cannot set up TLS")]
    Tls(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// The authority, and the names of the server it speaks for.
pub struct Pki {
    ca_pem: String,
    issuer: Arc<Issuer<'static, KeyPair>>,
    hosts: Vec<String>,
    /// Signs tokens of service accounts. PKCS #8.
    account_key: Vec<u8>,
    planes: Arc<PlaneAuthorities>,
    front_proxy: Arc<FrontProxy>,
    /// Authorities of proxies that authenticate for others.
    proxies_pem: Option<String>,
}

impl Pki {
    /// Opens the authority in a directory, making what is missing. `hosts` are the names and addresses clients use.
    pub fn open(directory: &Path, hosts: &[String]) -> Result<Pki, PkiError> {
        fs::create_dir_all(directory).map_err(|source| PkiError::File { path: directory.into(), source })?;
        let (cert_path, key_path) = (directory.join("ca.crt"), directory.join("ca.key"));
        let (ca_pem, ca_key) = match (read(&cert_path)?, read(&key_path)?) {
            (Some(cert), Some(key)) => {
                let unusable = || PkiError::Unusable { path: key_path.clone(), directory: directory.into() };
                (cert, KeyPair::from_pem(&key).map_err(|_| unusable())?)
            }
            (None, None) => made_authority("polder", &cert_path, &key_path)?,
            (Some(_), None) => {
                return Err(PkiError::Unusable { path: key_path, directory: directory.into() });
            }
            (None, Some(_)) => {
                return Err(PkiError::Unusable { path: cert_path, directory: directory.into() });
            }
        };
        let unusable = || PkiError::Unusable { path: cert_path.clone(), directory: directory.into() };
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(|_| unusable())?;
        // The authorities of planes last as long as the server's own.
        let planes = PlaneAuthorities::new(ca_key.serialized_der(), &ca).ok_or_else(unusable)?;
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, ca_key).map_err(|_| unusable())?;
        let account_key = account_key(directory)?;
        let (issuer, planes) = (Arc::new(issuer), Arc::new(planes));
        let front_proxy = Arc::new(FrontProxy::open(directory)?);
        let hosts = hosts.to_vec();
        Ok(Pki { ca_pem, issuer, hosts, account_key, planes, front_proxy, proxies_pem: None })
    }

    /// The same with authorities, in PEM, that vouch for proxies which authenticate for others.
    #[must_use]
    pub fn with_proxies(self, pem: Option<String>) -> Pki {
        Pki { proxies_pem: pem, ..self }
    }

    /// The authority's certificate, in PEM.
    pub fn ca(&self) -> &str {
        &self.ca_pem
    }

    /// By what extension servers know this one.
    pub fn front_proxy(&self) -> Arc<FrontProxy> {
        self.front_proxy.clone()
    }

    /// What signs and reads tokens of service accounts.
    pub fn account_tokens(&self) -> AccountTokens {
        AccountTokens::new(&self.account_key)
    }

    /// What signs certificates in the name of planes.
    pub fn plane_authority(&self) -> Arc<dyn CertificateAuthority> {
        Arc::new(Signer::new(self.planes.clone()))
    }

    /// TLS for the server: its certificate, and client certificates of this authority or of a plane's if a client has one.
    pub fn tls(&self) -> Result<rustls::ServerConfig, PkiError> {
        let tls = |error: rustls::Error| PkiError::Tls(Box::new(error));
        let provider = self.provider();
        let verifier = self.client_verifier(&provider)?;
        let shown = ServerCertificates::new(self.issuer.clone(), &self.hosts, &provider)?;
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(shown));
        config.ignore_client_order = true;
        // A session that is taken up again is not asked for a certificate that is still good.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        // AES-128 first, as Go's servers have it: encrypting is a fifth of what a long list costs.
        let preferred = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
        provider.cipher_suites.sort_by_key(|suite| suite.suite() != preferred);
        Arc::new(provider)
    }

    pub(crate) fn client_verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<ClientCertificates>, PkiError> {
        let ca = CertificateDer::from_pem_slice(self.ca_pem.as_bytes())
            .map_err(|error| PkiError::Tls(Box::new(error)))?;
        let verifier = |all: Vec<CertificateDer<'_>>| {
            let mut roots = RootCertStore::empty();
            for ca in all {
                roots.add(ca).map_err(|error| PkiError::Tls(Box::new(error)))?;
            }
            WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
                .allow_unauthenticated()
                .build()
                .map_err(|error| PkiError::Tls(Box::new(error)))
        };
        let proxies = match &self.proxies_pem {
            Some(pem) => {
                let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
                Some(verifier(all.map_err(|error| PkiError::Tls(Box::new(error)))?)?)
            }
            None => None,
        };
        let own = verifier(vec![ca])?;
        Ok(Arc::new(ClientCertificates::new(own, self.planes.clone(), proxies, provider.clone())))
    }

    /// A kubeconfig for the provider: all planes, everything allowed. Its current context is the core plane.
    pub fn admin_kubeconfig(&self, url: &str) -> Result<String, PkiError> {
        let (certificate, key) = self.client("polder-admin", None)?;
        Ok(self.kubeconfig(url, "core", "polder-admin", &certificate, &key))
    }

    /// A kubeconfig for one plane: everything allowed there, nothing anywhere else.
    pub fn plane_kubeconfig(&self, plane: &Plane, url: &str) -> Result<String, PkiError> {
        let (certificate, key) = self.client("plane-admin", Some(plane))?;
        let url = format!("{url}/clusters/{}", plane.name);
        Ok(self.kubeconfig(&url, plane.name.as_str(), "plane-admin", &certificate, &key))
    }

    fn client(&self, name: &str, plane: Option<&Plane>) -> Result<(String, String), PkiError> {
        let key = KeyPair::generate()?;
        let mut params = named(&[(DnType::CommonName, name), (DnType::OrganizationName, MASTERS)], LEAF_DAYS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(plane) = plane {
            let uri = format!("{PLANE_URI_SCHEME}{}", plane.id);
            params.subject_alt_names.push(SanType::URI(uri.try_into()?));
        }
        Ok((params.signed_by(&key, &*self.issuer)?.pem(), key.serialize_pem()))
    }

    fn kubeconfig(&self, url: &str, context: &str, user: &str, certificate: &str, key: &str) -> String {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters:\n- name: {context}\n  cluster:\n    server: {url}\n    certificate-authority-data: {}\n\
             users:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
             contexts:\n- name: {context}\n  context:\n    cluster: {context}\n    user: {user}\n",
            encode(&self.ca_pem),
            encode(certificate),
            encode(key),
        )
    }
}

/// Writes a file only its owner can read, whole or not at all.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let file_error = |source| PkiError::File { path: path.into(), source };
    let next = path.with_extension("new");
    // What was left by a crash, or laid there by somebody else, is not written to: it may be open to others, or lead elsewhere.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file_error(error)),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&next).map_err(file_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(file_error)?;
    fs::rename(&next, path).map_err(file_error)
}

/// Makes an authority: its certificate in PEM, and its key. The key is written first.
pub(crate) fn made_authority(
    name: &str,
    cert_path: &Path,
    key_path: &Path,
) -> Result<(String, KeyPair), PkiError> {
    let key = KeyPair::generate()?;
    let mut params = named(&[(DnType::CommonName, name)], CA_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let cert = params.self_signed(&key)?.pem();
    write_private(key_path, &key.serialize_pem())?;
    write_private(cert_path, &cert)?;
    Ok((cert, key))
}

fn account_key(directory: &Path) -> Result<Vec<u8>, PkiError> {
    let path = directory.join("service-accounts.key");
    let key = match read(&path)? {
        Some(pem) => {
            KeyPair::from_pem(&pem).map_err(|_| PkiError::Unusable { path, directory: directory.into() })?
        }
        None => {
            let key = KeyPair::generate()?;
            write_private(&path, &key.serialize_pem())?;
            key
        }
    };
    Ok(key.serialize_der())
}

pub(crate) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PkiError::File { path: path.into(), source }),
    }
}

pub(crate) fn named(names: &[(DnType, &str)], days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    for (kind, text) in names {
        name.push(kind.clone(), *text);
    }
    params.distinguished_name = name;
    // An hour back: clocks differ.
    let now = std::time::SystemTime::now();
    let hour = std::time::Duration::from_secs(3600);
    let span = std::time::Duration::from_secs(u64::try_from(days).unwrap_or(1) * 86_400);
    params.not_before = (now - hour).into();
    params.not_after = (now + span).into();
    params
}
