//! Tokens of service accounts: signed by this server, each good in one plane only, and only while what it was made for
//! is there. Which objects are there is for others to say; here is what a token claims, and whether it may.
//!
//! A token is a JSON web token with upstream's claims and one more, the number of its plane, which is never used for another
//! plane. So a token outlives neither its plane nor a plane of the same name.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polder_model::{PlaneId, SmolStr, Value, format_smolstr, json};
use sha2::{Digest as _, Sha256};

use super::Unauthenticated;
use crate::UserInfo;

/// Longer ones are not ours.
const TOKEN_LEN_MAX: usize = 16 * 1024;
/// Clocks of those who check tokens may be this much behind.
const LEEWAY_SECONDS: i64 = 10;

/// The key that signs tokens of service accounts.
pub struct AccountTokens {
    key: EcdsaKeyPair,
    public: Vec<u8>,
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
        f.debug_struct("AccountTokens").field("id", &self.id).finish_non_exhaustive()
    }
}

impl AccountTokens {
    /// A new key, as PKCS #8.
    #[cfg(test)]
    fn make_key() -> Result<Vec<u8>, AccountKeyError> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        made.map(|key| key.as_ref().to_vec()).map_err(|_| AccountKeyError)
    }

    pub fn from_key(pkcs8: &[u8]) -> Result<AccountTokens, AccountKeyError> {
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8);
        let key = key.map_err(|_| AccountKeyError)?;
        let public = key.public_key().as_ref().to_vec();
        let id = URL_SAFE_NO_PAD.encode(Sha256::digest(&public));
        Ok(AccountTokens { key, public, id })
    }

    pub fn sign(&self, claims: &Claims) -> Result<String, AccountKeyError> {
        let header = json!({"alg": "ES256", "kid": (self.id.as_str())});
        let signed = format!("{}.{}", encode(&header), encode(&claims.to_value()));
        let signature =
            self.key.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| AccountKeyError)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// What a token claims, if it is one of this key and good at this time. `None` if it is no such token at all.
    pub fn read(&self, token: &str, now: i64) -> Option<Result<Claims, Unauthenticated>> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header = decode(header)?;
        if header.str_at(&["alg"]) != Some("ES256") || header.str_at(&["kid"]) != Some(&self.id) {
            return None;
        }
        Some(self.check(signed, payload, signature, now))
    }

    fn check(
        &self,
        signed: &str,
        payload: &str,
        signature: &str,
        now: i64,
    ) -> Result<Claims, Unauthenticated> {
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| Unauthenticated)?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public);
        key.verify(signed.as_bytes(), &signature).map_err(|_| Unauthenticated)?;
        let claims = decode(payload).as_ref().and_then(Claims::from_value).ok_or(Unauthenticated)?;
        let good = claims.issued - LEEWAY_SECONDS <= now && now < claims.expires + LEEWAY_SECONDS;
        good.then_some(claims).ok_or(Unauthenticated)
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
            bound,
            id: text(&["jti"])?,
            issued: value.i64_at(&["iat"])?,
            expires: value.i64_at(&["exp"])?,
        })
    }

    fn subject(&self) -> SmolStr {
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
        user.extra.push((key("credential-id"), vec![format_smolstr!("JTI={}", self.id)]));
        if let Some((kind, bound)) = &self.bound {
            user.extra.push((key(&format!("{kind}-name")), vec![bound.name.clone()]));
            user.extra.push((key(&format!("{kind}-uid")), vec![bound.uid.clone()]));
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
            id: "j".into(),
            issued: 1_000,
            expires: 2_000,
        }
    }

    fn tokens() -> AccountTokens {
        AccountTokens::from_key(&AccountTokens::make_key().unwrap()).unwrap()
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
        assert_eq!(own.read(&forged, 1_500), refused, "another plane");
        let none = encode(&json!({"alg": "none", "kid": (own.id.as_str())}));
        assert_eq!(own.read(&format!("{none}.{}.", encode(&other.to_value())), 1_500), None, "not signed");
        for odd in ["", "a", "a.b.c", "..", &"x".repeat(20_000)] {
            assert_eq!(own.read(odd, 1_500), None, "{odd}");
        }
    }
}
