//! Actions on pods that are not edits: binding to a node, eviction.

use polder_model::{Status, Value, json};

use crate::context::{RequestContext, WriteOptions};
use crate::definition::Target;
use crate::delete::DeleteOptions;
use crate::registry::Registry;

impl Registry {
    /// Assigns a pod to a node, once. The caller has been authorized for the subresource.
    pub async fn bind(
        &self,
        context: &RequestContext,
        target: &Target,
        binding: &Value,
    ) -> Result<(), Status> {
        let node = binding.str_at(&["target", "name"]).unwrap_or_default().to_string();
        if node.is_empty() {
            return Err(Status::bad_request("target.name is required"));
        }
        let pod = Target { subresource: Default::default(), ..target.clone() };
        let resource = target.definition.group_resource();
        let assign = |pod: &mut Value| {
            if pod.at(&["metadata", "deletionTimestamp"]).is_some() {
                let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
                return Err(Status::conflict(&resource, &target.name, &why));
            }
            if let Some(own) = pod.str_at(&["spec", "nodeName"]).filter(|own| !own.is_empty()) {
                let why = format!("pod {} is already assigned to node {own:?}", target.name);
                return Err(Status::conflict(&resource, &target.name, &why));
            }
            pod.set_at(&["spec", "nodeName"], node.as_str());
            let scheduled =
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": (self.now())});
            let mut conditions = pod.array_at(&["status", "conditions"]).to_vec();
            conditions.retain(|one| one.str_at(&["type"]) != Some("PodScheduled"));
            conditions.push(scheduled);
            pod.set_at(&["status", "conditions"], conditions);
            Ok(())
        };
        self.modify_with(context, &pod, &WriteOptions::default(), assign).await?;
        Ok(())
    }

    /// Evicts a pod: a delete that disruption budgets will have a say in.
    pub async fn evict(
        &self,
        context: &RequestContext,
        target: &Target,
        eviction: &Value,
    ) -> Result<(), Status> {
        let options = eviction.get("deleteOptions");
        let options = DeleteOptions::read(options, &crate::context::Query::default())?;
        let pod = Target { subresource: Default::default(), ..target.clone() };
        self.delete_unchecked(context, &pod, &options).await?;
        Ok(())
    }
}
