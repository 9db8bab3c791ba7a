//! X.509: the common name is the user, organizations are groups, and a URI name may confine it to one plane.

use polder_model::{PlaneId, SmolStr};
use sha2::{Digest as _, Sha256};
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{Oid, asn1_rs::oid};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CREDENTIAL_ID, Unauthenticated};
use crate::UserInfo;

/// The attribute of a subject that has the user's UID.
const UID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);

/// A certificate with the URI name `polder:plane:<id>` is good in that plane only. The id is a plane's number, not
/// its name, so that a plane made again under the same name does not accept the old one's certificates.
pub const PLANE_URI_SCHEME: &str = "polder:plane:";

/// What a certificate says that somebody has verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    user: UserInfo,
    /// In seconds since 1970.
    until: i64,
}

impl ClientCertificate {
    /// `None` when it names nobody or confines it to something that is no plane.
    pub fn read(der: &[u8]) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let mut user = user(&certificate)?;
        let id = Sha256::digest(der)
            .iter()
            .fold(String::from("X509SHA256="), |id, byte| format!("{id}{byte:02x}"));
        user.extra.push((SmolStr::new_static(CREDENTIAL_ID), vec![SmolStr::from(id)]));
        Some(ClientCertificate { user, until: certificate.validity().not_after.timestamp() })
    }

    /// Whoever it is for, as long as it is good: connections may live longer.
    pub fn user(&self, now: i64) -> Result<&UserInfo, Unauthenticated> {
        if now <= self.until { Ok(&self.user) } else { Err(Unauthenticated) }
    }

    /// The only plane it is good in.
    pub fn home(&self) -> Option<PlaneId> {
        self.user.home
    }
}

fn user(certificate: &X509Certificate<'_>) -> Option<UserInfo> {
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let groups = subject.iter_organization().map(|group| group.as_str().map(SmolStr::new));
    let mut user = UserInfo::authenticated(name, groups.collect::<Result<Vec<_>, _>>().ok()?);
    let mut uids = subject.iter_by_oid(&UID);
    if let Some(uid) = uids.next() {
        user.uid = SmolStr::new(uid.as_str().ok().filter(|uid| !uid.is_empty())?);
        if uids.next().is_some() {
            return None;
        }
    }
    if let Some(names) = certificate.subject_alternative_name().ok()? {
        for general_name in &names.value.general_names {
            if let GeneralName::URI(uri) = general_name
                && let Some(plane) = uri.strip_prefix(PLANE_URI_SCHEME)
            {
                let plane = PlaneId(plane.parse().ok()?);
                if user.home.replace(plane).is_some_and(|other| other != plane) {
                    return None;
                }
            }
        }
    }
    Some(user)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(name: &str, groups: &[&str], uri: Option<&str>) -> Vec<u8> {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        if !name.is_empty() {
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
        }
        for group in groups {
            params.distinguished_name.push(rcgen::DnType::OrganizationName, *group);
        }
        if let Some(uri) = uri {
            params.subject_alt_names.push(rcgen::SanType::URI(uri.try_into().unwrap()));
        }
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn user(der: &[u8]) -> Option<UserInfo> {
        ClientCertificate::read(der).map(|found| found.user)
    }

    #[test]
    fn names_groups_and_planes() {
        let user = user(&certificate("ann", &["system:masters"], None)).unwrap();
        assert_eq!(user.name, "ann");
        assert!(user.in_group("system:masters") && user.in_group("system:authenticated"));
        assert_eq!(user.home, None);

        let (key, id) = &user.extra[0];
        assert_eq!((key.as_str(), id[0].len()), (CREDENTIAL_ID, "X509SHA256=".len() + 64));

        let user = self::user(&certificate("ann", &[], Some("polder:plane:42"))).unwrap();
        assert_eq!(user.home, Some(PlaneId(42)));
    }

    #[test]
    fn it_ends() {
        let found = ClientCertificate::read(&certificate("ann", &[], None)).unwrap();
        assert!(found.user(found.until).is_ok());
        assert_eq!(found.user(found.until + 1), Err(Unauthenticated));
    }

    #[test]
    fn what_names_nobody_is_refused() {
        assert_eq!(user(&certificate("", &["system:masters"], None)), None);
        assert_eq!(user(&certificate("ann", &[], Some("polder:plane:x"))), None);
        assert_eq!(user(b"garbage"), None);
    }
}
