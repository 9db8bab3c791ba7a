//! Expressions of policies and match conditions: what they may mention, and why one does not compile.
//!
//! Objects and parameters have no declared type, because one expression is for many kinds; what is wrong about them
//! shows when it runs. `policy::types` looks for that earlier, and only tells.

use std::sync::{Arc, LazyLock};

use polder_cel::re2::Effort;
use polder_cel::{CompileError, Environment, Field, ListKind, Opaque, Program, Shape, Type};
use polder_model::{FieldError, FieldPath, SmolStr};

/// Variables by their number in every environment of this file.
pub(crate) const VARIABLES: u32 = 7;

/// A longer expression is nobody's honest need, and takes long to compile.
const EXPRESSION_LEN_MAX: usize = 64 << 10;

/// What expressions may mention beside `object`, `oldObject`, `namespaceObject` and `request`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// What `object` and `oldObject` look like, where that is known.
    pub(crate) object: Option<Arc<Shape>>,
    pub(crate) params: Option<Params>,
    pub(crate) authorizer: bool,
    /// `Object{...}` and `JSONPatch{...}` may be made.
    pub(crate) makes_objects: bool,
    /// There are named expressions, though perhaps none that may be used here.
    pub(crate) composed: bool,
    /// The named expressions that may be used, and their types.
    pub(crate) variables: Vec<(SmolStr, Type)>,
    /// What is left for the patterns of this and all scopes made of it.
    pub(crate) effort: Effort,
}

#[derive(Clone, Debug)]
pub(crate) enum Params {
    Untyped,
    Of(Arc<Shape>),
}

/// Why there is no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) text: String,
    /// Not the writer's fault.
    pub(crate) internal: bool,
}

impl Problem {
    pub(crate) fn field_error(&self, path: &FieldPath<'_>, expression: &str) -> FieldError {
        match self.internal {
            true => FieldError::internal(path, self.text.clone()),
            false => FieldError::invalid(path, expression, self.text.clone()),
        }
    }
}

impl Scope {
    fn environment(&self) -> Environment {
        const NOT_THERE: &str = "";
        let object = |env: Environment, name: &'static str| match &self.object {
            Some(shape) => env.document(name, shape),
            None => env.variable_of(name, Type::Dyn),
        };
        let base = Environment::new().with_effort(&self.effort);
        let base = if self.makes_objects { base.with_objects() } else { base };
        let env = object(object(base, "object"), "oldObject");
        let env = env.document("namespaceObject", &NAMESPACE).document("request", &REQUEST);
        let env = match &self.params {
            Some(Params::Of(shape)) => env.document("params", shape),
            Some(Params::Untyped) => env.variable_of("params", Type::Dyn),
            None => env.variable_of(NOT_THERE, Type::Dyn),
        };
        let (authorizer, resource) = match self.authorizer {
            true => ("authorizer", "authorizer.requestResource"),
            false => (NOT_THERE, NOT_THERE),
        };
        let env = env
            .variable_of(authorizer, Type::Opaque(Opaque::Authorizer))
            .variable_of(resource, Type::Opaque(Opaque::ResourceCheck));
        if self.variables.is_empty() && !self.composed {
            return env;
        }
        let typed = |(name, found): &(SmolStr, Type)| {
            Field::new(name.clone(), Arc::new(Shape::typed(shown_type(found))))
        };
        // The last one of a name counts.
        let fields: Vec<Field> = self.variables.iter().rev().filter_map(typed).collect();
        env.document("variables", &Arc::new(Shape::object("kubernetes.variables", fields, 0)))
    }

    /// Checks what an expression means, whatever comes out.
    pub(crate) fn compile_any(&self, source: &str) -> Result<Program, Problem> {
        if source.len() > EXPRESSION_LEN_MAX {
            let text = format!("must not exceed {EXPRESSION_LEN_MAX} bytes in length");
            return Err(Problem { text, internal: false });
        }
        self.environment().compile(source).map_err(|error| match error {
            CompileError::Expression(errors) => {
                Problem { text: format!("compilation failed: {errors}"), internal: false }
            }
            CompileError::Instantiation(text) => {
                Problem { text: format!("program instantiation failed: {text}"), internal: true }
            }
        })
    }

    /// A program whose result has one of these types, exactly.
    pub(crate) fn compile(&self, source: &str, wanted: &[Type]) -> Result<Program, Problem> {
        let program = self.compile_any(source)?;
        let found = type_name(program.result());
        let names: Vec<String> = wanted.iter().map(type_name).collect();
        if names.contains(&found) {
            return Ok(program);
        }
        let text = match names.as_slice() {
            [one] => format!("must evaluate to {one} but got {found}"),
            several => format!("must evaluate to one of [{}] but got {found}", several.join(" ")),
        };
        Err(Problem { text, internal: false })
    }
}

/// The type under which other expressions see a variable: of objects and such they know nothing.
fn shown_type(found: &Type) -> Type {
    match found {
        Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => found.clone(),
        Type::List(item) => Type::list(shown_type(item)),
        Type::Map(pair) => Type::map(shown_type(&pair.0), shown_type(&pair.1)),
        _ => Type::Dyn,
    }
}

/// As cel-go prints a type by itself.
fn type_name(found: &Type) -> String {
    match found {
        Type::Null => "null_type".into(),
        Type::Timestamp => "google.protobuf.Timestamp".into(),
        Type::Duration => "google.protobuf.Duration".into(),
        Type::List(item) => format!("list({})", type_name(item)),
        Type::Map(pair) => format!("map({}, {})", type_name(&pair.0), type_name(&pair.1)),
        Type::Optional(inner) => format!("optional_type({})", type_name(inner)),
        other => other.to_string(),
    }
}

fn text() -> Arc<Shape> {
    Arc::new(Shape::string(None))
}

fn texts() -> Arc<Shape> {
    Arc::new(Shape::list(text(), ListKind::Atomic, None))
}

fn map(values: Arc<Shape>) -> Arc<Shape> {
    Arc::new(Shape::map(values, None))
}

fn object(name: &'static str, fields: &[(&'static str, Arc<Shape>)]) -> Arc<Shape> {
    let fields = fields.iter().filter_map(|(name, shape)| Field::new(*name, shape.clone()));
    Arc::new(Shape::object(name, fields.collect(), 0))
}

/// The variable `request`.
pub(crate) static REQUEST: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let kind =
        object("kubernetes.GroupVersionKind", &[("group", text()), ("version", text()), ("kind", text())]);
    let resource = object(
        "kubernetes.GroupVersionResource",
        &[("group", text()), ("version", text()), ("resource", text())],
    );
    let user = object(
        "kubernetes.UserInfo",
        &[("username", text()), ("uid", text()), ("groups", texts()), ("extra", map(texts()))],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Arc::new(Shape::boolean())),
            ("options", Arc::new(Shape::dynamic())),
        ],
    )
});

/// The variable `namespaceObject`; upstream shows these fields only, and knows no `uid`.
pub(crate) static NAMESPACE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let time = || Arc::new(Shape::timestamp());
    let number = || Arc::new(Shape::int());
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let conditions = Arc::new(Shape::list(condition, ListKind::Atomic, None));
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", map(text())),
            ("annotations", map(text())),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", number()),
            ("deletionTimestamp", time()),
            ("generation", number()),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    object(
        "kubernetes.Namespace",
        &[
            ("metadata", metadata),
            ("spec", object("kubernetes.NamespaceSpec", &[("finalizers", texts())])),
            (
                "status",
                object("kubernetes.NamespaceStatus", &[("conditions", conditions), ("phase", text())]),
            ),
        ],
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scope: &Scope, source: &str, expected: Result<(), &str>) {
        let found = scope.compile(source, &[Type::Bool]).map(drop);
        match (found, expected) {
            (Ok(()), Ok(())) => {}
            (Err(problem), Err(expected)) if problem.text.starts_with(expected) => {}
            (found, _) => panic!("{source}: {found:?}"),
        }
    }

    #[test]
    fn expressions_see_what_they_may() {
        let plain = Scope { authorizer: true, ..Scope::default() };
        check(&plain, "object.spec.replicas > 1 && oldObject == null", Ok(()));
        check(&plain, "request.userInfo.groups.exists(g, g == 'a') && request.dryRun", Ok(()));
        check(&plain, "namespaceObject.metadata.labels['a'] == 'b'", Ok(()));
        check(&plain, "authorizer.requestResource.check('x').allowed()", Ok(()));
        check(&plain, "object.spec.flag", Err("must evaluate to bool but got dyn"));
        check(
            &plain,
            "request.whatever == ''",
            Err("compilation failed: ERROR: <input>:1:8: undefined field 'whatever'"),
        );
        check(
            &plain,
            "params.x == 1",
            Err("compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"),
        );
        let rich = Scope {
            params: Some(Params::Untyped),
            variables: vec![("big".into(), Type::Bool), ("odd".into(), Type::String)],
            ..Scope::default()
        };
        check(&rich, "params.x == 1 && variables.big", Ok(()));
        check(
            &rich,
            "variables.odd > 1",
            Err("compilation failed: ERROR: <input>:1:15: found no matching overload"),
        );
        check(
            &rich,
            "variables.none",
            Err("compilation failed: ERROR: <input>:1:10: undefined field 'none'"),
        );
        check(
            &rich,
            "authorizer.path('/x').check('get').allowed()",
            Err("compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer'"),
        );
        let long = format!("'{}' == ''", "x".repeat(EXPRESSION_LEN_MAX));
        check(&plain, &long, Err("must not exceed"));
    }

    #[test]
    fn result_types_are_named_as_upstream_names_them() {
        let scope = Scope::default();
        let problem = scope.compile("1", &[Type::String, Type::Null]).unwrap_err();
        assert_eq!(problem.text, "must evaluate to one of [string null_type] but got int");
    }
}
