//! Which requests a webhook is asked about: expressions over the `spec` of the question it would get, `request` in them.

use std::sync::{Arc, LazyLock};

use polder_cel::{Environment, Field, ListKind, Shape};
use polder_model::{FieldError, FieldPath, Value};

use crate::authn::expressions::{Expression, ExpressionProblem, Wanted, compile};

/// As many as upstream allows.
const CONDITIONS_LEN_MAX: usize = 64;

static SHAPE: LazyLock<Arc<Shape>> = LazyLock::new(|| {
    let object = |name: &str, fields: &[(&str, &Arc<Shape>)]| {
        let fields = fields.iter().filter_map(|(name, shape)| Field::new(*name, (*shape).clone())).collect();
        Arc::new(Shape::object(name, fields, 0))
    };
    let text = Arc::new(Shape::string(None));
    let texts = Arc::new(Shape::list(text.clone(), ListKind::Atomic, None));
    let requirement = |name: &str| object(name, &[("key", &text), ("operator", &text), ("values", &texts)]);
    let selector = |name: &str, requirement: Arc<Shape>| {
        let requirements = Arc::new(Shape::list(requirement, ListKind::Atomic, None));
        object(name, &[("rawSelector", &text), ("requirements", &requirements)])
    };
    let fields =
        selector("kubernetes.FieldSelectorAttributes", requirement("kubernetes.FieldSelectorRequirement"));
    let labels =
        selector("kubernetes.LabelSelectorAttributes", requirement("kubernetes.LabelSelectorRequirement"));
    let resource = object(
        "kubernetes.ResourceAttributes",
        &[
            ("namespace", &text),
            ("verb", &text),
            ("group", &text),
            ("version", &text),
            ("resource", &text),
            ("subresource", &text),
            ("name", &text),
            ("fieldSelector", &fields),
            ("labelSelector", &labels),
        ],
    );
    let path = object("kubernetes.NonResourceAttributes", &[("path", &text), ("verb", &text)]);
    let extra = Arc::new(Shape::map(texts.clone(), None));
    object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", &resource),
            ("nonResourceAttributes", &path),
            ("user", &text),
            ("groups", &texts),
            ("extra", &extra),
            ("uid", &text),
        ],
    )
});

static REQUEST: LazyLock<Environment> = LazyLock::new(|| Environment::new().document("request", &SHAPE));

/// All must hold; none always do.
#[derive(Debug, Default)]
pub struct Conditions(Vec<Expression>);

impl Conditions {
    pub(super) fn read(all: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Conditions {
        let path = path.member("matchConditions");
        if all.len() > CONDITIONS_LEN_MAX {
            errors.push(FieldError::too_many(path, all.len(), CONDITIONS_LEN_MAX));
            return Conditions::default();
        }
        let mut conditions: Vec<Expression> = Vec::new();
        for (index, value) in all.iter().enumerate() {
            let path = path.index(index);
            let path = path.member("expression");
            let source = value.str_at(&["expression"]).unwrap_or_default();
            if source.trim().is_empty() {
                errors.push(FieldError::required(path, ""));
                continue;
            }
            if all[..index].iter().any(|one| one.str_at(&["expression"]) == Some(source)) {
                errors.push(FieldError::duplicate(path, source));
                continue;
            }
            match compile(&REQUEST, source, Wanted::Bool) {
                Ok(expression) => conditions.push(expression),
                Err(ExpressionProblem::Invalid(why)) => errors.push(FieldError::invalid(path, source, why)),
                Err(ExpressionProblem::Internal(why)) => errors.push(FieldError::internal(path, why)),
            }
        }
        Conditions(conditions)
    }

    /// Whether all hold. One that does not decides, whatever happens in the others.
    pub fn hold(&self, spec: &Value) -> Result<bool, String> {
        let mut problem = None;
        for condition in &self.0 {
            match condition.holds_of(spec, &SHAPE) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(why) => {
                    let source = &condition.source;
                    problem.get_or_insert_with(|| {
                        format!("cel evaluation error: expression '{source}' resulted in error: {why}")
                    });
                }
            }
        }
        problem.map_or(Ok(true), Err)
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn conditions(all: &[&str]) -> (Conditions, String) {
        let all: Vec<Value> = all.iter().map(|source| json!({"expression": (*source)})).collect();
        let mut errors = Vec::new();
        let conditions = Conditions::read(&all, &FieldPath::root("w"), &mut errors);
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        (conditions, said.join("; "))
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (all, expected) in [
            (&["true"][..], ""),
            (&[" "], "w.matchConditions[0].expression: Required value"),
            (&["true", "true"], "w.matchConditions[1].expression: Duplicate value: \"true\""),
            (&["request.user"], "must evaluate to bool"),
            (&["request.users == ''"], "undefined field 'users'"),
            (&["user == ''"], "undeclared reference to 'user'"),
            (&["1 +"], "compilation failed"),
        ] {
            let (_, said) = conditions(all);
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{all:?}: {said}");
        }
        let many: Vec<String> = (0..=CONDITIONS_LEN_MAX).map(|number| format!("{number} == 0")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(conditions(&many).1, "w.matchConditions: Too many: 65: must have at most 64 items");
    }

    #[test]
    fn requests_are_chosen() {
        let spec = json!({
            "user": "ann", "groups": ["dev"], "extra": {"authorization.polder.dev/plane": ["acme"]},
            "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "x",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["a"]}]}},
        });
        for (all, expected) in [
            (&[][..], Ok(true)),
            (&["request.user == 'ann'", "'dev' in request.groups"], Ok(true)),
            (&["request.resourceAttributes.namespace != 'kube-system'"], Ok(true)),
            (&["has(request.nonResourceAttributes)"], Ok(false)),
            (&["has(request.resourceAttributes) && request.resourceAttributes.resource == 'pods'"], Ok(true)),
            (&["request.extra['authorization.polder.dev/plane'][0] == 'acme'"], Ok(true)),
            (
                &[
                    "request.resourceAttributes.fieldSelector.requirements.exists(r, r.key == 'spec.nodeName')",
                ],
                Ok(true),
            ),
            // What does not hold decides over what cannot be told.
            (&["request.nonResourceAttributes.path == '/x'", "false"], Ok(false)),
            (&["request.nonResourceAttributes.path == '/x'", "true"], Err(())),
        ] {
            let (conditions, said) = conditions(all);
            assert_eq!(said, "");
            assert_eq!(conditions.hold(&spec).map_err(|_| ()), expected, "{all:?}");
        }
    }
}
