//! Certificates for those who ask: what controllers need of whoever holds the keys of planes.

use polder_model::{PlaneId, SmolStr};

/// What a request asks for, read by the authority. A request that is not well formed is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    pub common_name: SmolStr,
    pub organizations: Vec<SmolStr>,
    /// Whether it wants alternative names of these kinds.
    pub has_dns_names: bool,
    pub has_emails: bool,
    pub has_addresses: bool,
    pub has_uris: bool,
}

/// What a certificate is to be good for, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateTerms {
    /// In the words of the certificates API.
    pub usages: Vec<SmolStr>,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
}

/// Knows the keys that planes sign tokens of service accounts with.
pub trait TokenKeys: Send + Sync {
    /// Whether what the key of this name signed in a plane is believed.
    fn believes(&self, plane: PlaneId, key: &str) -> bool;
}

/// Signs in the name of planes. Errors are for people to read.
pub trait CertificateAuthority: Send + Sync + std::fmt::Debug {
    /// Reads a request in PEM.
    fn read(&self, pem: &[u8]) -> Result<CertificateRequest, String>;

    /// A certificate in PEM, good in one plane. What nobody may have in it is refused.
    fn sign(&self, plane: PlaneId, pem: &[u8], terms: &CertificateTerms) -> Result<String, String>;
}
