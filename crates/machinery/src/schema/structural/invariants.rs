//! What makes a schema structural.
//!
//! Structure (types, defaults, extensions) stands only outside of `allOf`, `anyOf`, `oneOf` and `not`; those may only
//! check values of places that the structure names.

use polder_model::{FieldError, FieldPath, Value};

use super::super::validate::ERRORS_MAX;
use super::source::{Additional, Source};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn check(source: Source<'_>, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    Checker { problems: &mut *problems }.structure(source, Level::Root, path);
    Checker { problems }.complete(source, source, path, path);
}

struct Checker<'p> {
    problems: &'p mut Vec<FieldError>,
}

impl Checker<'_> {
    fn required(&mut self, path: FieldPath<'_>, detail: impl Into<String>) {
        if self.problems.len() < ERRORS_MAX {
            self.problems.push(FieldError::required(path, detail));
        }
    }

    fn forbidden(&mut self, path: FieldPath<'_>, detail: &str) {
        if self.problems.len() < ERRORS_MAX {
            self.problems.push(FieldError::forbidden(path, detail));
        }
    }

    fn invalid(&mut self, path: FieldPath<'_>, value: impl Into<Value>, detail: &str) {
        if self.problems.len() < ERRORS_MAX {
            self.problems.push(FieldError::invalid(path, value, detail));
        }
    }

    fn structure(&mut self, source: Source<'_>, level: Level, path: &FieldPath<'_>) {
        let kind = source.text("type");
        let items = source.schema("items");
        match items {
            Some(items) => self.structure(items, Level::Item, &path.member("items")),
            None if kind == "array" && source.get("items").is_none() => {
                self.required(path.member("items"), "must be specified");
            }
            None => {}
        }
        let properties = path.member("properties");
        for (name, property) in source.properties() {
            self.structure(property, Level::Field, &properties.key(name));
        }
        if let Some(additional) = source.additional() {
            let at = path.member("additionalProperties");
            if level == Level::Root {
                self.forbidden(at, "must not be used at the root");
            }
            if let Additional::Schema(schema) = additional {
                self.structure(schema, Level::Field, &at);
            }
            if source.is_embedded() {
                self.forbidden(at, "must not be used if x-kubernetes-embedded-resource is set");
            }
        }
        self.extensions(source, path);
        self.checks(source, path, is_int_or_string_pair(source), is_int_or_string_first(source));
        self.kind(source, kind, level, path);
        self.meta(source, level, path);
    }

    fn extensions(&mut self, source: Source<'_>, path: &FieldPath<'_>) {
        if !source.is_int_or_string() {
            return;
        }
        let detail = "must be false if x-kubernetes-int-or-string is true";
        if source.preserves_unknown() {
            self.invalid(path.member("x-kubernetes-preserve-unknown-fields"), true, detail);
        }
        if source.is_embedded() {
            self.invalid(path.member("x-kubernetes-embedded-resource"), true, detail);
        }
    }

    fn kind(&mut self, source: Source<'_>, kind: &str, level: Level, path: &FieldPath<'_>) {
        let at = path.member("type");
        if source.is_embedded() && kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            match kind {
                "" => self.required(at, detail),
                kind => self.invalid(at, kind, detail),
            }
        } else if kind.is_empty() && !source.is_int_or_string() && !source.preserves_unknown() {
            let detail = match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            };
            self.required(at, detail);
        }
        if level == Level::Root && !kind.is_empty() && kind != "object" {
            self.invalid(at, kind, "must be object at the root");
        }
    }

    /// What a schema may say about apiVersion, kind and metadata of a whole object.
    fn meta(&mut self, source: Source<'_>, level: Level, path: &FieldPath<'_>) {
        let is_resource = level == Level::Root || source.is_embedded();
        let properties = path.member("properties");
        if is_resource {
            for name in ["kind", "apiVersion"] {
                if let Some(property) =
                    source.property(name).filter(|property| property.text("type") != "string")
                {
                    self.invalid(
                        properties.key(name).member("type"),
                        property.text("type"),
                        "must be string",
                    );
                }
            }
        }
        if let Some(metadata) = source.property("metadata") {
            let at = properties.key("metadata");
            if is_resource && metadata.text("type") != "object" {
                self.invalid(at.member("type"), metadata.text("type"), "must be object");
            }
            if level == Level::Root && !restricts_names_only(metadata) {
                self.forbidden(
                    at,
                    "must not specify anything other than name and generateName, but metadata is implicitly specified",
                );
            }
        }
        if source.is_embedded() && !source.preserves_unknown() && !source.has_properties() {
            self.required(
                properties,
                "must not be empty if x-kubernetes-embedded-resource is true without \
                 x-kubernetes-preserve-unknown-fields",
            );
        }
    }

    fn checks(
        &mut self,
        source: Source<'_>,
        path: &FieldPath<'_>,
        skip_any_of: bool,
        skip_first_all_of: bool,
    ) {
        if !skip_any_of {
            for (index, nested) in source.schemas("anyOf").enumerate() {
                self.nested(nested, &path.member("anyOf").index(index), false);
            }
        }
        for (index, nested) in source.schemas("allOf").enumerate() {
            self.nested(nested, &path.member("allOf").index(index), skip_first_all_of && index == 0);
        }
        for (index, nested) in source.schemas("oneOf").enumerate() {
            self.nested(nested, &path.member("oneOf").index(index), false);
        }
        if let Some(nested) = source.schema("not") {
            self.nested(nested, &path.member("not"), false);
        }
    }

    /// A schema under `allOf` and the like: no structure.
    fn nested(&mut self, source: Source<'_>, path: &FieldPath<'_>, skip_any_of: bool) {
        self.checks(source, path, skip_any_of, false);
        if let Some(items) = source.schema("items") {
            self.nested(items, &path.member("items"), false);
        }
        let properties = path.member("properties");
        for (name, property) in source.properties() {
            self.nested(property, &properties.key(name), false);
        }
        const EMPTY: &str = "must be empty to be structural";
        const UNDEFINED: &str = "must be undefined to be structural";
        const FALSE: &str = "must be false to be structural";
        let rules = [
            ("type", EMPTY),
            ("default", UNDEFINED),
            ("title", EMPTY),
            ("description", EMPTY),
            ("nullable", FALSE),
            ("x-kubernetes-preserve-unknown-fields", FALSE),
            ("x-kubernetes-embedded-resource", FALSE),
            ("x-kubernetes-int-or-string", FALSE),
            ("x-kubernetes-list-map-keys", EMPTY),
            ("x-kubernetes-list-type", UNDEFINED),
            ("x-kubernetes-map-type", UNDEFINED),
            ("x-kubernetes-validations", EMPTY),
        ];
        for (key, detail) in rules {
            if source.has(key) || (key == "default" && source.get(key).is_some()) {
                self.forbidden(path.member(key), detail);
            }
        }
        if matches!(source.additional(), Some(Additional::Allowed | Additional::Schema(_))) {
            self.forbidden(path.member("additionalProperties"), UNDEFINED);
        }
        if source.property("metadata").is_some() {
            self.forbidden(properties.key("metadata"), "must not be specified in a nested context");
        }
    }

    /// Every place that a value check names must be named by the structure too.
    fn complete(
        &mut self,
        checks: Source<'_>,
        structure: Source<'_>,
        structure_path: &FieldPath<'_>,
        checks_path: &FieldPath<'_>,
    ) {
        if let Some(nested) = checks.schema("not") {
            self.complete_nested(nested, Some(structure), structure_path, &checks_path.member("not"));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for (index, nested) in checks.schemas(key).enumerate() {
                let at = checks_path.member(key);
                self.complete_nested(nested, Some(structure), structure_path, &at.index(index));
            }
        }
    }

    fn complete_nested(
        &mut self,
        nested: Source<'_>,
        structure: Option<Source<'_>>,
        structure_path: &FieldPath<'_>,
        nested_path: &FieldPath<'_>,
    ) {
        let Some(structure) = structure else {
            return self.required(*structure_path, format!("because it is defined in {nested_path}"));
        };
        self.complete(nested, structure, structure_path, nested_path);
        if let Some(items) = nested.schema("items") {
            let (structure_items, nested_items) =
                (structure_path.member("items"), nested_path.member("items"));
            self.complete_nested(items, structure.schema("items"), &structure_items, &nested_items);
        }
        let (structure_properties, nested_properties) =
            (structure_path.member("properties"), nested_path.member("properties"));
        for (name, property) in nested.properties() {
            self.complete_nested(
                property,
                structure.property(name),
                &structure_properties.key(name),
                &nested_properties.key(name),
            );
        }
    }
}

/// Root metadata may only restrict names; everything else about it is given.
fn restricts_names_only(metadata: Source<'_>) -> bool {
    let is_allowed =
        |key: &str| matches!(key, "type" | "default" | "properties" | "externalDocs" | "example");
    metadata.keys().all(|key| is_allowed(key) || !metadata.has(key))
        && metadata.properties().all(|(name, _)| matches!(name, "name" | "generateName"))
}

/// `anyOf: [{type: integer}, {type: string}]`.
fn is_int_or_string_pair(source: Source<'_>) -> bool {
    let is_type = |source: &Source<'_>, kind| {
        source.text("type") == kind && source.keys().all(|key| key == "type" || !source.has(key))
    };
    let pair: Vec<Source<'_>> = source.schemas("anyOf").take(3).collect();
    matches!(pair.as_slice(), [first, second] if is_type(first, "integer") && is_type(second, "string"))
}

/// The same inside the first `allOf`.
fn is_int_or_string_first(source: Source<'_>) -> bool {
    source.schemas("allOf").next().is_some_and(is_int_or_string_pair)
}
