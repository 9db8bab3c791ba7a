//! Amounts of resources by name, and what a pod asks for as a whole.

use std::collections::BTreeMap;

use polder_model::quantity::Quantity;
use polder_model::{SmolStr, Value};

/// `{"cpu": "1", "memory": "1Gi"}`, in the order of the names.
pub type Amounts = BTreeMap<SmolStr, Quantity>;

/// The amounts an object of them says. What is no quantity was refused when the object was read.
pub fn read(value: Option<&Value>) -> Amounts {
    let members = value.and_then(Value::as_object).into_iter().flat_map(|all| all.iter());
    let parsed = members.filter_map(|(name, value)| Some((name.clone(), Quantity::from_value(value).ok()?)));
    parsed.collect()
}

pub fn write(amounts: &Amounts) -> Value {
    let members = amounts.iter().map(|(name, amount)| (name.clone(), Value::from(amount.to_string())));
    Value::Object(members.collect())
}

pub fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match to.get_mut(name) {
            Some(own) => *own = own.plus(amount),
            None => drop(to.insert(name.clone(), amount.clone())),
        }
    }
}

/// What is left when some is taken away; what is only there to be taken away becomes negative.
pub fn subtract(from: &Amounts, less: &Amounts) -> Amounts {
    let mut left = from.clone();
    for (name, amount) in less {
        let own = left.get(name).cloned().unwrap_or_else(|| Quantity::from_i64(0));
        left.insert(name.clone(), own.minus(amount));
    }
    left
}

fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|own| amount > own) {
            to.insert(name.clone(), amount.clone());
        }
    }
}

/// Where a pod and its containers say what they want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Requests,
    Limits,
}

impl Side {
    fn member(self) -> &'static str {
        match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        }
    }
}

/// What the containers of a pod want together: init containers run one after the other, before the others, but for
/// those that go on running. What the pod says itself comes before what its containers say.
pub fn of_containers(pod: &Value, side: Side) -> Amounts {
    let of = |container: &Value| read(container.at(&["resources", side.member()]));
    let mut total = Amounts::new();
    for container in pod.array_at(&["spec", "containers"]) {
        add(&mut total, &of(container));
    }
    let (mut lasting, mut peak) = (Amounts::new(), Amounts::new());
    for container in pod.array_at(&["spec", "initContainers"]) {
        let mut own = of(container);
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            add(&mut total, &own);
            add(&mut lasting, &own);
            own = lasting.clone();
        } else {
            add(&mut own, &lasting);
        }
        raise(&mut peak, &own);
    }
    raise(&mut total, &peak);
    for (name, amount) in read(pod.at(&["spec", "resources", side.member()])) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            total.insert(name, amount);
        }
    }
    total
}

/// The same with what the pod costs beside its containers. A resource without a limit gets none from that.
pub fn of_pod(pod: &Value, side: Side) -> Amounts {
    let mut total = of_containers(pod, side);
    let mut overhead = read(pod.at(&["spec", "overhead"]));
    if side == Side::Limits {
        overhead.retain(|name, _| total.get(name).is_some_and(|limit| !limit.is_zero()));
    }
    add(&mut total, &overhead);
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::parse;

    #[test]
    fn pods() {
        #[track_caller]
        fn check(pod: &str, requests: &str, limits: &str) {
            let pod = parse(pod);
            assert_eq!(write(&of_pod(&pod, Side::Requests)).to_string(), requests);
            assert_eq!(write(&of_pod(&pod, Side::Limits)).to_string(), limits);
        }
        check("{}", "{}", "{}");
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}},{"resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}],
                "overhead":{"cpu":"100m","memory":"1Mi"}}}"#,
            r#"{"cpu":"1600m","memory":"1025Mi"}"#,
            r#"{"cpu":"2100m"}"#,
        );
        // 1 goes on running beside the 3 that come after it, and beside the 2 of the main container.
        check(
            r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"2"}}}],"initContainers":[
                {"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"cpu":"3"}}}]}}"#,
            r#"{"cpu":"4"}"#,
            "{}",
        );
        check(
            r#"{"spec":{"resources":{"requests":{"cpu":"7"}},"containers":[{"resources":{"requests":{"cpu":"2","memory":"1"}}}]}}"#,
            r#"{"cpu":"7","memory":"1"}"#,
            "{}",
        );
    }
}
