//! What services get from their plane: cluster addresses and node ports.
//!
//! An address in use is an `IPAddress` object of that name, written in the commit of its service with the expectation that
//! there is none, and removed with the commit that gives it up. Which node ports are in use is told by the services
//! themselves: they are looked through, and the commit that takes a port also writes a counter that must be as it was before
//! the look.
//!
//! Invariant: no two services of a plane have the same address or node port, whoever writes at the same time.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use polder_model::{FieldError, GroupResource, SmolStr, Status, Value, json};
use polder_store::{Expect, Filter, Key, ListQuery, ObjectName, Record, StoredObject, Write};

use tokio::sync::OwnedMutexGuard;

use crate::context::RequestContext;
use crate::definition::Target;
use crate::registry::Registry;
use crate::resources::service;
use crate::status::read_failed;

const ADDRESSES: (&str, &str) = ("networking.k8s.io", "ipaddresses");
const RANGES: (&str, &str) = ("networking.k8s.io", "servicecidrs");
/// The counter: a resource nobody serves, one object of it in each plane with node ports.
const COUNTERS: (&str, &str) = ("polder.dev", "counters");
const PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
/// The first ports are for people who ask for a certain one, as long as there are others.
const PORTS_ASKED_FOR: i64 = 86;
/// Guesses before everything in use is looked at.
const GUESSES: usize = 16;

/// What a service was allotted: what must be written with it, and the turn that makes it likely to work.
#[derive(Default)]
pub(crate) struct Allotment {
    pub(crate) writes: Vec<Write>,
    _turn: Option<OwnedMutexGuard<()>>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: IpAddr,
    prefix: u8,
}

impl Registry {
    /// Completes a service with what it gets from its plane.
    pub(crate) async fn allot(
        &self,
        context: &RequestContext,
        target: &Target,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allotment, Status> {
        let mut allotment = Allotment::default();
        if !is_service(target) || service::kind(service) == "ExternalName" {
            return Ok(allotment);
        }
        let held = old.map(addresses).unwrap_or_default();
        let complete = old.is_some() && !held.is_empty() && addresses(service) == held;
        if !complete {
            let ranges = self.ranges(context).await?;
            choose_families(service, old, &ranges).map_err(|error| refused(target, error))?;
            if !service::is_headless(service) {
                let taken = self.allot_addresses(context, target, service, &held, &ranges).await?;
                allotment.writes.extend(taken);
            }
        }
        self.allot_ports(context, target, service, old, &mut allotment).await?;
        Ok(allotment)
    }

    /// The same before plugins judge the service: they see what it gets. While judges of the plane take their time nobody
    /// waits for a turn; whoever loses a race then starts over.
    pub(crate) async fn allot_judged(
        &self,
        context: &RequestContext,
        target: &Target,
        service: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allotment, Status> {
        let mut allotment = self.allot(context, target, service, old).await?;
        if allotment._turn.is_some() && !self.rules(&context.plane).await?.book.judges_nothing() {
            allotment._turn = None;
        }
        Ok(allotment)
    }

    /// What a service gives up by a change, or by its end: addresses. Ports are free when no service has them.
    pub(crate) async fn released(
        &self,
        context: &RequestContext,
        target: &Target,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Vec<Write>, Status> {
        let mut writes = Vec::new();
        let Some(old) = old.filter(|_| is_service(target)) else { return Ok(writes) };
        let kept = new.map(addresses).unwrap_or_default();
        for address in addresses(old).into_iter().filter(|address| !kept.contains(address)) {
            let key = self.address_key(context, address);
            let found = self.store.get(&context.plane, key.resource, &key.name).await;
            let found = found.map_err(|error| read_failed(&context.plane, error))?;
            // Clients may delete addresses, and then another service may have got this one.
            if let Some(found) = found.filter(|found| is_held_by(target, found)) {
                writes.push(Write { key, record: None, expect: Expect::At(found.revision) });
            }
        }
        Ok(writes)
    }

    async fn allot_addresses(
        &self,
        context: &RequestContext,
        target: &Target,
        service: &mut Value,
        held: &[IpAddr],
        ranges: &[Range],
    ) -> Result<Vec<Write>, Status> {
        let mut writes = Vec::new();
        let families: Vec<bool> = families(service).collect();
        let mut texts: Vec<Value> = service.array_at(&["spec", "clusterIPs"]).to_vec();
        for (index, is_ipv6) in families.into_iter().enumerate() {
            let asked = texts.get(index).and_then(Value::as_str).filter(|text| !text.is_empty());
            let address = match asked.map(str::parse::<IpAddr>) {
                // Validation has a word for this.
                Some(Err(_)) => continue,
                Some(Ok(address)) if held.contains(&address) => continue,
                Some(Ok(address)) => {
                    let problem = match ranges.iter().any(|range| range.contains(address)) {
                        false => Some("the provided network does not match the current range"),
                        true if self.is_taken(context, address).await? => {
                            Some("provided IP is already allocated")
                        }
                        true => None,
                    };
                    if let Some(problem) = problem {
                        let problem = format!("failed to allocate IP {address}: {problem}");
                        return Err(refused(target, FieldError::invalid("spec.clusterIPs", texts, problem)));
                    }
                    address
                }
                None => {
                    let address = self.free_address(context, ranges, is_ipv6).await?;
                    let full = "failed to allocate a serviceIP: range is full";
                    address.ok_or_else(|| Status::internal(full))?
                }
            };
            let text = Value::from(address.to_string());
            match texts.get_mut(index) {
                Some(own) => *own = text,
                None => texts.push(text),
            }
            writes.push(self.address_write(context, target, address));
        }
        if let Some(first) = texts.first().cloned() {
            service.set_at(&["spec", "clusterIP"], first);
            service.set_at(&["spec", "clusterIPs"], texts);
        }
        Ok(writes)
    }

    async fn free_address(
        &self,
        context: &RequestContext,
        ranges: &[Range],
        is_ipv6: bool,
    ) -> Result<Option<IpAddr>, Status> {
        let ranges = || ranges.iter().filter(|range| range.first.is_ipv6() == is_ipv6);
        for range in ranges() {
            let (low, high) = range.offsets();
            let low = low.max(range.asked_for());
            for _ in 0..GUESSES.min(usize::try_from(high.saturating_sub(low)).unwrap_or(GUESSES)) {
                let guess = range.at(low + random() % (high - low));
                if !self.is_taken(context, guess).await? {
                    return Ok(Some(guess));
                }
            }
        }
        // Nearly full. Each step finds an address that is in use, and their number is limited, or a free one.
        let used = self.used_addresses(context).await?;
        for range in ranges() {
            let (first, high) = range.offsets();
            let preferred = first.max(range.asked_for()).min(high);
            let free = (preferred..high).chain(first..preferred).map(|offset| range.at(offset));
            if let Some(free) = free.take(used.len() + 1).find(|address| !used.contains(address)) {
                return Ok(Some(free));
            }
        }
        Ok(None)
    }

    async fn allot_ports(
        &self,
        context: &RequestContext,
        target: &Target,
        service: &mut Value,
        old: Option<&Value>,
        allotment: &mut Allotment,
    ) -> Result<(), Status> {
        let held: BTreeSet<i64> = old.map(ports).unwrap_or_default();
        let wants = Wants::of(service);
        let asked = ports(service);
        if !wants.is_lacking && asked.is_subset(&held) {
            return Ok(());
        }
        // No namespace has such a name.
        let turn = (context.plane.id, SmolStr::new_static("/nodeports"));
        allotment._turn = Some(self.namespace_turns.take(turn).await);
        let counter = self.counter(context).await?;
        let mut used = self.used_ports(context, target).await?;
        for (field, port) in wants.asked.iter().filter(|(_, port)| !held.contains(port)) {
            let problem = match (PORTS.contains(port), used.contains(port)) {
                (false, _) => format!(
                    "provided port is not in the valid range. The range of valid ports is {}-{}",
                    PORTS.start(),
                    PORTS.end()
                ),
                (true, true) => "provided port is already allocated".into(),
                (true, false) => continue,
            };
            return Err(refused(target, FieldError::invalid(field.as_str(), *port, problem)));
        }
        used.extend(&asked);
        wants.fill(service, || {
            let port = free_port(&used)?;
            used.insert(port);
            Some(port)
        })?;
        allotment.writes.push(counter);
        Ok(())
    }

    /// Node ports of all services but one.
    async fn used_ports(&self, context: &RequestContext, target: &Target) -> Result<BTreeSet<i64>, Status> {
        let filter: Arc<Filter> = Arc::new(|stored: &StoredObject| {
            let body = stored.record.body();
            ["\"nodePort\"", "\"healthCheckNodePort\""]
                .iter()
                .any(|field| memchr::memmem::find(body, field.as_bytes()).is_some())
        });
        let resource = target.definition.resource_id;
        let query = ListQuery { filter: Some(filter), ..ListQuery::all(resource) };
        let page = self.store.list(&context.plane, query).await;
        let page = page.map_err(|error| read_failed(&context.plane, error))?;
        let mut used = BTreeSet::new();
        for stored in page.objects {
            if stored.name.namespace == target.namespace && stored.name.name == target.name {
                continue;
            }
            used.extend(
                Value::parse_own(stored.record.body()).map(|value| ports(&value)).unwrap_or_default(),
            );
        }
        Ok(used)
    }

    /// The write that fails if another service got a port since now.
    async fn counter(&self, context: &RequestContext) -> Result<Write, Status> {
        let resource = self.store.resource_id(&GroupResource::new(COUNTERS.0, COUNTERS.1));
        let name = ObjectName::cluster("nodeports");
        let found = self.store.get(&context.plane, resource, &name).await;
        let found = found.map_err(|error| read_failed(&context.plane, error))?;
        let stamp = uuid::Uuid::new_v4().to_string();
        let record = Record::encode(&json!({"metadata": {"name": "nodeports"}, "stamp": stamp}));
        let expect = found.map_or(Expect::Absent, |found| Expect::At(found.revision));
        Ok(Write { key: Key { plane: context.plane.id, resource, name }, record: Some(record), expect })
    }

    async fn ranges(&self, context: &RequestContext) -> Result<Vec<Range>, Status> {
        let resource = self.store.resource_id(&GroupResource::new(RANGES.0, RANGES.1));
        let page = self.store.list(&context.plane, ListQuery::all(resource)).await;
        let page = page.map_err(|error| read_failed(&context.plane, error))?;
        let mut ranges = Vec::new();
        for stored in page.objects {
            let Ok(value) = Value::parse_own(stored.record.body()) else { continue };
            let conditions = value.array_at(&["status", "conditions"]).iter();
            let ready = |one: &Value| {
                one.str_at(&["type"]) == Some("Ready") && one.str_at(&["status"]) == Some("True")
            };
            // One that is not ready yet is not protected yet.
            if value.at(&["metadata", "deletionTimestamp"]).is_some() || !conditions.into_iter().any(ready) {
                continue;
            }
            let texts = value.array_at(&["spec", "cidrs"]).iter().filter_map(Value::as_str);
            ranges.extend(texts.filter_map(Range::parse));
        }
        Ok(ranges)
    }

    async fn used_addresses(&self, context: &RequestContext) -> Result<BTreeSet<IpAddr>, Status> {
        let resource = self.store.resource_id(&GroupResource::new(ADDRESSES.0, ADDRESSES.1));
        let page = self.store.list(&context.plane, ListQuery::all(resource)).await;
        let page = page.map_err(|error| read_failed(&context.plane, error))?;
        Ok(page.objects.iter().filter_map(|stored| stored.name.name.parse().ok()).collect())
    }

    async fn is_taken(&self, context: &RequestContext, address: IpAddr) -> Result<bool, Status> {
        let key = self.address_key(context, address);
        let found = self.store.get(&context.plane, key.resource, &key.name).await;
        Ok(found.map_err(|error| read_failed(&context.plane, error))?.is_some())
    }

    fn address_key(&self, context: &RequestContext, address: IpAddr) -> Key {
        let resource = self.store.resource_id(&GroupResource::new(ADDRESSES.0, ADDRESSES.1));
        Key { plane: context.plane.id, resource, name: ObjectName::cluster(address.to_string()) }
    }

    fn address_write(&self, context: &RequestContext, target: &Target, address: IpAddr) -> Write {
        let family = if address.is_ipv6() { "IPv6" } else { "IPv4" };
        let object = json!({
            "metadata": {
                "name": (address.to_string()),
                "uid": (uuid::Uuid::new_v4().to_string()),
                "creationTimestamp": (self.now()),
                "labels": {
                    "ipaddress.kubernetes.io/ip-family": family,
                    "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
                },
            },
            "spec": {"parentRef": {
                "resource": "services", "namespace": (target.namespace.clone()), "name": (target.name.clone()),
            }},
        });
        let key = self.address_key(context, address);
        Write { key, record: Some(Record::encode(&object)), expect: Expect::Absent }
    }
}

fn is_service(target: &Target) -> bool {
    target.definition.group.is_empty()
        && target.definition.plural == "services"
        && target.subresource.is_empty()
}

/// Whether an address was given to this service.
fn is_held_by(target: &Target, address: &StoredObject) -> bool {
    let address = Value::parse_own(address.record.body()).unwrap_or_default();
    let holder = |member: &str| address.str_at(&["spec", "parentRef", member]).unwrap_or_default();
    holder("namespace") == target.namespace && holder("name") == target.name
}

fn refused(target: &Target, error: FieldError) -> Status {
    Status::invalid(&target.definition.error_kind(), &target.name, &[error])
}

/// The cluster addresses a service has.
fn addresses(service: &Value) -> Vec<IpAddr> {
    if service::kind(service) == "ExternalName" {
        return Vec::new();
    }
    let texts = service.array_at(&["spec", "clusterIPs"]).iter().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Which of a service's families are IPv6.
fn families(service: &Value) -> impl Iterator<Item = bool> {
    service.array_at(&["spec", "ipFamilies"]).iter().map(|family| family.as_str() == Some("IPv6"))
}

/// The node ports a service has.
fn ports(service: &Value) -> BTreeSet<i64> {
    Wants::of(service).asked.into_iter().map(|(_, port)| port).collect()
}

/// Which families of addresses a service has: as it says, else as the plane has them.
fn choose_families(service: &mut Value, old: Option<&Value>, ranges: &[Range]) -> Result<(), FieldError> {
    let path = ["spec", "ipFamilies"];
    let policy = SmolStr::new(service.str_at(&["spec", "ipFamilyPolicy"]).unwrap_or("SingleStack"));
    if policy == "SingleStack"
        && let Some(old) = old
    {
        // Whoever wants one family and does not say which keeps the first.
        for list in [&["spec", "clusterIPs"], &path] {
            let own = service.array_at(list).to_vec();
            if own.len() > 1 && own == old.array_at(list) {
                service.set_at(list, own[..1].to_vec());
            }
        }
    }
    let has = |is_ipv6: bool| ranges.iter().any(|range| range.first.is_ipv6() == is_ipv6);
    let name = |is_ipv6: bool| Value::from(if is_ipv6 { "IPv6" } else { "IPv4" });
    let mut families = service.array_at(&path).to_vec();
    let is_free = service::is_headless(service)
        && service.at(&["spec", "selector"]).and_then(Value::as_object).is_none_or(|own| own.is_empty());
    if !is_free {
        if policy == "RequireDualStack" && !(has(false) && has(true)) {
            let why = "this cluster is not configured for dual-stack services";
            return Err(FieldError::invalid("spec.ipFamilyPolicy", policy.as_str(), why));
        }
        for (index, family) in families.iter().enumerate() {
            let text = family.as_str().unwrap_or_default();
            if matches!(text, "IPv4" | "IPv6") && !has(text == "IPv6") {
                let field = format!("spec.ipFamilies[{index}]");
                return Err(FieldError::invalid(field, text, "not configured on this cluster"));
            }
        }
    }
    if families.is_empty() {
        // The family of the range every plane begins with.
        families.push(name(ranges.first().is_some_and(|range| range.first.is_ipv6())));
    }
    let other = families.first().and_then(Value::as_str) != Some("IPv6");
    if policy != "SingleStack" && families.len() == 1 && (is_free || has(other)) {
        families.push(name(other));
    }
    service.set_at(&path, families);
    Ok(())
}

/// Which node ports a service asks for by number, and whether it lacks others.
struct Wants {
    /// Fields and numbers.
    asked: Vec<(String, i64)>,
    is_lacking: bool,
}

impl Wants {
    fn of(service: &Value) -> Wants {
        let mut wants = Wants { asked: Vec::new(), is_lacking: false };
        let kind = service::kind(service);
        if matches!(kind, "NodePort" | "LoadBalancer") {
            let allots = allots_ports(service);
            for (index, port) in service.array_at(&["spec", "ports"]).iter().enumerate() {
                match port.i64_at(&["nodePort"]).unwrap_or(0) {
                    0 => wants.is_lacking |= allots,
                    number => wants.asked.push((format!("spec.ports[{index}].nodePort"), number)),
                }
            }
        }
        if service::needs_health_port(service) {
            match service.i64_at(&["spec", "healthCheckNodePort"]).unwrap_or(0) {
                0 => wants.is_lacking = true,
                number => wants.asked.push(("spec.healthCheckNodePort".into(), number)),
            }
        }
        wants
    }

    /// Gives a service the ports it lacks. The same port in two protocols is one node port.
    fn fill(&self, service: &mut Value, mut take: impl FnMut() -> Option<i64>) -> Result<(), Status> {
        let full = || Status::internal("failed to allocate a nodePort: range is full");
        let allots = allots_ports(service) && matches!(service::kind(service), "NodePort" | "LoadBalancer");
        let mut known: Vec<(i64, i64)> = Vec::new();
        let number = |port: &Value, field: &str| port.i64_at(&[field]).unwrap_or(0);
        for port in service.array_at(&["spec", "ports"]) {
            if number(port, "nodePort") != 0 {
                known.push((number(port, "port"), number(port, "nodePort")));
            }
        }
        for port in service.at_mut(&["spec", "ports"]).and_then(Value::as_array_mut).into_iter().flatten() {
            if number(port, "nodePort") != 0 || !allots || port.as_object().is_none() {
                continue;
            }
            let own = number(port, "port");
            let node_port = match known.iter().find(|(port, _)| *port == own) {
                Some((_, node_port)) => *node_port,
                None => take().ok_or_else(full)?,
            };
            known.push((own, node_port));
            port.set_at(&["nodePort"], node_port);
        }
        let health = ["spec", "healthCheckNodePort"];
        if service::needs_health_port(service) && service.i64_at(&health).unwrap_or(0) == 0 {
            service.set_at(&health, take().ok_or_else(full)?);
        }
        Ok(())
    }
}

fn allots_ports(service: &Value) -> bool {
    service::kind(service) == "NodePort"
        || service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool) != Some(false)
}

fn free_port(used: &BTreeSet<i64>) -> Option<i64> {
    let preferred = PORTS.start() + PORTS_ASKED_FOR;
    let len = PORTS.end() - preferred + 1;
    let start = i64::try_from(random() % u128::from(len.unsigned_abs())).unwrap_or(0);
    let from_start = (0..len).map(|step| preferred + (start + step) % len);
    from_start.chain(*PORTS.start()..preferred).find(|port| !used.contains(port))
}

fn random() -> u128 {
    u128::from(uuid::Uuid::new_v4().as_u64_pair().0)
}

impl Range {
    fn parse(text: &str) -> Option<Range> {
        let (first, prefix) = text.split_once('/')?;
        let (first, prefix): (IpAddr, u8) = (first.parse().ok()?, prefix.parse().ok()?);
        (prefix <= if first.is_ipv6() { 128 } else { 32 }).then_some(Range { first, prefix })
    }

    fn size(&self) -> u128 {
        let bits = if self.first.is_ipv6() { 128 } else { 32 };
        1_u128.checked_shl(bits - u32::from(self.prefix)).unwrap_or(u128::MAX)
    }

    /// Where usable addresses begin and end: the first and, of IPv4, the last one are nobody's.
    fn offsets(&self) -> (u128, u128) {
        let last = u128::from(!self.first.is_ipv6());
        (1, self.size().saturating_sub(last).max(1))
    }

    /// The first addresses are for people who ask for a certain one, as long as there are others.
    fn asked_for(&self) -> u128 {
        match self.size() {
            0..=16 => 0,
            size => (size / 16).clamp(16, 256),
        }
    }

    fn at(&self, offset: u128) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => {
                let offset = u32::try_from(offset).unwrap_or(u32::MAX);
                IpAddr::V4(Ipv4Addr::from(u32::from(first).wrapping_add(offset)))
            }
            IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from(u128::from(first).wrapping_add(offset))),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let number = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        let (low, high) = self.offsets();
        address.is_ipv6() == self.first.is_ipv6()
            && number(address)
                .checked_sub(number(self.first))
                .is_some_and(|offset| (low..high).contains(&offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_leave_out_their_ends() {
        let rows = [
            ("10.96.0.0/16", "10.96.0.0", false),
            ("10.96.0.0/16", "10.96.0.1", true),
            ("10.96.0.0/16", "10.96.255.254", true),
            ("10.96.0.0/16", "10.96.255.255", false),
            ("10.96.0.0/16", "10.97.0.1", false),
            ("10.96.0.0/16", "::1", false),
            ("fd00::/112", "fd00::ffff", true),
            ("fd00::/112", "fd00::", false),
        ];
        for (range, address, expected) in rows {
            let range = Range::parse(range).unwrap();
            assert_eq!(range.contains(address.parse().unwrap()), expected, "{address} in {range:?}");
        }
        assert_eq!(Range::parse("10.0.0.0/33"), None);
        assert_eq!(Range::parse("10.0.0.0/28").unwrap().asked_for(), 0);
        assert_eq!(Range::parse("10.0.0.0/24").unwrap().asked_for(), 16);
        assert_eq!(Range::parse("10.0.0.0/8").unwrap().asked_for(), 256);
    }

    #[test]
    fn ports_are_found_while_there_are_any() {
        let mut used: BTreeSet<i64> = PORTS.collect();
        assert_eq!(free_port(&used), None);
        used.remove(&30_001);
        assert_eq!(free_port(&used), Some(30_001));
        used.remove(&31_000);
        assert_eq!(free_port(&used), Some(31_000), "the first ones come last");
    }

    #[test]
    fn one_port_of_two_protocols_is_one_node_port() {
        let mut service = json!({"spec": {"type": "NodePort", "ports": [
            {"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}, {"port": 80, "nodePort": 30080}, {"port": 80},
        ]}});
        let mut next = 31_000;
        let wants = Wants::of(&service);
        assert!(wants.is_lacking);
        wants
            .fill(&mut service, || {
                next += 1;
                Some(next)
            })
            .unwrap();
        let node_ports: Vec<_> =
            service.array_at(&["spec", "ports"]).iter().map(|port| port.i64_at(&["nodePort"])).collect();
        assert_eq!(node_ports, [31_001, 31_001, 30_080, 30_080].map(Some));
        assert!(!Wants::of(&service).is_lacking);
    }
}
