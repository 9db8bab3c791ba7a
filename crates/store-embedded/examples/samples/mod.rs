//! Made-up objects that look like those of a cluster: what the dictionary is trained with and the benchmark stores.
//!
//! Deterministic: the same seed gives the same objects.

#![expect(clippy::cast_possible_truncation, reason = "small numbers, made here")]

use polder_store::Record;
use serde_json::{Value, json};

/// A small generator of pseudo-random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 11) % end
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    fn hex(&mut self, len: usize) -> String {
        (0..len).map(|_| char::from(b"0123456789abcdef"[self.below(16) as usize])).collect()
    }

    fn word(&mut self, len: usize) -> String {
        (0..len).map(|_| char::from(b"bcdfghjklmnpqrstvwxz2456789"[self.below(27) as usize])).collect()
    }

    fn text(&mut self, len: usize) -> String {
        (0..len).map(|_| char::from(33 + self.below(90) as u8)).collect()
    }

    fn uid(&mut self) -> String {
        format!("{}-{}-4{}-a{}-{}", self.hex(8), self.hex(4), self.hex(3), self.hex(3), self.hex(12))
    }

    fn time(&mut self) -> String {
        let mut part = |from: u64, to: u64| from + self.below(to - from);
        format!(
            "20{}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
            part(24, 28),
            part(1, 13),
            part(1, 29),
            part(0, 24),
            part(0, 60),
            part(0, 60)
        )
    }

    fn app(&mut self) -> &'static str {
        self.pick(&[
            "web", "api", "frontend", "worker", "cache", "database", "gateway", "billing", "mailer", "search",
        ])
    }

    fn namespace(&mut self) -> String {
        match self.below(4) {
            0 => "default".to_owned(),
            1 => "kube-system".to_owned(),
            _ => {
                format!("{}-{}", self.pick(&["team", "prod", "staging", "preview", "customer"]), self.word(4))
            }
        }
    }
}

/// One object as it is stored, of any of the kinds below.
pub(crate) fn record(random: &mut Random) -> Record {
    let text = object(random).to_string();
    Record::encode(&polder_model::Value::parse(text.as_bytes()).expect("it was printed as JSON"))
}

fn object(random: &mut Random) -> Value {
    match random.below(12) {
        0 | 1 => config_map(random),
        2 => secret(random),
        3 | 4 => pod(random),
        5 => deployment(random),
        6 => service(random),
        7 => role_binding(random),
        8 => definition(random),
        9 => event(random),
        10 => lease(random),
        _ => custom(random),
    }
}

fn metadata(random: &mut Random, name: &str, fields: Value) -> Value {
    let manager = random.pick(&[
        "kubectl-client-side-apply",
        "kube-controller-manager",
        "kubectl",
        "helm",
        "kustomize-controller",
        "kubelet",
        "polder",
    ]);
    let operation = random.pick(&["Update", "Apply"]);
    let mut metadata = json!({
        "name": name,
        "namespace": random.namespace(),
        "uid": random.uid(),
        "creationTimestamp": random.time(),
        "generation": (random.below(9) + 1) as i64,
        "labels": {"app.kubernetes.io/name": random.app(), "app.kubernetes.io/instance": name,
                   "app.kubernetes.io/managed-by": manager, "app": random.app()},
        "managedFields": [{"manager": manager, "operation": operation, "apiVersion": "v1", "time": random.time(),
                           "fieldsType": "FieldsV1", "fieldsV1": fields}],
    });
    if random.below(3) == 0 {
        metadata["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"apiVersion\":\"v1\",\"kind\":\"{}\"}}", random.word(9)),
                   "deployment.kubernetes.io/revision": "1", "meta.helm.sh/release-name": name,
                   "meta.helm.sh/release-namespace": random.namespace(), "checksum/config": random.hex(40)});
    }
    if random.below(3) == 0 {
        metadata["ownerReferences"] = json!([{"apiVersion": random.pick(&["apps/v1", "batch/v1", "v1"]), "blockOwnerDeletion": true, "controller": true,
                    "kind": random.pick(&["ReplicaSet", "Deployment", "Job", "StatefulSet", "DaemonSet"]),
                    "name": format!("{}-{}", random.app(), random.word(9)), "uid": random.uid()}]);
    }
    if random.below(6) == 0 {
        metadata["finalizers"] =
            json!([random.pick(&["kubernetes", "foregroundDeletion", "polder.dev/cleanup"])]);
    }
    metadata
}

fn config_map(random: &mut Random) -> Value {
    let name = format!("{}-{}", random.app(), random.pick(&["config", "settings", "env", "files"]));
    let fields = json!({"f:data": {".": {}, "f:LOG_LEVEL": {}, "f:config.yaml": {}},
                        "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:annotations": {".": {}}}});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(random, &name, fields),
           "data": {"LOG_LEVEL": random.pick(&["debug", "info", "warn"]), "PORT": (1000 + random.below(9000)).to_string(),
                    "DATABASE_URL": format!("postgres://{}:5432/{}", random.word(6), random.word(6)),
                    "config.yaml": format!("server:\n  host: 0.0.0.0\n  port: {}\nlogging:\n  level: info\n  format: json\nfeatures:\n  {}: true\n", random.below(9999), random.word(8))}})
}

fn secret(random: &mut Random) -> Value {
    let name = format!("{}-{}", random.app(), random.pick(&["tls", "credentials", "token"]));
    let fields = json!({"f:data": {".": {}, "f:password": {}, "f:username": {}}, "f:type": {}});
    let len = 24 + random.below(60) as usize;
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata(random, &name, fields),
           "type": random.pick(&["Opaque", "kubernetes.io/tls", "kubernetes.io/dockerconfigjson", "kubernetes.io/service-account-token"]),
           "data": {"username": random.word(12), "password": random.text(len)}})
}

fn container(random: &mut Random) -> Value {
    json!({"name": random.app(), "image": format!("registry.example.com/{}/{}:v{}.{}.{}", random.word(5), random.app(), random.below(9), random.below(20), random.below(9)),
           "imagePullPolicy": random.pick(&["IfNotPresent", "Always"]),
           "args": ["--port=8080", format!("--name={}", random.word(5))],
           "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                   {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": random.word(6), "key": "password"}}},
                   {"name": "MODE", "value": random.word(6)}],
           "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}, {"containerPort": 9090, "name": "metrics", "protocol": "TCP"}],
           "resources": {"limits": {"cpu": "500m", "memory": random.pick(&["128Mi", "256Mi", "1Gi"])}, "requests": {"cpu": random.pick(&["10m", "100m"]), "memory": "64Mi"}},
           "livenessProbe": {"failureThreshold": 3, "httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "initialDelaySeconds": 10, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
           "readinessProbe": {"failureThreshold": 3, "httpGet": {"path": "/readyz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1},
           "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true, "runAsNonRoot": true},
           "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
           "volumeMounts": [{"mountPath": "/etc/config", "name": "config"}, {"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": format!("kube-api-access-{}", random.word(5)), "readOnly": true}]})
}

fn pod_spec(random: &mut Random) -> Value {
    json!({"containers": [container(random)], "dnsPolicy": "ClusterFirst", "enableServiceLinks": true,
           "preemptionPolicy": "PreemptLowerPriority", "priority": 0, "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {"fsGroup": 1000},
           "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
           "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
                           {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300}],
           "volumes": [{"configMap": {"defaultMode": 420, "name": random.word(6)}, "name": "config"}, {"name": "tmp", "emptyDir": {}},
                       {"name": format!("kube-api-access-{}", random.word(5)), "projected": {"defaultMode": 420, "sources": [
                           {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                           {"configMap": {"items": [{"key": "ca.crt", "path": "ca.crt"}], "name": "kube-root-ca.crt"}},
                           {"downwardAPI": {"items": [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]}}]}}]})
}

fn condition(random: &mut Random, kind: &str) -> Value {
    json!({"lastProbeTime": null, "lastTransitionTime": random.time(), "lastUpdateTime": random.time(),
           "message": random.pick(&["", "Deployment has minimum availability.", "ReplicaSet has successfully progressed.", "containers with unready status"]),
           "reason": random.pick(&["MinimumReplicasAvailable", "NewReplicaSetAvailable", "ContainersNotReady", "Succeeded"]),
           "observedGeneration": 1, "status": random.pick(&["True", "False", "Unknown"]), "type": kind})
}

fn pod(random: &mut Random) -> Value {
    let name = format!("{}-{}-{}", random.app(), random.word(9), random.word(5));
    let fields = json!({"f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:app": {}, "f:pod-template-hash": {}}, "f:ownerReferences": {".": {}}},
                        "f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {}, "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {}}},
                                   "f:dnsPolicy": {}, "f:enableServiceLinks": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {}, "f:terminationGracePeriodSeconds": {}}});
    let mut spec = pod_spec(random);
    spec["nodeName"] = json!(format!("node-{}", random.below(500)));
    let ip = format!("10.{}.{}.{}", random.below(255), random.below(255), random.below(255));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata(random, &name, fields), "spec": spec,
           "status": {"phase": random.pick(&["Running", "Pending", "Succeeded", "Failed"]), "podIP": ip.clone(), "podIPs": [{"ip": ip}], "hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}],
                      "qosClass": "Burstable", "startTime": random.time(),
                      "conditions": [condition(random, "PodReadyToStartContainers"), condition(random, "Initialized"), condition(random, "Ready"), condition(random, "ContainersReady"), condition(random, "PodScheduled")],
                      "containerStatuses": [{"containerID": format!("containerd://{}", random.hex(64)), "image": random.word(20), "imageID": format!("registry.example.com/{}@sha256:{}", random.app(), random.hex(64)),
                                             "lastState": {}, "name": random.app(), "ready": true, "restartCount": random.below(5) as i64, "started": true, "state": {"running": {"startedAt": random.time()}}}]}})
}

fn deployment(random: &mut Random) -> Value {
    let name = format!("{}-{}", random.app(), random.word(4));
    let app = random.app();
    let fields = json!({"f:spec": {"f:progressDeadlineSeconds": {}, "f:replicas": {}, "f:revisionHistoryLimit": {}, "f:selector": {}, "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
                                   "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"api\"}": {".": {}, "f:env": {".": {}, "k:{\"name\":\"MODE\"}": {".": {}, "f:name": {}, "f:value": {}}}, "f:ports": {".": {}, "k:{\"containerPort\":8080,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}, "f:protocol": {}}}}}}}},
                        "f:status": {"f:availableReplicas": {}, "f:conditions": {".": {}, "k:{\"type\":\"Available\"}": {".": {}, "f:lastTransitionTime": {}, "f:lastUpdateTime": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {}}}, "f:observedGeneration": {}, "f:readyReplicas": {}, "f:replicas": {}, "f:updatedReplicas": {}}});
    let replicas = random.below(10) as i64;
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(random, &name, fields),
           "spec": {"progressDeadlineSeconds": 600, "replicas": replicas, "revisionHistoryLimit": 10, "selector": {"matchLabels": {"app": app}},
                    "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}, "type": "RollingUpdate"},
                    "template": {"metadata": {"creationTimestamp": null, "labels": {"app": app}}, "spec": pod_spec(random)}},
           "status": {"availableReplicas": replicas, "readyReplicas": replicas, "replicas": replicas, "updatedReplicas": replicas, "observedGeneration": 1,
                      "conditions": [condition(random, "Available"), condition(random, "Progressing")]}})
}

fn service(random: &mut Random) -> Value {
    let name = random.app().to_owned();
    let fields = json!({"f:spec": {"f:internalTrafficPolicy": {}, "f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}}, "f:selector": {}, "f:sessionAffinity": {}, "f:type": {}}});
    let ip = format!("10.96.{}.{}", random.below(255), random.below(255));
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(random, &name, fields),
           "spec": {"clusterIP": ip.clone(), "clusterIPs": [ip], "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                    "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}], "selector": {"app": name.clone()}, "sessionAffinity": "None",
                    "type": random.pick(&["ClusterIP", "NodePort", "LoadBalancer"])}, "status": {"loadBalancer": {}}})
}

fn role_binding(random: &mut Random) -> Value {
    let name = format!("{}-{}", random.app(), random.pick(&["admin", "edit", "view"]));
    let fields = json!({"f:roleRef": {}, "f:subjects": {}});
    if random.below(2) == 0 {
        return json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata(random, &name, fields),
               "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": random.pick(&["Role", "ClusterRole"]), "name": random.pick(&["admin", "edit", "view", "cluster-admin"])},
               "subjects": [{"kind": "ServiceAccount", "name": random.app(), "namespace": random.namespace()}, {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{}@example.com", random.word(6))},
                            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]});
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata(random, &name, json!({"f:rules": {}})),
           "rules": [{"apiGroups": [""], "resources": ["configmaps", "secrets", "pods", "services", "events"], "verbs": ["get", "list", "watch"]},
                     {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "replicasets"], "verbs": ["create", "update", "patch", "delete"]},
                     {"apiGroups": [random.word(8)], "resources": ["*"], "verbs": ["*"]}]})
}

fn definition(random: &mut Random) -> Value {
    let kind = random.word(7);
    let group = format!("{}.example.com", random.word(5));
    let fields = json!({"f:spec": {"f:conversion": {".": {}, "f:strategy": {}}, "f:group": {}, "f:names": {"f:kind": {}, "f:listKind": {}, "f:plural": {}, "f:singular": {}}, "f:scope": {}, "f:versions": {}}});
    let text = |random: &mut Random| json!({"type": "string", "description": format!("{} of the {}", random.word(6), random.word(7)), "maxLength": 63});
    let status = json!({"type": "object", "properties": {"observedGeneration": {"type": "integer", "format": "int64"}, "conditions": {"type": "array", "items": {"type": "object", "required": ["lastTransitionTime", "message", "reason", "status", "type"], "properties": {"lastTransitionTime": {"type": "string", "format": "date-time"}, "message": text(random), "reason": text(random), "status": {"type": "string", "enum": ["True", "False", "Unknown"]}, "type": text(random)}}}}});
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "format": "int32", "minimum": 0, "default": 1}, "name": text(random), "items": {"type": "array", "items": {"type": "object", "properties": {"key": text(random), "value": text(random)}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"]}, "mode": {"type": "string", "enum": ["A", "B"]}, "extra": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-preserve-unknown-fields": true}}}, "status": status}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": metadata(random, &format!("{kind}s.{group}"), fields),
           "spec": {"conversion": {"strategy": "None"}, "group": group, "names": {"kind": kind.clone(), "listKind": format!("{kind}List"), "plural": format!("{kind}s"), "singular": kind.clone(), "shortNames": [random.word(2)]}, "scope": random.pick(&["Namespaced", "Cluster"]),
                    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                                  "additionalPrinterColumns": [{"jsonPath": ".metadata.creationTimestamp", "name": "Age", "type": "date"}, {"jsonPath": ".status.conditions[?(@.type==\"Ready\")].status", "name": "Ready", "type": "string"}],
                                  "schema": {"openAPIV3Schema": schema}}]},
           "status": {"acceptedNames": {"kind": kind.clone(), "listKind": format!("{kind}List"), "plural": format!("{kind}s"), "singular": kind}, "conditions": [condition(random, "NamesAccepted"), condition(random, "Established")], "storedVersions": ["v1"]}})
}

fn event(random: &mut Random) -> Value {
    let app = format!("{}-{}-{}", random.app(), random.word(9), random.word(5));
    let fields = json!({"f:count": {}, "f:firstTimestamp": {}, "f:involvedObject": {}, "f:lastTimestamp": {}, "f:message": {}, "f:reason": {}, "f:reportingComponent": {}, "f:source": {"f:component": {}}, "f:type": {}});
    let name = format!("{app}.{}", random.hex(16));
    json!({"apiVersion": "v1", "kind": "Event", "metadata": metadata(random, &name, fields),
           "involvedObject": {"apiVersion": "v1", "fieldPath": "spec.containers{web}", "kind": "Pod", "name": app, "namespace": random.namespace(), "resourceVersion": random.below(999_999).to_string(), "uid": random.uid()},
           "reason": random.pick(&["Scheduled", "Pulling", "Pulled", "Created", "Started", "BackOff", "Unhealthy", "SuccessfulCreate", "ScalingReplicaSet", "Killing"]),
           "message": random.pick(&["Successfully assigned", "Container image already present on machine", "Created container", "Started container", "Back-off restarting failed container", "Readiness probe failed", "Scaled up replica set"]),
           "firstTimestamp": random.time(), "lastTimestamp": random.time(), "eventTime": null, "count": random.below(40) as i64, "type": random.pick(&["Normal", "Warning"]),
           "source": {"component": "kubelet", "host": format!("node-{}", random.below(500))}, "reportingComponent": random.pick(&["kubelet", "default-scheduler", "deployment-controller"]), "reportingInstance": ""})
}

fn lease(random: &mut Random) -> Value {
    let name = random.pick(&["kube-scheduler", "kube-controller-manager", "leader-election"]).to_owned();
    let fields = json!({"f:spec": {"f:acquireTime": {}, "f:holderIdentity": {}, "f:leaseDurationSeconds": {}, "f:leaseTransitions": {}, "f:renewTime": {}}});
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(random, &name, fields),
           "spec": {"holderIdentity": format!("{}_{}", random.word(8), random.uid()), "leaseDurationSeconds": 15, "leaseTransitions": random.below(9) as i64, "acquireTime": random.time(), "renewTime": random.time()}})
}

fn custom(random: &mut Random) -> Value {
    let name = random.word(8);
    let fields = json!({"f:spec": {".": {}, "f:replicas": {}, "f:items": {}}, "f:status": {".": {}, "f:conditions": {}}});
    json!({"apiVersion": format!("{}.example.com/v1", random.word(5)), "kind": random.word(7), "metadata": metadata(random, &name, fields),
           "spec": {"replicas": random.below(9) as i64, "name": random.word(8), "items": [{"key": random.word(5), "value": random.word(9)}, {"key": random.word(5), "value": random.word(9)}], "suspend": false, "interval": "5m0s"},
           "status": {"observedGeneration": 1, "conditions": [condition(random, "Ready")]}})
}
