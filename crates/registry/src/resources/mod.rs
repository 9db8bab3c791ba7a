//! Built-in kinds: what is special about each. One file a kind, one line below.

mod cells;
mod checks;
#[cfg(test)]
mod rows;

mod admission_rules;
mod device_claim;
mod webhook;

mod apiservice;
pub(crate) mod certificatesigningrequest;
mod clusterrole;
mod clusterrolebinding;
mod csidriver;
mod csinode;
mod csistoragecapacity;
mod customresourcedefinition;
mod deviceclass;
mod endpointslice;
mod flowschema;
mod ingress;
mod ingressclass;
mod ipaddress;
pub(crate) mod layer;
mod lease;
mod mutatingwebhookconfiguration;
mod networkpolicy;
pub(crate) mod plane;
pub(crate) mod priorityclass;
mod prioritylevelconfiguration;
mod resourceclaim;
mod resourceclaimtemplate;
mod resourceslice;
mod role;
mod rolebinding;
mod runtimeclass;
mod servicecidr;
mod storageclass;
mod validatingadmissionpolicy;
mod validatingadmissionpolicybinding;
mod validatingwebhookconfiguration;
mod volumeattachment;
mod volumeattributesclass;

use polder_model::GroupResource;

use crate::behavior::Behavior;
use crate::catalog::PLAIN;

/// Every kind with a behavior of its own. Kinds of the table that are not here are [`Behavior::PLAIN`].
pub(crate) static ALL: &[&Behavior] = &[
    &apiservice::API_SERVICE,
    &certificatesigningrequest::CERTIFICATE_SIGNING_REQUEST,
    &clusterrole::CLUSTER_ROLE,
    &clusterrolebinding::CLUSTER_ROLE_BINDING,
    &csidriver::CSI_DRIVER,
    &csinode::CSI_NODE,
    &csistoragecapacity::CSI_STORAGE_CAPACITY,
    &customresourcedefinition::CUSTOM_RESOURCE_DEFINITION,
    &deviceclass::DEVICE_CLASS,
    &endpointslice::ENDPOINT_SLICE,
    &flowschema::FLOW_SCHEMA,
    &ingress::INGRESS,
    &ingressclass::INGRESS_CLASS,
    &ipaddress::IP_ADDRESS,
    &layer::LAYER,
    &lease::LEASE,
    &mutatingwebhookconfiguration::MUTATING_WEBHOOK_CONFIGURATION,
    &networkpolicy::NETWORK_POLICY,
    &plane::PLANE,
    &priorityclass::PRIORITY_CLASS,
    &prioritylevelconfiguration::PRIORITY_LEVEL_CONFIGURATION,
    &resourceclaim::RESOURCE_CLAIM,
    &resourceclaimtemplate::RESOURCE_CLAIM_TEMPLATE,
    &resourceslice::RESOURCE_SLICE,
    &role::ROLE,
    &rolebinding::ROLE_BINDING,
    &runtimeclass::RUNTIME_CLASS,
    &servicecidr::SERVICE_CIDR,
    &storageclass::STORAGE_CLASS,
    &validatingadmissionpolicy::VALIDATING_ADMISSION_POLICY,
    &validatingadmissionpolicybinding::VALIDATING_ADMISSION_POLICY_BINDING,
    &validatingwebhookconfiguration::VALIDATING_WEBHOOK_CONFIGURATION,
    &volumeattachment::VOLUME_ATTACHMENT,
    &volumeattributesclass::VOLUME_ATTRIBUTES_CLASS,
];

/// The behavior of a built-in kind.
pub(crate) fn behavior(name: &GroupResource) -> &'static Behavior {
    let own = ALL.iter().find(|own| own.group == name.group && own.resource == name.resource);
    own.copied().unwrap_or(&PLAIN)
}

/// The structural schema of a kind of our own (`Plane`, `Layer`); built-in kinds have theirs in the table.
pub(crate) fn schema_json(kind: &str) -> Option<polder_model::Value> {
    match kind {
        "Plane" => Some(plane::schema()),
        "Layer" => Some(layer::schema()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use polder_model::Value;

    use super::*;
    use crate::behavior::Print;

    /// Objects that are nothing like what a kind expects.
    const ODD: [&str; 6] = [
        "{}",
        "null",
        r#"{"spec":null,"metadata":null,"status":null}"#,
        r#"{"spec":[],"rules":{},"webhooks":"x","subjects":[1],"endpoints":[null],"ports":[[]]}"#,
        r#"{"webhooks":[1],"rules":["x"],"endpoints":[{"addresses":[1]}],"spec":{"rules":[0],"devices":[]}}"#,
        r#"{"spec":{"ingress":[null],"tls":[1],"requests":{},"limited":3,"drivers":[null],"cidrs":[1,2,3]}}"#,
    ];

    #[test]
    fn kinds_are_listed_once() {
        let mut seen = HashSet::new();
        for behavior in ALL {
            assert!(seen.insert((behavior.group, behavior.resource)), "{behavior:?}");
            assert!(!behavior.group.is_empty() && !behavior.resource.is_empty());
        }
    }

    #[test]
    fn any_object_is_survived_and_fills_every_column() {
        for behavior in ALL {
            for odd in ODD {
                let mut object = Value::parse(odd.as_bytes()).unwrap();
                let old = object.clone();
                (behavior.default)(&mut object);
                (behavior.prepare_create)(&mut object);
                (behavior.prepare_update)(&mut object, &old);
                (behavior.validate)(&object, None, &mut Vec::new());
                (behavior.validate)(&object, Some(&old), &mut Vec::new());
                (behavior.warnings)(&object);
                let row = (behavior.cells)(&object, &Print { now: 0 });
                assert_eq!(row.len(), behavior.columns.len(), "{} {odd}", behavior.resource);
            }
        }
    }

    #[test]
    fn own_kinds_have_schemas() {
        for kind in ["Plane", "Layer"] {
            assert_eq!(schema_json(kind).unwrap().str_at(&["type"]), Some("object"), "{kind}");
        }
        assert_eq!(schema_json("Pod"), None);
    }
}
