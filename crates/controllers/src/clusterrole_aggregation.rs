//! Cluster roles that gather the rules of others: their rules are those of all roles that their selectors match.
//!
//! Roles are gathered in the order of selectors and names, and equal rules once, so the same roles always give the same
//! bytes, and a role that is as it should be is not written. One key stands for all roles of a plane.

use std::collections::HashSet;
use std::sync::Arc;

use polder_client::resource::CLUSTER_ROLES;
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::selector::LabelSelector;
use polder_model::{Value, json};

use crate::meta;

const KEY: &str = "roles";

pub(crate) struct ClusterRoleAggregation;

impl Controller for ClusterRoleAggregation {
    fn name(&self) -> &'static str {
        "clusterrole-aggregation-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&CLUSTER_ROLES])
    }

    fn observe(&self, _change: &Change, wake: Wake<'_>) {
        wake(KEY.into());
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, _key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let roles = plane.list(&CLUSTER_ROLES, "").await?;
            for role in &roles {
                if let Some(rules) = gathered(role, &roles)
                    && rules != role.array_at(&["rules"])
                {
                    // A role that gathers from this one is looked at again when this is written.
                    // The rules are for the role that was looked at, and for no other of its name.
                    let version = role.str_at(&["metadata", "resourceVersion"]).unwrap_or_default();
                    let change = json!({"metadata": {"resourceVersion": version}, "rules": rules});
                    plane.merge(&CLUSTER_ROLES, "", meta::name(role), change).await?;
                }
            }
            Ok(Next::Done)
        })
    }
}

/// What is gathered for one role, what it has already counted again.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// The rules a role should have; nothing if it gathers none.
fn gathered(role: &Value, roles: &[Arc<Value>]) -> Option<Vec<Value>> {
    let aggregation = role.get("aggregationRule").filter(|rule| !rule.is_null())?;
    let (mut rules, mut seen, mut bytes) = (Vec::new(), HashSet::new(), 0);
    for selector in aggregation.array_at(&["clusterRoleSelectors"]) {
        let selector = LabelSelector::from_value(selector).ok()?;
        let label = |other: &Arc<Value>| selector.matches(|key| other.str_at(&["metadata", "labels", key]));
        let others = roles.iter().filter(|other| meta::name(other) != meta::name(role) && label(other));
        for rule in others.flat_map(|other| other.array_at(&["rules"])) {
            let text = rule.to_vec();
            bytes += text.len();
            // More than an object can hold: the role stays as it is.
            if bytes > BYTES_MAX {
                return None;
            }
            if seen.insert(text) {
                rules.push(rule.clone());
            }
        }
    }
    Some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, labels: Value, verbs: &[&str]) -> Arc<Value> {
        let rules = verbs.iter().map(|verb| json!({"verbs": [(*verb)]})).collect::<Vec<_>>();
        Arc::new(json!({"metadata": {"name": name, "labels": labels}, "rules": rules}))
    }

    #[test]
    fn rules_are_gathered_once_and_in_order() {
        let mut all =
            json!({"metadata": {"name": "b-all", "labels": {"to": "x"}}, "rules": [{"verbs": ["own"]}]});
        let selectors = json!([{"matchLabels": {"to": "y"}}, {"matchLabels": {"to": "x"}}]);
        all.set_at(&["aggregationRule", "clusterRoleSelectors"], selectors);
        let all = Arc::new(all);
        let roles = [
            role("a", json!({"to": "x"}), &["get", "list"]),
            all.clone(),
            role("c", json!({"to": "y"}), &["list", "watch"]),
            role("d", json!({"to": "z"}), &["delete"]),
        ];
        let rules = gathered(&all, &roles).unwrap();
        let verbs: Vec<_> = rules.iter().map(|rule| rule.array_at(&["verbs"])[0].as_str().unwrap()).collect();
        assert_eq!(verbs, ["list", "watch", "get"]);
        assert_eq!(gathered(&roles[0], &roles), None);
    }
}
