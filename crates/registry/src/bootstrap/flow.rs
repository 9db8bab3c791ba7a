//! Priority levels and flow schemas that every plane has. The mandatory ones cannot be changed; the suggested ones can.

use polder_model::{Value, json};

use super::{BootstrapObject, Kind, list, one};

const FLOW_SCHEMA: Kind = Kind::new("flowcontrol.apiserver.k8s.io", "flowschemas", "FlowSchema").counted();
const PRIORITY_LEVEL: Kind =
    Kind::new("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "PriorityLevelConfiguration")
        .counted();
const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Importance {
    /// The spec is fixed.
    Mandatory,
    /// A good start that may be changed.
    Suggested,
}
use Importance::{Mandatory, Suggested};

/// Shares, percent lendable, and queues with the hand dealt from them.
enum Level {
    Exempt,
    Rejecting { shares: i64, lendable: i64 },
    Queuing { shares: i64, lendable: i64, queues: i64, hand: i64 },
}

const fn queuing(shares: i64, lendable: i64, queues: i64, hand: i64) -> Level {
    Level::Queuing { shares, lendable, queues, hand }
}

const LEVELS: [(&str, Importance, Level); 8] = [
    ("exempt", Mandatory, Level::Exempt),
    ("catch-all", Mandatory, Level::Rejecting { shares: 5, lendable: 0 }),
    ("system", Suggested, queuing(30, 33, 64, 6)),
    ("node-high", Suggested, queuing(40, 25, 64, 6)),
    ("leader-election", Suggested, queuing(10, 0, 16, 4)),
    ("workload-high", Suggested, queuing(40, 50, 128, 6)),
    ("workload-low", Suggested, queuing(100, 90, 128, 6)),
    ("global-default", Suggested, queuing(20, 50, 128, 6)),
];

enum Subject {
    Group(&'static str),
    User(&'static str),
    /// All service accounts of kube-system.
    SystemAccounts,
}
use Subject::{Group, SystemAccounts, User};

enum Rule {
    /// All requests, on resources or not.
    Everything,
    Resources {
        verbs: &'static [&'static str],
        group: &'static str,
        resources: &'static [&'static str],
        cluster: bool,
    },
    Get(&'static [&'static str]),
}

struct Schema {
    name: &'static str,
    importance: Importance,
    level: &'static str,
    precedence: i64,
    /// How requests are told apart within the schema; empty: not at all.
    by: &'static str,
    subjects: &'static [Subject],
    rules: &'static [Rule],
}

const ANYONE: &[Subject] = &[Group("system:unauthenticated"), Group("system:authenticated")];
const LEASES: &str = "coordination.k8s.io";
const CONTROLLERS: &str = "system:kube-controller-manager";
const SCHEDULER: &str = "system:kube-scheduler";

const fn everything(
    name: &'static str,
    importance: Importance,
    level: &'static str,
    precedence: i64,
    by: &'static str,
    subjects: &'static [Subject],
) -> Schema {
    Schema { name, importance, level, precedence, by, subjects, rules: &[Rule::Everything] }
}

const SCHEMAS: [Schema; 11] = [
    everything("exempt", Mandatory, "exempt", 1, "", &[Group("system:masters")]),
    everything("catch-all", Mandatory, "catch-all", 10_000, "ByUser", ANYONE),
    everything("system-nodes", Suggested, "system", 500, "ByUser", &[Group("system:nodes")]),
    Schema {
        name: "system-node-high",
        importance: Suggested,
        level: "node-high",
        precedence: 400,
        by: "ByUser",
        subjects: &[Group("system:nodes")],
        rules: &[
            Rule::Resources {
                verbs: &["*"],
                group: "",
                resources: &["nodes", "nodes/status"],
                cluster: true,
            },
            Rule::Resources { verbs: &["*"], group: LEASES, resources: &["leases"], cluster: false },
        ],
    },
    Schema {
        name: "probes",
        importance: Suggested,
        level: "exempt",
        precedence: 2,
        by: "",
        subjects: ANYONE,
        rules: &[Rule::Get(&["/healthz", "/readyz", "/livez"])],
    },
    Schema {
        name: "system-leader-election",
        importance: Suggested,
        level: "leader-election",
        precedence: 100,
        by: "ByUser",
        subjects: &[User(CONTROLLERS), User(SCHEDULER), SystemAccounts],
        rules: &[Rule::Resources {
            verbs: &["get", "create", "update"],
            group: LEASES,
            resources: &["leases"],
            cluster: false,
        }],
    },
    everything(
        "kube-controller-manager",
        Suggested,
        "workload-high",
        800,
        "ByNamespace",
        &[User(CONTROLLERS)],
    ),
    everything("kube-scheduler", Suggested, "workload-high", 800, "ByNamespace", &[User(SCHEDULER)]),
    everything(
        "kube-system-service-accounts",
        Suggested,
        "workload-high",
        900,
        "ByNamespace",
        &[SystemAccounts],
    ),
    everything(
        "service-accounts",
        Suggested,
        "workload-low",
        9000,
        "ByUser",
        &[Group("system:serviceaccounts")],
    ),
    everything("global-default", Suggested, "global-default", 9900, "ByUser", ANYONE),
];

/// The spec of a priority level, if there is one of that name and importance.
pub fn priority_level_spec(name: &str, importance: Importance) -> Option<Value> {
    let row = LEVELS.iter().find(|(own, rank, _)| *own == name && *rank == importance)?;
    Some(level_spec(&row.2))
}

/// The spec of a flow schema, if there is one of that name and importance.
pub fn flow_schema_spec(name: &str, importance: Importance) -> Option<Value> {
    let schema = SCHEMAS.iter().find(|schema| schema.name == name && schema.importance == importance)?;
    Some(schema_spec(schema))
}

pub(super) fn objects(now: &str) -> Vec<BootstrapObject> {
    let annotated = |spec: Value, status: Value| json!({"metadata": {"annotations": (one(AUTO_UPDATE, "true"))}, "spec": spec, "status": status});
    let levels = LEVELS
        .iter()
        .map(|(name, _, level)| PRIORITY_LEVEL.object(None, name, annotated(level_spec(level), json!({}))));
    let schemas = SCHEMAS.iter().map(|schema| {
        let message = format!(
            "This FlowSchema references the PriorityLevelConfiguration object named {:?} and it exists",
            schema.level
        );
        let status = json!({"conditions": [{
            "type": "Dangling", "status": "False", "reason": "Found", "message": message, "lastTransitionTime": now,
        }]});
        FLOW_SCHEMA.object(None, schema.name, annotated(schema_spec(schema), status))
    });
    levels.chain(schemas).collect()
}

fn level_spec(level: &Level) -> Value {
    match level {
        Level::Exempt => {
            json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})
        }
        Level::Rejecting { shares, lendable } => json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": (*shares), "lendablePercent": (*lendable),
            "limitResponse": {"type": "Reject"},
        }}),
        Level::Queuing { shares, lendable, queues, hand } => json!({"type": "Limited", "limited": {
            "nominalConcurrencyShares": (*shares), "lendablePercent": (*lendable),
            "limitResponse": {"type": "Queue", "queuing": {
                "queues": (*queues), "handSize": (*hand), "queueLengthLimit": 50,
            }},
        }}),
    }
}

fn schema_spec(schema: &Schema) -> Value {
    let subjects = schema.subjects.iter().map(|subject| match subject {
        Group(name) => json!({"kind": "Group", "group": {"name": (*name)}}),
        User(name) => json!({"kind": "User", "user": {"name": (*name)}}),
        SystemAccounts => {
            json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}})
        }
    });
    let mut resource_rules = Vec::new();
    let mut url_rules = Vec::new();
    for rule in schema.rules {
        match rule {
            Rule::Everything => {
                resource_rules.push(resource_rule(&["*"], "*", &["*"], true));
                url_rules.push(json!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
            }
            Rule::Resources { verbs, group, resources, cluster } => {
                resource_rules.push(resource_rule(verbs, group, resources, *cluster));
            }
            Rule::Get(urls) => {
                url_rules.push(json!({"verbs": ["get"], "nonResourceURLs": (list(urls.iter().copied()))}));
            }
        }
    }
    let mut rule = json!({"subjects": (subjects.collect::<Vec<_>>())});
    for (key, rules) in [("resourceRules", resource_rules), ("nonResourceRules", url_rules)] {
        if !rules.is_empty() {
            rule.set_at(&[key], rules);
        }
    }
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": (schema.level)},
        "matchingPrecedence": (schema.precedence),
        "rules": [rule],
    });
    if !schema.by.is_empty() {
        spec.set_at(&["distinguisherMethod", "type"], schema.by);
    }
    spec
}

fn resource_rule(verbs: &[&str], group: &str, resources: &[&str], cluster: bool) -> Value {
    let mut rule = json!({
        "verbs": (list(verbs.iter().copied())),
        "apiGroups": [group],
        "resources": (list(resources.iter().copied())),
        "namespaces": ["*"],
    });
    if cluster {
        rule.set_at(&["clusterScope"], true);
    }
    rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_name_levels() {
        for schema in &SCHEMAS {
            assert!(LEVELS.iter().any(|(name, ..)| *name == schema.level), "{}", schema.name);
        }
    }

    #[test]
    fn specs_read_like_upstream() {
        assert_eq!(
            flow_schema_spec("probes", Suggested).unwrap().to_string(),
            r#"{"matchingPrecedence":2,"priorityLevelConfiguration":{"name":"exempt"},"rules":[{"nonResourceRules":[{"nonResourceURLs":["/healthz","/readyz","/livez"],"verbs":["get"]}],"subjects":[{"group":{"name":"system:unauthenticated"},"kind":"Group"},{"group":{"name":"system:authenticated"},"kind":"Group"}]}]}"#
        );
        assert_eq!(flow_schema_spec("probes", Mandatory), None);
        assert_eq!(
            priority_level_spec("catch-all", Mandatory).unwrap().to_string(),
            r#"{"limited":{"lendablePercent":0,"limitResponse":{"type":"Reject"},"nominalConcurrencyShares":5},"type":"Limited"}"#
        );
    }
}
