//! Server-side apply of one object at a time, unchanged and changed: a ConfigMap of 1 KB, a Deployment, a custom resource.
//!
//! The Deployments are paused and want no replicas: all our controllers do about one with another image is to write its
//! status, and about one with another note nothing. The peer has no controllers here: see `rollouts`.

use super::rules::Ruled;
use super::{Bench, configmap, fresh, report};
use crate::connection::Call;
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["apply/configmap", "apply/deployment", "apply/note", "apply/custom"];

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
    let deployments = |subject: &Subject<'_>, case| {
        format!("{}/apis/apps/v1/namespaces/{}/deployments", subject.prefix, namespace(case))
    };
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
            "deployment" => {
                let collection = &|subject: &Subject<'_>| deployments(subject, case);
                let body = &|name: &str, index, round| deployment(name, index, [round, 0], true);
                measure(bench, subjects, &Kind { title: "deployment", collection, body }).await?;
            }
            "note" => {
                let collection = &|subject: &Subject<'_>| deployments(subject, case);
                let body = &|name: &str, index, round| deployment(name, index, [0, round], true);
                measure(bench, subjects, &Kind { title: "deployment's note", collection, body }).await?;
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

/// A Deployment of one container as people write them, without replicas. The image is part of its spec, the note is not.
pub(super) fn deployment(name: &str, index: usize, [image, note]: [usize; 2], paused: bool) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}","labels":{{"app":"{name}","slice":"{}"}},
        "annotations":{{"example.com/note":"{note}"}}}},
        "spec":{{"replicas":0,"paused":{paused},"selector":{{"matchLabels":{{"app":"{name}"}}}},
        "strategy":{{"type":"RollingUpdate","rollingUpdate":{{"maxSurge":1,"maxUnavailable":0}}}},
        "template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example/web:{image}",
        "ports":[{{"name":"http","containerPort":8080}},{{"name":"metrics","containerPort":9090}}],
        "env":[{{"name":"MODE","value":"production"}},{{"name":"INDEX","value":"{index}"}},
        {{"name":"NODE","valueFrom":{{"fieldRef":{{"fieldPath":"spec.nodeName"}}}}}}],
        "resources":{{"requests":{{"cpu":"100m","memory":"128Mi"}},"limits":{{"memory":"256Mi"}}}},
        "readinessProbe":{{"httpGet":{{"path":"/ready","port":"http"}},"periodSeconds":5}},
        "livenessProbe":{{"httpGet":{{"path":"/live","port":"http"}},"initialDelaySeconds":10}},
        "volumeMounts":[{{"name":"settings","mountPath":"/etc/web","readOnly":true}}]}}],
        "volumes":[{{"name":"settings","configMap":{{"name":"{name}"}}}}]}}}}}}}}"#,
        index % 16
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json() {
        let body = |image, note| deployment("a", 3, [image, note], true);
        let value: serde_json::Value = serde_json::from_str(&body(1, 0)).unwrap();
        assert_eq!(value["metadata"]["name"], "a");
        assert_ne!(body(0, 0), body(1, 0));
        assert_ne!(body(0, 0), body(0, 1));
    }
}
