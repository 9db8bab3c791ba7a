//! Label selectors: `app=web,tier in (a,b),!legacy`, or the JSON `LabelSelector` of workloads and policies.

use std::fmt;

use smol_str::SmolStr;

use super::{SelectorError, checked_len};
use crate::field::{self, FieldError};
use crate::names::{label_value_problems, qualified_name_problems};
use crate::{FieldPath, Value};

/// All requirements must hold; none means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    /// Sorted by key.
    requirements: Vec<LabelRequirement>,
    /// Matches no object at all.
    nothing: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    key: SmolStr,
    operator: LabelOperator,
    /// Sorted, none twice.
    values: Vec<SmolStr>,
    /// What `Gt` and `Lt` compare with.
    bound: i64,
}

/// `Equals` and `DoubleEquals` mean the same and print as they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    Equals,
    DoubleEquals,
    NotEquals,
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt,
    Lt,
}

impl LabelSelector {
    pub fn everything() -> LabelSelector {
        LabelSelector::default()
    }

    pub fn nothing() -> LabelSelector {
        LabelSelector { requirements: Vec::new(), nothing: true }
    }

    /// Parses the form of query parameters.
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        checked_len(text)?;
        let requirements =
            Parser { tokens: tokens(text), position: 0 }.requirements().map_err(SelectorError)?;
        Ok(LabelSelector::of(requirements))
    }

    /// Reads a JSON `LabelSelector`. `null` selects nothing, an empty one everything.
    pub fn from_value(value: &Value) -> Result<LabelSelector, SelectorError> {
        if value.is_null() {
            return Ok(LabelSelector::nothing());
        }
        let mut requirements = Vec::new();
        if let Some(labels) = value.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels.iter() {
                let values = vec![SmolStr::new(value.as_str().unwrap_or_default())];
                requirements
                    .push(LabelRequirement::new(key, LabelOperator::Equals, values).map_err(SelectorError)?);
            }
        }
        for expression in value.array_at(&["matchExpressions"]) {
            let operator = match expression.str_at(&["operator"]).unwrap_or_default() {
                "In" => LabelOperator::In,
                "NotIn" => LabelOperator::NotIn,
                "Exists" => LabelOperator::Exists,
                "DoesNotExist" => LabelOperator::DoesNotExist,
                other => {
                    return Err(SelectorError(format!("{other:?} is not a valid label selector operator")));
                }
            };
            let key = expression.str_at(&["key"]).unwrap_or_default();
            let values = expression.array_at(&["values"]).iter();
            let values = values.map(|value| SmolStr::new(value.as_str().unwrap_or_default())).collect();
            requirements.push(LabelRequirement::new(key, operator, values).map_err(SelectorError)?);
        }
        Ok(LabelSelector::of(requirements))
    }

    fn of(mut requirements: Vec<LabelRequirement>) -> LabelSelector {
        requirements.sort_by(|left, right| left.key.cmp(&right.key));
        LabelSelector { requirements, nothing: false }
    }

    pub fn is_everything(&self) -> bool {
        !self.nothing && self.requirements.is_empty()
    }

    pub fn is_nothing(&self) -> bool {
        self.nothing
    }

    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Looks the labels up one by one, so that nobody has to build a map.
    pub fn matches<'v>(&self, lookup: impl Fn(&str) -> Option<&'v str>) -> bool {
        !self.nothing && self.requirements.iter().all(|one| one.holds(lookup(&one.key)))
    }
}

/// All that is wrong with a key, as one text.
fn key_problem(key: &str) -> Option<String> {
    let problems = qualified_name_problems(key);
    (!problems.is_empty()).then(|| problems.join("; "))
}

impl LabelRequirement {
    /// Checks what upstream checks, with its texts.
    fn new(key: &str, operator: LabelOperator, values: Vec<SmolStr>) -> Result<LabelRequirement, String> {
        let mut errors = Vec::new();
        if let Some(problem) = key_problem(key) {
            errors.push(FieldError::invalid("key", key, problem));
        }
        let shown = || match values.as_slice() {
            [] => Value::Null,
            many => Value::Array(many.iter().map(Value::from).collect()),
        };
        let mut bound = 0;
        let path = FieldPath::root("values");
        match operator {
            LabelOperator::In | LabelOperator::NotIn if values.is_empty() => errors.push(
                FieldError::invalid(path, shown(), "for 'in', 'notin' operators, values set can't be empty"),
            ),
            LabelOperator::Exists | LabelOperator::DoesNotExist if !values.is_empty() => {
                errors.push(FieldError::invalid(
                    path,
                    shown(),
                    "values set must be empty for exists and does not exist",
                ));
            }
            LabelOperator::Gt | LabelOperator::Lt => {
                match values.first().and_then(|value| value.parse().ok()) {
                    Some(number) => bound = number,
                    None => errors.push(FieldError::invalid(
                        path.index(0),
                        values.first().cloned().unwrap_or_default(),
                        "for 'Gt', 'Lt' operators, the value must be an integer",
                    )),
                }
            }
            _ => {}
        }
        for (index, value) in values.iter().enumerate() {
            let problems: Vec<&str> = label_value_problems(value).collect();
            if !problems.is_empty() {
                let problem = problems.join("; ");
                errors.push(FieldError::invalid(path.index(index).key(key), value, problem));
            }
        }
        if !errors.is_empty() {
            errors.truncate(ERRORS_MAX);
            return Err(field::join(&errors));
        }
        let mut values = values;
        values.sort_unstable();
        values.dedup();
        Ok(LabelRequirement { key: key.into(), operator, values, bound })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn operator(&self) -> LabelOperator {
        self.operator
    }

    /// Sorted, none twice.
    pub fn values(&self) -> &[SmolStr] {
        &self.values
    }

    fn holds(&self, found: Option<&str>) -> bool {
        let listed = |found: &str| self.values.binary_search_by(|value| value.as_str().cmp(found)).is_ok();
        let number = |found: &str| found.parse::<i64>().ok();
        match self.operator {
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => {
                found.is_some_and(listed)
            }
            LabelOperator::NotEquals | LabelOperator::NotIn => !found.is_some_and(listed),
            LabelOperator::Exists => found.is_some(),
            LabelOperator::DoesNotExist => found.is_none(),
            LabelOperator::Gt => found.and_then(number).is_some_and(|found| found > self.bound),
            LabelOperator::Lt => found.and_then(number).is_some_and(|found| found < self.bound),
        }
    }
}

/// More bad values than this are not named.
const ERRORS_MAX: usize = 32;

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.requirements.iter().enumerate() {
            write!(f, "{}{requirement}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        let values = self.values.join(",");
        match self.operator {
            LabelOperator::Exists => write!(f, "{key}"),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::Gt => write!(f, "{key}>{values}"),
            LabelOperator::Lt => write!(f, "{key}<{values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, `in` or `notin`: the place decides.
    Word(&'a str),
    Symbol(&'a str),
    End,
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Token::Word(text) | Token::Symbol(text) => text,
            Token::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_space = |character: char| matches!(character, ' ' | '\t' | '\r' | '\n');
    let is_symbol = |character: char| matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '=' | '!' if rest[1..].starts_with('=') => 2,
            first if is_symbol(first) => 1,
            _ => rest.find(|character| is_space(character) || is_symbol(character)).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(len);
        tokens.push(if is_symbol(first) { Token::Symbol(token) } else { Token::Word(token) });
        rest = after.trim_start_matches(is_space);
    }
    tokens
}

/// Reads requirements from left to right; errors are upstream's texts.
struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirements(mut self) -> Result<Vec<LabelRequirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                Token::End => return Ok(requirements),
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
                }
            }
            let requirement = self.requirement();
            requirements.push(requirement.map_err(|why| format!("unable to parse requirement: {why}"))?);
            match self.next() {
                Token::End => return Ok(requirements),
                Token::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
            if !matches!(self.peek(), Token::Word(_) | Token::Symbol("!")) {
                return Err(format!("found '{}', expected: identifier after ','", self.peek().text()));
            }
        }
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let mut token = self.next();
        let negated = token == Token::Symbol("!");
        if negated {
            token = self.next();
        }
        let Token::Word(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.text()));
        };
        if let Some(problem) = key_problem(key) {
            return Err(FieldError::invalid("<nil>", key, problem).to_string());
        }
        if negated {
            return LabelRequirement::new(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return LabelRequirement::new(key, LabelOperator::Exists, Vec::new());
        }
        let operator = match self.next() {
            Token::Word("in") => LabelOperator::In,
            Token::Word("notin") => LabelOperator::NotIn,
            Token::Symbol("=") => LabelOperator::Equals,
            Token::Symbol("==") => LabelOperator::DoubleEquals,
            Token::Symbol("!=") => LabelOperator::NotEquals,
            Token::Symbol(">") => LabelOperator::Gt,
            Token::Symbol("<") => LabelOperator::Lt,
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.value_set()?,
            _ => vec![self.value()?],
        };
        LabelRequirement::new(key, operator, values)
    }

    fn value(&mut self) -> Result<SmolStr, String> {
        if matches!(self.peek(), Token::End | Token::Symbol(",")) {
            return Ok(SmolStr::default());
        }
        match self.next() {
            Token::Word(value) => Ok(value.into()),
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    /// `(a,b)`; what is missing before, between or after commas is the empty value. Sorted, none twice.
    fn value_set(&mut self) -> Result<Vec<SmolStr>, String> {
        let open = self.next();
        if open != Token::Symbol("(") {
            return Err(format!("found '{}' expected: '('", open.text()));
        }
        if !matches!(self.peek(), Token::Word(_) | Token::Symbol("," | ")")) {
            return Err(format!("found '{}', expected: ',', ')' or identifier", self.peek().text()));
        }
        let mut values = Vec::new();
        loop {
            match self.peek() {
                Token::Word(value) => {
                    self.next();
                    values.push(SmolStr::new(value));
                }
                Token::Symbol("," | ")") => values.push(SmolStr::default()),
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text())),
            }
            match self.next() {
                Token::Symbol(")") => break,
                Token::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
        values.sort_unstable();
        values.dedup();
        Ok(values)
    }
}

#[cfg(test)]
#[path = "label_tests.rs"]
mod tests;
