//! Signatures of `cluster-info`, by which a node that joins knows the right server: for each bootstrap token that says so, the
//! kubeconfig in there is signed with the token's secret, and what other tokens signed is taken out.
//!
//! As upstream, whoever installs a cluster writes `kube-public/cluster-info`; without it there is nothing to sign. A plane that
//! has neither such a token nor that map wakes nobody.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use polder_client::resource::{CONFIG_MAPS, SECRETS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Wake};
use polder_model::{Object, SmolStr, Value, format_smolstr};

use crate::bootstrap_cleaner::{self, NAMESPACE, PREFIX, SECRET_TYPE};
use crate::meta;

const MAP_NAMESPACE: &str = "kube-public";
const MAP: &str = "cluster-info";
const CONTENT: &str = "kubeconfig";
const SIGNATURE_PREFIX: &str = "jws-kubeconfig-";
const USAGE: &str = "usage-bootstrap-signing";
/// The map has to stay one that can be stored: tokens beyond these sign nothing.
const SIGNATURES_LEN_MAX: usize = 512;

pub(crate) struct BootstrapSigner;

impl Controller for BootstrapSigner {
    fn name(&self) -> &'static str {
        "bootstrap-signer-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SECRETS, &CONFIG_MAPS])
    }

    /// There is one key: everything is signed anew.
    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let is_about = if change.is(&CONFIG_MAPS) {
            change.new.is_some() && change.namespace == MAP_NAMESPACE && change.name == MAP
        } else {
            let mut both = [&change.old, &change.new].into_iter().flatten();
            change.namespace == NAMESPACE
                && change.name.starts_with(PREFIX)
                && both.any(|secret| secret.may_contain(USAGE))
        };
        if is_about {
            wake(SmolStr::new_static(MAP));
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, _: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let Some(map) = plane.get(&CONFIG_MAPS, MAP_NAMESPACE, MAP).await? else { return Ok(Next::Done) };
            if meta::is_deleting(&map) {
                return Ok(Next::Done);
            }
            let query = Query { namespace: NAMESPACE.into(), containing: &[USAGE], ..Query::default() };
            let secrets = plane.client.list(plane.plane, &SECRETS, query).await?;
            let now = plane.client.now();
            let tokens = secrets.iter().filter_map(|secret| token(secret, now));
            if let Some(signed) = signed(&map, &tokens.take(SIGNATURES_LEN_MAX).collect()) {
                plane.update(&CONFIG_MAPS, signed).await?;
            }
            Ok(Next::Done)
        })
    }
}

/// The number and the secret of a token that signs. One that is over is none; when its secret goes, everything is signed anew.
fn token(secret: &Value, now: i64) -> Option<(SmolStr, Vec<u8>)> {
    let data = |key: &str| STANDARD.decode(secret.str_at(&["data", key])?).ok();
    let id = meta::name(secret).strip_prefix(PREFIX)?;
    let is_plain = id.len() == 6 && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_good = is_plain
        && secret.str_at(&["type"]) == Some(SECRET_TYPE)
        && !meta::is_deleting(secret)
        && data("token-id").as_deref() == Some(id.as_bytes())
        && data(USAGE).as_deref() == Some(b"true")
        && bootstrap_cleaner::end(secret).is_none_or(|ends| ends > now);
    let key = data("token-secret").filter(|key| !key.is_empty());
    key.filter(|_| is_good).map(|key| (SmolStr::new(id), key))
}

/// The map with the signatures of these tokens and no others; nothing if it has them, or has nothing to sign.
fn signed(map: &Value, tokens: &BTreeMap<SmolStr, Vec<u8>>) -> Option<Value> {
    let own = map.get("data")?.as_object()?;
    let content = own.get(CONTENT)?.as_str()?;
    let rest = own.iter().filter(|(key, _)| !key.starts_with(SIGNATURE_PREFIX));
    let mut data: Object = rest.map(|(key, value)| (key.clone(), value.clone())).collect();
    for (id, key) in tokens {
        let name = format_smolstr!("{SIGNATURE_PREFIX}{id}");
        data.insert(name, Value::from(signature(content, id, key)));
    }
    let mut new = map.clone();
    new.set_at(&["data"], Value::Object(data));
    (new != *map).then_some(new)
}

/// A JSON web signature without its content. Whoever verifies it makes the same text and compares, so every byte of the head
/// counts.
fn signature(content: &str, id: &str, key: &[u8]) -> String {
    let head = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{id}"}}"#));
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, format!("{head}.{}", URL_SAFE_NO_PAD.encode(content)).as_bytes());
    format!("{head}..{}", URL_SAFE_NO_PAD.encode(tag))
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    /// What Python's `hmac` and `base64` make of the same.
    #[test]
    fn signatures_are_those_of_others() {
        let content = "Hello from the other side. I must have called a thousand times.";
        assert_eq!(
            signature(content, "joshua", b"my voice is my passport"),
            "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..Wvm4lABG2MTCQNvjZK5AJ7th6Qm1ywTmBDAVJNF7IHM"
        );
    }

    #[test]
    fn tokens_that_say_so_sign() {
        let secret = |changes: &[(&str, &str)]| {
            let mut secret = json!({"type": SECRET_TYPE, "metadata": {"name": "bootstrap-token-abcdef"}});
            let own = [("token-id", "abcdef"), ("token-secret", "0123456789abcdef"), (USAGE, "true")];
            for (key, value) in own.iter().chain(changes) {
                secret.set_at(&["data", key], STANDARD.encode(value));
            }
            secret
        };
        let good = Some((SmolStr::new("abcdef"), b"0123456789abcdef".to_vec()));
        assert_eq!(token(&secret(&[]), 1_000), good);
        assert_eq!(token(&secret(&[("expiration", "1970-01-01T00:16:41Z")]), 1_000), good);
        for (key, value) in [
            ("expiration", "1970-01-01T00:16:40Z"),
            ("expiration", "soon"),
            ("token-id", "abcdeg"),
            ("token-secret", ""),
            (USAGE, "false"),
        ] {
            assert_eq!(token(&secret(&[(key, value)]), 1_000), None, "{key}={value}");
        }
        for (path, value) in
            [(["metadata", "name"], "bootstrap-token-ABCDEF"), (["metadata", "deletionTimestamp"], "x")]
        {
            let mut other = secret(&[("token-id", "ABCDEF")]);
            other.set_at(&path, value);
            assert_eq!(token(&other, 1_000), None, "{path:?}");
        }
        let mut other = secret(&[]);
        other.set_at(&["type"], "Opaque");
        assert_eq!(token(&other, 1_000), None);
    }

    #[test]
    fn a_map_has_the_signatures_it_should() {
        let tokens = BTreeMap::from([(SmolStr::new("abcdef"), b"0123456789abcdef".to_vec())]);
        let map = json!({"data": {"kubeconfig": "text", "own": "stays", "jws-kubeconfig-aaaaaa": "old"}});
        let new = signed(&map, &tokens).unwrap();
        let keys: Vec<&str> =
            new.get("data").unwrap().as_object().unwrap().iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys.len(), 3);
        assert_eq!(
            new.str_at(&["data", "jws-kubeconfig-abcdef"]).unwrap(),
            signature("text", "abcdef", b"0123456789abcdef")
        );
        assert_eq!(signed(&new, &tokens), None, "nothing is left to do");
        let none = signed(&new, &BTreeMap::new()).unwrap();
        assert_eq!(none, json!({"data": {"kubeconfig": "text", "own": "stays"}}));
        assert_eq!(signed(&json!({"data": {"own": "x"}}), &tokens), None, "there is nothing to sign");
        assert_eq!(signed(&json!({}), &tokens), None);
    }
}
