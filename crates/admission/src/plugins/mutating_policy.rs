//! MutatingAdmissionPolicy: policies of the plane that change objects, in CEL.
//!
//! They run one after the other in the order of their names, each on what those before it left; which of them a request
//! concerns is decided before any of them has changed something, as upstream does.

use polder_machinery::patch::{PatchError, apply_json_patch};
use polder_model::{GroupVersionKind, Reason, SmolStr, Status, Value, format_smolstr};

use super::policies::{Bench, Concern};
use crate::attributes::{Attributes, Operation, Operations};
use crate::dynamic::{
    Binding, BoundPolicy, CHANGE_BYTES_MAX, Change, Inputs, Matched, Meter, MutatingPolicy, OUT_OF_BUDGET,
    Surroundings,
};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct MutatingAdmissionPolicy;

/// More refusals of one request are not told.
const ERRORS_MAX: usize = 64;
/// What an object may grow to: none that is larger can be sent.
const OBJECT_BYTES_MAX: usize = CHANGE_BYTES_MAX;

impl Plugin for MutatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "MutatingAdmissionPolicy"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        // There is nothing to change when something is deleted.
        let operations = Operations::WRITE.and(Operations::CONNECT);
        super::by_rules(Interest::admit(operations), kind).when(!super::is_question(kind))
    }

    fn is_dynamic(&self) -> bool {
        true
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: &'a mut Value,
        world: &'a dyn World,
        notes: &'a mut Notes,
    ) -> Verdict<'a> {
        if request.rules.mutating_policies.is_empty() {
            return done();
        }
        Box::pin(async move {
            let namespace = super::namespace_of(request, world).await?;
            if notes.rounds.second {
                notes.rounds.policies.begin_again(object);
            }
            let sent = object.clone();
            let bench = Bench::new(request, world, namespace.as_ref());
            let mut workshop = Workshop { bench, sent: &sent, object, notes, errors: Vec::new() };
            for bound in &request.rules.mutating_policies {
                workshop.ask(bound).await?;
            }
            workshop.notes.rounds.policies.leave(workshop.object);
            workshop.verdict()
        })
    }
}

/// All policies that change one object.
struct Workshop<'a> {
    bench: Bench<'a>,
    /// As it was before any of them.
    sent: &'a Value,
    object: &'a mut Value,
    notes: &'a mut Notes,
    /// What went wrong and matters, and whether that is the policy's fault.
    errors: Vec<(String, Option<Reason>)>,
}

impl Workshop<'_> {
    async fn ask(&mut self, bound: &BoundPolicy<MutatingPolicy>) -> Result<(), Status> {
        let sent = (!self.sent.is_null()).then_some(self.sent);
        let around = Surroundings { object: sent, namespace: self.bench.namespace };
        let basis = &bound.policy.basis;
        let concern = match self.bench.concern(basis, &around).await? {
            Ok(Some(concern)) => concern,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(bound, None, &why);
                return Ok(());
            }
        };
        for binding in &bound.bindings {
            if self.bench.is_spent() {
                self.fail(bound, binding, OUT_OF_BUDGET);
                break;
            }
            match self.bench.params(basis, &concern, binding, &around).await? {
                Err(why) => self.misconfigured(bound, Some(binding), &why),
                Ok(params) => {
                    for param in params {
                        if self.bench.is_spent() {
                            self.fail(bound, binding, OUT_OF_BUDGET);
                            break;
                        }
                        self.invoke(bound, &concern, binding, param.as_ref()).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs a policy with one binding and one set of parameters.
    async fn invoke(
        &mut self,
        bound: &BoundPolicy<MutatingPolicy>,
        concern: &Concern,
        binding: &Binding,
        param: Option<&Value>,
    ) -> Result<(), Status> {
        let policy = &bound.policy;
        let current = (!self.object.is_null()).then_some(&*self.object);
        if !policy.basis.conditions.is_empty() {
            let own = policy.clone();
            let holds = move |inputs: &Inputs<'_>, meter: &mut Meter| {
                own.basis.conditions.hold(inputs, own.basis.fail, meter)
            };
            match self.bench.run(current, &concern.form, param, holds).await? {
                Some(Matched::Yes) => {}
                Some(Matched::No) => return Ok(()),
                Some(Matched::Unknown(why)) => {
                    self.fail(bound, binding, &why);
                    return Ok(());
                }
                None => {
                    self.fail(bound, binding, OUT_OF_BUDGET);
                    return Ok(());
                }
            }
        }
        let who = key(bound, binding, param);
        if self.notes.rounds.second && !self.notes.rounds.policies.is_wanted(&who) {
            return Ok(());
        }
        let mut size = Size::of(self.object);
        // Each conversion is as much work as a change.
        let steps = if concern.form.kind == *self.bench.request.kind { 1 } else { 3 };
        self.bench.charge(size.cost()).await;
        let before = (!policy.mutations.is_empty()).then(|| self.object.clone());
        for index in 0..policy.mutations.len() {
            if self.object.is_null() {
                break;
            }
            if self.bench.is_spent() {
                self.fail(bound, binding, OUT_OF_BUDGET);
                break;
            }
            self.bench.charge(size.cost() * steps).await;
            let own = policy.clone();
            let change = move |inputs: &Inputs<'_>, meter: &mut Meter| own.change(index, inputs, meter);
            let change = self.bench.run(Some(&*self.object), &concern.form, param, change).await?;
            match change.unwrap_or_else(|| Err(OUT_OF_BUDGET.into())) {
                Err(why) => self.fail(bound, binding, &why),
                Ok(change) => match self.changed(change, &concern.form.kind).await? {
                    Ok(Some(new)) => {
                        let new_size = Size::of(&new);
                        if new_size.bytes > OBJECT_BYTES_MAX.max(size.bytes) {
                            let why = format!("the changed object takes more than {OBJECT_BYTES_MAX} bytes");
                            self.fail(bound, binding, &why);
                        } else {
                            (*self.object, size) = (new, new_size);
                        }
                    }
                    Ok(None) => {}
                    Err(why) => self.fail(bound, binding, &why),
                },
            }
        }
        if before.is_some_and(|before| before != *self.object) {
            self.notes.rounds.policies.ask_again();
            self.notes.rounds.wanted = true;
        }
        if policy.again {
            self.notes.rounds.policies.note(who);
        }
        Ok(())
    }

    /// The object with a change, `None` when the change does not apply, or why it cannot be made.
    async fn changed(
        &self,
        change: Change,
        kind: &GroupVersionKind,
    ) -> Result<Result<Option<Value>, String>, Status> {
        let (request, world) = (self.bench.request, self.bench.world);
        if request.operation == Operation::Connect {
            let GroupVersionKind { group, version, kind } = kind;
            let why = format!(
                "Resource kind {group}/{version}, Kind={kind} not found. There can be a delay between when CustomResourceDefinitions are created and when they are available."
            );
            return Err(Status::unavailable(why));
        }
        let same = kind == request.kind;
        let shown = match same {
            true => self.object.clone(),
            false => world.converted(self.object, kind).await?,
        };
        let patched = match change {
            Change::Overlay(mut overlay) => {
                overlay.set_at(&["kind"], kind.kind.clone());
                overlay.set_at(&["apiVersion"], kind.group_version().to_string());
                match world.overlaid(shown, &overlay, kind) {
                    Ok(merged) => merged,
                    Err(why) => return Ok(Err(format!("error applying patch: {why}"))),
                }
            }
            Change::Patch(patch) => match apply_json_patch(shown, &patch) {
                Ok(mut patched) => {
                    // An object stays what it is.
                    if let Some(members) = patched.as_object_mut() {
                        members.insert("kind", kind.kind.clone());
                        members.insert("apiVersion", kind.group_version().to_string());
                    }
                    patched
                }
                Err(PatchError::TestFailed(_)) => return Ok(Ok(None)),
                Err(error) => return Ok(Err(format!("JSON Patch: {error}"))),
            },
        };
        let mut new = match same {
            true => patched,
            false => world.converted(&patched, request.kind).await?,
        };
        world.shape_strictly(&mut new)?;
        Ok(Ok(Some(new)))
    }

    fn misconfigured(&mut self, bound: &BoundPolicy<MutatingPolicy>, binding: Option<&Binding>, why: &str) {
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.note(bound, binding, &format!("failed to configure {what}: {why}"), None);
    }

    fn fail(&mut self, bound: &BoundPolicy<MutatingPolicy>, binding: &Binding, why: &str) {
        self.note(bound, Some(binding), why, Some(Reason::Invalid));
    }

    fn note(
        &mut self,
        bound: &BoundPolicy<MutatingPolicy>,
        binding: Option<&Binding>,
        why: &str,
        reason: Option<Reason>,
    ) {
        if !bound.policy.basis.fail || self.errors.len() >= ERRORS_MAX {
            return;
        }
        let policy = &bound.name;
        let message = match binding {
            Some(Binding { name, .. }) => {
                format!("policy '{policy}' with binding '{name}' denied request: {why}")
            }
            None => format!("policy {policy:?} denied request: {why}"),
        };
        self.errors.push((message, reason));
    }

    fn verdict(self) -> Result<(), Status> {
        let Some((message, reason)) = self.errors.first() else { return Ok(()) };
        let mut status = self.bench.request.forbidden("admission request denied by policy");
        status.message.clone_from(message);
        if let Some(reason) = reason {
            status.reason = Some(*reason);
        }
        for (message, _) in &self.errors {
            status = status.with_cause("", message.as_str(), "");
        }
        Err(status)
    }
}

/// How large a value is.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Never more than it takes as JSON.
    bytes: usize,
    values: usize,
}

impl Size {
    fn of(value: &Value) -> Size {
        let mut size = Size::default();
        size.add(value);
        size
    }

    /// About what copying and checking it takes, in the units of expressions.
    fn cost(self) -> u64 {
        64 + 2 * self.values as u64 + self.bytes as u64 / 16
    }

    fn add(&mut self, value: &Value) {
        self.values += 1;
        self.bytes += 1;
        match value {
            Value::String(text) => self.bytes += text.len(),
            Value::Array(items) => items.iter().for_each(|item| self.add(item)),
            Value::Object(object) => {
                for (key, value) in object.iter() {
                    self.bytes += key.len();
                    self.add(value);
                }
            }
            _ => {}
        }
    }
}

/// Who was asked: policy, binding and parameters.
fn key(bound: &BoundPolicy<MutatingPolicy>, binding: &Binding, param: Option<&Value>) -> SmolStr {
    let of = |field: &str| param.and_then(|param| param.str_at(&["metadata", field])).unwrap_or_default();
    format_smolstr!("{}/{}/{}/{}", bound.name, binding.name, of("namespace"), of("name"))
}
