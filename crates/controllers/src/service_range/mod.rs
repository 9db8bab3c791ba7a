//! The ranges that cluster addresses are taken from: one that is there is ready, and one in use stays until nothing of it
//! is, or another one covers it. And the addresses in use: each service has its own, whoever deletes or forges them.
//!
//! An address is taken and given up in the commit of its service (`registry::allotment`); what is done here is for what people
//! do by hand.

mod block;
mod plan;
pub(crate) mod repair;

use std::time::Duration;

use polder_client::resource::{IP_ADDRESSES, SERVICE_CIDRS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::{Status, Value, json};

use crate::{meta, timestamp};

const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// A service whose write began before a range was deleted may still take an address of it.
const GRACE_SECONDS: i64 = 10;
/// Stands for all ranges that are about to go. No range has such a name.
const LEAVING: &str = "*";

pub(crate) struct ServiceRanges;

impl Controller for ServiceRanges {
    fn name(&self) -> &'static str {
        "service-cidr-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&SERVICE_CIDRS, &IP_ADDRESSES])
    }

    /// Keys are names of ranges.
    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&SERVICE_CIDRS) {
            if change.new.is_some() {
                wake(change.name.clone());
            }
            // Another one may cover what is used of one that goes.
            if change.new.is_none() || change.old.is_none() {
                wake(LEAVING.into());
            }
        } else if change.new.is_none() {
            wake(LEAVING.into());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            if key != LEAVING {
                return match plane.get(&SERVICE_CIDRS, "", key).await? {
                    Some(range) if meta::is_deleting(&range) => leave(plane, &range).await,
                    Some(range) => welcome(plane, &range).await,
                    None => Ok(Next::Done),
                };
            }
            let mut next = Next::Done;
            for range in plane.list(&SERVICE_CIDRS, "").await? {
                if meta::is_deleting(&range) && leave(plane, &range).await? != Next::Done {
                    next = Next::After(Duration::from_secs(GRACE_SECONDS.unsigned_abs()));
                }
            }
            Ok(next)
        })
    }
}

/// A range that is there is protected and ready.
async fn welcome(plane: &InPlane, range: &Value) -> Result<Next, Status> {
    if !meta::has_finalizer(range, FINALIZER) {
        // The write wakes this key again.
        plane.update(&SERVICE_CIDRS, meta::with_finalizer(range, FINALIZER, true)).await?;
    } else if meta::condition(range, "Ready") != Some("True") {
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes Service CIDR is ready",
        });
        set_condition(plane, range, ready).await?;
    }
    Ok(Next::Done)
}

/// A range that is deleted goes when nobody needs it.
async fn leave(plane: &InPlane, range: &Value) -> Result<Next, Status> {
    if !meta::has_finalizer(range, FINALIZER) {
        return Ok(Next::Done);
    }
    let others = plane.list(&SERVICE_CIDRS, "").await?;
    let addresses = plane.list(&IP_ADDRESSES, "").await?;
    if plan::is_needed(range, &others, &addresses) {
        let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                       ServiceCIDR";
        let blocked =
            json!({"type": "Ready", "status": "False", "reason": "Terminating", "message": message});
        set_condition(plane, range, blocked).await?;
        return Ok(Next::Done);
    }
    let deleted = range.str_at(&["metadata", "deletionTimestamp"]).and_then(timestamp::seconds);
    let left = deleted.unwrap_or_default().saturating_add(GRACE_SECONDS) - plane.client.now();
    if left > 0 {
        return Ok(Next::After(Duration::from_secs(left.min(GRACE_SECONDS).unsigned_abs())));
    }
    plane.update(&SERVICE_CIDRS, meta::with_finalizer(range, FINALIZER, false)).await?;
    Ok(Next::Done)
}

async fn set_condition(plane: &InPlane, range: &Value, condition: Value) -> Result<(), Status> {
    let known = meta::find_condition(range, "Ready");
    let same = |field| known.and_then(|known| known.get(field)) == condition.get(field);
    if ["status", "reason", "message"].into_iter().all(same) {
        return Ok(());
    }
    let mut new = range.clone();
    meta::set_condition(&mut new, condition, plane.client.now());
    plane.update_status(&SERVICE_CIDRS, new).await.map(drop)
}
