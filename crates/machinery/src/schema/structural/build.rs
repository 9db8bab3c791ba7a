//! Turning schema JSON into nodes.
//!
//! Never fails: what cannot be expressed is noted as a problem, and the nodes are then thrown away.

use std::collections::HashMap;

use polder_cel::re2::Effort;
use polder_model::{FieldError, FieldPath, SmolStr, Value};

use super::super::pattern::Patterns;
use super::super::validate::{ERRORS_MAX, shown};
use super::super::{Arena, Checks, Kind, ListType, Node, NodeId, Schema};
use super::source::{Additional, Source};

pub(super) struct Builder<'a> {
    arena: Arena,
    patterns: Patterns,
    object_meta: Option<&'a Schema>,
    /// The built-in metadata, once it is needed.
    imported_meta: Option<NodeId>,
    pub(super) problems: Vec<FieldError>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(object_meta: Option<&'a Schema>, effort: &Effort) -> Builder<'a> {
        Builder {
            arena: Arena::default(),
            patterns: Patterns::new(effort),
            object_meta,
            imported_meta: None,
            problems: Vec::new(),
        }
    }

    pub(super) fn build_root(&mut self, source: Source<'_>, path: &FieldPath<'_>) -> Schema {
        let root = self.node(source, path, true);
        let mut arena = std::mem::take(&mut self.arena);
        arena.index();
        arena.nodes.shrink_to_fit();
        arena.pattern_bytes = self.patterns.bytes();
        Schema { arena: arena.into(), root }
    }

    fn node(&mut self, source: Source<'_>, path: &FieldPath<'_>, is_root: bool) -> NodeId {
        let mut node = Node {
            kind: kind(source),
            required: source.texts("required").map(SmolStr::new).collect(),
            allowed: source.list("enum").to_vec(),
            format: Some(source.text("format")).filter(|format| !format.is_empty()).map(SmolStr::new),
            nullable: source.flag("nullable"),
            default: source.get("default").cloned(),
            preserve_unknown: source.preserves_unknown(),
            embedded_resource: is_root || source.is_embedded(),
            list_type: match source.text("x-kubernetes-list-type") {
                "set" => ListType::Set,
                "map" => ListType::Map,
                _ => ListType::Atomic,
            },
            list_map_keys: source.texts("x-kubernetes-list-map-keys").map(SmolStr::new).collect(),
            map_atomic: source.text("x-kubernetes-map-type") == "atomic",
            ..Node::default()
        };
        node.items = source.schema("items").map(|items| self.node(items, &path.member("items"), false));
        let at_properties = path.member("properties");
        node.properties = source
            .properties()
            .map(|(name, property)| {
                (SmolStr::new(name), self.node(property, &at_properties.key(name), false))
            })
            .collect();
        let mut checks = self.checks(source, path);
        node.additional = match source.additional() {
            None => None,
            Some(Additional::Schema(schema)) => {
                Some(self.node(schema, &path.member("additionalProperties"), false))
            }
            Some(Additional::Allowed) => Some(self.opaque()),
            Some(Additional::Refused) => {
                checks.get_or_insert_default().no_additional = true;
                Some(self.opaque())
            }
        };
        node.checks = checks;
        if node.embedded_resource {
            self.add_meta(&mut node);
        }
        self.arena.add(node)
    }

    fn opaque(&mut self) -> NodeId {
        // Nothing is known about the values, not even that they may not be null.
        self.arena.add(Node { opaque: true, nullable: true, ..Node::default() })
    }

    fn checks(&mut self, source: Source<'_>, path: &FieldPath<'_>) -> Option<Box<Checks>> {
        const KEYS: [&str; 17] = [
            "allOf",
            "anyOf",
            "maxItems",
            "maxLength",
            "maxProperties",
            "maximum",
            "minItems",
            "minLength",
            "minProperties",
            "minimum",
            "multipleOf",
            "not",
            "oneOf",
            "pattern",
            "uniqueItems",
            "exclusiveMaximum",
            "x-kubernetes-validations",
        ];
        if !KEYS.iter().any(|key| source.has(key)) {
            return None;
        }
        let mut nested = |key: &'static str| -> Vec<NodeId> {
            let at = path.member(key);
            source
                .schemas(key)
                .enumerate()
                .map(|(index, one)| self.node(one, &at.index(index), false))
                .collect()
        };
        let (all_of, any_of, one_of) = (nested("allOf"), nested("anyOf"), nested("oneOf"));
        Some(Box::new(Checks {
            minimum: source.float("minimum"),
            exclusive_minimum: source.flag("exclusiveMinimum"),
            maximum: source.float("maximum"),
            exclusive_maximum: source.flag("exclusiveMaximum"),
            multiple_of: source.float("multipleOf"),
            min_length: source.count("minLength"),
            max_length: source.count("maxLength"),
            pattern: self.pattern(source.text("pattern"), path),
            min_items: source.count("minItems"),
            max_items: source.count("maxItems"),
            unique_items: source.flag("uniqueItems"),
            min_properties: source.count("minProperties"),
            max_properties: source.count("maxProperties"),
            all_of,
            any_of,
            one_of,
            not: source.schema("not").map(|not| self.node(not, &path.member("not"), false)),
            no_additional: false,
            rules: source.list("x-kubernetes-validations").to_vec(),
        }))
    }

    fn pattern(&mut self, pattern: &str, path: &FieldPath<'_>) -> Option<(SmolStr, regex::Regex)> {
        if pattern.is_empty() {
            return None;
        }
        match self.patterns.compile(pattern) {
            Ok(regex) => Some((SmolStr::new(pattern), regex)),
            Err(problem) => {
                if self.problems.len() < ERRORS_MAX {
                    let detail = format!("must be a valid regular expression, but isn't: {problem}");
                    let value = shown(&Value::from(pattern));
                    self.problems.push(FieldError::invalid(path.member("pattern"), value, detail));
                }
                None
            }
        }
    }

    /// Gives a whole object its type and metadata.
    fn add_meta(&mut self, node: &mut Node) {
        for name in ["apiVersion", "kind"] {
            if let Err(at) = position(node, name) {
                let string = self.arena.add(Node { kind: Kind::String, ..Node::default() });
                node.properties.insert(at, (name.into(), string));
            }
        }
        let imported = self.object_meta();
        match position(node, "metadata") {
            Err(at) => node.properties.insert(at, ("metadata".into(), imported)),
            Ok(at) => {
                // The schema restricts some members; their types and all others are given.
                let given = node.properties[at].1;
                let mut merged = self.arena.nodes[imported.0 as usize].clone();
                let given = &self.arena.nodes[given.0 as usize];
                for (name, id) in &mut merged.properties {
                    if let Ok(own) = position(given, name) {
                        *id = given.properties[own].1;
                    }
                }
                merged.required.clone_from(&given.required);
                merged.checks.clone_from(&given.checks);
                merged.default.clone_from(&given.default);
                node.properties[at].1 = self.arena.add(merged);
            }
        }
    }

    /// The built-in metadata, copied into this arena once.
    fn object_meta(&mut self) -> NodeId {
        if let Some(id) = self.imported_meta {
            return id;
        }
        let id = match self.object_meta {
            None => self.arena.add(Node { preserve_unknown: true, kind: Kind::Object, ..Node::default() }),
            Some(schema) => self.import(schema),
        };
        self.imported_meta = Some(id);
        id
    }

    /// Copies what can be reached from a schema. Value checks stay behind: metadata is checked elsewhere.
    fn import(&mut self, schema: &Schema) -> NodeId {
        let mut known: HashMap<NodeId, NodeId> = HashMap::new();
        let mut waiting = vec![schema.root];
        let root = self.arena.add(Node::default());
        known.insert(schema.root, root);
        while let Some(id) = waiting.pop() {
            let mut node = schema.arena.node(id).get().clone();
            let mut place = |child: NodeId| {
                *known.entry(child).or_insert_with(|| {
                    waiting.push(child);
                    self.arena.add(Node::default())
                })
            };
            node.properties.iter_mut().for_each(|(_, child)| *child = place(*child));
            node.additional = node.additional.map(&mut place);
            node.items = node.items.map(&mut place);
            node.required.clear();
            node.allowed.clear();
            node.checks = None;
            node.default = None;
            self.arena.nodes[known[&id].0 as usize] = node;
        }
        root
    }
}

fn position(node: &Node, name: &str) -> Result<usize, usize> {
    node.properties.binary_search_by(|(own, _)| own.as_str().cmp(name))
}

fn kind(source: Source<'_>) -> Kind {
    match source.text("type") {
        _ if source.is_int_or_string() => Kind::IntOrString,
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => Kind::Any,
    }
}
