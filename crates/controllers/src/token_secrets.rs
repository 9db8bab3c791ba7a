//! Secrets that stand for a service account: they know its UID, name their authority and their namespace, have a token for
//! it, and go with it.
//!
//! The token is one as anybody may ask for, bound to the secret and good as long as there are such. One of another plane, in
//! a fork or after an import, is made anew, and so is one whose key an operator has dropped. Keys are `secret/<namespace>/<name>`, `account/<namespace>/<name>`, and
//! `reference/<namespace>/<account>/<secret>` for a secret that is gone.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use polder_client::resource::{SECRETS, SERVICE_ACCOUNTS};
use polder_client::{
    Answer, At, Change, Controller, Delete, InPlane, Interest, Next, Query, TokenKeys, Wake,
};
use polder_model::{PlaneId, SmolStr, Status, Value, format_smolstr, json};

use crate::Told;
use crate::meta;

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The longest a token may be good for.
const SECONDS_MAX: i64 = 1 << 32;

pub(crate) struct TokenSecrets {
    ca: Told,
    keys: Option<Arc<dyn TokenKeys>>,
}

impl TokenSecrets {
    pub(crate) fn new(ca: Told, keys: Option<Arc<dyn TokenKeys>>) -> TokenSecrets {
        TokenSecrets { ca, keys }
    }

    /// Whether a secret has a token that a key of this plane has signed, by what it says itself. Whether that is true is for others
    /// to find out.
    fn has_token(&self, plane: PlaneId, secret: &Value) -> bool {
        let Some((of, key)) = signed_by(secret) else { return false };
        of == plane && self.keys.as_ref().is_none_or(|keys| keys.believes(plane, &key))
    }
}

impl Controller for TokenSecrets {
    fn name(&self) -> &'static str {
        "serviceaccount-token-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SECRETS, &SERVICE_ACCOUNTS])
    }

    fn tells(&self) -> bool {
        true
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&SERVICE_ACCOUNTS) {
            // One that is made has no secrets yet, unless it is another one of the same name.
            if change.new.is_none() || change.old.is_none() {
                wake(format_smolstr!("account/{}/{}", change.namespace, change.name));
            }
        } else if let Some(secret) = change.last().filter(|secret| secret.may_contain(TYPE)) {
            match &change.new {
                Some(_) => wake(format_smolstr!("secret/{}/{}", change.namespace, change.name)),
                None => {
                    let account = account_of(secret.value());
                    wake(format_smolstr!("reference/{}/{account}/{}", change.namespace, change.name));
                }
            }
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let parts: Vec<&str> = key.split('/').collect();
            match parts.as_slice() {
                ["secret", namespace, name] => {
                    if let Some(secret) = plane.get(&SECRETS, namespace, name).await? {
                        self.keep(plane, &secret).await?;
                    }
                }
                ["account", namespace, name] => {
                    let query =
                        Query { namespace: (*namespace).into(), containing: &[TYPE], ..Query::default() };
                    for secret in plane.client.list(plane.plane, &SECRETS, query).await? {
                        if account_of(&secret) == *name {
                            self.keep(plane, &secret).await?;
                        }
                    }
                }
                ["reference", namespace, account, secret] => {
                    if let Some(found) = plane.get(&SERVICE_ACCOUNTS, namespace, account).await?
                        && plane.get(&SECRETS, namespace, secret).await?.is_none()
                        && let Some(new) = without(&found, secret)
                    {
                        plane.update(&SERVICE_ACCOUNTS, new).await?;
                    }
                }
                _ => {}
            }
            Ok(Next::Done)
        })
    }
}

impl TokenSecrets {
    async fn keep(&self, plane: &InPlane, secret: &Value) -> Result<(), Status> {
        if secret.str_at(&["type"]) != Some(TYPE) || meta::is_deleting(secret) {
            return Ok(());
        }
        let namespace = meta::namespace(secret);
        let account = plane.get(&SERVICE_ACCOUNTS, namespace, account_of(secret)).await?;
        match account.and_then(|account| self.kept(secret, &account)) {
            Some(mut new) => {
                if !self.has_token(plane.plane, secret) {
                    let token = token(plane, secret).await?;
                    new.set_at(&["data", "token"], base64(token.as_bytes()));
                }
                match new == *secret {
                    true => Ok(()),
                    false => plane.update(&SECRETS, new).await.map(drop),
                }
            }
            None => {
                let delete = Delete { uid: Some(meta::uid(secret).into()), ..Delete::default() };
                plane.delete(&SECRETS, namespace, meta::name(secret), delete).await
            }
        }
    }

    /// The secret as it should be; nothing when it is that of an account which is gone.
    fn kept(&self, secret: &Value, account: &Value) -> Option<Value> {
        let uid = secret.str_at(&["metadata", "annotations", ACCOUNT_UID]).unwrap_or_default();
        if !uid.is_empty() && uid != meta::uid(account) {
            return None;
        }
        let mut new = secret.clone();
        new.set_at(&["metadata", "annotations", ACCOUNT_UID], meta::uid(account));
        if !self.ca.is_empty() {
            new.set_at(&["data", "ca.crt"], base64(self.ca.get().as_bytes()));
        }
        if secret.at(&["data", "namespace"]).is_none() {
            new.set_at(&["data", "namespace"], base64(meta::namespace(secret).as_bytes()));
        }
        Some(new)
    }
}

/// Asks for a token that goes with a secret.
async fn token(plane: &InPlane, secret: &Value) -> Result<SmolStr, Status> {
    let at = At {
        subresource: "token",
        ..plane.at(&SERVICE_ACCOUNTS, meta::namespace(secret), account_of(secret))
    };
    let bound = json!({
        "apiVersion": "v1", "kind": "Secret", "name": (meta::name(secret)), "uid": (meta::uid(secret)),
    });
    let request = json!({"spec": {"expirationSeconds": SECONDS_MAX, "boundObjectRef": bound}});
    let made = plane.client.create(&at, request).await?;
    Ok(SmolStr::new(made.str_at(&["status", "token"]).unwrap_or_default()))
}

/// The plane that the token of a secret says it is of, and the key it says it was signed with.
fn signed_by(secret: &Value) -> Option<(PlaneId, SmolStr)> {
    let token = STANDARD.decode(secret.str_at(&["data", "token"])?).ok()?;
    let mut parts = token.split(|byte| *byte == b'.');
    let mut part = || Value::parse(&URL_SAFE_NO_PAD.decode(parts.next()?).ok()?).ok();
    let (head, claims) = (part()?, part()?);
    let plane = claims.str_at(&["polder.dev", "plane"])?.parse().ok()?;
    Some((PlaneId(plane), SmolStr::new(head.str_at(&["kid"])?)))
}

fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn account_of(secret: &Value) -> &str {
    secret.str_at(&["metadata", "annotations", ACCOUNT]).unwrap_or_default()
}

/// An account without its reference to a secret; nothing if it has none.
fn without(account: &Value, secret: &str) -> Option<Value> {
    let mut secrets = account.array_at(&["secrets"]).to_vec();
    let count = secrets.len();
    secrets.retain(|reference| reference.str_at(&["name"]) != Some(secret));
    let mut new = account.clone();
    new.set_at(&["secrets"], secrets);
    (new.array_at(&["secrets"]).len() < count).then_some(new)
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn secrets_know_their_account() {
        let secrets = TokenSecrets::new(Told::from("pem"), None);
        let account = json!({"metadata": {"uid": "u"}, "secrets": [{"name": "a"}, {"name": "b"}]});
        let secret = json!({"metadata": {"name": "t", "namespace": "n"}});
        let kept = secrets.kept(&secret, &account).unwrap();
        assert_eq!(kept.str_at(&["metadata", "annotations", ACCOUNT_UID]), Some("u"));
        assert_eq!(kept.get("data"), Some(&json!({"ca.crt": "cGVt", "namespace": "bg=="})));
        assert_eq!(secrets.kept(&kept, &account), Some(kept.clone()), "what is right is not written");
        assert_eq!(secrets.kept(&kept, &json!({"metadata": {"uid": "v"}})), None, "of another one");
        assert_eq!(without(&account, "a").unwrap().array_at(&["secrets"]), [json!({"name": "b"})]);
        assert_eq!(without(&account, "x"), None);
    }
}
