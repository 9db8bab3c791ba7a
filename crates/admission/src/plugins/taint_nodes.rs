//! TaintNodesByCondition: nothing is scheduled on a new node before it says that it is ready.

use polder_model::{Value, json};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct TaintNodesByCondition;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        Interest::admit(Operations::CREATE).when(kind.is("", "nodes"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        node: &'a mut Value,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        let mut taints = node.array_at(&["spec", "taints"]).to_vec();
        let has = |taint: &Value| {
            taint.str_at(&["key"]) == Some(NOT_READY) && taint.str_at(&["effect"]) == Some(EFFECT)
        };
        if request.is_whole() && !taints.iter().any(has) {
            taints.push(json!({"key": NOT_READY, "effect": EFFECT}));
            node.set_at(&["spec", "taints"], taints);
        }
        done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    #[test]
    fn rows() {
        let world = Fake::default();
        let plugin = &TaintNodesByCondition;
        let request = Request { plugin, world: &world, path: "nodes", operation: Operation::Create };
        let tainted = r#"{"spec":{"taints":[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"}]}}"#;
        assert_eq!(request.admit("{}", None).unwrap().to_string(), tainted);
        assert_eq!(request.admit(tainted, None).unwrap().to_string(), tainted);
    }
}
