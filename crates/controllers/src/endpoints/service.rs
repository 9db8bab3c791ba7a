//! What a service says about where its requests go.

use polder_model::selector::LabelSelector;
use polder_model::{Object, Value, json};

pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

/// What selects a service's pods; nothing when others say where its requests go.
pub(super) fn selector(service: &Value) -> Option<LabelSelector> {
    if service.str_at(&["spec", "type"]) == Some("ExternalName") {
        return None;
    }
    let selector = service.at(&["spec", "selector"])?.as_object().filter(|labels| !labels.is_empty())?;
    LabelSelector::from_value(&json!({"matchLabels": (selector.clone())})).ok()
}

pub(super) fn is_headless(service: &Value) -> bool {
    service.str_at(&["spec", "clusterIP"]) == Some("None")
}

/// Whether addresses count before their pods are ready.
pub(super) fn publishes_unready(service: &Value) -> bool {
    service.at(&["spec", "publishNotReadyAddresses"]).and_then(Value::as_bool) == Some(true)
}

/// The families of a service's addresses; the first is its own.
pub(super) fn families(service: &Value) -> Vec<Family> {
    let named = service.array_at(&["spec", "ipFamilies"]).iter().filter_map(Value::as_str);
    let mut families: Vec<Family> = named.map(Family::named).collect();
    if families.is_empty() {
        let ip = service.str_at(&["spec", "clusterIP"]).unwrap_or_default();
        families.push(Family::of(ip));
    }
    families
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    fn named(name: &str) -> Family {
        if name == "IPv6" { Family::V6 } else { Family::V4 }
    }

    pub(super) fn of(ip: &str) -> Family {
        if ip.contains(':') { Family::V6 } else { Family::V4 }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }
}

/// A service's labels without those that are ours to set.
pub(super) fn labels(service: &Value) -> Object {
    let mut labels =
        service.at(&["metadata", "labels"]).and_then(Value::as_object).cloned().unwrap_or_default();
    labels.retain(|key, _| ![SERVICE_NAME, MANAGED_BY, HEADLESS].contains(&key.as_str()));
    if is_headless(service) {
        labels.insert(HEADLESS, "");
    }
    labels
}
