//! Where numbers come from: the metrics APIs, if an extension server of the plane, or the plane itself, serves them. What
//! their answers mean is in `samples`.
//!
//! A plane without `metrics.k8s.io` takes what pods use from their own annotations: there are no real pods then that anybody
//! could measure, and people want to see autoscalers work on simulated nodes.

use std::sync::Arc;

use polder_client::InPlane;
use polder_client::extension::{ExtensionRequest, ExtensionVerb};
use polder_model::selector::LabelSelector;
use polder_model::{GroupResource, GroupVersionResource, Status, Value};

use super::replicas::Samples;
use super::samples::{items, of_containers, of_object, quantity, simulated};

/// In whose name extension servers are asked.
const ACCOUNT: &str = "horizontal-pod-autoscaler";
const POD_METRICS: (&str, &str, &str) = ("metrics.k8s.io", "v1beta1", "pods");
const EXTERNAL: (&str, &str) = ("external.metrics.k8s.io", "v1beta1");
/// The version that says most first.
const CUSTOM: (&str, [&str; 2]) = ("custom.metrics.k8s.io", ["v1beta2", "v1beta1"]);
const NOT_SERVED: &str = "the server could not find the requested resource";

fn request(group: &str, version: &str) -> ExtensionRequest {
    ExtensionRequest::new(ACCOUNT, ExtensionVerb::Get, group, version)
}

/// What pods use of a resource: all containers of each, or one.
pub(super) async fn of_pods(
    plane: &InPlane,
    namespace: &str,
    selector: &LabelSelector,
    pods: &[Arc<Value>],
    resource: &str,
    container: &str,
) -> Result<Samples, String> {
    let failed = |why: String| {
        format!(
            "unable to get metrics for resource {resource}: unable to fetch metrics from resource metrics API: {why}"
        )
    };
    let none = || {
        format!(
            "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        )
    };
    let (group, version, plural) = POD_METRICS;
    let request = request(group, version)
        .under(&["namespaces", namespace, plural])
        .with("labelSelector", &selector.to_string())
        .about(format!("{plural}.{group}"));
    let told = plane.client.extension(plane.plane, request).await;
    if let Some(list) = told.map_err(|status| failed(status.message))? {
        let metrics = items(&list);
        if metrics.is_empty() {
            return Err(none());
        }
        return Ok(metrics.iter().filter_map(|metric| of_containers(metric, resource, container)).collect());
    }
    let at = GroupVersionResource { group: group.into(), version: version.into(), resource: plural.into() };
    let metrics = match plane.list_selected(&at, namespace, selector.clone()).await {
        Ok(metrics) => metrics,
        Err(status) if status.code == 404 => {
            let simulated = simulated(pods, resource, plane.client.now());
            return match simulated.is_empty() {
                true => Err(failed(format!("{NOT_SERVED} (get {plural}.{group})"))),
                false => Ok(simulated),
            };
        }
        Err(status) => return Err(failed(status.message)),
    };
    if metrics.is_empty() {
        return Err(none());
    }
    Ok(metrics.iter().filter_map(|metric| of_containers(metric, resource, container)).collect())
}

/// The sum of all values of an external metric.
pub(super) async fn external(
    plane: &InPlane,
    namespace: &str,
    metric: &str,
    selector: Option<&Value>,
) -> Result<i64, String> {
    let failed = |why: String| {
        let selector = described(selector);
        format!("unable to get external metric {namespace}/{metric}/{selector}: {why}")
    };
    let fetch = |why: String| failed(format!("unable to fetch metrics from external metrics API: {why}"));
    let labels = labels(selector)?;
    let (group, version) = EXTERNAL;
    let about = format!("{metric}.{group}");
    let request = request(group, version)
        .under(&["namespaces", namespace, metric])
        .with("labelSelector", &labels.to_string())
        .about(about.as_str());
    let told = plane.client.extension(plane.plane, request).await;
    let numbers: Vec<Option<i64>> = match told.map_err(|status| fetch(status.message))? {
        Some(list) => items(&list).iter().map(|value| quantity(value.get("value")?)).collect(),
        None => {
            let resource = GroupVersionResource {
                group: group.into(),
                version: version.into(),
                resource: metric.into(),
            };
            let values = plane.list_selected(&resource, namespace, labels).await;
            let values = values.map_err(|status: Status| match status.code {
                404 => fetch(format!("{NOT_SERVED} (get {about})")),
                _ => fetch(status.message),
            })?;
            values.iter().map(|value| quantity(value.get("value")?)).collect()
        }
    };
    if numbers.is_empty() {
        return Err(failed("no metrics returned from external metrics API".into()));
    }
    Ok(numbers.into_iter().flatten().fold(0_i64, i64::saturating_add))
}

/// What a custom metric says about pods.
pub(super) async fn custom_of_pods(
    plane: &InPlane,
    namespace: &str,
    selector: &LabelSelector,
    metric: &str,
    metric_selector: Option<&Value>,
) -> Result<Samples, String> {
    let failed = |why: String| format!("unable to get metric {metric}: {why}");
    let labels = labels(metric_selector)?;
    let ask = |request: ExtensionRequest| {
        request
            .under(&["namespaces", namespace, "pods", "*", metric])
            .with("labelSelector", &selector.to_string())
            .with("metricLabelSelector", &labels.to_string())
    };
    let list = custom(plane, "pods", "*", &ask).await.map_err(failed)?;
    let samples: Samples = items(&list).iter().filter_map(of_object).collect();
    if samples.is_empty() {
        return Err(failed("no metrics returned from custom metrics API".into()));
    }
    Ok(samples)
}

/// What a custom metric says about one object.
pub(super) async fn custom_of_object(
    plane: &InPlane,
    namespace: &str,
    object: &Value,
    metric: &str,
    metric_selector: Option<&Value>,
) -> Result<i64, String> {
    let text = |field: &str| object.str_at(&[field]).unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    // The words in this order: upstream's.
    let failed = |why: String| format!("unable to get metric {metric}: {kind} on {namespace} {name}/{why}");
    let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
    let labels = labels(metric_selector)?;
    let list = if (group, kind) == ("", "Namespace") {
        // Its own one, whatever the name says: nobody looks out of a namespace.
        let ask = |request: ExtensionRequest| {
            request
                .under(&["namespaces", namespace, "metrics", metric])
                .with("metricLabelSelector", &labels.to_string())
        };
        custom(plane, "metrics", metric, &ask).await
    } else {
        let resource = resource_of(plane, group, kind).await.map_err(failed)?;
        let ask = |request: ExtensionRequest| {
            request
                .under(&["namespaces", namespace, &resource, name, metric])
                .with("metricLabelSelector", &labels.to_string())
        };
        custom(plane, &resource, name, &ask).await
    };
    let list = list.map_err(failed)?;
    let fetch = |why: String| failed(format!("unable to fetch metrics from custom metrics API: {why}"));
    match items(&list) {
        [one] => one
            .get("value")
            .and_then(quantity)
            .ok_or_else(|| fetch("the custom metrics API server returned no number".into())),
        many => Err(fetch(format!(
            "the custom metrics API server returned {} results when we asked for exactly one",
            many.len()
        ))),
    }
}

/// Asks the first version of the custom metrics API that is there.
async fn custom(
    plane: &InPlane,
    resource: &str,
    name: &str,
    ask: &(dyn Fn(ExtensionRequest) -> ExtensionRequest + Sync),
) -> Result<Value, String> {
    let failed = |why: String| format!("unable to fetch metrics from custom metrics API: {why}");
    let (group, versions) = CUSTOM;
    for version in versions {
        let request = ask(request(group, version)).about(format!("{resource}.{group} {name}"));
        let told = plane.client.extension(plane.plane, request).await;
        if let Some(list) = told.map_err(|status| failed(status.message))? {
            return Ok(list);
        }
    }
    Err(failed(format!("no custom metrics API ({group}) registered")))
}

/// How a kind is named in paths of the custom metrics API: with its group, if that has a name.
async fn resource_of(plane: &InPlane, group: &str, kind: &str) -> Result<String, String> {
    let fetch = |why: String| format!("unable to fetch metrics from custom metrics API: {why}");
    let served = plane.client.resources(plane.plane).await.map_err(|status| fetch(status.message))?;
    let found = served.into_iter().find(|facts| facts.name.group == group && facts.kind == kind);
    let found: GroupResource = found.map(|facts| facts.name.group_resource()).ok_or_else(|| {
        let shown = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let place = format!("no matches for kind {kind:?} in group {group:?}");
        fetch(format!("unable to map kind {shown} to resource: {place}"))
    })?;
    Ok(found.to_string())
}

fn labels(selector: Option<&Value>) -> Result<LabelSelector, String> {
    match selector.filter(|selector| !selector.is_null()) {
        Some(selector) => LabelSelector::from_value(selector).map_err(|error| error.to_string()),
        None => Ok(LabelSelector::everything()),
    }
}

/// A selector as messages have it.
pub(super) fn described(selector: Option<&Value>) -> String {
    let Some(labels) = selector.and_then(|selector| selector.at(&["matchLabels"])).and_then(Value::as_object)
    else {
        return "nil".into();
    };
    let labels: String =
        labels.iter().map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default())).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}"
    )
}
