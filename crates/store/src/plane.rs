//! Planes as the store keeps them in memory: small, and the only thing an idle plane costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polder_model::{PlaneId, PlaneName};

use crate::key::{Revision, SpaceId};

/// One plane. Immutable; a fork or a new limit replaces the value, and the counters are shared between the two.
#[derive(Clone, Debug)]
pub struct Plane {
    pub id: PlaneId,
    pub name: PlaneName,
    /// The overlay first, then its parents: where reads look, in order.
    pub stack: Box<[SpaceId]>,
    /// The plane has no history before this revision.
    pub floor: Revision,
    pub version_offset: u64,
    pub limits: Limits,
    /// That of the base it stands on.
    pub profile: Profile,
    pub usage: Arc<Usage>,
}

impl Plane {
    pub fn overlay(&self) -> SpaceId {
        self.stack[0]
    }

    /// What users see as `metadata.resourceVersion`. The inverse is [`Plane::revision`]; nothing else converts.
    pub fn resource_version(&self, revision: Revision) -> u64 {
        revision.0 + self.version_offset
    }

    /// The store's revision behind a resource version; versions from before this store's time become zero.
    pub fn revision(&self, resource_version: u64) -> Revision {
        Revision(resource_version.saturating_sub(self.version_offset))
    }
}

/// How much a plane holds; exact, because only the committer writes it.
#[derive(Debug, Default)]
pub struct Usage {
    pub(crate) objects: AtomicU64,
    pub(crate) bytes: AtomicU64,
    last_change: AtomicU64,
    /// Seconds since 1970 of the last request; zero after a restart until there is one.
    pub last_activity: AtomicU64,
}

impl Usage {
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The newest commit that changed an object of the plane; zero when there is none, `None` when it is not known.
    pub(crate) fn last_change(&self) -> Option<Revision> {
        Some(Revision(self.last_change.load(Ordering::Acquire)))
            .filter(|revision| *revision < Revision::NEWEST)
    }

    pub(crate) fn set_last_change(&self, revision: Option<Revision>) {
        self.last_change.store(revision.unwrap_or(Revision::NEWEST).0, Ordering::Release);
    }
}

/// What a plane is for, which decides what it begins with and which kinds it has. It is a property of the base at the bottom of
/// a stack, so that forks and layers have that of their source, and no plane pays for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// A whole cluster.
    #[default]
    Cluster,
    /// A control plane without nodes and workloads.
    Generic,
}

impl Profile {
    pub const ALL: [Profile; 2] = [Profile::Cluster, Profile::Generic];

    pub fn name(self) -> &'static str {
        match self {
            Profile::Cluster => "cluster",
            Profile::Generic => "generic",
        }
    }

    pub fn of_name(name: &str) -> Option<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// How the base of a profile is told from others: by what its digest begins with. The first profile has no mark, since
    /// there was no other once.
    pub(crate) fn mark(self) -> &'static str {
        match self {
            Profile::Cluster => "",
            Profile::Generic => "generic:",
        }
    }

    /// The profile of planes on a base of this digest.
    pub(crate) fn of_base(digest: &str) -> Profile {
        if digest.starts_with(Profile::Generic.mark()) { Profile::Generic } else { Profile::Cluster }
    }
}

/// What a plane may use. Zero means unlimited. The store enforces the first two at commit; it keeps the others for
/// whoever serves the plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub objects: u64,
    pub bytes: u64,
    /// Size of one object.
    pub object_bytes: u64,
    pub watches: u64,
    pub requests_in_flight: u64,
    pub requests_per_second: u64,
    /// What it gets of what planes must share, in relation to others.
    pub weight: u64,
}

impl Limits {
    /// The weight of planes that have none of their own.
    pub const WEIGHT_DEFAULT: u64 = 100;
}

#[cfg(test)]
mod tests {
    use polder_model::{GroupResource, json};

    use super::*;
    use crate::memory::MemoryEngine;
    use crate::{Change, ForkSource, ObjectName, PlaneChange, Record, Store, StoreOptions};

    fn open(engine: &MemoryEngine) -> Arc<Store> {
        let digest = "digest";
        let store = Store::open(Box::new(engine.clone()), StoreOptions::default(), digest, |profile, id| {
            let record = Record::encode(&json!({"metadata": {"name": "x"}}));
            let resource = id(&GroupResource::new("", "namespaces"));
            vec![(resource, ObjectName::cluster(profile.name()), record)]
        });
        store.unwrap()
    }

    /// The one object of its base.
    async fn begins_with(store: &Store, plane: &Arc<Plane>) -> String {
        let resource = store.resource_id(&GroupResource::new("", "namespaces"));
        let page = store.list(plane, crate::ListQuery::all(resource)).await.unwrap();
        page.objects.iter().map(|object| object.name.name.to_string()).collect()
    }

    #[tokio::test]
    async fn profiles_come_with_bases() {
        let engine = MemoryEngine::default();
        let store = open(&engine);
        let limits = Limits::default();
        let change = async |plane: PlaneChange| {
            store.commit(Change { plane: Some(plane), ..Change::default() }).await.unwrap()
        };
        let name = |name: &str| name.parse().unwrap();
        for profile in Profile::ALL {
            change(PlaneChange::Create { name: name(profile.name()), limits, profile }).await;
        }
        let generic = store.plane("generic").unwrap().id;
        let source = ForkSource::Plane(generic);
        change(PlaneChange::Fork { name: name("fork"), source, limits }).await;
        change(PlaneChange::Seal { layer: "golden".into(), plane: generic }).await;
        let source = ForkSource::Layer("golden".into());
        change(PlaneChange::Fork { name: name("layered"), source, limits }).await;
        change(PlaneChange::SetLimits { plane: generic, limits: Limits { objects: 7, ..limits } }).await;
        let check = async |store: &Store| {
            for (name, profile) in [
                ("core", Profile::Cluster),
                ("cluster", Profile::Cluster),
                ("generic", Profile::Generic),
                ("fork", Profile::Generic),
                ("layered", Profile::Generic),
            ] {
                let plane = store.plane(name).unwrap();
                assert_eq!(plane.profile, profile, "{name}");
                assert_eq!(begins_with(store, &plane).await, profile.name(), "{name}");
            }
        };
        check(&store).await;
        store.close();
        check(&open(&engine)).await;
    }
}
