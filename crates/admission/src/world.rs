//! How a plugin looks at the rest of its plane.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use polder_cel::Decision;
use polder_model::{GroupResource, GroupVersionKind, Status, Value};

use crate::dynamic::{Asked, Endpoint};

pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;

/// The other objects of the plane a request is about, as they are now. There is no way to any other plane.
pub trait World: Send + Sync {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> Answer<'a, Option<Found>>;

    /// Every object of a resource in a namespace; an empty namespace means all of the plane.
    fn each<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        visit: &'a mut (dyn FnMut(Found) + Send),
    ) -> Answer<'a, ()>;

    /// How many objects [`World::each`] would visit.
    fn count<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str) -> Answer<'a, u64>;

    /// The resource of a kind that the plane serves, in any version or in one, and whether it is namespaced.
    fn resource<'a>(
        &'a self,
        group: &'a str,
        version: Option<&'a str>,
        kind: &'a str,
    ) -> Answer<'a, Option<(GroupResource, bool)>>;

    /// Whether the user of this request may do something else too.
    fn allows<'a>(&'a self, question: Question<'a>) -> Answer<'a, bool>;

    /// What an expression wants to know about the user of this request, or about a service account.
    fn decide<'a>(&'a self, asked: &'a Asked) -> Answer<'a, Decision>;

    /// What is sent with this request, or was there, in another of its versions.
    fn converted(&self, object: &Value, to: &GroupVersionKind) -> Value;

    /// Brings what a webhook made of the object into the form of its kind: unknown members go, defaults come.
    fn shape(&self, object: &mut Value) -> Result<(), Status>;

    /// The same for what a policy made of it: what the kind does not know is refused. Custom kinds may know anything.
    fn shape_strictly(&self, object: &mut Value) -> Result<(), Status>;

    /// The object with what a policy puts over it, both of one of the kinds of this request; or why that does not work.
    fn overlaid(&self, object: Value, overlay: &Value, kind: &GroupVersionKind) -> Result<Value, String>;

    /// Posts a review to a webhook of the plane, and gives what it answers, or why it did not.
    fn call<'a>(
        &'a self,
        endpoint: &'a Arc<Endpoint>,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

    /// Does work that takes long where it holds up nobody else.
    fn aside<'a>(&'a self, work: Box<dyn FnOnce() + Send>) -> Answer<'a, ()>;

    /// What [`World::each`] visits, at once: for resources of which there are few.
    fn list<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str) -> Answer<'a, Vec<Found>> {
        Box::pin(async move {
            let mut found = Vec::new();
            self.each(resource, namespace, &mut |one| found.push(one)).await?;
            Ok(found)
        })
    }
}

/// An object in the version it is stored in, and when it was last written.
#[derive(Clone, Debug)]
pub struct Found {
    pub value: Value,
    pub revision: u64,
}

/// May the user do this?
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub verb: &'a str,
    pub resource: &'a GroupResource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}
