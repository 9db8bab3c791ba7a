//! What extension servers keep, of which no feed tells: it is listed from time to time, and soon after something of the plane
//! has gone. Who names owners there is put into the index, and looked at if one of them is not there to stay.
//!
//! Only planes with such servers have any of this. Their servers are asked for metadata, page by page, at most every ten
//! seconds; a turn ends after some time and goes on where it was when others have had theirs.
//!
//! Invariant: nothing is forgotten because a server did not answer. What it was last known to keep stays in the index.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use polder_client::resource::API_SERVICES;
use polder_client::{Next, Query};
use polder_model::{GroupResource, SmolStr, Status, Value};
use tokio::time::Instant;

use super::act::Turn;
use super::index::{ObjectRef, owners};
use super::plan::{FOREGROUND, ORPHAN, Owner};
use super::remote::{request, unknown};
use crate::meta::{has_finalizer, is_deleting, name, namespace};
use crate::timestamp;

/// What an `APIService` has in it that leads to an extension server.
pub(super) const SIGN: &str = "\"service\":{";
/// How soon somebody who waits for what is there looks again.
pub(super) const WAIT: Duration = Duration::from_secs(5);
/// How often everything is listed when nothing happens, and how often at most.
const EVERY: Duration = Duration::from_secs(120);
const PAUSE_SECONDS: i64 = 10;
/// A turn that has taken so long goes on when others have had theirs.
const TURN_MAX: Duration = Duration::from_secs(20);
/// Group versions of a plane, and resources of all of them, that are looked at.
const SERVICES_MAX: usize = 256;
const RESOURCES_MAX: usize = 1_000;
/// Objects on a page; where that is more than may be read of an answer, fewer.
const PAGE_LENS: [&str; 2] = ["500", "25"];
/// A server whose lists do not end is left after so many pages.
const PAGES_MAX: usize = 10_000;
/// Objects of one plane that are remembered. Those beyond it are found when others have gone.
const SEEN_MAX: usize = 100_000;
const PARALLEL: usize = 64;

/// What is known of a plane's extension servers.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Whether there are any; nothing while nobody has looked.
    extended: Option<bool>,
    /// The version in which each resource is asked for that can be collected.
    served: HashMap<GroupResource, SmolStr>,
    pass: Progress,
    /// How many passes there were, and when the last one began, whole or not.
    passes: u64,
    begun: i64,
    /// When the last one that came to its end began.
    known: i64,
    /// Who was found and must be looked at.
    wanted: HashSet<ObjectRef>,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    None,
    /// Somebody is at it.
    Busy,
    Paused(Pass),
}

/// One way through all that extension servers keep.
#[derive(Debug)]
struct Pass {
    number: u64,
    began: i64,
    left: Vec<GroupResource>,
    /// Where the list of the last of them goes on.
    token: String,
    pages: usize,
    seen: HashSet<ObjectRef>,
    /// Those that have not told all.
    silent: HashSet<GroupResource>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swept {
    /// There are no extension servers.
    Nothing,
    Whole,
    /// There is more to list.
    More,
    /// Somebody else is at it.
    Busy,
}

impl Elsewhere {
    pub(super) fn is_extended(&self) -> bool {
        self.extended == Some(true)
    }

    /// An extension server came, went or changed.
    pub(super) fn look_again(&mut self) {
        self.extended = None;
        self.begun = 0;
    }

    pub(super) fn version_of(&self, resource: &GroupResource) -> Option<SmolStr> {
        self.served.get(resource).cloned()
    }

    /// How long a plane's servers are left alone.
    fn pause(&self, now: i64) -> Option<Duration> {
        let left = self.begun.saturating_add(PAUSE_SECONDS).saturating_sub(now);
        let is_due = !matches!(self.pass, Progress::None) || !self.wanted.is_empty() || left > PAUSE_SECONDS;
        (!is_due && left > 0).then(|| Duration::from_secs(left.unsigned_abs()))
    }
}

impl Turn<'_> {
    /// Looks at what extension servers keep, and again later.
    pub(super) async fn tend_elsewhere(&self) -> Result<Next, Status> {
        let pause = self.tended.elsewhere.lock().pause(self.plane.client.now());
        if let Some(pause) = pause {
            return Ok(Next::After(pause));
        }
        let began = Instant::now();
        if self.tended.elsewhere.lock().wanted.is_empty() {
            match self.sweep().await? {
                Swept::Nothing => return Ok(Next::Done),
                Swept::More => return Ok(Next::Again),
                Swept::Busy => return Ok(Next::After(WAIT)),
                Swept::Whole => {}
            }
        }
        // Each of them once, whatever comes of it: those that fail are found again, and keep nobody else waiting.
        while began.elapsed() < TURN_MAX {
            let some: Vec<ObjectRef> = {
                let wanted = &mut self.tended.elsewhere.lock().wanted;
                let some: Vec<ObjectRef> = wanted.iter().take(PARALLEL).cloned().collect();
                some.into_iter().filter_map(|one| wanted.take(&one)).collect()
            };
            if some.is_empty() {
                return Ok(Next::After(EVERY));
            }
            self.look_at_all(&some, None).await.ok();
        }
        Ok(Next::Again)
    }

    /// Makes sure that what depends on an object elsewhere is known as of its deletion. Otherwise, when to go on.
    pub(super) async fn hear_of_dependents(&self, owner: &Value) -> Result<Option<Next>, Status> {
        let deleted = owner.str_at(&["metadata", "deletionTimestamp"]).and_then(timestamp::seconds);
        let extended = self.tended.elsewhere.lock().extended;
        let is_extended = match extended {
            Some(extended) => extended,
            // Most planes have none, and nobody waits there for somebody else to find that out.
            None => {
                let found = !self.services().await?.is_empty();
                *self.tended.elsewhere.lock().extended.get_or_insert(found)
            }
        };
        let known = self.tended.elsewhere.lock().known;
        if !is_extended || deleted.is_none_or(|deleted| known > deleted) {
            return Ok(None);
        }
        Ok(match self.sweep().await? {
            Swept::Nothing | Swept::Whole => None,
            Swept::More => Some(Next::Again),
            Swept::Busy => Some(Next::After(WAIT)),
        })
    }

    async fn sweep(&self) -> Result<Swept, Status> {
        let paused = match std::mem::replace(&mut self.tended.elsewhere.lock().pass, Progress::Busy) {
            Progress::Busy => return Ok(Swept::Busy),
            Progress::Paused(pass) => Some(pass),
            Progress::None => None,
        };
        // Whoever is at it says so until it is dropped.
        let mut place = Place { turn: self, pass: Progress::None };
        let mut pass = match paused {
            Some(pass) => pass,
            None => match self.begin().await? {
                Some(pass) => pass,
                None => return Ok(Swept::Nothing),
            },
        };
        let began = Instant::now();
        while let Some(resource) = pass.left.last().cloned() {
            if began.elapsed() > TURN_MAX {
                place.pass = Progress::Paused(pass);
                return Ok(Swept::More);
            }
            match self.page(&resource, &pass).await {
                Ok((objects, token)) => {
                    self.note(&mut pass, &resource, objects).await;
                    pass.pages += 1;
                    if pass.pages >= PAGES_MAX && !token.is_empty() {
                        pass.silent.extend(pass.left.drain(..));
                    } else if token.is_empty() {
                        pass.left.pop();
                    }
                    pass.token = token;
                }
                Err(_) => {
                    pass.silent.insert(resource);
                    pass.left.pop();
                    pass.token = String::new();
                }
            }
        }
        self.end(pass);
        Ok(Swept::Whole)
    }

    /// What leads to extension servers.
    async fn services(&self) -> Result<Vec<Arc<Value>>, Status> {
        let query = Query { containing: &[SIGN], limit: SERVICES_MAX, ..Query::default() };
        self.plane.client.list(self.plane.plane, &API_SERVICES, query).await
    }

    /// Asks all extension servers what they serve. Nothing if there are none.
    async fn begin(&self) -> Result<Option<Pass>, Status> {
        self.build().await?;
        let (client, plane) = (&self.plane.client, self.plane.plane);
        let began = client.now();
        let services = self.services().await?;
        let mut versions: Vec<(SmolStr, Reverse<i64>, SmolStr)> = services
            .iter()
            .map(|service| {
                let text = |field| SmolStr::new(service.str_at(&["spec", field]).unwrap_or_default());
                let priority = service.i64_at(&["spec", "versionPriority"]).unwrap_or_default();
                (text("group"), Reverse(priority), text("version"))
            })
            .collect();
        // Of several versions of a resource the preferred one is asked for.
        versions.sort();
        let mut served = HashMap::new();
        for (group, _, version) in &versions {
            match client.extension(plane, request(group, version)).await {
                Ok(list) => {
                    for name in list.iter().flat_map(collectable).take(RESOURCES_MAX - served.len()) {
                        served.entry(GroupResource::new(group.clone(), name)).or_insert(version.clone());
                    }
                }
                // It has what it was known to have; whoever never said so is not waited for.
                Err(_) => {
                    let before = self.tended.elsewhere.lock().served.clone();
                    let own = |(resource, known): &(GroupResource, SmolStr)| {
                        resource.group == *group && known == version
                    };
                    served.extend(before.into_iter().filter(own));
                }
            }
        }
        let mut elsewhere = self.tended.elsewhere.lock();
        elsewhere.extended = Some(!versions.is_empty());
        elsewhere.begun = began;
        elsewhere.passes += 1;
        elsewhere.served.clone_from(&served);
        let pass = Pass {
            number: elsewhere.passes,
            began,
            left: served.into_keys().collect(),
            token: String::new(),
            pages: 0,
            seen: HashSet::new(),
            silent: HashSet::new(),
        };
        Ok((!versions.is_empty()).then_some(pass))
    }

    /// A page of a list, and where the next one begins.
    async fn page(&self, resource: &GroupResource, pass: &Pass) -> Result<(Vec<Value>, String), Status> {
        let version = self.tended.elsewhere.lock().version_of(resource).unwrap_or_default();
        let mut outcome = Err(Status::internal("nothing was asked"));
        for limit in PAGE_LENS {
            let request = request(&resource.group, &version)
                .under(&[&resource.resource])
                .with("limit", limit)
                .with("continue", &pass.token)
                .metadata_only();
            outcome = self.plane.client.extension(self.plane.plane, request).await;
            if outcome.is_ok() {
                break;
            }
        }
        let mut list = outcome.map_err(unknown)?.ok_or_else(|| Status::internal("nobody serves it"))?;
        let token = list.str_at(&["metadata", "continue"]).unwrap_or_default().to_owned();
        let items = list.at_mut(&["items"]).and_then(Value::as_array_mut).map(std::mem::take);
        let items = items.ok_or_else(|| Status::internal("it is no list"))?;
        Ok((items.into_iter().filter(concerns_us).collect(), token))
    }

    /// Puts the objects of a page into the index, and those that must be looked at among the wanted.
    async fn note(&self, pass: &mut Pass, resource: &GroupResource, objects: Vec<Value>) {
        for value in &objects {
            if pass.seen.len() >= SEEN_MAX {
                pass.silent.insert(resource.clone());
                return;
            }
            let object = ObjectRef {
                resource: resource.clone(),
                namespace: SmolStr::new(namespace(value)),
                name: SmolStr::new(name(value)),
            };
            // The order of passes counts: its server's versions are its own.
            self.tended.index.lock().put(&object, pass.number, owners(value));
            if self.is_due(&object, value).await {
                self.tended.elsewhere.lock().wanted.insert(object.clone());
            }
            pass.seen.insert(object);
        }
    }

    /// Whether it waits for us, or one of its owners is not there to stay.
    async fn is_due(&self, object: &ObjectRef, value: &Value) -> bool {
        if is_deleting(value) {
            return [FOREGROUND, ORPHAN].iter().any(|own| has_finalizer(value, own));
        }
        for reference in super::references(value) {
            let uid = SmolStr::new(reference.str_at(&["uid"]).unwrap_or_default());
            if let Ok(Owner::Gone | Owner::Waiting) = self.owner(object, reference, &uid).await {
                return true;
            }
        }
        false
    }

    /// What is there no longer, or has no owners, is forgotten.
    fn end(&self, pass: Pass) {
        let mut elsewhere = self.tended.elsewhere.lock();
        let mut index = self.tended.index.lock();
        for object in index.objects() {
            let is_told = elsewhere.served.contains_key(&object.resource)
                || self.version_of(&object.resource).is_none();
            if is_told && !pass.silent.contains(&object.resource) && !pass.seen.contains(&object) {
                index.remove(&object, pass.number);
            }
        }
        elsewhere.known = pass.began;
    }
}

/// The place of whoever sweeps a plane. It is given back however that ends.
struct Place<'a, 'b> {
    turn: &'a Turn<'b>,
    pass: Progress,
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        self.turn.tended.elsewhere.lock().pass = std::mem::take(&mut self.pass);
    }
}

fn concerns_us(object: &Value) -> bool {
    let waits = || [FOREGROUND, ORPHAN].iter().any(|own| has_finalizer(object, own));
    !name(object).is_empty() && (!super::references(object).is_empty() || (is_deleting(object) && waits()))
}

/// Resources whose objects can be found and deleted, as upstream's collector wants them.
fn collectable(list: &Value) -> Vec<SmolStr> {
    let resources = list.array_at(&["resources"]).iter().filter_map(|one| {
        let name = one.str_at(&["name"]).filter(|name| !name.is_empty() && !name.contains('/'))?;
        let has = |wanted: &str| one.array_at(&["verbs"]).iter().any(|verb| verb.as_str() == Some(wanted));
        ["delete", "list", "watch"].into_iter().all(has).then(|| SmolStr::new(name))
    });
    resources.collect()
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn what_can_be_collected() {
        let list = json!({"resources": [
            {"name": "flunders", "verbs": ["create", "delete", "list", "watch"]},
            {"name": "flunders/status", "verbs": ["delete", "list", "watch"]},
            {"name": "nodes", "verbs": ["get", "list"]},
            {"name": "reviews"},
        ]});
        assert_eq!(collectable(&list), ["flunders"]);
        assert!(collectable(&json!(1)).is_empty());
    }

    #[test]
    fn who_is_looked_at() {
        let owned = json!({"metadata": {"name": "a", "ownerReferences": [{"uid": "u"}]}});
        assert!(concerns_us(&owned));
        assert!(!concerns_us(&json!({"metadata": {"name": "a", "finalizers": ["orphan"]}})), "it stays");
        let leaves = json!({
            "metadata": {"name": "a", "finalizers": ["orphan"], "deletionTimestamp": "2026-01-01T00:00:00Z"},
        });
        assert!(concerns_us(&leaves));
        assert!(!concerns_us(&json!({"metadata": {"ownerReferences": [{"uid": "u"}]}})), "it has no name");
        assert!(!concerns_us(&json!([])));
    }

    #[test]
    fn servers_are_left_alone_for_a_while() {
        let mut elsewhere = Elsewhere::default();
        assert_eq!(elsewhere.pause(1_000), None, "nobody has looked");
        elsewhere.begun = 1_000;
        assert_eq!(elsewhere.pause(1_003), Some(Duration::from_secs(7)));
        assert_eq!(elsewhere.pause(1_010), None);
        assert_eq!(elsewhere.pause(900), None, "the clock was set back");
        elsewhere.wanted.insert(ObjectRef {
            resource: GroupResource::new("wardle.example.com", "flunders"),
            namespace: SmolStr::new("default"),
            name: SmolStr::new("a"),
        });
        assert_eq!(elsewhere.pause(1_003), None, "there is something to do");
        elsewhere.wanted.clear();
        elsewhere.look_again();
        assert_eq!(elsewhere.pause(1_003), None, "there may be another server");
    }
}
