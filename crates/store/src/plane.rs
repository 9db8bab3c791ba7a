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
}
