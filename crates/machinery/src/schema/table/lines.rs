//! The tables as parsed lines, before types know each other.

use std::collections::HashMap;

use polder_model::{GroupVersion, GroupVersionKind, SmolStr, Value};

use super::{TableError, TypeKind};
use crate::protobuf::Presence;
use crate::schema::{ListType, PatchStrategy};

#[derive(Debug, Default)]
pub(super) struct Lines<'a> {
    pub(super) resources: Vec<ResourceLines<'a>>,
    pub(super) types: Vec<TypeLines<'a>>,
    pub(super) place_defaults: Vec<PlaceDefault<'a>>,
}

/// A default for one place only: `path` leads from the type through members.
#[derive(Debug)]
pub(super) struct PlaceDefault<'a> {
    pub(super) line: usize,
    pub(super) type_name: &'a str,
    pub(super) path: &'a str,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) struct ResourceLines<'a> {
    pub(super) line: usize,
    pub(super) group_version: GroupVersion,
    pub(super) plural: &'a str,
    pub(super) namespaced: bool,
    pub(super) kind: &'a str,
    pub(super) singular: &'a str,
    pub(super) short_names: &'a str,
    pub(super) categories: &'a str,
    pub(super) verbs: &'a str,
    /// Name, verbs and kind.
    pub(super) subresources: Vec<(&'a str, &'a str, GroupVersionKind)>,
}

#[derive(Debug)]
pub(super) struct TypeLines<'a> {
    pub(super) line: usize,
    pub(super) name: &'a str,
    pub(super) kind: TypeKind,
    pub(super) atomic: bool,
    /// The keyword of a type that is no struct.
    pub(super) scalar: Option<&'a str>,
    pub(super) fields: Vec<FieldLine<'a>>,
}

#[derive(Debug, Default)]
pub(super) struct FieldLine<'a> {
    pub(super) line: usize,
    pub(super) name: &'a str,
    pub(super) required: bool,
    /// `string`, `[Part]`, `{quantity}`, ...
    pub(super) expression: &'a str,
    pub(super) format: Option<SmolStr>,
    pub(super) allowed: Vec<Value>,
    pub(super) attributes: Attributes,
    pub(super) placing: Option<Placing>,
}

/// Where a field stands in protobuf.
#[derive(Debug)]
pub(super) struct Placing {
    /// The field's number, behind those of the messages it is inlined from.
    pub(super) numbers: Vec<u32>,
    pub(super) presence: Presence,
}

/// What a field says about the place itself, whatever type stands there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Attributes {
    pub(super) list_type: ListType,
    pub(super) list_map_keys: Vec<SmolStr>,
    /// Overrules what the type says.
    pub(super) atomic: Option<bool>,
    pub(super) patch: PatchStrategy,
    pub(super) patch_merge_key: Option<SmolStr>,
    pub(super) default: Option<Value>,
}

pub(super) fn broken(line: usize, problem: impl Into<String>) -> TableError {
    TableError { line, problem: problem.into() }
}

impl<'a> Lines<'a> {
    pub(super) fn read(table: &'a str) -> Result<Lines<'a>, TableError> {
        let mut lines = Lines::default();
        // Indented lines belong to the block above them; this remembers which sort it is.
        let mut in_resource = false;
        for (index, text) in table.lines().enumerate() {
            let line = index + 1;
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if let Some(rest) = text.strip_prefix("resource ") {
                in_resource = true;
                lines.resources.push(resource_read(line, rest)?);
            } else if let Some(rest) = text.strip_prefix("type ") {
                in_resource = false;
                lines.types.push(type_read(line, rest)?);
            } else if let Some(rest) = text.strip_prefix("  ") {
                match (in_resource, lines.resources.last_mut(), lines.types.last_mut()) {
                    (true, Some(resource), _) => resource_line_read(line, rest, resource)?,
                    (false, _, Some(own)) => own.fields.push(field_read(line, rest)?),
                    _ => return Err(broken(line, "belongs to no block")),
                }
            } else {
                return Err(broken(line, "is neither a resource nor a type"));
            }
        }
        Ok(lines)
    }

    /// Adds the defaults of a table whose blocks are a type name and, indented, fields with a JSON value.
    pub(super) fn defaults_add(&mut self, defaults: &'a str) -> Result<(), TableError> {
        let by_name: HashMap<&str, usize> =
            self.types.iter().enumerate().map(|(index, own)| (own.name, index)).collect();
        let mut block = None;
        for (index, text) in defaults.lines().enumerate() {
            let line = index + 1;
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let Some(rest) = text.strip_prefix("  ") else {
                let found = by_name.get(text).copied();
                block = Some(found.ok_or_else(|| broken(line, format!("defaults: no type {text}")))?);
                continue;
            };
            let (Some((path, value)), Some(index)) = (rest.split_once(' '), block) else {
                return Err(broken(line, "defaults: a line is a type, or a field of it and a value"));
            };
            let value = Value::parse(value.as_bytes())
                .map_err(|error| broken(line, format!("defaults: {value}: {error}")))?;
            let own = &mut self.types[index];
            if path.contains('.') {
                self.place_defaults.push(PlaceDefault { line, type_name: own.name, path, value });
                continue;
            }
            match own.fields.iter_mut().find(|field| field.name == path) {
                Some(field) => field.attributes.default = Some(value),
                None => return Err(broken(line, format!("defaults: no field {path}"))),
            }
        }
        Ok(())
    }
}

fn resource_read(line: usize, text: &str) -> Result<ResourceLines<'_>, TableError> {
    let mut words = text.split(' ');
    let (Some(group_version), Some(plural), Some(scope)) = (words.next(), words.next(), words.next()) else {
        return Err(broken(line, "a resource has a group version, a name and a scope"));
    };
    let mut resource = ResourceLines {
        line,
        group_version: GroupVersion::parse(group_version)
            .ok_or_else(|| broken(line, format!("no group version: {group_version}")))?,
        plural,
        namespaced: scope == "namespaced",
        kind: "",
        singular: "",
        short_names: "",
        categories: "",
        verbs: "",
        subresources: Vec::new(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("kind", value)) => resource.kind = value,
            Some(("singular", value)) => resource.singular = value,
            Some(("short", value)) => resource.short_names = value,
            Some(("categories", value)) => resource.categories = value,
            _ => return Err(broken(line, format!("unknown word {word}"))),
        }
    }
    Ok(resource)
}

fn resource_line_read<'a>(
    line: usize,
    text: &'a str,
    resource: &mut ResourceLines<'a>,
) -> Result<(), TableError> {
    match text.split(' ').collect::<Vec<_>>()[..] {
        ["verbs", verbs] => resource.verbs = verbs,
        [name, verbs, kind] => {
            let (Some(name), Some(kind)) = (name.strip_prefix('/'), kind.strip_prefix("kind=")) else {
                return Err(broken(line, "a subresource is /name verbs kind=Kind"));
            };
            let kind = match kind.contains('/') {
                true => kind_read(line, kind)?,
                false => resource.group_version.kind(kind),
            };
            resource.subresources.push((name, verbs, kind));
        }
        _ => return Err(broken(line, "neither verbs nor a subresource")),
    }
    Ok(())
}

fn type_read(line: usize, text: &str) -> Result<TypeLines<'_>, TableError> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let mut own =
        TypeLines { line, name, kind: TypeKind::None, atomic: false, scalar: None, fields: Vec::new() };
    if let Some(scalar) = rest.strip_prefix("= ") {
        own.scalar = Some(scalar);
        return Ok(own);
    }
    for word in rest.split(' ').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("kind", "*")) => own.kind = TypeKind::Every,
            Some(("kind", value)) => own.kind = TypeKind::One(kind_read(line, value)?),
            None if word == "atomic" => own.atomic = true,
            _ => return Err(broken(line, format!("unknown word {word}"))),
        }
    }
    Ok(own)
}

fn kind_read(line: usize, text: &str) -> Result<GroupVersionKind, TableError> {
    let (group_version, kind) =
        text.rsplit_once('/').ok_or_else(|| broken(line, format!("no kind: {text}")))?;
    let group_version = GroupVersion::parse(group_version)
        .ok_or_else(|| broken(line, format!("no group version: {group_version}")))?;
    Ok(group_version.kind(kind))
}

fn field_read(line: usize, text: &str) -> Result<FieldLine<'_>, TableError> {
    let (text, default) = match text.split_once(" default=") {
        Some((text, value)) => {
            let value = Value::parse(value.as_bytes())
                .map_err(|error| broken(line, format!("default {value}: {error}")))?;
            (text, Some(value))
        }
        None => (text, None),
    };
    let mut words = text.split(' ');
    let (Some(name), Some(expression)) = (words.next(), words.next()) else {
        return Err(broken(line, "a field has a name and a type"));
    };
    let required = name.ends_with('!');
    let mut field = FieldLine {
        line,
        name: name.trim_end_matches('!'),
        required,
        expression,
        attributes: Attributes { default, ..Attributes::default() },
        ..FieldLine::default()
    };
    for word in words {
        if let Some(placing) = word.strip_prefix('#') {
            field.placing = Some(placing_read(line, placing)?);
            continue;
        }
        let attributes = &mut field.attributes;
        match word.split_once('=') {
            Some(("fmt", value)) => field.format = Some(value.into()),
            Some(("enum", values)) => {
                field.allowed = values.split('|').map(|value| value.replace('_', " ").into()).collect();
            }
            Some(("keys", keys)) => {
                attributes.list_type = ListType::Map;
                attributes.list_map_keys = comma_split(keys);
            }
            Some(("patch", strategies)) => {
                for strategy in strategies.split(',') {
                    match strategy {
                        "merge" => attributes.patch.merge = true,
                        "retainKeys" => attributes.patch.retain_keys = true,
                        "replace" => attributes.patch.replace = true,
                        _ => return Err(broken(line, format!("unknown patch strategy {strategy}"))),
                    }
                }
            }
            Some(("merge-key", key)) => attributes.patch_merge_key = Some(key.into()),
            None if word == "set" => attributes.list_type = ListType::Set,
            None if word == "atomic" => attributes.atomic = Some(true),
            None if word == "granular" => attributes.atomic = Some(false),
            _ => return Err(broken(line, format!("unknown word {word}"))),
        }
    }
    Ok(field)
}

fn placing_read(line: usize, text: &str) -> Result<Placing, TableError> {
    let numbers = text.trim_end_matches(['*', '=']);
    let presence = match &text[numbers.len()..] {
        "*" => Presence::Pointer,
        "*=" => Presence::NullPointer,
        "=" => Presence::Always,
        "" => Presence::OmitEmpty,
        _ => return Err(broken(line, format!("no protobuf presence: #{text}"))),
    };
    let numbers: Result<Vec<u32>, _> = numbers.split('.').map(str::parse).collect();
    let numbers = numbers.map_err(|_| broken(line, format!("no protobuf number: #{text}")))?;
    Ok(Placing { numbers, presence })
}

/// The parts of a comma-separated list; none for an empty text.
pub(super) fn comma_split(text: &str) -> Vec<SmolStr> {
    text.split(',').filter(|part| !part.is_empty()).map(SmolStr::new).collect()
}
