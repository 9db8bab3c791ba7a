//! The certificate the server shows: one for all its names, and for planes directly under a top-level name one of
//! their own.
//!
//! `*.localhost` would cover those planes, but most TLS libraries (OpenSSL, webpki) do not accept a wildcard with a
//! single label behind it, and so the promise that `acme.localhost` works out of the box needs a certificate for
//! exactly that name. It is signed during the handshake and then forgotten: names that were asked for leave nothing
//! behind.

use std::sync::Arc;

use polder_model::PlaneName;
use rcgen::{DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::keys::{Family, Keys, LEAF_SECONDS};
use crate::pki::{PkiError, named};

/// Fresh at every start, and again at two thirds of its life: its key never touches the disk.
pub(crate) struct ServerCertificates {
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
    signer: Arc<dyn SigningKey>,
    /// For every name but those below `domains`.
    whole: Arc<CertifiedKey>,
    whole_pem: String,
    /// By which those who know only an older authority find the way to this one.
    crosses: Vec<CertificateDer<'static>>,
    /// Domains of one label whose subdomains are served.
    domains: Vec<String>,
    made: i64,
}

impl ServerCertificates {
    pub(crate) fn new(
        keys: &Keys,
        hosts: &[String],
        provider: &CryptoProvider,
        now: i64,
    ) -> Result<ServerCertificates, PkiError> {
        let wrong = |error: &'static str| PkiError::Tls(error.into());
        let used = keys.used(Family::Authority, now).ok_or_else(|| wrong("there is no authority"))?;
        let issuer = used.issuer()?;
        let key = KeyPair::generate()?;
        let private =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| PkiError::Tls(error.into()))?;
        let signer = provider.key_provider.load_private_key(private);
        let signer = signer.map_err(|error| PkiError::Tls(Box::new(error)))?;
        let crosses = keys.crosses(Family::Authority, now)?;
        let made = certificate(&issuer, &key, hosts, now)?;
        let (whole_pem, mut chain) = (made.pem(), vec![made.der().clone()]);
        chain.extend(crosses.iter().cloned());
        let whole = Arc::new(CertifiedKey::new(chain, signer.clone()));
        let domains = hosts.iter().filter_map(|host| host.strip_prefix("*."));
        let domains = domains.filter(|domain| !domain.contains('.')).map(String::from).collect();
        Ok(ServerCertificates { issuer, key, signer, whole, whole_pem, crosses, domains, made: now })
    }

    /// Whether another one should be shown by now; those from before a time should not.
    pub(crate) fn is_due(&self, from: i64, now: i64) -> bool {
        self.made < from || self.made + LEAF_SECONDS / 3 * 2 <= now
    }

    pub(crate) fn expires(&self) -> i64 {
        self.made + LEAF_SECONDS
    }

    /// In PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.whole_pem
    }

    #[cfg(test)]
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.whole.cert
    }

    /// The name, if it needs a certificate of its own.
    fn own<'a>(&self, name: &'a str) -> Option<&'a str> {
        let (label, domain) = name.split_once('.')?;
        let known = self.domains.iter().any(|one| one.eq_ignore_ascii_case(domain));
        (known && label.to_ascii_lowercase().parse::<PlaneName>().is_ok()).then_some(name)
    }
}

impl ResolvesServerCert for ServerCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let Some(name) = hello.server_name().and_then(|name| self.own(name)) else {
            return Some(self.whole.clone());
        };
        // As long as the other one: they are made anew together.
        match certificate(&self.issuer, &self.key, &[name.to_ascii_lowercase()], self.made) {
            Ok(made) => {
                let chain = std::iter::once(made.der()).chain(&self.crosses).cloned().collect();
                Some(Arc::new(CertifiedKey::new(chain, self.signer.clone())))
            }
            Err(error) => {
                tracing::warn!(%error, name, "cannot make a certificate");
                Some(self.whole.clone())
            }
        }
    }
}

impl std::fmt::Debug for ServerCertificates {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ServerCertificates").field("domains", &self.domains).finish_non_exhaustive()
    }
}

fn certificate(
    issuer: &Issuer<'static, KeyPair>,
    key: &KeyPair,
    hosts: &[String],
    now: i64,
) -> Result<rcgen::Certificate, PkiError> {
    let mut params = named(&[(DnType::CommonName, "polder-server")], now, LEAF_SECONDS);
    for host in hosts {
        params.subject_alt_names.push(match host.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into()?),
        });
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params.signed_by(key, issuer)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_below_one_label_have_their_own() {
        let mut keys = Keys::default();
        keys.keep_up(1_000).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let hosts = ["localhost", "*.localhost", "*.planes.example"].map(String::from);
        let certificates = ServerCertificates::new(&keys, &hosts, &provider, 1_000).unwrap();
        for name in ["acme.localhost", "Acme.LocalHost"] {
            assert_eq!(certificates.own(name), Some(name));
        }
        for name in ["localhost", "a.b.localhost", "acme.planes.example", "acme.example", "_.localhost"] {
            assert_eq!(certificates.own(name), None, "{name}");
        }
    }
}
