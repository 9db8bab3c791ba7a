//! ServiceAccount: every pod runs as one, and finds its token where programs look for it.

use polder_model::pod::is_mirror;
use polder_model::{GroupResource, SmolStr, Status, Value, format_smolstr, json};

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Plugin, Verdict};
use crate::world::World;

pub(super) struct ServiceAccount;

const DEFAULT: &str = "default";
const VOLUME: &str = "kube-api-access-";
const MOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A little more than an hour: kubelets renew such tokens, and old programs that do not read them again are found.
const TOKEN_SECONDS: i64 = 3607;
const ONLY_OWN_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

impl Plugin for ServiceAccount {
    fn name(&self) -> &'static str {
        "ServiceAccount"
    }

    fn interest(&self, kind: Kind<'_>) -> Interest {
        let interest = Interest { admit: Operations::CREATE, validate: Operations::WRITE, ..Interest::NONE };
        interest.when(kind.is("", "pods"))
    }

    fn admit<'a>(
        &'a self,
        request: &'a Attributes<'a>,
        pod: &'a mut Value,
        world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        Box::pin(async move {
            if !request.is_whole() || is_mirror(pod) {
                return Ok(());
            }
            if account_name(pod).is_empty() {
                // The second is the name the first had, and clients still read it.
                pod.set_at(&["spec", "serviceAccountName"], DEFAULT);
                pod.set_at(&["spec", "serviceAccount"], DEFAULT);
            }
            let account = account(request, pod, world).await?;
            let says = |object: Option<&Value>| object.and_then(Value::as_bool);
            let mounts = says(pod.at(&["spec", "automountServiceAccountToken"]))
                .or_else(|| says(account.get("automountServiceAccountToken")));
            if mounts.unwrap_or(true) {
                mount(pod, request.seed);
            }
            let secrets = account.array_at(&["imagePullSecrets"]);
            if pod.array_at(&["spec", "imagePullSecrets"]).is_empty() && !secrets.is_empty() {
                let name = |secret: &Value| json!({"name": (secret.str_at(&["name"]).unwrap_or_default())});
                let names: Vec<Value> = secrets.iter().map(name).collect();
                pod.set_at(&["spec", "imagePullSecrets"], names);
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
            let Some(pod) = object else { return Ok(()) };
            let debugs = request.is_update() && request.subresource == "ephemeralcontainers";
            if !(debugs || (request.is_create() && request.is_whole())) {
                return Ok(());
            }
            if is_mirror(pod) && !debugs {
                return mirror_problem(pod).map_or(Ok(()), |problem| Err(request.forbidden(problem)));
            }
            if account_name(pod).is_empty() {
                let why =
                    format!("no service account specified for pod {}/{}", request.namespace, request.name);
                return Err(request.forbidden(why));
            }
            let account = account(request, pod, world).await?;
            let strict = account.str_at(&["metadata", "annotations", ONLY_OWN_SECRETS]);
            if !strict.is_some_and(|text| ["1", "t", "T", "true", "TRUE", "True"].contains(&text)) {
                return Ok(());
            }
            let problem = match debugs {
                true => container_problem(pod, &[("ephemeralContainers", "ephemeral container")], &account),
                false => secret_problem(pod, &account),
            };
            problem.map_or(Ok(()), |problem| Err(request.forbidden(problem)))
        })
    }
}

fn account_name(pod: &Value) -> &str {
    pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default()
}

async fn account(request: &Attributes<'_>, pod: &Value, world: &dyn World) -> Result<Value, Status> {
    let (namespace, name) = (request.namespace, account_name(pod));
    match world.get(&GroupResource::new("", "serviceaccounts"), namespace, name).await? {
        Some(found) => Ok(found.value),
        None => Err(request.forbidden(format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        ))),
    }
}

/// Mounts a token into each container that has nothing in that place.
fn mount(pod: &mut Value, seed: u64) {
    let volumes = pod.array_at(&["spec", "volumes"]);
    let names = volumes.iter().filter_map(|volume| volume.str_at(&["name"]));
    let existing = names.into_iter().find(|name| name.starts_with(VOLUME)).map(SmolStr::new);
    let has_volume = existing.is_some();
    let name = existing.unwrap_or_else(|| format_smolstr!("{VOLUME}{}", suffix(seed)));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let Some(Value::Array(containers)) = pod.at_mut(&["spec", list]) else { continue };
        for container in containers {
            let mut mounts = container.array_at(&["volumeMounts"]).to_vec();
            if mounts.iter().any(|mount| mount.str_at(&["mountPath"]) == Some(MOUNT)) {
                continue;
            }
            mounts.push(json!({"name": (name.as_str()), "readOnly": true, "mountPath": MOUNT}));
            container.set_at(&["volumeMounts"], mounts);
            needed = true;
        }
    }
    if needed && !has_volume {
        let mut volumes = pod.array_at(&["spec", "volumes"]).to_vec();
        volumes.push(json!({"name": (name.as_str()), "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
        pod.set_at(&["spec", "volumes"], volumes);
    }
}

/// Five characters that spell no word.
fn suffix(mut seed: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut letter = || {
        let len = LETTERS.len() as u64;
        let at = usize::try_from(seed % len).unwrap_or(0);
        seed /= len;
        char::from(LETTERS[at])
    };
    (0..5).map(|_| letter()).collect()
}

fn mirror_problem(pod: &Value) -> Option<&'static str> {
    if !account_name(pod).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if names_secret(pod.get("spec").unwrap_or(&Value::Null)) {
        return Some("a mirror pod may not reference secrets");
    }
    let sources = pod.array_at(&["spec", "volumes"]).iter();
    let mut sources = sources.flat_map(|volume| volume.array_at(&["projected", "sources"]));
    let token = sources.any(|source| source.get("serviceAccountToken").is_some());
    token.then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

/// Whether a spec names a secret anywhere. Each member that does is called so.
fn names_secret(value: &Value) -> bool {
    const MEMBERS: [&str; 9] = [
        "imagePullSecrets",
        "secretKeyRef",
        "secretRef",
        "secretName",
        "secret",
        "nodePublishSecretRef",
        "nodeStageSecretRef",
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
    ];
    match value {
        Value::Object(members) => members.iter().any(|(name, value)| {
            let empty = value.is_null() || value.as_array().is_some_and(<[Value]>::is_empty);
            (MEMBERS.contains(&name.as_str()) && !empty) || names_secret(value)
        }),
        Value::Array(items) => items.iter().any(names_secret),
        _ => false,
    }
}

/// What a pod uses that its account does not list.
fn secret_problem(pod: &Value, account: &Value) -> Option<String> {
    let of = account.str_at(&["metadata", "name"]).unwrap_or_default();
    for volume in pod.array_at(&["spec", "volumes"]) {
        let secret = volume.str_at(&["secret", "secretName"]);
        if let Some(secret) = secret.filter(|secret| !lists(account, "secrets", secret)) {
            return Some(format!(
                "volume with secret.secretName={secret:?} is not allowed because service account {of} does not reference that secret"
            ));
        }
    }
    let lists_of = [("initContainers", "init container"), ("containers", "container")];
    let problem = container_problem(pod, &lists_of, account);
    if problem.is_some() {
        return problem;
    }
    for (index, secret) in pod.array_at(&["spec", "imagePullSecrets"]).iter().enumerate() {
        let name = secret.str_at(&["name"]).unwrap_or_default();
        if !lists(account, "imagePullSecrets", name) {
            return Some(format!(
                "imagePullSecrets[{index}].name={name:?} is not allowed because service account {of} does not reference that imagePullSecret"
            ));
        }
    }
    None
}

fn container_problem(pod: &Value, lists_of: &[(&str, &str)], account: &Value) -> Option<String> {
    let of = account.str_at(&["metadata", "name"]).unwrap_or_default();
    for (list, what) in lists_of {
        for container in pod.array_at(&["spec", list]) {
            let name = container.str_at(&["name"]).unwrap_or_default();
            let end = format!("is not allowed because service account {of} does not reference that secret");
            for env in container.array_at(&["env"]) {
                let secret = env.str_at(&["valueFrom", "secretKeyRef", "name"]);
                if let Some(secret) = secret.filter(|secret| !lists(account, "secrets", secret)) {
                    let env = env.str_at(&["name"]).unwrap_or_default();
                    return Some(format!(
                        "{what} {name} with envVar {env} referencing secret.secretName={secret:?} {end}"
                    ));
                }
            }
            for from in container.array_at(&["envFrom"]) {
                let secret = from.str_at(&["secretRef", "name"]);
                if let Some(secret) = secret.filter(|secret| !lists(account, "secrets", secret)) {
                    return Some(format!(
                        "{what} {name} with envFrom referencing secret.secretName={secret:?} {end}"
                    ));
                }
            }
        }
    }
    None
}

fn lists(account: &Value, list: &str, name: &str) -> bool {
    account.array_at(&[list]).iter().any(|one| one.str_at(&["name"]) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Operation;
    use crate::fake::{Fake, Request, parse};

    #[track_caller]
    fn check(account: &str, pod: &str, expected: &str) {
        let account = format!(r#"{{"metadata":{{"name":"default","namespace":"ns"{account}}}"#);
        let world = Fake::of(&[("serviceaccounts", &account)]);
        let request =
            Request { plugin: &ServiceAccount, world: &world, path: "pods", operation: Operation::Create };
        let shown = request.admit(pod, None).and_then(|pod| {
            request.validate(&pod.to_string(), None)?;
            Ok(pod.get("spec").cloned().unwrap_or_default().to_string())
        });
        let expected = if expected.starts_with('{') { parse(expected).to_string() } else { expected.into() };
        assert_eq!(shown.unwrap_or_else(|refusal| refusal), expected);
    }

    const PLAIN: &str = "}";
    const QUIET: &str = r#"},"automountServiceAccountToken":false"#;

    #[test]
    fn pods_run_as_somebody() {
        check(
            PLAIN,
            r#"{"spec":{"containers":[{"name":"c"}]}}"#,
            r#"{"serviceAccount":"default","serviceAccountName":"default",
                "containers":[{"name":"c","volumeMounts":[{"name":"kube-api-access-bbbbb","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],
                "volumes":[{"name":"kube-api-access-bbbbb","projected":{"defaultMode":420,"sources":[
                    {"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},
                    {"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},
                    {"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}]}}]}"#,
        );
        check(
            QUIET,
            r#"{"spec":{"containers":[{"name":"c"}]}}"#,
            r#"{"serviceAccount":"default","serviceAccountName":"default","containers":[{"name":"c"}]}"#,
        );
        // What the pod says comes first, and a mount that is there stays.
        let mounted = r#"{"automountServiceAccountToken":true,"serviceAccountName":"default","containers":[{"volumeMounts":[{"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}"#;
        check(QUIET, &format!(r#"{{"spec":{mounted}}}"#), mounted);
        check(
            PLAIN,
            r#"{"metadata":{"name":"p"},"spec":{"serviceAccountName":"other"}}"#,
            r#"pods "p" is forbidden: error looking up service account ns/other: serviceaccount "other" not found"#,
        );
        check(
            r#"},"automountServiceAccountToken":false,"imagePullSecrets":[{"name":"a"}]"#,
            r#"{"spec":{}}"#,
            r#"{"imagePullSecrets":[{"name":"a"}],"serviceAccount":"default","serviceAccountName":"default"}"#,
        );
    }

    #[test]
    fn mirror_pods() {
        let mirror = |spec: &str| {
            format!(
                r#"{{"metadata":{{"name":"p","annotations":{{"kubernetes.io/config.mirror":"x"}}}},"spec":{spec}}}"#
            )
        };
        check(PLAIN, &mirror(r#"{"containers":[{"name":"c"}]}"#), r#"{"containers":[{"name":"c"}]}"#);
        let refusal = |why: &str| format!(r#"pods "p" is forbidden: a mirror pod may not {why}"#);
        check(PLAIN, &mirror(r#"{"serviceAccountName":"default"}"#), &refusal("reference service accounts"));
        check(
            PLAIN,
            &mirror(r#"{"volumes":[{"secret":{"secretName":"s"}}]}"#),
            &refusal("reference secrets"),
        );
        check(
            PLAIN,
            &mirror(r#"{"volumes":[{"projected":{"sources":[{"serviceAccountToken":{}}]}}]}"#),
            &refusal("use ServiceAccountToken volume projections"),
        );
    }

    #[test]
    fn only_own_secrets() {
        let strict = r#","annotations":{"kubernetes.io/enforce-mountable-secrets":"true"}},"automountServiceAccountToken":false,"secrets":[{"name":"own"}]"#;
        let refusal = |why: &str| format!(r#"pods "p" is forbidden: {why}"#);
        let pod = |spec: &str| {
            format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"serviceAccountName":"default",{spec}}}}}"#)
        };
        check(
            strict,
            &pod(r#""volumes":[{"secret":{"secretName":"own"}}]"#),
            r#"{"serviceAccountName":"default","volumes":[{"secret":{"secretName":"own"}}]}"#,
        );
        check(
            strict,
            &pod(r#""volumes":[{"secret":{"secretName":"other"}}]"#),
            &refusal(
                r#"volume with secret.secretName="other" is not allowed because service account default does not reference that secret"#,
            ),
        );
        check(
            strict,
            &pod(
                r#""containers":[{"name":"c","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"other"}}}]}]"#,
            ),
            &refusal(
                r#"container c with envVar E referencing secret.secretName="other" is not allowed because service account default does not reference that secret"#,
            ),
        );
        check(
            strict,
            &pod(r#""imagePullSecrets":[{"name":"other"}]"#),
            &refusal(
                r#"imagePullSecrets[0].name="other" is not allowed because service account default does not reference that imagePullSecret"#,
            ),
        );
    }
}
