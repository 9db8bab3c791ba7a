//! Creates that rules judge: a ConfigMap under one ValidatingAdmissionPolicy, and a custom resource with a schema of 100
//! fields and 10 CEL rules.

use std::time::{Duration, Instant};

use super::{Bench, configmap, fresh, report};
use crate::connection::{Call, Connection};
use crate::load::Load;
use crate::subject::Subject;

pub(super) const CASES: &[&str] = &["rules/custom", "rules/policy"];

const FIELDS: usize = 100;
/// Over the fields that `field` makes: texts, counts, choices and lists in turn.
const RULES: [&str; 10] = [
    "self.count1 <= self.count5",
    "self.text0 != self.text4",
    "self.text8.startsWith('text-')",
    "self.choice2 == 'one' || self.choice6 != 'one'",
    "self.choice10 in ['one', 'two', 'three']",
    "self.list3.all(item, size(item.name) > 0)",
    "self.list7.exists(item, item.name == 'b')",
    "size(self.list11) <= self.count97 + 10",
    "!has(self.text12) || self.text12.matches('^[a-z0-9-]+$')",
    "self.count9 + self.count13 >= self.count17 || self.text16.contains('16')",
];
/// A kube-apiserver learns of policies and kinds after they were stored.
const PATIENCE: Duration = Duration::from_secs(60);
const END_PATIENCE: Duration = Duration::from_secs(600);
/// It goes on working for a while when its kinds have changed: the documents about them are made anew.
const SETTLE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn run(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    if bench.wants("rules/policy") {
        policy(bench, subjects).await?;
    }
    if bench.wants("rules/custom") {
        custom(bench, subjects).await?;
    }
    Ok(())
}

const LOADS: [(usize, usize); 2] = [(1, 2_000), (16, 10_000)];

async fn custom(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    let kind = Ruled::new("rules");
    let namespace = fresh("rules-custom");
    for subject in subjects {
        subject.namespace(&namespace).await?;
    }
    kind.define(subjects, &namespace).await?;
    for (clients, objects) in LOADS {
        let objects = bench.scale(objects, 200);
        let mut measured = Vec::new();
        for subject in subjects {
            let collection = kind.collection(subject, &namespace);
            let create =
                |index| Call::post(&collection, kind.object(&format!("object-{clients}-{index}"), 0));
            measured.push(Load::new(clients, (0..objects).map(create).collect()).run(subject).await?);
        }
        report(bench, format!("{} create", Ruled::TITLE), None, &measured);
    }
    kind.remove(subjects).await
}

/// A custom kind of 100 fields and 10 rules, in a group of its own.
pub(super) struct Ruled {
    pub(super) group: String,
}

impl Ruled {
    pub(super) const TITLE: &str = "custom resource, 100 fields, 10 rules:";

    pub(super) fn new(purpose: &str) -> Ruled {
        Ruled { group: format!("{}.polder.dev", fresh(purpose)) }
    }

    pub(super) fn collection(&self, subject: &Subject<'_>, namespace: &str) -> String {
        format!("{}/apis/{}/v1/namespaces/{namespace}/ruleds", subject.prefix, self.group)
    }

    /// Makes the kind and waits until it is served everywhere.
    pub(super) async fn define(&self, subjects: &[Subject<'_>], namespace: &str) -> anyhow::Result<()> {
        for subject in subjects {
            let mut connection = Connection::open(subject.kubeconfig).await?;
            connection.send(Call::post(definitions(subject), definition(&self.group))).await?;
            let began = Instant::now();
            while !connection.finds(Call::get(self.collection(subject, namespace))).await? {
                anyhow::ensure!(began.elapsed() < PATIENCE, "{} does not serve its CRD", subject.name);
                tokio::time::sleep(PAUSE).await;
            }
        }
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// Removes the kind with its objects: that is no part of a case, and must not become part of the next.
    pub(super) async fn remove(&self, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
        for subject in subjects {
            let path = format!("{}/ruleds.{}", definitions(subject), self.group);
            let mut connection = Connection::open(subject.kubeconfig).await?;
            connection.send(Call::delete(&path)).await?;
            let began = Instant::now();
            while connection.finds(Call::get(&path)).await? {
                anyhow::ensure!(
                    began.elapsed() < END_PATIENCE,
                    "{} does not let go of its CRD",
                    subject.name
                );
                tokio::time::sleep(PAUSE).await;
            }
        }
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// An object with all its fields. The round changes one of them.
    pub(super) fn object(&self, name: &str, round: usize) -> String {
        let fields: Vec<String> = (0..FIELDS).map(|index| field(index).1).collect();
        let fields = fields.join(",").replacen("text-0", &format!("text-0-{round}"), 1);
        format!(
            r#"{{"apiVersion":"{}/v1","kind":"Ruled","metadata":{{"name":"{name}"}},"spec":{{{fields}}}}}"#,
            self.group
        )
    }
}

fn definitions(subject: &Subject<'_>) -> String {
    format!("{}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", subject.prefix)
}

async fn policy(bench: &mut Bench, subjects: &[Subject<'_>]) -> anyhow::Result<()> {
    let namespace = fresh("rules-policy");
    let root = |subject: &Subject<'_>| format!("{}/apis/admissionregistration.k8s.io/v1", subject.prefix);
    let kinds = ["validatingadmissionpolicybindings", "validatingadmissionpolicies"];
    for subject in subjects {
        subject.namespace(&namespace).await?;
        let mut connection = Connection::open(subject.kubeconfig).await?;
        for (kind, body) in kinds.into_iter().zip([binding_body(&namespace), policy_body(&namespace)]) {
            connection.send(Call::post(format!("{}/{kind}", root(subject)), body)).await?;
        }
        let (began, mut tries) = (Instant::now(), 0);
        loop {
            tries += 1;
            let forbidden = configmap(&format!("forbidden-{tries}"), 0, 0);
            let answer = connection.start(Call::post(subject.configmaps(&namespace), forbidden)).await?;
            if answer.status().is_client_error() {
                break;
            }
            anyhow::ensure!(began.elapsed() < PATIENCE, "{} does not heed its policy", subject.name);
            tokio::time::sleep(PAUSE).await;
        }
    }
    for (clients, objects) in LOADS {
        let objects = bench.scale(objects, 200);
        let mut measured = Vec::new();
        for subject in subjects {
            let collection = subject.configmaps(&namespace);
            let create =
                |index| Call::post(&collection, configmap(&format!("object-{clients}-{index}"), index, 0));
            measured.push(Load::new(clients, (0..objects).map(create).collect()).run(subject).await?);
        }
        report(bench, "configmap create, one policy", None, &measured);
    }
    for subject in subjects {
        let mut connection = Connection::open(subject.kubeconfig).await?;
        for kind in kinds {
            connection.send(Call::delete(format!("{}/{kind}/{namespace}", root(subject)))).await?;
        }
    }
    Ok(())
}

fn policy_body(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{{"name":"{name}"}},
        "spec":{{"failurePolicy":"Fail","matchConstraints":{{"resourceRules":[
        {{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["configmaps"]}}]}},
        "validations":[{{"expression":"!object.metadata.name.startsWith('forbidden')"}},
        {{"expression":"has(object.data) && object.data.all(key, size(object.data[key]) <= 4096)","message":"too long"}}]}}}}"#
    )
}

/// Binds the policy in the namespace of the same name alone.
fn binding_body(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{{"name":"{name}"}},
        "spec":{{"policyName":"{name}","validationActions":["Deny"],
        "matchResources":{{"namespaceSelector":{{"matchLabels":{{"kubernetes.io/metadata.name":"{name}"}}}}}}}}}}"#
    )
}

/// The schema of a field and a value for it, each after the field's name.
fn field(field: usize) -> (String, String) {
    match field % 4 {
        0 => (
            format!(r#""text{field}":{{"type":"string","maxLength":64,"pattern":"^[a-z0-9-]*$"}}"#),
            format!(r#""text{field}":"text-{field}""#),
        ),
        1 => (
            format!(r#""count{field}":{{"type":"integer","minimum":0,"maximum":1000}}"#),
            format!(r#""count{field}":{field}"#),
        ),
        2 => (
            format!(r#""choice{field}":{{"type":"string","enum":["one","two","three"]}}"#),
            format!(r#""choice{field}":"two""#),
        ),
        _ => (
            format!(
                r#""list{field}":{{"type":"array","maxItems":10,"items":{{"type":"object","properties":{{"name":{{"type":"string","maxLength":64}}}},"required":["name"]}}}}"#
            ),
            format!(r#""list{field}":[{{"name":"a"}},{{"name":"b"}}]"#),
        ),
    }
}

fn definition(group: &str) -> String {
    let fields: Vec<String> = (0..FIELDS).map(|index| field(index).0).collect();
    let rules = RULES.map(|rule| format!(r#"{{"rule":"{rule}"}}"#));
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"ruleds.{group}"}},
        "spec":{{"group":"{group}","scope":"Namespaced",
        "names":{{"kind":"Ruled","plural":"ruleds","singular":"ruled","listKind":"RuledList"}},
        "versions":[{{"name":"v1","served":true,"storage":true,"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{
        "spec":{{"type":"object","properties":{{{}}},"x-kubernetes-validations":[{}]}}}}}}}}}}]}}}}"#,
        fields.join(","),
        rules.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json() {
        let object = Ruled::new("test").object("a", 1);
        for body in [definition("g.dev"), object, policy_body("a"), binding_body("a")] {
            serde_json::from_str::<serde_json::Value>(&body).unwrap();
        }
    }
}
