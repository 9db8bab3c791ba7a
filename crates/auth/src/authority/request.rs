//! What somebody who asks for a certificate wants in it: a PKCS #10 request, read and its signature checked.
//!
//! Invariant: names that are kept are those that a certificate with them is read with again, by the same reader
//! (`authn::ClientCertificate`).

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use base64::Engine as _;
use polder_model::SmolStr;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

/// Longer ones are not read.
const REQUEST_LEN_MAX: usize = 64 * 1024;

/// A request that is well formed and signed by the key it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub common_name: SmolStr,
    pub organizations: Vec<SmolStr>,
    pub dns_names: Vec<String>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
    /// Four or sixteen bytes each.
    pub addresses: Vec<Vec<u8>>,
    /// The name and the key as they came.
    pub(super) subject: Vec<u8>,
    pub(super) key: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Armor,
    #[error("the request is longer than {REQUEST_LEN_MAX} bytes")]
    TooLong,
    #[error("asn1: structure error")]
    Malformed,
    #[error("the subject has a name that is not text")]
    NotText,
    #[error("an IP subjectAltName is not an address")]
    NotAnAddress,
    #[error("unable to verify certificate request signature")]
    Signature,
}

impl Request {
    pub fn parse(pem: &[u8]) -> Result<Request, RequestError> {
        let der = unarmored(pem)?;
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        let about = &request.certification_request_info;
        check_signature(&request)?;
        let texts = |names: Vec<Result<&str, _>>| {
            let texts = names.into_iter().map(|name: Result<&str, x509_parser::error::X509Error>| {
                name.map(SmolStr::new).map_err(|_| RequestError::NotText)
            });
            texts.collect::<Result<Vec<SmolStr>, RequestError>>()
        };
        let subject = &about.subject;
        let mut common_names = texts(subject.iter_common_name().map(|one| one.as_str()).collect())?;
        let organizations = texts(subject.iter_organization().map(|one| one.as_str()).collect())?;
        let mut found = Request {
            // One of several would be the name, and not everybody takes the same one.
            common_name: match common_names.len() {
                0 => SmolStr::default(),
                1 => common_names.remove(0),
                _ => return Err(RequestError::Malformed),
            },
            organizations,
            dns_names: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            addresses: Vec::new(),
            subject: subject.as_raw().to_vec(),
            key: about.subject_pki.raw.to_vec(),
        };
        for extension in request.requested_extensions().into_iter().flatten() {
            if let ParsedExtension::SubjectAlternativeName(names) = extension {
                for name in &names.general_names {
                    found.take(name)?;
                }
            }
        }
        Ok(found)
    }

    /// Keeps an alternative name of the four kinds that certificates get here.
    fn take(&mut self, name: &GeneralName<'_>) -> Result<(), RequestError> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).into()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).into()),
            GeneralName::URI(name) => self.uris.push((*name).into()),
            GeneralName::IPAddress(address) if matches!(address.len(), 4 | 16) => {
                self.addresses.push(address.to_vec());
            }
            GeneralName::IPAddress(_) => return Err(RequestError::NotAnAddress),
            _ => {}
        }
        Ok(())
    }
}

/// What is inside the first PEM armor.
fn unarmored(pem: &[u8]) -> Result<Vec<u8>, RequestError> {
    if pem.len() > 2 * REQUEST_LEN_MAX {
        return Err(RequestError::TooLong);
    }
    let text = std::str::from_utf8(pem).map_err(|_| RequestError::Armor)?;
    let (_, armored) = text.split_once("-----BEGIN ").ok_or(RequestError::Armor)?;
    let body = armored.strip_prefix("CERTIFICATE REQUEST-----").ok_or(RequestError::Armor)?;
    let (body, _) = body.split_once("-----END CERTIFICATE REQUEST-----").ok_or(RequestError::Armor)?;
    let body: String = body.split_whitespace().collect();
    base64::engine::general_purpose::STANDARD.decode(body).map_err(|_| RequestError::Armor)
}

/// Whoever asks has the key.
fn check_signature(request: &X509CertificationRequest<'_>) -> Result<(), RequestError> {
    let about = &request.certification_request_info;
    let key = about.subject_pki.subject_public_key.data.as_ref();
    let algorithm = algorithm(&request.signature_algorithm.algorithm.to_id_string(), key.len());
    let algorithm = algorithm.ok_or(RequestError::Signature)?;
    let signature = &request.signature_value.data;
    UnparsedPublicKey::new(algorithm, key).verify(about.raw, signature).map_err(|_| RequestError::Signature)
}

/// The algorithm of a signature; of those on curves, the curve is known by the length of the key, a point.
fn algorithm(oid: &str, key_len: usize) -> Option<&'static dyn VerificationAlgorithm> {
    Some(match (oid, key_len) {
        ("1.2.840.113549.1.1.11", _) => &signature::RSA_PKCS1_2048_8192_SHA256,
        ("1.2.840.113549.1.1.12", _) => &signature::RSA_PKCS1_2048_8192_SHA384,
        ("1.2.840.113549.1.1.13", _) => &signature::RSA_PKCS1_2048_8192_SHA512,
        ("1.2.840.10045.4.3.2", 65) => &signature::ECDSA_P256_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", 65) => &signature::ECDSA_P256_SHA384_ASN1,
        ("1.2.840.10045.4.3.2", 97) => &signature::ECDSA_P384_SHA256_ASN1,
        ("1.2.840.10045.4.3.3", 97) => &signature::ECDSA_P384_SHA384_ASN1,
        ("1.2.840.10045.4.3.4", 133) => &signature::ECDSA_P521_SHA512_ASN1,
        ("1.3.101.112", _) => &signature::ED25519,
        _ => return None,
    })
}
