//! Checking a value against the OpenAPI checks of a schema, with the texts a Kubernetes server answers for custom
//! resources.
//!
//! Errors, steps and shown values are bounded: a hostile schema and a hostile value together may cost neither
//! unbounded time nor an unbounded answer. A valid value allocates nothing.

mod combined;
mod members;
mod messages;
mod scalars;
mod shown;
mod since;
#[cfg(test)]
mod tests;

use polder_model::{FieldError, FieldPath, Value};

use super::{NodeRef, embedded, formats, rules, unique};
use scalars::{type_text, wrong_type};
pub(crate) use shown::shown;
use since::Before;
pub use since::{validate_status, validate_update};

/// More errors than this are not reported.
pub(crate) const ERRORS_MAX: usize = 100;

/// How many schema nodes, enumerated values and the like one validation may look at.
const STEPS_MAX: u64 = 10_000_000;

/// Checks a new custom resource: schema, embedded resources, uniqueness in lists.
pub fn validate(node: NodeRef<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    Validator::new(path).validate(node, value, errors);
    embedded::validate_embedded(node, value, path, errors);
    unique::validate_lists(node, value, path, errors);
    rules::validate_rules(node, value, None, errors);
}

/// One validation, or several that share their limits.
#[derive(Debug)]
pub(crate) struct Validator {
    /// Where the value stands; empty for a whole object.
    base: String,
    /// How far below the base the walk is.
    depth: u32,
    steps_left: u64,
    exhausted: bool,
}

/// What came of checking a value: errors, and how much of the schema did fit. The latter picks the alternative to
/// explain when none of several fits.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    matches: u64,
}

impl Outcome {
    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// Whether nobody wants to hear more: one is kept beyond those that are shown, to tell that there are more.
    fn is_full(&self) -> bool {
        self.errors.len() > ERRORS_MAX
    }

    fn add(&mut self, error: FieldError) {
        if !self.is_full() && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other.errors.into_iter().for_each(|error| self.add(error));
    }
}

impl Validator {
    pub(crate) fn new(base: &FieldPath<'_>) -> Validator {
        Validator { base: base.to_string(), depth: 0, steps_left: STEPS_MAX, exhausted: false }
    }

    /// Moves to another value, keeping what is left of the limits.
    pub(crate) fn rebase(&mut self, base: &FieldPath<'_>) {
        self.base = base.to_string();
    }

    /// Checks only the schema itself.
    pub(crate) fn validate(&mut self, node: NodeRef<'_>, value: &Value, errors: &mut Vec<FieldError>) {
        self.validate_since(node, value, None, errors);
    }

    fn validate_since(
        &mut self,
        node: NodeRef<'_>,
        value: &Value,
        old: Option<Before<'_>>,
        errors: &mut Vec<FieldError>,
    ) {
        let outcome = self.check(node, value, old, &FieldPath::ROOT);
        let more = outcome.errors.len() > ERRORS_MAX.saturating_sub(errors.len());
        errors.extend(outcome.errors.into_iter().take(ERRORS_MAX.saturating_sub(errors.len())));
        if more {
            let detail = format!("there are too many errors; only the first {ERRORS_MAX} are listed");
            errors.push(FieldError::forbidden(self.at(&FieldPath::ROOT), detail));
        }
        if self.exhausted {
            let detail = "the value takes too long to validate against its schema";
            errors.push(FieldError::forbidden(self.at(&FieldPath::ROOT), detail));
        }
    }

    fn spend(&mut self, steps: usize) -> bool {
        match self.steps_left.checked_sub(steps as u64) {
            Some(left) => self.steps_left = left,
            None => self.exhausted = true,
        }
        !self.exhausted
    }

    /// Checks one place. Only what is wrong is compared with what was there.
    fn check(
        &mut self,
        node: NodeRef<'_>,
        value: &Value,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
    ) -> Outcome {
        let mut outcome = self.check_anew(node, value, old, name);
        if !outcome.is_valid() && old.is_some_and(|old| old.value == value) {
            outcome.errors.clear();
        }
        outcome
    }

    /// The same, but only what stands below this place is excused.
    fn check_anew(
        &mut self,
        node: NodeRef<'_>,
        value: &Value,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let own = node.get();
        let checks = own.checks.as_deref();
        if !self.spend(1 + own.required.len() + own.allowed.len()) {
            return outcome;
        }
        let format = own.format.as_deref().and_then(|format| Some((format, formats::format(format)?)));
        if value.is_null() {
            self.check_null(own, name, &mut outcome);
            self.check_allowed(own, value, name, &mut outcome);
            return outcome;
        }
        if type_text(own.kind).is_some() || format.is_some() {
            outcome.matches += 1;
            match wrong_type(own.kind, format.map(|(format, _)| format), value) {
                Some((expected, found)) => outcome.add(self.wrong_type(name, expected, found)),
                None => outcome.matches += 1,
            }
        }
        outcome.matches += 2;
        if let Some(checks) = checks {
            self.check_combined(node, checks, value, old, name, &mut outcome);
        }
        match value {
            Value::String(text) => {
                outcome.matches += 1;
                if let Some(checks) = checks
                    && let Some(error) = self.string_problem(checks, text, name)
                {
                    outcome.add(error);
                }
                if let Some((format, has_format)) = format {
                    outcome.matches += 1;
                    if self.spend(text.len() / 64) && !has_format(text) {
                        outcome.add(self.wrong_type(name, format, text));
                    }
                }
            }
            Value::Int(_) | Value::Float(_) => {
                outcome.matches += 2;
                if let Some(checks) = checks {
                    self.check_number(checks, value, name, &mut outcome);
                }
            }
            Value::Array(items) => {
                outcome.matches += 2;
                self.check_items(node, items, old, name, &mut outcome);
            }
            _ => {}
        }
        outcome.matches += 1;
        self.check_allowed(own, value, name, &mut outcome);
        if let Value::Object(object) = value {
            outcome.matches += 1;
            self.check_members(node, object, old, name, &mut outcome);
        }
        outcome.matches += 1;
        outcome
    }
}
