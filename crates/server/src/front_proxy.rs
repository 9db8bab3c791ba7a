//! By what extension servers know that a request comes from this server: an authority of its own, and a client certificate
//! for each plane that has an extension server.
//!
//! Invariant: this authority vouches for nobody to this server. A plane's certificate carries a name that is that plane's
//! alone, so that what one plane's extension server believes, no other plane can send (ADR 0012).

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_client::extension::front_proxy_name;
use polder_model::PlaneId;
use rcgen::{DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};

use crate::pki::{LEAF_DAYS, PkiError, made_authority, named, read};

/// Certificates that are kept, and for how long: signing one takes a tenth of a millisecond.
const KEPT_LEN_MAX: usize = 1024;
const KEPT_MAX: Duration = Duration::from_secs(30 * 86_400);

pub struct FrontProxy {
    ca_pem: String,
    issuer: Issuer<'static, KeyPair>,
    key: KeyPair,
    kept: Mutex<HashMap<PlaneId, (Arc<FrontProxyCertificate>, Instant)>>,
}

/// What goes with the requests of one plane; both in DER, the key as PKCS #8.
pub struct FrontProxyCertificate {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl FrontProxy {
    /// Opens the authority in a directory, making it if it is missing.
    pub(crate) fn open(directory: &Path) -> Result<FrontProxy, PkiError> {
        let (cert_path, key_path) =
            (directory.join("front-proxy-ca.crt"), directory.join("front-proxy-ca.key"));
        let unusable = |path: &Path| PkiError::Unusable { path: path.into(), directory: directory.into() };
        let (ca_pem, ca_key) = match (read(&cert_path)?, read(&key_path)?) {
            (Some(cert), Some(key)) => (cert, KeyPair::from_pem(&key).map_err(|_| unusable(&key_path))?),
            (Some(_), None) => return Err(unusable(&key_path)),
            // A key without its certificate has been used for nothing.
            (None, _) => made_authority("polder-front-proxy", &cert_path, &key_path)?,
        };
        let issuer = Issuer::from_ca_cert_pem(&ca_pem, ca_key).map_err(|_| unusable(&cert_path))?;
        Ok(FrontProxy { ca_pem, issuer, key: KeyPair::generate()?, kept: Mutex::default() })
    }

    /// The authority's certificate, in PEM.
    pub fn ca(&self) -> &str {
        &self.ca_pem
    }

    pub(crate) fn certificate(&self, plane: PlaneId) -> Result<Arc<FrontProxyCertificate>, PkiError> {
        if let Some((known, since)) = self.kept.lock().get(&plane)
            && since.elapsed() < KEPT_MAX
        {
            return Ok(known.clone());
        }
        let mut params = named(&[(DnType::CommonName, &front_proxy_name(plane))], LEAF_DAYS);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&self.key, &self.issuer)?.der().to_vec();
        let made = Arc::new(FrontProxyCertificate { certificate, key: self.key.serialize_der() });
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_LEN_MAX {
            kept.clear();
        }
        kept.insert(plane, (made.clone(), Instant::now()));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_have_names_of_their_own() {
        let directory = std::env::temp_dir().join(format!("polder-front-proxy-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let proxy = FrontProxy::open(&directory).unwrap();
        let name = |proxy: &FrontProxy, plane: u64| {
            let made = proxy.certificate(PlaneId(plane)).unwrap();
            let (_, parsed) = x509_parser::parse_x509_certificate(&made.certificate).unwrap();
            let names: Vec<_> = parsed.subject().iter_common_name().collect();
            names[0].as_str().unwrap().to_owned()
        };
        assert_eq!(name(&proxy, 7), "front-proxy-client-plane-7");
        assert_eq!(name(&proxy, 8), "front-proxy-client-plane-8");
        let again = FrontProxy::open(&directory).unwrap();
        assert_eq!(again.ca(), proxy.ca(), "the authority stays");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
