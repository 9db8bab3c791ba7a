//! Server-side apply of one object at a time, unchanged and changed: a ConfigMap of 1 KB, the template of a pod as people
//! write them, a custom resource.
//!
//! No controller acts on any of these: the peer has none here, and ours would write a status to every changed Deployment, since
//! each change of one, also of a note, is a generation that somebody has to have observed. What that costs is in `rollouts`, where
//! both sides have their controllers.

use super::rules::Ruled;
use super::{Bench, configmap, fresh, report};
use crate::connection::Call;
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["apply/configmap", "apply/template", "apply/custom"];

/// How many clients apply at a time, to how many objects.
const LOADS: [(usize, usize); 3] = [(1, 1_000), (16, 2_500), (64, 2_500)];

/// What is applied.
struct Kind<'a> {
    title: &'a str,
    /// Where objects of the kind are, with their plural.
    collection: &'a dyn Fn(&Subject<'_>) -> String,
    /// An object by name and index; the round changes its contents.
    body: &'a dyn Fn(&str, usize, usize) -> String,
}

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    let namespace = |kind: &str| fresh(&format!("apply-{kind}"));
    for case in CASES {
        if !bench.wants(case) {
            continue;
        }
        let case = &case["apply/".len()..];
        let namespace = namespace(case);
        for subject in subjects {
            subject.namespace(&namespace).await?;
        }
        match case {
            "configmap" => {
                let collection = &|subject: &Subject<'_>| subject.configmaps(&namespace);
                measure(bench, subjects, &Kind { title: "configmap", collection, body: &configmap }).await?;
            }
            "template" => {
                let collection = &|subject: &Subject<'_>| {
                    format!("{}/api/v1/namespaces/{namespace}/podtemplates", subject.prefix)
                };
                let kind = Kind { title: "pod template", collection, body: &pod_template };
                measure(bench, subjects, &kind).await?;
            }
            _ => {
                let ruled = Ruled::new("apply");
                ruled.define(subjects, &namespace).await?;
                let collection = &|subject: &Subject<'_>| ruled.collection(subject, &namespace);
                let body = &|name: &str, _, round| ruled.object(name, round);
                measure(bench, subjects, &Kind { title: Ruled::TITLE, collection, body }).await?;
                ruled.remove(subjects).await?;
            }
        }
    }
    Ok(())
}

async fn measure(bench: &mut Bench, subjects: &[Subject<'_>], kind: &Kind<'_>) -> anyhow::Result<()> {
    for (clients, objects) in LOADS {
        // What each subject managed to make in time is what the cases work on.
        let mut objects = vec![bench.scale(objects, 200); subjects.len()];
        for (subject, objects) in subjects.iter().zip(&mut objects) {
            let made = Load::new(16, calls(kind, subject, clients, *objects, 0)).run(subject).await?;
            *objects = made.done;
        }
        for (case, round) in [("unchanged", 0), ("changed", 1)] {
            let mut measured = Vec::new();
            for (subject, objects) in subjects.iter().zip(&objects) {
                let calls = calls(kind, subject, clients, *objects, round);
                measured.push(Load::new(clients, calls).run(subject).await?);
            }
            report(bench, format!("{} apply, {case}", kind.title), None, &measured);
        }
    }
    Ok(())
}

/// Objects have the number of clients in their names: each load has its own.
fn calls(kind: &Kind<'_>, subject: &Subject<'_>, clients: usize, objects: usize, round: usize) -> Vec<Call> {
    let collection = (kind.collection)(subject);
    let call = |index| {
        let name = format!("object-{clients}-{index:06}");
        Call::apply(format!("{collection}/{name}"), (kind.body)(&name, index, round))
    };
    (0..objects).map(call).collect()
}

/// The template of a pod of one container as people write them. The round is in its image.
fn template(name: &str, index: usize, round: usize) -> String {
    format!(
        r#"{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example/web:{round}",
        "ports":[{{"name":"http","containerPort":8080}},{{"name":"metrics","containerPort":9090}}],
        "env":[{{"name":"MODE","value":"production"}},{{"name":"INDEX","value":"{index}"}},
        {{"name":"NODE","valueFrom":{{"fieldRef":{{"fieldPath":"spec.nodeName"}}}}}}],
        "resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},
        "readinessProbe":{{"httpGet":{{"path":"/ready","port":"http"}},"periodSeconds":5}},
        "livenessProbe":{{"httpGet":{{"path":"/live","port":"http"}},"initialDelaySeconds":10}},
        "volumeMounts":[{{"name":"settings","mountPath":"/etc/web","readOnly":true}}]}}],
        "volumes":[{{"name":"settings","configMap":{{"name":"{name}"}}}}]}}}}"#
    )
}

fn metadata(name: &str, index: usize) -> String {
    let slice = index % 16;
    format!(
        r#"{{"name":"{name}","labels":{{"app":"{name}","slice":"{slice}"}},"annotations":{{"example.com/note":"0"}}}}"#
    )
}

fn pod_template(name: &str, index: usize, round: usize) -> String {
    let (metadata, template) = (metadata(name, index), template(name, index, round));
    format!(r#"{{"apiVersion":"v1","kind":"PodTemplate","metadata":{metadata},"template":{template}}}"#)
}

/// A Deployment of it, without replicas.
pub(super) fn deployment(name: &str, index: usize, round: usize) -> String {
    let (metadata, template) = (metadata(name, index), template(name, index, round));
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{metadata},
        "spec":{{"replicas":0,"selector":{{"matchLabels":{{"app":"{name}"}}}},
        "strategy":{{"type":"RollingUpdate","rollingUpdate":{{"maxSurge":1,"maxUnavailable":0}}}},
        "template":{template}}}}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json() {
        for body in [pod_template, deployment] {
            let value: serde_json::Value = serde_json::from_str(&body("a", 3, 1)).unwrap();
            assert_eq!(value["metadata"]["name"], "a");
            assert_ne!(body("a", 3, 0), body("a", 3, 1));
        }
    }
}
