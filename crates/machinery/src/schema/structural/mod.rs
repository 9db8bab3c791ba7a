//! Schemas of custom resources: from the JSON of `openAPIV3Schema` to nodes.
//!
//! A schema must be structural: every place typed outside of value checks, nothing recursive, nothing that needs the
//! whole document to understand one part. All rules are checked before a node is made, and nothing here trusts the
//! JSON to be well-formed: size and nesting are checked first.

mod build;
mod defaults;
mod invariants;
mod limits;
mod openapi;
pub(crate) mod source;

use std::sync::Arc;

use polder_cel::re2::Effort;
use polder_model::{FieldError, FieldPath, Value};

use self::build::Builder;
use self::source::Source;
use super::validate::ERRORS_MAX;
use super::{Schema, rules};

/// Makes a schema from the JSON of `openAPIV3Schema`.
///
/// The root and embedded resources get `apiVersion` and `kind` as strings and `metadata` as the given built-in type.
/// The root counts as embedded resource, so that walkers need not know where they started.
pub fn compile(schema: &Value, object_meta: &Schema) -> Result<Schema, Vec<FieldError>> {
    compile_at(schema, object_meta, &FieldPath::root("openAPIV3Schema"), &Effort::default())
}

/// The same for a schema that stands at a path; all that is wrong with it if it cannot be compiled. Its patterns are compiled
/// out of an effort that other schemas may share.
pub fn compile_at(
    schema: &Value,
    object_meta: &Schema,
    path: &FieldPath<'_>,
    effort: &Effort,
) -> Result<Schema, Vec<FieldError>> {
    match checked(schema, Some(object_meta), path, effort) {
        (Some(schema), problems) if problems.is_empty() => Ok(schema),
        (_, problems) => Err(problems),
    }
}

/// The same for a schema that was accepted once. Rules that do not compile any more do not keep objects from being
/// served: they are errors when an object is written.
pub fn compile_stored(schema: &Value, object_meta: &Schema) -> Result<Schema, Vec<FieldError>> {
    match checked(schema, Some(object_meta), &FieldPath::root("openAPIV3Schema"), &Effort::default()) {
        // Rules are compiled last, when nothing else is wrong.
        (Some(schema), problems) if problems.is_empty() || schema.arena.rules.is_some() => Ok(schema),
        (_, problems) => Err(problems),
    }
}

/// Everything that is wrong with the JSON of an `openAPIV3Schema`.
pub fn structural_problems(schema: &Value, path: &FieldPath<'_>) -> Vec<FieldError> {
    checked(schema, None, path, &Effort::default()).1
}

fn checked(
    schema: &Value,
    object_meta: Option<&Schema>,
    path: &FieldPath<'_>,
    effort: &Effort,
) -> (Option<Schema>, Vec<FieldError>) {
    let Some(source) = Source::new(schema) else {
        return (None, vec![FieldError::required(path, "")]);
    };
    let found = limits::look(source, path);
    let mut problems = found.problems;
    if !problems.is_empty() {
        return (None, problems);
    }
    if let Some(unsupported) = found.unsupported {
        openapi::check(source, path, &mut problems);
        if problems.is_empty() {
            problems.push(FieldError::invalid(path, "", unsupported));
        }
        return (None, problems);
    }
    let mut builder = Builder::new(object_meta, effort);
    let compiled = builder.build_root(source, path);
    invariants::check(source, path, &mut problems);
    problems.append(&mut builder.problems);
    problems.sort_by_cached_key(ToString::to_string);
    if problems.is_empty() {
        defaults::check(source, compiled.node(), path, &mut problems);
    }
    openapi::check(source, path, &mut problems);
    let mut compiled = compiled;
    if problems.is_empty() {
        let rules = rules::compile(&compiled, source, path, effort, &mut problems);
        if let Some(arena) = Arc::get_mut(&mut compiled.arena) {
            arena.rules = rules.map(Arc::new);
        }
    }
    problems.truncate(ERRORS_MAX);
    (Some(compiled), problems)
}

#[cfg(test)]
pub(crate) mod tests {
    use polder_model::SmolStr;

    use super::*;
    use crate::schema::{Arena, Kind, Node, NodeId};

    /// A stand-in for the built-in type, with one member of each sort.
    pub(crate) fn object_meta() -> Schema {
        let mut arena = Arena::default();
        let string = arena.add(Node { kind: Kind::String, ..Node::default() });
        let time = arena.add(Node { kind: Kind::Time, ..Node::default() });
        let map = arena.add(Node { kind: Kind::Object, additional: Some(string), ..Node::default() });
        let owner = arena.add(Node {
            kind: Kind::Object,
            properties: vec![("name".into(), string), ("uid".into(), string)],
            required: vec!["name".into()],
            ..Node::default()
        });
        let owners = arena.add(Node { kind: Kind::Array, items: Some(owner), ..Node::default() });
        let members: Vec<(SmolStr, NodeId)> = [
            ("annotations", map),
            ("creationTimestamp", time),
            ("generateName", string),
            ("labels", map),
            ("name", string),
            ("namespace", string),
            ("ownerReferences", owners),
        ]
        .map(|(name, id)| (SmolStr::new(name), id))
        .into();
        let root = arena.add(Node {
            kind: Kind::Object,
            properties: members,
            type_name: Some("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta".into()),
            ..Node::default()
        });
        Schema { arena: arena.into(), root }
    }

    #[track_caller]
    pub(crate) fn compiled(schema: &str) -> Schema {
        let schema = Value::parse(schema.as_bytes()).unwrap();
        compile(&schema, &object_meta())
            .unwrap_or_else(|problems| panic!("{}", polder_model::field::join(&problems)))
    }

    #[track_caller]
    fn check(schema: &str, expected: &[&str]) {
        let schema = Value::parse(schema.as_bytes()).unwrap();
        let problems = structural_problems(&schema, &FieldPath::root("s"));
        assert_eq!(problems.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
        assert_eq!(compile(&schema, &object_meta()).is_ok(), expected.is_empty());
    }

    fn property(schema: &str) -> String {
        format!(r#"{{"type":"object","properties":{{"a":{schema}}}}}"#)
    }

    #[test]
    fn types_are_needed() {
        check("{}", &["s.type: Required value: must not be empty at the root"]);
        check(
            r#"{"type":"array","items":{"type":"string"}}"#,
            &[r#"s.type: Invalid value: "array": must be object at the root"#],
        );
        check(
            &property("{}"),
            &["s.properties[a].type: Required value: must not be empty for specified object fields"],
        );
        check(
            &property(r#"{"type":"array","items":{}}"#),
            &["s.properties[a].items.type: Required value: must not be empty for specified array items"],
        );
        check(
            &property(r#"{"type":"array"}"#),
            &["s.properties[a].items: Required value: must be specified"],
        );
        check(&property(r#"{"x-kubernetes-preserve-unknown-fields":true}"#), &[]);
        check(&property(r#"{"x-kubernetes-int-or-string":true}"#), &[]);
        check(
            &property(r#"{"type":"foo"}"#),
            &[
                r#"s.properties[a].type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        );
        check("5", &["s: Required value"]);
        check(&property("5"), &["s.properties[a]: Invalid value: \"integer\": must be a schema object"]);
    }

    #[test]
    fn int_or_string_shapes() {
        check(
            &property(
                r#"{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}]}"#,
            ),
            &[],
        );
        check(
            &property(
                r#"{"x-kubernetes-int-or-string":true,"allOf":[{"anyOf":[{"type":"integer"},{"type":"string"}]},{"pattern":"a"}]}"#,
            ),
            &[],
        );
        check(
            &property(r#"{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"}]}"#),
            &["s.properties[a].anyOf[0].type: Forbidden: must be empty to be structural"],
        );
    }

    #[test]
    fn value_checks_hold_no_structure() {
        check(
            r#"{"type":"object","anyOf":[{"properties":{"x":{"default":1,"description":"d","nullable":true}}}]}"#,
            &[
                "s.anyOf[0].properties[x].default: Forbidden: must be undefined to be structural",
                "s.anyOf[0].properties[x].description: Forbidden: must be empty to be structural",
                "s.anyOf[0].properties[x].nullable: Forbidden: must be false to be structural",
                "s.properties[x]: Required value: because it is defined in s.anyOf[0].properties[x]",
            ],
        );
        check(
            r#"{"type":"object","not":{"properties":{"metadata":{}}},"properties":{"metadata":{"type":"object"}}}"#,
            &["s.not.properties[metadata]: Forbidden: must not be specified in a nested context"],
        );
    }

    #[test]
    fn metadata_is_given() {
        check(r#"{"type":"object","properties":{"metadata":{"type":"object"}}}"#, &[]);
        check(
            r#"{"type":"object","properties":{"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":5}}}}}"#,
            &[],
        );
        check(
            r#"{"type":"object","properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}}}}"#,
            &[
                "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
            ],
        );
        check(
            r#"{"type":"object","properties":{"kind":{"type":"string","default":"x"}}}"#,
            &["s.properties[kind].default: Forbidden: must not be set in top-level kind"],
        );
    }

    #[test]
    fn forbidden_keywords() {
        check(
            &property(
                r##"{"type":"object","id":"x","$ref":"#","definitions":{"a":{}},"dependencies":{},"patternProperties":{"a":{}},"additionalItems":true}"##,
            ),
            &[
                "s.properties[a].id: Forbidden: id is not supported",
                "s.properties[a].additionalItems: Forbidden: additionalItems is not supported",
                "s.properties[a].patternProperties: Forbidden: patternProperties is not supported",
                "s.properties[a].definitions: Forbidden: definitions is not supported",
                "s.properties[a].dependencies: Forbidden: dependencies is not supported",
                "s.properties[a].$ref: Forbidden: $ref is not supported",
            ],
        );
        check(
            &property(r#"{"type":"array","items":{"type":"string"},"uniqueItems":true}"#),
            &[
                "s.properties[a].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ],
        );
        check(
            r#"{"type":"object","additionalProperties":{"type":"string"}}"#,
            &["s.additionalProperties: Forbidden: must not be used at the root"],
        );
        check(
            &property(
                r#"{"type":"object","properties":{"b":{"type":"string"}},"additionalProperties":{"type":"string"}}"#,
            ),
            &[
                "s.properties[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        );
    }

    #[test]
    fn list_types() {
        check(
            &property(r#"{"type":"array","x-kubernetes-list-type":"map","items":{"type":"object"}}"#),
            &[
                "s.properties[a].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        );
        check(
            &property(
                r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
                    "items":{"type":"object","properties":{"k":{"type":"string"}}}}"#,
            ),
            &[
                "s.properties[a].items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        );
        check(
            &property(r#"{"type":"string","x-kubernetes-list-type":"bag"}"#),
            &[
                r#"s.properties[a].type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
                r#"s.properties[a].x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", "set", "map""#,
            ],
        );
    }

    #[test]
    fn patterns_and_defaults() {
        check(
            &property(r#"{"type":"string","pattern":"("}"#),
            &[
                r#"s.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: unclosed group"#,
            ],
        );
        check(
            &property(r#"{"type":"integer","default":"x"}"#),
            &[
                r#"s.properties[a].default: Invalid value: "string":  in body must be of type integer: "string""#,
            ],
        );
        check(
            &property(r#"{"type":"object","default":{"x":1},"properties":{"b":{"type":"string"}}}"#),
            &[r#"s.properties[a].default: Invalid value: {"x":1}: must not have unknown fields"#],
        );
    }

    #[test]
    fn bombs_are_refused() {
        let mut deep = String::from(r#"{"type":"string"}"#);
        for _ in 0..100 {
            deep = format!(r#"{{"type":"array","items":{deep}}}"#);
        }
        let refused = |schema: &str| {
            let schema = Value::parse(schema.as_bytes()).unwrap();
            structural_problems(&schema, &FieldPath::root("s"))[0].to_string()
        };
        assert!(refused(&property(&deep)).contains("nested more than"));
        let wide: Vec<String> = (0..60_000).map(|n| format!(r#""p{n}":{{"type":"string"}}"#)).collect();
        assert!(
            refused(&format!(r#"{{"type":"object","properties":{{{}}}}}"#, wide.join(",")))
                .contains("Too many")
        );
    }

    #[test]
    fn embedded_resources_have_a_type_and_metadata() {
        let schema = compiled(
            r#"{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,
                "x-kubernetes-preserve-unknown-fields":true},"metadata":{"type":"object","properties":{"name":
                {"type":"string","maxLength":3}}}}}"#,
        );
        let root = schema.node();
        assert!(root.get().embedded_resource);
        let embedded = root.property("e").unwrap();
        for place in [root, embedded] {
            assert_eq!(place.property("kind").unwrap().get().kind, Kind::String);
            assert_eq!(
                place.property("metadata").unwrap().property("labels").unwrap().get().kind,
                Kind::Object
            );
        }
        let name = root.property("metadata").unwrap().property("name").unwrap();
        assert_eq!(name.get().checks.as_ref().unwrap().max_length, Some(3));
        let owner = root.property("metadata").unwrap().property("ownerReferences").unwrap().items().unwrap();
        assert!(owner.get().required.is_empty(), "metadata is checked elsewhere");
    }
}
