//! Certificate requests go when nobody needs them any more: an hour after they were decided, a day after they were made.

use std::time::Duration;

use polder_client::resource::CERTIFICATE_REQUESTS;
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Wake};
use polder_model::Value;

use crate::{meta, timestamp};

const DECIDED_SECONDS: i64 = 3600;
const PENDING_SECONDS: i64 = 24 * 3600;

pub(crate) struct CertificateCleaner;

impl Controller for CertificateCleaner {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-cleaner-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&CERTIFICATE_REQUESTS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.is_some() {
            wake(change.name.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let Some(request) = plane.get(&CERTIFICATE_REQUESTS, "", key).await? else {
                return Ok(Next::Done);
            };
            let left = expiry(&request).saturating_sub(plane.client.now());
            if left > 0 {
                return Ok(Next::After(Duration::from_secs(left.min(PENDING_SECONDS).unsigned_abs())));
            }
            let delete = Delete { uid: Some(meta::uid(&request).into()), ..Delete::default() };
            plane.delete(&CERTIFICATE_REQUESTS, "", key, delete).await?;
            Ok(Next::Done)
        })
    }
}

/// When a request is to go: the earliest of what its conditions say.
fn expiry(request: &Value) -> i64 {
    let time = |value: &Value, field| value.str_at(&[field]).and_then(timestamp::seconds);
    let conditions = request.array_at(&["status", "conditions"]).iter();
    let decided =
        conditions.filter(|one| matches!(one.str_at(&["type"]), Some("Approved" | "Denied" | "Failed")));
    let decided = decided.filter_map(|one| time(one, "lastUpdateTime"));
    match decided.min() {
        Some(decided) => decided.saturating_add(DECIDED_SECONDS),
        None => {
            let created = request.str_at(&["metadata", "creationTimestamp"]).and_then(timestamp::seconds);
            created.unwrap_or_default().saturating_add(PENDING_SECONDS)
        }
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[track_caller]
    fn check(conditions: Value, expected: &str) {
        let request = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"conditions": conditions},
        });
        assert_eq!(timestamp::text(expiry(&request)), expected);
    }

    #[test]
    fn requests_go() {
        let at = |kind: &str, time: &str| json!({"type": kind, "status": "True", "lastUpdateTime": time});
        check(json!([]), "2026-01-02T00:00:00Z");
        check(json!([(at("Approved", "2026-01-01T02:00:00Z"))]), "2026-01-01T03:00:00Z");
        check(json!([(at("Denied", "2026-01-01T02:00:00Z"))]), "2026-01-01T03:00:00Z");
        check(json!([(at("Other", "2026-01-01T02:00:00Z"))]), "2026-01-02T00:00:00Z");
    }
}
