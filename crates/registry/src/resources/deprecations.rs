//! Warnings about what still works and should be written otherwise, or is ignored: old labels of nodes, old annotations, selectors that match nothing.

use polder_model::Value;

use super::checks::{some, text};

/// Labels of nodes and what is said of them.
const NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", r#"deprecated since v1.14; use "kubernetes.io/arch" instead"#),
    ("beta.kubernetes.io/os", r#"deprecated since v1.14; use "kubernetes.io/os" instead"#),
    (
        "failure-domain.beta.kubernetes.io/region",
        r#"deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
    ),
    (
        "beta.kubernetes.io/instance-type",
        r#"deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
    ),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        "deprecated since v1.22; use Taints and Tolerations instead",
    ),
    ("node-role.kubernetes.io/master", r#"use "node-role.kubernetes.io/control-plane" instead"#),
];

const POD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;
const APP_ARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";

const VOLUME_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "volume.beta.kubernetes.io/storage-class",
        r#"deprecated since v1.8; use "storageClassName" attribute instead"#,
    ),
    (
        "volume.beta.kubernetes.io/mount-options",
        r#"deprecated since v1.31; use "mountOptions" attribute instead"#,
    ),
];

/// Sources of persistent volumes that nothing mounts any more: member, member in the text, since when.
const GONE: [(&str, &str, &str); 6] = [
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn of_label(key: &str) -> Option<&'static str> {
    NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, why)| *why)
}

fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v Value> {
    object.at(&["metadata", "annotations", key])
}

/// Keys of a term that selects nodes.
fn term(term: &Value, path: &str, warnings: &mut Vec<String>) {
    for (index, expression) in term.array_at(&["matchExpressions"]).iter().enumerate() {
        let key = text(expression, "key");
        if let Some(why) = of_label(key) {
            warnings.push(format!("{path}.matchExpressions[{index}].key: {key} is {why}"));
        }
    }
}

/// What is said of a pod (`prefix` is empty) or a template (`prefix` is its path with a dot).
pub(super) fn pod(pod: &Value, prefix: &str, warnings: &mut Vec<String>) {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let selector = spec.get("nodeSelector").and_then(Value::as_object);
    for key in selector.into_iter().flat_map(|selector| selector.keys()) {
        if let Some(why) = of_label(key) {
            warnings.push(format!("{prefix}spec.nodeSelector[{key}]: {why}"));
        }
    }
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let nodes = spec.at(&["affinity", "nodeAffinity"]).unwrap_or(&Value::Null);
    let path = format!("{prefix}spec.affinity.nodeAffinity");
    for (index, one) in nodes.array_at(&[required, "nodeSelectorTerms"]).iter().enumerate() {
        term(one, &format!("{path}.{required}.nodeSelectorTerms[{index}]"), warnings);
    }
    for (index, one) in nodes.array_at(&[preferred]).iter().enumerate() {
        let preference = one.get("preference").unwrap_or(&Value::Null);
        term(preference, &format!("{path}.{preferred}[{index}].preference"), warnings);
    }
    for (index, constraint) in spec.array_at(&["topologySpreadConstraints"]).iter().enumerate() {
        let key = text(constraint, "topologyKey");
        if let Some(why) = of_label(key) {
            warnings
                .push(format!("{prefix}spec.topologySpreadConstraints[{index}].topologyKey: {key} is {why}"));
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let path = format!("{prefix}spec.affinity.{kind}");
        for (index, one) in spec.array_at(&["affinity", kind, required]).iter().enumerate() {
            if some(one, "labelSelector").is_none() {
                warnings.push(format!("{path}.{required}[{index}].labelSelector: {NULL_SELECTOR}"));
            }
        }
        for (index, one) in spec.array_at(&["affinity", kind, preferred]).iter().enumerate() {
            if one.at(&["podAffinityTerm", "labelSelector"]).is_none_or(Value::is_null) {
                warnings.push(format!(
                    "{path}.{preferred}[{index}].podAffinityTerm.labelSelector: {NULL_SELECTOR}"
                ));
            }
        }
    }
    pod_annotations(pod, spec, prefix, warnings);
}

fn pod_annotations(pod: &Value, spec: &Value, prefix: &str, warnings: &mut Vec<String>) {
    let mut warn = |key: &str, why: &str| {
        if annotation(pod, key).is_some() {
            warnings.push(format!("{prefix}metadata.annotations[{key}]: {why}"));
        }
    };
    POD_ANNOTATIONS.iter().for_each(|(key, why)| warn(key, why));
    let profile = |holder: &Value, profile: &str| {
        holder.at(&["securityContext", profile]).is_some_and(|profile| !profile.is_null())
    };
    if !profile(spec, "seccompProfile") {
        warn(SECCOMP_POD, SECCOMP);
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.array_at(&[list]) {
            let name = text(container, "name");
            if !profile(container, "seccompProfile") {
                warn(&format!("{SECCOMP_CONTAINER}{name}"), SECCOMP);
            }
            if !profile(container, "appArmorProfile") && !profile(spec, "appArmorProfile") {
                let why = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
                warn(&format!("{APP_ARMOR_CONTAINER}{name}"), why);
            }
        }
    }
}

pub(super) fn volume(volume: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, why) in VOLUME_ANNOTATIONS {
        if annotation(volume, key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
    if volume.str_at(&["spec", "persistentVolumeReclaimPolicy"]) == Some("Recycle") {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach \
             is to use dynamic provisioning."
                .into(),
        );
    }
    let terms = volume.array_at(&["spec", "nodeAffinity", "required", "nodeSelectorTerms"]);
    for (index, one) in terms.iter().enumerate() {
        term(one, &format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}]"), &mut warnings);
    }
    for (member, shown, why) in GONE {
        if volume.at(&["spec", member]).is_some_and(|source| !source.is_null()) {
            warnings.push(format!("spec.{shown}: {why}"));
        }
    }
    warnings
}

pub(super) fn service(service: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let hints = "service.kubernetes.io/topology-aware-hints";
    if annotation(service, hints).is_some() {
        warnings.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let kind = text(spec, "type");
    let external_ips = !spec.array_at(&["externalIPs"]).is_empty();
    let headless = kind == "ClusterIP" && text(spec, "clusterIP") == "None";
    let is_external = kind == "ExternalName";
    let rows = [
        (
            headless && !text(spec, "loadBalancerIP").is_empty(),
            "spec.loadBalancerIP is ignored for headless services",
        ),
        (headless && external_ips, "spec.externalIPs is ignored for headless services"),
        (
            headless && text(spec, "sessionAffinity") != "None",
            "spec.SessionAffinity is ignored for headless services",
        ),
        (is_external && external_ips, r#"spec.externalIPs is ignored when spec.type is "ExternalName""#),
        (
            !is_external && !text(spec, "externalName").is_empty(),
            r#"spec.externalName is ignored when spec.type is not "ExternalName""#,
        ),
        (
            text(spec, "trafficDistribution") == "PreferClose",
            r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#,
        ),
    ];
    warnings.extend(rows.into_iter().filter(|(is, _)| *is).map(|(_, text)| text.to_string()));
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn pods() {
        let object = parse(
            r#"{"metadata":{"annotations":{"seccomp.security.alpha.kubernetes.io/pod":"x","container.seccomp.security.alpha.kubernetes.io/c":"x",
                "container.apparmor.security.beta.kubernetes.io/c":"x"}},
                "spec":{"nodeSelector":{"beta.kubernetes.io/os":"linux"},"containers":[{"name":"c"}],
                "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"beta.kubernetes.io/arch"}]}]}},
                "podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"k"},{"labelSelector":{}}]},
                "podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{}}]}}}}"#,
        );
        let mut warnings = Vec::new();
        pod(&object, "spec.template.", &mut warnings);
        assert_eq!(
            warnings,
            [
                r#"spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#,
                r#"spec.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead"#,
                "spec.template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
                "spec.template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
                r#"spec.template.metadata.annotations[seccomp.security.alpha.kubernetes.io/pod]: non-functional in v1.27+; use the "seccompProfile" field instead"#,
                r#"spec.template.metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "seccompProfile" field instead"#,
                r#"spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: deprecated since v1.30; use the "appArmorProfile" field instead"#,
            ]
        );
    }

    #[test]
    fn volumes_and_services() {
        let object = parse(
            r#"{"metadata":{"annotations":{"volume.beta.kubernetes.io/storage-class":"s"}},
                "spec":{"persistentVolumeReclaimPolicy":"Recycle","rbd":{}}}"#,
        );
        assert_eq!(
            volume(&object),
            [
                r#"metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead"#,
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
                "spec.rbd: deprecated in v1.28, non-functional in v1.31+",
            ]
        );
        let object = parse(
            r#"{"metadata":{"annotations":{"service.kubernetes.io/topology-aware-hints":"Auto"}},
                "spec":{"type":"ClusterIP","clusterIP":"None","externalIPs":["1.1.1.1"],"loadBalancerIP":"1.1.1.1","sessionAffinity":"ClientIP"}}"#,
        );
        assert_eq!(
            service(&object),
            [
                "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
                "spec.loadBalancerIP is ignored for headless services",
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ]
        );
        assert!(
            service(&parse(r#"{"spec":{"type":"ClusterIP","clusterIP":"None","sessionAffinity":"None"}}"#))
                .is_empty()
        );
    }
}
