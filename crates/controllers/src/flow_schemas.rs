//! Flow schemas tell whether the priority level they name is there: the condition `Dangling`.
//!
//! One key stands for all schemas of a plane, since a level that comes or goes may be any of theirs.

use std::collections::HashSet;
use std::sync::Arc;

use polder_client::resource::{FLOW_SCHEMAS, PRIORITY_LEVELS};
use polder_client::{Answer, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::{Value, json};

use crate::meta;
use crate::workload::condition::{self, Condition};

const KEY: &str = "schemas";

pub(crate) struct FlowSchemas;

impl Controller for FlowSchemas {
    fn name(&self) -> &'static str {
        "api-priority-and-fairness-config-consumer-v1"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&FLOW_SCHEMAS, &PRIORITY_LEVELS])
    }

    fn observe(&self, _change: &Change, wake: Wake<'_>) {
        wake(KEY.into());
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, _key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let schemas = plane.list(&FLOW_SCHEMAS, "").await?;
            let levels = plane.list(&PRIORITY_LEVELS, "").await?;
            for (schema, conditions) in plan(&schemas, &levels, plane.client.now()) {
                let patch = json!({"status": {"conditions": conditions}});
                plane.merge_status(&FLOW_SCHEMAS, "", schema, patch).await?;
            }
            Ok(Next::Done)
        })
    }
}

/// The schemas whose conditions are not what they should be, and what they should be.
fn plan<'a>(schemas: &'a [Arc<Value>], levels: &[Arc<Value>], now: i64) -> Vec<(&'a str, Vec<Value>)> {
    let levels: HashSet<&str> = levels.iter().map(|level| meta::name(level)).collect();
    let mut wrong = Vec::new();
    for schema in schemas {
        let level = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]).unwrap_or_default();
        let named =
            format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
        let dangling = match levels.contains(level) {
            true => Condition {
                kind: "Dangling",
                status: "False",
                reason: "Found",
                message: format!("{named} and it exists"),
            },
            false => Condition {
                kind: "Dangling",
                status: "True",
                reason: "NotFound",
                message: format!("{named} but there is no such object"),
            },
        };
        let mut conditions = condition::of(schema).to_vec();
        let told = condition::find(&conditions, dangling.kind).and_then(|one| one.str_at(&["message"]));
        if told != Some(dangling.message.as_str()) {
            condition::remove(&mut conditions, dangling.kind);
        }
        condition::set(&mut conditions, &dangling, now, &[]);
        if conditions != condition::of(schema) {
            wrong.push((meta::name(schema), conditions));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_tell_whether_their_level_is_there() {
        let schema = |name: &str, level: &str| {
            Arc::new(json!({
                "metadata": {"name": name}, "spec": {"priorityLevelConfiguration": {"name": level}},
            }))
        };
        let level = Arc::new(json!({"metadata": {"name": "here"}}));
        let schemas = [schema("a", "here"), schema("b", "gone")];
        let planned = plan(&schemas, std::slice::from_ref(&level), 0);
        let shown: Vec<_> = planned
            .iter()
            .map(|(name, conditions)| (*name, conditions[0].str_at(&["status"]).unwrap()))
            .collect();
        assert_eq!(shown, [("a", "False"), ("b", "True")]);
        let mut done = (*schemas[1]).clone();
        done.set_at(&["status", "conditions"], planned[1].1.clone());
        assert!(plan(&[Arc::new(done.clone())], &[], 5).is_empty(), "what is right stays");
        done.set_at(&["spec", "priorityLevelConfiguration", "name"], "here");
        let done = [Arc::new(done)];
        let planned = plan(&done, &[level], 5);
        assert_eq!(planned[0].1.len(), 1);
        assert_eq!(planned[0].1[0].str_at(&["lastTransitionTime"]), Some("1970-01-01T00:00:05Z"));
    }
}
