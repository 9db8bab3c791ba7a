//! Warnings about what still works and should be written otherwise, or is ignored: old labels of nodes, old annotations, selectors that match nothing.

use std::collections::HashMap;

use polder_model::{Object, SmolStr, Value, json};

use super::addresses::{cidr_warnings, ip_warning};
use super::checks::{some, text, texts};
use super::security_rules::APP_ARMOR_LEN_MAX;

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
/// A hostile service gets a bounded number of warnings.
const ADDRESS_WARNINGS_MAX: usize = 50;
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

/// Gives the containers of a new pod the AppArmor profiles that its annotations say.
pub(super) fn copy_app_armor(pod: &mut Value) {
    if pod.str_at(&["spec", "os", "name"]) == Some("windows") {
        return;
    }
    let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_object).into_iter();
    let profiles: HashMap<SmolStr, Value> = annotations
        .flat_map(Object::iter)
        .filter_map(|(key, value)| {
            let container = key.strip_prefix(APP_ARMOR_CONTAINER)?;
            Some((container.into(), app_armor_field(value.as_str()?)?))
        })
        .collect();
    if profiles.is_empty() {
        return;
    }
    let of_pod = pod.at(&["spec", "securityContext", "appArmorProfile"]).cloned();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let containers = pod.at_mut(&["spec", list]).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(profile) = profiles.get(text(container, "name")) else { continue };
            let own = container.at(&["securityContext", "appArmorProfile"]);
            if own.is_none_or(Value::is_null) && of_pod.as_ref() != Some(profile) {
                container.set_at(&["securityContext", "appArmorProfile"], profile.clone());
            }
        }
    }
}

/// The field that says what an annotation does, if that is anything.
fn app_armor_field(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => {
            let profile = annotation.strip_prefix("localhost/")?;
            let is_good =
                !profile.is_empty() && profile.trim() == profile && profile.len() <= APP_ARMOR_LEN_MAX;
            is_good.then(|| json!({"type": "Localhost", "localhostProfile": profile}))
        }
    }
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
            let key = format!("{APP_ARMOR_CONTAINER}{name}");
            let field = annotation(pod, &key).and_then(Value::as_str).and_then(app_armor_field);
            // In a pod the field may be a copy of the annotation.
            let own = container.at(&["securityContext", "appArmorProfile"]).filter(|own| !own.is_null());
            let is_copy = prefix.is_empty() && own.is_some() && own == field.as_ref();
            let is_same =
                field.is_some() && spec.at(&["securityContext", "appArmorProfile"]) == field.as_ref();
            if is_copy || (own.is_none() && !is_same) {
                let why = r#"deprecated since v1.30; use the "appArmorProfile" field instead"#;
                warn(&key, why);
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
    for list in ["clusterIPs", "externalIPs"] {
        let addresses = texts(spec, list).into_iter().enumerate().filter(|(_, value)| *value != "None");
        let warning = |(index, value): (usize, &str)| ip_warning(value, &format!("spec.{list}[{index}]"));
        warnings.extend(addresses.filter_map(warning).take(ADDRESS_WARNINGS_MAX));
    }
    warnings.extend(ip_warning(text(spec, "loadBalancerIP"), "spec.loadBalancerIP"));
    let ranges = texts(spec, "loadBalancerSourceRanges").into_iter().enumerate();
    let warning = |(index, value): (usize, &str)| {
        cidr_warnings(value, &format!("spec.loadBalancerSourceRanges[{index}]"))
    };
    warnings.extend(ranges.flat_map(warning).take(ADDRESS_WARNINGS_MAX));
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
    fn app_armor_annotations_become_fields() {
        let rows = [
            ("unconfined", "{}", r#"{"type":"Unconfined"}"#, 1),
            ("localhost/a", "{}", r#"{"type":"Localhost","localhostProfile":"a"}"#, 1),
            ("runtime/default", r#"{"appArmorProfile":{"type":"RuntimeDefault"}}"#, "null", 0),
            ("localhost/", "{}", "null", 1),
            ("else", "{}", "null", 1),
        ];
        for (annotation, of_pod, expected, warned) in rows {
            let mut object = parse(&format!(
                r#"{{"metadata":{{"annotations":{{"container.apparmor.security.beta.kubernetes.io/c":"{annotation}"}}}},
                    "spec":{{"securityContext":{of_pod},"containers":[{{"name":"c"}},{{"name":"d"}}]}}}}"#
            ));
            copy_app_armor(&mut object);
            let containers = object.array_at(&["spec", "containers"]);
            let own = containers[0].at(&["securityContext", "appArmorProfile"]).cloned().unwrap_or_default();
            assert_eq!(own, parse(expected), "{annotation}");
            assert!(containers[1].get("securityContext").is_none());
            let mut warnings = Vec::new();
            pod(&object, "", &mut warnings);
            assert_eq!(warnings.len(), warned, "{annotation}: {warnings:?}");
        }
        let mut windows = parse(
            r#"{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}},
                "spec":{"os":{"name":"windows"},"containers":[{"name":"c"}]}}"#,
        );
        let before = windows.clone();
        copy_app_armor(&mut windows);
        assert_eq!(windows, before);
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
        let object = parse(
            r#"{"spec":{"type":"LoadBalancer","clusterIPs":["010.0.0.1","2001:DB8::1","10.0.0.1"],"externalIPs":["::ffff:1.2.3.4"],
                "loadBalancerIP":"1.2.3.4","loadBalancerSourceRanges":["10.0.0.1/8","010.0.0.0/8","2001:db8:0::/32","10.0.0.0/8"]}}"#,
        );
        let later = "will be considered invalid in a future Kubernetes release: use";
        assert_eq!(
            service(&object),
            [
                format!(r#"spec.clusterIPs[0]: non-standard IP address "010.0.0.1" {later} "10.0.0.1""#),
                r#"spec.clusterIPs[1]: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format ("2001:db8::1")"#.into(),
                format!(r#"spec.externalIPs[0]: non-standard IP address "::ffff:1.2.3.4" {later} "1.2.3.4""#),
                r#"spec.loadBalancerSourceRanges[0]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#.into(),
                format!(r#"spec.loadBalancerSourceRanges[1]: non-standard CIDR value "010.0.0.0/8" {later} "10.0.0.0/8""#),
                r#"spec.loadBalancerSourceRanges[2]: IPv6 CIDR value "2001:db8:0::/32" should be in RFC 5952 canonical format ("2001:db8::/32")"#.into(),
            ]
        );
        assert!(
            service(&parse(r#"{"spec":{"type":"ClusterIP","clusterIP":"None","sessionAffinity":"None"}}"#))
                .is_empty()
        );
    }
}
