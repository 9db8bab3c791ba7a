//! What built-in types and their fields are for, in our own words: the prose of `kubectl explain`.
//!
//! `descriptions.txt` is written by hand, and the texts are ours, never upstream's. It is read on first use, which is
//! the first OpenAPI document, and the texts stay where the program has them. A mistake in it is a bug of this
//! program: reading panics with the line, and tests compare its names with the table.
//!
//! The syntax, a line each:
//!
//! ```text
//! package io.k8s.api.core.v1                of the types that follow
//! type Pod: What it is.
//!   spec: What the field means, its default, what it goes with.
//! type ServicePort like Port: What it is.   fields that are not named here have the texts of the other type
//! ```
//!
//! Lists need no lines: their texts are made here. So are those of `apiVersion`, `kind` and `metadata`, unless the
//! file has others. The conformance suite looks for the opening words of these and of `creationTimestamp`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use super::table::TypeKind;

pub(super) const TEXT: &str = include_str!("descriptions.txt");

/// Members of every object.
pub(super) const API_VERSION: &str =
    "APIVersion defines which version of the schema this object follows, as group/version.";
pub(super) const KIND: &str = "Kind names the sort of object this is, in CamelCase.";
pub(super) const METADATA: &str = "Standard object's metadata.";
pub(super) const LIST_METADATA: &str = "Standard list metadata.";
pub(super) const LIST_ITEMS: &str = "The objects that were found.";

/// How many types a type may take the texts of, one after the other.
const LIKE_LEN_MAX: usize = 4;

/// The texts this program was built with.
pub(super) fn builtin() -> &'static Descriptions<'static> {
    static BUILTIN: LazyLock<Descriptions<'static>> = LazyLock::new(|| {
        Descriptions::read(TEXT).unwrap_or_else(|error| panic!("descriptions.txt: {error}"))
    });
    &BUILTIN
}

/// Texts by package and type.
#[derive(Debug, Default)]
pub(super) struct Descriptions<'a> {
    packages: HashMap<&'a str, HashMap<&'a str, Described<'a>>>,
}

#[derive(Debug)]
struct Described<'a> {
    text: &'a str,
    like: Option<&'a str>,
    fields: Vec<(&'a str, &'a str)>,
}

/// A line that breaks the syntax above.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {problem}")]
pub(super) struct DescriptionError {
    line: usize,
    problem: &'static str,
}

impl<'a> Descriptions<'a> {
    fn read(text: &'a str) -> Result<Descriptions<'a>, DescriptionError> {
        let mut read = Descriptions::default();
        let mut package = None;
        let mut name = "";
        for (index, line) in text.lines().enumerate() {
            let broken = |problem| DescriptionError { line: index + 1, problem };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(of_types) = line.strip_prefix("package ") {
                package = Some(of_types);
                name = "";
                continue;
            }
            let types = package.map(|package| read.packages.entry(package).or_default());
            let types = types.ok_or_else(|| broken("belongs to no package"))?;
            let (own, text) = line.split_once(": ").ok_or_else(|| broken("has no text"))?;
            if text.trim() != text || text.is_empty() {
                return Err(broken("the text is empty or has spaces around it"));
            }
            if let Some(own) = own.strip_prefix("type ") {
                let (own, like) = match own.split_once(" like ") {
                    Some((own, like)) => (own, Some(like)),
                    None => (own, None),
                };
                name = own;
                if types.insert(name, Described { text, like, fields: Vec::new() }).is_some() {
                    return Err(broken("the type stands twice"));
                }
            } else if let Some(own) = own.strip_prefix("  ") {
                let described = types.get_mut(name).ok_or_else(|| broken("belongs to no type"))?;
                if described.fields.iter().any(|(known, _)| *known == own) {
                    return Err(broken("the field stands twice"));
                }
                described.fields.push((own, text));
            } else {
                return Err(broken("is neither a type nor a field"));
            }
        }
        Ok(read)
    }

    fn find(&self, package: &str, name: &str) -> Option<&Described<'a>> {
        self.packages.get(package)?.get(name)
    }

    /// What a type is, by its definition name.
    pub(super) fn type_text(&self, type_name: &str, kind: Option<&TypeKind>) -> Option<Cow<'a, str>> {
        let (package, name) = type_name.rsplit_once('.')?;
        match (self.find(package, name), name.strip_suffix("List")) {
            (Some(own), _) => Some(own.text.into()),
            (None, Some(of)) if is_kind(kind) => Some(format!("A list of {of} objects.").into()),
            _ => None,
        }
    }

    /// What a field of a type means.
    pub(super) fn field_text(
        &self,
        type_name: &str,
        kind: Option<&TypeKind>,
        field: &str,
    ) -> Option<&'a str> {
        let (mut package, mut name) = type_name.rsplit_once('.')?;
        let is_list = name.ends_with("List");
        for _ in 0..LIKE_LEN_MAX {
            let Some(own) = self.find(package, name) else { break };
            if let Some((_, text)) = own.fields.iter().find(|(known, _)| *known == field) {
                return Some(text);
            }
            let Some(like) = own.like else { break };
            (package, name) = like.rsplit_once('.').unwrap_or((package, like));
        }
        match field {
            _ if !is_kind(kind) => None,
            "apiVersion" => Some(API_VERSION),
            "kind" => Some(KIND),
            "metadata" if is_list => Some(LIST_METADATA),
            "metadata" => Some(METADATA),
            "items" if is_list => Some(LIST_ITEMS),
            _ => None,
        }
    }
}

fn is_kind(kind: Option<&TypeKind>) -> bool {
    !matches!(kind, None | Some(TypeKind::None))
}

#[cfg(test)]
mod tests;
