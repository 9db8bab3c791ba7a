//! The certificate authority of each plane: what a plane's signers sign with, and what their certificates are verified
//! against.
//!
//! Its key is derived from a secret of the server and the plane's number, so that it costs nothing until it is used, is kept
//! nowhere, and is never that of another plane. It stands beside the server's own authority and not below it: a tenant
//! decides which names its certificates have, and nobody who trusts the server may trust those (ADR 0013). Its
//! certificates name the server's authority as their issuer, because clients offer what the server says it accepts.
//!
//! Invariant: every certificate from here says which plane it is of, and nothing that was asked for can say it.

mod der;
mod request;
mod usage;

use std::fmt;

use aws_lc_rs::hkdf;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use polder_model::{PlaneId, SmolStr};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub use request::{Request, RequestError};

use crate::MASTERS;
use crate::authn::{ClientCertificate, PLANE_URI_SCHEME};

/// Names of our own; nobody gets one by asking.
const RESERVED_SCHEME: &str = "polder:";
/// Ed25519.
const ALGORITHM: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];

/// The authorities of all planes.
pub struct PlaneAuthorities {
    secret: hkdf::Prk,
    /// The name of the issuer, as a certificate has it.
    issuer: Vec<u8>,
}

/// What a certificate is good for, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// In the words of the certificates API.
    pub usages: Vec<SmolStr>,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
}

/// Why no certificate is made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("URI subjectAltNames that begin with {RESERVED_SCHEME} are not allowed")]
    Reserved,
    #[error("use of the {MASTERS} group is not allowed")]
    Masters,
    #[error("unrecognized usage values")]
    Usage,
    #[error("the time of expiry is out of range")]
    Time,
    #[error("the key of the plane cannot be used")]
    Key,
}

/// What verifies certificates of a plane, as parts of a trust anchor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The contents of its name and of its public key.
    pub subject: Vec<u8>,
    pub public_key: Vec<u8>,
}

impl PlaneAuthorities {
    /// From a secret that is kept as long as the server's own authority, whose certificate this is.
    pub fn new(secret: &[u8], ca: &[u8]) -> Option<PlaneAuthorities> {
        let (_, ca) = X509Certificate::from_der(ca).ok()?;
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"polder plane authority");
        Some(PlaneAuthorities { secret: salt.extract(secret), issuer: ca.subject().as_raw().to_vec() })
    }

    /// The plane whose authority is to have signed a certificate. Who it is of is known only when that is verified.
    pub fn plane_of(certificate: &[u8]) -> Option<PlaneId> {
        ClientCertificate::read(certificate)?.home()
    }

    pub fn anchor(&self, plane: PlaneId) -> Option<Anchor> {
        let key = self.key(plane)?;
        let public_key = [&ALGORITHM[..], &der::bits(key.public_key().as_ref())].concat();
        let (_, subject) = x509_parser::der_parser::asn1_rs::Any::from_der(&self.issuer).ok()?;
        Some(Anchor { subject: subject.data.to_vec(), public_key })
    }

    /// A certificate for whoever asks, in DER.
    pub fn issue(&self, plane: PlaneId, request: &Request, terms: &Terms) -> Result<Vec<u8>, IssueError> {
        let reserved = |uri: &String| {
            uri.get(..RESERVED_SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED_SCHEME))
        };
        if request.uris.iter().any(reserved) {
            return Err(IssueError::Reserved);
        }
        if request.organizations.iter().any(|organization| organization == MASTERS) {
            return Err(IssueError::Masters);
        }
        let key = self.key(plane).ok_or(IssueError::Key)?;
        let time = |seconds| der::time(seconds).ok_or(IssueError::Time);
        let mut serial = [0; 16];
        aws_lc_rs::rand::fill(&mut serial).map_err(|_| IssueError::Key)?;
        // Positive, and of a length that does not tell.
        serial[0] = serial[0] & 0x7f | 0x40;
        let about = der::sequence(&[
            &der::element(0xa0, &der::integer(&[2])),
            &der::integer(&serial),
            &ALGORITHM,
            &self.issuer,
            &der::sequence(&[&time(terms.not_before)?, &time(terms.not_after)?]),
            &request.subject,
            &request.key,
            &der::element(0xa3, &extensions(plane, request, terms, key.public_key().as_ref())?),
        ]);
        let signature = key.sign(&about);
        Ok(der::sequence(&[&about, &ALGORITHM, &der::bits(signature.as_ref())]))
    }

    fn key(&self, plane: PlaneId) -> Option<Ed25519KeyPair> {
        let number = plane.0.to_be_bytes();
        let info = [&number[..]];
        let mut seed = [0; 32];
        self.secret.expand(&info, Seed).ok()?.fill(&mut seed).ok()?;
        Ed25519KeyPair::from_seed_unchecked(&seed).ok()
    }
}

impl fmt::Debug for PlaneAuthorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlaneAuthorities").finish_non_exhaustive()
    }
}

/// As long as what a key is made from.
struct Seed;

impl hkdf::KeyType for Seed {
    fn len(&self) -> usize {
        32
    }
}

fn extensions(
    plane: PlaneId,
    request: &Request,
    terms: &Terms,
    issuer_key: &[u8],
) -> Result<Vec<u8>, IssueError> {
    const CRITICAL: &[u8] = &[0x01, 1, 0xff];
    let (bits, identifiers) = usage::of(terms.usages.iter().map(SmolStr::as_str)).ok_or(IssueError::Usage)?;
    let extension = |identifier: u8, critical: &[u8], value: &[u8]| {
        let identifier = [6, 3, 0x55, 0x1d, identifier];
        der::sequence(&[&identifier, critical, &der::element(der::OCTET_STRING, value)])
    };
    let mut all = Vec::new();
    if bits != 0 {
        all.extend(extension(15, CRITICAL, &der::flags(bits)));
    }
    if !identifiers.is_empty() {
        let identifiers: Vec<u8> = identifiers.iter().flat_map(|one| der::element(6, one)).collect();
        all.extend(extension(37, &[], &der::element(der::SEQUENCE, &identifiers)));
    }
    // Not an authority.
    all.extend(extension(19, CRITICAL, &der::sequence(&[])));
    let key_id = Sha256::digest(issuer_key);
    all.extend(extension(35, &[], &der::sequence(&[&der::element(0x80, &key_id[..20])])));
    let plane = format!("{PLANE_URI_SCHEME}{plane}");
    let mut names = Vec::new();
    names.extend(request.dns_names.iter().flat_map(|name| der::element(0x82, name.as_bytes())));
    names.extend(request.emails.iter().flat_map(|name| der::element(0x81, name.as_bytes())));
    names.extend(request.addresses.iter().flat_map(|address| der::element(0x87, address)));
    names.extend(request.uris.iter().flat_map(|name| der::element(0x86, name.as_bytes())));
    names.extend(der::element(0x86, plane.as_bytes()));
    all.extend(extension(17, &[], &der::element(der::SEQUENCE, &names)));
    Ok(der::element(der::SEQUENCE, &all))
}

#[cfg(test)]
mod tests;
