//! Fields that may be used in field selectors.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::versions::schema_of;
use crate::schema::simple_path::{self, Brackets};
use crate::schema::structural::source::Source;
use crate::schema::validate::{ERRORS_MAX, shown};

const FIELDS_MAX: usize = 8;

pub(super) fn problems(version: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    let fields = version.array_at(&["selectableFields"]);
    if fields.is_empty() {
        return;
    }
    let Some(schema) = schema_of(version).and_then(Source::new) else {
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        problems.push(FieldError::invalid(path, "", detail));
        return;
    };
    let mut seen: HashSet<Vec<String>> = HashSet::new();
    for (index, field) in fields.iter().enumerate().take(ERRORS_MAX) {
        let at_field = path.index(index);
        let at = at_field.member("jsonPath");
        let text = field.str_at(&["jsonPath"]).unwrap_or_default();
        if text.is_empty() {
            problems.push(FieldError::required(at, ""));
            continue;
        }
        let value = shown(&Value::from(text));
        let found = match simple_path::find(text, schema, Brackets::Refused) {
            Ok(found) => found,
            Err(problem) => {
                problems.push(FieldError::invalid(at, value, format!("is an invalid path: {problem}")));
                continue;
            }
        };
        if found.steps.first().is_some_and(|first| first == "metadata") {
            problems.push(FieldError::invalid(at, value.clone(), "must not point to fields in metadata"));
        }
        let kind = found.schema.map(|schema| schema.text("type"));
        if !matches!(kind, Some("string" | "boolean" | "integer")) {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and \
                 strings with formats are allowed.";
            problems.push(FieldError::invalid(at, value.clone(), detail));
        }
        if !seen.insert(found.steps) {
            problems.push(FieldError::duplicate(at, value));
        }
    }
    if seen.len() > FIELDS_MAX {
        problems.push(FieldError::too_many(path, seen.len(), FIELDS_MAX));
    }
}
