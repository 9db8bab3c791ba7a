use polder_model::{GroupVersion, Value};

use super::*;
use crate::schema::{Kind, ListType, NodeRef};

fn find<'a>(schema: &'a Schema, path: &str) -> NodeRef<'a> {
    path.split('.').filter(|step| !step.is_empty()).fold(schema.node(), |node, step| match step {
        "[]" => node.items().unwrap(),
        name => node.member(name).unwrap_or_else(|| panic!("no {name} in {path}")),
    })
}

fn resource(group_version: &str, plural: &str) -> &'static BuiltinResource {
    let group_version = GroupVersion::parse(group_version).unwrap();
    let mut resources = builtin().resources.iter();
    resources.find(|own| own.group_version() == group_version && own.plural == plural).unwrap()
}

#[test]
fn the_served_surface_is_complete() {
    let types = builtin();
    let core = types.resources.iter().filter(|own| own.group.is_empty());
    assert_eq!(core.clone().count(), 17);
    assert_eq!(core.map(|own| own.subresources.len()).sum::<usize>(), 22);
    assert_eq!(types.resources.len(), 17 + 51);
    assert_eq!(types.resources.iter().map(|own| own.subresources.len()).sum::<usize>(), 45);
    let mut group_versions: Vec<_> = types.resources.iter().map(BuiltinResource::group_version).collect();
    group_versions.dedup();
    assert_eq!(group_versions.len(), 1 + 22, "{group_versions:?}");
    assert_eq!(types.types.len(), 576);
}

#[test]
fn versions_of_a_group_stand_in_order_of_preference() {
    let autoscaling: Vec<_> = builtin().resources.iter().filter(|own| own.group == "autoscaling").collect();
    assert_eq!(autoscaling.iter().map(|own| own.version.as_str()).collect::<Vec<_>>(), ["v2", "v1"]);
}

#[test]
fn resources_have_their_discovery_facts() {
    let deployments = resource("apps/v1", "deployments");
    assert_eq!(deployments.verbs.join(","), "create,delete,deletecollection,get,list,patch,update,watch");
    assert_eq!(deployments.short_names, ["deploy"]);
    assert_eq!(deployments.categories, ["all"]);
    assert_eq!(deployments.singular, "deployment");
    assert_eq!(deployments.type_name, "io.k8s.api.apps.v1.Deployment");
    assert!(deployments.namespaced);
    let scale = &deployments.subresources[0];
    assert_eq!((scale.name.as_str(), scale.kind.kind.as_str()), ("scale", "Scale"));
    assert_eq!(scale.kind.group_version(), GroupVersion::new("autoscaling", "v1"));
    assert_eq!(scale.type_name.as_deref(), Some("io.k8s.api.autoscaling.v1.Scale"));
    assert_eq!(resource("v1", "namespaces").verbs.join(","), "create,delete,get,list,patch,update,watch");
    assert_eq!(resource("v1", "bindings").verbs, ["create"]);
    let exec = resource("v1", "pods").subresources.iter().find(|own| own.name == "exec").unwrap();
    assert_eq!(exec.type_name, None);
}

#[test]
fn types_have_their_fields() {
    fn check(type_name: &str, path: &str, kind: Kind) -> NodeRef<'static> {
        let schema = Box::leak(Box::new(builtin().schema(type_name).unwrap()));
        let node = find(schema, path);
        assert_eq!(node.get().kind, kind, "{type_name} {path}");
        node
    }
    const POD: &str = "io.k8s.api.core.v1.Pod";
    let containers = check(POD, "spec.containers", Kind::Array).get();
    assert_eq!(containers.list_type, ListType::Map);
    assert_eq!(containers.list_map_keys, ["name"]);
    assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
    assert!(containers.patch.merge && !containers.patch.retain_keys);
    assert!(check(POD, "spec.volumes", Kind::Array).get().patch.retain_keys);
    check(POD, "spec.containers.[].resources.limits.cpu", Kind::Quantity);
    check(POD, "spec.containers.[].livenessProbe.httpGet.port", Kind::IntOrString);
    check(POD, "metadata.creationTimestamp", Kind::Time);
    check(POD, "metadata.labels.any", Kind::String);
    check("io.k8s.api.coordination.v1.Lease", "spec.renewTime", Kind::MicroTime);
    check("io.k8s.api.core.v1.Secret", "data.any", Kind::Bytes);
    check("io.k8s.api.apps.v1.ControllerRevision", "data", Kind::Any);
    check("io.k8s.api.authentication.v1.TokenReview", "status.user.extra.any.[]", Kind::String);
    assert!(check(POD, "spec.nodeSelector", Kind::Object).get().map_atomic);
    assert!(
        check("io.k8s.api.apps.v1.Deployment", "spec.selector", Kind::Object).get().map_atomic,
        "a copy keeps what its type says"
    );
    // The type of this place is atomic, the place is not.
    assert!(!check("io.k8s.api.core.v1.PersistentVolume", "spec.claimRef", Kind::Object).get().map_atomic);
    let protocol = check(POD, "spec.containers.[].ports.[].protocol", Kind::String).get();
    assert_eq!(protocol.default, Some(Value::from("TCP")));
    assert_eq!(protocol.allowed, ["SCTP", "TCP", "UDP"].map(Value::from));
    let usages =
        check("io.k8s.api.certificates.v1.CertificateSigningRequest", "spec.usages.[]", Kind::String);
    assert!(usages.get().allowed.contains(&Value::from("client auth")));
    let start = check("io.k8s.api.apps.v1.StatefulSet", "spec.ordinals.start", Kind::Integer).get();
    assert_eq!((start.default.clone(), start.format.as_deref()), (Some(Value::Int(0)), Some("int32")));
    // Upstream declares an empty default here, too, but never writes it.
    let name = check("io.k8s.api.core.v1.LocalObjectReference", "name", Kind::String).get();
    assert_eq!(name.default, None);
    assert_eq!(check(POD, "spec", Kind::Object).get().required, ["containers"]);
}

#[test]
fn types_may_be_recursive() {
    let definition =
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionVersion";
    let schema = builtin().schema(definition).unwrap();
    let root = find(&schema, "schema.openAPIV3Schema");
    let deep = find(&schema, "schema.openAPIV3Schema.properties.a.not.properties.b.format");
    assert_eq!(deep.get().kind, Kind::String);
    assert_eq!(root.property("properties").unwrap().member("x").unwrap().id(), root.id());
}

#[test]
fn nodes_know_their_type() {
    let types = builtin();
    let pod = types.schema("io.k8s.api.core.v1.Pod").unwrap();
    let name_of = |path: &str| types.name_of(find(&pod, path).id()).map(SmolStr::as_str);
    assert_eq!(name_of(""), Some("io.k8s.api.core.v1.Pod"));
    // This place has a default of its own, so it is a copy.
    assert_eq!(name_of("spec"), Some("io.k8s.api.core.v1.PodSpec"));
    assert_eq!(name_of("spec.containers.[]"), Some("io.k8s.api.core.v1.Container"));
    assert_eq!(name_of("spec.containers"), None);
    assert_eq!(name_of("spec.nodeName"), None);
    let eviction = GroupVersion::new("policy", "v1").kind("Eviction");
    assert_eq!(types.type_name(&eviction).unwrap(), "io.k8s.api.policy.v1.Eviction");
    let options = types.kind("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    assert_eq!(options, Some(&TypeKind::Every));
}

#[test]
fn defaults_stand_where_they_apply() {
    fn check(type_name: &str, path: &str, expected: Option<&str>) {
        let schema = builtin().schema(type_name).unwrap();
        let found = find(&schema, path).get().default.as_ref().map(Value::to_string);
        assert_eq!(found.as_deref(), expected, "{type_name} {path}");
    }
    const JOB: &str = "io.k8s.api.batch.v1.Job";
    const CRON_JOB: &str = "io.k8s.api.batch.v1.CronJob";
    check("io.k8s.api.apps.v1.Deployment", "spec", Some("{}"));
    check("io.k8s.api.apps.v1.Deployment", "spec.replicas", Some("1"));
    check("io.k8s.api.apps.v1.Deployment", "spec.template.spec.restartPolicy", Some("\"Always\""));
    check("io.k8s.api.apps.v1.Deployment", "spec.template.spec.enableServiceLinks", None);
    check("io.k8s.api.core.v1.Pod", "spec.enableServiceLinks", Some("true"));
    check("io.k8s.api.core.v1.PodList", "items.[].spec.enableServiceLinks", Some("true"));
    check(JOB, "spec.suspend", Some("false"));
    check(CRON_JOB, "spec.suspend", Some("false"));
    check(CRON_JOB, "spec.jobTemplate.spec.suspend", None);
    check(CRON_JOB, "spec.jobTemplate.spec.template.spec.dnsPolicy", Some("\"ClusterFirst\""));
    check("io.k8s.api.core.v1.PersistentVolume", "spec.volumeMode", Some("\"Filesystem\""));
    check("io.k8s.api.storage.v1.VolumeAttachment", "spec.source.inlineVolumeSpec.volumeMode", None);
    const BEHAVIOR: &str = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior";
    check(BEHAVIOR, "scaleUp.stabilizationWindowSeconds", Some("0"));
    check(BEHAVIOR, "scaleDown.stabilizationWindowSeconds", None);
    let spec = find(&builtin().schema(JOB).unwrap(), "spec").id();
    assert_eq!(builtin().name_of(spec).unwrap(), "io.k8s.api.batch.v1.JobSpec");
}

/// Every default must be a value its own place accepts, or defaulting would break valid objects.
#[test]
fn defaults_fit_their_types() {
    fn check(node: NodeRef<'_>, value: &Value, path: &str) {
        let own = node.get();
        let fits = match (own.kind, value) {
            (Kind::String, Value::String(_)) => own.allowed.is_empty() || own.allowed.contains(value),
            (Kind::Integer, Value::Int(_))
            | (Kind::Boolean, Value::Bool(_))
            | (Kind::Object, Value::Object(_))
            | (Kind::Array, Value::Array(_)) => true,
            _ => false,
        };
        // Zero values that Go writes for a missing enum are in no enum.
        assert!(fits || matches!(value, Value::String(text) if text.is_empty()), "{path}: {value}");
        if let (Value::Array(items), Some(element)) = (value, node.items()) {
            items.iter().for_each(|item| check(element, item, path));
        }
        for (name, member) in value.as_object().into_iter().flat_map(|object| object.iter()) {
            check(node.member(name).unwrap_or_else(|| panic!("{path}: no {name}")), member, path);
        }
    }
    let mut count = 0;
    for type_name in builtin().type_names() {
        let schema = builtin().schema(type_name).unwrap();
        for (name, place) in &schema.node().get().properties {
            let place = schema.arena.node(*place);
            if let Some(default) = &place.get().default {
                check(place, default, &format!("{type_name} {name}"));
                count += 1;
            }
        }
    }
    assert!(count > 600, "{count}");
}

#[test]
fn broken_tables_name_the_line() {
    fn check(table: &str, defaults: &str, expected: &str) {
        let error = BuiltinTypes::read(table, defaults).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
    check("type a.A\n  b Missing\n", "", "line 2: no type Missing in a or elsewhere");
    check("type a.A\n  b string sorted\n", "", "line 2: unknown word sorted");
    check("type a.A\n  b string\n  a string\n", "", "line 1: fields are not sorted");
    check("  b string\n", "", "line 1: belongs to no block");
    check("resource v1 things cluster kind=Thing\n  verbs get\n", "", "line 1: the kind has no type");
    check("type a.A\n  b string\n", "a.A\n  c 1\n", "line 2: defaults: no field c");
    check("type a.A\n  b B\ntype a.B\n", "a.A\n  b.c 1\n", "line 2: defaults: no field c");
    check(
        "type a.A\n  b B default={}\ntype a.B\n  c A\n",
        "a.B\n  c.b {}\n",
        "line 2: defaults: copies of this type would not have it",
    );
    check("type a.A\n  b string\n", "a.B\n", "line 1: defaults: no type a.B");
}
