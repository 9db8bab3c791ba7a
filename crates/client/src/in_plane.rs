//! A client in one plane: what reconcilers hold.

use std::sync::Arc;

use polder_model::selector::LabelSelector;
use polder_model::{GroupVersionResource, PlaneId, SmolStr, Status, Value};

use crate::client::{At, Client, Delete, Patch, Query};

#[derive(Clone)]
pub struct InPlane {
    pub client: Arc<dyn Client>,
    pub plane: PlaneId,
}

impl InPlane {
    pub fn at(&self, resource: &GroupVersionResource, namespace: &str, name: &str) -> At {
        At {
            plane: self.plane,
            resource: resource.clone(),
            namespace: SmolStr::new(namespace),
            name: SmolStr::new(name),
            subresource: "",
        }
    }

    pub async fn get(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<Value>>, Status> {
        self.client.get(&self.at(resource, namespace, name)).await
    }

    /// Everything in a namespace, or in all of them when it is empty.
    pub async fn list(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> Result<Vec<Arc<Value>>, Status> {
        let query = Query { namespace: SmolStr::new(namespace), ..Query::default() };
        self.client.list(self.plane, resource, query).await
    }

    pub async fn list_selected(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        labels: LabelSelector,
    ) -> Result<Vec<Arc<Value>>, Status> {
        let query = Query { namespace: SmolStr::new(namespace), labels: Some(labels), ..Query::default() };
        self.client.list(self.plane, resource, query).await
    }

    pub async fn create(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        object: Value,
    ) -> Result<Value, Status> {
        self.client.create(&self.at(resource, namespace, ""), object).await
    }

    /// Replaces an object by what it says it is.
    pub async fn update(&self, resource: &GroupVersionResource, object: Value) -> Result<Value, Status> {
        self.client.update(&self.at_object(resource, &object), object).await
    }

    pub async fn update_status(
        &self,
        resource: &GroupVersionResource,
        object: Value,
    ) -> Result<Value, Status> {
        let at = At { subresource: "status", ..self.at_object(resource, &object) };
        self.client.update(&at, object).await
    }

    pub async fn merge(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<Value, Status> {
        self.client.patch(&self.at(resource, namespace, name), Patch::Merge(patch)).await
    }

    pub async fn merge_status(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
        patch: Value,
    ) -> Result<Value, Status> {
        let at = At { subresource: "status", ..self.at(resource, namespace, name) };
        self.client.patch(&at, Patch::Merge(patch)).await
    }

    /// Deletes an object. One that is gone already is what was wanted.
    pub async fn delete(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        name: &str,
        options: Delete,
    ) -> Result<(), Status> {
        match self.client.delete(&self.at(resource, namespace, name), options).await {
            Err(status) if status.code == 404 => Ok(()),
            outcome => outcome,
        }
    }

    fn at_object(&self, resource: &GroupVersionResource, object: &Value) -> At {
        let text = |field| object.str_at(&["metadata", field]).unwrap_or_default();
        self.at(resource, text("namespace"), text("name"))
    }
}
