//! YAML as API bodies use it: 1.1 booleans, bounded. Of several documents the first counts, and of a key that stands
//! twice the last. Most of what clients call YAML is JSON, which is read as such.

use std::collections::HashSet;
use std::fmt;

use polder_model::{Status, Value};
use serde::Deserialize;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Spanned};

/// More repeated keys than this are not named: a hostile document gets a bounded report.
const REPEATED_MAX: usize = 32;
/// So much of a repeated key is shown.
const KEY_LEN_MAX: usize = 256;

/// A document, and what a strict reader says about it, a line for each key that stood twice.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) value: Value,
    pub(crate) repeated: Vec<String>,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, Status> {
    if let Some(value) = json(bytes) {
        return Ok(Parsed { value, repeated: Vec::new() });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| Status::bad_request(error.to_string()))?;
    let text = first_document(text);
    let failed = |error: Error| Status::bad_request(format!("error converting YAML to JSON: {error}"));
    match serde_saphyr::from_str(text) {
        Ok(value) => Ok(Parsed { value, repeated: Vec::new() }),
        Err(error) if matches!(error.without_snippet(), Error::DuplicateMappingKey { .. }) => {
            let options = || serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
            let value = serde_saphyr::from_str_with_options(text, options()).map_err(failed)?;
            let tree: Tree = serde_saphyr::from_str_with_options(text, options()).map_err(failed)?;
            let mut repeated = Vec::new();
            tree.note_repeated(&mut repeated);
            Ok(Parsed { value, repeated })
        }
        Err(error) => Err(failed(error)),
    }
}

/// A document that is JSON: kubectl and client-go apply nothing else, and it takes a tenth of the time. What a strict reader
/// has something to say about is left to the other reader, which knows lines.
fn json(bytes: &[u8]) -> Option<Value> {
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    let parsed = polder_model::value::parse(bytes).ok()?;
    parsed.duplicates.is_empty().then_some(parsed.value)
}

/// What is needed of a document to tell which keys stand twice, and where.
enum Tree {
    Map(Vec<(String, Spanned<Tree>)>),
    List(Vec<Tree>),
    Leaf,
}

impl Tree {
    fn note_repeated(&self, repeated: &mut Vec<String>) {
        match self {
            Tree::Map(entries) => {
                let mut known = HashSet::new();
                for (key, value) in entries {
                    value.value.note_repeated(repeated);
                    if !known.insert(key) && repeated.len() < REPEATED_MAX {
                        let end = key.char_indices().nth(KEY_LEN_MAX).map_or(key.len(), |(end, _)| end);
                        let line = value.referenced.line();
                        repeated.push(format!("line {line}: key {:?} already set in map", &key[..end]));
                    }
                }
            }
            Tree::List(items) => items.iter().for_each(|item| item.note_repeated(repeated)),
            Tree::Leaf => {}
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML document")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Tree::Map(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Tree, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Tree::List(items))
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Tree::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Tree::Leaf)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_str<E>(self, _: &str) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Leaf)
    }
}

/// A stream of documents up to the mark that begins the second. Nothing else can stand at the start of a line so.
fn first_document(text: &str) -> &str {
    let mut begun = false;
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        let is_mark =
            line.strip_prefix("---").is_some_and(|rest| rest.trim_start() != rest || rest.is_empty());
        if is_mark && begun {
            return &text[..end];
        }
        let content = line.trim();
        begun |= !content.is_empty() && !content.starts_with(['#', '%']) && (!is_mark || content.len() > 3);
        end += line.len();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_document_counts() {
        let rows = [
            ("a: 1\n", "a: 1\n"),
            ("---\na: 1\n", "---\na: 1\n"),
            ("# note\n---\na: 1\n---\nb: 2\n", "# note\n---\na: 1\n"),
            ("a: 1\n---", "a: 1\n"),
            ("--- {a: 1}\n--- {b: 2}\n", "--- {a: 1}\n"),
            ("a: |\n  x\n  ---\n  y\n", "a: |\n  x\n  ---\n  y\n"),
            ("a: 1\n---b: 2\n", "a: 1\n---b: 2\n"),
            ("", ""),
        ];
        for (text, expected) in rows {
            assert_eq!(first_document(text), expected, "{text:?}");
        }
    }

    #[test]
    fn of_a_repeated_key_the_last_counts_and_a_strict_reader_is_told() {
        let check = |text: &str, value: &str, repeated: &[&str]| {
            let parsed = parse(text.as_bytes()).unwrap();
            assert_eq!(parsed.value, polder_model::value::parse(value.as_bytes()).unwrap().value, "{text:?}");
            assert_eq!(parsed.repeated, repeated, "{text:?}");
        };
        check("a: 1\nb: [2]\n", r#"{"a": 1, "b": [2]}"#, &[]);
        check("\na: 1\na: null\n", r#"{"a": null}"#, &["line 3: key \"a\" already set in map"]);
        // Inner ones first; a value that is no scalar stands where it begins.
        check(
            "a:\n  - b: 1\n    b: 2\na:\n  c: 1\n",
            r#"{"a": {"c": 1}}"#,
            &["line 3: key \"b\" already set in map", "line 5: key \"a\" already set in map"],
        );
        check(r#"{"a": "x", "a": true}"#, r#"{"a": true}"#, &["line 1: key \"a\" already set in map"]);
    }

    #[test]
    fn json_is_read_as_json() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(json(text.as_bytes()).map(|value| value.to_string()).as_deref(), expected, "{text:?}");
            // Both readers read the same.
            if expected.is_some() {
                let value = serde_saphyr::from_str::<Value>(text).unwrap();
                assert_eq!(value, parse(text.as_bytes()).unwrap().value);
            }
        };
        check(
            " \n{\"a\": [1, 1.5, 1e3, true, null, \"on\", \"\\u00e9\\n\"]}\n",
            Some(r#"{"a":[1,1.5,1000,true,null,"on","é\n"]}"#),
        );
        check(
            r#"{"<<": {"a": 1}, "b": 18446744073709551615}"#,
            Some(r#"{"<<":{"a":1},"b":1.8446744073709552e19}"#),
        );
        check("{}", Some("{}"));
        for text in [
            "",
            "a: 1",
            "{a: 1}",
            "{\"a\": on}",
            r#"{"a": 1, "a": 2}"#,
            "{\"a\": 1}\n---\n{}",
            "[1]",
            "\u{feff}{}",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn reports_are_bounded() {
        let text = format!("{}: 1\n", "k".repeat(1000)).repeat(100);
        let repeated = parse(text.as_bytes()).unwrap().repeated;
        assert_eq!(repeated.len(), REPEATED_MAX);
        assert!(repeated.iter().all(|line| line.len() < 2 * KEY_LEN_MAX));
        parse(format!("a: 1\na: {}", "[".repeat(100_000)).as_bytes()).unwrap_err();
    }
}
