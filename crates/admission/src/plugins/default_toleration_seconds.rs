//! DefaultTolerationSeconds: a pod stays five minutes on a node that is not ready or not reached, unless it says
//! otherwise.

use polder_model::{Value, json};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct DefaultTolerationSeconds;

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        Interest::admit(Operations::WRITE).when(kind.is("", "pods"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        pod: &'a mut Value,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        if !request.is_whole() {
            return done();
        }
        let mut tolerations = pod.array_at(&["spec", "tolerations"]).to_vec();
        let len = tolerations.len();
        for taint in TAINTS {
            let any_or = |toleration: &Value, field: &str, wanted: &str| {
                let own = toleration.str_at(&[field]).unwrap_or_default();
                own.is_empty() || own == wanted
            };
            let tolerates = |one: &Value| any_or(one, "key", taint) && any_or(one, "effect", "NoExecute");
            if !tolerations.iter().take(len).any(tolerates) {
                tolerations.push(json!({
                    "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS,
                }));
            }
        }
        if tolerations.len() > len {
            pod.set_at(&["spec", "tolerations"], tolerations);
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
        #[track_caller]
        fn check(tolerations: &str, expected: &[&str]) {
            let world = Fake::default();
            let plugin = &DefaultTolerationSeconds;
            let request = Request { plugin, world: &world, path: "pods", operation: Operation::Create };
            let pod = request.admit(&format!(r#"{{"spec":{{"tolerations":{tolerations}}}}}"#), None).unwrap();
            let own = pod.array_at(&["spec", "tolerations"]).iter();
            let added = own.filter(|one| one.i64_at(&["tolerationSeconds"]) == Some(300));
            let keys: Vec<&str> = added.map(|one| one.str_at(&["key"]).unwrap()).collect();
            assert_eq!(keys, expected);
        }
        check("[]", &TAINTS);
        check(r#"[{"operator":"Exists"}]"#, &[]);
        check(r#"[{"operator":"Exists","effect":"NoSchedule"}]"#, &TAINTS);
        check(r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute"}]"#, &TAINTS[1..]);
    }
}
