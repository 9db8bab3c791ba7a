//! ValidatingAdmissionPolicy: policies of the plane, in CEL.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use polder_model::{GroupResource, GroupVersionKind, Reason, SmolStr, Status, Value, json};

use crate::attributes::{Attributes, Form, Operations};
use crate::dynamic::{
    AnnotationOutcome, Answers, Binding, BoundPolicy, Inputs, Judged, Meter, OUT_OF_BUDGET, ParamRef, Policy,
    Surroundings, describe, judge,
};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct ValidatingAdmissionPolicy;

/// What is judged between two awaits: some milliseconds. What costs more is judged where it holds up nobody.
const INLINE_COST_MAX: u64 = 100_000;
/// What all policies, bindings and parameters together may cost for one request: some seconds.
const REQUEST_COST_MAX: u64 = 50_000_000;
/// A policy that asks the authorizer something new each time it is run is run no more often than this.
const ROUNDS_MAX: usize = 64;
/// What the parameters of one binding may take.
const PARAMS_BYTES_MAX: usize = 4 << 20;
/// Longer audit annotations are cut.
const ANNOTATION_LEN_MAX: usize = 10 * 1024;

impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        // Questions are asked of nobody but whom they are for.
        let is_question = matches!(kind.group, "authentication.k8s.io" | "authorization.k8s.io");
        super::by_rules(Interest::validate(Operations::ALL), kind).when(!is_question)
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        notes: &'a mut Notes,
    ) -> Verdict<'a> {
        if request.rules.policies.is_empty() {
            return done();
        }
        Box::pin(async move {
            let namespace = super::namespace_of(request, world).await?;
            let namespace = namespace.as_ref();
            let around = Surroundings { object, namespace };
            let mut court =
                Court { request, around, world, notes, answers: Arc::default(), spent: 0, denied: None };
            for bound in &request.rules.policies {
                court.hear(bound).await?;
            }
            court.denied.map_or(Ok(()), Err)
        })
    }
}

/// All policies about one request.
struct Court<'a> {
    request: &'a Attributes<'a>,
    around: Surroundings<'a>,
    world: &'a dyn World,
    notes: &'a mut Notes,
    answers: Arc<Answers>,
    spent: u64,
    /// The first refusal.
    denied: Option<Status>,
}

impl Court<'_> {
    async fn hear(&mut self, bound: &BoundPolicy) -> Result<(), Status> {
        let BoundPolicy { name, policy, bindings } = bound;
        let form = match policy.matcher.form(self.request, &self.around) {
            Ok(Some(form)) => form,
            Ok(None) => return Ok(()),
            Err(status) => {
                self.misconfigured(bound, None, &status.message);
                return Ok(());
            }
        };
        let param_resource = match &policy.param_kind {
            None => None,
            Some(kind) => {
                let found = self.world.resource(&kind.group, Some(&kind.version), &kind.kind).await?;
                if found.is_none() {
                    let GroupVersionKind { group, version, kind } = kind;
                    let why = format!(
                        "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
                    );
                    self.misconfigured(bound, None, &why);
                    return Ok(());
                }
                found
            }
        };
        let mut annotations: Vec<(SmolStr, Vec<String>)> = Vec::new();
        for binding in bindings {
            let narrows = binding.matcher.as_ref().map(|matcher| matcher.narrows(self.request, &self.around));
            match narrows {
                None | Some(Ok(true)) => {}
                Some(Ok(false)) => continue,
                Some(Err(status)) => {
                    self.misconfigured(bound, Some(binding), &status.message);
                    continue;
                }
            }
            let params = match &param_resource {
                Some((resource, namespaced)) => {
                    self.params(policy, resource, *namespaced, binding.params.as_ref()).await?
                }
                None => Ok(vec![None]),
            };
            match params {
                Err(why) => self.misconfigured(bound, Some(binding), &why),
                Ok(params) => {
                    for param in params {
                        let judged = self.judge(policy, &form, param.as_ref()).await?;
                        self.conclude(name, binding, judged, &mut annotations);
                    }
                }
            }
        }
        for (key, values) in annotations {
            self.notes.audit(format!("{name}/{key}"), values.join(", "));
        }
        Ok(())
    }

    /// The parameters a binding means; none means that the policy is not asked.
    async fn params(
        &self,
        policy: &Policy,
        resource: &GroupResource,
        namespaced: bool,
        wanted: Option<&ParamRef>,
    ) -> Result<Result<Vec<Option<Value>>, String>, Status> {
        let (Some(kind), Some(wanted)) = (&policy.param_kind, wanted) else { return Ok(Ok(vec![None])) };
        let namespace = match (namespaced, wanted.namespace.as_str()) {
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
                let mut bytes = 0;
                let mut keep = |one: crate::world::Found| {
                    if selector.matches(|key| one.value.str_at(&["metadata", "labels", key])) {
                        bytes += one.value.to_vec().len();
                        if bytes <= PARAMS_BYTES_MAX {
                            found.push(one);
                        }
                    }
                };
                self.world.each(resource, namespace, &mut keep).await?;
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
        let typed = |found: crate::world::Found| {
            let mut value = found.value;
            value.set_at(&["kind"], kind.kind.clone());
            value.set_at(&["apiVersion"], kind.group_version().to_string());
            Some(value)
        };
        Ok(Ok(found.into_iter().map(typed).collect()))
    }

    /// Runs a policy until nothing it asks the authorizer is new.
    async fn judge(
        &mut self,
        policy: &Arc<Policy>,
        form: &Form,
        params: Option<&Value>,
    ) -> Result<Judged, Status> {
        let (object, old) = (self.around.object, self.request.old);
        let (object, old) = (self.shown(object, form).await?, self.shown(old, form).await?);
        let is_namespace = self.request.kind.kind == "Namespace" && self.request.kind.group.is_empty();
        let namespace = self.around.namespace.filter(|_| !is_namespace);
        let described = describe(self.request, form);
        for _ in 0..ROUNDS_MAX {
            if self.spent > REQUEST_COST_MAX {
                break;
            }
            let mut meter = Meter::new(INLINE_COST_MAX);
            let mut judged = {
                let inputs = Inputs {
                    object: object.as_deref(),
                    old: old.as_deref(),
                    namespace,
                    request: &described,
                    params,
                    answers: &self.answers,
                };
                judge(policy, &inputs, &mut meter)
            };
            self.spent = self.spent.saturating_add(meter.spent);
            if meter.ran_out {
                let case = Case {
                    policy: policy.clone(),
                    object: object.as_deref().cloned(),
                    old: old.as_deref().cloned(),
                    namespace: namespace.cloned(),
                    request: described.clone(),
                    params: params.cloned(),
                    answers: self.answers.clone(),
                };
                let (found, spent) = case.judge_aside(self.world).await?;
                judged = found;
                self.spent = self.spent.saturating_add(spent);
            }
            let open = self.answers.take_open();
            if open.is_empty() {
                return Ok(judged);
            }
            for asked in open {
                let decision = self.world.decide(&asked).await?;
                self.answers.learn(asked, decision);
            }
        }
        Ok(Judged::failed(OUT_OF_BUDGET.into(), policy.fail))
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

    fn conclude(
        &mut self,
        policy: &str,
        binding: &Binding,
        judged: Judged,
        annotations: &mut Vec<(SmolStr, Vec<String>)>,
    ) {
        for denial in judged.denials {
            let message = &denial.message;
            if binding.does("Audit") {
                let actions: Vec<Value> = binding.actions.iter().map(Value::from).collect();
                let index = i64::try_from(denial.index).unwrap_or_default();
                let failure = json!([{
                    "message": (message.clone()), "policy": policy, "binding": (binding.name.clone()),
                    "expressionIndex": index, "validationActions": actions,
                }]);
                self.notes
                    .audit("validation.policy.admission.k8s.io/validation_failure", failure.to_string());
            }
            if binding.does("Warn") {
                let name = &binding.name;
                self.notes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{name}': {message}"
                ));
            }
            if binding.does("Deny") {
                self.deny(policy, Some(binding), message, &denial.reason);
            }
        }
        for (key, outcome) in judged.annotations {
            match outcome {
                AnnotationOutcome::Error(error) => self.deny(policy, Some(binding), &error, ""),
                AnnotationOutcome::Publish(mut text) => {
                    if text.len() > ANNOTATION_LEN_MAX {
                        text.truncate(text.floor_char_boundary(ANNOTATION_LEN_MAX));
                    }
                    match annotations.iter_mut().find(|(own, _)| *own == key) {
                        Some((_, values)) if values.contains(&text) => {}
                        Some((_, values)) => values.push(text),
                        None => annotations.push((key, vec![text])),
                    }
                }
            }
        }
    }

    /// A policy or binding that cannot be used: its failure policy says what that means.
    fn misconfigured(&mut self, bound: &BoundPolicy, binding: Option<&Binding>, why: &str) {
        if bound.policy.fail {
            let what = if binding.is_some() { "binding" } else { "policy" };
            self.deny(&bound.name, binding, &format!("failed to configure {what}: {why}"), "");
        }
    }

    fn deny(&mut self, policy: &str, binding: Option<&Binding>, message: &str, reason: &str) {
        if self.denied.is_some() {
            return;
        }
        let message = match binding {
            Some(Binding { name, .. }) => {
                format!(
                    "ValidatingAdmissionPolicy '{policy}' with binding '{name}' denied request: {message}"
                )
            }
            None => format!("ValidatingAdmissionPolicy '{policy}' denied request: {message}"),
        };
        let mut status = self.request.forbidden(&message).with_cause("", message, "");
        (status.reason, status.code) = match reason {
            "Forbidden" => (Some(Reason::Forbidden), 403),
            "Unauthorized" => (Some(Reason::Unauthorized), 401),
            "RequestEntityTooLarge" => (Some(Reason::RequestEntityTooLarge), 413),
            _ => (Some(Reason::Invalid), 422),
        };
        self.denied = Some(status);
    }
}

/// All that judging takes, without a borrow: for work that happens elsewhere.
struct Case {
    policy: Arc<Policy>,
    object: Option<Value>,
    old: Option<Value>,
    namespace: Option<Value>,
    request: Value,
    params: Option<Value>,
    answers: Arc<Answers>,
}

impl Case {
    async fn judge_aside(self, world: &dyn World) -> Result<(Judged, u64), Status> {
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
            let judged = judge(&self.policy, &inputs, &mut meter);
            *result.lock() = Some((judged, meter.spent));
        };
        world.aside(Box::new(work)).await?;
        let judged = slot.lock().take();
        judged.ok_or_else(|| Status::internal("a policy could not be run"))
    }
}
