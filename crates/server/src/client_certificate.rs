//! Certificates of clients: those of the server's own authority, and those that planes give to whoever asks in them.
//!
//! Proxies that authenticate for others have an authority of their own, if the provider names one: it says that somebody is a proxy, and
//! nothing else.
//!
//! A client shows the certificate alone. Which plane's authority is to have signed it stands in it; the authority is derived and
//! forgotten again. Who the client is, and where, is for `authn` to say.

use std::sync::Arc;

use base64::Engine as _;
use polder_auth::authority::{PlaneAuthorities, Request, Terms};
use polder_client::{CertificateAuthority, CertificateRequest, CertificateTerms};
use polder_model::PlaneId;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};

/// Verifies what clients show.
#[derive(Debug)]
pub(crate) struct ClientCertificates {
    /// Verifies what the server's own authority signed.
    own: Arc<dyn ClientCertVerifier>,
    /// Those of all generations, the newest first.
    planes: Arc<[PlaneAuthorities]>,
    /// Verifies what the authority of proxies signed.
    proxies: Option<Arc<dyn ClientCertVerifier>>,
    /// Whose certificates a client may show.
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertificates {
    pub(crate) fn new(
        own: Arc<dyn ClientCertVerifier>,
        planes: Arc<[PlaneAuthorities]>,
        proxies: Option<Arc<dyn ClientCertVerifier>>,
        provider: Arc<CryptoProvider>,
    ) -> ClientCertificates {
        let mut hints = own.root_hint_subjects().to_vec();
        hints.extend(proxies.iter().flat_map(|proxies| proxies.root_hint_subjects().iter().cloned()));
        ClientCertificates { own, planes, proxies, hints, provider }
    }

    /// Who vouches for a certificate that was verified a moment ago: an authority that says who the client is, and the one
    /// that says it is a proxy. Both may.
    pub(crate) fn vouched(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Vouched {
        match (chain, &self.proxies) {
            ([], _) => Vouched::default(),
            (_, None) => Vouched { of_client: true, of_proxy: false },
            _ => self.vouched_anew(chain, now),
        }
    }

    /// The same for one that was verified when other authorities were believed.
    pub(crate) fn vouched_anew(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Vouched {
        let Some((certificate, rest)) = chain.split_first() else { return Vouched::default() };
        let by_proxies =
            |own: &Arc<dyn ClientCertVerifier>| own.verify_client_cert(certificate, rest, now).is_ok();
        Vouched {
            of_client: self.verify_client(certificate, now).is_ok(),
            of_proxy: self.proxies.as_ref().is_some_and(by_proxies),
        }
    }

    /// By our own authorities alone, whatever else was shown: what leads clients from an old authority to a new one (ADR 0019) would
    /// lead back to one that was dropped.
    fn verify_client(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let error = match self.own.verify_client_cert(certificate, &[], now) {
            Err(error) => error,
            verified => return verified,
        };
        self.verify_in_plane(certificate, now).unwrap_or(Err(error))
    }

    /// Verifies a certificate by the authority of the plane it says it is of; nothing if there is no such authority.
    fn verify_in_plane(
        &self,
        certificate: &CertificateDer<'_>,
        now: UnixTime,
    ) -> Option<Result<ClientCertVerified, Error>> {
        let plane = PlaneAuthorities::plane_of(certificate)?;
        let anchors = self.planes.iter().filter_map(|own| own.anchor(plane)).map(|anchor| TrustAnchor {
            subject: anchor.subject.into(),
            subject_public_key_info: anchor.public_key.into(),
            name_constraints: None,
        });
        let roots = Arc::new(RootCertStore { roots: anchors.collect() });
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, self.provider.clone()).build();
        Some(verifier.ok()?.verify_client_cert(certificate, &[], now))
    }
}

/// What a certificate is good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vouched {
    pub(crate) of_client: bool,
    pub(crate) of_proxy: bool,
}

impl ClientCertVerifier for ClientCertificates {
    fn offer_client_auth(&self) -> bool {
        self.own.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.own.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verify_client(end_entity, now);
        match &self.proxies {
            Some(proxies) if verified.is_err() => proxies.verify_client_cert(end_entity, intermediates, now),
            _ => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.own.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.own.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.own.supported_verify_schemes()
    }
}

/// The authorities of planes there are by now, the newest first.
type Planes = Box<dyn Fn() -> Arc<[PlaneAuthorities]> + Send + Sync>;

/// Signs for controllers, by the newest authority.
pub(crate) struct Signer {
    planes: Planes,
}

impl Signer {
    pub(crate) fn new(planes: Planes) -> Signer {
        Signer { planes }
    }
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

impl CertificateAuthority for Signer {
    fn read(&self, pem: &[u8]) -> Result<CertificateRequest, String> {
        let request = Request::parse(pem).map_err(|error| error.to_string())?;
        Ok(CertificateRequest {
            has_dns_names: !request.dns_names.is_empty(),
            has_emails: !request.emails.is_empty(),
            has_addresses: !request.addresses.is_empty(),
            has_uris: !request.uris.is_empty(),
            common_name: request.common_name,
            organizations: request.organizations,
        })
    }

    fn sign(&self, plane: PlaneId, pem: &[u8], terms: &CertificateTerms) -> Result<String, String> {
        let request = Request::parse(pem).map_err(|error| error.to_string())?;
        let terms =
            Terms { usages: terms.usages.clone(), not_before: terms.not_before, not_after: terms.not_after };
        let planes = (self.planes)();
        let newest = planes.first().ok_or("there is no authority")?;
        let der = newest.issue(plane, &request, &terms).map_err(|error| error.to_string())?;
        Ok(armored(&der))
    }
}

/// A certificate in PEM.
fn armored(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    use super::*;
    use crate::Pki;

    fn request() -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "ann");
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    fn der(pem: &str) -> CertificateDer<'static> {
        rustls_pki_types::pem::PemObject::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn planes_verify_their_own() {
        let directory = std::env::temp_dir().join(format!("polder-pki-{}", uuid::Uuid::new_v4()));
        let pki = Pki::open(&directory, &[], 1_000).unwrap();
        let verify = |pki: &Pki, certificate: &str, at: u64| {
            let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(at));
            pki.current().clients.verify_client_cert(&der(certificate), &[], now).is_ok()
        };
        let terms =
            |usage: &str| CertificateTerms { usages: vec![usage.into()], not_before: 1000, not_after: 2000 };
        let signed = pki.plane_authority().sign(PlaneId(7), request().as_bytes(), &terms("client auth"));
        let signed = signed.unwrap();
        assert!(verify(&pki, &signed, 1500));
        assert!(!verify(&pki, &signed, 2500), "no longer");
        let reopened = Pki::open(&directory, &[], 1_000).unwrap();
        assert!(verify(&reopened, &signed, 1500), "after a restart");
        let serving = pki.plane_authority().sign(PlaneId(7), request().as_bytes(), &terms("server auth"));
        assert!(!verify(&pki, &serving.unwrap(), 1500), "not for clients");

        // The number of another plane in it: signed by the wrong one.
        let mut forged = der(&signed).to_vec();
        let at = forged.windows(14).position(|window| window == b"polder:plane:7").unwrap();
        forged[at + 13] = b'8';
        assert_eq!(PlaneAuthorities::plane_of(&forged), Some(PlaneId(8)));
        assert!(!verify(&pki, &armored(&forged), 1500));

        let other = std::env::temp_dir().join(format!("polder-pki-{}", uuid::Uuid::new_v4()));
        assert!(!verify(&Pki::open(&other, &[], 1_000).unwrap(), &signed, 1500), "another server");
        std::fs::remove_dir_all(directory).unwrap();
        std::fs::remove_dir_all(other).unwrap();
    }
}
