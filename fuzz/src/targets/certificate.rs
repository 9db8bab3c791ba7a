//! Client certificates: whoever is read from one is a named, authenticated user.

use std::sync::LazyLock;

use polder_auth::authn::ClientCertificate;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use crate::random::Random;

pub const WORDS: &[&str] = &["polder:plane:", "42", "-1", "system:masters", "U\u{4}\u{3}", "U\u{4}\n", "0\u{11}", "\u{c}", "\u{13}", "0\0"];

/// Made once: keys are slow, and nobody looks at signatures here.
static CERTIFICATES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("the system has randomness");
    let rows: [(&str, &[&str], &[&str]); 4] = [
        ("ann", &["system:masters", "dev"], &[]),
        ("bob", &[], &["polder:plane:42"]),
        ("", &["dev"], &["polder:plane:1", "polder:plane:2"]),
        ("é", &[""], &["polder:plane:x", "https://a.example/"]),
    ];
    rows.into_iter()
        .map(|(name, groups, uris)| {
            let mut params = CertificateParams::default();
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            for group in groups {
                params.distinguished_name.push(DnType::OrganizationName, *group);
            }
            params.subject_alt_names =
                uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("ASCII"))).collect();
            params.self_signed(&key).expect("a certificate can be signed").der().to_vec()
        })
        .collect()
});

pub fn make(random: &mut Random) -> Vec<u8> {
    let mut der = random.pick(&CERTIFICATES).clone();
    // Lengths and tags matter most, and they are single bytes.
    for _ in 0..random.below(4) {
        let at = random.below(der.len());
        der[at] = if random.one_in(2) { random.byte() } else { der[at].wrapping_add(1) };
    }
    der
}

pub fn run(data: &[u8]) {
    let Some(found) = ClientCertificate::read(data) else { return };
    if let Ok(user) = found.user(0) {
        assert!(!user.name.is_empty());
        assert!(user.in_group("system:authenticated"));
    }
    assert!(found.user(i64::MAX).is_err(), "nothing is good for ever");
    assert_eq!(ClientCertificate::read(data), Some(found), "the same every time");
    crate::accepted();
}
