//! Tokens that say they are of a service account: none is believed that was not signed here.

use std::sync::LazyLock;

use polder_auth::authn::{AccountSecret, AccountTokens, Bound, Claims};
use polder_model::PlaneId;

use crate::random::Random;

pub const WORDS: &[&str] = &[".", "eyJhbGciOiJFUzI1NiIsImtpZCI6", "eyJhbGciOiJub25lIn0", "==", "polder.dev"];

static TOKENS: LazyLock<AccountTokens> = LazyLock::new(|| {
    let secret = |generation| AccountSecret {
        generation,
        secret: b"a secret of the test".to_vec(),
        used_from: 0,
        tokens_until: i64::MAX,
    };
    AccountTokens::new(&[secret(1), secret(2)])
});

fn claims(plane: u64) -> Claims {
    let bound = |name: &str| Bound { name: name.into(), uid: "uid".into() };
    Claims {
        plane: PlaneId(plane),
        issuer: "https://polder.test/clusters/a".into(),
        audiences: vec!["x".into()],
        namespace: "default".into(),
        account: bound("robot"),
        bound: None,
        node: None,
        warn_after: None,
        id: "j".into(),
        issued: 0,
        expires: 1_000,
    }
}

static SIGNED: LazyLock<Vec<String>> =
    LazyLock::new(|| (1..4).filter_map(|plane| TOKENS.sign(&claims(plane)).ok()).collect());

/// A token as it was signed, or parts of several, or one with another byte.
pub fn make(random: &mut Random) -> Vec<u8> {
    let mut token = random.pick(&SIGNED).clone().into_bytes();
    match random.below(3) {
        0 => {}
        1 => {
            let other = random.pick(&SIGNED).as_bytes();
            let at = random.below(token.len().min(other.len()));
            token.splice(at.., other[at..].iter().copied());
        }
        _ => {
            let at = random.below(token.len());
            token[at] = random.byte();
        }
    }
    token
}

pub fn run(data: &[u8]) {
    let Ok(token) = std::str::from_utf8(data) else { return };
    let Some(Ok(found)) = TOKENS.read(token, 500) else { return };
    assert_eq!(found, claims(found.plane.0), "what was signed");
    assert!(matches!(TOKENS.read(token, 2_000), Some(Err(_))), "it ends");
    crate::accepted();
}
