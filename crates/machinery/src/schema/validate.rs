//! Checking a value against the OpenAPI checks of a schema, with the texts a Kubernetes server answers for custom
//! resources.
//!
//! Errors, steps and shown values are bounded: a hostile schema and a hostile value together may cost neither
//! unbounded time nor an unbounded answer. A valid value allocates nothing.

use std::collections::HashMap;

use polder_model::field::bounded;
use polder_model::{FieldError, FieldPath, Object, Value};

use super::go_text::{float, quoted};
use super::{Checks, Kind, ListType, Node, NodeId, NodeRef, embedded, formats, unique};

/// More errors than this are not reported.
pub(crate) const ERRORS_MAX: usize = 100;

/// How many schema nodes, enumerated values and the like one validation may look at.
const STEPS_MAX: u64 = 10_000_000;

/// Larger values are not repeated in an error: more elements than this, or more text in all of them.
const SHOWN_NODES_MAX: usize = 1000;
const SHOWN_BYTES_MAX: usize = 4096;

/// Checks a new custom resource: schema, embedded resources, uniqueness in lists.
pub fn validate(node: NodeRef<'_>, value: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    Validator::new(path).validate(node, value, errors);
    embedded::validate_embedded(node, value, path, errors);
    unique::validate_lists(node, value, path, errors);
}

/// Checks a custom resource that is there already: what an update leaves as it was is not held against it, even if it
/// became wrong since, because the schema did.
pub fn validate_update(node: NodeRef<'_>, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::ROOT;
    Validator::new(&path).validate_since(node, value, Some(Before { node, value: old }), errors);
    embedded::validate_embedded(node, value, &path, errors);
    validate_lists_since(node, value, old, errors);
}

/// The same for an update of nothing but the status: the rest is not looked at.
pub fn validate_status(node: NodeRef<'_>, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if let (Some(status), Some(new)) = (node.property("status"), value.get("status")) {
        let before = old.get("status").map(|old| Before { node: status, value: old });
        Validator::new(&FieldPath::root("status")).validate_since(status, new, before, errors);
    }
    validate_lists_since(node, value, old, errors);
}

/// Lists whose elements were not unique before need not become so now.
fn validate_lists_since(node: NodeRef<'_>, value: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let path = FieldPath::ROOT;
    let (mut found, mut known) = (Vec::new(), Vec::new());
    unique::validate_lists(node, value, &path, &mut found);
    if !found.is_empty() {
        unique::validate_lists(node, old, &path, &mut known);
    }
    if known.is_empty() {
        errors.append(&mut found);
    }
}

/// What stood at a place before an update, and the schema of that place: what is unchanged is excused.
#[derive(Clone, Copy)]
struct Before<'a> {
    node: NodeRef<'a>,
    value: &'a Value,
}

impl<'a> Before<'a> {
    fn member(self, key: &str) -> Option<Before<'a>> {
        Some(Before { node: self.node.member(key)?, value: self.value.get(key)? })
    }

    /// The elements by the members that identify them; only of lists that have such.
    fn elements(self) -> HashMap<String, Before<'a>> {
        let (Some(node), Value::Array(items)) = (self.node.items(), self.value) else {
            return HashMap::new();
        };
        let items = items.iter().filter_map(|value| Some((self.key(value)?, Before { node, value })));
        items.collect()
    }

    fn key(self, item: &Value) -> Option<String> {
        let own = self.node.get();
        let is_map = own.list_type == ListType::Map && matches!(item, Value::Object(_));
        is_map.then(|| {
            let members = own.list_map_keys.iter().map(|key| item.get(key).map(Value::to_string));
            members.map(|text| text.unwrap_or_default() + "\n").collect()
        })
    }
}

/// What may be shown of a value in an error.
pub(crate) fn shown(value: &Value) -> Value {
    /// What is left to show.
    struct Left {
        nodes: usize,
        bytes: usize,
    }
    impl Left {
        fn takes(&mut self, text: &str) -> bool {
            let left = self.bytes.checked_sub(text.len());
            self.bytes = left.unwrap_or_default();
            left.is_some()
        }
        fn shows(&mut self, value: &Value) -> bool {
            self.nodes = self.nodes.saturating_sub(1);
            self.nodes > 0
                && match value {
                    Value::String(text) => self.takes(text),
                    Value::Array(items) => items.iter().all(|item| self.shows(item)),
                    Value::Object(object) => {
                        object.iter().all(|(key, value)| self.takes(key) && self.shows(value))
                    }
                    _ => true,
                }
        }
    }
    match value {
        Value::String(text) => Value::from(clipped(text).as_ref()),
        value if (Left { nodes: SHOWN_NODES_MAX, bytes: SHOWN_BYTES_MAX }).shows(value) => value.clone(),
        _ => Value::from("(too large to show)"),
    }
}

fn clipped(text: &str) -> std::borrow::Cow<'_, str> {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.into();
    }
    let end = (0..=SHOWN_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", &text[..end]).into()
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

    /// The whole path of a place named relative to the base.
    fn at(&self, name: &FieldPath<'_>) -> String {
        let name = bounded(name);
        let name = name.strip_prefix('.').unwrap_or(&name);
        match (self.base.is_empty(), name.is_empty()) {
            (true, true) => "<nil>".into(),
            (true, false) => name.into(),
            (false, true) => self.base.clone(),
            (false, false) => format!("{}.{name}", self.base),
        }
    }

    fn invalid(&self, name: &FieldPath<'_>, value: Value, problem: &str) -> FieldError {
        FieldError::invalid(self.at(name), value, format!("{} in body {problem}", bounded(name)))
    }

    fn wrong_type(&self, name: &FieldPath<'_>, expected: &str, found: &str) -> FieldError {
        let found = clipped(found);
        let detail = format!("{} in body must be of type {expected}: {}", bounded(name), quoted(&found));
        FieldError::type_invalid(self.at(name), found.as_ref(), detail)
    }

    /// Errors about several schemas at once carry no path of their own.
    fn composite(&self, name: &FieldPath<'_>, problem: &str) -> FieldError {
        let detail = format!("{} {problem}", quoted(&bounded(name)));
        FieldError::invalid(self.at(&FieldPath::ROOT), "", detail)
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

    fn check_null(&self, node: &Node, name: &FieldPath<'_>, outcome: &mut Outcome) {
        match type_text(node.kind) {
            // Times read null as absent.
            Some(expected) if !node.nullable && !matches!(node.kind, Kind::Time | Kind::MicroTime) => {
                outcome.add(self.wrong_type(name, expected, "null"));
            }
            _ => outcome.matches += 1,
        }
    }

    fn check_allowed(&self, node: &Node, value: &Value, name: &FieldPath<'_>, outcome: &mut Outcome) {
        let is_same = |allowed: &Value| match (allowed.as_f64(), value.as_f64()) {
            (Some(allowed), Some(value)) => allowed == value,
            _ => allowed == value && !value.is_null(),
        };
        if node.allowed.is_empty() || node.allowed.iter().any(is_same) {
            return;
        }
        let mut bytes_left = SHOWN_BYTES_MAX;
        let texts = node.allowed.iter().map_while(|allowed| {
            let text = match shown(allowed) {
                Value::String(text) => text.to_string(),
                other => other.to_string(),
            };
            let listed = bytes_left > 0;
            bytes_left = bytes_left.saturating_sub(text.len());
            listed.then_some(text)
        });
        outcome.add(FieldError::not_supported(self.at(name), shown(value), texts.take(ERRORS_MAX)));
    }

    fn check_combined(
        &mut self,
        node: NodeRef<'_>,
        checks: &Checks,
        value: &Value,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        if !checks.any_of.is_empty() {
            let (valid, explanation) = self.alternatives((node, &checks.any_of), value, old, name, true);
            if valid == 0 {
                outcome.add(self.composite(name, "must validate at least one schema (anyOf)"));
            }
            outcome.merge(explanation);
        }
        if !checks.one_of.is_empty() {
            let (valid, explanation) = self.alternatives((node, &checks.one_of), value, old, name, false);
            match valid {
                0 => {
                    let problem = "must validate one and only one schema (oneOf). Found none valid";
                    outcome.add(self.composite(name, problem));
                    outcome.merge(explanation);
                }
                1 => outcome.merge(explanation),
                count => {
                    let problem = format!(
                        "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                    );
                    outcome.add(self.composite(name, &problem));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for id in &checks.all_of {
                let one = self.check_anew(node.at(*id), value, old, name);
                valid += usize::from(one.is_valid());
                outcome.merge(one);
            }
            if valid != checks.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add(self.composite(name, &format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(id) = checks.not
            && self.check_anew(node.at(id), value, old, name).is_valid()
        {
            outcome.add(self.composite(name, "must not validate the schema (not)"));
        }
    }

    /// How many alternatives fit, and the first that does or else the one that nearly does.
    fn alternatives(
        &mut self,
        (node, ids): (NodeRef<'_>, &[NodeId]),
        value: &Value,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        one_is_enough: bool,
    ) -> (usize, Outcome) {
        let mut valid = 0;
        let mut best: Option<Outcome> = None;
        for id in ids {
            let one = self.check_anew(node.at(*id), value, old, name);
            if one.is_valid() {
                valid += 1;
                if valid == 1 {
                    best = Some(one);
                }
                if one_is_enough {
                    break;
                }
            } else if valid == 0 && best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        (valid, best.unwrap_or_default())
    }

    fn string_problem(&mut self, checks: &Checks, text: &str, name: &FieldPath<'_>) -> Option<FieldError> {
        self.spend(text.len() / 64);
        if checks.max_length.is_some() || checks.min_length.is_some() {
            let length = text.chars().count() as u64;
            if let Some(max) = checks.max_length.filter(|max| length > *max) {
                return Some(FieldError::too_long(self.at(name), usize::try_from(max).unwrap_or(usize::MAX)));
            }
            if let Some(min) = checks.min_length.filter(|min| length < *min) {
                let problem = format!("should be at least {min} chars long");
                return Some(self.invalid(name, Value::from(clipped(text).as_ref()), &problem));
            }
        }
        let (pattern, regex) = checks.pattern.as_ref()?;
        if regex.is_match(text) {
            return None;
        }
        let problem = format!("should match '{}'", clipped(pattern));
        Some(self.invalid(name, Value::from(clipped(text).as_ref()), &problem))
    }

    fn check_number(&self, checks: &Checks, value: &Value, name: &FieldPath<'_>, outcome: &mut Outcome) {
        // Integers are compared as integers, with bounds cut to integers, as in Go.
        let bound = |bound: f64| match value {
            Value::Int(_) => truncated(bound).to_string(),
            _ => float(bound),
        };
        let order = |bound: f64| match value {
            Value::Int(number) => Some(number.cmp(&truncated(bound))),
            _ => value.as_f64()?.partial_cmp(&bound),
        };
        if let Some(factor) = checks.multiple_of {
            let is_multiple = match value {
                // An integer takes only the whole part of the factor, so that one below 1 refuses all integers.
                Value::Int(_) if truncated(factor) <= 0 => false,
                Value::Int(number) => number.checked_rem(truncated(factor)).is_none_or(|rest| rest == 0),
                _ => value.as_f64().is_some_and(|number| {
                    is_json_integer(if factor < 1.0 { 1.0 / factor * number } else { number / factor })
                }),
            };
            if factor <= 0.0 || (matches!(value, Value::Int(_)) && truncated(factor) <= 0) {
                let detail = format!(
                    "factor MultipleOf declared for {} must be positive: {}",
                    bounded(name),
                    bound(factor)
                );
                let shown = match value {
                    Value::Int(_) => Value::Int(truncated(factor)),
                    _ => Value::Float(factor),
                };
                outcome.add(FieldError::invalid(self.at(name), shown, detail));
            } else if !is_multiple {
                let problem = format!("should be a multiple of {}", bound(factor));
                outcome.add(self.invalid(name, value.clone(), &problem));
            }
        }
        let mut report = |problem: String| outcome.add(self.invalid(name, value.clone(), &problem));
        if let Some(minimum) = checks.minimum {
            match order(minimum) {
                Some(order) if order.is_lt() || (checks.exclusive_minimum && order.is_eq()) => {
                    let or_equal = if checks.exclusive_minimum { "" } else { " or equal to" };
                    report(format!("should be greater than{or_equal} {}", bound(minimum)));
                }
                _ => {}
            }
        }
        if let Some(maximum) = checks.maximum {
            match order(maximum) {
                Some(order) if order.is_gt() || (checks.exclusive_maximum && order.is_eq()) => {
                    let or_equal = if checks.exclusive_maximum { "" } else { " or equal to" };
                    report(format!("should be less than{or_equal} {}", bound(maximum)));
                }
                _ => {}
            }
        }
    }

    fn check_items(
        &mut self,
        node: NodeRef<'_>,
        items: &[Value],
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        if let Some(item_node) = node.items() {
            self.depth += 1;
            let mut before: Option<HashMap<String, Before<'_>>> = None;
            for (index, item) in items.iter().enumerate() {
                let mut one = self.check(item_node, item, None, &name.index(index));
                // Which element it was is looked up only for one that is wrong: few are.
                if !one.is_valid()
                    && let Some((old, key)) = old.and_then(|old| Some((old, old.key(item)?)))
                    && let Some(known) = before.get_or_insert_with(|| old.elements()).get(&key)
                {
                    one = self.check(item_node, item, Some(*known), &name.index(index));
                }
                outcome.merge(one);
                if self.exhausted || outcome.is_full() {
                    break;
                }
            }
            self.depth -= 1;
        }
        let Some(checks) = node.get().checks.as_deref() else { return };
        let count = items.len() as u64;
        if let Some(min) = checks.min_items.filter(|min| count < *min) {
            let problem = format!("should have at least {min} items");
            outcome.add(self.invalid(name, count_value(items.len()), &problem));
        }
        if let Some(max) = checks.max_items.filter(|max| count > *max) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            outcome.add(FieldError::too_many(self.at(name), items.len(), max));
        }
        if checks.unique_items && unique::has_repeated(items) {
            outcome.add(self.invalid(name, Value::from(""), "shouldn't contain duplicates"));
        }
    }

    fn check_members(
        &mut self,
        node: NodeRef<'_>,
        object: &Object,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        let own = node.get();
        let before = |key: &str| old.and_then(|old| old.member(key));
        let mut no_additional = false;
        if let Some(checks) = own.checks.as_deref() {
            no_additional = checks.no_additional;
            let count = object.len() as u64;
            if let Some(min) = checks.min_properties.filter(|min| count < *min) {
                let problem = format!("should have at least {min} properties");
                outcome.add(self.invalid(name, count_value(object.len()), &problem));
            }
            if let Some(max) = checks.max_properties.filter(|max| count > *max) {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                outcome.add(FieldError::too_many(self.at(name), object.len(), max));
            }
        }
        // Below the root, upstream names free-form members and missing ones with a leading dot.
        let dotted_root = FieldPath::root("");
        let dotted = if self.depth == 0 { &dotted_root } else { name };
        self.depth += 1;
        if no_additional || own.additional.is_some() {
            for (key, value) in object.iter().filter(|(key, _)| node.property(key).is_none()) {
                if no_additional {
                    let detail = format!("{} in body is a forbidden property", bounded(name.member(key)));
                    outcome.add(FieldError::invalid(self.at(name), clipped(key).as_ref(), detail));
                } else if let Some(id) = own.additional {
                    let one = self.check(node.at(id), value, before(key), &dotted.member(key));
                    outcome.merge(one);
                }
                if self.exhausted || outcome.is_full() {
                    break;
                }
            }
        }
        if !own.properties.is_empty() {
            for (key, value) in object.iter() {
                if outcome.is_full() {
                    break;
                }
                if let Some(member) = node.property(key) {
                    let one = self.check(member, value, before(key), &name.member(key));
                    outcome.merge(one);
                }
            }
        }
        self.depth -= 1;
        for required in own.required.iter().filter(|required| !object.contains_key(required)) {
            if outcome.is_full() {
                break;
            }
            outcome.add(FieldError::required(self.at(&dotted.member(required)), ""));
        }
    }
}

fn count_value(count: usize) -> Value {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}

/// The schema's type as messages name it; `None` when anything goes.
fn type_text(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Any | Kind::Quantity => None,
        Kind::Object => Some("object"),
        Kind::Array => Some("array"),
        Kind::String | Kind::Time | Kind::MicroTime | Kind::Bytes => Some("string"),
        Kind::Integer => Some("integer"),
        Kind::Number => Some("number"),
        Kind::Boolean => Some("boolean"),
        Kind::IntOrString => Some("integer,string"),
    }
}

/// What was expected and what was found, when the type does not fit.
fn wrong_type<'a>(kind: Kind, format: Option<&'a str>, value: &Value) -> Option<(&'a str, &'static str)> {
    let fits = match value {
        Value::Null => true,
        Value::Bool(_) => kind == Kind::Boolean,
        Value::Int(_) => matches!(kind, Kind::Integer | Kind::Number | Kind::IntOrString),
        Value::Float(number) => {
            kind == Kind::Number
                || (matches!(kind, Kind::Integer | Kind::IntOrString) && is_json_integer(*number))
        }
        Value::String(_) => {
            matches!(kind, Kind::String | Kind::IntOrString | Kind::Time | Kind::MicroTime | Kind::Bytes)
        }
        Value::Array(_) => kind == Kind::Array,
        Value::Object(_) => kind == Kind::Object,
    };
    match (format, value) {
        _ if fits => None,
        (Some(format), Value::Int(_)) => Some((format, "int64")),
        (Some(format), Value::Float(_)) => Some((format, "float64")),
        (Some(format), Value::Bool(_) | Value::Object(_)) => Some((format, "")),
        (Some(_), Value::String(_)) if !matches!(kind, Kind::Integer | Kind::Number) => None,
        _ => Some((type_text(kind)?, value.type_name())),
    }
}

/// Whether a float is a whole number that JSON readers agree on, give or take a rounding error.
fn is_json_integer(number: f64) -> bool {
    const EXACT_MAX: f64 = 9_007_199_254_740_991.0;
    let difference = (number - number.trunc()).abs();
    number.abs() <= EXACT_MAX
        && (difference == 0.0 || (number > 1.0 && difference / (number + number.trunc()) < 1e-9))
}

#[expect(clippy::cast_possible_truncation, reason = "Go cuts the bound the same way; a cast saturates")]
fn truncated(bound: f64) -> i64 {
    bound as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    #[track_caller]
    fn check(property: &str, input: &str, expected: &[&str]) {
        let schema = compiled(&format!(
            r#"{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"x":{property}}}}}}}}}"#
        ));
        let value = Value::parse(format!(r#"{{"spec":{{"x":{input}}}}}"#).as_bytes()).unwrap();
        let mut errors = Vec::new();
        validate(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    /// Values of `spec` before and after an update, and what is held against it.
    #[track_caller]
    fn check_update(old: &str, new: &str, expected: &[&str]) {
        let schema = compiled(
            r#"{"type":"object","required":["root"],"properties":{"root":{"type":"string"},"spec":{"type":"object","properties":{
                "a":{"type":"string","maxLength":1},"b":{"type":"string","maxLength":1},
                "list":{"type":"array","items":{"type":"string","maxLength":1}},
                "map":{"type":"object","additionalProperties":{"type":"string","maxLength":1}},
                "any":{"type":"object","properties":{"x":{"type":"string"},"y":{"type":"string"}},
                    "anyOf":[{"properties":{"x":{"maxLength":1}}},{"required":["z"]}]},
                "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
                "keyed":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":
                    {"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"string","maxLength":1}}}}
            }}}}"#,
        );
        let object =
            |spec: &str| Value::parse(format!(r#"{{"root":"r","spec":{spec}}}"#).as_bytes()).unwrap();
        let mut errors = Vec::new();
        validate_update(schema.node(), &object(new), &object(old), &mut errors);
        assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{new}");
    }

    #[test]
    fn what_an_update_leaves_alone_is_excused() {
        const LONG: &str = ": Too long: may not be more than 1 byte";
        let long = |paths: &[&str]| -> Vec<String> {
            paths.iter().map(|path| format!("spec.{path}{LONG}")).collect()
        };
        let rows: [(&str, &str, &[&str]); 13] = [
            (r#"{"a":"aa"}"#, r#"{"a":"aa","b":"b"}"#, &[]),
            (r#"{"a":"aa"}"#, r#"{"a":"aa","b":"bb"}"#, &["b"]),
            (r#"{"a":"aa"}"#, r#"{"a":"aaa"}"#, &["a"]),
            (r#"{"list":["aa"]}"#, r#"{"list":["aa"],"b":"b"}"#, &[]),
            // Elements that nothing identifies are not what they were before once the list has changed.
            (r#"{"list":["aa"]}"#, r#"{"list":["aa","b"]}"#, &["list[0]"]),
            (r#"{"map":{"k":"vv"}}"#, r#"{"map":{"k":"vv","l":"w"}}"#, &[]),
            (r#"{"map":{"k":"vv"}}"#, r#"{"map":{"l":"vv"}}"#, &["map.l"]),
            (r#"{"keyed":[{"k":"1","v":"vv"}]}"#, r#"{"keyed":[{"k":"2"},{"k":"1","v":"vv"}]}"#, &[]),
            (r#"{"keyed":[{"k":"1","v":"vv"}]}"#, r#"{"keyed":[{"k":"2","v":"vv"}]}"#, &["keyed[0].v"]),
            (r#"{"set":["a","a"]}"#, r#"{"set":["a","a","a"]}"#, &[]),
            // An alternative fits if all that speaks against it was there before.
            (r#"{"any":{"x":"xx"}}"#, r#"{"any":{"x":"xx","y":"y"}}"#, &[]),
            (r#"{"a":1}"#, r#"{"a":1,"b":"b"}"#, &[]),
            (r#"{}"#, r#"{"a":"aa"}"#, &["a"]),
        ];
        for (old, new, paths) in rows {
            let expected = long(paths);
            check_update(old, new, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        }
        check_update(r#"{"set":["a"]}"#, r#"{"set":["a","a"]}"#, &[r#"spec.set[1]: Duplicate value: "a""#]);
        check_update(
            r#"{"any":{"x":"xx"}}"#,
            r#"{"any":{"x":"xxx"}}"#,
            &[
                r#"<nil>: Invalid value: "": "spec.any" must validate at least one schema (anyOf)"#,
                "spec.any.x: Too long: may not be more than 1 byte",
            ],
        );
    }

    #[test]
    fn a_status_is_checked_alone() {
        let schema = compiled(
            r#"{"type":"object","required":["root"],"properties":{"spec":{"type":"string"},"status":{"type":"object",
                "properties":{"phase":{"type":"string"},"old":{"type":"string"}}}}}"#,
        );
        let check = |status: &str, expected: &[&str]| {
            let object =
                |status: &str| Value::parse(format!(r#"{{"spec":1,"status":{status}}}"#).as_bytes()).unwrap();
            let mut errors = Vec::new();
            validate_status(schema.node(), &object(status), &object(r#"{"old":1}"#), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{status}");
        };
        check(r#"{"old":1,"phase":"x"}"#, &[]);
        check(
            r#"{"phase":1}"#,
            &[r#"status.phase: Invalid value: "integer": phase in body must be of type string: "integer""#],
        );
        check("1", &[r#"status: Invalid value: "integer":  in body must be of type object: "integer""#]);
    }

    #[test]
    fn types() {
        let integer = r#"{"type":"integer"}"#;
        check(integer, "1", &[]);
        check(integer, "1.0", &[]);
        check(
            integer,
            r#""a""#,
            &[r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#],
        );
        check(
            integer,
            "1.5",
            &[r#"spec.x: Invalid value: "number": spec.x in body must be of type integer: "number""#],
        );
        check(
            integer,
            "null",
            &[r#"spec.x: Invalid value: "null": spec.x in body must be of type integer: "null""#],
        );
        check(r#"{"type":"integer","nullable":true}"#, "null", &[]);
        check(r#"{"type":"number"}"#, "1", &[]);
        check(
            r#"{"type":"object"}"#,
            "[]",
            &[r#"spec.x: Invalid value: "array": spec.x in body must be of type object: "array""#],
        );
        check(r#"{"x-kubernetes-int-or-string":true}"#, r#""1""#, &[]);
        check(
            r#"{"x-kubernetes-int-or-string":true}"#,
            "true",
            &[
                r#"spec.x: Invalid value: "boolean": spec.x in body must be of type integer,string: "boolean""#,
            ],
        );
        check(r#"{"x-kubernetes-preserve-unknown-fields":true}"#, "[1]", &[]);
    }

    #[test]
    fn formats() {
        let date = r#"{"type":"string","format":"date"}"#;
        check(date, r#""2024-01-01""#, &[]);
        check(date, r#""x""#, &[r#"spec.x: Invalid value: "x": spec.x in body must be of type date: "x""#]);
        check(
            date,
            "1",
            &[r#"spec.x: Invalid value: "int64": spec.x in body must be of type date: "int64""#],
        );
        check(r#"{"type":"integer","format":"int32"}"#, "3000000000", &[]);
        check(r#"{"type":"string","format":"made-up"}"#, r#""x""#, &[]);
    }

    #[test]
    fn strings() {
        check(
            r#"{"type":"string","maxLength":2}"#,
            r#""äöü""#,
            &["spec.x: Too long: may not be more than 2 bytes"],
        );
        check(
            r#"{"type":"string","minLength":3}"#,
            r#""ab""#,
            &[r#"spec.x: Invalid value: "ab": spec.x in body should be at least 3 chars long"#],
        );
        check(
            r#"{"type":"string","pattern":"^a+$"}"#,
            r#""b""#,
            &[r#"spec.x: Invalid value: "b": spec.x in body should match '^a+$'"#],
        );
        check(
            r#"{"type":"string","enum":["A","B"]}"#,
            r#""C""#,
            &[r#"spec.x: Unsupported value: "C": supported values: "A", "B""#],
        );
    }

    #[test]
    fn numbers() {
        let bounded =
            r#"{"type":"number","minimum":1,"maximum":10,"exclusiveMaximum":true,"multipleOf":0.5}"#;
        check(bounded, "1.5", &[]);
        check(
            bounded,
            "0.5",
            &["spec.x: Invalid value: 0.5: spec.x in body should be greater than or equal to 1"],
        );
        check(bounded, "10.5", &["spec.x: Invalid value: 10.5: spec.x in body should be less than 10"]);
        check(bounded, "1.3", &["spec.x: Invalid value: 1.3: spec.x in body should be a multiple of 0.5"]);
        check(
            bounded,
            "2",
            &["spec.x: Invalid value: 0: factor MultipleOf declared for spec.x must be positive: 0"],
        );
        check(r#"{"type":"integer","enum":[1,2]}"#, "2.0", &[]);
        check(
            r#"{"type":"integer","enum":[1,2]}"#,
            "3",
            &[r#"spec.x: Unsupported value: 3: supported values: "1", "2""#],
        );
    }

    #[test]
    fn lists_and_maps() {
        let list = r#"{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string"}}"#;
        check(list, "[]", &["spec.x: Invalid value: 0: spec.x in body should have at least 1 items"]);
        check(list, r#"["a","b","c"]"#, &["spec.x: Too many: 3: must have at most 2 items"]);
        check(
            list,
            "[1]",
            &[r#"spec.x[0]: Invalid value: "integer": spec.x[0] in body must be of type string: "integer""#],
        );
        let map = r#"{"type":"object","minProperties":1,"maxProperties":1,"additionalProperties":{"type":"boolean"}}"#;
        check(map, "{}", &["spec.x: Invalid value: 0: spec.x in body should have at least 1 properties"]);
        check(map, r#"{"a":true,"b":true}"#, &["spec.x: Too many: 2: must have at most 1 item"]);
        check(
            map,
            r#"{"a":1}"#,
            &[r#"spec.x.a: Invalid value: "integer": spec.x.a in body must be of type boolean: "integer""#],
        );
        check(
            r#"{"type":"object","additionalProperties":false}"#,
            r#"{"a":1}"#,
            &[r#"spec.x: Invalid value: "a": spec.x.a in body is a forbidden property"#],
        );
        check(
            r#"{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}}"#,
            "{}",
            &["spec.x.a: Required value"],
        );
    }

    #[test]
    fn combinations() {
        let object = |rest: &str| {
            format!(
                r#"{{"type":"object","properties":{{"a":{{"type":"string"}},"b":{{"type":"string"}}}},{rest}}}"#
            )
        };
        let one_of = object(r#""oneOf":[{"required":["a"]},{"required":["b"]}]"#);
        check(&one_of, r#"{"a":""}"#, &[]);
        check(
            &one_of,
            "{}",
            &[
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid"#,
                "spec.x.a: Required value",
            ],
        );
        check(
            &one_of,
            r#"{"a":"","b":""}"#,
            &[
                r#"<nil>: Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
            ],
        );
        check(
            &object(r#""anyOf":[{"required":["a"]},{"required":["b"]}]"#),
            "{}",
            &[
                r#"<nil>: Invalid value: "": "spec.x" must validate at least one schema (anyOf)"#,
                "spec.x.a: Required value",
            ],
        );
        check(
            &object(r#""allOf":[{"required":["a"]},{"required":["b"]}]"#),
            r#"{"b":""}"#,
            &[
                "spec.x.a: Required value",
                r#"<nil>: Invalid value: "": "spec.x" must validate all the schemas (allOf)"#,
            ],
        );
        check(
            &object(r#""not":{"required":["a"]}"#),
            r#"{"a":""}"#,
            &[r#"<nil>: Invalid value: "": "spec.x" must not validate the schema (not)"#],
        );
    }

    #[test]
    fn errors_and_time_are_bounded() {
        let alternatives = vec![r#"{"minimum":5}"#; 2000].join(",");
        let schema = compiled(&format!(
            r#"{{"type":"object","properties":{{"l":{{"type":"array","items":{{"type":"integer","anyOf":[{alternatives}]}}}}}}}}"#
        ));
        let list = vec!["1"; 50_000].join(",");
        let value = Value::parse(format!(r#"{{"l":[{list}]}}"#).as_bytes()).unwrap();
        let mut validator = Validator::new(&FieldPath::ROOT);
        validator.steps_left = 10_000;
        let mut errors = Vec::new();
        validator.validate(schema.node(), &value, &mut errors);
        assert!(errors.last().unwrap().to_string().contains("takes too long"));
        let mut errors = Vec::new();
        let schema =
            compiled(r#"{"type":"object","properties":{"l":{"type":"array","items":{"type":"string"}}}}"#);
        validate(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        assert_eq!(errors.len(), ERRORS_MAX + 1);
        let last = errors.last().unwrap().to_string();
        assert!(last.contains("too many errors; only the first 100 are listed"), "{last}");
    }

    #[test]
    fn long_keys_do_not_make_long_answers() {
        let schema = compiled(
            r#"{"type":"object","properties":{"m":{"type":"object","additionalProperties":{"type":"object",
                "additionalProperties":{"type":"array","items":{"type":"string"}}}}}}"#,
        );
        let key = "k".repeat(1 << 18);
        let map = |value: Value| Value::Object([(key.as_str().into(), value)].into_iter().collect());
        let list = Value::Array(vec![Value::Int(1); 1000]);
        let value = Value::Object([("m".into(), map(map(list)))].into_iter().collect());
        let mut errors = Vec::new();
        validate(schema.node(), &value, &FieldPath::ROOT, &mut errors);
        assert!(!errors.is_empty());
        assert!(errors.iter().map(|error| error.to_string().len()).sum::<usize>() < 500_000);
    }

    #[test]
    fn shown_values_are_bounded() {
        assert_eq!(shown(&Value::from("x".repeat(5000))).as_str().unwrap().len(), SHOWN_BYTES_MAX + 3);
        assert_eq!(shown(&Value::Array(vec![Value::Null; 2000])), Value::from("(too large to show)"));
        let texts = Value::Array(vec![Value::from("x".repeat(1000)); 10]);
        let keys = Value::Object([("x".repeat(5000).into(), Value::Null)].into_iter().collect());
        for large in [texts, keys] {
            assert_eq!(shown(&large), Value::from("(too large to show)"));
        }
    }
}
