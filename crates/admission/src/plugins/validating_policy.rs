//! ValidatingAdmissionPolicy: policies of the plane, in CEL.

use polder_model::{Reason, SmolStr, Status, Value, json};

use super::policies::Bench;
use crate::attributes::{Attributes, Operations};
use crate::dynamic::{
    AnnotationOutcome, Binding, BoundPolicy, Inputs, Judged, Meter, OUT_OF_BUDGET, Policy, Surroundings,
    judge,
};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct ValidatingAdmissionPolicy;

/// Longer audit annotations are cut.
const ANNOTATION_LEN_MAX: usize = 10 * 1024;

impl Plugin for ValidatingAdmissionPolicy {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionPolicy"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        super::by_rules(Interest::validate(Operations::ALL), kind).when(!super::is_question(kind))
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
            let bench = Bench::new(request, world, namespace);
            let mut court = Court { request, around, bench, notes, denied: None };
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
    bench: Bench<'a>,
    notes: &'a mut Notes,
    /// The first refusal.
    denied: Option<Status>,
}

impl Court<'_> {
    async fn hear(&mut self, bound: &BoundPolicy<Policy>) -> Result<(), Status> {
        let BoundPolicy { name, policy, bindings } = bound;
        let concern = match self.bench.concern(&policy.basis, &self.around).await? {
            Ok(Some(concern)) => concern,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(bound, None, &why);
                return Ok(());
            }
        };
        let mut annotations: Vec<(SmolStr, Vec<String>)> = Vec::new();
        for binding in bindings {
            match self.bench.params(&policy.basis, &concern, binding, &self.around).await? {
                Err(why) => self.misconfigured(bound, Some(binding), &why),
                Ok(params) => {
                    for param in params {
                        let own = policy.clone();
                        let verdict =
                            move |inputs: &Inputs<'_>, meter: &mut Meter| judge(&own, inputs, meter);
                        let object = self.around.object;
                        let judged = self.bench.run(object, &concern.form, param.as_ref(), verdict).await?;
                        let spent = || Judged::failed(OUT_OF_BUDGET.into(), policy.basis.fail);
                        self.conclude(name, binding, judged.unwrap_or_else(spent), &mut annotations);
                    }
                }
            }
        }
        for (key, values) in annotations {
            self.notes.audit(format!("{name}/{key}"), values.join(", "));
        }
        Ok(())
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
    fn misconfigured(&mut self, bound: &BoundPolicy<Policy>, binding: Option<&Binding>, why: &str) {
        if bound.policy.basis.fail {
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
