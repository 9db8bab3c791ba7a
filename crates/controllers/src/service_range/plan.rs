//! Whether a range is needed, and what is wrong with an address. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use polder_model::{Value, json};

use super::block::Block;
use crate::meta;

pub(super) const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
pub(super) const ALLOCATOR: &str = "ipallocator.k8s.io";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

/// Addresses of services that are not there are left alone for this long: perhaps they soon are.
const ORPHAN_SECONDS: i64 = 60;
/// And those that a service does not know for this long.
const STRANGER_SECONDS: i64 = 5;

/// What is to be done with an address that says it is of a service.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Stays,
    /// It may be right in so many seconds, and is to be looked at then.
    Wait(i64),
    /// It goes, for this reason and with this message.
    Goes(&'static str, String),
}

pub(super) fn blocks(range: &Value) -> Vec<Block> {
    let texts = range.array_at(&["spec", "cidrs"]).iter().filter_map(Value::as_str);
    texts.filter_map(Block::parse).collect()
}

/// Whether addresses in use would be in no range without this one.
pub(super) fn is_needed(range: &Value, all: &[Arc<Value>], addresses: &[Arc<Value>]) -> bool {
    let is_other = |other: &&Arc<Value>| meta::name(other) != meta::name(range) && !meta::is_deleting(other);
    let others: Vec<Block> = all.iter().filter(is_other).flat_map(|other| blocks(other)).collect();
    let own = blocks(range);
    if own.iter().all(|block| others.iter().any(|other| other.covers(block))) {
        return false;
    }
    addresses.iter().filter(|address| is_managed(address)).any(|address| {
        meta::name(address).parse::<IpAddr>().is_ok_and(|address| {
            let inside = |blocks: &[Block]| blocks.iter().any(|block| block.contains(address));
            inside(&own) && !inside(&others)
        })
    })
}

pub(super) fn is_managed(address: &Value) -> bool {
    address.str_at(&["metadata", "labels", MANAGED_BY]) == Some(ALLOCATOR)
}

/// Namespace and name of the service an address says it is of.
pub(super) fn service_of(address: &Value) -> Option<(&str, &str)> {
    let parent = address.at(&["spec", "parentRef"])?;
    let text = |field| parent.str_at(&[field]).unwrap_or_default();
    (text("group").is_empty() && text("resource") == "services").then(|| (text("namespace"), text("name")))
}

pub(super) fn addresses_of(service: &Value) -> Vec<&str> {
    let texts = service.array_at(&["spec", "clusterIPs"]).iter().filter_map(Value::as_str);
    texts.filter(|text| text.parse::<IpAddr>().is_ok()).collect()
}

/// The address object that a service's address should have.
pub(super) fn address_for(text: &str, service: &Value) -> Value {
    let mut address = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "IPAddress",
        "metadata": {"name": text, "labels": {}},
        "spec": {"parentRef": {
            "resource": "services", "namespace": (meta::namespace(service)), "name": (meta::name(service)),
        }},
    });
    address.set_at(&["metadata", "labels", FAMILY], family(text));
    address.set_at(&["metadata", "labels", MANAGED_BY], ALLOCATOR);
    address
}

pub(super) fn family(text: &str) -> &'static str {
    if text.contains(':') { "IPv6" } else { "IPv4" }
}

/// Whether an address object is as that of a service's address should be.
pub(super) fn is_right(address: &Value, service: &Value) -> bool {
    let labels = ["metadata", "labels"];
    let label = |name| address.at(&labels).and_then(|labels| labels.str_at(&[name]));
    service_of(address) == Some((meta::namespace(service), meta::name(service)))
        && is_managed(address)
        && label(FAMILY) == Some(family(meta::name(address)))
}

/// Judges an address that the allocator is to have made, given the service it names.
pub(super) fn judge(address: &Value, service: Option<&Value>, age_seconds: i64) -> Verdict {
    let name = meta::name(address);
    let Some((namespace, service_name)) = service_of(address) else {
        let message =
            format!("IPAddress {name} appears to have been modified, not referencing a Service: cleaning up");
        return Verdict::Goes("IPAddressNotAllocated", message);
    };
    let Some(service) = service else {
        if age_seconds < ORPHAN_SECONDS {
            return Verdict::Wait(ORPHAN_SECONDS - age_seconds);
        }
        let message = format!(
            "IPAddress: {name} for Service {namespace}/{service_name} appears to have leaked: cleaning up"
        );
        return Verdict::Goes("IPAddressNotAllocated", message);
    };
    if addresses_of(service).contains(&name) {
        return Verdict::Stays;
    }
    if age_seconds < STRANGER_SECONDS {
        return Verdict::Wait(STRANGER_SECONDS - age_seconds);
    }
    let message = format!(
        "IPAddress: {name} for Service {namespace}/{service_name} has a wrong reference; cleaning up"
    );
    Verdict::Goes("IPAddressWrongReference", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(name: &str, blocks: &[&str]) -> Arc<Value> {
        let blocks: Vec<Value> = blocks.iter().map(|block| Value::from(*block)).collect();
        Arc::new(json!({"metadata": {"name": name}, "spec": {"cidrs": blocks}}))
    }

    fn service(addresses: &[&str]) -> Value {
        let texts: Vec<Value> = addresses.iter().map(|one| Value::from(*one)).collect();
        json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"clusterIPs": texts}})
    }

    #[test]
    fn ranges_in_use_are_needed() {
        #[track_caller]
        fn check(all: &[Arc<Value>], addresses: &[&str], expected: bool) {
            let service = service(addresses);
            let addresses: Vec<Arc<Value>> =
                addresses.iter().map(|text| Arc::new(address_for(text, &service))).collect();
            assert_eq!(is_needed(&all[0], all, &addresses), expected);
        }
        let own = range("own", &["10.1.0.0/16", "fd00::/108"]);
        check(std::slice::from_ref(&own), &[], false);
        check(std::slice::from_ref(&own), &["10.1.0.1"], true);
        check(std::slice::from_ref(&own), &["fd00::1"], true);
        check(std::slice::from_ref(&own), &["10.2.0.1"], false);
        check(&[own.clone(), range("part", &["10.1.0.0/24"])], &["10.1.0.1"], false);
        check(&[own.clone(), range("part", &["10.1.0.0/24"])], &["10.1.1.1"], true);
        check(&[own.clone(), range("all", &["10.0.0.0/8", "fd00::/64"])], &["10.1.0.1"], false);
        let mut leaving = Value::clone(&range("all", &["10.0.0.0/8"]));
        leaving.set_at(&["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z");
        check(&[own, Arc::new(leaving)], &["10.1.0.1"], true);
    }

    #[test]
    fn addresses_are_judged() {
        let (known, stranger) = (service(&["10.1.0.1"]), service(&["10.1.0.2"]));
        let address = address_for("10.1.0.1", &known);
        assert!(is_right(&address, &known));
        assert_eq!(judge(&address, Some(&known), 0), Verdict::Stays);
        assert_eq!(judge(&address, None, 10), Verdict::Wait(50));
        assert!(matches!(judge(&address, None, 60), Verdict::Goes("IPAddressNotAllocated", _)));
        assert_eq!(judge(&address, Some(&stranger), 0), Verdict::Wait(5));
        let wrong = "IPAddress: 10.1.0.1 for Service n/s has a wrong reference; cleaning up";
        let goes = Verdict::Goes("IPAddressWrongReference", wrong.into());
        assert_eq!(judge(&address, Some(&stranger), 5), goes);
        let mut forged = address.clone();
        forged.set_at(&["spec", "parentRef", "resource"], "gateways");
        assert!(matches!(judge(&forged, None, 0), Verdict::Goes("IPAddressNotAllocated", _)));
        assert!(!is_right(&forged, &known));
        let mut unlabeled = address;
        unlabeled.remove_at(&["metadata", "labels"]);
        assert!(!is_right(&unlabeled, &known) && !is_managed(&unlabeled));
    }
}
