//! LimitRanger: what each container, pod and claim of a namespace may ask for, and what containers ask for that do not
//! say.

use polder_model::quantity::Quantity;
use polder_model::{GroupResource, SmolStr, Status, Value, json};

use crate::amounts::{self, Amounts, Side};
use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct LimitRanger;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let pods = Interest { admit: Operations::WRITE, validate: Operations::WRITE, ..Interest::NONE };
        let claims = Interest::validate(Operations::WRITE);
        match kind.is("", "pods") {
            true => pods,
            false => claims.when(kind.is("", "persistentvolumeclaims")),
        }
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        pod: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            for range in ranges(request, world).await? {
                fill(&range, pod);
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        object: Option<&'a Value>,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            let Some(object) = object else { return Ok(()) };
            for range in ranges(request, world).await? {
                let problems = match request.is("", "pods") {
                    true => pod_problems(&range, object),
                    false => claim_problems(&range, object),
                };
                match problems.as_slice() {
                    [] => {}
                    [one] => return Err(request.forbidden(one)),
                    several => return Err(request.forbidden(format!("[{}]", several.join(", ")))),
                }
            }
            Ok(())
        })
    }
}

/// The ranges a request is held to. What a running pod asks for changes through `resize` only.
async fn ranges(request: &Attributes<'_>, world: &dyn World) -> Result<Vec<Value>, Status> {
    let pods = request.is("", "pods");
    let held = match (request.subresource, request.is_update()) {
        ("resize", true) => pods,
        ("", true) => !pods,
        ("", false) => true,
        _ => false,
    };
    let going = request.old.is_some_and(|old| old.at(&["metadata", "deletionTimestamp"]).is_some());
    if !held || going {
        return Ok(Vec::new());
    }
    let found = world.list(&GroupResource::new("", "limitranges"), request.namespace).await?;
    Ok(found.into_iter().map(|found| found.value).collect())
}

/// The limits of a range that are about one type of thing.
fn limits<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    let all = range.array_at(&["spec", "limits"]).iter();
    all.filter(move |limit| limit.str_at(&["type"]) == Some(kind))
}

/// Gives containers what they do not say, and notes in the pod what it was given.
fn fill(range: &Value, pod: &mut Value) {
    let (mut requests, mut most) = (Amounts::new(), Amounts::new());
    for limit in limits(range, "Container") {
        requests.extend(amounts::read(limit.get("defaultRequest")));
        most.extend(amounts::read(limit.get("default")));
    }
    let mut given = Vec::new();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let Some(Value::Array(containers)) = pod.at_mut(&["spec", list]) else { continue };
        for container in containers {
            let mut texts = Vec::new();
            for (side, word, defaults) in [("limits", "limit", &most), ("requests", "request", &requests)] {
                let own = container.at(&["resources", side]).and_then(Value::as_object);
                let lacking: Vec<(&SmolStr, &Quantity)> = defaults
                    .iter()
                    .filter(|(name, _)| own.is_none_or(|own| !own.contains_key(name)))
                    .collect();
                if lacking.is_empty() {
                    continue;
                }
                let names: Vec<&str> = lacking.iter().map(|(name, _)| name.as_str()).collect();
                let name = container.str_at(&["name"]).unwrap_or_default();
                texts.push(format!("{} {word} for {what} {name}", names.join(", ")));
                for (name, amount) in lacking {
                    container.set_at(&["resources", side, name], amount.to_string());
                }
            }
            // Requests are told before limits.
            given.extend(texts.into_iter().rev());
        }
    }
    if !given.is_empty() {
        let text = format!("LimitRanger plugin set: {}", given.join("; "));
        if pod.at(&["metadata", "annotations"]).is_none_or(Value::is_null) {
            pod.set_at(&["metadata", "annotations"], json!({}));
        }
        pod.set_at(&["metadata", "annotations", ANNOTATION], text);
    }
}

fn pod_problems(range: &Value, pod: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    for limit in range.array_at(&["spec", "limits"]) {
        match limit.str_at(&["type"]) {
            Some("Container") => {
                for container in
                    ["containers", "initContainers"].iter().flat_map(|list| pod.array_at(&["spec", list]))
                {
                    let side = |side: &str| amounts::read(container.at(&["resources", side]));
                    check(limit, &side("requests"), &side("limits"), &mut problems);
                }
            }
            Some("Pod") => {
                let side = |side: Side| amounts::of_containers(pod, side);
                check(limit, &side(Side::Requests), &side(Side::Limits), &mut problems);
            }
            _ => {}
        }
    }
    problems
}

fn check(limit: &Value, requests: &Amounts, limits: &Amounts, problems: &mut Vec<String>) {
    let kind = limit.str_at(&["type"]).unwrap_or_default();
    for (name, least) in amounts::read(limit.get("min")) {
        too_little(kind, &name, &least, requests, limits, problems);
    }
    for (name, most) in amounts::read(limit.get("max")) {
        let says = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => push(problems, format!("{says}.  No limit is specified")),
            (Some(own), _) if *own > most => push(problems, format!("{says}, but limit is {own}")),
            (_, Some(own)) if *own > most => push(problems, format!("{says}, but request is {own}")),
            _ => {}
        }
    }
    for (name, most) in amounts::read(limit.get("maxLimitRequestRatio")) {
        let says = format!("{name} max limit to request ratio per {kind} is {most}");
        let some = |amounts: &Amounts| amounts.get(&name).filter(|amount| !amount.is_zero()).cloned();
        match (some(requests), some(limits)) {
            (None, _) => push(problems, format!("{says}, but no request is specified or request is 0")),
            (_, None) => push(problems, format!("{says}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = ratio(&request, &limit);
                #[expect(clippy::cast_precision_loss, reason = "a ratio is compared as upstream compares it")]
                let most = most.as_milli() as f64;
                if ratio * 1000.0 > most {
                    push(problems, format!("{says}, but provided ratio is {ratio:.6}"));
                }
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is compared as upstream compares it")]
fn ratio(request: &Quantity, limit: &Quantity) -> f64 {
    limit.as_milli() as f64 / request.as_milli() as f64
}

fn too_little(
    kind: &str,
    name: &SmolStr,
    least: &Quantity,
    requests: &Amounts,
    limits: &Amounts,
    problems: &mut Vec<String>,
) {
    let says = format!("minimum {name} usage per {kind} is {least}");
    match (requests.get(name), limits.get(name)) {
        (None, _) => push(problems, format!("{says}.  No request is specified")),
        (Some(own), _) if own < least => push(problems, format!("{says}, but request is {own}")),
        (_, Some(own)) if own < least => push(problems, format!("{says}, but limit is {own}")),
        _ => {}
    }
}

fn claim_problems(range: &Value, claim: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let requests = amounts::read(claim.at(&["spec", "resources", "requests"]));
    for limit in limits(range, "PersistentVolumeClaim") {
        for (name, least) in amounts::read(limit.get("min")) {
            too_little("PersistentVolumeClaim", &name, &least, &requests, &Amounts::new(), &mut problems);
        }
        for (name, most) in amounts::read(limit.get("max")) {
            let says = format!("maximum {name} usage per PersistentVolumeClaim is {most}");
            match requests.get(&name) {
                None => push(&mut problems, format!("{says}.  No request is specified")),
                Some(own) if *own > most => push(&mut problems, format!("{says}, but request is {own}")),
                _ => {}
            }
        }
    }
    problems
}

/// The same is said once.
fn push(problems: &mut Vec<String>, problem: String) {
    if !problems.contains(&problem) {
        problems.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request};

    fn range(limits: &str) -> String {
        format!(r#"{{"metadata":{{"name":"r","namespace":"ns"}},"spec":{{"limits":[{limits}]}}}}"#)
    }

    #[test]
    fn containers_get_what_they_do_not_say() {
        #[track_caller]
        fn check(limits: &str, pod: &str, expected: &str) {
            let range = range(limits);
            let world = Fake::of(&[("limitranges", &range)]);
            let request =
                Request { plugin: &LimitRanger, world: &world, path: "pods", operation: Operation::Create };
            assert_eq!(
                request.admit(pod, None).unwrap().to_string(),
                crate::fake::parse(expected).to_string()
            );
        }
        let both = r#"{"type":"Container","default":{"cpu":"2","memory":"1Gi"},"defaultRequest":{"cpu":"1","memory":"1Mi"}}"#;
        check(
            both,
            r#"{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"4"}}}],"initContainers":[{"name":"b"}]}}"#,
            r#"{"metadata":{"annotations":{"kubernetes.io/limit-ranger":"LimitRanger plugin set: cpu, memory request for container a; memory limit for container a; cpu, memory request for init container b; cpu, memory limit for init container b"}},
                "spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"4","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Mi"}}}],
                "initContainers":[{"name":"b","resources":{"limits":{"cpu":"2","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Mi"}}}]}}"#,
        );
        check(
            r#"{"type":"Pod","max":{"cpu":"2"}}"#,
            r#"{"spec":{"containers":[{}]}}"#,
            r#"{"spec":{"containers":[{}]}}"#,
        );
    }

    #[test]
    fn bounds() {
        #[track_caller]
        fn check(path: &str, limits: &str, object: &str, expected: Option<&str>) {
            let range = range(limits);
            let world = Fake::of(&[("limitranges", &range)]);
            let request = Request { plugin: &LimitRanger, world: &world, path, operation: Operation::Create };
            assert_eq!(request.validate(object, None).err().as_deref(), expected);
        }
        let pod = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"resources":{"requests":{"cpu":"1"},"limits":{"cpu":"3"}}}]}}"#;
        check(
            "pods",
            r#"{"type":"Container","min":{"cpu":"1"},"max":{"cpu":"3"},"maxLimitRequestRatio":{"cpu":"3"}}"#,
            pod,
            None,
        );
        check(
            "pods",
            r#"{"type":"Container","min":{"cpu":"1500m"}}"#,
            pod,
            Some(r#"pods "p" is forbidden: minimum cpu usage per Container is 1500m, but request is 1"#),
        );
        check(
            "pods",
            r#"{"type":"Container","min":{"memory":"1Mi"},"max":{"cpu":"2"}}"#,
            pod,
            Some(
                r#"pods "p" is forbidden: [minimum memory usage per Container is 1Mi.  No request is specified, maximum cpu usage per Container is 2, but limit is 3]"#,
            ),
        );
        check(
            "pods",
            r#"{"type":"Pod","max":{"memory":"1Gi"}}"#,
            pod,
            Some(r#"pods "p" is forbidden: maximum memory usage per Pod is 1Gi.  No limit is specified"#),
        );
        check(
            "pods",
            r#"{"type":"Pod","maxLimitRequestRatio":{"cpu":"2"}}"#,
            pod,
            Some(
                r#"pods "p" is forbidden: cpu max limit to request ratio per Pod is 2, but provided ratio is 3.000000"#,
            ),
        );
        let claim = r#"{"metadata":{"name":"c"},"spec":{"resources":{"requests":{"storage":"1Gi"}}}}"#;
        let bounds = r#"{"type":"PersistentVolumeClaim","min":{"storage":"2Gi"},"max":{"storage":"3Gi"}}"#;
        check(
            "persistentvolumeclaims",
            bounds,
            claim,
            Some(
                r#"persistentvolumeclaims "c" is forbidden: minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi"#,
            ),
        );
        check("persistentvolumeclaims", bounds, &claim.replace("1Gi", "2Gi"), None);
        check("pods/status", r#"{"type":"Pod","max":{"memory":"1Gi"}}"#, pod, None);
    }
}
