//! DefaultIngressClass: an ingress that names no class gets the default one.

use polder_model::{GroupResource, Value};

use super::default_storage_class::newest_default;
use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct DefaultIngressClass;

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";

impl Plugin for DefaultIngressClass {
    fn name(&self) -> &'static str {
        "DefaultIngressClass"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        Interest::admit(Operations::CREATE).when(kind.is("networking.k8s.io", "ingresses"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        ingress: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let annotated = ingress.at(&["metadata", "annotations", "kubernetes.io/ingress.class"]).is_some();
            let named = ingress.at(&["spec", "ingressClassName"]).is_some_and(|name| !name.is_null());
            if !request.is_whole() || annotated || named {
                return Ok(());
            }
            let classes = GroupResource::new("networking.k8s.io", "ingressclasses");
            if let Some(name) = newest_default(&classes, &[DEFAULT], world).await? {
                ingress.set_at(&["spec", "ingressClassName"], name);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    #[test]
    fn rows() {
        let class = r#"{"metadata":{"name":"nginx","annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}}}"#;
        let world = Fake::of(&[("ingressclasses.networking.k8s.io", class)]);
        let (plugin, path) = (&DefaultIngressClass, "ingresses.networking.k8s.io");
        let request = Request { plugin, world: &world, path, operation: Operation::Create };
        let check = |ingress: &str, expected: &str| {
            assert_eq!(request.admit(ingress, None).unwrap().to_string(), expected);
        };
        check(r#"{"spec":{}}"#, r#"{"spec":{"ingressClassName":"nginx"}}"#);
        check(r#"{"spec":{"ingressClassName":"own"}}"#, r#"{"spec":{"ingressClassName":"own"}}"#);
        let annotated = r#"{"metadata":{"annotations":{"kubernetes.io/ingress.class":"x"}}}"#;
        check(annotated, annotated);
    }
}
