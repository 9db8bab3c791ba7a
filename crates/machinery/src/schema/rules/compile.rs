//! Compiling the rules of a schema, and what is wrong with them: errors of the language, and costs beyond the limits.

use polder_cel::re2::Effort;
use polder_cel::{CompileError, Environment, Program, Shape, Type};
use polder_model::field::bounded;
use polder_model::{FieldError, FieldPath, SmolStr, Value};

use std::sync::Arc;

use super::super::simple_path::{self, Brackets};
use super::super::structural::source::{Additional, Source};
use super::super::validate::{ERRORS_MAX, shown};
use super::super::{Kind, ListType, NodeRef, Schema};
use super::shapes::Shapes;
use super::{Place, Reason, Rule, Rules};

/// What one rule may be estimated to cost over all the places of an object where it applies.
const RULE_COST_MAX: u64 = 10_000_000;
/// What all rules of a schema may.
const SCHEMA_COST_MAX: u64 = 100_000_000;
/// What all rules of a schema may take of memory.
const SCHEMA_BYTES_MAX: usize = 32 << 20;
/// How many of the rules that cost most are named.
const EXPENSIVE_MAX: usize = 4;

/// The second variable of a rule: `self` comes first.
const OLD_SELF: u32 = 1;

/// Compiles all rules of a schema that is structural; what is wrong with them is added to the problems.
pub(crate) fn compile(
    schema: &Schema,
    source: Source<'_>,
    path: &FieldPath<'_>,
    effort: &Effort,
    problems: &mut Vec<FieldError>,
) -> Option<Rules> {
    let has_rules =
        |node: &super::super::Node| node.checks.as_ref().is_some_and(|checks| !checks.rules.is_empty());
    if !schema.arena.nodes.iter().any(has_rules) {
        return None;
    }
    let mut compiler = Compiler {
        shapes: Shapes::new(&schema.arena),
        rules: Rules { below: vec![false; schema.arena.nodes.len()], ..Rules::default() },
        problems,
        effort,
        cost: 0,
        expensive: Vec::new(),
        broken: Vec::new(),
    };
    compiler.walk(schema.node(), source, path, Around { cardinality: Some(1), uncorrelatable: None });
    compiler.total(path);
    let mut rules = compiler.rules;
    rules.places.sort_by_key(|place| place.node.0);
    Some(rules)
}

/// What the places above say about a place.
#[derive(Clone, Copy)]
struct Around<'a> {
    /// How often the place can occur in an object; `None` when nothing bounds it.
    cardinality: Option<u64>,
    /// The list above whose elements cannot be told apart over an update.
    uncorrelatable: Option<&'a str>,
}

struct Compiler<'a> {
    shapes: Shapes<'a>,
    rules: Rules,
    problems: &'a mut Vec<FieldError>,
    /// For the patterns of all rules.
    effort: &'a Effort,
    cost: u64,
    expensive: Vec<(u64, String)>,
    /// What is wrong with the rules of the place that is being compiled.
    broken: Vec<String>,
}

impl Compiler<'_> {
    /// Compiles what is at a place and below; whether there was anything.
    fn walk(
        &mut self,
        node: NodeRef<'_>,
        source: Source<'_>,
        path: &FieldPath<'_>,
        around: Around<'_>,
    ) -> bool {
        let own = node.get();
        let mut found = false;
        let checks = own.checks.as_deref();
        let elements_max = match own.kind {
            Kind::Object if source.additional().is_some() => checks.and_then(|checks| checks.max_properties),
            Kind::Array => checks.and_then(|checks| checks.max_items),
            _ => Some(1),
        };
        let cardinality = around.cardinality.zip(elements_max).map(|(outer, own)| outer.saturating_mul(own));
        let below = Around { cardinality, ..around };
        let at_properties = path.member("properties");
        for (name, property) in source.properties() {
            if let Some(member) = node.property(name) {
                found |= self.walk(member, property, &at_properties.key(name), below);
            }
        }
        if let (Some(id), Some(Additional::Schema(values))) = (own.additional, source.additional()) {
            found |= self.walk(node.at(id), values, &path.member("additionalProperties"), below);
        }
        if let (Some(items), Some(item_source)) = (node.items(), source.schema("items")) {
            let here = path.to_string();
            let uncorrelatable = match own.list_type {
                ListType::Map => around.uncorrelatable,
                _ => around.uncorrelatable.or(Some(&here)),
            };
            let below = Around { uncorrelatable, ..below };
            found |= self.walk(items, item_source, &path.member("items"), below);
        }
        if checks.is_some_and(|checks| !checks.rules.is_empty()) {
            found = true;
            self.place(node, source, path, around);
        }
        if let Some(below) = self.rules.below.get_mut(node.id().0 as usize) {
            *below = found;
        }
        found
    }

    fn place(&mut self, node: NodeRef<'_>, source: Source<'_>, path: &FieldPath<'_>, around: Around<'_>) {
        let list = path.member("x-kubernetes-validations");
        let Some(shape) = self.shapes.of(node.id()) else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            self.report(FieldError::internal(list, detail));
            return;
        };
        let base = Environment::new().with_effort(self.effort).document("self", &shape);
        let plain = base.clone().document("oldSelf", &shape);
        let optional = base.optional_document("oldSelf", &shape);
        let mut rules = Vec::new();
        let written = node.get().checks.as_deref().map(|checks| checks.rules.as_slice()).unwrap_or_default();
        for (index, rule) in written.iter().enumerate() {
            let Some(rule) = Source::new(rule) else { continue };
            let env = if rule.flag("optionalOldSelf") { &optional } else { &plain };
            let at = list.index(index);
            if let Some(rule) = self.rule(rule, source, env, &shape, &at, around) {
                rules.push(rule);
            }
        }
        let broken = std::mem::take(&mut self.broken);
        self.rules.places.push(Place { node: node.id(), shape, rules, broken });
    }

    fn rule(
        &mut self,
        rule: Source<'_>,
        source: Source<'_>,
        env: &Environment,
        shape: &Arc<Shape>,
        at: &FieldPath<'_>,
        around: Around<'_>,
    ) -> Option<Rule> {
        let text = rule.text("rule");
        let occurrences = around.cardinality.unwrap_or_else(|| shape.occurrences_max());
        let compiled = program(env, text, &Type::Bool, "cel expression must evaluate to a bool", "");
        let cost =
            compiled.as_ref().map_or(0, |program| program.cost_estimate().max.saturating_mul(occurrences));
        self.observe("estimated rule cost", cost, &at.member("rule"));
        let program = match compiled {
            Ok(program) => program,
            Err(detail) => {
                self.report(with_rule(&at.member("rule"), rule, &detail));
                // Of a rule that does not compile upstream does not know what it uses.
                self.unused_old(rule, at);
                self.broken.push(bounded(detail));
                return None;
            }
        };
        let message_text = rule.text("messageExpression");
        let mut message_program = None;
        if !message_text.is_empty() {
            let at = at.member("messageExpression");
            let wrong_type = "messageExpression must evaluate to a string";
            match self::program(env, message_text, &Type::String, wrong_type, "messageExpression ") {
                Ok(made) => {
                    self.observe("estimated messageExpression cost", made.cost_estimate().max, &at);
                    message_program = Some((made, SmolStr::new(message_text)));
                }
                Err(detail) => self.report(with_rule(&at, rule, &detail)),
            }
        }
        let uses_old = program.uses(OLD_SELF);
        match around.uncorrelatable {
            Some(list) if uses_old => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                self.report(FieldError::invalid(at.member("rule"), shown(&Value::from(text)), detail));
            }
            _ => {}
        }
        if !uses_old {
            self.unused_old(rule, at);
        }
        self.rules.bytes += program.memory_bytes();
        self.rules.bytes += message_program.as_ref().map_or(0, |(program, _)| program.memory_bytes());
        if self.rules.bytes > SCHEMA_BYTES_MAX {
            const TOO_LARGE: &str = "the rules of the schema are too large together";
            self.report(FieldError::forbidden(at, TOO_LARGE));
            self.broken = vec![TOO_LARGE.into()];
            return None;
        }
        let message = SmolStr::new(rule.text("message").trim());
        let name = if message.is_empty() { SmolStr::new(text.trim()) } else { message.clone() };
        let reason = match rule.text("reason") {
            "FieldValueForbidden" => Reason::Forbidden,
            "FieldValueRequired" => Reason::Required,
            "FieldValueDuplicate" => Reason::Duplicate,
            _ => Reason::Invalid,
        };
        Some(Rule {
            program,
            name,
            message,
            message_program,
            reason,
            field_path: field_path(rule.text("fieldPath"), source),
            uses_old,
            optional_old: rule.flag("optionalOldSelf"),
        })
    }

    /// Counts what an expression may cost, and refuses what is too much.
    fn observe(&mut self, what: &str, cost: u64, at: &FieldPath<'_>) {
        if cost > RULE_COST_MAX {
            self.report(FieldError::forbidden(at, too_expensive(what, cost, RULE_COST_MAX)));
        }
        self.cost = self.cost.saturating_add(cost);
        if cost >= SCHEMA_COST_MAX / 100 {
            self.expensive.push((cost, at.to_string()));
            self.expensive.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(EXPENSIVE_MAX);
        }
    }

    fn total(&mut self, path: &FieldPath<'_>) {
        if self.cost <= SCHEMA_COST_MAX {
            return;
        }
        for (_, at) in std::mem::take(&mut self.expensive) {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            self.report(FieldError::forbidden(at, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = too_expensive(what, self.cost, SCHEMA_COST_MAX);
        self.report(FieldError::forbidden(path, detail));
    }

    fn unused_old(&mut self, rule: Source<'_>, at: &FieldPath<'_>) {
        if let Some(flag) = rule.get("optionalOldSelf") {
            let detail = "may not be set if oldSelf is not used in rule";
            self.report(FieldError::invalid(at.member("optionalOldSelf"), flag.clone(), detail));
        }
    }

    fn report(&mut self, problem: FieldError) {
        if self.problems.len() < ERRORS_MAX {
            self.problems.push(problem);
        }
    }
}

fn program(
    env: &Environment,
    text: &str,
    wanted: &Type,
    wrong_type: &str,
    what: &str,
) -> Result<Program, String> {
    let program = env.compile(text).map_err(|error| match error {
        CompileError::Expression(errors) => format!("{what}compilation failed: {errors}"),
        CompileError::Instantiation(_) if !what.is_empty() => format!("{what}instantiation failed: {error}"),
        CompileError::Instantiation(_) => format!("program instantiation failed: {error}"),
    })?;
    let fits = std::mem::discriminant(program.result()) == std::mem::discriminant(wanted);
    if fits { Ok(program) } else { Err(wrong_type.into()) }
}

/// Upstream shows the whole rule, as Go writes its fields.
fn with_rule(at: &FieldPath<'_>, rule: Source<'_>, detail: &str) -> FieldError {
    let json = |value: &Value| {
        // Go escapes what could be markup.
        let text = shown(value).to_string();
        text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    };
    let text = |key: &str| json(&Value::from(rule.text(key)));
    let other = |key: &str| rule.get(key).map_or_else(|| "null".to_owned(), json);
    let shown = format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        other("reason"),
        text("fieldPath"),
        other("optionalOldSelf"),
    );
    let mut error = FieldError::invalid(at, Value::Null, format!("{shown}: {detail}"));
    error.value = None;
    error
}

fn too_expensive(what: &str, cost: u64, max: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown rounded")]
    let factor = cost as f64 / max as f64;
    let factor = match factor {
        _ if factor > 100.0 => "more than 100x".to_owned(),
        _ if factor < 1.5 => format!("{factor:.6}x"),
        _ => format!("{factor:.1}x"),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

/// The path in errors that a `fieldPath` means; the schema says which steps are names and which are keys.
fn field_path(text: &str, source: Source<'_>) -> SmolStr {
    if text.is_empty() {
        return SmolStr::default();
    }
    let Ok(found) = simple_path::find(text, source, Brackets::Allowed) else { return SmolStr::default() };
    let mut out = String::new();
    let mut here = Some(source);
    for step in &found.steps {
        let named = here.is_some_and(|schema| schema.has_properties());
        match named {
            true if out.is_empty() => out.push_str(step),
            true => {
                out.push('.');
                out.push_str(step);
            }
            false => out.push_str(&format!("[{step}]")),
        }
        here = here.and_then(|schema| match named {
            true => schema.property(step),
            false => match schema.additional() {
                Some(Additional::Schema(values)) => Some(values),
                _ => None,
            },
        });
    }
    out.into()
}
