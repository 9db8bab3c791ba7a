//! Judging objects by the rules of their schema.
//!
//! A rule that mentions `oldSelf` runs only where there is an old value to compare with: lists without keys have
//! none. A rule that fails for what an update left as it was does not count against the update.

use std::collections::HashMap;

use polder_cel::{Bindings, Budget, CALL_COST_MAX, Fault, Value as Cel};
use polder_model::field::bounded;
use polder_model::{FieldError, FieldErrorKind, FieldPath, Value};

use super::super::validate::{ERRORS_MAX, shown};
use super::super::{Kind, ListType, NodeRef};
use super::{Place, Reason, Rule, Rules};

/// What all rules may cost on one object.
const OBJECT_COST_MAX: u64 = 10_000_000;
/// A longer message is not used.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Checks a custom resource against its rules, after its schema: where that found something grave, rules are not run.
pub fn validate_rules(node: NodeRef<'_>, value: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(rules) = node.arena.rules.as_deref() else { return };
    let is_grave = |error: &FieldError| {
        matches!(
            error.kind,
            FieldErrorKind::NotSupported
                | FieldErrorKind::Required
                | FieldErrorKind::TooLong
                | FieldErrorKind::TooMany
                | FieldErrorKind::TypeInvalid
        )
    };
    if errors.iter().any(is_grave) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::invalid("<nil>", Value::Null, detail));
        return;
    }
    let mut run = Run { rules, cost_left: OBJECT_COST_MAX, errors };
    let before = old.map(|old| (value, old));
    let _ended = run.walk(node, value, Before { here: before, nearest: before }, &FieldPath::ROOT);
}

/// What stood at a place before.
#[derive(Clone, Copy)]
struct Before<'a> {
    /// New and old value here, where the old one can be told.
    here: Option<(&'a Value, &'a Value)>,
    /// The same at the nearest place above where it can.
    nearest: Option<(&'a Value, &'a Value)>,
}

impl<'a> Before<'a> {
    fn below(self, value: &'a Value, old: Option<&'a Value>) -> Before<'a> {
        let here = old.map(|old| (value, old));
        Before { here, nearest: here.or(self.nearest) }
    }

    fn is_unchanged(self) -> bool {
        self.here.or(self.nearest).is_some_and(|(new, old)| new == old)
    }
}

/// No further rules are run.
struct Ended;

struct Run<'r> {
    rules: &'r Rules,
    cost_left: u64,
    errors: &'r mut Vec<FieldError>,
}

impl Run<'_> {
    fn walk(
        &mut self,
        node: NodeRef<'_>,
        value: &Value,
        before: Before<'_>,
        path: &FieldPath<'_>,
    ) -> Result<(), Ended> {
        if value.is_null() || !self.rules.has_below(node.id()) {
            return Ok(());
        }
        if let Some(place) = self.rules.at(node.id()) {
            self.place(place, node, value, before, path)?;
        }
        let old = before.here.map(|(_, old)| old);
        match value {
            Value::Object(members) => {
                for (name, member) in members.iter() {
                    let known = node.property(name);
                    let path = if known.is_some() { path.member(name) } else { path.key(name) };
                    let Some(inner) = known.or_else(|| node.get().additional.map(|id| node.at(id))) else {
                        continue;
                    };
                    let old = old.and_then(|old| old.get(name)).filter(|old| !old.is_null());
                    self.walk(inner, member, before.below(member, old), &path)?;
                }
            }
            Value::Array(items) => {
                let Some(inner) = node.items() else { return Ok(()) };
                if !self.rules.has_below(inner.id()) {
                    return Ok(());
                }
                let known = elements(node, old);
                for (index, item) in items.iter().enumerate() {
                    let old = key(node, item).and_then(|key| known.get(&key).copied());
                    self.walk(inner, item, before.below(item, old), &path.index(index))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn place(
        &mut self,
        place: &Place,
        node: NodeRef<'_>,
        value: &Value,
        before: Before<'_>,
        path: &FieldPath<'_>,
    ) -> Result<(), Ended> {
        let type_name = type_name(node.get().kind);
        let old = before.here.map(|(_, old)| old);
        for problem in &place.broken {
            let detail = format!("rule compile error: {problem}");
            self.errors.push(FieldError::invalid(path, type_name, detail));
        }
        for rule in &place.rules {
            if rule.uses_old && old.is_none() && !rule.optional_old {
                continue;
            }
            if self.errors.len() >= ERRORS_MAX {
                return Err(Ended);
            }
            let bindings = match bindings(place, rule, value, old) {
                Ok(bindings) => bindings,
                Err(fault) => {
                    self.fail(path, type_name, rule, &fault);
                    continue;
                }
            };
            let evaluation =
                rule.program.evaluate(&bindings, Budget { cost_max: CALL_COST_MAX, interrupt: None });
            if evaluation.cost > self.cost_left {
                let detail = "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(FieldError::invalid(path, type_name, detail));
                return Err(Ended);
            }
            self.cost_left -= evaluation.cost;
            match evaluation.value {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => self.refused(rule, &bindings, node, value, before, path)?,
                Err(fault @ (Fault::CostExceeded | Fault::Interrupted)) => {
                    let detail = format!(
                        "'{fault}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        rule.name
                    );
                    self.errors.push(FieldError::invalid(path, type_name, detail));
                    return Err(Ended);
                }
                Err(fault) => self.fail(path, type_name, rule, &fault),
            }
        }
        Ok(())
    }

    /// The rule has no result.
    fn fail(&mut self, path: &FieldPath<'_>, type_name: &str, rule: &Rule, fault: &Fault) {
        let fault = bounded(fault);
        let detail = match fault.starts_with("no such overload") {
            true => format!(
                "'{fault}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                rule.name
            ),
            false => format!("{fault} evaluating rule: {}", rule.name),
        };
        self.errors.push(FieldError::invalid(path, type_name, detail));
    }

    /// The rule says no.
    fn refused(
        &mut self,
        rule: &Rule,
        bindings: &Bindings<'_>,
        node: NodeRef<'_>,
        value: &Value,
        before: Before<'_>,
        path: &FieldPath<'_>,
    ) -> Result<(), Ended> {
        if !rule.uses_old && before.is_unchanged() {
            return Ok(());
        }
        let at = match rule.field_path.as_str() {
            "" => path.to_string(),
            below => path.member(below).to_string(),
        };
        let kind = node.get().kind;
        let mut message = None;
        if let Some((program, source)) = &rule.message_program {
            let evaluation = program.evaluate(bindings, Budget { cost_max: CALL_COST_MAX, interrupt: None });
            let problem = match &evaluation.value {
                _ if evaluation.cost > self.cost_left => Some(
                    "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned(),
                ),
                Err(Fault::CostExceeded | Fault::Interrupted) => Some(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source:?}"
                )),
                _ => None,
            };
            if let Some(problem) = problem {
                self.errors.push(FieldError::invalid(at, type_name(kind), problem));
                return Err(Ended);
            }
            self.cost_left -= evaluation.cost;
            if let Ok(Cel::String(text)) = &evaluation.value {
                let text = text.trim();
                let fits = !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n');
                message = fits.then(|| text.to_owned());
            }
        }
        let detail = message.unwrap_or_else(|| match rule.message.as_str() {
            "" => format!("failed rule: {}", rule.name),
            message => message.to_owned(),
        });
        let is_large = matches!(kind, Kind::Object | Kind::Array);
        let mut error = match rule.reason {
            Reason::Invalid => FieldError::invalid(at, shown(value), detail),
            Reason::Forbidden => FieldError::forbidden(at, detail),
            Reason::Required => FieldError::required(at, detail),
            Reason::Duplicate => FieldError::duplicate(at, shown(value)),
        };
        if is_large {
            error.value = None;
        }
        self.errors.push(error);
        Ok(())
    }
}

fn bindings<'a>(
    place: &'a Place,
    rule: &Rule,
    value: &'a Value,
    old: Option<&'a Value>,
) -> Result<Bindings<'a>, Fault> {
    let bindings = Bindings::new().with(Cel::shaped(value, &place.shape)?);
    if !rule.uses_old {
        return Ok(bindings);
    }
    let old = old.map(|old| Cel::shaped(old, &place.shape)).transpose()?;
    Ok(match (old, rule.optional_old) {
        (Some(old), true) => bindings.with(Cel::some(old)),
        (None, true) => bindings.with(Cel::Optional(None)),
        (Some(old), false) => bindings.with(old),
        (None, false) => bindings.without(),
    })
}

/// The schema's word for a type, as errors show it.
fn type_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Object => "object",
        Kind::Array => "array",
        Kind::String => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        _ => "",
    }
}

/// The elements of a list by the members that identify them; only of lists that have such.
fn elements<'a>(node: NodeRef<'_>, old: Option<&'a Value>) -> HashMap<String, &'a Value> {
    let items = old.and_then(Value::as_array).unwrap_or_default();
    let mut known = HashMap::new();
    for item in items {
        if let Some(key) = key(node, item) {
            known.entry(key).or_insert(item);
        }
    }
    known
}

fn key(node: NodeRef<'_>, item: &Value) -> Option<String> {
    let own = node.get();
    if own.list_type != ListType::Map || own.list_map_keys.is_empty() {
        return None;
    }
    let mut out = String::new();
    for name in &own.list_map_keys {
        let part = item.get(name)?;
        if matches!(part, Value::Object(_) | Value::Array(_) | Value::Null) {
            return None;
        }
        out.push_str(&part.to_string());
        out.push('\n');
    }
    Some(out)
}
