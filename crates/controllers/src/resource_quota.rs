//! What is used of a quota: counted when a quota is made or changed, and when its status is not about what it says.
//!
//! From then on every write that a quota counts brings the status along in its own commit (admission does), so a count
//! is not needed for each of them. Both count with the same functions. Keys are quotas.

use polder_admission::amounts;
use polder_admission::quota::usage::{MEASURED, plainly_counted};
use polder_admission::quota::{self, Counted, scopes};
use polder_client::resource::RESOURCE_QUOTAS;
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Query, Wake};
use polder_model::quantity::Quantity;
use polder_model::{GroupResource, Status, Value};

use crate::meta;

const PAGE_LEN: usize = 500;

pub(crate) struct ResourceQuota;

impl Controller for ResourceQuota {
    fn name(&self) -> &'static str {
        "resourcequota-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&RESOURCE_QUOTAS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let Some(new) = &change.new else { return };
        let same = |old: &Value| old.get("spec") == new.value().get("spec");
        let known = change.old.as_ref().is_some_and(|old| same(old.value()));
        if !known || !quota::is_measured(new.value()) {
            wake(change.key());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let (namespace, name) = meta::split(key);
            let Some(found) = plane.get(&RESOURCE_QUOTAS, namespace, name).await? else {
                return Ok(Next::Done);
            };
            if meta::is_deleting(&found) {
                return Ok(Next::Done);
            }
            let used = measure(plane, namespace, &found).await?;
            if quota::is_measured(&found) && quota::used(&found) == used {
                return Ok(Next::Done);
            }
            // Of the version that was read before the count: what came meanwhile makes this fail, and it is counted again.
            let mut new = Value::clone(&found);
            quota::set_status(&mut new, &used);
            plane.update_status(&RESOURCE_QUOTAS, new).await?;
            Ok(Next::Done)
        })
    }
}

async fn measure(plane: &InPlane, namespace: &str, found: &Value) -> Result<amounts::Amounts, Status> {
    let hard = quota::hard(found);
    let mut used: amounts::Amounts = hard.keys().map(|name| (name.clone(), Quantity::from_i64(0))).collect();
    for (group, resource) in MEASURED {
        let counted = Counted { group, resource };
        if hard.keys().any(|line| counted.counts(line)) {
            let name = GroupResource::new(group, resource);
            let mut add = |object: &Value| {
                amounts::add(&mut used, &quota::share(found, counted, Some(object)));
            };
            each(plane, namespace, &name, &mut add).await?;
        }
    }
    let scoped = scopes::of(found).next().is_some();
    for line in hard.keys() {
        // A scope is about pods or claims, so nothing else is in it.
        if let Some(resource) = plainly_counted(line).filter(|_| !scoped) {
            let mut count = 0;
            each(plane, namespace, &resource, &mut |_| count += 1).await?;
            used.insert(line.clone(), Quantity::from_i64(count));
        }
    }
    Ok(used)
}

/// Visits every object of a resource in a namespace, a page at a time. Of what is not served there is none.
async fn each(
    plane: &InPlane,
    namespace: &str,
    resource: &GroupResource,
    visit: &mut (dyn FnMut(&Value) + Send),
) -> Result<(), Status> {
    let served = plane.client.resources(plane.plane).await?;
    let facts = served.into_iter().find(|facts| facts.name.group_resource() == *resource);
    let Some(facts) = facts.filter(|facts| facts.namespaced) else { return Ok(()) };
    let mut after = None;
    loop {
        let query = Query { namespace: namespace.into(), after, limit: PAGE_LEN, ..Query::default() };
        let page = plane.client.list(plane.plane, &facts.name, query).await?;
        page.iter().for_each(|object| visit(object));
        match page.last() {
            Some(last) => {
                after = Some((meta::namespace(last).into(), meta::name(last).into()));
            }
            _ => return Ok(()),
        }
    }
}
