//! The extension servers of each plane: its `APIService` objects that name a service, read when somebody first needs them and
//! kept until one of them is written.
//!
//! Planes without any share one empty list, and what is kept is bounded: planes not used for long are let go, and cost one
//! look at their objects when they come back. Nothing here talks to a server; see `server::aggregator`, which whoever starts
//! the registry brings for controllers too.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base64::Engine as _;
use parking_lot::Mutex;
use polder_client::extension::{ExtensionCaller, ExtensionRequest};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value};
use polder_store::{Filter, ListQuery, Plane, StoredObject};

use crate::registry::Registry;
use crate::status::read_failed;
use crate::webhooks::resolve_service;
use crate::written::Written;

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";

const EPOCHS: usize = 256;
/// Planes whose list is kept, and what all lists may take.
const PLANES_LEN_MAX: usize = 100_000;
const BYTES_MAX: usize = 64 << 20;
/// Extension services of one plane: those beyond it, in the order of names, are not served.
const PLANE_LEN_MAX: usize = 256;
/// Authorities of one plane: a service beyond it is believed by nobody.
const PLANE_BYTES_MAX: usize = 1 << 20;

/// An `APIService` with a server behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    pub group: SmolStr,
    pub version: SmolStr,
    /// Where its service is.
    pub namespace: SmolStr,
    pub service: SmolStr,
    pub port: u16,
    /// By what its certificate is known.
    pub trust: Trust,
    pub group_priority: i64,
    pub version_priority: i64,
    /// What was found out last; `None` before anybody has looked.
    pub available: Option<bool>,
}

/// By what the certificate of an extension server is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// PEM; empty means those of the system.
    Authorities(Vec<u8>),
    /// Whoever answers is believed.
    Anybody,
}

impl Extension {
    /// The name its certificate must have.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// What an `APIService` object says; nothing if it names no service.
    pub fn read(object: &Value) -> Option<Extension> {
        let spec = object.get("spec")?;
        let service = spec.get("service").filter(|service| !service.is_null())?;
        let text = |value: &Value, key: &str| SmolStr::new(value.str_at(&[key]).unwrap_or_default());
        let bundle = spec.str_at(&["caBundle"]).unwrap_or_default();
        let insecure = spec.get("insecureSkipTLSVerify").and_then(Value::as_bool) == Some(true);
        let trust = match insecure {
            true => Trust::Anybody,
            // What cannot be read is not mistaken for none.
            false => Trust::Authorities(
                base64::engine::general_purpose::STANDARD
                    .decode(bundle)
                    .unwrap_or_else(|_| bundle.as_bytes().to_vec()),
            ),
        };
        let conditions = object.array_at(&["status", "conditions"]);
        let available = conditions.iter().find(|one| one.str_at(&["type"]) == Some("Available"));
        Some(Extension {
            group: text(spec, "group"),
            version: text(spec, "version"),
            namespace: text(service, "namespace"),
            service: text(service, "name"),
            port: service.i64_at(&["port"]).and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            trust,
            group_priority: spec.i64_at(&["groupPriorityMinimum"]).unwrap_or_default(),
            version_priority: spec.i64_at(&["versionPriority"]).unwrap_or_default(),
            available: available
                .and_then(|one| one.str_at(&["status"]))
                .filter(|status| *status != "Unknown")
                .map(|status| status == "True"),
        })
    }

    fn bytes(&self) -> usize {
        size_of::<Extension>()
            + match &self.trust {
                Trust::Authorities(pem) => pem.len(),
                Trust::Anybody => 0,
            }
    }
}

/// The extension services of one plane, in the order of names.
pub type Extensions = Arc<[Arc<Extension>]>;

struct Slot {
    list: Extensions,
    used: u64,
}

pub(crate) struct ExtensionLists {
    /// Counts changes, by plane modulo a few: a list read before a change is not kept after it.
    epochs: [AtomicU64; EPOCHS],
    planes: Mutex<Known>,
    empty: Extensions,
    caller: OnceLock<Arc<dyn ExtensionCaller>>,
}

#[derive(Default)]
struct Known {
    slots: HashMap<PlaneId, Slot>,
    bytes: usize,
    clock: u64,
}

impl Default for ExtensionLists {
    fn default() -> ExtensionLists {
        ExtensionLists {
            epochs: std::array::from_fn(|_| AtomicU64::new(0)),
            planes: Mutex::default(),
            empty: Arc::from([]),
            caller: OnceLock::new(),
        }
    }
}

impl ExtensionLists {
    fn epoch(&self, plane: PlaneId) -> &AtomicU64 {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose")]
        &self.epochs[plane.0 as usize % EPOCHS]
    }

    /// What is known of a plane's extension services may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.epoch(plane).fetch_add(1, Ordering::AcqRel);
        self.planes.lock().remove(plane);
    }

    fn known(&self, plane: PlaneId) -> Option<Extensions> {
        let mut known = self.planes.lock();
        known.clock += 1;
        let clock = known.clock;
        let slot = known.slots.get_mut(&plane)?;
        slot.used = clock;
        Some(slot.list.clone())
    }

    fn keep(&self, plane: PlaneId, list: &Extensions, epoch: u64) {
        let mut known = self.planes.lock();
        if self.epoch(plane).load(Ordering::Acquire) != epoch {
            return;
        }
        known.remove(plane);
        known.clock += 1;
        let used = known.clock;
        known.bytes += weight(list);
        known.slots.insert(plane, Slot { list: list.clone(), used });
        while known.slots.len() > PLANES_LEN_MAX || known.bytes > BYTES_MAX {
            let mut order: Vec<(u64, PlaneId)> =
                known.slots.iter().map(|(plane, slot)| (slot.used, *plane)).collect();
            order.sort_unstable();
            for (_, plane) in order.iter().take(order.len().div_ceil(4)) {
                known.remove(*plane);
            }
        }
    }
}

impl Known {
    fn remove(&mut self, plane: PlaneId) {
        if let Some(slot) = self.slots.remove(&plane) {
            self.bytes -= weight(&slot.list);
        }
    }
}

fn weight(list: &Extensions) -> usize {
    list.iter().map(|one| one.bytes()).sum()
}

/// Something was written or removed: a plane may have other extension services now.
pub(crate) fn committed(registry: &Registry, written: &Written<'_>) {
    if written.resource.group == GROUP && written.resource.resource == PLURAL {
        registry.extensions.forget(written.plane);
    }
}

fn read(objects: &[Arc<StoredObject>]) -> Extensions {
    let mut bytes = 0;
    let parsed = objects.iter().filter_map(|stored| {
        let mut extension = Extension::read(&Value::parse(stored.record.body()).ok()?)?;
        bytes += extension.bytes();
        if bytes > PLANE_BYTES_MAX
            && let Trust::Authorities(pem) = &mut extension.trust
        {
            *pem = b"too many authorities".to_vec();
        }
        Some(Arc::new(extension))
    });
    parsed.take(PLANE_LEN_MAX).collect()
}

impl Registry {
    /// The extension services of a plane. Read past the cache: what is made of them is kept, and most planes have none.
    pub async fn extensions(&self, plane: &Arc<Plane>) -> Result<Extensions, Status> {
        if let Some(list) = self.extensions.known(plane.id) {
            return Ok(list);
        }
        let epoch = self.extensions.epoch(plane.id).load(Ordering::Acquire);
        let resource = self.store.resource_id(&GroupResource::new(GROUP, PLURAL));
        // Those that are served here are not parsed.
        let remote: Arc<Filter> = Arc::new(|stored: &StoredObject| {
            memchr::memmem::find(stored.record.body(), b"\"service\":{").is_some()
        });
        let query = ListQuery {
            at: Some(self.store.current()),
            limit: PLANE_LEN_MAX,
            filter: Some(remote),
            ..ListQuery::all(resource)
        };
        let page = self.store.list(plane, query).await.map_err(|error| read_failed(plane, error))?;
        let list = if page.objects.is_empty() { self.extensions.empty.clone() } else { read(&page.objects) };
        self.extensions.keep(plane.id, &list, epoch);
        Ok(list)
    }

    /// Whether it is known, without looking, that no extension service serves a group version of the plane.
    pub fn is_not_extended(&self, plane: PlaneId, group: &str, version: &str) -> bool {
        let other = |one: &Arc<Extension>| one.group != group || one.version != version;
        group.is_empty()
            || crate::bootstrap::group_priority(group).is_some()
            || self.extensions.known(plane).is_some_and(|list| list.iter().all(other))
    }

    /// The extension service that serves a group version of the plane. What the plane serves itself is not extended.
    pub async fn extension(
        &self,
        plane: &Arc<Plane>,
        group: &str,
        version: &str,
    ) -> Result<Option<Arc<Extension>>, Status> {
        if self.is_not_extended(plane.id, group, version) {
            return Ok(None);
        }
        let list = self.extensions(plane).await?;
        let Some(found) = list.iter().find(|one| one.group == group && one.version == version) else {
            return Ok(None);
        };
        let local = self.catalog(plane).await?.has_group(group, Some(version));
        Ok((!local).then(|| found.clone()))
    }

    /// The extension services that serve something: what the plane serves itself is not extended.
    pub async fn remote_extensions(&self, plane: &Arc<Plane>) -> Result<Vec<Arc<Extension>>, Status> {
        let all = self.extensions(plane).await?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let catalog = self.catalog(plane).await?;
        let elsewhere = |one: &&Arc<Extension>| {
            let local = one.group.is_empty() || crate::bootstrap::group_priority(&one.group).is_some();
            !local && !catalog.has_group(&one.group, Some(&one.version))
        };
        Ok(all.iter().filter(elsewhere).cloned().collect())
    }

    /// Gives the registry a way to call extension servers. Without one, there are none for controllers. The first one counts.
    pub fn set_extension_caller(&self, caller: Arc<dyn ExtensionCaller>) {
        self.extensions.caller.set(caller).ok();
    }

    /// Asks an extension server in the name of a controller.
    pub(crate) async fn call_extension(
        &self,
        plane: PlaneId,
        request: ExtensionRequest,
    ) -> Result<Option<Value>, Status> {
        match self.extensions.caller.get() {
            Some(caller) => caller.call(plane, request).await,
            None => Ok(None),
        }
    }

    /// A ready endpoint of an extension service, or why there is none.
    pub async fn extension_endpoint(
        &self,
        plane: &Arc<Plane>,
        extension: &Extension,
    ) -> Result<(String, u16), String> {
        resolve_service(&self.store, plane, &extension.namespace, &extension.service, extension.port).await
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn objects_are_read() {
        let mut object = json!({
            "spec": {
                "group": "wardle.example.com", "version": "v1alpha1", "caBundle": "cGVt",
                "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": {"namespace": "wardle", "name": "api", "port": 8443},
            },
            "status": {"conditions": [{"type": "Available", "status": "False"}]},
        });
        let read = Extension::read(&object).unwrap();
        assert_eq!((read.host().as_str(), read.port), ("api.wardle.svc", 8443));
        assert_eq!((read.trust, read.available), (Trust::Authorities(b"pem".to_vec()), Some(false)));
        object.set_at(&["spec", "insecureSkipTLSVerify"], true);
        object.set_at(&["status"], json!({}));
        let read = Extension::read(&object).unwrap();
        assert_eq!((read.trust, read.available), (Trust::Anybody, None));
        object.set_at(&["spec", "service"], Value::Null);
        assert_eq!(Extension::read(&object), None);
    }

    #[test]
    fn what_was_read_before_a_change_is_not_kept() {
        let lists = ExtensionLists::default();
        let plane = PlaneId(7);
        let epoch = lists.epoch(plane).load(Ordering::Acquire);
        lists.keep(plane, &lists.empty.clone(), epoch);
        assert!(lists.known(plane).is_some());
        lists.forget(plane);
        assert!(lists.known(plane).is_none());
        lists.keep(plane, &lists.empty.clone(), epoch);
        assert!(lists.known(plane).is_none());
    }
}
