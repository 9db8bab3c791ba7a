//! Object metadata: what clients may say, what the server fills in, what may never change.

use polder_model::names::{
    dns_1035_label_problem, dns_label_problem, dns_subdomain_problem, label_value_problem,
    path_segment_problem, qualified_name_problem,
};
use polder_model::{FieldError, FieldPath, Object, SmolStr, Status, Value, format_smolstr};

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
        "generateName",
        "resourceVersion",
    ] {
        match old.get(field) {
            Some(value) => drop(metadata.insert(field, value.clone())),
            None => drop(metadata.remove(field)),
        }
    }
}

/// Checks the metadata of a new or changed object.
pub(crate) fn validate(object: &Value, old: Option<&Value>, target: &Target, errors: &mut Vec<FieldError>) {
    let root = FieldPath::root("metadata");
    let empty = Object::new();
    let metadata = object.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let name = metadata.str("name").unwrap_or_default();
    if name.is_empty() {
        errors.push(FieldError::required(root.member("name"), "name or generateName is required"));
    } else if old.is_none()
        && let Some(problem) = name_problem(target.definition.behavior.names, name)
    {
        errors.push(FieldError::invalid(root.member("name"), name, problem));
    }
    validate_labels(metadata.get("labels"), &root.member("labels"), errors);
    validate_annotations(metadata.get("annotations"), errors);
    validate_finalizers(metadata, old, errors);
    validate_owners(metadata.get("ownerReferences"), errors);
    if let Some(old) = old {
        for field in ["name", "namespace"] {
            let (before, after) = (old.str_at(&["metadata", field]), metadata.str(field));
            if before != after {
                let value = after.unwrap_or_default();
                errors.push(FieldError::invalid(root.member(field), value, "field is immutable"));
            }
        }
    }
}

/// What is wrong with an object's name.
pub(crate) fn name_problem(rule: NameRule, name: &str) -> Option<&'static str> {
    match rule {
        NameRule::Subdomain => dns_subdomain_problem(name),
        NameRule::Label => dns_label_problem(name),
        NameRule::Dns1035Label => dns_1035_label_problem(name),
        NameRule::PathSegment => path_segment_problem(name),
    }
}

/// Checks a map of labels wherever it stands.
pub(crate) fn validate_labels(labels: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(Value::Object(labels)) = labels else { return };
    for (key, value) in labels.iter() {
        if errors.len() >= ERRORS_MAX {
            return;
        }
        if let Some(problem) = qualified_name_problem(key) {
            errors.push(FieldError::invalid(path, key, problem));
        }
        let value = value.as_str().unwrap_or_default();
        if let Some(problem) = label_value_problem(value) {
            errors.push(FieldError::invalid(path, value, problem));
        }
    }
}

fn validate_annotations(annotations: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(Value::Object(annotations)) = annotations else { return };
    let root = FieldPath::root("metadata");
    let path = root.member("annotations");
    let mut bytes = 0;
    for (key, value) in annotations.iter() {
        if errors.len() < ERRORS_MAX
            && let Some(problem) = qualified_name_problem(&key.to_lowercase())
        {
            errors.push(FieldError::invalid(path, key, problem));
        }
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
}

fn validate_finalizers(metadata: &Object, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let root = FieldPath::root("metadata");
    let path = root.member("finalizers");
    let finalizers = metadata.get("finalizers").and_then(Value::as_array).unwrap_or_default();
    for finalizer in finalizers.iter().take(FINALIZERS_MAX) {
        let text = finalizer.as_str().unwrap_or_default();
        if let Some(problem) = qualified_name_problem(text) {
            errors.push(FieldError::invalid(path, text, problem));
        }
    }
    if finalizers.len() > FINALIZERS_MAX {
        errors.push(FieldError::too_many(path, finalizers.len(), FINALIZERS_MAX));
        return;
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
    for (index, owner) in owners.iter().enumerate() {
        if errors.len() >= ERRORS_MAX {
            return;
        }
        let place = path.index(index);
        for (field, text) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.str_at(&[field]).is_none_or(str::is_empty) {
                errors.push(FieldError::invalid(place.member(field), "", text));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            let (kind, name) = (owner.str_at(&["kind"]), owner.str_at(&["name"]));
            let this = format_smolstr!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default());
            if let Some(first) = &controller {
                errors.push(FieldError::invalid(
                    path,
                    "...",
                    format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                    ),
                ));
            } else {
                controller = Some(this);
            }
        }
    }
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
