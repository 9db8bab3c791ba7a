//! How large and how deep a schema may be, and that schemas stand where schemas belong. Checked before all else.

use polder_model::{FieldError, FieldPath, Value};

use super::source::Source;

const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 50_000;

/// Places of one schema below another.
const SINGLE: [&str; 3] = ["additionalProperties", "items", "not"];
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keywords that no structural schema has room for.
const UNSUPPORTED: [(&str, &str); 7] = [
    ("id", "id"),
    ("$schema", "schema"),
    ("$ref", "$ref"),
    ("patternProperties", "patternProperties"),
    ("dependencies", "dependencies"),
    ("additionalItems", "additionalItems"),
    ("definitions", "definitions"),
];

/// What a first look at a schema found.
pub(super) struct Found {
    /// Why nobody should look any further.
    pub(super) problems: Vec<FieldError>,
    /// A keyword because of which the schema is not structural at all.
    pub(super) unsupported: Option<String>,
}

pub(super) fn look(source: Source<'_>, path: &FieldPath<'_>) -> Found {
    let mut walk = Walk { nodes: 0, unsupported: None, problems: Vec::new() };
    walk.visit(source, path, 1);
    if walk.nodes > NODES_MAX {
        walk.problems = vec![FieldError::too_many(path, walk.nodes, NODES_MAX)];
    }
    Found { problems: walk.problems, unsupported: walk.unsupported }
}

fn unsupported(source: Source<'_>) -> Option<String> {
    if let Some((_, name)) = UNSUPPORTED.iter().find(|(key, _)| source.has(key)) {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if source.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let detail = "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(detail.into());
    }
    let has_list = !source.list("items").is_empty();
    has_list.then(|| "OpenAPIV3Schema 'items' must be a schema, but is an array".into())
}

struct Walk {
    nodes: usize,
    unsupported: Option<String>,
    problems: Vec<FieldError>,
}

impl Walk {
    fn visit(&mut self, source: Source<'_>, path: &FieldPath<'_>, depth: usize) {
        self.nodes += 1;
        if self.nodes > NODES_MAX || !self.problems.is_empty() {
            return;
        }
        if depth > DEPTH_MAX {
            let detail = format!("must not be nested more than {DEPTH_MAX} levels deep");
            self.problems.push(FieldError::forbidden(path, detail));
            return;
        }
        if self.unsupported.is_none() {
            self.unsupported = unsupported(source);
        }
        for key in SINGLE {
            match source.get(key) {
                // Lists of item schemas have their own message, and booleans are no schemas.
                None | Some(Value::Array(_) | Value::Bool(_)) => {}
                Some(value) => self.visit_value(value, &path.member(key), depth),
            }
        }
        for key in LISTS {
            for (index, value) in source.list(key).iter().enumerate() {
                self.visit_value(value, &path.member(key).index(index), depth);
            }
        }
        let members = source.get("properties").and_then(Value::as_object);
        for (key, value) in members.into_iter().flat_map(|members| members.iter()) {
            self.visit_value(value, &path.member("properties").key(key), depth);
        }
    }

    fn visit_value(&mut self, value: &Value, path: &FieldPath<'_>, depth: usize) {
        match Source::new(value) {
            Some(source) => self.visit(source, path, depth + 1),
            None => {
                let detail = "must be a schema object";
                self.problems.push(FieldError::type_invalid(path, value.type_name(), detail));
            }
        }
    }
}
