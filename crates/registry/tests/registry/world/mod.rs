//! A registry on a memory store, and short ways to use its planes as their administrator.

pub(crate) mod shaky;

use std::sync::Arc;
use std::time::Duration;

use polder_auth::UserInfo;
use polder_auth::authz::Chain;
use polder_machinery::apply::Force;
use polder_model::{SmolStr, Status, Value, json};
use polder_registry::context::WriteOptions;
use polder_registry::decode::{Document, Duplicates};
use polder_registry::delete::{DeleteAnswer, DeleteOptions};
use polder_registry::list::ListOptions;
use polder_registry::write::PatchKind;
use polder_registry::{Answered, Query, Registry, RegistryOptions, RequestContext, Target, bootstrap};
use polder_store::engine::Engine;
use polder_store::memory::MemoryEngine;
use polder_store::{Limits, ObjectName, Record, Store, StoreOptions};

/// A registry with planes, and short ways to use one of them as its administrator.
pub(crate) struct World {
    pub(crate) registry: Arc<Registry>,
}

impl World {
    pub(crate) fn new() -> World {
        let world = World::idle(Box::new(MemoryEngine::default()));
        world.registry.tasks.spawn(world.registry.clone().run_chores());
        world
    }

    /// By another clock.
    pub(crate) fn with_clock(clock: fn() -> i64) -> World {
        World::idle_with(Box::new(MemoryEngine::default()), clock)
    }

    /// On an engine, and nobody does chores.
    pub(crate) fn idle(engine: Box<dyn Engine>) -> World {
        World::idle_with(engine, || 1_767_225_600)
    }

    /// On a base that was made otherwise.
    pub(crate) fn with_base(edit: fn(&ObjectName, &mut Record)) -> World {
        World::open(Box::new(MemoryEngine::default()), || 1_767_225_600, edit)
    }

    fn idle_with(engine: Box<dyn Engine>, clock: fn() -> i64) -> World {
        World::open(engine, clock, |_, _| {})
    }

    fn open(engine: Box<dyn Engine>, clock: fn() -> i64, edit: fn(&ObjectName, &mut Record)) -> World {
        let store = Store::open(
            engine,
            StoreOptions::default(),
            &bootstrap::digest(&bootstrap::Site::default()),
            |profile, resource_id| {
                let (now, site) = ("2026-01-01T00:00:00Z", bootstrap::Site::default());
                let mut all = bootstrap::records(profile, now, &site, resource_id);
                all.iter_mut().for_each(|(_, name, record)| edit(name, record));
                all
            },
        );
        let options = RegistryOptions {
            base_url: "https://polder.test".into(),
            default_limits: Limits { object_bytes: 100_000, ..Limits::default() },
            clock,
            authenticators: std::sync::Arc::default(),
            plugins: Default::default(),
        };
        let registry = Arc::new(Registry::new(store.unwrap(), Chain::default(), options));
        World { registry }
    }

    /// Another registry on the same store, as after a start.
    pub(crate) fn again(&self) -> Arc<Registry> {
        let Registry { store, options, .. } = &*self.registry;
        Arc::new(Registry::new(store.clone(), Chain::default(), options.clone()))
    }

    /// Makes a plane the way a provider does.
    pub(crate) async fn plane(&self, name: &str, spec: Value) -> Plane<'_> {
        let core = Plane::new(self, "core");
        core.create("polder.dev/v1alpha1/planes", json!({"metadata": {"name": name}, "spec": spec}))
            .await
            .unwrap();
        Plane::new(self, name)
    }

    /// How many objects the core plane has; while no plane comes or goes only notes of unfinished chores do.
    pub(crate) fn marks(&self) -> u64 {
        self.registry.store.plane("core").unwrap().usage.objects()
    }

    pub(crate) async fn until(&self, what: &str, is: impl Fn() -> bool) {
        for _ in 0..1000 {
            if is() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}");
    }

    pub(crate) fn core(&self) -> Plane<'_> {
        Plane::new(self, "core")
    }
}

pub(crate) struct Plane<'a> {
    pub(crate) world: &'a World,
    pub(crate) name: String,
    pub(crate) user: UserInfo,
}

impl<'a> Plane<'a> {
    pub(crate) fn new(world: &'a World, name: &str) -> Plane<'a> {
        Plane { world, name: name.into(), user: UserInfo::system() }
    }

    /// The same plane as somebody of it sees it.
    pub(crate) fn as_user(&self, name: &str, groups: &[&str]) -> Plane<'a> {
        let mut user = UserInfo::authenticated(name, groups.iter().map(SmolStr::new));
        user.home = Some(self.context().plane.id);
        Plane { world: self.world, name: self.name.clone(), user }
    }

    pub(crate) fn context(&self) -> RequestContext {
        let plane = self.world.registry.store.plane(&self.name).expect("the plane exists");
        RequestContext::new(plane, self.user.clone())
    }

    /// `v1/configmaps`, `apps/v1/deployments/default/web/scale`: group, version, resource, namespace, name, part.
    pub(crate) async fn target(&self, path: &str) -> Target {
        let mut parts: Vec<&str> = path.split('/').collect();
        if parts[0].starts_with('v') && !parts[0].contains('.') && parts[0].len() < 4 {
            parts.insert(0, "");
        }
        let context = self.context();
        let found = self.world.registry.resolve(&context.plane, parts[0], parts[1], parts[2]).await.unwrap();
        let (definition, version) = found.unwrap_or_else(|| panic!("{path} is served"));
        let mut rest = parts[3..].iter().map(SmolStr::new);
        let namespace =
            if definition.namespaced { rest.next().unwrap_or_default() } else { SmolStr::default() };
        Target {
            definition,
            version,
            namespace,
            name: rest.next().unwrap_or_default(),
            subresource: rest.next().unwrap_or_default(),
        }
    }

    pub(crate) fn shown(&self, target: &Target, body: Answered) -> Value {
        match body {
            Answered::Made(value) => value,
            Answered::Stored(stored) => {
                self.world.registry.to_client(&self.context(), target, &stored).unwrap()
            }
        }
    }

    pub(crate) async fn create(&self, path: &str, object: Value) -> Result<Value, Status> {
        self.create_with(path, object, &[]).await
    }

    pub(crate) async fn create_with(
        &self,
        path: &str,
        object: Value,
        query: &[(&str, &str)],
    ) -> Result<Value, Status> {
        let target = self.target(path).await;
        let options = WriteOptions::from_query(&pairs(query), "CreateOptions")?;
        let document = document(&target, object);
        let made = self.world.registry.create(&self.context(), &target, document, &options).await?;
        Ok(self.shown(&target, made.body))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Status> {
        let target = self.target(path).await;
        let found = self.world.registry.get(&self.context(), &target, "").await?;
        Ok(self.shown(&target, found.body))
    }

    pub(crate) async fn update(&self, path: &str, object: Value) -> Result<Value, Status> {
        let target = self.target(path).await;
        let document = document(&target, object);
        let options = WriteOptions::default();
        let made = self.world.registry.update(&self.context(), &target, document, &options).await?;
        Ok(self.shown(&target, made.body))
    }

    pub(crate) async fn patch(&self, path: &str, kind: PatchKind, patch: Value) -> Result<Value, Status> {
        let target = self.target(path).await;
        let patch = Document { value: patch, duplicates: Duplicates::default() };
        let options = WriteOptions::default();
        let made = self.world.registry.patch(&self.context(), &target, kind, &patch, &options).await?;
        Ok(self.shown(&target, made.body))
    }

    /// Applies in somebody's name.
    pub(crate) async fn apply(
        &self,
        path: &str,
        manager: &str,
        intent: Value,
        force: Force,
    ) -> Result<Value, Status> {
        let target = self.target(path).await;
        let options = WriteOptions { field_manager: Some(manager.into()), ..WriteOptions::default() };
        let made = self.world.registry.apply(&self.context(), &target, &intent, force, &options).await?;
        Ok(self.shown(&target, made.body))
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Result<Value, Status> {
        let target = self.target(path).await;
        let options = DeleteOptions::read(Some(&options), &Query::default())?;
        Ok(match self.world.registry.delete(&self.context(), &target, &options).await? {
            DeleteAnswer::Gone(status) => status,
            DeleteAnswer::Object(body) => self.shown(&target, body),
        })
    }

    /// Waits until a read of the path is refused: the object is gone.
    pub(crate) async fn gone(&self, path: &str) {
        for _ in 0..1000 {
            if self.get(path).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{path} is still there");
    }

    pub(crate) async fn list(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<(Vec<String>, Option<String>), Status> {
        let target = self.target(path).await;
        let options = ListOptions::from_query(&pairs(query), &target)?;
        let page = self.world.registry.list(&self.context(), &target, &options).await?;
        let names = page.objects.iter().map(|object| object.name.to_string()).collect();
        Ok((names, page.continue_token))
    }
}

/// A document of the target's kind, whether it says so or not.
pub(crate) fn document(target: &Target, mut value: Value) -> Document {
    for (key, text) in [("kind", target.definition.kind.clone()), ("apiVersion", target.api_version())] {
        if value.get(key).is_none() {
            value.set_at(&[key], text);
        }
    }
    Document { value, duplicates: Duplicates::default() }
}

pub(crate) fn pairs(query: &[(&str, &str)]) -> Query {
    Query::new(query.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
}

pub(crate) fn code<T: std::fmt::Debug>(outcome: Result<T, Status>) -> (u16, String) {
    let status = outcome.expect_err("the request is refused");
    (status.code, status.message)
}
