//! The account `default` in every namespace, made again when somebody deletes it.
//!
//! Whoever makes namespaces may write the account in the same commit; then there is nothing to do here.

use polder_client::resource::{NAMESPACES, SERVICE_ACCOUNTS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::json;

use crate::meta;

const NAME: &str = "default";

pub(crate) struct ServiceAccount;

impl Controller for ServiceAccount {
    fn name(&self) -> &'static str {
        "serviceaccount-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&NAMESPACES, &SERVICE_ACCOUNTS])
    }

    /// Keys are names of namespaces.
    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&NAMESPACES) {
            if meta::is_new_namespace(change) {
                wake(change.name.clone());
            }
        } else if change.name == NAME && change.new.is_none() {
            wake(change.namespace.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let found = plane.get(&SERVICE_ACCOUNTS, key, NAME).await?;
            if found.is_none() && meta::is_active(plane, key).await? {
                let account = json!({
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": NAME, "namespace": key},
                });
                meta::created(plane.create(&SERVICE_ACCOUNTS, key, account).await)?;
            }
            Ok(Next::Done)
        })
    }
}
