//! Roles: gets by somebody who may because of one of many bindings of the plane, and what it costs that one of them changes.

use super::{Bench, configmap, fresh, report};
use crate::connection::Call;
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["rights/get", "rights/change"];

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    if !CASES.iter().any(|case| bench.wants(case)) {
        return Ok(());
    }
    let bindings = bench.scale(10_000, 200);
    let namespace = fresh("rights");
    // What each subject managed to make in time is what the cases work on.
    let mut made = vec![bindings; subjects.len()];
    for (subject, made) in subjects.iter().zip(&mut made) {
        subject.namespace(&namespace).await?;
        let role = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"reader"},
            "rules":[{"verbs":["get"],"apiGroups":[""],"resources":["configmaps"]}]}"#;
        let role = Call::post(format!("{}/roles", rbac(subject, &namespace)), role);
        let map = Call::post(subject.configmaps(&namespace), configmap("seen", 0, 0));
        Load::new(1, vec![role, map]).run(subject).await?;
        let collection = format!("{}/rolebindings", rbac(subject, &namespace));
        let calls = (0..bindings).map(|index| Call::post(collection.clone(), binding(index, "")));
        *made = Load::new(16, calls.collect()).run(subject).await?.done;
    }
    let looks = |subject: &Subject<'_>, index: usize| {
        let path = format!("{}/seen", subject.configmaps(&namespace));
        Call::get(path).by_user(format!("user-{index:06}"))
    };
    if bench.wants("rights/get") {
        let gets = bench.scale(20_000, 1_000);
        let mut measured = Vec::new();
        for (subject, made) in subjects.iter().zip(&made) {
            let calls = (0..gets).map(|index| looks(subject, index * 7919 % *made)).collect();
            measured.push(Load::new(16, calls).run(subject).await?);
        }
        report(bench, format!("get by one of {bindings} bound users"), None, &measured);
    }
    if bench.wants("rights/change") {
        let changes = bench.scale(200, 20);
        let mut measured = Vec::new();
        for (subject, made) in subjects.iter().zip(&made) {
            let mut calls = Vec::new();
            for index in (0..changes).map(|index| index % *made) {
                let path = format!("{}/rolebindings/user-{index:06}", rbac(subject, &namespace));
                calls.push(Call::put(path, binding(index, "changed")));
                calls.push(looks(subject, index));
            }
            measured.push(Load { steps: 2, ..Load::new(1, calls) }.run(subject).await?);
        }
        report(bench, format!("change of one of {bindings} bindings, and a get"), None, &measured);
    }
    Ok(())
}

fn rbac(subject: &Subject<'_>, namespace: &str) -> String {
    format!("{}{RBAC}/namespaces/{namespace}", subject.prefix)
}

fn binding(index: usize, note: &str) -> String {
    let name = format!("user-{index:06}");
    format!(
        r#"{{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{{"name":"{name}","annotations":{{"note":"{note}"}}}},
        "roleRef":{{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"}},
        "subjects":[{{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"{name}"}}]}}"#
    )
}
