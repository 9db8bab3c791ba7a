//! Built-in kinds, as clients see them.

use super::*;

/// Objects that somebody creates, and what Kubernetes 1.35 says their creator owns.
const CREATED: &str = include_str!("created.jsonl");

#[test]
fn creators_own_what_they_set_like_upstream() {
    for line in CREATED.lines() {
        let row = Value::parse(line.as_bytes()).unwrap();
        let object = row.get("object").unwrap();
        let api_version = object.str_at(&["apiVersion"]).unwrap();
        let kind = object.str_at(&["kind"]).unwrap();
        let (schema, blank) = builtin_kind(api_version, kind);
        let mut new = object.clone();
        created(&writer("kubectl", api_version, kind, &schema), &blank, &mut new);
        let fields = new.array_at(&["metadata", "managedFields"])[0].get("fieldsV1").unwrap();
        assert_eq!(fields.to_string(), row.get("fields").unwrap().to_string(), "{kind}");
        keeps_invariants(&new);
    }
}

fn builtin_kind(api_version: &str, kind: &str) -> (Schema, Value) {
    let group_version = polder_model::GroupVersion::parse(api_version).unwrap();
    let name = builtin().type_name(&group_version.kind(kind)).unwrap();
    (builtin().schema(name).unwrap(), builtin().blank(name).unwrap().clone())
}

struct NoOthers;

impl Versions for NoOthers {
    fn view<'v>(&'v self, _object: &'v Value, _api_version: &str) -> Option<View<'v>> {
        None
    }
}

fn writer<'a>(manager: &'a str, api_version: &'a str, kind: &'a str, schema: &'a Schema) -> Writer<'a> {
    static UNTRACKED: std::sync::LazyLock<Untracked> = std::sync::LazyLock::new(|| Untracked::new(&[]));
    Writer {
        manager,
        subresource: "",
        api_version,
        kind,
        schema: schema.node(),
        now: "2026-01-01T00:00:00Z",
        untracked: &UNTRACKED,
        schema_may_change: false,
        versions: &NoOthers,
    }
}

/// A Deployment with an image, a number of replicas and a label.
fn deployment(image: &str, replicas: i64, label: &str) -> Value {
    let text = format!(
        r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"web","labels":{{"app":"{label}"}}}},
            "spec":{{"replicas":{replicas},"selector":{{"matchLabels":{{"app":"web"}}}},
            "template":{{"metadata":{{"labels":{{"app":"web"}}}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}}}}}"#
    );
    Value::parse(text.as_bytes()).unwrap()
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What happens when client-side apply of `last` made an object, somebody made it `live`, and `manager` applies
/// `applied`: the conflicts, or nothing.
#[track_caller]
fn check_moving(manager: &str, last: Option<&Value>, live: Value, applied: &Value, expected: &[&str]) {
    let (schema, blank) = builtin_kind("apps/v1", "Deployment");
    let mut live = live;
    if let Some(last) = last {
        live.set_at(&["metadata", "annotations", LAST_APPLIED], last.to_string());
    }
    created(&writer("kubectl-client-side-apply", "apps/v1", "Deployment", &schema), &blank, &mut live);
    let writer = writer(manager, "apps/v1", "Deployment", &schema);
    let conflicts = match apply(&writer, &live, &blank, applied, Force::Refuse) {
        Ok(merged) => {
            let annotation = merged.str_at(&["metadata", "annotations", LAST_APPLIED]).unwrap_or_default();
            let in_step = annotation.trim_end() == applied.to_string();
            assert_eq!(in_step, manager == "kubectl" && last.is_some(), "{annotation}");
            Vec::new()
        }
        Err(ApplyError::Conflicts(conflicts)) => {
            conflicts.causes().into_iter().map(|cause| cause.field).collect()
        }
        Err(other) => panic!("{other}"),
    };
    assert_eq!(conflicts, expected);
}

#[test]
fn moving_from_client_side_apply() {
    const IMAGE: &str = r#".spec.template.spec.containers[name="c"].image"#;
    let (last, new) = (deployment("v1", 3, "a"), deployment("v2", 4, "b"));
    // What client-side apply set and nobody changed is taken over.
    check_moving("kubectl", Some(&last), last.clone(), &new, &[]);
    // Somebody else changed the image and the replicas since.
    check_moving("kubectl", Some(&last), deployment("v9", 9, "a"), &new, &[".spec.replicas", IMAGE]);
    // Another name, no annotation, or one that says nothing: all of it is in the way.
    let all = [".metadata.labels.app", ".spec.replicas", IMAGE];
    check_moving("amy", Some(&last), last.clone(), &new, &all);
    check_moving("kubectl", None, last.clone(), &new, &all);
    let mut other_version = last.clone();
    other_version.set_at(&["apiVersion"], "apps/v1beta1");
    check_moving("kubectl", Some(&other_version), last.clone(), &new, &all);
    check_moving("kubectl", Some(&Value::from("nonsense")), last.clone(), &new, &all);
    let mut unknown = last.clone();
    unknown.set_at(&["spec", "nonsense"], 1);
    check_moving("kubectl", Some(&unknown), last.clone(), &new, &all);
    // Nothing to argue about.
    check_moving("kubectl", Some(&deployment("v0", 0, "z")), last.clone(), &last, &[]);
}

#[test]
fn an_annotation_too_large_goes() {
    let (schema, blank) = builtin_kind("apps/v1", "Deployment");
    let mut live = deployment("v1", 1, "a");
    live.set_at(&["metadata", "annotations", LAST_APPLIED], live.to_string());
    created(&writer("kubectl", "apps/v1", "Deployment", &schema), &blank, &mut live);
    let mut intent = deployment("v1", 1, "a");
    intent.set_at(&["metadata", "annotations", "big"], "x".repeat(200 * 1024));
    let writer = writer("kubectl", "apps/v1", "Deployment", &schema);
    let merged = apply(&writer, &live, &blank, &intent, Force::Take).unwrap();
    assert!(merged.at(&["metadata", "annotations", LAST_APPLIED]).is_none());
    assert!(merged.at(&["metadata", "annotations", "big"]).is_some());
}

#[test]
fn raw_extensions_are_owned_as_one() {
    let (schema, _) = builtin_kind("apps/v1", "ControllerRevision");
    let intent = Value::parse(
        br#"{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{"name":"r"},"revision":1,"data":{"spec":{"a":1}}}"#,
    )
    .unwrap();
    let writer = writer("bob", "apps/v1", "ControllerRevision", &schema);
    let merged =
        apply(&writer, &polder_model::json!({}), &polder_model::json!({}), &intent, Force::Refuse).unwrap();
    let fields = merged.array_at(&["metadata", "managedFields"])[0].get("fieldsV1").unwrap();
    assert_eq!(fields.to_string(), r#"{"f:data":{},"f:revision":{}}"#);
}

/// What this thread has computed so far, whatever else the machine does.
fn cpu_time() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// How long the usual writes take: `cargo test --release -p polder-machinery measure -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    const ROUNDS: u32 = 20_000;
    let time = |what: &str, run: &mut dyn FnMut()| {
        (0..ROUNDS / 10).for_each(|_| run());
        let start = cpu_time();
        (0..ROUNDS).for_each(|_| run());
        println!("{what}: {:?}", (cpu_time() - start) / ROUNDS);
    };

    let (schema, blank) = builtin_kind("v1", "ConfigMap");
    let writer_of = |manager| writer(manager, "v1", "ConfigMap", &schema);
    let mut old = polder_model::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "d"}});
    for key in 0..10 {
        old.set_at(&["data", &format!("key-{key}")], "x".repeat(80));
    }
    let plain = old.clone();
    time("ConfigMap of 1 KB, a copy of it", &mut || drop(std::hint::black_box(plain.clone())));
    time("ConfigMap of 1 KB, create (with a copy)", &mut || {
        let mut new = plain.clone();
        created(&writer_of("one"), &blank, &mut new);
        std::hint::black_box(&new);
    });
    created(&writer_of("one"), &blank, &mut old);
    for (what, manager, changes) in
        [("no change", "one", 0), ("own field", "one", 1), ("another's field", "two", 1)]
    {
        let mut changed = old.clone();
        (0..changes).for_each(|_| changed.set_at(&["data", "key-3"], "y".repeat(80)));
        time(&format!("ConfigMap of 1 KB, update of {what} (with a copy)"), &mut || {
            let mut new = changed.clone();
            updated(&writer_of(manager), &old, &mut new);
            std::hint::black_box(&new);
        });
    }

    let row = Value::parse(CREATED.lines().nth(3).unwrap().as_bytes()).unwrap();
    let intent = row.get("object").unwrap().clone();
    let (schema, blank) = builtin_kind("apps/v1", "Deployment");
    let writer = writer("bob", "apps/v1", "Deployment", &schema);
    let nothing = polder_model::json!({"apiVersion": "apps/v1", "kind": "Deployment"});
    time("Deployment, apply of a new one", &mut || {
        std::hint::black_box(apply(&writer, &nothing, &blank, &intent, Force::Refuse).unwrap());
    });
    let live = apply(&writer, &nothing, &blank, &intent, Force::Refuse).unwrap();
    time("Deployment, a copy of it", &mut || drop(std::hint::black_box(live.clone())));
    time("Deployment, apply of the same", &mut || {
        std::hint::black_box(apply(&writer, &live, &blank, &intent, Force::Refuse).unwrap());
    });
    let mut other = intent.clone();
    other.at_mut(&["spec", "template", "spec", "containers"]).unwrap().as_array_mut().unwrap()[0]
        .set_at(&["image"], "nginx:2");
    time("Deployment, apply of another image", &mut || {
        std::hint::black_box(apply(&writer, &live, &blank, &other, Force::Refuse).unwrap());
    });
    other.remove_at(&["spec", "template", "spec", "tolerations"]);
    time("Deployment, apply with a field less", &mut || {
        std::hint::black_box(apply(&writer, &live, &blank, &other, Force::Refuse).unwrap());
    });
}
