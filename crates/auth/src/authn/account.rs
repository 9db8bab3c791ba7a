//! Tokens of service accounts: signed by this server, each good in one plane only, and only while what it was made for
//! is there. Which objects are there is for others to say; here is what a token claims, and whether it may.
//!
//! A token is a JSON web token with upstream's claims and one more, the number of its plane, which is never used for another
//! plane. So a token outlives neither its plane nor a plane of the same name.
//!
//! Each plane signs with a key of its own, which is derived from a secret of the server and the plane's number: it costs
//! nothing until it is used, and whoever verifies tokens by a plane's public key believes no other plane's.
//!
//! The secret is there in generations (ADR 0019): one is used, a newer one may be told already, and older ones are believed until the last
//! token they signed has ended.

use std::fmt;

use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::hkdf;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use polder_model::{PlaneId, Recent, SmolStr, Value, format_smolstr, json};
use sha2::{Digest as _, Sha256};

use super::{CREDENTIAL_ID, Unauthenticated};
use crate::UserInfo;

/// Longer ones are not ours.
const TOKEN_LEN_MAX: usize = 16 * 1024;
/// Clocks of those who check tokens may be this much behind.
const LEEWAY_SECONDS: i64 = 10;

/// Keys of planes that are kept at hand.
const KEYS_LEN_MAX: usize = 1024;
/// Tokens whose signature is known to be good: to verify one costs more than to answer most requests.
const VERIFIED_LEN_MAX: usize = 16 * 1024;
/// What comes before the secret number of a key in PKCS #8: that it is one of the curve P-256.
const PKCS8_HEAD: [u8; 35] = [
    0x30, 0x41, 2, 1, 0, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 3, 1, 7, 4, 0x27, 0x30, 0x25, 2, 1, 1, 4, 0x20,
];

/// What signs tokens of service accounts, and reads them.
pub struct AccountTokens {
    /// The newest first.
    secrets: ArcSwap<Vec<Generation>>,
    keys: Mutex<Recent<(PlaneId, u32), Arc<PlaneKey>>>,
    /// By digest, what tokens claim that were verified lately, and by which generation. Whether they are good at the time is
    /// another matter.
    verified: Mutex<Recent<[u8; 32], (u32, Claims)>>,
    notary: Option<Box<dyn TokenNotary>>,
}

/// Notes how long a generation must be believed, before a token is given out that ends later than was noted.
pub trait TokenNotary: Send + Sync {
    fn note(&self, generation: u32, ends: i64) -> Result<(), AccountKeyError>;
}

/// A secret from which the keys of planes are derived.
#[derive(Clone)]
pub struct AccountSecret {
    pub generation: u32,
    pub secret: Vec<u8>,
    /// Seconds since 1970: when it is used for new tokens, and when all its tokens have ended, as far as is noted.
    pub used_from: i64,
    pub tokens_until: i64,
}

struct Generation {
    number: u32,
    secret: hkdf::Prk,
    used_from: i64,
    tokens_until: i64,
}

/// The key of a plane.
struct PlaneKey {
    key: EcdsaKeyPair,
    /// Names the key in the tokens it signed.
    id: String,
}

/// The key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("not a key for service account tokens")]
pub struct AccountKeyError;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub plane: PlaneId,
    pub issuer: SmolStr,
    pub audiences: Vec<SmolStr>,
    pub namespace: SmolStr,
    pub account: Bound,
    /// The token goes when this object does: a pod, a secret or a node, by its kind in small letters.
    pub bound: Option<(SmolStr, Bound)>,
    /// Of a token for a pod: the node it ran on. The token is not bound to it.
    pub node: Option<Bound>,
    /// Whoever shows it later than this should have asked for another one by then. Seconds since 1970.
    pub warn_after: Option<i64>,
    /// Its own name.
    pub id: SmolStr,
    /// Seconds since 1970.
    pub issued: i64,
    pub expires: i64,
}

/// An object that must be there, and be the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub name: SmolStr,
    pub uid: SmolStr,
}

impl fmt::Debug for AccountTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountTokens").finish_non_exhaustive()
    }
}

impl AccountTokens {
    /// From secrets that are kept as long as tokens are good that were signed by them.
    pub fn new(secrets: &[AccountSecret]) -> AccountTokens {
        AccountTokens {
            secrets: ArcSwap::from_pointee(generations(secrets)),
            keys: Mutex::new(Recent::new(KEYS_LEN_MAX)),
            verified: Mutex::new(Recent::new(VERIFIED_LEN_MAX)),
            notary: None,
        }
    }

    /// The same with somebody who notes tokens that end late.
    #[must_use]
    pub fn with_notary(self, notary: impl TokenNotary + 'static) -> AccountTokens {
        AccountTokens { notary: Some(Box::new(notary)), ..self }
    }

    /// From now on these, and no others, sign and are believed.
    pub fn replace(&self, secrets: &[AccountSecret]) {
        self.secrets.store(Arc::new(generations(secrets)));
    }

    fn key(&self, plane: PlaneId, generation: &Generation) -> Result<Arc<PlaneKey>, AccountKeyError> {
        let place = (plane, generation.number);
        if let Some(known) = self.keys.lock().get(&place) {
            return Ok(known);
        }
        // Nearly every number is a key; the next one is tried where one is not.
        let key = (0..4).find_map(|attempt: u8| {
            let (number, mut scalar) = (plane.0.to_be_bytes(), [0; 32]);
            let info = [&number[..], &[attempt]];
            generation.secret.expand(&info, Scalar).ok()?.fill(&mut scalar).ok()?;
            let pkcs8 = [&PKCS8_HEAD[..], &scalar].concat();
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8).ok()
        });
        let key = key.ok_or(AccountKeyError)?;
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key()));
        let key = Arc::new(PlaneKey { key, id });
        drop(self.keys.lock().insert(place, key.clone(), 1));
        Ok(key)
    }

    /// What verifies tokens of a plane, as a set of JSON web keys: also those that are not used yet.
    pub fn public_keys(&self, plane: PlaneId) -> Result<Value, AccountKeyError> {
        let text = |number: &[u8]| URL_SAFE_NO_PAD.encode(number);
        let mut keys = Vec::new();
        for generation in self.secrets.load().iter() {
            let key = self.key(plane, generation)?;
            // A point that is not compressed: a byte that says so, and two numbers.
            let (x, y) = key.key.public_key().as_ref().get(1..).ok_or(AccountKeyError)?.split_at(32);
            keys.push(json!({
                "use": "sig", "kty": "EC", "kid": (key.id.as_str()), "crv": "P-256", "alg": "ES256",
                "x": (text(x)), "y": (text(y)),
            }));
        }
        Ok(json!({"keys": keys}))
    }

    /// Whether tokens are believed that a key of this name has signed for a plane.
    pub fn believes(&self, plane: PlaneId, id: &str) -> bool {
        let is_own = |own: &Generation| self.key(plane, own).is_ok_and(|key| key.id == id);
        self.secrets.load().iter().any(is_own)
    }

    pub fn sign(&self, claims: &Claims) -> Result<String, AccountKeyError> {
        let secrets = self.secrets.load();
        let used = secrets.iter().find(|own| own.used_from <= claims.issued).or(secrets.last());
        let used = used.ok_or(AccountKeyError)?;
        if claims.expires > used.tokens_until
            && let Some(notary) = &self.notary
        {
            notary.note(used.number, claims.expires)?;
        }
        let key = self.key(claims.plane, used)?;
        let header = json!({"alg": "ES256", "kid": (key.id.as_str())});
        let signed = format!("{}.{}", encode(&header), encode(&claims.to_value()));
        let signature = key.key.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| AccountKeyError)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// What a token claims, if it is one of ours and good at this time. `None` if it is no such token at all.
    pub fn read(&self, token: &str, now: i64) -> Option<Result<Claims, Unauthenticated>> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let digest: [u8; 32] = Sha256::digest(token).into();
        let secrets = self.secrets.load();
        let is_believed = |number: u32| secrets.iter().any(|own| own.number == number);
        let known = self.verified.lock().get(&digest).filter(|(number, _)| is_believed(*number));
        let claims = match known {
            Some((_, claims)) => claims,
            None => {
                let (signed, signature) = token.rsplit_once('.')?;
                let (header, payload) = signed.split_once('.')?;
                let (header, payload) = (decode(header)?, decode(payload)?);
                // What is read before it is verified only chooses the key that verifies it.
                let plane = PlaneId(payload.str_at(&["polder.dev", "plane"])?.parse().ok()?);
                let id = header.str_at(&["kid"]).filter(|_| header.str_at(&["alg"]) == Some("ES256"))?;
                let (number, key) = secrets.iter().find_map(|own| {
                    let key = self.key(plane, own).ok().filter(|key| key.id == id)?;
                    Some((own.number, key))
                })?;
                let Some(claims) = verified(&key, signed, signature, &payload) else {
                    return Some(Err(Unauthenticated));
                };
                drop(self.verified.lock().insert(digest, (number, claims.clone()), 1));
                claims
            }
        };
        let good = claims.issued - LEEWAY_SECONDS <= now && now < claims.expires + LEEWAY_SECONDS;
        Some(good.then_some(claims).ok_or(Unauthenticated))
    }
}

fn generations(secrets: &[AccountSecret]) -> Vec<Generation> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"polder service account tokens");
    let mut all: Vec<Generation> = secrets
        .iter()
        .map(|own| Generation {
            number: own.generation,
            secret: salt.extract(&own.secret),
            used_from: own.used_from,
            tokens_until: own.tokens_until,
        })
        .collect();
    all.sort_by_key(|own| std::cmp::Reverse(own.number));
    all
}

fn verified(key: &PlaneKey, signed: &str, signature: &str, payload: &Value) -> Option<Claims> {
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.key.public_key());
    public.verify(signed.as_bytes(), &signature).ok()?;
    Claims::from_value(payload)
}

/// As long as what a key is made from.
struct Scalar;

impl hkdf::KeyType for Scalar {
    fn len(&self) -> usize {
        32
    }
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_vec())
}

fn decode(part: &str) -> Option<Value> {
    Value::parse(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
}

impl Claims {
    fn to_value(&self) -> Value {
        let object = |bound: &Bound| json!({"name": (bound.name.clone()), "uid": (bound.uid.clone())});
        let mut own =
            json!({"namespace": (self.namespace.clone()), "serviceaccount": (object(&self.account))});
        if let Some((kind, bound)) = &self.bound {
            own.set_at(&[kind], object(bound));
        }
        if let Some(node) = &self.node {
            own.set_at(&["node"], object(node));
        }
        if let Some(warn_after) = self.warn_after {
            own.set_at(&["warnafter"], warn_after);
        }
        let audiences: Vec<Value> = self.audiences.iter().map(Value::from).collect();
        json!({
            "aud": audiences, "exp": (self.expires), "iat": (self.issued), "nbf": (self.issued),
            "iss": (self.issuer.clone()), "jti": (self.id.clone()), "sub": (self.subject()),
            "kubernetes.io": own, "polder.dev": {"plane": (self.plane.0.to_string())},
        })
    }

    fn from_value(value: &Value) -> Option<Claims> {
        let text = |path: &[&str]| value.str_at(path).map(SmolStr::new);
        let object = |kind: &str| {
            let part = |field: &str| text(&["kubernetes.io", kind, field]);
            Some(Bound { name: part("name")?, uid: part("uid")? })
        };
        let kinds = ["pod", "secret", "node"];
        let bound = kinds.iter().find_map(|kind| Some((SmolStr::new_static(kind), object(kind)?)));
        Some(Claims {
            plane: PlaneId(value.str_at(&["polder.dev", "plane"])?.parse().ok()?),
            issuer: text(&["iss"])?,
            audiences: value.array_at(&["aud"]).iter().filter_map(Value::as_str).map(SmolStr::new).collect(),
            namespace: text(&["kubernetes.io", "namespace"])?,
            account: object("serviceaccount")?,
            node: bound.as_ref().filter(|(kind, _)| kind == "pod").and_then(|_| object("node")),
            bound,
            warn_after: value.i64_at(&["kubernetes.io", "warnafter"]),
            id: text(&["jti"])?,
            issued: value.i64_at(&["iat"])?,
            expires: value.i64_at(&["exp"])?,
        })
    }

    pub fn subject(&self) -> SmolStr {
        format_smolstr!("system:serviceaccount:{}:{}", self.namespace, self.account.name)
    }

    /// Who the token is for, if all it names is there. Exists in one plane only.
    pub fn user(&self) -> UserInfo {
        let groups = [
            SmolStr::new_static("system:serviceaccounts"),
            format_smolstr!("system:serviceaccounts:{}", self.namespace),
        ];
        let mut user = UserInfo::authenticated(self.subject(), groups);
        user.uid.clone_from(&self.account.uid);
        user.home = Some(self.plane);
        let key = |name: &str| format_smolstr!("authentication.kubernetes.io/{name}");
        user.extra.push((SmolStr::new_static(CREDENTIAL_ID), vec![format_smolstr!("JTI={}", self.id)]));
        let bound = self.bound.iter().map(|(kind, bound)| (kind.as_str(), bound));
        let node = self.node.iter().map(|node| ("node", node));
        // Upstream says nothing of a secret.
        for (kind, bound) in bound.chain(node).filter(|(kind, _)| *kind != "secret") {
            user.extra.push((key(&format!("{kind}-name")), vec![bound.name.clone()]));
            // A node that was not there when the token was made has none.
            if !bound.uid.is_empty() {
                user.extra.push((key(&format!("{kind}-uid")), vec![bound.uid.clone()]));
            }
        }
        user
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        let bound = |name: &str| Bound { name: name.into(), uid: format_smolstr!("{name}-uid") };
        Claims {
            plane: PlaneId(17),
            issuer: "https://polder.test/clusters/a".into(),
            audiences: vec!["x".into()],
            namespace: "default".into(),
            account: bound("robot"),
            bound: Some(("pod".into(), bound("web"))),
            node: Some(bound("machine")),
            warn_after: Some(1_700),
            id: "j".into(),
            issued: 1_000,
            expires: 2_000,
        }
    }

    fn tokens() -> AccountTokens {
        AccountTokens::new(&[secret(1, 0)])
    }

    fn secret(generation: u32, used_from: i64) -> AccountSecret {
        let mut secret = vec![0; 32];
        aws_lc_rs::rand::fill(&mut secret).unwrap();
        AccountSecret { generation, secret, used_from, tokens_until: 10_000 }
    }

    fn key_id(token: &str) -> String {
        let header = decode(token.split('.').next().unwrap()).unwrap();
        header.str_at(&["kid"]).unwrap().into()
    }

    #[test]
    fn keys_are_told_then_used_then_believed() {
        let (one, two) = (secret(1, 0), secret(2, 1_500));
        let tokens = AccountTokens::new(std::slice::from_ref(&one));
        let ids = |tokens: &AccountTokens| -> Vec<String> {
            let keys = tokens.public_keys(PlaneId(17)).unwrap();
            keys.array_at(&["keys"]).iter().map(|key| key.str_at(&["kid"]).unwrap().into()).collect()
        };
        let old = tokens.sign(&claims()).unwrap();
        assert_eq!(ids(&tokens), [key_id(&old)]);
        tokens.replace(&[one.clone(), two.clone()]);
        let told = tokens.sign(&claims()).unwrap();
        assert_eq!(key_id(&told), key_id(&old), "told, not used");
        assert_eq!(ids(&tokens).len(), 2);
        let later = Claims { issued: 1_500, ..claims() };
        let new = tokens.sign(&later).unwrap();
        assert_eq!(ids(&tokens), [key_id(&new), key_id(&old)]);
        assert_eq!(tokens.read(&new, 1_600), Some(Ok(later.clone())));
        assert_eq!(tokens.read(&old, 1_600), Some(Ok(claims())), "what was signed is still good");
        tokens.replace(&[two]);
        assert_eq!(tokens.read(&old, 1_600), None, "not even one that was verified a moment ago");
        assert_eq!(tokens.read(&new, 1_600), Some(Ok(later)));
        let believes = |plane: u64, token: &str| tokens.believes(PlaneId(plane), &key_id(token));
        assert_eq!((believes(17, &new), believes(17, &old), believes(18, &new)), (true, false, false));
    }

    #[test]
    fn late_ends_are_noted_before_a_token_is_given_out() {
        struct Notary(Arc<Mutex<Vec<(u32, i64)>>>, bool);
        impl TokenNotary for Notary {
            fn note(&self, generation: u32, ends: i64) -> Result<(), AccountKeyError> {
                self.0.lock().push((generation, ends));
                if self.1 { Ok(()) } else { Err(AccountKeyError) }
            }
        }
        let noted = Arc::new(Mutex::new(Vec::new()));
        let tokens = tokens().with_notary(Notary(noted.clone(), true));
        tokens.sign(&claims()).unwrap();
        assert!(noted.lock().is_empty(), "it is known that tokens end by then");
        tokens.sign(&Claims { expires: 10_001, ..claims() }).unwrap();
        assert_eq!(*noted.lock(), [(1, 10_001)]);
        let tokens = self::tokens().with_notary(Notary(noted, false));
        assert!(
            tokens.sign(&Claims { expires: 10_001, ..claims() }).is_err(),
            "what is not noted is not signed"
        );
    }

    #[test]
    fn tokens_say_what_was_signed() {
        let tokens = tokens();
        let token = tokens.sign(&claims()).unwrap();
        assert_eq!(tokens.read(&token, 1_500), Some(Ok(claims())));
        let user = claims().user();
        assert_eq!(user.name, "system:serviceaccount:default:robot");
        assert_eq!(user.home, Some(PlaneId(17)));
        assert!(user.in_group("system:serviceaccounts:default") && user.in_group("system:authenticated"));
        let extras = |claims: &Claims| -> Vec<String> {
            let all =
                claims.user().extra.into_iter().map(|(key, values)| format!("{key}={}", values.join(",")));
            all.map(|text| text.replace("authentication.kubernetes.io/", "")).collect()
        };
        let of_pod = [
            "credential-id=JTI=j",
            "pod-name=web",
            "pod-uid=web-uid",
            "node-name=machine",
            "node-uid=machine-uid",
        ];
        assert_eq!(extras(&claims()), of_pod);
        let bound = |kind: &str| {
            let bound = Bound { name: "x".into(), uid: "y".into() };
            Claims { bound: Some((kind.into(), bound)), node: None, warn_after: None, ..claims() }
        };
        assert_eq!(extras(&bound("node")), ["credential-id=JTI=j", "node-name=x", "node-uid=y"]);
        assert_eq!(extras(&bound("secret")), ["credential-id=JTI=j"]);
        for claims in [bound("node"), bound("secret"), Claims { bound: None, node: None, ..claims() }] {
            assert_eq!(tokens.read(&tokens.sign(&claims).unwrap(), 1_500), Some(Ok(claims)));
        }
    }

    #[test]
    fn others_can_verify_them() {
        let tokens = tokens();
        let keys = tokens.public_keys(PlaneId(17)).unwrap();
        let key = &keys.array_at(&["keys"])[0];
        let number = |name: &str| URL_SAFE_NO_PAD.decode(key.str_at(&[name]).unwrap()).unwrap();
        let point = [&[4][..], &number("x"), &number("y")].concat();
        let token = tokens.sign(&claims()).unwrap();
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        assert!(public.verify(signed.as_bytes(), &signature).is_ok());
        assert_ne!(keys, tokens.public_keys(PlaneId(18)).unwrap(), "each plane has its own");
        assert_eq!(keys, tokens.public_keys(PlaneId(17)).unwrap());
    }

    #[test]
    fn tokens_are_refused() {
        let own = tokens();
        let token = own.sign(&claims()).unwrap();
        let refused = Some(Err(Unauthenticated));
        assert_eq!(own.read(&token, 900), refused, "too early");
        assert_eq!(own.read(&token, 2_011), refused, "too late");
        assert_eq!(tokens().read(&token, 1_500), None, "another key");
        let [header, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
        let other = Claims { plane: PlaneId(18), ..claims() };
        let forged = format!("{header}.{}.{signature}", encode(&other.to_value()));
        assert_eq!(own.read(&forged, 1_500), None, "another plane");
        let longer = Claims { expires: 3_000, ..claims() };
        let forged = format!("{header}.{}.{signature}", encode(&longer.to_value()));
        assert_eq!(own.read(&forged, 1_500), refused, "another time");
        assert_eq!(own.read(&token, 1_500), Some(Ok(claims())));
        assert_eq!(own.read(&token, 2_011), refused, "too late, though it was verified");
        let foreign = own.sign(&other).unwrap();
        let [header, _, signature] = foreign.split('.').collect::<Vec<_>>()[..] else {
            panic!("three parts")
        };
        let forged = format!("{header}.{}.{signature}", encode(&claims().to_value()));
        assert_eq!(own.read(&forged, 1_500), None, "signed by another plane's key");
        let id = key_id(&foreign);
        let none = encode(&json!({"alg": "none", "kid": (id.as_str())}));
        assert_eq!(own.read(&format!("{none}.{}.", encode(&other.to_value())), 1_500), None, "not signed");
        for odd in ["", "a", "a.b.c", "..", &"x".repeat(20_000)] {
            assert_eq!(own.read(odd, 1_500), None, "{odd}");
        }
    }
}
