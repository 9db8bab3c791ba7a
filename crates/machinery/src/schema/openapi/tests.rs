use std::collections::HashSet;

use super::*;
use crate::schema::table::builtin;
use crate::schema::{Arena, Kind, Node};

fn builtin_resources() -> Vec<PublishedResource> {
    builtin().resources.iter().map(PublishedResource::builtin).collect()
}

fn custom(schema: PublishedSchema) -> PublishedResource {
    let kind = GroupVersion::new("example.com", "v1").kind("Foo");
    let status = Subresource {
        name: "status".into(),
        kind: kind.clone(),
        verbs: ["get", "patch", "update"].map(SmolStr::from).into(),
        type_name: Some(custom_type_name(&kind)),
    };
    PublishedResource {
        group_version: kind.group_version(),
        plural: "foos".into(),
        kind: "Foo".into(),
        list_kind: "FooList".into(),
        namespaced: true,
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(SmolStr::from)
            .into(),
        subresources: vec![status],
        type_name: custom_type_name(&kind),
        schema,
    }
}

fn written(text: &str) -> PublishedResource {
    custom(PublishedSchema::Written(Arc::new(Value::parse(text.as_bytes()).unwrap())))
}

fn check(document: &Value, path: &[&str], expected: &str) {
    let found = document.at(path).unwrap_or_else(|| panic!("nothing at {path:?}"));
    assert_eq!(found.to_string(), expected, "{path:?}");
}

/// All values of a member, wherever it stands.
fn collect<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, found)),
        Value::Object(object) => object.iter().for_each(|(name, member)| match member {
            Value::String(text) if name == key => found.push(text),
            _ => collect(member, key, found),
        }),
        _ => {}
    }
}

#[test]
fn v3_documents_of_builtin_kinds() {
    let document = v3_document(builtin(), &GroupVersion::new("apps", "v1"), &builtin_resources());
    let spec = ["components", "schemas", "io.k8s.api.apps.v1.DeploymentSpec", "properties"];
    let at = |name: &'static str| [spec[0], spec[1], spec[2], spec[3], name];
    check(
        &document,
        &at("replicas"),
        r#"{"default":1,"description":"Number of pods wanted. Default: 1. Leave it out when an autoscaler decides.","format":"int32","type":"integer"}"#,
    );
    // Words beside `$ref` are ignored, so they go around it.
    check(
        &document,
        &at("strategy"),
        r##"{"allOf":[{"$ref":"#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"}],"default":{},"description":"How old pods give way to new ones.","x-kubernetes-patch-strategy":"retainKeys"}"##,
    );
    check(
        &document,
        &[spec[0], spec[1], spec[2], "description"],
        r#""What a Deployment runs and how it rolls out.""#,
    );
    check(
        &document,
        &[spec[0], spec[1], "io.k8s.api.apps.v1.DeploymentList", "description"],
        r#""A list of Deployment objects.""#,
    );
    let schemas = ["components", "schemas"];
    check(
        &document,
        &[schemas[0], schemas[1], "io.k8s.apimachinery.pkg.util.intstr.IntOrString"],
        r#"{"description":"A whole number, or text: a percentage such as 25%, or the name of a port.","format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}]}"#,
    );
    check(
        &document,
        &[schemas[0], schemas[1], "io.k8s.api.apps.v1.Deployment", "x-kubernetes-group-version-kind"],
        r#"[{"group":"apps","kind":"Deployment","version":"v1"}]"#,
    );
    let patch = ["paths", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "patch"];
    let mut names = Vec::new();
    collect(document.at(&patch).unwrap().get("parameters").unwrap(), "name", &mut names);
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    check(&document, &[patch[0], patch[1], patch[2], "x-kubernetes-action"], r#""patch""#);
    assert_eq!(document.at(&["paths", "/api/v1/namespaces"]), None, "another group version");
    let scale = ["paths", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", "put"];
    check(
        &document,
        &[scale[0], scale[1], scale[2], "x-kubernetes-group-version-kind"],
        r#"{"group":"autoscaling","kind":"Scale","version":"v1"}"#,
    );
}

#[test]
fn v2_document_of_builtin_kinds() {
    let document = v2_document(builtin(), &builtin_resources());
    let pod_spec = ["definitions", "io.k8s.api.core.v1.PodSpec", "properties"];
    check(
        &document,
        &[pod_spec[0], pod_spec[1], pod_spec[2], "containers"],
        r##"{"description":"The containers; at least one. They start together. None can be added or removed later.","items":{"$ref":"#/definitions/io.k8s.api.core.v1.Container"},"type":"array","x-kubernetes-list-map-keys":["name"],"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"name","x-kubernetes-patch-strategy":"merge"}"##,
    );
    check(
        &document,
        &["definitions", "io.k8s.api.core.v1.PersistentVolumeSpec", "properties", "claimRef"],
        r##"{"$ref":"#/definitions/io.k8s.api.core.v1.ObjectReference","description":"The claim it is bound to. Set it to reserve the volume for a claim; the claim must agree.","x-kubernetes-map-type":"granular"}"##,
    );
    let mut defaults = Vec::new();
    collect(document.get("definitions").unwrap(), "default", &mut defaults);
    assert_eq!(defaults, Vec::<&str>::new());
    let mut ids = Vec::new();
    collect(document.get("paths").unwrap(), "operationId", &mut ids);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "operation ids are unique");
    assert!(ids.contains(&"deleteRbacAuthorizationV1CollectionNamespacedRoleBinding"));
    assert!(ids.contains(&"connectCoreV1GetNamespacedPodExec"));
}

#[test]
fn nothing_is_referred_to_that_is_not_defined() {
    let mut resources = builtin_resources();
    resources.push(written(r#"{"type":"object"}"#));
    let mut documents = vec![v2_document(builtin(), &resources)];
    let mut group_versions: Vec<_> = resources.iter().map(|own| own.group_version.clone()).collect();
    group_versions.dedup();
    documents.extend(group_versions.iter().map(|own| v3_document(builtin(), own, &resources)));
    for document in documents {
        let mut references = Vec::new();
        collect(&document, "$ref", &mut references);
        assert!(references.len() > 10);
        for reference in references {
            let path: Vec<&str> = reference.strip_prefix("#/").unwrap().split('/').collect();
            assert!(document.at(&path).is_some(), "{reference}");
        }
    }
}

#[test]
fn custom_resources_are_completed() {
    let foo = written(
        r#"{"type":"object","description":"A foo.","properties":{"spec":{"type":"object","required":["a"],
            "properties":{"a":{"type":"string","nullable":true,"default":"x"},"port":{"x-kubernetes-int-or-string":true},
            "inner":{"type":"object","x-kubernetes-embedded-resource":true},
            "open":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"b":{"type":"string"}}},
            "either":{"type":"integer","oneOf":[{"minimum":1}]}}}}}"#,
    );
    let v3 = v3_document(builtin(), &foo.group_version, std::slice::from_ref(&foo));
    let at = |document: &Value, root: &[&str], path: &[&str], expected: &str| {
        check(document, &[root, &["com.example.v1.Foo", "properties"], path].concat(), expected);
    };
    let root = ["components", "schemas"];
    at(&v3, &root, &["spec", "properties", "a"], r#"{"default":"x","nullable":true,"type":"string"}"#);
    at(
        &v3,
        &root,
        &["spec", "properties", "port"],
        r#"{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}"#,
    );
    at(
        &v3,
        &root,
        &["metadata"],
        r##"{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}],"description":"Standard object's metadata."}"##,
    );
    at(&v3, &root, &["spec", "properties", "inner", "required"], r#"["kind","apiVersion"]"#);
    check(&v3, &["components", "schemas", "com.example.v1.Foo", "description"], r#""A foo.""#);
    check(
        &v3,
        &["components", "schemas", "com.example.v1.FooList", "x-kubernetes-group-version-kind"],
        r#"[{"group":"example.com","kind":"FooList","version":"v1"}]"#,
    );
    let content = v3.at(&[
        "paths",
        "/apis/example.com/v1/namespaces/{namespace}/foos/{name}/status",
        "patch",
        "requestBody",
        "content",
    ]);
    assert!(!content.unwrap().as_object().unwrap().contains_key("application/strategic-merge-patch+json"));

    // Version 2 drops what it cannot say, and types where kubectl would misread them.
    let v2 = v2_document(builtin(), &[foo]);
    let root = ["definitions"];
    at(&v2, &root, &["spec", "properties", "a"], "{}");
    assert_eq!(v2.at(&["definitions", "com.example.v1.Foo", "properties", "spec", "required"]), None);
    at(&v2, &root, &["spec", "properties", "open"], r#"{"x-kubernetes-preserve-unknown-fields":true}"#);
    at(&v2, &root, &["spec", "properties", "either"], r#"{"type":"integer"}"#);
}

#[test]
fn open_and_missing_schemas_are_any_object() {
    const ANY: &str = r#"{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","kind":"Foo","version":"v1"}]}"#;
    let definition = ["definitions", "com.example.v1.Foo"];
    check(&v2_document(builtin(), &[custom(PublishedSchema::Unknown)]), &definition, ANY);
    let open = written(
        r#"{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":{"type":"string"}}}"#,
    );
    check(&v2_document(builtin(), &[open]), &definition, ANY);
}

#[test]
fn compiled_schemas_are_published_too() {
    let mut arena = Arena::default();
    let replicas = arena.add(Node { kind: Kind::Integer, default: Some(Value::Int(1)), ..Node::default() });
    let root = arena.add(Node {
        kind: Kind::Object,
        properties: vec![("replicas".into(), replicas)],
        required: vec!["replicas".into()],
        ..Node::default()
    });
    let foo = custom(PublishedSchema::Compiled(Schema { arena: Arc::new(arena), root }));
    let v3 = v3_document(builtin(), &foo.group_version, std::slice::from_ref(&foo));
    let definition = ["components", "schemas", "com.example.v1.Foo"];
    check(&v3, &[&definition[..], &["properties", "replicas"]].concat(), r#"{"default":1,"type":"integer"}"#);
    check(&v3, &[&definition[..], &["required"]].concat(), r#"["replicas"]"#);
}
