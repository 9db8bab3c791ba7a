//! Server-side apply of one object at a time, unchanged and changed: a ConfigMap of 1 KB and a Deployment.
//!
//! The Deployments are paused and want no replicas: all our controllers do about a changed one is to write its status. The
//! peer has no controllers here and does not even that.

use super::{Bench, configmap, fresh, report};
use crate::connection::Call;
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["apply/unchanged", "apply/changed"];

/// What is applied.
struct Kind {
    name: &'static str,
    /// Where objects of the kind are served, with their plural.
    version: &'static str,
    plural: &'static str,
    /// An object by name and index; the round changes its contents.
    body: fn(&str, usize, usize) -> String,
}

const KINDS: [Kind; 2] = [
    Kind { name: "configmap", version: "/api/v1", plural: "configmaps", body: configmap },
    Kind { name: "deployment", version: "/apis/apps/v1", plural: "deployments", body: deployment },
];

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    for kind in KINDS {
        for (clients, objects) in [(1, 2_000), (16, 5_000)] {
            let namespace = fresh(&format!("apply-{}-{clients}", kind.name));
            // What each subject managed to make in time is what the cases work on.
            let mut objects = vec![bench.scale(objects, 200); subjects.len()];
            for (subject, objects) in subjects.iter().zip(&mut objects) {
                subject.namespace(&namespace).await?;
                let made = Load::new(16, calls(&kind, subject, &namespace, *objects, 0)).run(subject).await?;
                *objects = made.done;
            }
            for (case, round) in [("unchanged", 0), ("changed", 1)] {
                if !bench.wants(&format!("apply/{case}")) {
                    continue;
                }
                let mut measured = Vec::new();
                for (subject, objects) in subjects.iter().zip(&objects) {
                    let calls = calls(&kind, subject, &namespace, *objects, round);
                    measured.push(Load::new(clients, calls).run(subject).await?);
                }
                report(bench, format!("{} apply, {case}", kind.name), None, &measured);
            }
        }
    }
    Ok(())
}

fn calls(kind: &Kind, subject: &Subject<'_>, namespace: &str, objects: usize, round: usize) -> Vec<Call> {
    let collection = format!("{}{}/namespaces/{namespace}/{}", subject.prefix, kind.version, kind.plural);
    let call = |index| {
        let name = format!("object-{index:06}");
        Call::apply(format!("{collection}/{name}"), (kind.body)(&name, index, round))
    };
    (0..objects).map(call).collect()
}

/// A Deployment of one container as people write them.
fn deployment(name: &str, index: usize, round: usize) -> String {
    format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}","labels":{{"app":"{name}","slice":"{}"}}}},
        "spec":{{"replicas":0,"paused":true,"selector":{{"matchLabels":{{"app":"{name}"}}}},
        "strategy":{{"type":"RollingUpdate","rollingUpdate":{{"maxSurge":1,"maxUnavailable":0}}}},
        "template":{{"metadata":{{"labels":{{"app":"{name}"}}}},"spec":{{"containers":[{{"name":"web","image":"registry.example/web:{round}",
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
        for kind in KINDS {
            let body: serde_json::Value = serde_json::from_str(&(kind.body)("a", 3, 1)).unwrap();
            assert_eq!(body["metadata"]["name"], "a");
            assert_ne!((kind.body)("a", 3, 0), (kind.body)("a", 3, 1));
        }
    }
}
