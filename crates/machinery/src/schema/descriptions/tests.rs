use super::*;
use crate::schema::table;

/// The fields of a built-in type.
fn fields(type_name: &str) -> Vec<String> {
    let schema = table::builtin().schema(type_name).unwrap();
    schema.node().get().properties.iter().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn whatever_is_described_exists() {
    for (package, types) in &builtin().packages {
        for (name, described) in types {
            let type_name = format!("{package}.{name}");
            assert!(table::builtin().schema(&type_name).is_some(), "no type {type_name}");
            let known = fields(&type_name);
            for (field, _) in &described.fields {
                assert!(known.iter().any(|own| own == field), "no field {field} in {type_name}");
            }
            if let Some(like) = described.like {
                let (package, name) = like.rsplit_once('.').unwrap_or((package, like));
                assert!(
                    builtin().find(package, name).is_some(),
                    "{type_name} is like {like}, which is not here"
                );
            }
        }
    }
}

#[test]
fn every_type_and_field_is_described() {
    let mut missing = Vec::new();
    for type_name in table::builtin().type_names() {
        let kind = table::builtin().kind(type_name);
        if builtin().type_text(type_name, kind).is_none() {
            missing.push(type_name.to_string());
        }
        let own = fields(type_name);
        let open = own.iter().filter(|name| builtin().field_text(type_name, kind, name).is_none());
        missing.extend(open.map(|name| format!("{type_name} {name}")));
    }
    missing.sort();
    assert!(missing.is_empty(), "{} are not described:\n{}", missing.len(), missing.join("\n"));
}

#[test]
fn texts_are_short_sentences() {
    for (package, types) in &builtin().packages {
        for (name, described) in types {
            let texts = described.fields.iter().map(|(field, text)| (*field, *text));
            for (field, text) in texts.chain([("", described.text)]) {
                let place = format!("{package}.{name} {field}: {text}");
                assert!(text.ends_with(['.', ')']), "{place}");
                assert!((10..=320).contains(&text.len()), "{} bytes: {place}", text.len());
                assert!(text.is_ascii() && !text.contains("  "), "{place}");
            }
        }
    }
}

fn check(type_name: &str, field: &str, expected: &str) {
    let kind = table::builtin().kind(type_name);
    let found = match field {
        "" => builtin().type_text(type_name, kind),
        _ => builtin().field_text(type_name, kind, field).map(Cow::from),
    };
    let found = found.unwrap_or_else(|| panic!("{type_name} {field}"));
    assert!(found.starts_with(expected), "{type_name} {field}: {found}");
}

#[test]
fn texts_are_found() {
    check("io.k8s.api.core.v1.Pod", "", "The smallest thing that runs");
    check("io.k8s.api.core.v1.Pod", "apiVersion", API_VERSION);
    check("io.k8s.api.core.v1.Pod", "metadata", METADATA);
    check("io.k8s.api.core.v1.PodList", "", "A list of Pod objects.");
    check("io.k8s.api.core.v1.PodList", "metadata", LIST_METADATA);
    check("io.k8s.api.core.v1.PodList", "items", LIST_ITEMS);
    // From Container, which it is like, and its own.
    check("io.k8s.api.core.v1.EphemeralContainer", "image", "The container image");
    check("io.k8s.api.core.v1.EphemeralContainer", "targetContainerName", "Container of the pod");
    // apiVersion of a part is no member of every object.
    check("io.k8s.api.autoscaling.v2.CrossVersionObjectReference", "apiVersion", "Group and version");
    check(
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        "creationTimestamp",
        "CreationTimestamp is a timestamp",
    );
}

#[test]
fn broken_lines_are_named() {
    let check = |text: &str, expected: &str| {
        assert_eq!(Descriptions::read(text).unwrap_err().to_string(), expected, "{text}");
    };
    check("type A: B.", "line 1: belongs to no package");
    check("package p\n\n# note\n  a: B.", "line 4: belongs to no type");
    check("package p\ntype A", "line 2: has no text");
    check("package p\ntype A:  ", "line 2: the text is empty or has spaces around it");
    check("package p\ntype A: B.\ntype A: C.", "line 3: the type stands twice");
    check("package p\ntype A: B.\n  a: C.\n  a: D.", "line 4: the field stands twice");
    check("package p\ntyp A: B.", "line 2: is neither a type nor a field");
}
