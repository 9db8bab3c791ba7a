//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook: servers that the plane names are asked about its writes.
//!
//! Those that change objects are asked one after the other, those that judge some at a time. A webhook that does not
//! answer costs a request its time and nobody else anything.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use parking_lot::Mutex;
use polder_machinery::patch::apply_json_patch;
use polder_model::{Status, Value, json};

use crate::attributes::{Attributes, Form, Operations};
use crate::dynamic::{
    Accepted, Answers, Inputs, Matched, Meter, Surroundings, Webhook, describe, read_answer, review,
};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict, done};
use crate::world::World;

pub(super) struct MutatingAdmissionWebhook;
pub(super) struct ValidatingAdmissionWebhook;

/// Conditions that cost more than some milliseconds are looked at where that holds up nobody.
const INLINE_COST_MAX: u64 = 100_000;
/// How often conditions are run because they ask the authorizer something new.
const ROUNDS_MAX: usize = 64;
/// How many webhooks judge a request at one time: each has a copy of it.
const JUDGES_MAX: usize = 8;

impl Plugin for MutatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "MutatingAdmissionWebhook"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        super::by_rules(Interest::admit(Operations::ALL), kind)
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
        if request.rules.mutating.is_empty() {
            return done();
        }
        Box::pin(change(request, object, world, notes))
    }
}

impl Plugin for ValidatingAdmissionWebhook {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        super::by_rules(Interest::validate(Operations::ALL), kind)
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
        if request.rules.validating.is_empty() {
            return done();
        }
        Box::pin(judge(request, object, world, notes))
    }
}

async fn change(
    request: &Attributes<'_>,
    object: &mut Value,
    world: &dyn World,
    notes: &mut Notes,
) -> Result<(), Status> {
    let namespace = super::namespace_of(request, world).await?;
    let second = notes.rounds.second;
    if second {
        notes.rounds.webhooks.begin_again(object);
    }
    let round = i32::from(second);
    for (index, webhook) in request.rules.mutating.iter().enumerate() {
        let sent = (!object.is_null()).then_some(&*object);
        let around = Surroundings { object: sent, namespace: namespace.as_ref() };
        let Some(called) = Called::of(webhook, request, &around, world).await? else { continue };
        // Whoever was not asked in the first round is not asked in the second.
        if second && !notes.rounds.webhooks.is_wanted(&webhook.id) {
            continue;
        }
        let answer =
            called.ask(request, world, true, request.seed ^ (index as u64 + 1) ^ u64::from(second) << 32);
        let place = format!("round_{round}_index_{index}");
        let outcome = match answer.await {
            Ok(accepted) => {
                tell(webhook, &accepted, notes);
                match accepted.refusal {
                    Some(refusal) => Err(Failure::Refused(refusal)),
                    None => called.patched(&accepted.patch, request, world),
                }
            }
            Err(failure) => Err(failure),
        };
        let changed = matches!(&outcome, Ok(Some(new)) if new != object);
        let mutated = json!({
            "configuration": (webhook.configuration.clone()), "webhook": (webhook.name.clone()), "mutated": changed,
        });
        notes.audit(format!("mutation.webhook.admission.k8s.io/{place}"), mutated.to_string());
        if let Ok(Some(new)) = outcome.as_ref()
            && changed
        {
            object.clone_from(new);
            notes.rounds.webhooks.ask_again();
            notes.rounds.wanted = true;
        }
        if webhook.again {
            notes.rounds.webhooks.note(webhook.id.clone());
        }
        match outcome {
            Ok(_) => {}
            Err(Failure::Call(_)) if !webhook.fail => {
                let key = format!("failed-open.mutation.webhook.admission.k8s.io/{place}");
                notes.audit(key, webhook.name.to_string());
            }
            Err(failure) => return Err(failure.status(webhook)),
        }
    }
    notes.rounds.webhooks.leave(object);
    Ok(())
}

/// A webhook on its way to a verdict.
type Asking<'a> =
    Pin<Box<dyn Future<Output = (&'a Arc<Webhook>, Option<Result<Accepted, Failure>>)> + Send + 'a>>;

async fn judge(
    request: &Attributes<'_>,
    object: Option<&Value>,
    world: &dyn World,
    notes: &mut Notes,
) -> Result<(), Status> {
    let namespace = super::namespace_of(request, world).await?;
    let around = Surroundings { object, namespace: namespace.as_ref() };
    // What each of them is shown is made when it is asked.
    let mut asking: Vec<Asking<'_>> = Vec::new();
    for (number, webhook) in request.rules.validating.iter().enumerate() {
        asking.push(Box::pin(judged(number, webhook, request, &around, world)));
    }
    // They end in their order, so that the first refusal is the same each time.
    let mut answers = stream::iter(asking).buffered(JUDGES_MAX);
    let (mut refused, mut asked) = (None, 0);
    while let Some((webhook, outcome)) = answers.next().await {
        let Some(outcome) = outcome else { continue };
        let index = asked;
        asked += 1;
        let failure = match outcome {
            Ok(accepted) => {
                tell(webhook, &accepted, notes);
                accepted.refusal.map(Failure::Refused)
            }
            Err(Failure::Call(_)) if !webhook.fail => {
                let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                notes.audit(key, webhook.name.to_string());
                None
            }
            Err(failure) => Some(failure),
        };
        refused = refused.or(failure.map(|failure| failure.status(webhook)));
    }
    refused.map_or(Ok(()), Err)
}

/// Asks a webhook, if the request is any of its business.
async fn judged<'a>(
    number: usize,
    webhook: &'a Arc<Webhook>,
    request: &'a Attributes<'a>,
    around: &'a Surroundings<'a>,
    world: &'a dyn World,
) -> (&'a Arc<Webhook>, Option<Result<Accepted, Failure>>) {
    let outcome = match Called::of(webhook, request, around, world).await {
        Ok(Some(called)) => Some(called.ask(request, world, false, request.seed ^ (number as u64 + 1)).await),
        Ok(None) => None,
        Err(status) => Some(Err(Failure::Refused(status))),
    };
    (webhook, outcome)
}

fn tell(webhook: &Webhook, accepted: &Accepted, notes: &mut Notes) {
    accepted.warnings.iter().for_each(|warning| notes.warn(warning.as_str()));
    for (key, text) in &accepted.annotations {
        notes.audit(format!("{}/{key}", webhook.name), text.as_str());
    }
}

/// Why a webhook did not let a request pass.
enum Failure {
    /// Nobody knows what it would have said: the text of the call.
    Call(String),
    /// It said so, or nothing else makes sense.
    Refused(Status),
}

impl Failure {
    fn status(self, webhook: &Webhook) -> Status {
        match self {
            Failure::Call(why) => {
                let text = format!("failed calling webhook {:?}: {why}", webhook.name);
                Status::internal(text.as_str()).with_cause("", text, "")
            }
            Failure::Refused(status) => status,
        }
    }
}

/// A webhook that is about a request, and the request as it wants to see it.
struct Called<'a> {
    webhook: &'a Arc<Webhook>,
    form: Form,
    described: Value,
    object: Option<Cow<'a, Value>>,
    old: Option<Cow<'a, Value>>,
}

impl<'a> Called<'a> {
    async fn of(
        webhook: &'a Arc<Webhook>,
        request: &Attributes<'a>,
        around: &Surroundings<'a>,
        world: &dyn World,
    ) -> Result<Option<Called<'a>>, Status> {
        let Some(form) = webhook.matcher.form(request, around)? else { return Ok(None) };
        let same = form.kind == *request.kind;
        let shown = |object: Option<&'a Value>| {
            object.map(|object| match same {
                true => Cow::Borrowed(object),
                false => Cow::Owned(world.converted(object, &form.kind)),
            })
        };
        let (object, old) = (shown(around.object), shown(request.old));
        let described = describe(request, &form);
        let called = Called { webhook, form, described, object, old };
        if webhook.conditions.is_empty() {
            return Ok(Some(called));
        }
        match called.is_meant(world).await? {
            Matched::Yes => Ok(Some(called)),
            Matched::No => Ok(None),
            Matched::Unknown(why) => Err(Status::forbidden(request.resource, request.own_name, &why)),
        }
    }

    /// Whether its conditions hold, asked until nothing they ask the authorizer is new.
    async fn is_meant(&self, world: &dyn World) -> Result<Matched, Status> {
        let answers = Arc::new(Answers::default());
        for _ in 0..ROUNDS_MAX {
            let mut meter = Meter::new(INLINE_COST_MAX);
            let mut matched = {
                let inputs = Inputs {
                    object: self.object.as_deref(),
                    old: self.old.as_deref(),
                    namespace: None,
                    request: &self.described,
                    params: None,
                    answers: &answers,
                };
                self.webhook.conditions.hold(&inputs, self.webhook.fail, &mut meter)
            };
            if meter.ran_out {
                matched = self.is_meant_aside(&answers, world).await?;
            }
            let open = answers.take_open();
            if open.is_empty() {
                return Ok(matched);
            }
            for asked in open {
                let decision = world.decide(&asked).await?;
                answers.learn(asked, decision);
            }
        }
        Ok(Matched::Unknown("match conditions ask the authorizer too many questions".into()))
    }

    async fn is_meant_aside(&self, answers: &Arc<Answers>, world: &dyn World) -> Result<Matched, Status> {
        let (object, old) = (self.object.as_deref().cloned(), self.old.as_deref().cloned());
        let (webhook, request, answers) = (self.webhook.clone(), self.described.clone(), answers.clone());
        let slot = Arc::new(Mutex::new(None));
        let result = slot.clone();
        let work = move || {
            let inputs = Inputs {
                object: object.as_ref(),
                old: old.as_ref(),
                namespace: None,
                request: &request,
                params: None,
                answers: &answers,
            };
            let mut meter = Meter::new(u64::MAX);
            *result.lock() = Some(webhook.conditions.hold(&inputs, webhook.fail, &mut meter));
        };
        world.aside(Box::new(work)).await?;
        let matched = slot.lock().take();
        matched.ok_or_else(|| Status::internal("match conditions could not be run"))
    }

    async fn ask(
        &self,
        request: &Attributes<'_>,
        world: &dyn World,
        mutating: bool,
        seed: u64,
    ) -> Result<Accepted, Failure> {
        let webhook = self.webhook;
        if request.dry_run && !webhook.dry_runs {
            let text = format!("admission webhook {:?} does not support dry run", webhook.name);
            return Err(Failure::Refused(Status::bad_request(text)));
        }
        let Some(version) = webhook.version else {
            let text = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            return Err(Failure::Call(text.into()));
        };
        let (object, old) = (self.object.as_deref(), self.old.as_deref());
        let (uid, body) = review(version, &self.described, object, old, seed);
        let called = world.call(&webhook.endpoint, body, webhook.timeout).await;
        let body = called.map_err(|text| Failure::Call(format!("failed to call webhook: {text}")))?;
        read_answer(&webhook.name, version, mutating, &uid, &body).map_err(Failure::Call)
    }

    /// The object with a patch; `None` when the patch is empty.
    fn patched(
        &self,
        patch: &[u8],
        request: &Attributes<'_>,
        world: &dyn World,
    ) -> Result<Option<Value>, Failure> {
        if patch.is_empty() {
            return Ok(None);
        }
        let undecodable = |why: &dyn std::fmt::Display| {
            Failure::Call(format!("received undecodable patch in webhook response: {why}"))
        };
        let patch = Value::parse(patch).map_err(|error| undecodable(&error))?;
        let operations = patch.as_array().ok_or_else(|| undecodable(&"it is no list"))?;
        if operations.is_empty() {
            return Ok(None);
        }
        let internal = |why: String| Failure::Refused(Status::internal(why.as_str()).with_cause("", why, ""));
        let Some(object) = self.object.as_deref() else {
            let name = &self.webhook.name;
            return Err(internal(format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            )));
        };
        let patched =
            apply_json_patch(object.clone(), &patch).map_err(|error| internal(error.to_string()))?;
        let mut new = match self.form.kind == *request.kind {
            true => patched,
            false => world.converted(&patched, request.kind),
        };
        world.shape(&mut new).map_err(|status| internal(status.message))?;
        Ok(Some(new))
    }
}
