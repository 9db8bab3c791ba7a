//! `kube-root-ca.crt` in every namespace: the authority by which programs inside can trust this server. Made with the
//! namespace, restored when somebody changes or deletes it.
//!
//! The namespaces a plane begins with have it from the layer all planes share, so a new plane needs no write.

use polder_client::resource::{CONFIG_MAPS, NAMESPACES};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::{Object, SmolStr, Value, json};

use crate::Told;
use crate::meta;

const NAME: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";

pub(crate) struct RootCa {
    ca: Told,
}

impl RootCa {
    pub(crate) fn new(ca: Told) -> RootCa {
        RootCa { ca }
    }

    fn data(&self) -> Value {
        Value::Object(Object::from_iter([(SmolStr::new(FILE), Value::from(&self.ca.get()))]))
    }
}

impl Controller for RootCa {
    fn name(&self) -> &'static str {
        "root-ca-certificate-publisher-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&NAMESPACES, &CONFIG_MAPS])
    }

    fn tells(&self) -> bool {
        true
    }

    /// Keys are names of namespaces.
    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if self.ca.is_empty() {
            return;
        }
        if change.is(&NAMESPACES) {
            if meta::is_new_namespace(change) {
                wake(change.name.clone());
            }
        } else if change.name == NAME {
            wake(change.namespace.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let found = plane.get(&CONFIG_MAPS, key, NAME).await?;
            if let Some(found) = found {
                let data = self.data();
                if found.get("data") != Some(&data) {
                    let mut restored = Value::clone(&found);
                    restored.set_at(&["data"], data);
                    plane.update(&CONFIG_MAPS, restored).await?;
                }
                return Ok(Next::Done);
            }
            if meta::is_active(plane, key).await? {
                let map = json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": NAME, "namespace": key},
                    "data": (self.data()),
                });
                meta::created(plane.create(&CONFIG_MAPS, key, map).await)?;
            }
            Ok(Next::Done)
        })
    }
}
