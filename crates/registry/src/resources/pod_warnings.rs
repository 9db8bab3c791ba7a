//! What is allowed in a pod or a template and probably not meant.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use polder_model::Value;

use super::checks::{some, text};
use super::{deprecations, resource_amounts};

/// A hostile pod gets a bounded number of warnings.
const WARNINGS_MAX: usize = 50;
/// Paths of one volume that are compared with each other.
const PATHS_MAX: usize = 100;
/// No file system has longer ones.
const PATH_LEN_MAX: usize = 4096;

/// Volumes that nothing mounts any more: member, member in the text, since when.
const GONE: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Warnings about a pod (`prefix` is empty) or a template (`prefix` is its path with a dot).
pub(super) fn of(pod: &Value, prefix: &str) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let path = format!("{prefix}spec");
    for (index, constraint) in spec.array_at(&["topologySpreadConstraints"]).iter().enumerate() {
        if some(constraint, "labelSelector").is_none() {
            warnings.push(format!(
                "{path}.topologySpreadConstraints[{index}].labelSelector: a null labelSelector results in matching no pod"
            ));
        }
    }
    for (index, volume) in spec.array_at(&["volumes"]).iter().enumerate() {
        for (member, shown, why) in GONE {
            if some(volume, member).is_some() {
                warnings.push(format!("{path}.volumes[{index}].{shown}: {why}"));
            }
        }
    }
    for volume in spec.array_at(&["volumes"]) {
        overlapping_paths(volume, &mut warnings);
    }
    repeated(spec, "hostAliases", "ip", &path, &mut warnings);
    repeated(spec, "imagePullSecrets", "name", &path, &mut warnings);
    for (index, secret) in spec.array_at(&["imagePullSecrets"]).iter().enumerate() {
        if text(secret, "name").is_empty() {
            warnings.push(format!("{path}.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    deprecations::pod(pod, prefix, &mut warnings);
    containers(spec, &path, &mut warnings);
    ports(spec, &path, &mut warnings);
    if spec.i64_at(&["terminationGracePeriodSeconds"]).is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    warnings.truncate(WARNINGS_MAX);
    warnings
}

/// Files of one volume that lie over or below each other.
fn overlapping_paths(volume: &Value, warnings: &mut Vec<String>) {
    let name = text(volume, "name");
    let items = |source: &Value, about: &str| -> Vec<(String, String)> {
        let all = source.array_at(&["items"]).iter();
        all.map(|item| (text(item, "path").to_owned(), about.to_owned())).collect()
    };
    for (member, shown, named) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let Some(source) = some(volume, member) else { continue };
        let shown = match named {
            "" => shown.to_owned(),
            named => format!("{shown} {:?}", text(source, named)),
        };
        overlaps(&items(source, ""), |what| warnings.push(format!("volume {name:?} ({shown}): {what}")));
    }
    let mut files = Vec::new();
    for source in volume.array_at(&["projected", "sources"]) {
        if source.as_object().is_none_or(polder_model::Object::is_empty) {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        let file = |path: &str, about: String| (path.to_owned(), about);
        if let Some(map) = some(source, "configMap") {
            files.extend(items(map, &format!("ConfigMap {:?}", text(map, "name"))));
        } else if let Some(secret) = some(source, "secret") {
            files.extend(items(secret, &format!("Secret {:?}", text(secret, "name"))));
        } else if let Some(downward) = some(source, "downwardAPI") {
            files.extend(items(downward, "DownwardAPI"));
        } else if let Some(token) = some(source, "serviceAccountToken") {
            files.push(file(text(token, "path"), "ServiceAccountToken".into()));
        } else if let Some(bundle) = some(source, "clusterTrustBundle") {
            let of = some(bundle, "name").or_else(|| some(bundle, "signerName")).and_then(Value::as_str);
            files
                .push(file(text(bundle, "path"), format!("ClusterTrustBundle {:?}", of.unwrap_or_default())));
        } else if let Some(certificate) = some(source, "podCertificate") {
            let parts = [
                ("certificateChainPath", "PodCertificate chain"),
                ("keyPath", "PodCertificate key"),
                ("credentialBundlePath", "PodCertificate credential bundle"),
            ];
            files.extend(parts.map(|(key, about)| file(text(certificate, key), about.into())));
        }
    }
    overlaps(&files, |what| warnings.push(format!("volume {name:?} (Projected): {what}")));
}

/// Says which files, each of a source, are or hold an earlier one.
fn overlaps(files: &[(String, String)], mut say: impl FnMut(String)) {
    let shown = |path: &str, about: &str| match about {
        "" => format!("{path:?}"),
        about => format!("{path:?} ({about})"),
    };
    let holds = |outer: &str, inner: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let paths = files.iter().take(PATHS_MAX).map(|(path, about)| (path.trim_end_matches('/'), about));
    let paths: Vec<_> = paths.filter(|(path, _)| (1..=PATH_LEN_MAX).contains(&path.len())).collect();
    let mut said = 0;
    for (index, (path, about)) in paths.iter().enumerate() {
        for (earlier, earlier_about) in &paths[..index] {
            if holds(earlier, path) || holds(path, earlier) {
                said += 1;
                let (one, other) = (shown(path, about), shown(earlier, earlier_about));
                say(format!("overlapping paths: {one} with {other}"));
                if said == WARNINGS_MAX {
                    return;
                }
            }
        }
    }
}

fn repeated(spec: &Value, list: &str, key: &str, path: &str, warnings: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, item) in spec.array_at(&[list]).iter().enumerate() {
        let value = text(item, key);
        if !seen.insert(value) {
            warnings.push(format!("{path}.{list}[{index}].{key}: duplicate {key} {value:?}"));
        }
    }
}

/// Every container with its path.
fn each_container<'a>(spec: &'a Value, path: &str) -> Vec<(&'a Value, String)> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|list| {
            let items = spec.array_at(&[list]).iter().enumerate();
            items.map(move |(index, container)| (container, format!("{path}.{list}[{index}]")))
        })
        .collect()
}

fn containers(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    for (container, path) in each_container(spec, path) {
        for name in ["memory", "ephemeral-storage"] {
            for list in ["limits", "requests"] {
                let amount = resource_amounts::amount(container.at(&["resources", list, name]));
                if let Some(amount) = amount.filter(|amount| amount.as_milli() % 1000 != 0) {
                    warnings.push(format!(
                        "{path}.resources.{list}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"
                    ));
                }
            }
        }
        let mut seen = HashSet::new();
        for (index, variable) in container.array_at(&["env"]).iter().enumerate() {
            let (name, value) = (text(variable, "name"), text(variable, "value"));
            let own = format!("$({name})");
            // A value that builds on the one before is meant.
            let extends = some(variable, "valueFrom").is_none() && value != own && value.contains(&own);
            if !seen.insert(name) && !extends {
                warnings.push(format!(
                    "{path}.env[{index}]: hides previous definition of {name:?}, which may be dropped when using apply"
                ));
            }
        }
    }
}

/// A port that was there before: where, and its host port and address.
type Seen<'a> = (String, i64, &'a str);

fn ports(spec: &Value, path: &str, warnings: &mut Vec<String>) {
    let mut numbers: HashMap<(i64, &str), Vec<Seen<'_>>> = HashMap::new();
    let mut names: HashMap<&str, String> = HashMap::new();
    let mut name_warnings = Vec::new();
    for (container, path) in each_container(spec, path) {
        for (index, port) in container.array_at(&["ports"]).iter().enumerate() {
            if warnings.len() + name_warnings.len() > WARNINGS_MAX {
                return;
            }
            let path = format!("{path}.ports[{index}]");
            let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
            let (host_port, host_ip) = (number("hostPort"), text(port, "hostIP"));
            let (name, protocol) = (text(port, "name"), text(port, "protocol"));
            if !host_ip.is_empty() && host_port == 0 {
                let mut warning = format!("{path}: hostIP set without hostPort: {{");
                let _ = write!(
                    warning,
                    "Name:{name} HostPort:0 ContainerPort:{} Protocol:{protocol} HostIP:{host_ip}}}",
                    number("containerPort")
                );
                warnings.push(warning);
            }
            let others = numbers.entry((number("containerPort"), protocol)).or_default();
            for (other, other_port, other_ip) in others.iter().take(WARNINGS_MAX) {
                let kind = if host_ip == *other_ip && host_port == *other_port {
                    "duplicate"
                } else if host_port == 0 || *other_port == 0 {
                    "overlapping"
                } else if host_port == *other_port && host_ip.is_empty() != other_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                warnings.push(format!("{path}: {kind} port definition with {other}"));
            }
            others.push((path.clone(), host_port, host_ip));
            if name.is_empty() {
                continue;
            }
            match names.get(name) {
                Some(other) => name_warnings.push(format!(
                    "{path}: duplicate port name {name:?} with {other}, services and probes that select ports by name will use {other}"
                )),
                None => {
                    names.insert(name, path);
                }
            }
        }
    }
    warnings.append(&mut name_warnings);
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn warnings() {
        let rows: &[(&str, &[&str])] = &[
            (r#"{"containers":[{"env":[{"name":"a","value":"b"},{"name":"a","value":"$(a)c"}]}]}"#, &[]),
            (
                r#"{"containers":[{"env":[{"name":"a","value":"b"},{"name":"a","value":"c"}],"resources":{"limits":{"memory":"100m"}}}]}"#,
                &[
                    r#"spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer"#,
                    r#"spec.containers[0].env[1]: hides previous definition of "a", which may be dropped when using apply"#,
                ],
            ),
            (
                r#"{"volumes":[{"name":"a","configMap":{"name":"m","items":[{"path":"x/y"},{"path":"x/"},{"path":"xy"}]}},
                    {"name":"b","projected":{"sources":[{"secret":{"name":"s","items":[{"path":"token"}]}},{},{"serviceAccountToken":{"path":"token"}}]}},
                    {"name":"c","downwardAPI":{"items":[{"path":"p"},{"path":"p"}]}}]}"#,
                &[
                    r#"volume "a" (ConfigMap "m"): overlapping paths: "x" with "x/y""#,
                    r#"volume "b" (Projected) has no sources provided"#,
                    r#"volume "b" (Projected): overlapping paths: "token" (ServiceAccountToken) with "token" (Secret "s")"#,
                    r#"volume "c" (DownwardAPI): overlapping paths: "p" with "p""#,
                ],
            ),
            (
                r#"{"hostAliases":[{"ip":"1.1.1.1"},{"ip":"1.1.1.1"}],"imagePullSecrets":[{}],"volumes":[{"name":"v","storageos":{}}],
                    "topologySpreadConstraints":[{}],"terminationGracePeriodSeconds":-1}"#,
                &[
                    "spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
                    "spec.volumes[0].storageOS: deprecated in v1.22, non-functional in v1.25+",
                    r#"spec.hostAliases[1].ip: duplicate ip "1.1.1.1""#,
                    r#"spec.imagePullSecrets[0].name: invalid empty name """#,
                    "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
                ],
            ),
            (
                r#"{"containers":[{"ports":[{"name":"a","containerPort":80,"protocol":"TCP","hostIP":"x"},{"name":"a","containerPort":80,"protocol":"TCP"}]}]}"#,
                &[
                    "spec.containers[0].ports[0]: hostIP set without hostPort: {Name:a HostPort:0 ContainerPort:80 Protocol:TCP HostIP:x}",
                    "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
                    r#"spec.containers[0].ports[1]: duplicate port name "a" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]"#,
                ],
            ),
        ];
        // What nobody needs is not compared.
        let long = "x/".repeat(3_000);
        let many = format!(r#"{{"path":"{long}"}},"#).repeat(3);
        let many = format!(r#"{{"volumes":[{{"name":"a","secret":{{"items":[{many}{{}}]}}}}]}}"#);
        let same = r#"{"path":"y"},"#.repeat(2_000);
        let same = format!(r#"{{"volumes":[{{"name":"a","secret":{{"items":[{same}{{}}]}}}}]}}"#);
        for (spec, len) in [(many, 0), (same, WARNINGS_MAX)] {
            let mut pod = Value::Null;
            pod.set_at(&["spec"], parse(&spec));
            assert_eq!(of(&pod, "").len(), len);
        }
        for (spec, expected) in rows {
            let mut pod = Value::Null;
            pod.set_at(&["spec"], parse(spec));
            assert_eq!(of(&pod, ""), *expected, "{spec}");
        }
    }
}
