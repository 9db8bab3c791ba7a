//! The metrics of an autoscaler: each is fetched and asked, and the one that wants most is followed.

use std::sync::Arc;

use polder_client::InPlane;
use polder_model::quantity::Quantity;
use polder_model::selector::LabelSelector;
use polder_model::{SmolStr, Value, json};

use super::metrics;
use super::replicas::{Proposal, Target, Tolerance, by_average, by_pods, by_value, requests};

const TOLERANCE: f64 = 0.1;

/// What is known when metrics are asked.
pub(super) struct Asking<'a> {
    pub plane: &'a InPlane,
    pub namespace: &'a str,
    pub selector: &'a LabelSelector,
    pub pods: &'a [Arc<Value>],
    /// How many the target is asked for, and how many there are.
    pub current: i64,
    pub existing: i64,
    pub tolerance: Tolerance,
    pub now: i64,
}

/// Why a metric says nothing.
pub(super) struct Failure {
    pub reason: &'static str,
    pub message: String,
    /// The same, as a part of what is wrong with all.
    whole: String,
}

/// What a metric says, how that is described, and what the status tells of it.
struct Answer {
    proposal: Proposal,
    name: String,
    status: Value,
}

/// What all of them say.
pub(super) struct Outcome {
    /// How many, and by which metric; nothing when that cannot be said.
    pub desired: Option<(i64, String)>,
    pub statuses: Vec<Value>,
    pub failures: Vec<Failure>,
    /// What is wrong, if something is.
    pub error: String,
}

impl Outcome {
    pub(super) fn failed(error: String) -> Outcome {
        Outcome { desired: None, statuses: Vec::new(), failures: Vec::new(), error }
    }
}

pub(super) fn tolerance(autoscaler: &Value) -> Tolerance {
    let own = |direction: &str| {
        let value = autoscaler.at(&["spec", "behavior", direction, "tolerance"])?;
        Some(Quantity::from_value(value).ok()?.as_f64())
    };
    Tolerance { down: own("scaleDown").unwrap_or(TOLERANCE), up: own("scaleUp").unwrap_or(TOLERANCE) }
}

impl Asking<'_> {
    pub(super) async fn all(&self, specs: &[Value]) -> Outcome {
        let mut outcome = Outcome::failed(String::new());
        let mut best: Option<(i64, String)> = None;
        for spec in specs {
            match self.one(spec).await {
                Ok(answer) => {
                    let replicas = answer.proposal.replicas;
                    if best.as_ref().is_none_or(|(most, _)| *most == 0 || replicas > *most) {
                        best = Some((replicas, answer.name));
                    }
                    outcome.statuses.push(answer.status);
                }
                Err(failure) => {
                    outcome.failures.push(failure);
                    // Others keep their places.
                    outcome.statuses.push(json!({"type": ""}));
                }
            }
        }
        if let Some(first) = outcome.failures.first() {
            let (count, whole) = (outcome.failures.len(), &first.whole);
            outcome.error =
                format!("invalid metrics ({count} invalid out of {}), first error is: {whole}", specs.len());
        }
        if outcome.failures.len() == specs.len() {
            outcome.statuses.clear();
            return outcome;
        }
        // Nobody scales down while something is not known.
        let fewer = best.as_ref().is_some_and(|(replicas, _)| *replicas < self.current);
        outcome.desired = best.filter(|_| outcome.failures.is_empty() || !fewer);
        outcome
    }

    async fn one(&self, spec: &Value) -> Result<Answer, Failure> {
        let kind = spec.str_at(&["type"]).unwrap_or_default();
        let (field, reason) = match kind {
            "Resource" => ("resource", "FailedGetResourceMetric"),
            "ContainerResource" => ("containerResource", "FailedGetContainerResourceMetric"),
            "Pods" => ("pods", "FailedGetPodsMetric"),
            "Object" => ("object", "FailedGetObjectMetric"),
            "External" => ("external", "FailedGetExternalMetric"),
            _ => {
                let message = format!("unknown metric source type {kind:?}");
                return Err(Failure { reason: "InvalidMetricSourceType", whole: message.clone(), message });
            }
        };
        let empty = Value::Null;
        let source = spec.get(field).unwrap_or(&empty);
        let text = |path: &[&str]| SmolStr::new(source.str_at(path).unwrap_or_default());
        let (name, metric) = (text(&["name"]), text(&["metric", "name"]));
        let result = match kind {
            "Resource" => self.of_resource(source, &name, "", field).await,
            "ContainerResource" => self.of_resource(source, &name, &text(&["container"]), field).await,
            "Pods" => self.of_pods(source, &metric).await,
            "Object" => self.object(source, &metric).await,
            _ => self.external(source, &metric).await,
        };
        result.map_err(|message| {
            let has = |field| quantity(source, field).is_some();
            // Only the whole says it twice.
            let again = match kind {
                "Object" if has("averageValue") && !has("value") => {
                    format!("failed to get {metric} object metric: ")
                }
                "External" if has("averageValue") => format!("failed to get {metric} external metric: "),
                "External" if has("value") => format!("failed to get external metric {metric}: "),
                _ => String::new(),
            };
            let what = match kind {
                "Resource" => format!("{name} resource metric"),
                "ContainerResource" => format!("{} container metric", text(&["container"])),
                "Pods" => "pods metric".into(),
                "Object" => "object metric".into(),
                _ => format!("{metric} external metric"),
            };
            let whole = format!("failed to get {what} value: {again}{message}");
            Failure { reason, message, whole }
        })
    }

    async fn of_resource(
        &self,
        source: &Value,
        resource: &str,
        container: &str,
        field: &str,
    ) -> Result<Answer, String> {
        let average = quantity(source, "averageValue");
        let what = if average.is_some() { "usage" } else { "utilization" };
        let failed = |why: String| format!("failed to get {resource} {what}: {why}");
        let percent = source.i64_at(&["target", "averageUtilization"]);
        if average.is_none() && percent.is_none() {
            return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".into());
        }
        let samples =
            metrics::of_pods(self.plane, self.namespace, self.selector, self.pods, resource, container).await;
        let samples = samples.map_err(failed)?;
        let target = match (average, percent) {
            (Some(average), _) => Target::Average(average),
            (None, percent) => Target::Utilization {
                percent: percent.unwrap_or_default(),
                requests: requests(self.pods, container, resource).map_err(failed)?,
            },
        };
        let proposal = by_pods(samples, self.pods, self.current, &target, resource, self.tolerance, self.now);
        let proposal = proposal.map_err(failed)?;
        let mut current = json!({"averageValue": (shown(proposal.usage))});
        if let Some(percent) = proposal.percent {
            current.set_at(&["averageUtilization"], percent.min(i64::from(i32::MAX)));
        }
        let name = match (proposal.percent, container) {
            (None, _) => format!("{resource} resource"),
            (Some(_), "") => format!("{resource} resource utilization (percentage of request)"),
            (Some(_), _) => format!("{resource} container resource utilization (percentage of request)"),
        };
        let mut told = json!({"name": resource, "current": current});
        if !container.is_empty() {
            told.set_at(&["container"], container);
        }
        let kind = if field == "resource" { "Resource" } else { "ContainerResource" };
        let mut status = json!({"type": kind});
        status.set_at(&[field], told);
        Ok(Answer { proposal, name, status })
    }

    async fn of_pods(&self, source: &Value, metric: &str) -> Result<Answer, String> {
        let selector = source.at(&["metric", "selector"]).filter(|selector| !selector.is_null());
        let target = quantity(source, "averageValue").unwrap_or(1);
        let fetch = metrics::custom_of_pods(self.plane, self.namespace, self.selector, metric, selector);
        let (samples, target) = (fetch.await?, Target::Average(target));
        let proposal = by_pods(samples, self.pods, self.current, &target, "", self.tolerance, self.now)?;
        let status = json!({"type": "Pods", "pods": {
            "metric": (identifier(source)), "current": {"averageValue": (shown(proposal.usage))},
        }});
        Ok(Answer { proposal, name: format!("pods metric {metric}"), status })
    }

    async fn object(&self, source: &Value, metric: &str) -> Result<Answer, String> {
        let selector = source.at(&["metric", "selector"]).filter(|selector| !selector.is_null());
        let empty = Value::Null;
        let object = source.get("describedObject").unwrap_or(&empty);
        let fetch = metrics::custom_of_object(self.plane, self.namespace, object, metric, selector);
        let kind = source.str_at(&["target", "type"]);
        let (proposal, field, name) = if let Some(target) =
            quantity(source, "value").filter(|_| kind == Some("Value"))
        {
            let usage = fetch.await?;
            let proposal = by_value(usage, target, self.pods, self.current, self.tolerance)?;
            let described = object.str_at(&["kind"]).unwrap_or_default();
            (proposal, "value", format!("{described} metric {metric}"))
        } else if let Some(target) = quantity(source, "averageValue").filter(|_| kind == Some("AverageValue"))
        {
            let proposal = by_average(fetch.await?, target, self.existing, self.tolerance);
            let name = format!("external metric {metric}({})", metrics::described(selector));
            (proposal, "averageValue", name)
        } else {
            return Err(
                "invalid object metric source: neither a value target nor an average value target was set"
                    .into(),
            );
        };
        let mut told = json!({
            "describedObject": (object.clone()), "metric": (identifier(source)), "current": {},
        });
        told.set_at(&["current", field], shown(proposal.usage));
        Ok(Answer { proposal, name, status: json!({"type": "Object", "object": told}) })
    }

    async fn external(&self, source: &Value, metric: &str) -> Result<Answer, String> {
        let selector = source.at(&["metric", "selector"]).filter(|selector| !selector.is_null());
        let fetch = metrics::external(self.plane, self.namespace, metric, selector);
        let (proposal, field) = if let Some(target) = quantity(source, "averageValue") {
            (by_average(fetch.await?, target, self.existing, self.tolerance), "averageValue")
        } else if let Some(target) = quantity(source, "value") {
            (by_value(fetch.await?, target, self.pods, self.current, self.tolerance)?, "value")
        } else {
            return Err(
                "invalid external metric source: neither a value target nor an average value target was set"
                    .into(),
            );
        };
        let mut told = json!({"metric": (identifier(source)), "current": {}});
        told.set_at(&["current", field], shown(proposal.usage));
        let name = format!("external metric {metric}({})", metrics::described(selector));
        Ok(Answer { proposal, name, status: json!({"type": "External", "external": told}) })
    }
}

/// Which metric it is.
fn identifier(source: &Value) -> Value {
    source.get("metric").cloned().unwrap_or_default()
}

/// A target in thousandths. Nothing can be compared with zero.
fn quantity(source: &Value, field: &str) -> Option<i64> {
    let value = source.at(&["target", field]).filter(|value| !value.is_null())?;
    Quantity::from_value(value).ok().map(|quantity| quantity.as_milli().max(1))
}

fn shown(milli: i64) -> String {
    Quantity::from_milli(milli).to_string()
}
