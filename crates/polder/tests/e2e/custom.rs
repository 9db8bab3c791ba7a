//! Custom resources: served at once, with their schema, in their plane only.

use polder_test_support::{Value, json};

use crate::process::Polder;

pub(crate) const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/shop.example/v1/namespaces/default/widgets";

pub(crate) fn widget() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.example"},
        "spec": {"group": "shop.example", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "description": "Something to sell.",
                    "required": ["spec"],
                    "properties": {
                        "spec": {"type": "object", "required": ["color"], "properties": {
                            "color": {"type": "string", "enum": ["red", "blue"], "description": "How it looks."},
                            "size": {"type": "integer", "default": 1, "maximum": 10}}},
                        "status": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}})
}

fn red(name: &str) -> Value {
    json!({"apiVersion": "shop.example/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"color": "red"}})
}

/// The first request after the definition's create has answered is served.
#[test]
fn served_at_once() {
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    acme.get(WIDGETS).expect(404);
    let made = acme.post(CRDS, &widget()).expect(201).json();
    acme.post(WIDGETS, &red("a")).expect(201);
    let conditions = acme.get(&format!("{CRDS}/widgets.shop.example")).json()["status"]["conditions"].clone();
    let is = |kind: &str| {
        conditions.as_array().unwrap().iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    assert!(is("Established") && is("NamesAccepted"), "{conditions} {made}");
    let resources = acme.get("/apis/shop.example/v1").expect(200).json();
    let names: Vec<&str> =
        resources["resources"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    let names: std::collections::BTreeSet<&str> = names.into_iter().collect();
    assert_eq!(names, ["widgets", "widgets/scale", "widgets/status"].into());
    globex.get(WIDGETS).expect(404);
    globex.get("/apis/shop.example").expect(404);
    polder.admin.get(WIDGETS).expect(404);
}

/// Defaults, pruning, checks, status, scale and selectable fields of a custom resource.
#[test]
fn schema() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(CRDS, &widget()).expect(201);
    let mut wild = red("a");
    wild["spec"]["unknown"] = json!(1);
    wild["status"] = json!({"size": 5});
    let made = acme.post(WIDGETS, &wild).expect(201);
    assert!(made.header("warning").is_some_and(|text| text.contains("unknown field")), "{:?}", made.headers);
    let made = made.json();
    assert_eq!(made["spec"], json!({"color": "red", "size": 1}));
    assert_eq!((&made["metadata"]["generation"], made.get("status")), (&json!(1), None));
    let path = format!("{WIDGETS}/a");
    let refused =
        acme.patch(&path, "merge", &json!({"spec": {"color": "green", "size": 11}})).expect(422).json();
    let text = refused["message"].as_str().unwrap();
    assert!(
        text.contains("spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\""),
        "{text}"
    );
    assert!(
        text.contains("spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"),
        "{text}"
    );
    acme.post(
        WIDGETS,
        &json!({"apiVersion": "shop.example/v1", "kind": "Widget", "metadata": {"name": "b"}}),
    )
    .expect(422);
    acme.patch(&path, "strategic-merge", &json!({})).expect(415);
    let status =
        acme.patch(&format!("{path}/status"), "merge", &json!({"status": {"size": 4}})).expect(200).json();
    assert_eq!((&status["status"]["size"], &status["metadata"]["generation"]), (&json!(4), &json!(1)));
    let scale = acme.get(&format!("{path}/scale")).expect(200).json();
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(1), &json!(4)));
    acme.patch(&format!("{path}/scale"), "merge", &json!({"spec": {"replicas": 7}})).expect(200);
    assert_eq!(acme.get(&path).json()["spec"]["size"], 7);
    let selected = |color: &str| {
        let list = acme.get(&format!("{WIDGETS}?fieldSelector=spec.color%3D{color}")).expect(200).json();
        list["items"].as_array().unwrap().len()
    };
    assert_eq!((selected("red"), selected("blue")), (1, 0));
    let mut unversioned = red("a");
    unversioned["spec"]["color"] = json!("blue");
    let refused = acme.put(&path, &unversioned).expect(422);
    assert!(refused.text().contains("must be specified for an update"), "{}", refused.text());
}

/// Deleting a definition takes its objects along, ends watches of them, and it can come back empty.
#[test]
fn deletion() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(CRDS, &widget()).expect(201);
    acme.post(WIDGETS, &red("a")).expect(201);
    acme.delete(&format!("{CRDS}/widgets.shop.example")).expect(200);
    let started = std::time::Instant::now();
    while acme.get(&format!("{CRDS}/widgets.shop.example")).code != 404 {
        assert!(started.elapsed().as_secs() < 20, "the definition does not go");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    acme.get(WIDGETS).expect(404);
    acme.post(CRDS, &widget()).expect(201);
    assert_eq!(acme.get(WIDGETS).expect(200).json()["items"], json!([]));
}

/// Objects from before a definition changed look like today's in every form, also after a crash.
#[test]
fn old_objects_look_like_new_ones() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(CRDS, &widget()).expect(201);
    acme.post(WIDGETS, &red("a")).expect(201);
    let mut changed = widget()["spec"]["versions"].clone();
    changed[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({
        "color": {"type": "string", "enum": ["red", "blue"]}, "shape": {"type": "string", "default": "round"}});
    changed[0]["subresources"] = json!({});
    changed[0]["additionalPrinterColumns"] =
        json!([{"name": "Shape", "type": "string", "jsonPath": ".spec.shape"}]);
    let mut watch = acme.watch(&format!("{WIDGETS}?watch=1"));
    assert_eq!(watch.must()["object"]["spec"], json!({"color": "red", "size": 1}));
    let path = format!("{CRDS}/widgets.shop.example");
    acme.patch(&path, "merge", &json!({"spec": {"versions": changed}})).expect(200);
    assert!(watch.next_event().is_ok_and(|event| event.is_none()), "the watch ends");

    let spec = json!({"color": "red", "shape": "round"});
    let polder = {
        let look = |polder: &Polder| {
            let acme = polder.admin.in_plane("acme");
            assert_eq!(acme.get(&format!("{WIDGETS}/a")).expect(200).json()["spec"], spec);
            assert_eq!(acme.get(WIDGETS).expect(200).json()["items"][0]["spec"], spec);
            assert_eq!(acme.watch(&format!("{WIDGETS}?watch=1")).must()["object"]["spec"], spec);
            let table = acme.with_header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
            let table = table.get(WIDGETS).expect(200).json();
            assert_eq!(table["rows"][0]["cells"], json!(["a", "round"]));
            let column = "Custom resource definition column (in JSONPath format): .spec.shape";
            assert_eq!(table["columnDefinitions"][1]["description"], column);
        };
        look(&polder);
        let polder = Polder::start_in(polder.kill(), "");
        look(&polder);
        polder
    };
    // There is no such part of it any more.
    let missing = polder.admin.in_plane("acme").get(&format!("{WIDGETS}/a/status")).expect(404).json();
    assert_eq!(missing["message"], r#"widgets.shop.example "a" not found"#);
}

/// While a definition waits for its objects, discovery offers nothing that makes or changes them.
#[test]
fn what_goes_is_not_offered() {
    let polder = Polder::start();
    let acme = polder.plane("acme");
    acme.post(CRDS, &widget()).expect(201);
    let mut held = red("a");
    held["metadata"]["finalizers"] = json!(["shop.example/hold"]);
    acme.post(WIDGETS, &held).expect(201);
    let table = acme.clone().with_header("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1");
    let scale = table.get(&format!("{WIDGETS}/a/scale")).expect(200).json();
    assert_eq!(scale["rows"][0]["cells"].as_array().unwrap()[..3], [json!("a"), json!(1), json!(0)]);
    let verbs = || acme.get("/apis/shop.example/v1").expect(200).json()["resources"][0]["verbs"].clone();
    assert_eq!(verbs().as_array().unwrap().len(), 8);
    acme.delete(&format!("{CRDS}/widgets.shop.example")).expect(200);
    assert_eq!(verbs(), json!(["delete", "deletecollection", "get", "list", "watch"]));
    acme.post(WIDGETS, &red("b")).expect(403);
    let free = json!({"metadata": {"finalizers": null}});
    acme.patch(&format!("{WIDGETS}/a"), "merge", &free).expect(200);
}
