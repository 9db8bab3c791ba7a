//! What the two kinds of admission policies share: which of them a request concerns, with which parameters, and running
//! their expressions until nothing they ask the authorizer is new.

use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use polder_model::{GroupResource, GroupVersionKind, Status, Value};

use crate::attributes::{Attributes, Form};
use crate::dynamic::{Answers, Basis, Binding, Inputs, Meter, Surroundings, describe};
use crate::world::{Found, World};

/// What is run between two awaits: some milliseconds. What costs more is run where it holds up nobody.
const INLINE_COST_MAX: u64 = 100_000;
/// What all policies, bindings and parameters together may cost for one request: some seconds.
const REQUEST_COST_MAX: u64 = 50_000_000;
/// A policy that asks the authorizer something new each time it is run is run no more often than this.
const ROUNDS_MAX: usize = 64;
/// What the parameters of one binding may take.
const PARAMS_BYTES_MAX: usize = 4 << 20;
/// Each parameter runs the policy once more.
const PARAMS_LEN_MAX: usize = 1000;

/// Where policies are run for one request.
pub(super) struct Bench<'a> {
    pub(super) request: &'a Attributes<'a>,
    pub(super) world: &'a dyn World,
    /// The namespace of the request, if it is there.
    pub(super) namespace: Option<&'a Value>,
    answers: Arc<Answers>,
    spent: u64,
    /// Of that, what was spent when others last had their turn.
    spent_before: u64,
}

/// A policy that a request concerns.
pub(super) struct Concern {
    /// How it wants to see the object.
    pub(super) form: Form,
    /// Where its parameters are, and whether they are in namespaces.
    params: Option<(GroupResource, bool)>,
}

/// Either something, or why a policy or binding cannot be used. A status is neither: the request fails.
pub(super) type Usable<T> = Result<Result<T, String>, Status>;

impl<'a> Bench<'a> {
    pub(super) fn new(
        request: &'a Attributes<'a>,
        world: &'a dyn World,
        namespace: Option<&'a Value>,
    ) -> Bench<'a> {
        Bench { request, world, namespace, answers: Arc::default(), spent: 0, spent_before: 0 }
    }

    /// Whether a policy is about the request.
    pub(super) async fn concern(&self, basis: &Basis, around: &Surroundings<'_>) -> Usable<Option<Concern>> {
        let form = match basis.matcher.form(self.request, around) {
            Ok(Some(form)) => form,
            Ok(None) => return Ok(Ok(None)),
            Err(status) => return Ok(Err(status.message)),
        };
        let params = match &basis.param_kind {
            None => None,
            Some(kind) => {
                let found = self.world.resource(&kind.group, Some(&kind.version), &kind.kind).await?;
                if found.is_none() {
                    let GroupVersionKind { group, version, kind } = kind;
                    let why = format!(
                        "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
                    );
                    return Ok(Err(why));
                }
                found
            }
        };
        Ok(Ok(Some(Concern { form, params })))
    }

    /// The parameters to run a policy with because of a binding: nothing where the binding is not about the request.
    pub(super) async fn params(
        &self,
        basis: &Basis,
        concern: &Concern,
        binding: &Binding,
        around: &Surroundings<'_>,
    ) -> Usable<Vec<Option<Value>>> {
        match binding.matcher.as_ref().map(|matcher| matcher.narrows(self.request, around)) {
            None | Some(Ok(true)) => {}
            Some(Ok(false)) => return Ok(Ok(Vec::new())),
            Some(Err(status)) => return Ok(Err(status.message)),
        }
        let (Some(kind), Some((resource, namespaced)), Some(wanted)) =
            (&basis.param_kind, &concern.params, &binding.params)
        else {
            return Ok(Ok(vec![None]));
        };
        let namespace = match (*namespaced, wanted.namespace.as_str()) {
            (true, "") if self.request.place().is_empty() => {
                let why =
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return Ok(Err(why.into()));
            }
            (true, "") => self.request.place(),
            (true, own) => own,
            (false, "") => "",
            (false, _) => {
                let why = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
                return Ok(Err(why.into()));
            }
        };
        let mut found = Vec::new();
        match &wanted.selector {
            _ if !wanted.name.is_empty() => {
                found.extend(self.world.get(resource, namespace, &wanted.name).await?);
            }
            Some(Err(why)) => return Ok(Err(why.clone())),
            Some(Ok(selector)) => {
                let (mut bytes, mut count) = (0, 0);
                let mut keep = |one: Found| {
                    if selector.matches(|key| one.value.str_at(&["metadata", "labels", key])) {
                        count += 1;
                        bytes += one.value.to_vec().len();
                        if bytes <= PARAMS_BYTES_MAX && count <= PARAMS_LEN_MAX {
                            found.push(one);
                        }
                    }
                };
                self.world.each(resource, namespace, &mut keep).await?;
                if count > PARAMS_LEN_MAX {
                    let why = format!(
                        "paramRef.selector selects {count} params, and a binding may have {PARAMS_LEN_MAX}"
                    );
                    return Ok(Err(why));
                }
                if bytes > PARAMS_BYTES_MAX {
                    return Ok(
                        Err("the params that paramRef.selector selects are too large together".into()),
                    );
                }
            }
            None => return Ok(Err("one of name or selector must be provided".into())),
        }
        if found.is_empty() && wanted.deny_missing {
            let why = "no params found for policy binding with `Deny` parameterNotFoundAction";
            return Ok(Err(why.into()));
        }
        let typed = |found: Found| {
            let mut value = found.value;
            value.set_at(&["kind"], kind.kind.clone());
            value.set_at(&["apiVersion"], kind.group_version().to_string());
            Some(value)
        };
        Ok(Ok(found.into_iter().map(typed).collect()))
    }

    /// Nothing more is run for this request.
    pub(super) fn is_spent(&self) -> bool {
        self.spent > REQUEST_COST_MAX
    }

    /// Counts work that no expression does. Others have their turn when it has become much, and time may run out.
    pub(super) async fn charge(&mut self, cost: u64) {
        self.spent = self.spent.saturating_add(cost);
        if self.spent - self.spent_before <= INLINE_COST_MAX {
            return;
        }
        self.spent_before = self.spent;
        let mut waited = false;
        let turn = poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        });
        turn.await;
    }

    /// Runs something until nothing it asks the authorizer is new; `None` when that costs too much.
    pub(super) async fn run<T: Send + 'static>(
        &mut self,
        object: Option<&Value>,
        form: &Form,
        params: Option<&Value>,
        work: impl Fn(&Inputs<'_>, &mut Meter) -> T + Clone + Send + 'static,
    ) -> Result<Option<T>, Status> {
        let (object, old) = (self.shown(object, form).await?, self.shown(self.request.old, form).await?);
        let is_namespace = self.request.kind.kind == "Namespace" && self.request.kind.group.is_empty();
        let namespace = self.namespace.filter(|_| !is_namespace);
        let described = describe(self.request, form);
        for _ in 0..ROUNDS_MAX {
            if self.is_spent() {
                break;
            }
            let mut meter = Meter::new(INLINE_COST_MAX);
            let mut made = {
                let inputs = Inputs {
                    object: object.as_deref(),
                    old: old.as_deref(),
                    namespace,
                    request: &described,
                    params,
                    answers: &self.answers,
                };
                work(&inputs, &mut meter)
            };
            self.spent = self.spent.saturating_add(meter.spent);
            if meter.ran_out {
                let case = Case {
                    object: object.as_deref().cloned(),
                    old: old.as_deref().cloned(),
                    namespace: namespace.cloned(),
                    request: described.clone(),
                    params: params.cloned(),
                    answers: self.answers.clone(),
                };
                let (again, spent) = case.run_aside(self.world, work.clone()).await?;
                made = again;
                self.spent = self.spent.saturating_add(spent);
            }
            let open = self.answers.take_open();
            if open.is_empty() {
                return Ok(Some(made));
            }
            for asked in open {
                let decision = self.world.decide(&asked).await?;
                self.answers.learn(asked, decision);
            }
        }
        Ok(None)
    }

    /// An object as the policy wants to see it.
    async fn shown<'v>(
        &self,
        object: Option<&'v Value>,
        form: &Form,
    ) -> Result<Option<Cow<'v, Value>>, Status> {
        let same = form.kind == *self.request.kind;
        Ok(match object {
            Some(object) if !same => Some(Cow::Owned(self.world.converted(object, &form.kind).await?)),
            object => object.map(Cow::Borrowed),
        })
    }
}

/// All that running takes, without a borrow: for work that happens elsewhere.
struct Case {
    object: Option<Value>,
    old: Option<Value>,
    namespace: Option<Value>,
    request: Value,
    params: Option<Value>,
    answers: Arc<Answers>,
}

impl Case {
    async fn run_aside<T: Send + 'static>(
        self,
        world: &dyn World,
        work: impl Fn(&Inputs<'_>, &mut Meter) -> T + Send + 'static,
    ) -> Result<(T, u64), Status> {
        let slot = Arc::new(Mutex::new(None));
        let result = slot.clone();
        let work = move || {
            let mut meter = Meter::new(u64::MAX);
            let inputs = Inputs {
                object: self.object.as_ref(),
                old: self.old.as_ref(),
                namespace: self.namespace.as_ref(),
                request: &self.request,
                params: self.params.as_ref(),
                answers: &self.answers,
            };
            let made = work(&inputs, &mut meter);
            *result.lock() = Some((made, meter.spent));
        };
        world.aside(Box::new(work)).await?;
        let made = slot.lock().take();
        made.ok_or_else(|| Status::internal("a policy could not be run"))
    }
}
