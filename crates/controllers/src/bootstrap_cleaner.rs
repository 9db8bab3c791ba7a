//! Bootstrap tokens go when their time is over: their secrets are deleted. They are no good from that moment on anyway.

use std::time::Duration;

use base64::Engine as _;
use polder_client::resource::SECRETS;
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Wake};
use polder_model::Value;

use crate::{meta, timestamp};

pub(crate) const NAMESPACE: &str = "kube-system";
pub(crate) const PREFIX: &str = "bootstrap-token-";
pub(crate) const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// A clock may be set: nobody waits longer than a day without another look.
const LOOK_SECONDS_MAX: i64 = 24 * 3600;

pub(crate) struct BootstrapCleaner;

impl Controller for BootstrapCleaner {
    fn name(&self) -> &'static str {
        "token-cleaner-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SECRETS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.is_some() && change.namespace == NAMESPACE && change.name.starts_with(PREFIX) {
            wake(change.name.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let Some(secret) = plane.get(&SECRETS, NAMESPACE, key).await? else { return Ok(Next::Done) };
            let Some(ends) = end(&secret) else { return Ok(Next::Done) };
            let left = ends.saturating_sub(plane.client.now());
            if left > 0 {
                return Ok(Next::After(Duration::from_secs(left.min(LOOK_SECONDS_MAX).unsigned_abs())));
            }
            let delete = Delete { uid: Some(meta::uid(&secret).into()), ..Delete::default() };
            plane.delete(&SECRETS, NAMESPACE, key, delete).await?;
            Ok(Next::Done)
        })
    }
}

/// When a token ends; long ago if what it says is no time, as upstream takes it. Nothing for one without an end.
pub(crate) fn end(secret: &Value) -> Option<i64> {
    if secret.str_at(&["type"]) != Some(SECRET_TYPE) {
        return None;
    }
    let encoded = secret.str_at(&["data", "expiration"]).filter(|encoded| !encoded.is_empty())?;
    let text = base64::engine::general_purpose::STANDARD.decode(encoded).ok();
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    Some(timestamp::seconds(&text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn bootstrap_tokens_end() {
        let encode = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
        let check = |kind: &str, data: Value, expected: Option<i64>| {
            assert_eq!(end(&json!({"type": kind, "data": (data.clone())})), expected, "{kind} {data}");
        };
        check(SECRET_TYPE, json!({"expiration": (encode("1970-01-01T00:01:40Z"))}), Some(100));
        check(SECRET_TYPE, json!({"expiration": (encode("soon"))}), Some(0));
        check(SECRET_TYPE, json!({}), None);
        check("Opaque", json!({"expiration": (encode("1970-01-01T00:01:40Z"))}), None);
    }
}
