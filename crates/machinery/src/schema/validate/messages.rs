//! The errors a validation reports: where they are, and what they say.

use polder_model::field::bounded;
use polder_model::{FieldError, FieldPath, Value};

use super::super::go_text::quoted;
use super::Validator;
use super::shown::clipped;

impl Validator {
    /// The whole path of a place named relative to the base.
    pub(super) fn at(&self, name: &FieldPath<'_>) -> String {
        let name = bounded(name);
        let name = name.strip_prefix('.').unwrap_or(&name);
        match (self.base.is_empty(), name.is_empty()) {
            (true, true) => "<nil>".into(),
            (true, false) => name.into(),
            (false, true) => self.base.clone(),
            (false, false) => format!("{}.{name}", self.base),
        }
    }

    pub(super) fn invalid(&self, name: &FieldPath<'_>, value: Value, problem: &str) -> FieldError {
        FieldError::invalid(self.at(name), value, format!("{} in body {problem}", bounded(name)))
    }

    pub(super) fn wrong_type(&self, name: &FieldPath<'_>, expected: &str, found: &str) -> FieldError {
        let found = clipped(found);
        let detail = format!("{} in body must be of type {expected}: {}", bounded(name), quoted(&found));
        FieldError::type_invalid(self.at(name), found.as_ref(), detail)
    }

    /// Errors about several schemas at once carry no path of their own.
    pub(super) fn composite(&self, name: &FieldPath<'_>, problem: &str) -> FieldError {
        let detail = format!("{} {problem}", quoted(&bounded(name)));
        FieldError::invalid(self.at(&FieldPath::ROOT), "", detail)
    }
}
