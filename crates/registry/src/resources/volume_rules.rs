//! Checks of a pod's volumes: one source each, and what each source needs.
//!
//! Paths are upstream's, also where those lack an index or name another member: clients show them.

use std::collections::{HashMap, HashSet};

use polder_model::quantity::Quantity;
use polder_model::{FieldError, FieldPath, Value};

use super::checks::{self, Errors, each, one_of, some, text};
use super::{downward, persistentvolumeclaim};

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Sources in the order in which the first one counts.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// The volumes a container may mount: name, and whether a container may see it as a block device.
pub(super) type Volumes<'a> = HashMap<&'a str, bool>;

/// Checks volumes; the good ones come back. Claim templates are volumes too, and hide volumes of the same name.
pub(super) fn validate<'a>(
    spec: &'a Value,
    claim_templates: &'a [Value],
    path: &FieldPath<'_>,
    errors: &mut Errors,
) -> Volumes<'a> {
    let mut volumes: Volumes<'a> = claim_templates
        .iter()
        .filter_map(|template| template.str_at(&["metadata", "name"]))
        .map(|name| (name, true))
        .collect();
    let templates: HashSet<&str> = volumes.keys().copied().collect();
    for (index, volume) in spec.array_at(&["volumes"]).iter().enumerate() {
        let path = path.index(index);
        let name = text(volume, "name");
        if templates.contains(name) {
            continue;
        }
        let before = errors.len();
        source(volume, &path, errors);
        checks::name_label(volume, &path, errors);
        if volumes.contains_key(name) {
            errors.push(FieldError::duplicate(path.member("name"), name));
        }
        if errors.len() == before {
            let block = ["persistentVolumeClaim", "ephemeral"].iter().any(|key| some(volume, key).is_some());
            volumes.insert(name, block);
        }
    }
    volumes
}

fn source(volume: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let mut found = false;
    for kind in SOURCES {
        let Some(source) = some(volume, kind) else { continue };
        let source_path = path.member(kind);
        if found {
            errors.push(FieldError::forbidden(source_path, "may not specify more than 1 volume type"));
            continue;
        }
        found = true;
        one_source(kind, source, path, &source_path, errors);
    }
}

fn one_source(kind: &str, source: &Value, volume: &FieldPath<'_>, path: &FieldPath<'_>, errors: &mut Errors) {
    match kind {
        "emptyDir" => {
            let limit = some(source, "sizeLimit").and_then(|limit| Quantity::from_value(limit).ok());
            if limit.is_some_and(|limit| limit.is_negative()) {
                let text = "SizeLimit field must be a valid resource quantity";
                errors.push(FieldError::forbidden(path.member("sizeLimit"), text));
            }
        }
        "hostPath" => {
            require(source, &["path"], path, errors);
            no_backsteps(text(source, "path"), &path.member("path"), errors);
        }
        "gitRepo" => {
            require(source, &["repository"], path, errors);
            descending_path(text(source, "directory"), &path.member("directory"), errors);
        }
        "gcePersistentDisk" => {
            let path = volume.member("persistentDisk");
            require(source, &["pdName"], &path, errors);
            partition(source, &path, errors);
        }
        "awsElasticBlockStore" => {
            require(source, &["volumeID"], path, errors);
            partition(source, path, errors);
        }
        "secret" => files(source, "secretName", path, errors),
        "configMap" => files(source, "name", path, errors),
        "nfs" => {
            require(source, &["server", "path"], path, errors);
            if !text(source, "path").starts_with('/') {
                let value = text(source, "path");
                errors.push(FieldError::invalid(path.member("path"), value, "must be an absolute path"));
            }
        }
        "iscsi" => iscsi(source, path, errors),
        "glusterfs" => require(source, &["endpoints", "path"], path, errors),
        "flocker" => flocker(source, path, errors),
        "persistentVolumeClaim" => require(source, &["claimName"], path, errors),
        "rbd" => require(source, &["monitors", "image"], path, errors),
        "cinder" => require(source, &["volumeID"], path, errors),
        "cephfs" => require(source, &["monitors"], path, errors),
        "quobyte" => quobyte(source, path, errors),
        "downwardAPI" => {
            mode(source, "defaultMode", path, errors);
            for file in source.array_at(&["items"]) {
                downward_file(file, path, errors);
            }
        }
        "fc" => fibre_channel(source, path, errors),
        "flexVolume" => require(source, &["driver"], path, errors),
        "azureFile" => require(source, &["secretName", "shareName"], path, errors),
        "vsphereVolume" => require(source, &["volumePath"], path, errors),
        "photonPersistentDisk" => require(source, &["pdID"], path, errors),
        "portworxVolume" => require(source, &["volumeID"], path, errors),
        "azureDisk" => azure_disk(source, path, errors),
        "storageos" => require(source, &["volumeName"], path, errors),
        "projected" => projected(source, path, errors),
        "scaleIO" => require(source, &["gateway", "system", "volumeName"], path, errors),
        "csi" => csi(source, path, errors),
        "ephemeral" => ephemeral(source, path, errors),
        "image" => require(source, &["reference"], path, errors),
        _ => {}
    }
}

/// Checks the source of a persistent volume where it is the same as a pod's.
pub(super) fn validate_persistent(kind: &str, source: &Value, spec: &FieldPath<'_>, errors: &mut Errors) {
    if ["hostPath", "nfs", "glusterfs", "azureDisk", "fc", "gcePersistentDisk", "awsElasticBlockStore"]
        .contains(&kind)
    {
        one_source(kind, source, spec, &spec.member(kind), errors);
    }
}

/// Members, texts or lists, that must not be empty.
fn require(source: &Value, keys: &[&str], path: &FieldPath<'_>, errors: &mut Errors) {
    for key in keys {
        if text(source, key).is_empty() && source.array_at(&[key]).is_empty() {
            errors.push(FieldError::required(path.member(key), ""));
        }
    }
}

fn partition(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(number) = source.i64_at(&["partition"]).filter(|number| !(0..=255).contains(number)) {
        let text = "must be between 1 and 255, inclusive";
        errors.push(FieldError::invalid(path.member("partition"), number, text));
    }
}

fn mode(source: &Value, key: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(mode) = source.get(key).and_then(Value::as_i64).filter(|mode| !(0..=0o777).contains(mode)) {
        errors.push(FieldError::invalid(path.member(key), mode, MODE));
    }
}

/// A volume of files named by keys: a secret or a config map.
fn files(source: &Value, name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    require(source, &[name], path, errors);
    mode(source, "defaultMode", path, errors);
    each(source, "items", path, errors, key_to_path);
}

fn key_to_path(item: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    require(item, &["key", "path"], path, errors);
    own_path(text(item, "path"), &path.member("path"), errors);
    mode(item, "mode", path, errors);
}

fn downward_file(file: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    require(file, &["path"], path, errors);
    own_path(text(file, "path"), &path.member("path"), errors);
    match (some(file, "fieldRef"), some(file, "resourceFieldRef")) {
        (Some(reference), other) => {
            downward::validate_field(reference, &downward::FILE_FIELDS, &path.member("fieldRef"), errors);
            if other.is_some() {
                let text = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.push(FieldError::invalid(path, "resource", text));
            }
        }
        (None, Some(reference)) => {
            downward::validate_resource(reference, true, &path.member("resourceFieldRef"), errors);
        }
        (None, None) => {
            errors.push(FieldError::required(path, "one of fieldRef and resourceFieldRef is required"));
        }
    }
    mode(file, "mode", path, errors);
}

fn iscsi(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    require(source, &["targetPortal", "iqn"], path, errors);
    let iqn = text(source, "iqn");
    if !iqn.is_empty() && !["iqn", "eui", "naa"].iter().any(|prefix| iqn.starts_with(prefix)) {
        let text = "must be valid format starting with iqn, eui, or naa";
        errors.push(FieldError::invalid(path.member("iqn"), iqn, text));
    }
    lun(source, path, errors);
    let authenticates = |key: &str| source.get(key).and_then(Value::as_bool) == Some(true);
    if (authenticates("chapAuthDiscovery") || authenticates("chapAuthSession"))
        && some(source, "secretRef").is_none()
    {
        errors.push(FieldError::required(path.member("secretRef"), ""));
    }
}

fn lun(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(lun) = source.i64_at(&["lun"]).filter(|lun| !(0..=255).contains(lun)) {
        errors.push(FieldError::invalid(path.member("lun"), lun, "must be between 0 and 255, inclusive"));
    }
}

fn flocker(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let (name, uuid) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && uuid.is_empty() {
        errors.push(FieldError::required(path, "one of datasetName and datasetUUID is required"));
    }
    if !name.is_empty() && !uuid.is_empty() {
        let text = "datasetName and datasetUUID can not be specified simultaneously";
        errors.push(FieldError::invalid(path, "resource", text));
    }
    if name.contains('/') {
        errors.push(FieldError::invalid(path.member("datasetName"), name, "must not contain '/'"));
    }
}

fn quobyte(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    if registry.is_empty() {
        errors.push(FieldError::required(path.member("registry"), PAIRS));
    } else if text(source, "tenant").len() >= 65 {
        let text = "must be a UUID and may not exceed a length of 64 characters";
        errors.push(FieldError::required(path.member("tenant"), text));
    } else {
        for pair in registry.split(',').take(checks::ERRORS_MAX) {
            if !pair.contains(':') {
                errors.push(FieldError::invalid(path.member("registry"), registry, PAIRS));
            }
        }
    }
    require(source, &["volume"], path, errors);
}

fn fibre_channel(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let targets = source.array_at(&["targetWWNs"]);
    match (targets.is_empty(), source.array_at(&["wwids"]).is_empty()) {
        (true, true) => {
            let text = "must specify either targetWWNs or wwids, but not both";
            errors.push(FieldError::required(path.member("targetWWNs"), text));
        }
        (false, false) => {
            let text = "targetWWNs and wwids can not be specified simultaneously";
            errors.push(FieldError::invalid(path.member("targetWWNs"), targets.to_vec(), text));
        }
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    if some(source, "lun").is_none() {
        errors.push(FieldError::required(path.member("lun"), "lun is required if targetWWNs is specified"));
    }
    lun(source, path, errors);
}

fn azure_disk(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const MANAGED: &str =
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    require(source, &["diskName", "diskURI"], path, errors);
    one_of(source, "cachingMode", &["None", "ReadOnly", "ReadWrite"], path, errors);
    one_of(source, "kind", &["Dedicated", "Managed", "Shared"], path, errors);
    let uri = text(source, "diskURI");
    let (prefix, supported) = match text(source, "kind") {
        "" => return,
        "Managed" => ("/subscriptions/", MANAGED),
        _ => ("https://", BLOB),
    };
    if !uri.starts_with(prefix) {
        errors.push(FieldError::not_supported(path.member("diskURI"), uri, [supported]));
    }
}

fn csi(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    checks::driver_name(text(source, "driver"), &path.member("driver"), errors);
    if let Some(reference) = some(source, "nodePublishSecretRef") {
        match text(reference, "name") {
            "" => errors.push(FieldError::required(path.member("nodePublishSecretRef").member("name"), "")),
            name => checks::dns_subdomain(name, &path.member("name"), errors),
        }
    }
}

fn ephemeral(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let path = path.member("volumeClaimTemplate");
    let Some(template) = some(source, "volumeClaimTemplate") else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let claim = template.get("spec").unwrap_or(&Value::Null);
    persistentvolumeclaim::validate_spec(claim, &path.member("spec"), errors);
}

fn projected(source: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const CONFLICT: &str = "conflicting duplicate paths";
    mode(source, "defaultMode", path, errors);
    let mut taken: HashSet<String> = HashSet::new();
    each(source, "sources", path, errors, |projection, item_path, errors| {
        let mut take = |target: &str, shown: &str, errors: &mut Errors| {
            if !target.is_empty() && !taken.insert(target.to_owned()) {
                errors.push(FieldError::invalid(path, shown, CONFLICT));
            }
        };
        let kinds = ["secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle"];
        let found = kinds.iter().filter(|kind| some(projection, kind).is_some()).count();
        for kind in ["secret", "configMap"] {
            let Some(own) = some(projection, kind) else { continue };
            let own_path = item_path.member(kind);
            require(own, &["name"], &own_path, errors);
            each(own, "items", &own_path, errors, |item, path, errors| {
                key_to_path(item, path, errors);
                take(text(item, "path"), text(own, "name"), errors);
            });
        }
        for file in projection.array_at(&["downwardAPI", "items"]) {
            downward_file(file, &item_path.member("downwardAPI"), errors);
            take(text(file, "path"), text(file, "path"), errors);
        }
        if let Some(token) = some(projection, "serviceAccountToken") {
            service_account_token(token, path, &item_path.member("serviceAccountToken"), errors);
        }
        if found > 1 {
            let text = "may not specify more than 1 volume type per source";
            errors.push(FieldError::forbidden(item_path, text));
        }
    });
}

fn service_account_token(token: &Value, volume: &FieldPath<'_>, path: &FieldPath<'_>, errors: &mut Errors) {
    let seconds = token.i64_at(&["expirationSeconds"]).unwrap_or(600);
    let text_of = |long: bool| match long {
        true => "may not specify a duration larger than 2^32 seconds",
        false => "may not specify a duration less than 10 minutes",
    };
    if !(600..=1 << 32).contains(&seconds) {
        let text = text_of(seconds > 600);
        errors.push(FieldError::invalid(path.member("expirationSeconds"), seconds, text));
    }
    require(token, &["path"], volume, errors);
    own_path(text(token, "path"), &volume.member("path"), errors);
}

fn no_backsteps(target: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if target.split('/').any(|part| part == "..") {
        errors.push(FieldError::invalid(path, target, "must not contain '..'"));
    }
}

/// A path below another one: relative, never upwards.
pub(super) fn descending_path(target: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.push(FieldError::invalid(path, target, "must be a relative path"));
    }
    no_backsteps(target, path, errors);
}

/// A descending path that does not begin like the names kept for bookkeeping.
fn own_path(target: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    descending_path(target, path, errors);
    if target.starts_with("..") && !target.starts_with("../") {
        errors.push(FieldError::invalid(path, target, "must not start with '..'"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn sources_say_what_they_lack() {
        let rows: &[(&str, &[&str])] = &[
            (r#"{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}"#, &[]),
            (
                r#"{"name":"v","emptyDir":{"sizeLimit":"-1"}}"#,
                &[
                    "volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
                ],
            ),
            (
                r#"{"name":"v","emptyDir":{},"nfs":{}}"#,
                &["volumes[0].nfs: Forbidden: may not specify more than 1 volume type"],
            ),
            (
                r#"{"name":"v","secret":{"secretName":"s","defaultMode":512,"items":[{"key":"k","path":"/a","mode":-1},{"key":"k","path":"..a"},{"path":"../a"}]}}"#,
                &[
                    "volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
                    r#"volumes[0].secret.items[0].path: Invalid value: "/a": must be a relative path"#,
                    "volumes[0].secret.items[0].mode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive",
                    r#"volumes[0].secret.items[1].path: Invalid value: "..a": must not start with '..'"#,
                    "volumes[0].secret.items[2].key: Required value",
                    r#"volumes[0].secret.items[2].path: Invalid value: "../a": must not contain '..'"#,
                ],
            ),
            (
                r#"{"name":"v","gcePersistentDisk":{"partition":300}}"#,
                &[
                    "volumes[0].persistentDisk.pdName: Required value",
                    "volumes[0].persistentDisk.partition: Invalid value: 300: must be between 1 and 255, inclusive",
                ],
            ),
            (
                r#"{"name":"v","nfs":{"server":"s","path":"a"}}"#,
                &[r#"volumes[0].nfs.path: Invalid value: "a": must be an absolute path"#],
            ),
            (
                r#"{"name":"v","iscsi":{"targetPortal":"x","iqn":"bad","lun":256}}"#,
                &[
                    r#"volumes[0].iscsi.iqn: Invalid value: "bad": must be valid format starting with iqn, eui, or naa"#,
                    "volumes[0].iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
                ],
            ),
            (
                r#"{"name":"v","rbd":{}}"#,
                &["volumes[0].rbd.monitors: Required value", "volumes[0].rbd.image: Required value"],
            ),
            (
                r#"{"name":"v","flocker":{}}"#,
                &["volumes[0].flocker: Required value: one of datasetName and datasetUUID is required"],
            ),
            (
                r#"{"name":"v","fc":{}}"#,
                &[
                    "volumes[0].fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both",
                ],
            ),
            (
                r#"{"name":"v","csi":{"driver":"d","nodePublishSecretRef":{}}}"#,
                &["volumes[0].csi.nodePublishSecretRef.name: Required value"],
            ),
            (r#"{"name":"v","ephemeral":{}}"#, &["volumes[0].ephemeral.volumeClaimTemplate: Required value"]),
            (r#"{"name":"v","image":{}}"#, &["volumes[0].image.reference: Required value"]),
            (
                r#"{"name":"v","downwardAPI":{"items":[{"path":"a"},{"path":"a","resourceFieldRef":{"resource":"limits.cpu"}}]}}"#,
                &[
                    "volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
                    "volumes[0].downwardAPI.resourceFieldRef.containerName: Required value",
                ],
            ),
            (
                r#"{"name":"v","projected":{"sources":[{"secret":{"name":"a","items":[{"key":"k","path":"p"}]}},
                    {"configMap":{"name":"b","items":[{"key":"k","path":"p"}]},"secret":{}},
                    {"serviceAccountToken":{"expirationSeconds":10}}]}}"#,
                &[
                    "volumes[0].projected.sources[1].secret.name: Required value",
                    r#"volumes[0].projected: Invalid value: "b": conflicting duplicate paths"#,
                    "volumes[0].projected.sources[1]: Forbidden: may not specify more than 1 volume type per source",
                    "volumes[0].projected.sources[2].serviceAccountToken.expirationSeconds: Invalid value: 10: may not specify a duration less than 10 minutes",
                    "volumes[0].projected.path: Required value",
                ],
            ),
        ];
        for (volume, expected) in rows {
            let mut spec = Value::Null;
            spec.set_at(&["volumes"], vec![parse(volume)]);
            let mut errors = Errors::new();
            let good = validate(&spec, &[], &FieldPath::root("volumes"), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{volume}");
            assert_eq!(good.contains_key("v"), expected.is_empty());
        }
    }
}
