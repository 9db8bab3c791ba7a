//! An issuer of tokens: a real HTTPS server that tells its keys, and signs whatever a test wants signed. And a webhook that
//! knows tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::webhook::WebhookServer;

/// A running issuer. Its threads end with the process.
pub struct TokenIssuer {
    pub url: String,
    /// PEM.
    pub ca: String,
    key: EcdsaKeyPair,
    asked: Arc<AtomicUsize>,
}

impl TokenIssuer {
    pub fn start() -> anyhow::Result<TokenIssuer> {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        let (x, y) = key.public_key().as_ref()[1..].split_at(32);
        let text = |number: &[u8]| URL_SAFE_NO_PAD.encode(number);
        let keys = json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "kid": "k", "x": text(x), "y": text(y)}]});
        let url = Arc::new(std::sync::OnceLock::<String>::new());
        let (own, asked) = (url.clone(), Arc::new(AtomicUsize::new(0)));
        let counted = asked.clone();
        let handler = move |path: &str, _: &Value| {
            let own = own.get().cloned().unwrap_or_default();
            match path {
                "/.well-known/openid-configuration" => {
                    counted.fetch_add(1, Ordering::Relaxed);
                    (200, json!({"issuer": own, "jwks_uri": format!("{own}/keys")}).to_string())
                }
                "/keys" => (200, keys.to_string()),
                _ => (404, String::new()),
            }
        };
        let server = WebhookServer::start_any(Arc::new(handler), rcgen::IsCa::NoCa)?;
        let told = format!("https://{}", server.address);
        url.set(told.clone()).ok();
        let ca = String::from_utf8(STANDARD.decode(&server.ca_bundle)?)?;
        Ok(TokenIssuer { url: told, ca, key, asked })
    }

    /// How often it was asked who it is.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// A token with these claims over the usual ones: for `polder`, good for an hour.
    pub fn token(&self, claims: &Value) -> anyhow::Result<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut all = json!({"iss": self.url, "aud": "polder", "iat": now, "exp": now + 3600});
        for (name, value) in claims.as_object().context("claims are an object")? {
            all[name] = value.clone();
        }
        let header = json!({"alg": "ES256", "kid": "k"});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&all));
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// An entry of `jwt`: the subject is the user, `groups` are groups.
    pub fn entry(&self, prefix: &str) -> Value {
        json!({
            "issuer": {"url": self.url, "certificateAuthority": self.ca, "audiences": ["polder"]},
            "claimMappings": {
                "username": {"claim": "sub", "prefix": prefix},
                "groups": {"claim": "groups", "prefix": prefix},
            },
        })
    }
}

/// A webhook that answers a `SubjectAccessReview` with the `status` a function makes of its `spec`.
pub fn access_webhook(
    status: impl Fn(&Value) -> Value + Send + Sync + 'static,
) -> anyhow::Result<WebhookServer> {
    let handler = move |_: &str, review: &Value| {
        let status = status(&review["spec"]);
        let answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "status": status});
        (200, answer.to_string())
    };
    WebhookServer::start_any(Arc::new(handler), rcgen::IsCa::NoCa)
}

/// A webhook that answers a `TokenReview` with the `status` a function makes of a token.
pub fn token_webhook(status: fn(&str) -> Value) -> anyhow::Result<WebhookServer> {
    let handler = move |_: &str, review: &Value| {
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        let answer =
            json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "status": status(token)});
        (200, answer.to_string())
    };
    WebhookServer::start_any(Arc::new(handler), rcgen::IsCa::NoCa)
}
