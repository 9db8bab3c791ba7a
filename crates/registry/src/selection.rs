//! Which objects of a collection a list, watch or deletecollection is about.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use polder_auth::authz::Selectors;
use polder_machinery::jsonpath::JsonPath;
use polder_model::selector::{FieldSelector, LabelSelector};
use polder_model::{SmolStr, Status, Value};
use polder_store::{Filter, StoredObject};

use crate::context::Query;
use crate::definition::{ResourceDefinition, Target};

/// Requirements of one selector: each is looked at for every object.
const REQUIREMENTS_MAX: usize = 1_000;
/// With more requirements than this the labels of an object are put in order first.
const FEW_REQUIREMENTS: usize = 8;

/// Label and field selectors of one request, checked against what the resource supports.
#[derive(Clone, Debug)]
pub struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// How to find each field the selector names; `None` for name and namespace, which need no parsing.
    lookups: Vec<(SmolStr, Lookup)>,
    version: usize,
    definition: Arc<ResourceDefinition>,
}

#[derive(Clone, Debug)]
enum Lookup {
    Name,
    Namespace,
    Paths(&'static [&'static [&'static str]], &'static str),
    /// Index into the version's selectable fields.
    Custom(usize),
}

impl Selection {
    pub fn from_query(query: &Query, target: &Target) -> Result<Selection, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let labels = labels.map_err(|error| Status::bad_request(error.to_string()))?;
        let fields = FieldSelector::parse(query.get("fieldSelector").unwrap_or_default());
        let fields = fields.map_err(|error| Status::bad_request(error.to_string()))?;
        if labels.requirements().len().max(fields.requirements().len()) > REQUIREMENTS_MAX {
            let text = format!("selector may not have more than {REQUIREMENTS_MAX} requirements");
            return Err(Status::bad_request(text));
        }
        let mut lookups = Vec::new();
        for requirement in fields.requirements() {
            let label = requirement.path.as_str();
            let lookup = lookup(target, label)
                .ok_or_else(|| Status::bad_request(unsupported(&target.definition, label)))?;
            lookups.push((SmolStr::new(label), lookup));
        }
        let (definition, version) = (target.definition.clone(), target.version);
        Ok(Selection { labels, fields, lookups, version, definition })
    }

    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// As authorizers see it.
    pub(crate) fn selectors(&self) -> Selectors<'_> {
        Selectors { fields: self.fields.requirements(), labels: self.labels.requirements() }
    }

    /// The one name a field selector allows, if it allows only one.
    pub fn only_name(&self) -> Option<&str> {
        self.fields.required_value("metadata.name")
    }

    pub fn matches(&self, object: &StoredObject) -> bool {
        if !self.labels_match(object) {
            return false;
        }
        if self.fields.is_everything() {
            return true;
        }
        let needs_body =
            self.lookups.iter().any(|(_, lookup)| !matches!(lookup, Lookup::Name | Lookup::Namespace));
        let body = if needs_body { self.body(object) } else { Value::Null };
        self.fields.matches(|label| {
            let (_, lookup) = self.lookups.iter().find(|(own, _)| own == label)?;
            Some(match lookup {
                Lookup::Name => Cow::Borrowed(object.name.name.as_str()),
                Lookup::Namespace => Cow::Borrowed(object.name.namespace.as_str()),
                Lookup::Paths(paths, missing) => {
                    let found = paths.iter().find_map(|path| body.at(path)).and_then(text);
                    Cow::Owned(found.unwrap_or_else(|| (*missing).to_string()))
                }
                Lookup::Custom(index) => {
                    let (_, path) = &self.definition.versions[self.version].selectable[*index];
                    Cow::Owned(custom_text(path, &body))
                }
            })
        })
    }

    /// What readers see of an object, as far as fields are selected by it.
    fn body(&self, object: &StoredObject) -> Value {
        let mut body = Value::parse_own(object.record.body()).unwrap_or_default();
        let version = &self.definition.versions[self.version].name;
        if let Some(rereading) = self.definition.rereading(version, &object.record) {
            rereading.apply(&mut body);
        }
        body
    }

    fn labels_match(&self, object: &StoredObject) -> bool {
        if self.labels.requirements().len() <= FEW_REQUIREMENTS {
            return self.labels.matches(|key| object.record.label(key));
        }
        // Both sides may be long: not one times the other.
        let labels: HashMap<&str, &str> = object.record.labels().collect();
        self.labels.matches(|key| labels.get(key).copied())
    }

    /// As the store takes it; `None` when everything matches.
    pub fn filter(self: &Arc<Self>) -> Option<Arc<Filter>> {
        if self.is_everything() {
            return None;
        }
        let selection = self.clone();
        Some(Arc::new(move |object: &StoredObject| selection.matches(object)))
    }
}

fn lookup(target: &Target, label: &str) -> Option<Lookup> {
    match label {
        "metadata.name" => return Some(Lookup::Name),
        // Kinds with no fields of their own share a rule that does not ask for a scope.
        "metadata.namespace" if target.definition.namespaced || is_plain(&target.definition) => {
            return Some(Lookup::Namespace);
        }
        _ => {}
    }
    let builtin = target.definition.behavior.selectable.iter().find(|own| own.label == label);
    if let Some(own) = builtin {
        return Some(Lookup::Paths(own.paths, own.missing));
    }
    let custom = target.served().selectable.iter().position(|(own, _)| own == label);
    custom.map(Lookup::Custom)
}

/// Whether a built-in kind adds nothing to name and namespace.
fn is_plain(definition: &ResourceDefinition) -> bool {
    !definition.is_custom() && definition.behavior.selectable.is_empty()
}

/// What kinds say about fields they do not know: each has its own words.
fn unsupported(definition: &ResourceDefinition, label: &str) -> String {
    match definition.kind.as_str() {
        _ if is_plain(definition) => {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        "Job" if !definition.is_custom() => format!("field label {label:?} not supported for Job"),
        "ResourceSlice" if !definition.is_custom() => {
            format!("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}")
        }
        _ => format!("field label not supported: {label}"),
    }
}

fn custom_text(path: &JsonPath, body: &Value) -> String {
    path.find(body).first().and_then(|value| text(value)).unwrap_or_default()
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.to_string()),
        Value::Bool(_) | Value::Int(_) | Value::Float(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
