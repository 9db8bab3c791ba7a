//! TLS as a kubeconfig asks for it, to servers that the operator names, and to those that tenants name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};

use crate::kubeconfig::Access;

/// Where systems keep the authorities they trust; used when a kubeconfig names none.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("the certificate authority is not a PEM certificate")]
    Authority,
    #[error("no certificate authority is named, and this system has none")]
    NoAuthority,
    #[error("the client certificate or its key is not PEM")]
    ClientCertificate,
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

pub(crate) fn config(access: &Access) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = if access.insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    } else {
        builder.with_root_certificates(roots(access.certificate_authority.as_deref())?)
    };
    let certificate = access.client_certificate.as_ref();
    let mut config = with_certificate(builder, certificate.map(|(chain, key)| (&**chain, &**key)))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// For a server that the operator names. All is PEM; without authorities, those of the system vouch.
pub(crate) fn operator_config(
    authorities: Option<&[u8]>,
    certificate: Option<(&[u8], &[u8])>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    with_certificate(builder.with_root_certificates(roots(authorities)?), certificate)
}

/// Shows a certificate, if there is one: its chain and its key.
fn with_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: Option<(&[u8], &[u8])>,
) -> Result<ClientConfig, TlsError> {
    let Some((chain, key)) = certificate else { return Ok(builder.with_no_client_auth()) };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty()).ok_or(TlsError::ClientCertificate)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::ClientCertificate)?;
    Ok(builder.with_client_auth_cert(chain, key)?)
}

/// By what a server that a tenant names is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trust<'a> {
    /// Those who vouch for it, in PEM; empty means those of the system.
    Authorities(&'a [u8]),
    /// Whoever answers is believed.
    Anybody,
}

/// Who this side says it is: a certificate and its key (PKCS #8), both in DER.
#[derive(Clone, Copy)]
pub struct ClientIdentity<'a> {
    pub certificate: &'a [u8],
    /// What leads from it to an authority the other side knows.
    pub intermediates: &'a [Vec<u8>],
    pub key: &'a [u8],
}

/// For a server that a tenant names, and that speaks HTTP/1.1.
pub(crate) fn server_config(
    trust: Trust<'_>,
    identity: Option<ClientIdentity<'_>>,
) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::Anybody => Arc::new(Unverified(provider)),
        Trust::Authorities(pem) => {
            let roots = Arc::new(roots((!pem.is_empty()).then_some(pem))?);
            let inner = WebPkiServerVerifier::builder_with_provider(roots, provider).build();
            let inner = inner.map_err(|_| TlsError::Authority)?;
            Arc::new(Listed { inner, listed: CertificateDer::pem_slice_iter(pem).flatten().collect() })
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        Some(own) => builder.with_client_auth_cert(
            std::iter::once(own.certificate)
                .chain(own.intermediates.iter().map(Vec::as_slice))
                .map(|der| der.to_vec().into())
                .collect(),
            PrivatePkcs8KeyDer::from(own.key.to_vec()).into(),
        )?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Believes what the library believes, and a certificate that is itself in the list: people make one that signs itself and
/// give it to both sides. Name and time are checked all the same.
#[derive(Debug)]
struct Listed {
    inner: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Listed {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.inner.verify_server_cert(certificate, intermediates, name, ocsp, now);
        if verified.is_ok() || !self.listed.contains(certificate) {
            return verified;
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let encoding = |_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(encoding)?;
        let (validity, now) = (parsed.validity(), i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        if now < validity.not_before.timestamp() {
            return Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYet));
        }
        if now > validity.not_after.timestamp() {
            return Err(rustls::Error::InvalidCertificate(CertificateError::Expired));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.map_err(|_| TlsError::Authority)?)?;
            }
            if roots.is_empty() {
                return Err(TlsError::Authority);
            }
        }
        None => {
            let bundle = SYSTEM_AUTHORITIES.iter().find_map(|path| std::fs::read(path).ok());
            let bundle = bundle.ok_or(TlsError::NoAuthority)?;
            // One odd certificate in a system's bundle is no reason to trust none of them.
            roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).flatten());
        }
    }
    Ok(roots)
}

/// For `insecure-skip-tls-verify`: whoever answers is believed, but must hold the key it shows.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
