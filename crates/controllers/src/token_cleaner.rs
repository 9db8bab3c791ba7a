//! Tokens that Kubernetes once made for every service account go when nobody uses them: after a year without use they are
//! marked as invalid, and a year after that they are deleted.
//!
//! Such a secret is known by its account naming it. Planes make none, so only one that came with an import waits here, a
//! day at a time.

use std::time::Duration;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use polder_client::resource::{CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS};
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Wake};
use polder_model::{Status, Value, json};

use crate::{meta, timestamp};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
const TRACKING: &str = "kube-apiserver-legacy-service-account-token-tracking";
const PERIOD_SECONDS: i64 = 365 * DAY_SECONDS;
const DAY_SECONDS: i64 = 24 * 3600;

pub(crate) struct TokenCleaner;

impl Controller for TokenCleaner {
    fn name(&self) -> &'static str {
        "legacy-serviceaccount-token-cleaner-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SECRETS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.as_ref().is_some_and(|secret| secret.may_contain(TYPE)) {
            wake(change.key());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = meta::split(key);
            let Some(secret) = plane.get(&SECRETS, namespace, name).await? else { return Ok(Next::Done) };
            if !is_made_by_kubernetes(plane, &secret).await? {
                return Ok(Next::Done);
            }
            let now = plane.client.now();
            let tracked = plane.get(&CONFIG_MAPS, "kube-system", TRACKING).await?;
            let tracked = tracked.as_ref().and_then(|map| map.str_at(&["data", "since"]));
            match plan(&secret, tracked, now) {
                Action::Wait => {}
                _ if is_mounted(plane, namespace, name).await? => {}
                Action::Mark => {
                    let mut labels = Value::default();
                    labels.set_at(&[INVALID_SINCE], date(now).to_string());
                    let patch = json!({"metadata": {"uid": (meta::uid(&secret)), "labels": labels}});
                    plane.merge(&SECRETS, namespace, name, patch).await?;
                }
                Action::Delete => {
                    let version = secret.str_at(&["metadata", "resourceVersion"]).map(Into::into);
                    let delete = Delete { resource_version: version, ..Delete::default() };
                    plane.delete(&SECRETS, namespace, name, delete).await?;
                    return Ok(Next::Done);
                }
            }
            Ok(Next::After(Duration::from_secs(DAY_SECONDS.unsigned_abs())))
        })
    }
}

async fn is_made_by_kubernetes(plane: &InPlane, secret: &Value) -> Result<bool, Status> {
    let annotation = |key| secret.str_at(&["metadata", "annotations", key]).unwrap_or_default();
    let account = annotation(ACCOUNT);
    if secret.str_at(&["type"]) != Some(TYPE) || account.is_empty() {
        return Ok(false);
    }
    let account = plane.get(&SERVICE_ACCOUNTS, meta::namespace(secret), account).await?;
    Ok(account.is_some_and(|account| {
        let uid = annotation(ACCOUNT_UID);
        let names = |one: &Value| one.str_at(&["name"]) == Some(meta::name(secret));
        (uid.is_empty() || uid == meta::uid(&account)) && account.array_at(&["secrets"]).iter().any(names)
    }))
}

/// Whether a pod may use a secret: its name stands somewhere in what the pod is to be.
async fn is_mounted(plane: &InPlane, namespace: &str, name: &str) -> Result<bool, Status> {
    let pods = plane.list(&PODS, namespace).await?;
    Ok(pods.iter().any(|pod| pod.get("spec").is_some_and(|spec| mentions(spec, name))))
}

fn mentions(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text == name,
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        Value::Object(members) => members.iter().any(|(_, member)| mentions(member, name)),
        _ => false,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Action {
    Wait,
    Mark,
    Delete,
}

/// What is to be done with a secret that no pod uses. `tracked` is the day since which use is noted.
fn plan(secret: &Value, tracked: Option<&str>, now: i64) -> Action {
    let limit = date(now.saturating_sub(PERIOD_SECONDS));
    // Use is noted from the day after.
    let tracked_long = tracked.and_then(day).is_some_and(|since| since < limit);
    let created = secret.str_at(&["metadata", "creationTimestamp"]).and_then(timestamp::seconds);
    let is_old = created.is_some_and(|created| created < now.saturating_sub(PERIOD_SECONDS));
    if !tracked_long || !is_old || meta::is_deleting(secret) {
        return Action::Wait;
    }
    let label = |key| secret.str_at(&["metadata", "labels", key]);
    match label(LAST_USED).map(day) {
        // What cannot be read says nothing.
        Some(None) => return Action::Wait,
        Some(Some(used)) if used >= limit => return Action::Wait,
        _ => {}
    }
    match label(INVALID_SINCE).and_then(day) {
        None => Action::Mark,
        Some(since) if since >= limit => Action::Wait,
        Some(_) => Action::Delete,
    }
}

fn day(text: &str) -> Option<Date> {
    text.parse().ok()
}

fn date(seconds: i64) -> Date {
    let time = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go() {
        #[track_caller]
        fn check(created: &str, tracked: Option<&str>, used: &str, invalid: &str, expected: Action) {
            let mut secret = json!({"metadata": {"creationTimestamp": created, "labels": {}}});
            for (key, text) in [(LAST_USED, used), (INVALID_SINCE, invalid)] {
                if !text.is_empty() {
                    secret.set_at(&["metadata", "labels", key], text);
                }
            }
            let now = timestamp::seconds("2026-06-01T00:00:00Z").unwrap();
            assert_eq!(plan(&secret, tracked, now), expected);
        }
        let (old, tracked) = ("2020-01-01T00:00:00Z", Some("2020-01-01"));
        check(old, tracked, "", "", Action::Mark);
        check(old, tracked, "2024-01-01", "", Action::Mark);
        check(old, tracked, "2026-01-01", "", Action::Wait);
        check(old, tracked, "soon", "", Action::Wait);
        check(old, tracked, "", "2026-01-01", Action::Wait);
        check(old, tracked, "", "2025-01-01", Action::Delete);
        check(old, tracked, "2026-01-01", "2025-01-01", Action::Wait);
        check(old, Some("2026-01-01"), "", "", Action::Wait);
        check(old, None, "", "", Action::Wait);
        check("2026-01-01T00:00:00Z", tracked, "", "", Action::Wait);
    }

    #[test]
    fn secrets_of_pods() {
        let spec = json!({"volumes": [{"secret": {"secretName": "a"}}], "imagePullSecrets": [{"name": "b"}]});
        assert!(mentions(&spec, "a") && mentions(&spec, "b") && !mentions(&spec, "secretName"));
    }
}
