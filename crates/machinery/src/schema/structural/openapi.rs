//! Which parts of OpenAPI a schema may use, and how the `x-kubernetes-*` extensions go together.

use polder_model::{FieldError, FieldPath, Value};

use super::super::simple_path;
use super::super::validate::{ERRORS_MAX, shown};
use super::source::{Additional, Source};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

pub(super) fn check(source: Source<'_>, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    let around = Around { is_root: true, ..Around::default() };
    Checker { problems }.visit(source, path, &around);
}

/// What the schemas around one mean for it.
#[derive(Clone, Default)]
struct Around {
    is_root: bool,
    inside_meta: bool,
    /// Why there may be no default.
    no_default: Option<String>,
}

struct Checker<'p> {
    problems: &'p mut Vec<FieldError>,
}

impl Checker<'_> {
    fn report(&mut self, problem: FieldError) {
        if self.problems.len() < ERRORS_MAX {
            self.problems.push(problem);
        }
    }

    fn forbidden(&mut self, path: FieldPath<'_>, detail: impl Into<String>) {
        self.report(FieldError::forbidden(path, detail));
    }

    fn required(&mut self, path: FieldPath<'_>, detail: &str) {
        self.report(FieldError::required(path, detail));
    }

    fn invalid(&mut self, path: FieldPath<'_>, value: impl Into<Value>, detail: &str) {
        self.report(FieldError::invalid(path, value, detail));
    }

    fn visit(&mut self, source: Source<'_>, path: &FieldPath<'_>, around: &Around) {
        self.keywords(source, path, around);
        let nested = Around { is_root: false, ..around.clone() };
        self.additional(source, path, &nested);
        let properties = path.member("properties");
        for (name, property) in source.properties() {
            let mut inside = nested.clone();
            if (around.is_root || source.is_embedded()) && matches!(name, "metadata" | "kind" | "apiVersion")
            {
                inside.inside_meta = true;
                if around.is_root {
                    inside.no_default = Some(format!("in top-level {name}"));
                }
            }
            self.visit(property, &properties.key(name), &inside);
        }
        if let Some(not) = source.schema("not") {
            self.visit(not, &path.member("not"), &nested);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            for (index, one) in source.schemas(key).enumerate() {
                self.visit(one, &path.member(key).index(index), &nested);
            }
        }
        if let Some(items) = source.schema("items") {
            self.visit(items, &path.member("items"), &nested);
        }
        self.map_type(source, path);
        self.list_type(source, path);
        self.rules(source, path);
    }

    fn keywords(&mut self, source: Source<'_>, path: &FieldPath<'_>, around: &Around) {
        let kind = source.text("type");
        if !kind.is_empty() && !TYPES.contains(&kind) {
            self.report(FieldError::not_supported(path.member("type"), shown(&Value::from(kind)), TYPES));
        }
        if let (Some(_), Some(reason)) = (source.get("default"), &around.no_default) {
            self.forbidden(path.member("default"), format!("must not be set {reason}"));
        }
        for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            let is_set = match key {
                "additionalItems" | "dependencies" | "$ref" => source.get(key).is_some(),
                _ => source.has(key),
            };
            if is_set {
                self.forbidden(path.member(key), format!("{key} is not supported"));
            }
        }
        if kind == "null" {
            let detail = "type cannot be set to null, use nullable as an alternative";
            self.forbidden(path.member("type"), detail);
        }
        if !source.list("items").is_empty() {
            self.forbidden(path.member("items"), "items must be a schema object and not an array");
        }
        if around.inside_meta && source.is_embedded() {
            let detail = "must not be used inside of resource meta";
            self.forbidden(path.member("x-kubernetes-embedded-resource"), detail);
        }
        if source.flag("uniqueItems") {
            let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.forbidden(path.member("uniqueItems"), detail);
        }
        if source.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let at = path.member("x-kubernetes-preserve-unknown-fields");
            self.invalid(at, false, "must be true or undefined");
        }
    }

    fn additional(&mut self, source: Source<'_>, path: &FieldPath<'_>, nested: &Around) {
        let Some(additional) = source.additional() else { return };
        let at = path.member("additionalProperties");
        if source.has_properties() && !matches!(additional, Additional::Allowed) {
            self.forbidden(at, "additionalProperties and properties are mutual exclusive");
        }
        if let Additional::Schema(schema) = additional {
            let mut inside = nested.clone();
            if inside.inside_meta {
                inside.no_default = Some("inside additionalProperties applying to object metadata".into());
            }
            self.visit(schema, &at, &inside);
        }
    }

    fn type_must_be(
        &mut self,
        source: Source<'_>,
        path: &FieldPath<'_>,
        wanted: &str,
        extension: &str,
    ) -> bool {
        let detail = format!("must be {wanted} if {extension} is specified");
        match source.text("type") {
            kind if kind == wanted => return true,
            "" => self.required(path.member("type"), &detail),
            kind => self.invalid(path.member("type"), kind, &detail),
        }
        false
    }

    fn map_type(&mut self, source: Source<'_>, path: &FieldPath<'_>) {
        const KEY: &str = "x-kubernetes-map-type";
        if source.get(KEY).is_none() {
            return;
        }
        self.type_must_be(source, path, "object", KEY);
        let map_type = source.text(KEY);
        if !matches!(map_type, "atomic" | "granular") {
            let value = shown(&Value::from(map_type));
            self.report(FieldError::not_supported(path.member(KEY), value, ["atomic", "granular"]));
        }
    }

    fn list_type(&mut self, source: Source<'_>, path: &FieldPath<'_>) {
        const KEY: &str = "x-kubernetes-list-type";
        const KEYS: &str = "x-kubernetes-list-map-keys";
        let list_type = source.get(KEY).map(|_| source.text(KEY));
        if let Some(list_type) = list_type {
            let is_array = self.type_must_be(source, path, "array", KEY);
            if is_array && list_type == "set" {
                self.set_items(source, path);
            }
            if !matches!(list_type, "atomic" | "set" | "map") {
                let value = shown(&Value::from(list_type));
                self.report(FieldError::not_supported(path.member(KEY), value, ["atomic", "set", "map"]));
            }
        }
        if source.has(KEYS) {
            let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
            match list_type {
                None => self.required(path.member(KEY), detail),
                Some("map") => {}
                Some(other) => self.invalid(path.member(KEY), other, detail),
            }
        }
        if list_type == Some("map") {
            self.list_map(source, path);
        }
        if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, source.schema("items")) {
            self.keyed_items(source, items, list_type, path);
        }
    }

    /// The elements of a set must be atomic.
    fn set_items(&mut self, source: Source<'_>, path: &FieldPath<'_>) {
        let Some(items) = source.schema("items") else { return };
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let at = path.member("items");
        let list_type = items.get("x-kubernetes-list-type").map_or(Value::Null, shown);
        match items.text("type") {
            "array" if !list_type.is_null() && list_type.as_str() != Some("atomic") => {
                self.invalid(at.member("x-kubernetes-list-type"), list_type, detail);
            }
            "object" if items.text("x-kubernetes-map-type") != "atomic" => {
                self.invalid(at.member("x-kubernetes-map-type"), list_type, detail);
            }
            _ => {}
        }
    }

    fn list_map(&mut self, source: Source<'_>, path: &FieldPath<'_>) {
        const KEYS: &str = "x-kubernetes-list-map-keys";
        if !source.has(KEYS) {
            self.required(path.member(KEYS), "must not be empty if x-kubernetes-list-type is map");
        }
        if source.get("items").is_none() {
            self.required(path.member("items"), "must have a schema if x-kubernetes-list-type is map");
        }
        let Some(items) = source.schema("items") else { return };
        let at = path.member("items");
        if items.text("type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            return self.invalid(at.member("type"), items.text("type"), detail);
        }
        let keys = || source.get(KEYS).map_or(Value::Null, shown);
        let mut seen = std::collections::HashSet::new();
        for key in source.texts(KEYS) {
            match items.property(key) {
                Some(property) if matches!(property.text("type"), "array" | "object") => {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    self.invalid(at.member("properties").key(key).member("type"), "object", detail);
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    self.invalid(path.member(KEYS), keys(), detail);
                }
            }
            if !seen.insert(key) {
                self.invalid(path.member(KEYS), keys(), "must not contain duplicate entries");
            }
        }
    }

    fn keyed_items(&mut self, source: Source<'_>, items: Source<'_>, list_type: &str, path: &FieldPath<'_>) {
        let at = path.member("items");
        if items.flag("nullable") {
            let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
            self.forbidden(at.member("nullable"), detail);
        }
        if list_type != "map" {
            return;
        }
        let required: std::collections::HashSet<&str> = items.texts("required").collect();
        for key in source.texts("x-kubernetes-list-map-keys") {
            let Some(property) = items.property(key) else { continue };
            let properties = at.member("properties");
            let at_key = properties.key(key);
            if !required.contains(key) && property.get("default").is_none() {
                self.required(
                    at_key.member("default"),
                    "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
                );
            }
            if property.flag("nullable") {
                let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                self.forbidden(at_key.member("nullable"), detail);
            }
        }
    }

    fn rules(&mut self, source: Source<'_>, path: &FieldPath<'_>) {
        let list = path.member("x-kubernetes-validations");
        for (index, rule) in source.list("x-kubernetes-validations").iter().enumerate() {
            let Some(rule) = Source::new(rule) else { continue };
            self.rule(source, rule, &list.index(index));
        }
    }

    /// What can be said about a rule without compiling it.
    fn rule(&mut self, source: Source<'_>, rule: Source<'_>, at: &FieldPath<'_>) {
        const REASONS: [&str; 4] =
            ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
        let has_breaks = |text: &str| text.contains(['\n', '\r']);
        let value = |key| rule.get(key).map_or(Value::Null, shown);
        let (text, message) = (rule.text("rule").trim(), rule.text("message").trim());
        if text.is_empty() {
            self.required(at.member("rule"), "rule is not specified");
        } else if rule.has("message") && message.is_empty() {
            self.invalid(at.member("message"), value("message"), "must be non-empty if specified");
        } else if has_breaks(message) {
            self.invalid(at.member("message"), value("message"), "must not contain line breaks");
        } else if has_breaks(text) && message.is_empty() {
            self.required(at.member("message"), "message must be specified if rule contains line breaks");
        }
        if rule.has("messageExpression") && rule.text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            self.required(at.member("messageExpression"), detail);
        }
        if rule.get("reason").is_some() && !REASONS.contains(&rule.text("reason")) {
            self.report(FieldError::not_supported(at.member("reason"), value("reason"), REASONS));
        }
        let field_path = rule.text("fieldPath");
        if !field_path.is_empty() {
            let at = at.member("fieldPath");
            if field_path.trim().is_empty() {
                self.invalid(at, value("fieldPath"), "must be non-empty if specified");
            }
            if has_breaks(field_path) {
                self.invalid(at, value("fieldPath"), "must not contain line breaks");
            }
            if simple_path::find(field_path, source, simple_path::Brackets::Allowed).is_err() {
                self.invalid(at, value("fieldPath"), "must be a valid path");
            }
        }
    }
}
