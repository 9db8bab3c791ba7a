//! The rulebook of each plane: its admission policies and webhooks, compiled when somebody first needs them and kept
//! until one of them is written.
//!
//! Policies are shared by content. Planes without any share one empty book, and what is kept is bounded: planes not
//! used for long are let go, and cost one look at their rules when they come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use polder_admission::{
    Binding, CheckedKind, MutatingPolicy, Policy, Rulebook, Webhook, kinds_to_check, type_warnings,
};
use polder_machinery::schema::rules::object_shape;
use polder_model::{GroupResource, GroupVersion, GroupVersionKind, PlaneId, SmolStr, Status, Value, json};
use polder_store::{ListQuery, Plane, StoredObject};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::catalog::Catalog;
use crate::context::RequestContext;
use crate::custom::Interned;
use crate::definition::Target;
use crate::memo::{Epoch, Memo};
use crate::registry::Registry;
use crate::status::read_failed;
use crate::written::Written;

const GROUP: &str = "admissionregistration.k8s.io";
const QUOTAS: &str = "resourcequotas";
const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
const MUTATING_POLICIES: &str = "mutatingadmissionpolicies";
const MUTATING_BINDINGS: &str = "mutatingadmissionpolicybindings";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// Planes whose book is kept.
const PLANES_LEN_MAX: usize = 100_000;
/// What the compiled policies of all planes may take.
const POLICIES_BYTES_MAX: usize = 256 << 20;
/// What the rest of their books may take.
const BOOKS_BYTES_MAX: usize = 128 << 20;
/// What those of one plane may take: what comes beyond it fails as one that does not compile.
const PLANE_BYTES_MAX: usize = 32 << 20;

/// What a plane says about its writes.
#[derive(Clone)]
pub(crate) struct Rules {
    pub(crate) book: Arc<Rulebook>,
    /// There is a `ResourceQuota`, so somebody counts.
    pub(crate) quotas: bool,
}

pub(crate) struct Rulebooks {
    planes: Memo<Rules>,
    /// What the books of `planes` take beside their policies.
    bytes: AtomicUsize,
    policies: Mutex<Interned<[u8; 32], Policy>>,
    mutating_policies: Mutex<Interned<[u8; 32], MutatingPolicy>>,
    empty: Arc<Rulebook>,
    /// Places of those who read long rules.
    builders: Semaphore,
}

/// Planes whose rules are read at a time.
const BUILDERS: usize = 4;

impl Default for Rulebooks {
    fn default() -> Rulebooks {
        Rulebooks {
            planes: Memo::default(),
            bytes: AtomicUsize::new(0),
            policies: Mutex::new(Interned::new(POLICIES_BYTES_MAX / 2)),
            mutating_policies: Mutex::new(Interned::new(POLICIES_BYTES_MAX / 2)),
            empty: Arc::default(),
            builders: Semaphore::new(BUILDERS),
        }
    }
}

impl Rulebooks {
    /// What is known of a plane's rules may be wrong.
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.lighten(self.planes.forget(plane));
    }

    /// Books that are not kept any more.
    fn lighten(&self, gone: impl IntoIterator<Item = Rules>) {
        let bytes = gone.into_iter().map(|rules| rules.book.bytes()).sum();
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// No rules.
    pub(crate) fn none(&self) -> &Arc<Rulebook> {
        &self.empty
    }

    fn keep(&self, plane: PlaneId, rules: &Rules, epoch: Epoch) {
        let (is_kept, before) = self.planes.keep(plane, rules.clone(), epoch);
        if is_kept {
            self.bytes.fetch_add(rules.book.bytes(), Ordering::Relaxed);
        }
        self.lighten(before);
        if self.planes.len() > PLANES_LEN_MAX {
            self.lighten(self.planes.let_go(|_| true));
        }
        while self.is_heavy() {
            // Planes without rules weigh nothing: letting go of them would make room for nobody.
            let gone = self.planes.let_go(|rules| !Arc::ptr_eq(&rules.book, &self.empty));
            if gone.is_empty() {
                break;
            }
            self.lighten(gone);
            self.policies.lock().sweep();
            self.mutating_policies.lock().sweep();
        }
    }

    fn is_heavy(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > BOOKS_BYTES_MAX
            || self.policies.lock().is_heavy()
            || self.mutating_policies.lock().is_heavy()
    }

    /// A policy by what it says.
    fn policy(&self, spec: &Value) -> Arc<Policy> {
        let digest: [u8; 32] = Sha256::digest(spec.to_vec()).into();
        if let Some(known) = self.policies.lock().get(&digest) {
            return known;
        }
        let policy = Policy::compile(spec);
        let bytes = policy.bytes();
        self.policies.lock().insert(digest, policy, bytes)
    }

    /// The same for one that changes objects.
    fn mutating_policy(&self, spec: &Value) -> Arc<MutatingPolicy> {
        let digest: [u8; 32] = Sha256::digest(spec.to_vec()).into();
        if let Some(known) = self.mutating_policies.lock().get(&digest) {
            return known;
        }
        let policy = MutatingPolicy::compile(spec);
        let bytes = policy.bytes();
        self.mutating_policies.lock().insert(digest, policy, bytes)
    }

    /// Long when the rules have never been seen: not for an async thread.
    fn build(&self, stored: Stored) -> Arc<Rulebook> {
        let Stored { bindings, policies, mutating_bindings, mutating_policies, mutating, validating } =
            stored;
        let parse = |stored: &Arc<StoredObject>| Value::parse_own(stored.record.body()).unwrap_or_default();
        let bound = |bindings: &[Arc<StoredObject>]| -> Vec<Binding> {
            bindings.iter().map(|stored| Binding::read(&named(parse(stored), stored))).collect()
        };
        let mut bytes = 0;
        let compile = |stored: &Arc<StoredObject>| {
            let spec = parse(stored).get("spec").cloned().unwrap_or_default();
            let mut policy = self.policy(&spec);
            bytes += policy.bytes();
            if bytes > PLANE_BYTES_MAX {
                policy = Arc::new(Policy::too_large(&spec));
            }
            (stored.name.name.clone(), policy)
        };
        let policies: Vec<(SmolStr, Arc<Policy>)> = policies.iter().map(compile).collect();
        let compile = |stored: &Arc<StoredObject>| {
            let spec = parse(stored).get("spec").cloned().unwrap_or_default();
            let mut policy = self.mutating_policy(&spec);
            bytes += policy.bytes();
            if bytes > PLANE_BYTES_MAX {
                policy = Arc::new(MutatingPolicy::too_large(&spec));
            }
            (stored.name.name.clone(), policy)
        };
        let mutating_policies: Vec<(SmolStr, Arc<MutatingPolicy>)> =
            mutating_policies.iter().map(compile).collect();
        let webhooks = |configurations: &[Arc<StoredObject>]| {
            let mut bytes = 0;
            let fitted = |webhook: Webhook| {
                bytes += webhook.bytes();
                if bytes > PLANE_BYTES_MAX { webhook.without_room() } else { webhook }
            };
            let read = |stored: &Arc<StoredObject>| Webhook::read_all(&named(parse(stored), stored)).0;
            configurations.iter().flat_map(read).map(fitted).collect::<Vec<Webhook>>()
        };
        let book = Rulebook::new(policies, bound(&bindings))
            .with_mutating_policies(mutating_policies, bound(&mutating_bindings));
        Arc::new(book.with_webhooks(webhooks(&mutating), webhooks(&validating)))
    }
}

/// The rules of a plane, as they are kept.
#[derive(Default)]
struct Stored {
    bindings: Vec<Arc<StoredObject>>,
    policies: Vec<Arc<StoredObject>>,
    mutating_bindings: Vec<Arc<StoredObject>>,
    mutating_policies: Vec<Arc<StoredObject>>,
    mutating: Vec<Arc<StoredObject>>,
    validating: Vec<Arc<StoredObject>>,
}

impl Stored {
    /// Policies are nothing without a binding.
    fn is_empty(&self) -> bool {
        let Stored { bindings, mutating_bindings, mutating, validating, .. } = self;
        [bindings, mutating_bindings, mutating, validating].into_iter().all(Vec::is_empty)
    }
}

/// The name is not always part of what is stored.
fn named(mut value: Value, stored: &StoredObject) -> Value {
    value.set_at(&["metadata", "name"], stored.name.name.clone());
    value
}

/// Something was written or, if it is not there any more, removed: a plane may have other rules now.
pub(crate) fn committed(registry: &Registry, written: &Written<'_>) {
    let Written { plane, resource, is_there, .. } = *written;
    let is_quota = resource.group.is_empty() && resource.resource == QUOTAS;
    // One more quota, or another limit, is no news where there is one.
    let news = || !is_there || registry.rulebooks.planes.get(plane).is_none_or(|rules| !rules.quotas);
    if resource.group == GROUP || (is_quota && news()) {
        registry.rulebooks.forget(plane);
    }
}

impl Registry {
    /// The rules of a plane. Read past the cache: what is made of them is kept, and most planes have none.
    pub(crate) async fn rules(&self, plane: &Arc<Plane>) -> Result<Rules, Status> {
        if let Some(rules) = self.rulebooks.planes.get(plane.id) {
            return Ok(rules);
        }
        // Whoever comes while they are read waits for what is being made.
        let _turn = self.rule_turns.take(plane.id).await;
        if let Some(rules) = self.rulebooks.planes.get(plane.id) {
            return Ok(rules);
        }
        let epoch = self.rulebooks.planes.epoch(plane.id);
        let at = Some(self.store.current());
        let list = async |group: &'static str, plural: &'static str, limit: usize| {
            let Some(resource) = self.store.known_resource(&GroupResource::new(group, plural)) else {
                return Ok(Vec::new());
            };
            let page = self.store.list(plane, ListQuery { at, limit, ..ListQuery::all(resource) }).await;
            page.map(|page| page.objects).map_err(|error| read_failed(plane, error))
        };
        let mut all = Stored {
            bindings: list(GROUP, BINDINGS, 0).await?,
            mutating_bindings: list(GROUP, MUTATING_BINDINGS, 0).await?,
            mutating: list(GROUP, MUTATING, 0).await?,
            validating: list(GROUP, VALIDATING, 0).await?,
            ..Stored::default()
        };
        // Without a binding a policy says nothing.
        if !all.bindings.is_empty() {
            all.policies = list(GROUP, POLICIES, 0).await?;
        }
        if !all.mutating_bindings.is_empty() {
            all.mutating_policies = list(GROUP, MUTATING_POLICIES, 0).await?;
        }
        let book = if all.is_empty() {
            self.rulebooks.empty.clone()
        } else {
            let rulebooks = self.rulebooks.clone();
            let _place = rulebooks.builders.acquire().await;
            let own = rulebooks.clone();
            let built = tokio::task::spawn_blocking(move || own.build(all)).await;
            built.map_err(|_| Status::internal("the rules of the plane cannot be read"))?
        };
        let quotas = !list("", QUOTAS, 1).await?.is_empty();
        let rules = Rules { book, quotas };
        self.rulebooks.keep(plane.id, &rules, epoch);
        Ok(rules)
    }

    /// Checks the expressions of rules that are about to be stored, and notes in the status of a policy whether they fit
    /// the kinds it is about.
    pub(crate) async fn settle_rules(
        &self,
        context: &RequestContext,
        target: &Target,
        rules: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let definition = &target.definition;
        if definition.group != GROUP || !target.subresource.is_empty() {
            return Ok(());
        }
        self.check_parameters(context, target, rules, old).await?;
        if matches!(definition.plural.as_str(), MUTATING | VALIDATING) {
            return self.check_webhooks(target, rules, old).await;
        }
        if definition.plural != POLICIES && definition.plural != MUTATING_POLICIES {
            return Ok(());
        }
        if old.is_some_and(|old| old.get("spec") == rules.get("spec")) {
            return Ok(());
        }
        let spec = rules.get("spec").cloned().unwrap_or_default();
        let rulebooks = self.rulebooks.clone();
        if definition.plural == MUTATING_POLICIES {
            let done = tokio::task::spawn_blocking(move || rulebooks.mutating_policy(&spec)).await;
            let policy = done.map_err(|_| Status::internal("the rules cannot be checked"))?;
            return match policy.problems() {
                [] => Ok(()),
                problems => Err(Status::invalid(&definition.error_kind(), &target.name, problems)),
            };
        }
        let catalog = self.catalog(&context.plane).await?;
        let work = move || {
            let policy = rulebooks.policy(&spec);
            let warnings = if policy.problems().is_empty() { warnings(&spec, &catalog) } else { Vec::new() };
            (policy, warnings)
        };
        let done = tokio::task::spawn_blocking(work).await;
        let (policy, warnings) = done.map_err(|_| Status::internal("the rules cannot be checked"))?;
        if !policy.problems().is_empty() {
            return Err(Status::invalid(&definition.error_kind(), &target.name, policy.problems()));
        }
        let checking = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
        rules.set_at(&["status", "typeChecking"], checking);
        if let Some(generation) = rules.i64_at(&["metadata", "generation"]) {
            rules.set_at(&["status", "observedGeneration"], generation);
        }
        Ok(())
    }
}

impl Registry {
    /// Checks the match conditions of webhooks, unless they are what they were.
    async fn check_webhooks(
        &self,
        target: &Target,
        rules: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let conditions = |value: &Value| -> Vec<Value> {
            let all = value.array_at(&["webhooks"]).iter();
            all.map(|webhook| webhook.get("matchConditions").cloned().unwrap_or_default()).collect()
        };
        let own = conditions(rules);
        if own.iter().all(|own| own.is_null()) || old.is_some_and(|old| conditions(old) == own) {
            return Ok(());
        }
        let configuration = rules.clone();
        let checked = tokio::task::spawn_blocking(move || Webhook::read_all(&configuration).1).await;
        let problems = checked.map_err(|_| Status::internal("the rules cannot be checked"))?;
        if problems.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&target.definition.error_kind(), &target.name, &problems))
    }
}

fn warnings(spec: &Value, catalog: &Catalog) -> Vec<Value> {
    let mut kinds: Vec<CheckedKind> = Vec::new();
    for (group, version, plural) in kinds_to_check(spec) {
        let Some((definition, at)) = catalog.find(&group, &version, &plural) else { continue };
        let kind = GroupVersionKind { group, version, kind: definition.kind.clone() };
        if let Some(shape) = object_shape(&definition.versions[at].schema)
            && kinds.iter().all(|known| known.kind != kind)
        {
            kinds.push(CheckedKind { kind, shape });
        }
    }
    kinds.sort_by(|left, right| left.kind.cmp(&right.kind));
    let params = spec.get("paramKind").and_then(|kind| {
        let GroupVersion { group, version } = GroupVersion::parse(kind.str_at(&["apiVersion"])?)?;
        let name = kind.str_at(&["kind"])?;
        let mut all = catalog.definitions();
        let definition = all.find(|definition| definition.group == group && definition.kind == name)?;
        object_shape(&definition.versions[definition.version(&version)?].schema)
    });
    type_warnings(spec, &kinds, params.as_ref())
}
