//! JSON web tokens of others: what one says before anybody believes it, and whether a key signed it.
//!
//! Invariant: only signatures with a private key count. `none` and shared secrets are no algorithms here, so nobody can
//! sign with what is public. The key says what it is for; the token only chooses among keys.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polder_model::{SmolStr, Value};

/// Longer ones are refused unread. The head of a request is not much longer.
pub(crate) const TOKEN_LEN_MAX: usize = 32 * 1024;
/// Of a set, more keys than this are not looked at.
const KEYS_LEN_MAX: usize = 64;
/// A clock that is behind may see a token this long before it is good, as upstream has it.
const NOT_BEFORE_LEEWAY_SECONDS: f64 = 300.0;

/// The ways to sign that Kubernetes takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
}

impl Algorithm {
    fn of(name: &str) -> Option<Algorithm> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "ES512" => Algorithm::Es512,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 => return None,
        })
    }

    /// The curve by its name in a key, and the length of its numbers.
    fn curve(self) -> Option<(&'static str, usize)> {
        match self {
            Algorithm::Es256 => Some(("P-256", 32)),
            Algorithm::Es384 => Some(("P-384", 48)),
            Algorithm::Es512 => Some(("P-521", 66)),
            _ => None,
        }
    }
}

/// A token as it came: nothing in it is proven.
#[derive(Debug)]
pub(crate) struct Unverified<'t> {
    algorithm: Algorithm,
    /// Which key signed it, as it says; empty when it does not.
    pub(crate) key_id: SmolStr,
    pub(crate) claims: Value,
    signed: &'t str,
    signature: Vec<u8>,
}

/// The public keys of an issuer.
#[derive(Debug, Default)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: SmolStr,
    /// The one way to sign it is for, if it says so.
    algorithm: Option<SmolStr>,
    material: Material,
}

/// Keys tried for one token: one that names none, or a name that many have, must not cost more than a few.
const TRIED_MAX: usize = 4;
/// Bytes of an RSA modulus: 4096 bits, and a leading zero.
const RSA_LEN_MAX: usize = 513;

#[derive(Debug)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    Curve { name: SmolStr, x: Vec<u8>, y: Vec<u8> },
}

/// Whether a text is in the form of a token of this kind at all.
pub(crate) fn is_compact(token: &str) -> bool {
    token.len() <= TOKEN_LEN_MAX
        && token.starts_with("ey")
        && token.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl<'t> Unverified<'t> {
    /// `None` for what is no such token, is signed in a way that is not taken, or must be understood to be read.
    pub(crate) fn parse(token: &'t str) -> Option<Unverified<'t>> {
        if !is_compact(token) {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = part(header)?;
        if header.get("crit").is_some() {
            return None;
        }
        let algorithm = Algorithm::of(header.str_at(&["alg"])?)?;
        let claims = part(claims)?;
        claims.as_object()?;
        Some(Unverified {
            algorithm,
            key_id: SmolStr::new(header.str_at(&["kid"]).unwrap_or_default()),
            claims,
            signed,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    pub(crate) fn issuer(&self) -> &str {
        match self.claims.str_at(&["iss"]).unwrap_or_default() {
            // Google's tokens leave the scheme out.
            "accounts.google.com" => "https://accounts.google.com",
            other => other,
        }
    }

    pub(crate) fn audiences(&self) -> Vec<&str> {
        match self.claims.get("aud") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// When it ends, in seconds since 1970, if it is good now.
    pub(crate) fn good_until(&self, now: i64) -> Option<i64> {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are exact for a long time")]
        let at = now as f64;
        let expires = self.claims.get("exp").and_then(Value::as_f64)?;
        let begins = match self.claims.get("nbf") {
            None | Some(Value::Null) => f64::MIN,
            Some(value) => value.as_f64()?,
        };
        if !(at <= expires && begins <= at + NOT_BEFORE_LEEWAY_SECONDS) {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "out of range becomes the nearest number")]
        Some(expires as i64)
    }
}

/// Strict: a key that stands twice means one thing to one reader and another to the next.
fn part(text: &str) -> Option<Value> {
    let parsed = polder_model::value::parse(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    parsed.duplicates.is_empty().then_some(parsed.value)
}

impl KeySet {
    /// Reads a set of JSON web keys. Keys that are of another kind are left out.
    pub(crate) fn parse(bytes: &[u8]) -> Option<KeySet> {
        let set = Value::parse(bytes).ok()?;
        let keys = set.get("keys")?.as_array()?.iter().take(KEYS_LEN_MAX).filter_map(Key::read).collect();
        Some(KeySet { keys })
    }

    /// Whether there is a key of that name: one that is not there may have been made since.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.keys.iter().any(|key| id.is_empty() || key.id == id)
    }

    /// Whether one of the keys signed the token.
    pub(crate) fn signed(&self, token: &Unverified<'_>) -> bool {
        let named = self.keys.iter().filter(|key| token.key_id.is_empty() || key.id == token.key_id);
        named.filter(|key| key.may_sign(token)).take(TRIED_MAX).any(|key| key.signed(token))
    }
}

impl Key {
    fn read(value: &Value) -> Option<Key> {
        let text = |name: &str| value.str_at(&[name]);
        let number = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let material = match text("kty")? {
            "RSA" => {
                let (modulus, exponent) = (number("n")?, number("e")?);
                // Longer ones take longer to verify with than anybody should wait for.
                if modulus.len() > RSA_LEN_MAX || exponent.len() > 8 {
                    return None;
                }
                Material::Rsa { modulus, exponent }
            }
            "EC" => Material::Curve { name: SmolStr::new(text("crv")?), x: number("x")?, y: number("y")? },
            _ => return None,
        };
        let id = SmolStr::new(text("kid").unwrap_or_default());
        Some(Key { id, algorithm: text("alg").map(SmolStr::new), material })
    }

    /// Whether it is a key for such tokens at all.
    fn may_sign(&self, token: &Unverified<'_>) -> bool {
        let is_meant =
            self.algorithm.as_deref().is_none_or(|own| Algorithm::of(own) == Some(token.algorithm));
        is_meant
            && match &self.material {
                Material::Rsa { .. } => token.algorithm.rsa().is_some(),
                Material::Curve { name, .. } => token.algorithm.curve().is_some_and(|(own, _)| name == own),
            }
    }

    fn signed(&self, token: &Unverified<'_>) -> bool {
        let signed = token.signed.as_bytes();
        match &self.material {
            Material::Rsa { modulus, exponent } => {
                let Some(parameters) = token.algorithm.rsa() else { return false };
                // Leading zeros are allowed in a key and not by the library.
                let n = modulus.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &modulus[at..]);
                let e = exponent.iter().position(|byte| *byte != 0).map_or(&[][..], |at| &exponent[at..]);
                RsaPublicKeyComponents { n, e }.verify(parameters, signed, &token.signature).is_ok()
            }
            Material::Curve { name, x, y } => {
                let Some((curve, len)) = token.algorithm.curve() else { return false };
                if name != curve || x.len() > len || y.len() > len {
                    return false;
                }
                let mut point = vec![4_u8];
                for coordinate in [x, y] {
                    point.resize(point.len() + len - coordinate.len(), 0);
                    point.extend_from_slice(coordinate);
                }
                let algorithm = match token.algorithm {
                    Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
                    Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
                    _ => &ECDSA_P521_SHA512_FIXED,
                };
                UnparsedPublicKey::new(algorithm, point).verify(signed, &token.signature).is_ok()
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! A key that signs tokens, for tests.

    use aws_lc_rs::rand::SystemRandom;
    use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
        RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
    };
    use polder_model::json;

    use super::*;

    pub(crate) enum SigningKey {
        Rsa(Box<RsaKeyPair>),
        Curve(EcdsaKeyPair, &'static str),
    }

    pub(crate) fn curve(name: &'static str) -> SigningKey {
        let algorithm: &EcdsaSigningAlgorithm = match name {
            "P-256" => &ECDSA_P256_SHA256_FIXED_SIGNING,
            "P-384" => &ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &ECDSA_P521_SHA512_FIXED_SIGNING,
        };
        SigningKey::Curve(EcdsaKeyPair::generate(algorithm).unwrap(), name)
    }

    pub(crate) fn rsa() -> SigningKey {
        SigningKey::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    impl SigningKey {
        /// The set that has the public half, by a name.
        pub(crate) fn set(&self, id: &str) -> Value {
            let text = |number: &[u8]| URL_SAFE_NO_PAD.encode(number);
            match self {
                SigningKey::Rsa(key) => {
                    let public = key.public_key();
                    let (n, e) = (public.modulus(), public.exponent());
                    json!({"keys": [{"kty": "RSA", "use": "sig", "kid": id,
                        "n": (text(n.big_endian_without_leading_zero())),
                        "e": (text(e.big_endian_without_leading_zero()))}]})
                }
                SigningKey::Curve(key, name) => {
                    let point = &key.public_key().as_ref()[1..];
                    let (x, y) = point.split_at(point.len() / 2);
                    json!({"keys": [{"kty": "EC", "crv": (*name), "kid": id, "x": (text(x)), "y": (text(y))}]})
                }
            }
        }

        pub(crate) fn token(&self, algorithm: &str, id: &str, claims: &Value) -> String {
            let header = json!({"alg": algorithm, "kid": id, "typ": "JWT"});
            let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_vec());
            let signed = format!("{}.{}", encode(&header), encode(claims));
            let random = SystemRandom::new();
            let signature = match self {
                SigningKey::Rsa(key) => {
                    let padding: &dyn aws_lc_rs::signature::RsaEncoding = match algorithm {
                        "RS384" => &RSA_PKCS1_SHA384,
                        "RS512" => &RSA_PKCS1_SHA512,
                        "PS256" => &RSA_PSS_SHA256,
                        "PS384" => &RSA_PSS_SHA384,
                        "PS512" => &RSA_PSS_SHA512,
                        _ => &RSA_PKCS1_SHA256,
                    };
                    let mut signature = vec![0; key.public_modulus_len()];
                    key.sign(padding, &random, signed.as_bytes(), &mut signature).unwrap();
                    signature
                }
                SigningKey::Curve(key, _) => key.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            };
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::testing::{SigningKey, curve, rsa};
    use super::*;

    fn check(key: &SigningKey, algorithm: &str, expected: bool) {
        let claims = json!({"iss": "https://i", "aud": "a", "exp": 2000});
        let token = key.token(algorithm, "k", &claims);
        let set = KeySet::parse(&key.set("k").to_vec()).unwrap();
        let signed = Unverified::parse(&token).is_some_and(|token| set.signed(&token));
        assert_eq!(signed, expected, "{algorithm}");
        let (head, signature) = token.rsplit_once('.').unwrap();
        let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
        assert!(!Unverified::parse(&forged).is_some_and(|token| set.signed(&token)), "{algorithm} forged");
    }

    #[test]
    fn nine_ways_to_sign() {
        let key = rsa();
        for algorithm in ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"] {
            check(&key, algorithm, true);
        }
        for (name, algorithm) in [("P-256", "ES256"), ("P-384", "ES384"), ("P-521", "ES512")] {
            check(&curve(name), algorithm, true);
        }
    }

    /// What is public signs nothing, and a key of one kind does not verify another kind's.
    #[test]
    fn other_ways_are_none() {
        let key = rsa();
        for algorithm in ["none", "HS256", "HS512", "EdDSA", "ES256", ""] {
            check(&key, algorithm, false);
        }
        check(&curve("P-256"), "ES384", false);
        check(&curve("P-256"), "RS256", false);
        let confused = Unverified::parse(&key.token("PS256", "k", &json!({}))).is_some_and(|token| {
            let mut set = key.set("k");
            set.get("keys").unwrap();
            set.at_mut(&["keys"]).unwrap().as_array_mut().unwrap()[0].set_at(&["alg"], "RS256");
            KeySet::parse(&set.to_vec()).unwrap().signed(&token)
        });
        assert!(!confused, "a key that is for RS256 verifies PS256");
    }

    /// However many keys there are, a token is tried with a few.
    #[test]
    fn few_keys_are_tried() {
        let keys: Vec<SigningKey> = (0..8).map(|_| curve("P-256")).collect();
        let set = |id: &dyn Fn(usize) -> String| {
            let all =
                keys.iter().enumerate().map(|(at, key)| key.set(&id(at)).array_at(&["keys"])[0].clone());
            KeySet::parse(&json!({"keys": (all.collect::<Vec<_>>())}).to_vec()).unwrap()
        };
        let signed = |set: &KeySet, at: usize, id: &str| {
            let token = keys[at].token("ES256", id, &json!({}));
            set.signed(&Unverified::parse(&token).unwrap())
        };
        let (apart, same) = (set(&|at| at.to_string()), set(&|_| "k".into()));
        assert!((0..8).all(|at| signed(&apart, at, &at.to_string())));
        for (set, id) in [(&apart, ""), (&same, "k")] {
            assert!(signed(set, TRIED_MAX - 1, id) && !signed(set, TRIED_MAX, id), "{id}");
        }
        let mut long = rsa().set("k");
        let modulus = URL_SAFE_NO_PAD.encode([255; 1024]);
        long.at_mut(&["keys"]).unwrap().as_array_mut().unwrap()[0].set_at(&["n"], modulus);
        assert!(
            !KeySet::parse(&long.to_vec()).unwrap().has("k"),
            "longer keys than anybody has are left out"
        );
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        let key = curve("P-256");
        let good = key.token("ES256", "k", &json!({"iss": "https://i"}));
        assert!(Unverified::parse(&good).is_some());
        let parts: Vec<&str> = good.split('.').collect();
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let rows = [
            String::new(),
            "..".into(),
            parts[..2].join("."),
            format!("{good}.x"),
            format!("{}.{}.{}", parts[0], encode("[]"), parts[2]),
            format!("{}.{}.{}", parts[0], encode("{\"iss\":1"), parts[2]),
            format!("{}.{}.{}", parts[0], encode("{\"iss\":\"a\",\"iss\":\"b\"}"), parts[2]),
            format!("{}.{}.{}", encode("{\"alg\":\"ES256\",\"crit\":[\"b64\"]}"), parts[1], parts[2]),
            format!("{}.{}.=", parts[0], parts[1]),
            format!("{good}{}", "A".repeat(TOKEN_LEN_MAX)),
        ];
        for row in rows {
            assert!(Unverified::parse(&row).is_none(), "{row:.80}");
        }
    }

    #[test]
    fn times() {
        let key = curve("P-256");
        let until = |claims: Value, now: i64| {
            let token = key.token("ES256", "k", &claims);
            Unverified::parse(&token).unwrap().good_until(now)
        };
        assert_eq!(until(json!({"exp": 2000}), 2000), Some(2000));
        assert_eq!(until(json!({"exp": (Value::Float(2000.5))}), 2000), Some(2000));
        assert_eq!(until(json!({"exp": 2000}), 2001), None);
        assert_eq!(until(json!({}), 1), None, "one without an end is refused");
        assert_eq!(until(json!({"exp": "2000"}), 1), None);
        assert_eq!(until(json!({"exp": 2000, "nbf": 1500}), 1200), Some(2000));
        assert_eq!(until(json!({"exp": 2000, "nbf": 1500}), 1199), None);
        assert_eq!(until(json!({"exp": 2000, "nbf": "soon"}), 1600), None);
    }

    #[test]
    fn sets_are_read_in_part() {
        let set =
            br#"{"keys":[{"kty":"oct","k":"AA"},{"kty":"RSA","use":"enc","n":"AA","e":"AQAB","kid":"e"},
            {"kty":"EC","crv":"P-256","x":"AA","y":"AA","kid":"odd"}]}"#;
        let set = KeySet::parse(set).unwrap();
        assert!(set.has("odd") && !set.has("e") && set.has(""));
        let token = curve("P-256").token("ES256", "odd", &json!({}));
        assert!(!set.signed(&Unverified::parse(&token).unwrap()), "no point of the curve");
        assert!(KeySet::parse(b"{}").is_none() && KeySet::parse(b"[").is_none());
    }
}
