//! Facts that only the Go sources hold: enum values, which fields are written though empty, and how fields stand in
//! protobuf.
//!
//! Both are read line by line. gofmt makes that safe: one field or attribute per line, indented by its depth.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::sources::Sources;

/// (definition name, field) to the allowed values.
pub(crate) type Enums = HashMap<(String, String), Vec<String>>;

/// Enum values by the mangled name of the definition's package (`k8sio_api_core_v1`), its kind and the field.
/// The published specifications leave them out, a running server does not.
pub(crate) fn enums_read(sources: &Sources) -> anyhow::Result<Enums> {
    const FILE: &str = "pkg/generated/openapi/zz_generated.openapi.go";
    let mut enums = Enums::new();
    let (mut definition, mut field) = (String::new(), String::new());
    for line in sources.text(FILE)?.lines() {
        let code = line.trim_start_matches('\t');
        let depth = line.len() - code.len();
        if let Some(rest) = line.strip_prefix("func schema_") {
            definition = rest.split('(').next().unwrap_or_default().to_owned();
        } else if depth == 5 && code.starts_with('"') && code.ends_with(": {") {
            field = code.split('"').nth(1).unwrap_or_default().to_owned();
        } else if let Some(rest) = code.strip_prefix("Enum:") {
            let list = rest.trim().trim_start_matches("[]interface{}{").trim_end_matches("},");
            let values: Vec<String> = serde_json::from_str(&format!("[{list}]"))
                .with_context(|| format!("cannot read the enum of {definition} {field}"))?;
            if values.iter().any(|value| value.contains(['|', '_'])) {
                bail!("the enum of {definition} {field} does not fit the syntax of the table");
            }
            // Words are separated by spaces in the table, so a space inside a value is written `_`.
            let values = values.into_iter().map(|value| value.replace(' ', "_")).collect();
            enums.insert((definition.clone(), field.clone()), values);
        }
    }
    Ok(enums)
}

/// `io.k8s.api.core.v1.Pod` as the generated Go functions spell it: the last four parts of the package.
pub(crate) fn mangled(definition: &str) -> anyhow::Result<String> {
    let (package, kind) = package_split(definition)?;
    let parts: Vec<String> = package.split('/').map(|part| part.replace(['.', '-'], "")).collect();
    Ok(parts[parts.len().saturating_sub(4)..].join("_") + "_" + kind)
}

/// `io.k8s.api.core.v1.Pod` is `Pod` of `k8s.io/api/core/v1`.
fn package_split(definition: &str) -> anyhow::Result<(String, &str)> {
    let rest = definition.strip_prefix("io.k8s.").with_context(|| format!("{definition} is foreign"))?;
    let (package, kind) = rest.rsplit_once('.').with_context(|| format!("{definition} has no package"))?;
    Ok((format!("k8s.io/{}", package.replace('.', "/")), kind))
}

/// The structs of the API packages that were asked for.
pub(crate) struct Structs<'a> {
    sources: &'a Sources,
    packages: HashMap<String, HashMap<String, Struct>>,
}

#[derive(Default)]
struct Struct {
    fields: HashMap<String, Field>,
    /// Structs of the same package whose fields are part of this one, and their number: in protobuf they are a
    /// message of their own.
    inlined: Vec<(String, Option<u32>)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Field {
    pointer: bool,
    omit_empty: bool,
    omit_zero: bool,
    number: Option<u32>,
}

/// How a field stands in protobuf, and what of it Go writes as JSON.
pub(crate) struct Placing {
    /// The field's number, behind those of the messages it is inlined from.
    pub(crate) numbers: Vec<u32>,
    pub(crate) pointer: bool,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
}

impl<'a> Structs<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Structs<'a> {
        Structs { sources, packages: HashMap::new() }
    }

    /// Whether a missing field becomes a zero value in what a server answers: it does when it is no pointer and
    /// its tag does not omit it, and when it is a pointer for which upstream declares that very default.
    pub(crate) fn zero_is_written(&mut self, definition: &str, field: &str) -> anyhow::Result<bool> {
        let mut numbers = Vec::new();
        let found = self
            .find(definition, field, &mut numbers)?
            .with_context(|| format!("no field {field} in the struct of {definition}"))?;
        Ok(found.pointer || !found.omit_empty)
    }

    /// Where a field stands in protobuf; `None` for what stands in the envelope instead: apiVersion and kind.
    pub(crate) fn placing(&mut self, definition: &str, field: &str) -> anyhow::Result<Option<Placing>> {
        let mut numbers = Vec::new();
        let Some(found) = self.find(definition, field, &mut numbers)? else {
            if matches!(field, "apiVersion" | "kind") {
                return Ok(None);
            }
            bail!("no field {field} in the struct of {definition}");
        };
        let Field { pointer, omit_empty, omit_zero, number } = found;
        numbers.extend(number);
        match number {
            Some(_) => Ok(Some(Placing { numbers, pointer, omit_empty, omit_zero })),
            // The fields of TypeMeta have numbers, its place in other structs has none.
            None => bail!("{field} of {definition} has no number"),
        }
    }

    fn find(
        &mut self,
        definition: &str,
        field: &str,
        numbers: &mut Vec<u32>,
    ) -> anyhow::Result<Option<Field>> {
        let (package, kind) = package_split(definition)?;
        if !self.packages.contains_key(&package) {
            let structs = package_read(self.sources, &package)?;
            self.packages.insert(package.clone(), structs);
        }
        Ok(field_find(&self.packages[&package], kind, field, numbers))
    }
}

fn field_find(
    structs: &HashMap<String, Struct>,
    kind: &str,
    field: &str,
    numbers: &mut Vec<u32>,
) -> Option<Field> {
    let own = structs.get(kind)?;
    if let Some(found) = own.fields.get(field) {
        return Some(*found);
    }
    // What is inlined without a number (TypeMeta) is not in the message at all.
    own.inlined.iter().find_map(|(inlined, number)| {
        numbers.push((*number)?);
        let found = field_find(structs, inlined, field, numbers);
        if found.is_none() {
            numbers.pop();
        }
        found
    })
}

fn package_read(sources: &Sources, package: &str) -> anyhow::Result<HashMap<String, Struct>> {
    let directory = sources
        .api_modules
        .iter()
        .find_map(|(module, directory)| {
            Some(directory.join(package.strip_prefix(module)?.strip_prefix('/')?))
        })
        .with_context(|| format!("no module has {package}"))?;
    let mut structs = HashMap::new();
    let mut borrowed = Vec::new();
    for entry in std::fs::read_dir(&directory).with_context(|| format!("cannot list {package}"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("types") && name.ends_with(".go") && !name.ends_with("_test.go") {
            structs_read(&path, &mut structs)?;
            let text = std::fs::read_to_string(&path)?;
            borrowed.extend(text.lines().filter_map(alias).map(str::to_owned));
        }
    }
    // A beta version has some structs from the stable one.
    if let Some((group, version)) = package.rsplit_once('/')
        && version != "v1"
        && !borrowed.is_empty()
    {
        let mut stable = package_read(sources, &format!("{group}/v1"))?;
        structs.extend(borrowed.into_iter().filter_map(|name| stable.remove_entry(&name)));
    }
    Ok(structs)
}

/// `type Rule = v1.Rule`
fn alias(line: &str) -> Option<&str> {
    let (name, other) = line.strip_prefix("type ")?.split_once(" = v1.")?;
    (name == other).then_some(name)
}

fn structs_read(path: &Path, structs: &mut HashMap<String, Struct>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut current: Option<(String, Struct)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("type ") {
            let name = rest.strip_suffix(" struct {").map(str::to_owned);
            current = name.map(|name| (name, Struct::default()));
        } else if line == "}" {
            structs.extend(current.take());
        } else if let Some((_, own)) = &mut current
            && let Some((declaration, tag)) = line.split_once("`json:\"")
        {
            let number =
                tag.split_once("protobuf:\"").and_then(|(_, tag)| tag.split(',').nth(1)?.parse().ok());
            let tag = tag.split('"').next().unwrap_or_default();
            let (json_name, options) = tag.split_once(',').unwrap_or((tag, ""));
            let words: Vec<&str> = declaration.split_whitespace().collect();
            match words[..] {
                [embedded] if json_name.is_empty() => own.inlined.push((embedded.to_owned(), number)),
                [go_type] | [_, go_type, ..] => {
                    let field = Field {
                        pointer: go_type.starts_with('*'),
                        omit_empty: options.split(',').any(|option| option.starts_with("omit")),
                        omit_zero: options.split(',').any(|option| option == "omitzero"),
                        number,
                    };
                    own.fields.insert(json_name.to_owned(), field);
                }
                _ => bail!("cannot read the field {line:?} of {}", path.display()),
            }
        }
    }
    Ok(())
}
