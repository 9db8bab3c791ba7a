//! Object metadata: what clients may say, what the server fills in, what may never change.

use polder_model::names::{
    dns_1035_label_problems, dns_label_problems, dns_subdomain_problems, label_value_problems,
    path_segment_problem, qualified_name_problems,
};
use polder_model::{FieldError, FieldErrorKind, FieldPath, Object, SmolStr, Status, Value, format_smolstr};

use crate::behavior::NameRule;
use crate::definition::Target;

/// More problems than this are not reported: a hostile object gets a bounded answer.
const ERRORS_MAX: usize = 100;
/// More finalizers than this nobody needs.
const FINALIZERS_MAX: usize = 1_000;
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// A generated name is this much of the prefix and five random characters.
const GENERATED_PREFIX_LEN_MAX: usize = 58;
/// No vowels and no look-alikes: a generated name spells nothing.
const GENERATED_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Finalizers that need no domain.
pub(crate) const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// Groups whose kinds take finalizers of any name, as custom resources do.
const FREE_FINALIZERS: [&str; 5] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
];

/// What the server sets on a new object, whatever the client sent.
pub(crate) fn prepare_create(
    object: &mut Value,
    target: &Target,
    created: &str,
    uid: uuid::Uuid,
) -> Result<(), Status> {
    check_namespace(object, target)?;
    let metadata = metadata_mut(object);
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid", uid.to_string());
    metadata.insert("creationTimestamp", created);
    if target.definition.behavior.generation || target.definition.is_custom() {
        metadata.insert("generation", 1);
    } else {
        metadata.remove("generation");
    }
    Ok(())
}

/// Fills in a name from `generateName` where the client gave none. True when it did.
pub(crate) fn generate_name(object: &mut Value, random: uuid::Uuid) -> bool {
    let metadata = metadata_mut(object);
    if metadata.str("name").is_some_and(|name| !name.is_empty()) {
        return false;
    }
    let Some(prefix) = metadata.str("generateName").filter(|prefix| !prefix.is_empty()) else { return false };
    let mut end = prefix.len().min(GENERATED_PREFIX_LEN_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut number = random.as_u128();
    let mut name = prefix[..end].to_string();
    for _ in 0..5 {
        let index = usize::try_from(number % GENERATED_ALPHABET.len() as u128).unwrap_or_default();
        name.push(char::from(GENERATED_ALPHABET[index]));
        number /= GENERATED_ALPHABET.len() as u128;
    }
    metadata.insert("name", name);
    true
}

/// The namespace of the body must be that of the path; cluster-scoped objects have none.
pub(crate) fn check_namespace(object: &mut Value, target: &Target) -> Result<(), Status> {
    let metadata = metadata_mut(object);
    if !target.definition.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    let given = metadata.str("namespace").unwrap_or_default();
    if !given.is_empty() && given != target.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace", &target.namespace);
    Ok(())
}

/// What a client cannot change on an existing object: puts it back. A different uid is the caller's business.
pub(crate) fn keep_identity(new: &mut Value, old: &Value) {
    let empty = Object::new();
    let old = old.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let metadata = metadata_mut(new);
    metadata.remove("selfLink");
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        match old.get(field) {
            Some(value) => drop(metadata.insert(field, value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
}

/// The end of an object is the server's to set: a client may leave it out, but not say something else. The time of
/// an end that has been set moves, so a client may have an older one in hand.
pub(crate) fn check_end(target: &Target, new: &Value, old: &Value) -> Result<(), Status> {
    let changed = |field: &&str| {
        let after = new.at(&["metadata", field]).filter(|value| !value.is_null())?;
        let before = old.at(&["metadata", field]);
        let moves = *field == "deletionTimestamp" && before.is_some();
        (Some(after) != before && !moves)
            .then(|| FieldError::invalid(format!("metadata.{field}"), after.clone(), "field is immutable"))
    };
    let errors: Vec<FieldError> =
        ["deletionTimestamp", "deletionGracePeriodSeconds"].iter().filter_map(changed).collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&target.definition.error_kind(), &target.name, &errors))
}

/// Checks the metadata of a new or changed object.
pub(crate) fn validate(object: &Value, old: Option<&Value>, target: &Target, errors: &mut Vec<FieldError>) {
    let root = FieldPath::root("metadata");
    let empty = Object::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let name = metadata.str("name").unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(root.member("name"), "name or generateName is required"));
    } else if old.is_none() {
        let problems = name_problems(target.definition.behavior.names, name);
        errors.extend(problems.map(|problem| FieldError::invalid(root.member("name"), name, problem)));
    }
    validate_labels(metadata.get("labels"), &root.member("labels"), errors);
    validate_annotations(metadata.get("annotations"), errors);
    validate_owners(metadata.get("ownerReferences"), errors);
    validate_finalizers(metadata, old, has_free_finalizers(target), errors);
    if let Some(old) = old {
        let prefix = metadata.str("generateName").unwrap_or_default();
        if let Some(problem) = path_segment_problem(prefix) {
            errors.push(FieldError::invalid(root.member("generateName"), prefix, problem));
        }
        for field in ["name", "namespace"] {
            let (before, after) = (old.str_at(&["metadata", field]), metadata.str(field));
            if before != after {
                let value = after.unwrap_or_default();
                errors.push(FieldError::invalid(root.member(field), value, "field is immutable"));
            }
        }
    }
}

/// A name that is only a path segment has no length of its own upstream. Here it must fit into a path, however it is escaped.
const SEGMENT_LEN_MAX: usize = 1024;

/// Everything wrong with an object's name.
fn name_problems(rule: NameRule, name: &str) -> impl Iterator<Item = &'static str> + use<> {
    // Each rule has at most two things to say.
    fn two(mut problems: impl Iterator<Item = &'static str>) -> [Option<&'static str>; 2] {
        [problems.next(), problems.next()]
    }
    let problems = match rule {
        NameRule::Subdomain => two(dns_subdomain_problems(name)),
        NameRule::Label => two(dns_label_problems(name)),
        NameRule::Dns1035Label => two(dns_1035_label_problems(name)),
        NameRule::PathSegment => {
            let long = (name.len() > SEGMENT_LEN_MAX).then_some("must be no more than 1024 bytes");
            [path_segment_problem(name), long]
        }
    };
    problems.into_iter().flatten()
}

/// Whether finalizers of a kind may lack a domain.
fn has_free_finalizers(target: &Target) -> bool {
    let definition = &target.definition;
    definition.is_custom()
        || FREE_FINALIZERS.contains(&definition.group.as_str())
        || (definition.group.is_empty() && definition.plural == "events")
}

/// Checks a map of labels wherever it stands.
pub(crate) fn validate_labels(labels: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(Value::Object(labels)) = labels else { return };
    for (key, value) in labels.iter() {
        if errors.len() >= ERRORS_MAX {
            return;
        }
        let problems = qualified_name_problems(key).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(path, key, problem)));
        let value = value.as_str().unwrap_or_default();
        errors.extend(label_value_problems(value).map(|problem| FieldError::invalid(path, value, problem)));
    }
}

pub(crate) fn validate_annotations(annotations: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(Value::Object(annotations)) = annotations else { return };
    let root = FieldPath::root("metadata");
    let path = root.member("annotations");
    let mut bytes = 0;
    for (key, value) in annotations.iter() {
        if errors.len() < ERRORS_MAX {
            let problems = qualified_name_problems(&key.to_lowercase()).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(path, key, problem)));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}

fn validate_finalizers(metadata: &Object, old: Option<&Value>, free: bool, errors: &mut Vec<FieldError>) {
    let root = FieldPath::root("metadata");
    let path = root.member("finalizers");
    let finalizers = metadata.get("finalizers").and_then(Value::as_array).unwrap_or_default();
    for finalizer in finalizers.iter().take(FINALIZERS_MAX) {
        if errors.len() >= ERRORS_MAX {
            break;
        }
        let text = finalizer.as_str().unwrap_or_default();
        let problems = qualified_name_problems(text).into_iter();
        errors.extend(problems.map(|problem| FieldError::invalid(path, text, problem)));
    }
    if finalizers.len() > FINALIZERS_MAX {
        errors.push(FieldError::too_many(path, finalizers.len(), FINALIZERS_MAX));
        return;
    }
    let has = |name: &str| finalizers.iter().any(|one| one.as_str() == Some(name));
    if has("orphan") && has("foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(path, finalizers.to_vec(), why));
    }
    for (index, finalizer) in finalizers.iter().enumerate().filter(|_| !free) {
        let text = finalizer.as_str().unwrap_or_default();
        if errors.len() < ERRORS_MAX && !text.contains('/') && !STANDARD_FINALIZERS.contains(&text) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(path.index(index), text, why));
        }
    }
    let Some(old) = old else { return };
    if old.at(&["metadata", "deletionTimestamp"]).is_some() {
        let before = old.array_at(&["metadata", "finalizers"]);
        let added: Vec<&str> =
            finalizers.iter().filter(|one| !before.contains(one)).filter_map(Value::as_str).collect();
        if !added.is_empty() {
            let listed: Vec<String> = added.iter().map(|one| format!("{one:?}")).collect();
            errors.push(FieldError::forbidden(
                path,
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    listed.join(", ")
                ),
            ));
        }
    }
}

fn validate_owners(owners: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(Value::Array(owners)) = owners else { return };
    let root = FieldPath::root("metadata");
    let path = root.member("ownerReferences");
    let mut controller: Option<SmolStr> = None;
    let mut shown: Option<String> = None;
    for owner in owners {
        if errors.len() >= ERRORS_MAX {
            return;
        }
        // Upstream does not say which of them is wrong.
        for (field, text) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.str_at(&[field]).is_none_or(str::is_empty) {
                errors.push(FieldError::invalid(path.member(field), "", text));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let (kind, name) = (owner.str_at(&["kind"]), owner.str_at(&["name"]));
            let this = format_smolstr!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default());
            if let Some(first) = &controller {
                let shown = shown.get_or_insert_with(|| shown_owners(owners));
                let detail = format!(
                    "{shown}: Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                );
                let (kind, path) = (FieldErrorKind::Invalid, path.to_string());
                errors.push(FieldError { kind, path, value: None, detail });
            } else {
                controller = Some(this);
            }
        }
    }
}

/// Owner references as texts show them: their members in upstream's order, and a long list not at all.
fn shown_owners(owners: &[Value]) -> String {
    const MEMBERS: [&str; 6] = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    const BYTES_MAX: usize = 4096;
    let mut text = String::from("[");
    for (index, owner) in owners.iter().enumerate() {
        let members = MEMBERS.iter().filter_map(|key| {
            let value = owner.get(key).filter(|value| !value.is_null())?;
            Some(format!("\"{key}\":{value}"))
        });
        let comma = if index > 0 { "," } else { "" };
        text.push_str(&format!("{comma}{{{}}}", members.collect::<Vec<_>>().join(",")));
        if text.len() > BYTES_MAX {
            return "\"...\"".into();
        }
    }
    text.push(']');
    text
}

/// The metadata of an object, made if it is missing.
pub(crate) fn metadata_mut(object: &mut Value) -> &mut Object {
    if !matches!(object.at(&["metadata"]), Some(Value::Object(_))) {
        object.set_at(&["metadata"], Object::new());
    }
    object.at_mut(&["metadata"]).and_then(Value::as_object_mut).expect("made above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    #[test]
    fn generated_names() {
        let mut object = json!({"metadata": {"generateName": "web-"}});
        assert!(generate_name(&mut object, uuid::Uuid::from_u128(0)));
        assert_eq!(object.str_at(&["metadata", "name"]), Some("web-bbbbb"));
        assert!(!generate_name(&mut object, uuid::Uuid::from_u128(1)), "a name is kept");

        let mut long = json!({"metadata": {"generateName": ("é".repeat(40))}});
        assert!(generate_name(&mut long, uuid::Uuid::from_u128(7)));
        assert!(long.str_at(&["metadata", "name"]).unwrap().len() <= 63);
    }
}
