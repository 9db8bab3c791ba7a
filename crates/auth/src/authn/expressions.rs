//! What an authentication configuration says in expressions: about the claims of a token, and about the user made of them.
//!
//! Expressions see values as upstream shows them: numbers of a token are floats there, whatever they look like.

use std::sync::{Arc, LazyLock};

use polder_cel::{
    Bindings, Budget, CompileError, Environment, Fault, Field, ListKind, Program, Shape, Type, Value as Cel,
    escape,
};
use polder_model::{SmolStr, Value, json};

use crate::UserInfo;

/// Longer ones are refused.
const EXPRESSION_LEN_MAX: usize = 16 * 1024;

static CLAIMS: LazyLock<Environment> =
    LazyLock::new(|| Environment::new().variable_of("claims", Type::map(Type::String, Type::Dyn)));

static USER_SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let text = Arc::new(Shape::string(None));
    let texts = Arc::new(Shape::list(text.clone(), ListKind::Atomic, None));
    let extra = Arc::new(Shape::map(texts.clone(), None));
    let fields = [("username", text.clone()), ("uid", text), ("groups", texts), ("extra", extra)];
    let fields = fields.into_iter().filter_map(|(name, shape)| Field::new(name, shape)).collect();
    Arc::new(Shape::object("kubernetes.UserInfo", fields, 0))
});

static USER: LazyLock<Environment> = LazyLock::new(|| Environment::new().document("user", &USER_SHAPE));

/// A compiled expression and its text.
#[derive(Debug)]
pub(crate) struct Expression {
    pub(crate) source: Box<str>,
    program: Program,
    /// It names members in the way of identifiers: `kubernetes__dot__io`.
    is_escaped: bool,
}

/// Why an expression is none, in upstream's words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExpressionProblem {
    Invalid(String),
    Internal(String),
}

/// What an expression about claims or a user must come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Anything,
    Bool,
}

impl Expression {
    /// About `claims`.
    pub(crate) fn of_claims(source: &str, wanted: Wanted) -> Result<Expression, ExpressionProblem> {
        compile(&CLAIMS, source, wanted)
    }

    /// About `user`.
    pub(crate) fn of_user(source: &str) -> Result<Expression, ExpressionProblem> {
        compile(&USER, source, Wanted::Bool)
    }

    pub(crate) fn reads_claim(&self, name: &str) -> bool {
        CLAIMS.selects(&self.source, "claims", name)
    }

    /// A text; `Err` says what came out instead.
    pub(crate) fn text(&self, claims: &ClaimsDocument) -> Result<SmolStr, String> {
        self.with(claims, |value| match value {
            Cel::String(text) => Ok(SmolStr::new(&*text)),
            _ => Err("must return a string".to_owned()),
        })
    }

    /// Texts: one, several, or none.
    pub(crate) fn texts(&self, claims: &ClaimsDocument) -> Result<Vec<SmolStr>, String> {
        let wrong = || "expression must return a string or a list of strings".to_owned();
        self.with(claims, |value| match value {
            Cel::Null => Ok(Vec::new()),
            Cel::String(text) => {
                Ok(Some(SmolStr::new(&*text)).filter(|text| !text.is_empty()).into_iter().collect())
            }
            Cel::List(list) => {
                let texts = list.iter().map(|item| match item {
                    Ok(Cel::String(text)) => Ok(SmolStr::new(&*text)),
                    _ => Err(wrong()),
                });
                let texts: Vec<SmolStr> = texts.collect::<Result<_, _>>()?;
                Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
            }
            _ => Err(wrong()),
        })
    }

    /// Whether a rule about claims holds.
    pub(crate) fn holds(&self, claims: &ClaimsDocument) -> Result<bool, String> {
        self.with(claims, boolean)
    }

    /// Whether a rule about a user holds.
    pub(crate) fn holds_for(&self, user: &UserDocument) -> Result<bool, String> {
        self.holds_of(&user.0, &USER_SHAPE)
    }

    /// Whether a rule holds whose only variable is this document.
    pub(crate) fn holds_of(&self, document: &Value, shape: &Arc<Shape>) -> Result<bool, String> {
        let value = Cel::shaped(document, shape).map_err(|fault| told(&fault))?;
        let bindings = Bindings::new().with(value);
        let outcome = self.program.evaluate(&bindings, Budget::default()).value;
        boolean(outcome.map_err(|fault| told(&fault))?)
    }

    fn with<T>(
        &self,
        claims: &ClaimsDocument,
        read: impl FnOnce(Cel<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let escaped = self.is_escaped.then(|| with_escapes(&claims.0));
        let bindings = Bindings::new().with(Cel::json(escaped.as_ref().unwrap_or(&claims.0)));
        let outcome = self.program.evaluate(&bindings, Budget::default()).value;
        read(outcome.map_err(|fault| told(&fault))?)
    }
}

pub(crate) fn compile(
    environment: &Environment,
    source: &str,
    wanted: Wanted,
) -> Result<Expression, ExpressionProblem> {
    if source.len() > EXPRESSION_LEN_MAX {
        let text = format!("must not exceed {EXPRESSION_LEN_MAX} bytes in length");
        return Err(ExpressionProblem::Invalid(text));
    }
    let program = environment.compile(source).map_err(|error| match error {
        CompileError::Expression(errors) => {
            ExpressionProblem::Invalid(format!("compilation failed: {errors}"))
        }
        CompileError::Instantiation(text) => {
            ExpressionProblem::Internal(format!("program instantiation failed: {text}"))
        }
    })?;
    if wanted == Wanted::Bool && !matches!(program.result(), Type::Bool) {
        return Err(ExpressionProblem::Invalid("must evaluate to bool".into()));
    }
    Ok(Expression { source: source.into(), program, is_escaped: source.contains("__") })
}

fn boolean(value: Cel<'_>) -> Result<bool, String> {
    match value {
        Cel::Bool(flag) => Ok(flag),
        _ => Err("validation expression must return a boolean".into()),
    }
}

fn told(fault: &Fault) -> String {
    match fault {
        Fault::Error(text) => text.to_string(),
        Fault::CostExceeded => "operation cancelled: actual cost limit exceeded".into(),
        Fault::Interrupted => "operation interrupted".into(),
    }
}

/// Claims as expressions see them.
#[derive(Debug)]
pub(crate) struct ClaimsDocument(Value);

impl ClaimsDocument {
    pub(crate) fn new(claims: &Value) -> ClaimsDocument {
        ClaimsDocument(floating(claims))
    }
}

/// A user as expressions see it.
#[derive(Debug)]
pub(crate) struct UserDocument(Value);

impl UserDocument {
    pub(crate) fn new(user: &UserInfo, own_groups: &[SmolStr]) -> UserDocument {
        let texts = |all: &[SmolStr]| Value::Array(all.iter().map(Value::from).collect());
        let mut extra = Value::Object(polder_model::Object::new());
        for (key, values) in &user.extra {
            extra.set_at(&[key], texts(values));
        }
        UserDocument(json!({
            "username": (user.name.clone()), "uid": (user.uid.clone()), "groups": (texts(own_groups)), "extra": extra,
        }))
    }
}

/// Nesting is bounded: the claims were parsed.
fn floating(value: &Value) -> Value {
    match value {
        #[expect(clippy::cast_precision_loss, reason = "as upstream: every number of a token is a float")]
        Value::Int(number) => Value::Float(*number as f64),
        Value::Array(items) => Value::Array(items.iter().map(floating).collect()),
        Value::Object(object) => {
            let mut floats = polder_model::Object::new();
            for (key, value) in object.iter() {
                floats.insert(key.clone(), floating(value));
            }
            Value::Object(floats)
        }
        other => other.clone(),
    }
}

/// The same with every member under its name as an identifier too.
fn with_escapes(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(with_escapes).collect()),
        Value::Object(object) => {
            let mut both = polder_model::Object::new();
            for (key, value) in object.iter() {
                let value = with_escapes(value);
                if let Some(escaped) = escape::escape(key).filter(|escaped| *escaped != key.as_str()) {
                    both.insert(escaped, value.clone());
                }
                both.insert(key.clone(), value);
            }
            Value::Object(both)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Result<Vec<SmolStr>, String> {
        let claims = json!({
            "sub": "ann", "roles": ["a", "", "b"], "level": 3, "realm": {"my.role": "x"}, "none": null, "flag": true,
        });
        let expression = Expression::of_claims(source, Wanted::Anything).unwrap();
        expression.texts(&ClaimsDocument::new(&claims))
    }

    #[test]
    fn results_are_texts() {
        let wrong = Err("expression must return a string or a list of strings".to_owned());
        let rows: [(&str, Result<Vec<SmolStr>, String>); 8] = [
            ("claims.sub", Ok(vec!["ann".into()])),
            ("claims.roles.map(r, 'x:' + r)", Ok(vec!["x:a".into(), "x:".into(), "x:b".into()])),
            ("claims.roles", Ok(vec!["a".into(), "b".into()])),
            ("''", Ok(vec![])),
            ("claims.none", Ok(vec![])),
            ("claims.realm.my__dot__role", Ok(vec!["x".into()])),
            ("claims.flag", wrong.clone()),
            ("[1]", wrong),
        ];
        for (source, expected) in rows {
            assert_eq!(texts(source), expected, "{source}");
        }
        assert!(texts("claims.missing").unwrap_err().contains("no such key"));
        assert_eq!(texts("type(claims.level) == double ? 'float' : 'int'"), Ok(vec!["float".into()]));
    }

    #[test]
    fn rules_are_about_claims_and_users() {
        let refused = |source| Expression::of_claims(source, Wanted::Bool).unwrap_err();
        assert_eq!(refused("claims.sub"), ExpressionProblem::Invalid("must evaluate to bool".into()));
        assert!(
            matches!(refused("user.username == ''"), ExpressionProblem::Invalid(text) if text.contains("undeclared reference to 'user'"))
        );
        let claims = ClaimsDocument::new(&json!({"exp": 100, "iat": 50}));
        let rule = Expression::of_claims("claims.exp - claims.iat <= 86400", Wanted::Bool).unwrap();
        assert_eq!(rule.holds(&claims), Ok(true));
        let user = UserInfo::authenticated("ann", ["dev".into()]);
        let user = UserDocument::new(&user, &["dev".into()]);
        for (source, expected) in [
            ("!user.username.startsWith('system:')", true),
            ("user.groups.all(g, g != 'dev')", false),
            ("user.uid == '' && user.extra.size() == 0", true),
        ] {
            assert_eq!(Expression::of_user(source).unwrap().holds_for(&user), Ok(expected), "{source}");
        }
        assert!(Expression::of_claims("has(claims.email)", Wanted::Bool).unwrap().reads_claim("email"));
        assert!(!Expression::of_claims("claims['email']", Wanted::Anything).unwrap().reads_claim("email"));
    }
}
