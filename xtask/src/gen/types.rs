//! Types and their fields, from upstream's OpenAPI documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use serde_json::Value;

use super::go::{self, Enums, Structs};
use super::resources::{Resource, group_version, is_served};
use super::sources::Sources;

/// Types that requests and answers use whatever the resource is.
const ALWAYS: [&str; 3] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
];

/// Definitions whose JSON form is not what their published schema says, or whose schema says nothing.
const SCALARS: [(&str, &str); 11] = [
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "quantity"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "int-or-string"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "micro-time"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "raw"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "raw"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "raw"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "any"),
];

pub(crate) struct Types<'a> {
    sources: &'a Sources,
    definitions: BTreeMap<String, Value>,
    enums: Enums,
}

impl<'a> Types<'a> {
    /// The v3 documents hold what the v2 document drops (defaults), spread over one file per group version.
    pub(crate) fn read(sources: &'a Sources) -> anyhow::Result<Types<'a>> {
        const FOLDER: &str = "api/openapi-spec/v3";
        let mut definitions = BTreeMap::new();
        for entry in std::fs::read_dir(sources.kubernetes.join(FOLDER)).context("no v3 documents")? {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let Some(group_version) = name.strip_suffix("_openapi.json") else { continue };
            // `api__v1`, or `apis__apps__v1`.
            let Some((group, version)) = group_version.rsplit_once("__") else { continue };
            let group = group.strip_prefix("apis__").unwrap_or_default();
            if !version.starts_with('v') || !is_served(group, version) {
                continue;
            }
            let mut document = sources.json(&format!("{FOLDER}/{name}"))?;
            if let Value::Object(schemas) = document["components"]["schemas"].take() {
                definitions.extend(schemas);
            }
        }
        Ok(Types { sources, definitions, enums: go::enums_read(sources)? })
    }

    /// Writes the types that objects of these resources consist of, sorted by name.
    pub(crate) fn write_reachable(&self, resources: &[Resource], out: &mut String) -> anyhow::Result<()> {
        let mut structs = Structs::new(self.sources);
        for name in self.reachable(resources)? {
            self.write_type(&name, &mut structs, out)?;
        }
        Ok(())
    }

    fn reachable(&self, resources: &[Resource]) -> anyhow::Result<BTreeSet<String>> {
        let by_kind: BTreeMap<String, &str> = self
            .definitions
            .iter()
            .filter_map(|(name, schema)| Some((own_kind(schema)?, name.as_str())))
            .collect();
        let mut open: Vec<String> = ALWAYS.map(str::to_owned).into();
        for resource in resources {
            let group_version_own = group_version(&resource.group, &resource.version);
            let kind = format!("{group_version_own}/{}", resource.kind);
            open.push((*by_kind.get(&kind).with_context(|| format!("no definition of {kind}"))?).to_owned());
            // Review kinds have no list; options of connect subresources have no definition.
            open.extend(by_kind.get(&format!("{kind}List")).map(|name| (*name).to_owned()));
            for subresource in &resource.subresources {
                let group_version_own = group_version(&subresource.group, &subresource.version);
                let kind = format!("{group_version_own}/{}", subresource.kind);
                open.extend(by_kind.get(&kind).map(|name| (*name).to_owned()));
            }
        }
        let mut found = BTreeSet::new();
        while let Some(name) = open.pop() {
            if !found.contains(&name) {
                let schema = self.definitions.get(&name).with_context(|| format!("{name} is not defined"))?;
                references(schema, &mut open);
                found.insert(name);
            }
        }
        Ok(found)
    }

    fn write_type(&self, name: &str, structs: &mut Structs<'_>, out: &mut String) -> anyhow::Result<()> {
        let schema = &self.definitions[name];
        if let Some((_, scalar)) = SCALARS.iter().find(|(own, _)| *own == name) {
            return Ok(writeln!(out, "type {name} = {scalar}\n")?);
        }
        if schema["type"] != "object" {
            bail!("{name} is neither an object nor a known scalar");
        }
        write!(out, "type {name}")?;
        match schema["x-kubernetes-group-version-kind"].as_array() {
            // Registered in every group version, such as DeleteOptions.
            Some(kinds) if kinds.len() > 1 => write!(out, " kind=*")?,
            _ => {
                if let Some(kind) = own_kind(schema) {
                    write!(out, " kind={kind}")?;
                }
            }
        }
        if schema["x-kubernetes-map-type"] == "atomic" {
            write!(out, " atomic")?;
        }
        writeln!(out)?;
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let required =
                schema["required"].as_array().is_some_and(|names| names.iter().any(|own| own == field));
            self.write_field(name, field, property, required, structs, out)
                .with_context(|| format!("cannot write {name} {field}"))?;
        }
        Ok(writeln!(out)?)
    }

    fn write_field(
        &self,
        name: &str,
        field: &str,
        property: &Value,
        required: bool,
        structs: &mut Structs<'_>,
        out: &mut String,
    ) -> anyhow::Result<()> {
        let mark = if required { "!" } else { "" };
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        write!(out, "  {field}{mark} {}", type_expression(property, package)?)?;
        if let Some(placing) = structs.placing(name, field)? {
            let numbers: Vec<String> = placing.numbers.iter().map(u32::to_string).collect();
            // Go never finds a struct empty, whatever the tag says.
            let omitted = placing.omit_zero || (placing.omit_empty && reference(property).is_none());
            let mark = match (placing.pointer, omitted) {
                (true, _) if placing.omit_empty => "*",
                (true, _) => "*=",
                (false, false) => "=",
                (false, true) => "",
            };
            write!(out, " #{}{mark}", numbers.join("."))?;
        }
        let scalar = innermost(property);
        if let Some(format) = scalar["format"].as_str().filter(|format| *format != "byte") {
            write!(out, " fmt={format}")?;
        }
        if let Some(values) = self.enums.get(&(go::mangled(name)?, field.to_owned())) {
            write!(out, " enum={}", values.join("|"))?;
        }
        match property["x-kubernetes-list-type"].as_str() {
            Some("map") => write!(out, " keys={}", comma_list(&property["x-kubernetes-list-map-keys"]))?,
            Some("set") => write!(out, " set")?,
            // A list that says nothing is atomic too.
            Some("atomic") | None => {}
            Some(other) => bail!("unknown list type {other}"),
        }
        match property["x-kubernetes-map-type"].as_str() {
            // `granular` overrules a type that is atomic.
            Some(merging @ ("atomic" | "granular")) => write!(out, " {merging}")?,
            None => {}
            Some(other) => bail!("unknown map type {other}"),
        }
        if let Some(strategy) = property["x-kubernetes-patch-strategy"].as_str() {
            write!(out, " patch={strategy}")?;
        }
        if let Some(key) = property["x-kubernetes-patch-merge-key"].as_str() {
            write!(out, " merge-key={key}")?;
        }
        if let Some(default) = property.get("default") {
            // A struct held by value is always written; other zero values only where Go would write them.
            let zero = matches!(default.to_string().as_str(), "\"\"" | "0" | "false");
            if !zero || structs.zero_is_written(name, field)? {
                write!(out, " default={default}")?;
            }
        }
        Ok(writeln!(out)?)
    }
}

/// `apps/v1/Deployment`, for definitions that are a kind of exactly one group version.
fn own_kind(schema: &Value) -> Option<String> {
    match schema["x-kubernetes-group-version-kind"].as_array()?.as_slice() {
        [kind] => {
            let group_version = group_version(kind["group"].as_str()?, kind["version"].as_str()?);
            Some(format!("{group_version}/{}", kind["kind"].as_str()?))
        }
        _ => None,
    }
}

/// `[string]` is a list, `{string}` a map; a type of the same package goes by its last name.
fn type_expression(schema: &Value, package: &str) -> anyhow::Result<String> {
    if let Some(name) = reference(schema) {
        if let Some((_, scalar)) =
            SCALARS.iter().find(|(own, scalar)| *own == name && !matches!(*scalar, "raw" | "any"))
        {
            return Ok((*scalar).to_owned());
        }
        let local = name.strip_prefix(package).and_then(|rest| rest.strip_prefix('.'));
        return Ok(local.filter(|local| !local.contains('.')).unwrap_or(name).to_owned());
    }
    Ok(match schema["type"].as_str() {
        Some("string") if schema["format"] == "byte" => "bytes".to_owned(),
        Some(scalar @ ("string" | "integer" | "number" | "boolean")) => scalar.to_owned(),
        Some("array") => format!("[{}]", type_expression(&schema["items"], package)?),
        Some("object") => format!("{{{}}}", type_expression(&schema["additionalProperties"], package)?),
        _ => bail!("no type expression for {schema}"),
    })
}

/// The definition a schema points at, be it with attributes of its own (`allOf`) or without.
fn reference(schema: &Value) -> Option<&str> {
    let pointer = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str())?;
    pointer.strip_prefix("#/components/schemas/")
}

fn innermost(schema: &Value) -> &Value {
    ["items", "additionalProperties"].iter().find_map(|key| schema.get(key)).map_or(schema, innermost)
}

fn references(schema: &Value, found: &mut Vec<String>) {
    found.extend(reference(schema).map(str::to_owned));
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(key) {
            references(inner, found);
        }
    }
    for property in schema["properties"].as_object().into_iter().flat_map(|properties| properties.values()) {
        references(property, found);
    }
}

fn comma_list(value: &Value) -> String {
    let names: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    names.join(",")
}
