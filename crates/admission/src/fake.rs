//! A world of plain values, and short ways to ask a plugin about an object in it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use polder_model::{GroupResource, GroupVersionKind, PlaneId, SmolStr, Status, Value};

use crate::attributes::{Attributes, Operation, Options, User};
use parking_lot::Mutex;
use polder_cel::Decision;

use crate::dynamic::{Asked, Endpoint, Rulebook};
use crate::notes::Notes;
use crate::plugin::Plugin;
use crate::world::{Answer, Found, Question, World};

/// Objects by resource: `pods`, `storageclasses.storage.k8s.io`. The revision of an object is its place.
pub(crate) struct Fake {
    pub(crate) objects: Vec<(&'static str, Value)>,
    pub(crate) allowed: bool,
    /// Who asks, and their groups.
    pub(crate) user: (&'static str, Vec<SmolStr>),
    pub(crate) rules: Rulebook,
    /// What webhooks say, by their address and what they are asked.
    pub(crate) webhook: fn(&str, &Value) -> Result<Value, String>,
    pub(crate) calls: Mutex<Vec<(String, Value)>>,
}

impl Default for Fake {
    fn default() -> Fake {
        Fake {
            objects: Vec::new(),
            allowed: false,
            user: ("jane", Vec::new()),
            rules: Rulebook::default(),
            webhook: |_, _| Err("nobody is there".into()),
            calls: Mutex::default(),
        }
    }
}

impl Fake {
    pub(crate) fn of(objects: &[(&'static str, &str)]) -> Fake {
        let parsed = objects.iter().map(|(resource, text)| (*resource, parse(text)));
        Fake { objects: parsed.collect(), allowed: true, ..Fake::default() }
    }

    fn matching(&self, resource: &GroupResource, namespace: &str) -> impl Iterator<Item = Found> {
        let (wanted, namespace) = (resource.to_string(), namespace.to_owned());
        let all = self.objects.iter().enumerate();
        let own = all.filter(move |(_, (resource, object))| {
            let place = object.str_at(&["metadata", "namespace"]).unwrap_or_default();
            *resource == wanted && (namespace.is_empty() || place == namespace)
        });
        own.map(|(revision, (_, value))| Found { value: value.clone(), revision: revision as u64 })
    }
}

impl World for Fake {
    fn get<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> Answer<'a, Option<Found>> {
        let found = self
            .matching(resource, namespace)
            .find(|one| one.value.str_at(&["metadata", "name"]) == Some(name));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn each<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        visit: &'a mut (dyn FnMut(Found) + Send),
    ) -> Answer<'a, ()> {
        self.matching(resource, namespace).for_each(visit);
        Box::pin(std::future::ready(Ok(())))
    }

    fn count<'a>(&'a self, resource: &'a GroupResource, namespace: &'a str) -> Answer<'a, u64> {
        let count = self.matching(resource, namespace).count() as u64;
        Box::pin(std::future::ready(Ok(count)))
    }

    fn resource<'a>(
        &'a self,
        group: &'a str,
        _: Option<&'a str>,
        kind: &'a str,
    ) -> Answer<'a, Option<(GroupResource, bool)>> {
        let found = match kind {
            "Missing" => None,
            "ConfigMap" => Some((GroupResource::new(group, "configmaps"), true)),
            "Node" => Some((GroupResource::new(group, "nodes"), false)),
            _ => Some((GroupResource::new(group, "secrets"), true)),
        };
        Box::pin(std::future::ready(Ok(found)))
    }

    fn decide<'a>(&'a self, asked: &'a Asked) -> Answer<'a, Decision> {
        let allowed = self.allowed && asked.verb != "never";
        Box::pin(std::future::ready(Ok(Decision { allowed, ..Decision::default() })))
    }

    fn converted<'a>(&'a self, object: &'a Value, to: &'a GroupVersionKind) -> Answer<'a, Value> {
        let mut object = object.clone();
        object.set_at(&["apiVersion"], to.group_version().to_string());
        Box::pin(std::future::ready(Ok(object)))
    }

    fn shape(&self, object: &mut Value) -> Result<(), Status> {
        object.remove_at(&["pruned"]);
        Ok(())
    }

    fn shape_strictly(&self, object: &mut Value) -> Result<(), Status> {
        match object.get("unknown") {
            Some(_) => Err(Status::internal("strict decoding error: unknown field \"unknown\"")),
            None => self.shape(object),
        }
    }

    /// Everything is a deployment.
    fn overlaid(&self, object: Value, overlay: &Value, _: &GroupVersionKind) -> Result<Value, String> {
        use polder_machinery::schema::table::builtin;
        let table = builtin();
        let resource = table.resources.iter().find(|resource| resource.plural == "deployments");
        let schema = table.schema(&resource.ok_or("no such kind")?.type_name).ok_or("no schema")?;
        polder_machinery::apply::overlay(schema.node(), object, overlay).map_err(|error| error.to_string())
    }

    fn call<'a>(
        &'a self,
        endpoint: &'a Arc<Endpoint>,
        body: Vec<u8>,
        _: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>> {
        let review = Value::parse(&body).unwrap();
        self.calls.lock().push((endpoint.url(), review.clone()));
        let answer = (self.webhook)(&endpoint.url(), &review);
        let answer = answer.map(|mut response| {
            response.set_at(&["uid"], review.at(&["request", "uid"]).cloned().unwrap());
            let mut answer = review.clone();
            answer.remove_at(&["request"]);
            answer.set_at(&["response"], response);
            answer.to_vec()
        });
        Box::pin(std::future::ready(answer))
    }

    fn aside<'a>(&'a self, work: Box<dyn FnOnce() + Send>) -> Answer<'a, ()> {
        work();
        Box::pin(std::future::ready(Ok(())))
    }

    fn allows<'a>(&'a self, _: Question<'a>) -> Answer<'a, bool> {
        Box::pin(std::future::ready(Ok(self.allowed)))
    }
}

pub(crate) fn parse(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Nothing in a fake world waits.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    turns(future).0
}

/// The same, and how often others had their turn meanwhile.
pub(crate) fn turns<T>(future: impl Future<Output = T>) -> (T, usize) {
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    let mut turns = 0;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return (value, turns),
            Poll::Pending => assert!(woken.0.swap(false, Ordering::Relaxed), "a fake world never waits"),
        }
        turns += 1;
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `pods`, `pods/resize`, `ingresses.networking.k8s.io`.
pub(crate) struct Request<'a> {
    pub(crate) plugin: &'a dyn Plugin,
    pub(crate) world: &'a Fake,
    pub(crate) path: &'a str,
    pub(crate) operation: Operation,
}

impl Request<'_> {
    fn with<T>(
        &self,
        object: Option<&Value>,
        old: Option<&Value>,
        run: impl FnOnce(&Attributes<'_>, &mut Notes) -> Result<T, Status>,
    ) -> Result<(T, Notes), String> {
        let (resource, subresource) = self.path.split_once('/').unwrap_or((self.path, ""));
        let (plural, group) = resource.split_once('.').unwrap_or((resource, ""));
        let resource = GroupResource::new(group, plural);
        let kind = GroupVersionKind { group: group.into(), version: "v1".into(), kind: "Kind".into() };
        let name = object.or(old).and_then(|one| one.str_at(&["metadata", "name"])).unwrap_or("x");
        let attributes = Attributes {
            plane: PlaneId::CORE,
            user: User { name: self.world.user.0, uid: "", groups: &self.world.user.1, extra: &[] },
            operation: self.operation,
            resource: &resource,
            version: "v1",
            subresource,
            kind: &kind,
            namespace: "ns",
            name,
            own_name: name,
            dry_run: false,
            options: Options::default(),
            seed: 0,
            old,
            others: &[],
            rules: &self.world.rules,
        };
        let mut notes = Notes::default();
        match run(&attributes, &mut notes) {
            Ok(value) => Ok((value, notes)),
            Err(status) => Err(status.message),
        }
    }

    /// Anything that is done with a request.
    pub(crate) fn through(
        &self,
        object: &mut Value,
        run: impl FnOnce(&Attributes<'_>, &mut Value, &mut Notes) -> Result<(), Status>,
    ) -> Result<Notes, String> {
        let before = object.clone();
        let run = |request: &Attributes<'_>, notes: &mut Notes| run(request, object, notes);
        Ok(self.with(Some(&before), None, run)?.1)
    }

    /// The changed object, or the refusal.
    pub(crate) fn admit(&self, object: &str, old: Option<&str>) -> Result<Value, String> {
        let (mut object, old) = (parse(object), old.map(parse));
        let before = object.clone();
        let run = |request: &Attributes<'_>, notes: &mut Notes| {
            now(self.plugin.admit(request, &mut object, self.world, notes))
        };
        self.with(Some(&before), old.as_ref(), run)?;
        Ok(object)
    }

    pub(crate) fn validate(&self, object: &str, old: Option<&str>) -> Result<Notes, String> {
        let (object, old) = (parse(object), old.map(parse));
        let run = |request: &Attributes<'_>, notes: &mut Notes| {
            now(self.plugin.validate(request, Some(&object), self.world, notes))
        };
        Ok(self.with(Some(&object), old.as_ref(), run)?.1)
    }

    pub(crate) fn account(&self, object: Option<&str>, old: Option<&str>) -> Result<Notes, String> {
        let (object, old) = (object.map(parse), old.map(parse));
        let run = |request: &Attributes<'_>, notes: &mut Notes| {
            now(self.plugin.account(request, object.as_ref(), self.world, notes))
        };
        Ok(self.with(object.as_ref(), old.as_ref(), run)?.1)
    }
}
