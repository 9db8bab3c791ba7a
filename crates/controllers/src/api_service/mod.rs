//! Whether each `APIService` is available: what is served here always is, an extension server when its service has
//! endpoints and one of them answers. And what extension servers need to know in order to believe this server.
//!
//! Keys are names of `APIService` objects, and [`AUTHENTICATION`]. What is served here has its condition from the start
//! and wakes nobody; a plane with an extension server has it asked every half minute.
//!
//! Invariant: which services are looked at is remembered for planes that have an extension service, and for no others.

mod plan;
pub(crate) mod registration;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use polder_client::extension::{ExtensionProbe, authentication_data, front_proxy_name};
use polder_client::resource::{API_SERVICES, CONFIG_MAPS, ENDPOINT_SLICES, SERVICES};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake, key};
use polder_model::selector::LabelSelector;
use polder_model::{PlaneId, SmolStr, Status, Value, json};

use self::plan::Finding;
use crate::Told;
use crate::meta;

/// The map extension servers look at, and the key that stands for it: no `APIService` has a name with a slash.
const AUTHENTICATION: &str = "kube-system/extension-apiserver-authentication";
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// An extension server is asked this often.
const EVERY: Duration = Duration::from_secs(30);
/// Extension services of one plane whose services are looked at when they change; others every half minute.
const PLANE_LEN_MAX: usize = 256;

pub(crate) struct Availability {
    front_proxy_ca: Told,
    probe: Option<Arc<dyn ExtensionProbe>>,
    /// Of planes with extension services: the service of each, as `namespace/name`.
    services: Mutex<HashMap<PlaneId, HashMap<SmolStr, SmolStr>>>,
}

impl Availability {
    pub(crate) fn new(front_proxy_ca: Told, probe: Option<Arc<dyn ExtensionProbe>>) -> Availability {
        Availability { front_proxy_ca, probe, services: Mutex::default() }
    }

    /// Notes which service an extension service has now.
    fn note(&self, plane: PlaneId, name: &SmolStr, service: Option<SmolStr>) {
        let mut services = self.services.lock();
        match service {
            Some(service) => {
                let own = services.entry(plane).or_default();
                if own.len() < PLANE_LEN_MAX || own.contains_key(name) {
                    own.insert(name.clone(), service);
                }
            }
            None => {
                if let Some(own) = services.get_mut(&plane) {
                    own.remove(name);
                    if own.is_empty() {
                        services.remove(&plane);
                    }
                }
            }
        }
    }

    fn observe_api_service(&self, change: &Change, wake: Wake<'_>) {
        let Some(new) = &change.new else {
            self.note(change.plane, &change.name, None);
            return;
        };
        // A cheap look first: most are served here, and said to be so already.
        if !new.may_contain("\"service\":{") && new.may_contain("\"Local\"") && change.old.is_none() {
            return;
        }
        let (new, old) = (new.value(), change.old.as_ref().map(|old| old.value()));
        let service = service_of(new);
        self.note(change.plane, &change.name, service.clone());
        // Our own word about it is no news.
        if old.is_some_and(|old| old.get("spec") == new.get("spec")) {
            return;
        }
        if service.is_some() {
            wake(change.name.clone());
            wake(SmolStr::new_static(AUTHENTICATION));
        } else if meta::find_condition(new, "Available").and_then(|one| one.str_at(&["reason"]))
            != Some("Local")
        {
            wake(change.name.clone());
        }
    }

    /// Extension services whose service this is.
    fn wake_users(&self, plane: PlaneId, service: &SmolStr, wake: Wake<'_>) {
        let services = self.services.lock();
        let Some(own) = services.get(&plane) else { return };
        own.iter().filter(|(_, own)| *own == service).for_each(|(name, _)| wake(name.clone()));
    }

    async fn look(&self, plane: &InPlane, name: &str) -> Result<Next, Status> {
        let Some(object) = plane.get(&API_SERVICES, "", name).await? else { return Ok(Next::Done) };
        let Some(reference) = object.at(&["spec", "service"]).filter(|service| !service.is_null()) else {
            report(plane, &object, plan::local()).await?;
            return Ok(Next::Done);
        };
        let text = |key| reference.str_at(&[key]).unwrap_or_default();
        let (namespace, service) = (text("namespace"), text("name"));
        // A plane without services at all has not this one either.
        let found = match plane.get(&SERVICES, namespace, service).await {
            Err(status) if status.code == 404 => None,
            found => found?,
        };
        let selector = LabelSelector::parse(&format!("{SERVICE_NAME}={service}"));
        let slices = match (&found, selector) {
            (Some(_), Ok(selector)) => plane.list_selected(&ENDPOINT_SLICES, namespace, selector).await?,
            _ => Vec::new(),
        };
        match (plan::finding(reference, found.as_deref(), &slices), &self.probe) {
            (Finding::Unavailable { reason, message }, _) => {
                report(plane, &object, plan::condition("False", reason, &message)).await?;
                Ok(Next::After(EVERY))
            }
            // Nobody here can ask.
            (Finding::Ask, None) => Ok(Next::Done),
            (Finding::Ask, Some(probe)) => {
                let outcome = probe.probe(plane.plane, &object).await;
                let passed = outcome.is_ok();
                // It may have changed while its server was asked.
                let Some(object) = plane.get(&API_SERVICES, "", name).await? else { return Ok(Next::Done) };
                report(plane, &object, plan::asked(outcome)).await?;
                Ok(if passed { Next::After(EVERY) } else { Next::Later })
            }
        }
    }

    /// Tells extension servers of this plane whom to believe.
    async fn authentication(&self, plane: &InPlane) -> Result<Next, Status> {
        let (namespace, name) = meta::split(AUTHENTICATION);
        let data = authentication_data(&self.front_proxy_ca.get(), &front_proxy_name(plane.plane));
        match plane.get(&CONFIG_MAPS, namespace, name).await? {
            Some(found) => {
                // Others may tell extension servers more than we do.
                let mut told = Value::clone(&found);
                for (key, text) in data.iter() {
                    told.set_at(&["data", key], text.clone());
                }
                if told != *found {
                    plane.update(&CONFIG_MAPS, told).await?;
                }
            }
            None => {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": data,
                    "metadata": {"name": name, "namespace": namespace},
                });
                meta::created(plane.create(&CONFIG_MAPS, namespace, map).await)?;
            }
        }
        Ok(Next::Done)
    }
}

/// The service behind an `APIService`, as `namespace/name`; nothing if it is served here.
fn service_of(object: &Value) -> Option<SmolStr> {
    let service = object.at(&["spec", "service"]).filter(|service| !service.is_null())?;
    let text = |field| service.str_at(&[field]).unwrap_or_default();
    Some(key(text("namespace"), text("name")))
}

/// Says whether an `APIService` is available, unless that is said already.
async fn report(plane: &InPlane, object: &Value, condition: Value) -> Result<(), Status> {
    let mut new = object.clone();
    meta::set_condition(&mut new, condition, plane.client.now());
    if new == *object {
        return Ok(());
    }
    plane.update_status(&API_SERVICES, new).await.map(drop)
}

impl Controller for Availability {
    fn name(&self) -> &'static str {
        "apiservice-available-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&API_SERVICES, &SERVICES, &ENDPOINT_SLICES, &CONFIG_MAPS])
    }

    fn tells(&self) -> bool {
        true
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&API_SERVICES) {
            self.observe_api_service(change, wake);
        } else if change.is(&SERVICES) {
            self.wake_users(change.plane, &change.key(), wake);
        } else if change.is(&CONFIG_MAPS) {
            // Found is not changed: the one all planes share is not made each plane's own.
            let (namespace, name) = meta::split(AUTHENTICATION);
            if change.revision > 0 && change.name == name && change.namespace == namespace {
                wake(SmolStr::new_static(AUTHENTICATION));
            }
        } else if self.services.lock().contains_key(&change.plane)
            && let Some(slice) = change.last()
        {
            let service = slice.value().str_at(&["metadata", "labels", SERVICE_NAME]).unwrap_or_default();
            self.wake_users(change.plane, &key(&change.namespace, service), wake);
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            match key {
                AUTHENTICATION if self.front_proxy_ca.is_empty() => Ok(Next::Done),
                AUTHENTICATION => self.authentication(plane).await,
                name => self.look(plane, name).await,
            }
        })
    }

    fn forget(&self, is_gone: &dyn Fn(PlaneId) -> bool) {
        self.services.lock().retain(|plane, _| !is_gone(*plane));
    }
}
