//! What a pod needs to run, and so the node it is bound to may see; and what a volume needs to be mounted.

use crate::{SmolStr, Value, format_smolstr};

const MIRROR: &str = "kubernetes.io/config.mirror";
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// Kinds of volumes that name a secret by `secretRef`.
const WITH_SECRET: [&str; 7] = ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"];

/// What a pod may refer to, all of it in its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Referent {
    Secret,
    ConfigMap,
    ServiceAccount,
    VolumeClaim,
    ResourceClaim,
}

/// Whether a kubelet found the pod in a file: it is only shown in the API.
pub fn is_mirror(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR]).is_some()
}

/// What a pod of a name refers to, each once.
pub fn references(name: &str, pod: &Value) -> Vec<(Referent, SmolStr)> {
    let mut all = Vec::new();
    let mut add = |thing: Referent, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            all.push((thing, SmolStr::new(name)));
        }
    };
    add(Referent::ServiceAccount, pod.str_at(&["spec", "serviceAccountName"]));
    for own in pod.array_at(&["spec", "imagePullSecrets"]) {
        add(Referent::Secret, own.str_at(&["name"]));
    }
    for container in CONTAINERS.iter().flat_map(|kind| pod.array_at(&["spec", kind])) {
        for variable in container.array_at(&["env"]) {
            add(Referent::Secret, variable.str_at(&["valueFrom", "secretKeyRef", "name"]));
            add(Referent::ConfigMap, variable.str_at(&["valueFrom", "configMapKeyRef", "name"]));
        }
        for source in container.array_at(&["envFrom"]) {
            add(Referent::Secret, source.str_at(&["secretRef", "name"]));
            add(Referent::ConfigMap, source.str_at(&["configMapRef", "name"]));
        }
    }
    for volume in pod.array_at(&["spec", "volumes"]) {
        add(Referent::Secret, volume.str_at(&["secret", "secretName"]));
        add(Referent::Secret, volume.str_at(&["azureFile", "secretName"]));
        add(Referent::Secret, volume.str_at(&["csi", "nodePublishSecretRef", "name"]));
        for kind in WITH_SECRET {
            add(Referent::Secret, volume.str_at(&[kind, "secretRef", "name"]));
        }
        add(Referent::ConfigMap, volume.str_at(&["configMap", "name"]));
        for source in volume.array_at(&["projected", "sources"]) {
            add(Referent::Secret, source.str_at(&["secret", "name"]));
            add(Referent::ConfigMap, source.str_at(&["configMap", "name"]));
        }
        add(Referent::VolumeClaim, volume.str_at(&["persistentVolumeClaim", "claimName"]));
        if volume.get("ephemeral").is_some_and(|own| !own.is_null()) {
            let own = volume.str_at(&["name"]).unwrap_or_default();
            add(Referent::VolumeClaim, Some(&format_smolstr!("{name}-{own}")));
        }
    }
    for claim in pod.array_at(&["spec", "resourceClaims"]) {
        // One that is made from a template has the name that its maker noted.
        let own = claim.str_at(&["name"]);
        let mut noted = pod.array_at(&["status", "resourceClaimStatuses"]).iter();
        let noted = noted.find(|status| own.is_some() && status.str_at(&["name"]) == own);
        let made = noted.and_then(|status| status.str_at(&["resourceClaimName"]));
        add(Referent::ResourceClaim, claim.str_at(&["resourceClaimName"]).or(made));
    }
    let extended = ["status", "extendedResourceClaimStatus", "resourceClaimName"];
    add(Referent::ResourceClaim, pod.str_at(&extended));
    all.sort_unstable();
    all.dedup();
    all.shrink_to_fit();
    all
}

/// The secrets a node needs to mount a volume, with their namespaces: that of its claim if they have none of their own.
pub fn volume_secrets(volume: &Value) -> Vec<(SmolStr, SmolStr)> {
    let place = volume.str_at(&["spec", "claimRef", "namespace"]).unwrap_or_default();
    let mut all = Vec::new();
    let mut add = |namespace: Option<&str>, name: Option<&str>| {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(place);
            all.push((SmolStr::new(namespace), SmolStr::new(name)));
        }
    };
    let text = |path: [&str; 3]| volume.str_at(&["spec", path[0], path[1], path[2]]);
    for kind in WITH_SECRET {
        add(text([kind, "secretRef", "namespace"]), text([kind, "secretRef", "name"]));
    }
    for own in ["nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"] {
        add(text(["csi", own, "namespace"]), text(["csi", own, "name"]));
    }
    let azure = |field: &str| volume.str_at(&["spec", "azureFile", field]);
    add(azure("secretNamespace"), azure("secretName"));
    all
}

#[cfg(test)]
mod tests {
    use crate::json;

    use super::*;

    #[test]
    fn what_pods_need() {
        let mut pod = json!({
            "metadata": {},
            "spec": {
                "nodeName": "a", "serviceAccountName": "sa", "imagePullSecrets": [{"name": "s-pull"}],
                "containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s-env"}}}],
                    "envFrom": [{"configMapRef": {"name": "c-from"}}, {"secretRef": {"name": "s-pull"}}]}],
                "initContainers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "c-init"}}}]}],
                "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "s-debug"}}]}],
                "volumes": [
                    {"name": "v1", "secret": {"secretName": "s-volume"}}, {"name": "v2", "configMap": {"name": "c-volume"}},
                    {"name": "v3", "projected": {"sources": [{"secret": {"name": "s-projected"}}, {"configMap": {"name": "c-projected"}}]}},
                    {"name": "v4", "persistentVolumeClaim": {"claimName": "p"}}, {"name": "v5", "ephemeral": {"volumeClaimTemplate": {}}},
                    {"name": "v6", "csi": {"nodePublishSecretRef": {"name": "s-csi"}}}, {"name": "v7", "rbd": {"secretRef": {"name": "s-rbd"}}},
                    {"name": "v8", "azureFile": {"secretName": "s-azure"}},
                ],
                "resourceClaims": [{"name": "x", "resourceClaimName": "r-named"}, {"name": "y", "resourceClaimTemplateName": "t"}, {"name": "z", "resourceClaimTemplateName": "t"}],
            },
            "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "r-made"}],
                "extendedResourceClaimStatus": {"resourceClaimName": "r-extended"}},
        });
        let shown = |pod: &Value| {
            let all = references("pod", pod);
            let texts = all.iter().map(|(referent, name)| format!("{referent:?} {name}"));
            texts.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(
            shown(&pod),
            "Secret s-azure, Secret s-csi, Secret s-debug, Secret s-env, Secret s-projected, Secret s-pull, Secret s-rbd, \
             Secret s-volume, ConfigMap c-from, ConfigMap c-init, ConfigMap c-projected, ConfigMap c-volume, ServiceAccount sa, \
             VolumeClaim p, VolumeClaim pod-v5, ResourceClaim r-extended, ResourceClaim r-made, ResourceClaim r-named"
        );
        assert!(!is_mirror(&pod));
        pod.set_at(&["metadata", "annotations", MIRROR], "x");
        assert!(is_mirror(&pod));
    }

    #[test]
    fn what_volumes_need() {
        let volume = json!({"spec": {
            "claimRef": {"namespace": "n", "name": "p"}, "azureFile": {"secretName": "azure"},
            "rbd": {"secretRef": {"name": "rbd", "namespace": "other"}},
            "csi": {"nodeStageSecretRef": {"name": "stage", "namespace": "m"}, "controllerPublishSecretRef": {"name": "c", "namespace": "m"}},
        }});
        let shown: Vec<String> =
            volume_secrets(&volume).iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        assert_eq!(shown, ["other/rbd", "m/stage", "n/azure"]);
    }
}
