//! From a client's document to an object the registry can work with: the right kind, the right types, no unknown
//! fields, all defaults.

use std::collections::{BTreeSet, HashSet};

use polder_machinery::schema::coerce::coerce;
use polder_machinery::schema::default::{apply_defaults, fill_defaults};
use polder_machinery::schema::embedded::coerce_embedded;
use polder_machinery::schema::prune::prune;
use polder_machinery::schema::required::{check_allowed, check_required};
use polder_machinery::schema::table::builtin;
use polder_machinery::schema::validate::{validate, validate_status, validate_update};
use polder_model::{FieldError, FieldPath, GroupKind, GroupVersion, SmolStr, Status, Value};

use crate::context::{FieldValidation, RequestContext};
use crate::custom;
use crate::definition::{Origin, Target};

/// Errors show no more of a document: they are for people.
const SHOWN_LEN_MAX: usize = 8 * 1024;

/// A client's document, parsed.
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    pub duplicates: Duplicates,
}

/// Keys that stood twice.
#[derive(Clone, Debug)]
pub enum Duplicates {
    /// By their paths.
    Fields(Vec<String>),
    /// As a reader of YAML names them, with the line.
    Lines(Vec<String>),
}

impl Default for Duplicates {
    fn default() -> Duplicates {
        Duplicates::Fields(Vec::new())
    }
}

/// As a strict reader complains.
impl std::fmt::Display for Duplicates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Duplicates::Fields(paths) => {
                let fields: Vec<String> = paths.iter().map(|path| duplicate_field(path)).collect();
                f.write_str(&fields.join(", "))
            }
            Duplicates::Lines(lines) => write!(f, "yaml: unmarshal errors:\n  {}", lines.join("\n  ")),
        }
    }
}

fn duplicate_field(path: &str) -> String {
    format!("duplicate field {path:?}")
}

/// Checks that the document is of the kind the path names, and brings it into shape.
pub(crate) fn decode(
    context: &RequestContext,
    target: &Target,
    document: Document,
    validation: FieldValidation,
) -> Result<Value, Status> {
    let Document { mut value, duplicates } = document;
    if !matches!(value, Value::Object(_)) {
        return Err(Status::bad_request(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct",
            value.type_name()
        )));
    }
    check_kind(&mut value, target)?;
    let shaped = shape(context, target, &mut value, duplicates, validation);
    shaped.map_err(|problem| problem.in_document(&target.definition.kind, &target.served().name))?;
    Ok(value)
}

/// Why a document has not the shape of its kind.
#[derive(Debug)]
pub(crate) enum Misshapen {
    /// A type is wrong, or strictly read a field is.
    Unfit(String),
    Refused(Status),
}

impl Misshapen {
    /// As whoever sent a whole object is told.
    pub(crate) fn in_document(self, kind: &str, version: &str) -> Status {
        match self {
            Misshapen::Unfit(problem) => unfit(kind, version, &problem),
            Misshapen::Refused(status) => status,
        }
    }

    /// As whoever sent a patch is told: with the object it made, or the patch.
    pub(crate) fn in_patch(self, patched: &str) -> Status {
        match self {
            Misshapen::Unfit(problem) => {
                let nothing = GroupKind { group: SmolStr::default(), kind: SmolStr::default() };
                let error = FieldError::invalid("patch", beginning(patched, SHOWN_LEN_MAX, "..."), problem);
                Status::invalid(&nothing, "", &[error])
            }
            Misshapen::Refused(status) => status,
        }
    }
}

/// Types, unknown fields and defaults, for documents and for the results of patches.
pub(crate) fn shape(
    context: &RequestContext,
    target: &Target,
    value: &mut Value,
    duplicates: Duplicates,
    validation: FieldValidation,
) -> Result<(), Misshapen> {
    let schema = target.served().schema.node();
    if target.definition.origin == Origin::Builtin {
        coerce(schema, value).map_err(|error| Misshapen::Unfit(error.to_string()))?;
    } else {
        coerce_embedded(schema, value, &FieldPath::ROOT).map_err(|error| {
            // An object's own metadata is what the text is about; only that of others inside needs a place.
            Misshapen::Unfit(if error.path == "metadata" { error.detail } else { error.to_string() })
        })?;
    }
    let mut unknown = Vec::new();
    prune(schema, value, &mut unknown);
    let custom = target.definition.is_custom();
    report(context, unknown, duplicates, custom, validation)?;
    owners_once(context, value);
    default(target, value).map_err(Misshapen::Refused)
}

/// Owners that are told to be named again.
const AGAIN_LEN_MAX: usize = 16;

/// Owners that are named again are named once.
fn owners_once(context: &RequestContext, value: &mut Value) {
    let Some(Value::Array(owners)) = value.at_mut(&["metadata", "ownerReferences"]) else { return };
    let (mut seen, mut again) = (HashSet::with_capacity(owners.len()), BTreeSet::new());
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if !is_new && again.len() < AGAIN_LEN_MAX {
            again.insert(owner.str_at(&["uid"]).unwrap_or_default().to_string());
        }
        is_new
    });
    if !again.is_empty() {
        let again: Vec<String> = again.into_iter().collect();
        context.warn(format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, \
             and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            again.join(", ")
        ));
    }
}

/// The same for the body of a subresource that has a type of its own: a `Scale`, a `Binding`, an `Eviction`.
pub(crate) fn shape_part(
    context: &RequestContext,
    target: &Target,
    value: &mut Value,
    validation: FieldValidation,
) -> Result<(), Misshapen> {
    let part = target.served().subresource(&target.subresource);
    let schema = part.and_then(|part| builtin().schema(part.type_name.as_deref()?));
    let Some(schema) = schema else { return Ok(()) };
    coerce(schema.node(), value).map_err(|error| Misshapen::Unfit(error.to_string()))?;
    let mut unknown = Vec::new();
    prune(schema.node(), value, &mut unknown);
    report(context, unknown, Duplicates::default(), false, validation)
}

/// An object of a built-in kind as it would be stored today; nothing if it is so already.
pub(crate) fn in_form_of_today(target: &Target, stored: &Value) -> Option<Value> {
    if target.definition.origin != Origin::Builtin {
        return None;
    }
    let mut value = stored.clone();
    coerce(target.served().schema.node(), &mut value).ok()?;
    default(target, &mut value).ok()?;
    (value != *stored).then_some(value)
}

/// Fills in what is missing. Also used for objects written before a default existed.
pub(crate) fn default(target: &Target, value: &mut Value) -> Result<(), Status> {
    let schema = target.served().schema.node();
    let filled = match target.definition.origin {
        Origin::Builtin => fill_defaults(schema, value),
        Origin::Custom => apply_defaults(schema, value),
    };
    filled.map_err(|error| Status::too_large(error.to_string()))?;
    let not_required = NOT_REQUIRED.iter().find(|(kind, _)| *kind == target.definition.kind);
    if let Some((_, path)) = not_required.filter(|_| target.definition.origin == Origin::Builtin) {
        let path: Vec<&str> = path.split('.').collect();
        if value.at(&path).is_none() {
            value.set_at(&path, Value::Array(Vec::new()));
        }
    }
    (target.definition.behavior.default)(value);
    Ok(())
}

/// Members the published schemas call required and Kubernetes accepts missing.
const NOT_REQUIRED: [(&str, &str); 3] =
    [("EndpointSlice", "endpoints"), ("CSINode", "spec.drivers"), ("LimitRange", "spec.limits")];

/// Places that kinds check themselves, under paths of their own: a kind (any, if empty) and how the path ends when
/// places in lists are left out.
const LEFT_TO_KINDS: [(&str, &str); 14] = [
    ("", "metadata.ownerReferences.apiVersion"),
    ("", "metadata.ownerReferences.kind"),
    ("", "metadata.ownerReferences.name"),
    ("", "metadata.ownerReferences.uid"),
    ("", ".volumeMounts.mountPropagation"),
    ("", ".downwardAPI.items.path"),
    ("", ".volumes.gcePersistentDisk.pdName"),
    ("", ".scaleIO.secretRef"),
    ("DaemonSet", "spec.selector"),
    ("EndpointSlice", "endpoints.hints.forZones.name"),
    ("Node", "spec.taints.key"),
    ("Node", "spec.taints.effect"),
    ("ResourceQuota", "spec.scopeSelector.matchExpressions.operator"),
    ("ResourceQuota", "spec.scopeSelector.matchExpressions.scopeName"),
];

/// What the schema says about an object that is about to be stored. What the kind's own checks have said already is
/// not said twice.
pub(crate) fn validate_schema(
    target: &Target,
    value: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let schema = target.served().schema.node();
    if target.definition.origin == Origin::Custom {
        match (old, target.subresource.as_str()) {
            (None, _) => validate(schema, value, &FieldPath::ROOT, errors),
            (Some(old), "status") => validate_status(schema, value, old, errors),
            (Some(old), _) => validate_update(schema, value, old, errors),
        }
        crate::scale::validate(target, value, errors);
        return;
    }
    let mut found = Vec::new();
    check_required(schema, value, &FieldPath::ROOT, &mut found);
    check_allowed(schema, value, &FieldPath::ROOT, &mut found);
    let said: HashSet<String> = errors.iter().map(|error| error.path.clone()).collect();
    errors.extend(found.into_iter().filter(|error| {
        // Status is the server's and its controllers' word: Kubernetes checks little of it.
        let status = error.path == "status" || error.path.starts_with("status.");
        let excused = NOT_REQUIRED.contains(&(&target.definition.kind, &error.path));
        let left = is_left(&target.definition.kind, &error.path);
        !status && !excused && !left && !may_be_empty(&error.path) && !is_said(&error.path, &said)
    }));
}

/// Whether the kind's own checks have spoken of this place, or of one around it.
fn is_said(path: &str, said: &HashSet<String>) -> bool {
    // The root (`spec`) stands for the whole object and says nothing about its parts.
    let mut around = path.match_indices(['.', '[']).skip(1).map(|(end, _)| &path[..end]);
    said.contains(path) || around.any(|around| said.contains(around))
}

/// Whether a kind looks after a place itself.
fn is_left(kind: &str, path: &str) -> bool {
    let mut shape = String::with_capacity(path.len());
    for (index, part) in path.split('[').enumerate() {
        let after_place = part.split_once(']').map_or(part, |(_, after)| after);
        shape.push_str(if index == 0 { part } else { after_place });
    }
    LEFT_TO_KINDS.iter().any(|(own, end)| (own.is_empty() || *own == kind) && shape.ends_with(end))
}

/// Texts that must be there and may be empty.
fn may_be_empty(path: &str) -> bool {
    path.ends_with("].value") && (path.contains(".httpHeaders[") || path.contains(".sysctls["))
}

/// apiVersion and kind must be those of the path; where the client left them out they are filled in, unless the kind
/// is a custom one.
fn check_kind(value: &mut Value, target: &Target) -> Result<(), Status> {
    let expected = target.api_version();
    let custom = custom::is_from_crd(target);
    if custom && value.str_at(&["kind"]).is_none_or(str::is_empty) {
        let text = value.to_string();
        let kind = &target.definition.kind;
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{}' ({})",
            beginning(&text, SHOWN_LEN_MAX, "..."),
            beginning(&text, 30, " ...")
        )));
    }
    match value.str_at(&["apiVersion"]) {
        None | Some("") if !custom => value.set_at(&["apiVersion"], expected.clone()),
        Some(given) if given == expected => {}
        given => {
            let given = given.unwrap_or_default();
            return Err(Status::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
    }
    let kind = &target.definition.kind;
    match value.str_at(&["kind"]) {
        None | Some("") => value.set_at(&["kind"], kind.clone()),
        Some(given) if given == kind => {}
        Some(_) if custom => return Err(other_kind(value, target)),
        Some(given) => {
            return Err(Status::bad_request(format!(
                "{given} in version {:?} cannot be handled as a {kind}: no kind {given:?} is registered for version {expected:?}",
                target.served().name
            )));
        }
    }
    Ok(())
}

/// What a custom object is told that calls itself something else than its path does.
pub(crate) fn other_kind(value: &Value, target: &Target) -> Status {
    let text = |key: &str| value.str_at(&[key]).unwrap_or_default();
    let rows = [("kind", target.definition.kind.clone()), ("apiVersion", target.api_version())];
    let wrong = rows.into_iter().filter(|(key, expected)| text(key) != *expected);
    let errors: Vec<FieldError> = wrong
        .map(|(key, expected)| FieldError::invalid(key, text(key), format!("must be {expected}")))
        .collect();
    let group = GroupVersion::parse(text("apiVersion")).map(|version| version.group).unwrap_or_default();
    let kind = GroupKind { group, kind: SmolStr::new(text("kind")) };
    Status::invalid(&kind, value.str_at(&["metadata", "name"]).unwrap_or_default(), &errors)
}

/// As much of a document as an error about it shows.
fn beginning(text: &str, chars_max: usize, more: &str) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}{more}", &text[..end]),
        None => text.to_string(),
    }
}

fn unfit(kind: &str, version: &str, problem: &str) -> Status {
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {problem}"))
}

/// `duplicates_first` is the order of custom kinds, whose schema is looked at after the document has been read.
fn report(
    context: &RequestContext,
    unknown: Vec<String>,
    duplicates: Duplicates,
    duplicates_first: bool,
    validation: FieldValidation,
) -> Result<(), Misshapen> {
    let (Duplicates::Fields(repeated) | Duplicates::Lines(repeated)) = &duplicates;
    if unknown.is_empty() && repeated.is_empty() {
        return Ok(());
    }
    let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    // A document in YAML has been read before anybody looks at its fields.
    let duplicates_first = duplicates_first || matches!(duplicates, Duplicates::Lines(_));
    let in_order = |duplicates: Vec<String>| match duplicates_first {
        true => [duplicates, unknown].concat(),
        false => [unknown, duplicates].concat(),
    };
    match validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            let duplicates = match duplicates {
                Duplicates::Fields(paths) => paths.iter().map(|path| duplicate_field(path)).collect(),
                Duplicates::Lines(lines) => lines,
            };
            in_order(duplicates).into_iter().for_each(|problem| context.warn(problem));
            Ok(())
        }
        FieldValidation::Strict => {
            let duplicates = if repeated.is_empty() { Vec::new() } else { vec![duplicates.to_string()] };
            Err(Misshapen::Unfit(format!("strict decoding error: {}", in_order(duplicates).join(", "))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_twice() {
        let said: HashSet<String> =
            ["spec", "handler", "spec.strategy", "spec.ports[0].name"].map(Into::into).into();
        for path in ["handler", "spec.strategy", "spec.strategy.type", "spec.ports[0].name"] {
            assert!(is_said(path, &said), "{path}");
        }
        for path in ["spec.selector", "spec.strategyType", "spec.ports[1].name", "spec.ports[0]"] {
            assert!(!is_said(path, &said), "{path}");
        }
        for (kind, path) in [
            ("Pod", "spec.initContainers[1].volumeMounts[0].mountPropagation"),
            ("Deployment", "spec.template.spec.volumes[0].downwardAPI.items[3].path"),
            ("Node", "spec.taints[0].effect"),
            ("EndpointSlice", "endpoints[0].hints.forZones[1].name"),
        ] {
            assert!(is_left(kind, path), "{path}");
        }
        for (kind, path) in [("Deployment", "spec.selector"), ("Pod", "spec.volumes[0].name"), ("Pod", "")] {
            assert!(!is_left(kind, path), "{path}");
        }
        assert!(may_be_empty("spec.containers[0].livenessProbe.httpGet.httpHeaders[0].value"));
        assert!(!may_be_empty("spec.containers[0].env[0].value"));
    }
}
