//! What extension servers say about themselves, for discovery and OpenAPI: asked for when somebody wants to know, kept for a
//! minute, and shown as stale when the server does not answer.
//!
//! Invariant: what is kept is bounded in number and bytes, whatever servers send, and a server that does not answer is asked
//! by one at a time, and not again for some seconds.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use parking_lot::Mutex;
use polder_model::{PlaneId, SmolStr, Status, Value};
use polder_registry::bootstrap::group_priority;
use polder_registry::extensions::Extension;
use polder_store::Plane;

use super::{Aggregator, resources};

/// What is read of a document.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Text weighs so many times its length when it is parsed.
const PARSED_WEIGHT: usize = 8;
/// Documents of each sort that are kept, and what they may take.
const KEPT_LEN_MAX: usize = 4096;
const KEPT_BYTES_MAX: usize = 32 << 20;
/// How long an answer is good, and a failure.
const GOOD_FOR: Duration = Duration::from_secs(60);
const FAILED_FOR: Duration = Duration::from_secs(5);

/// A group version that is served elsewhere, as discovery shows it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteVersion {
    pub(crate) group: SmolStr,
    pub(crate) version: SmolStr,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    /// In the aggregated form.
    pub(crate) resources: Arc<[Value]>,
    /// The server could not be asked: this is what it last said, if anything.
    pub(crate) stale: bool,
}

#[derive(Default)]
pub(super) struct Documents {
    resources: Cache<Arc<[Value]>>,
    /// The hash of the OpenAPI document.
    openapi: Cache<SmolStr>,
}

impl Aggregator {
    /// The group versions of a plane that are served elsewhere, without what is in them.
    pub(crate) async fn names(&self, plane: &Arc<Plane>) -> Result<Vec<RemoteVersion>, Status> {
        let version = |one: Arc<Extension>| RemoteVersion {
            group: one.group.clone(),
            version: one.version.clone(),
            group_priority: one.group_priority,
            version_priority: one.version_priority,
            resources: Arc::from([]),
            stale: one.available == Some(false),
        };
        Ok(self.remote(plane).await?.into_iter().map(version).collect())
    }

    /// The group versions of a plane that are served elsewhere, with what is in them.
    pub(crate) async fn versions(&self, plane: &Arc<Plane>) -> Result<Vec<RemoteVersion>, Status> {
        let remote = self.remote(plane).await?;
        let known = self.known(plane, &self.documents.resources, &remote, |extension| async move {
            let path = format!("/apis/{}/{}", extension.group, extension.version);
            let body = self.ask(plane, extension, &path, DOCUMENT_BYTES_MAX).await?;
            let list = Value::parse(&body).map_err(|error| error.to_string())?;
            let resources = resources::aggregated(&list, &extension.group, &extension.version)?;
            Ok((Arc::from(resources), body.len() * PARSED_WEIGHT))
        });
        let known = known.await;
        let versions = remote.into_iter().zip(known).map(|(one, known)| RemoteVersion {
            group: one.group.clone(),
            version: one.version.clone(),
            group_priority: one.group_priority,
            version_priority: one.version_priority,
            resources: known.value.unwrap_or_else(|| Arc::from([])),
            stale: known.stale,
        });
        Ok(versions.collect())
    }

    /// Group versions of a plane that are served elsewhere and have an OpenAPI document, with its hash.
    pub(crate) async fn openapi(
        &self,
        plane: &Arc<Plane>,
    ) -> Result<Vec<(SmolStr, SmolStr, SmolStr)>, Status> {
        let remote = self.remote(plane).await?;
        let known = self.known(plane, &self.documents.openapi, &remote, |extension| async move {
            let body = self.ask(plane, extension, "/openapi/v3", DOCUMENT_BYTES_MAX).await?;
            let index = Value::parse(&body).map_err(|error| error.to_string())?;
            let path = format!("apis/{}/{}", extension.group, extension.version);
            let url = index.str_at(&["paths", &path, "serverRelativeURL"]);
            let hash = url.and_then(|url| url.split_once("?hash=")).map(|(_, hash)| hash);
            let plain =
                |hash: &&str| hash.len() <= 256 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let hash = hash.filter(plain).ok_or("the answer has no document of this group version")?;
            Ok((SmolStr::new(hash), hash.len()))
        });
        let known = known.await;
        let documents = remote.into_iter().zip(known).filter_map(|(one, known)| {
            let hash = known.value.filter(|_| !known.stale)?;
            Some((one.group.clone(), one.version.clone(), hash))
        });
        Ok(documents.collect())
    }

    /// The extension services that serve something: what the plane serves itself is not extended.
    async fn remote(&self, plane: &Arc<Plane>) -> Result<Vec<Arc<Extension>>, Status> {
        let all = self.registry.extensions(plane).await?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let catalog = self.registry.catalog(plane).await?;
        let elsewhere = |one: &&Arc<Extension>| {
            let local = one.group.is_empty() || group_priority(&one.group).is_some();
            !local && !catalog.has_group(&one.group, Some(&one.version))
        };
        Ok(all.iter().filter(elsewhere).cloned().collect())
    }

    /// What is known about each, after asking those that must be asked.
    async fn known<'a, T: Clone, F>(
        &self,
        plane: &Arc<Plane>,
        cache: &Cache<T>,
        extensions: &'a [Arc<Extension>],
        ask: impl Fn(&'a Extension) -> F,
    ) -> Vec<Known<T>>
    where
        F: Future<Output = Result<(T, usize), String>>,
    {
        let look = || extensions.iter().map(|one| cache.look(plane.id, one)).collect::<Vec<_>>();
        let first = look();
        if first.iter().all(|look| !look.ask) {
            return first.into_iter().map(|look| look.known).collect();
        }
        let gate = self.gate(plane.id);
        let _turn = gate.fetching.lock().await;
        let ask = &ask;
        let asking = extensions.iter().zip(look()).map(|(extension, look)| async move {
            if !look.ask {
                return look.known;
            }
            match ask(extension).await {
                Ok((value, bytes)) => {
                    cache.put(plane.id, extension, Some(value.clone()), false, bytes);
                    Known { value: Some(value), stale: false }
                }
                Err(why) => {
                    let (group, version) = (extension.group.as_str(), extension.version.as_str());
                    tracing::debug!(plane = %plane.name, group, version, why, "an extension server tells nothing");
                    cache.failed(plane.id, extension, look.known.value.clone());
                    Known { value: look.known.value, stale: true }
                }
            }
        });
        join_all(asking).await
    }
}

struct Known<T> {
    value: Option<T>,
    stale: bool,
}

/// What is known, and whether its server is to be asked.
struct Look<T> {
    known: Known<T>,
    ask: bool,
}

type Key = (PlaneId, SmolStr, SmolStr);

struct Entry<T> {
    /// Nothing if the server never told anything.
    value: Option<T>,
    stale: bool,
    since: Instant,
    /// Where the server was then.
    address: u64,
    bytes: usize,
}

struct Cache<T>(Mutex<Kept<T>>);

struct Kept<T> {
    entries: HashMap<Key, Entry<T>>,
    bytes: usize,
}

impl<T> Default for Cache<T> {
    fn default() -> Cache<T> {
        Cache(Mutex::new(Kept { entries: HashMap::new(), bytes: 0 }))
    }
}

impl<T: Clone> Cache<T> {
    fn look(&self, plane: PlaneId, extension: &Extension) -> Look<T> {
        let kept = self.0.lock();
        let entry = kept.entries.get(&key(plane, extension));
        let entry = entry.filter(|entry| entry.address == address(extension));
        let (value, stale, recent) = match entry {
            None => (None, true, false),
            Some(entry) => {
                let good_for = if entry.stale { FAILED_FOR } else { GOOD_FOR };
                (entry.value.clone(), entry.stale, entry.since.elapsed() < good_for)
            }
        };
        // Somebody looks after it anyway.
        let unavailable = extension.available == Some(false);
        Look { known: Known { value, stale: stale || unavailable }, ask: !recent && !unavailable }
    }

    fn failed(&self, plane: PlaneId, extension: &Extension, value: Option<T>) {
        let bytes = self.0.lock().entries.get(&key(plane, extension)).map_or(0, |entry| entry.bytes);
        self.put(plane, extension, value, true, bytes);
    }

    fn put(&self, plane: PlaneId, extension: &Extension, value: Option<T>, stale: bool, bytes: usize) {
        let bytes = bytes + size_of::<Entry<T>>();
        let entry = Entry { value, stale, since: Instant::now(), address: address(extension), bytes };
        let mut kept = self.0.lock();
        let old = kept.entries.insert(key(plane, extension), entry);
        kept.bytes = kept.bytes - old.map_or(0, |old| old.bytes) + bytes;
        if kept.entries.len() > KEPT_LEN_MAX || kept.bytes > KEPT_BYTES_MAX {
            let mut order: Vec<(Instant, Key)> =
                kept.entries.iter().map(|(key, entry)| (entry.since, key.clone())).collect();
            order.sort_unstable();
            for (_, key) in order.iter().take(order.len().div_ceil(2)) {
                let old = kept.entries.remove(key);
                kept.bytes -= old.map_or(0, |old| old.bytes);
            }
        }
    }
}

fn key(plane: PlaneId, extension: &Extension) -> Key {
    (plane, extension.group.clone(), extension.version.clone())
}

/// Changes when another server may be meant.
fn address(extension: &Extension) -> u64 {
    let mut hash = DefaultHasher::new();
    (&extension.namespace, &extension.service, extension.port).hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use polder_registry::extensions::Trust;

    use super::*;

    fn extension(service: &str, available: Option<bool>) -> Extension {
        Extension {
            group: "a.example".into(),
            version: "v1".into(),
            namespace: "n".into(),
            service: service.into(),
            port: 443,
            trust: Trust::Anybody,
            group_priority: 1,
            version_priority: 1,
            available,
        }
    }

    #[test]
    fn servers_are_asked_now_and_then() {
        let (cache, plane) = (Cache::<u8>::default(), PlaneId(7));
        let one = extension("s", None);
        let look = |extension: &Extension| {
            let look = cache.look(plane, extension);
            (look.known.value, look.known.stale, look.ask)
        };
        assert_eq!(look(&one), (None, true, true));
        cache.put(plane, &one, Some(1), false, 100);
        assert_eq!(look(&one), (Some(1), false, false));
        assert_eq!(look(&extension("other", None)), (None, true, true), "another server");
        assert_eq!(look(&extension("s", Some(false))), (Some(1), true, false), "what it last said");
        cache.failed(plane, &one, Some(1));
        assert_eq!(look(&one), (Some(1), true, false), "not again at once");
        assert_eq!(cache.look(PlaneId(8), &one).known.value, None, "another plane's");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let cache = Cache::<u8>::default();
        for plane in 0..20_000 {
            cache.put(PlaneId(plane), &extension("s", None), Some(1), false, 100);
        }
        assert!(cache.0.lock().entries.len() <= KEPT_LEN_MAX);
        for plane in 0..200 {
            cache.put(PlaneId(plane), &extension("s", None), Some(1), false, 1 << 20);
        }
        let kept = cache.0.lock();
        assert!(kept.bytes <= KEPT_BYTES_MAX);
        assert_eq!(kept.bytes, kept.entries.values().map(|entry| entry.bytes).sum::<usize>());
    }
}
