//! What a schema does to an object that is read: which members stay, and which defaults come.
//!
//! [`reading`] writes that down as bytes, and leaves out everything else (descriptions, value checks). Two schemas
//! that give the same bytes treat every object the same way, so an object that went through one of them comes out
//! of the other unchanged.

use polder_model::Value;

use super::default::{DefaultsTooLarge, apply_defaults, apply_defaults_within, prune_nulls};
use super::prune::prune;
use super::{Kind, NodeRef, Schema};

/// How much of a schema counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Which members stay, and where `null` does.
    Members,
    /// The same, and what defaults bring.
    Whole,
}

/// Hands out, piece by piece, what pruning and (if asked) defaulting look at in a schema.
pub fn reading(schema: &Schema, extent: Extent, out: &mut dyn FnMut(&[u8])) {
    describe(schema.node(), extent, out);
}

/// What defaults may add to an object that is only read: roughly bytes of JSON. Far less than when it is written,
/// because one request may read many.
const READ_ADDED_MAX: usize = 64 << 10;

/// Brings an object that was stored under another schema into the form this one gives, for a reader. Defaults that
/// would make it much larger are left out: it must stay readable, or nobody could mend it.
pub fn complete_for_reading(schema: &Schema, value: &mut Value) {
    prune(schema.node(), value, &mut Vec::new());
    apply_defaults_within(schema.node(), value, READ_ADDED_MAX).ok();
}

/// The same for an object that is written.
pub fn complete(schema: &Schema, value: &mut Value) -> Result<(), DefaultsTooLarge> {
    prune(schema.node(), value, &mut Vec::new());
    apply_defaults(schema.node(), value)
}

/// Drops what this schema does not know from an object that came from another version.
pub fn narrow(schema: &Schema, value: &mut Value) {
    prune(schema.node(), value, &mut Vec::new());
    prune_nulls(schema.node(), value);
}

/// Every part says how long it is or where it ends, so that no two schemas run into the same bytes. The depth is
/// bounded by that of the document a schema was written in.
fn describe(node: NodeRef<'_>, extent: Extent, out: &mut dyn FnMut(&[u8])) {
    let own = node.get();
    let keeps_null = own.nullable || own.default.is_some();
    let flags = [own.preserve_unknown, own.kind == Kind::Any, own.opaque, own.embedded_resource, keeps_null];
    out(&flags.map(u8::from));
    out(&(own.properties.len() as u64).to_le_bytes());
    for (name, id) in &own.properties {
        text(name.as_bytes(), out);
        describe(node.at(*id), extent, out);
    }
    for below in [own.additional, own.items] {
        out(&[u8::from(below.is_some())]);
        if let Some(id) = below {
            describe(node.at(id), extent, out);
        }
    }
    if extent == Extent::Whole {
        out(&[u8::from(own.nullable), u8::from(own.default.is_some())]);
        if let Some(default) = &own.default {
            text(&default.to_vec(), out);
        }
    }
}

fn text(bytes: &[u8], out: &mut dyn FnMut(&[u8])) {
    out(&(bytes.len() as u64).to_le_bytes());
    out(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::structural::tests::compiled;

    fn described(properties: &str, extent: Extent) -> Vec<u8> {
        let schema = compiled(&format!(r#"{{"type":"object","properties":{{{properties}}}}}"#));
        let mut bytes = Vec::new();
        reading(&schema, extent, &mut |piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Whether two schemas keep the same members, and whether they read alike altogether.
    #[track_caller]
    fn check(one: &str, other: &str, members: bool, whole: bool) {
        for (extent, alike) in [(Extent::Members, members), (Extent::Whole, whole)] {
            assert_eq!(described(one, extent) == described(other, extent), alike, "{extent:?} {one} {other}");
        }
    }

    #[test]
    fn only_what_changes_a_read_counts() {
        let plain = r#""a":{"type":"string"}"#;
        check(plain, r#""a":{"type":"string","description":"d","maxLength":3,"enum":["x"]}"#, true, true);
        check(plain, r#""a":{"type":"integer"}"#, true, true);
        check(plain, r#""b":{"type":"string"}"#, false, false);
        check(plain, r#""a":{"type":"string"},"b":{"type":"string"}"#, false, false);
        // With a default `null` is replaced instead of dropped.
        check(plain, r#""a":{"type":"string","default":"x"}"#, false, false);
        check(
            r#""a":{"type":"string","default":"x"}"#,
            r#""a":{"type":"string","default":"y"}"#,
            true,
            false,
        );
        check(plain, r#""a":{"type":"string","nullable":true}"#, false, false);
        check(
            r#""a":{"type":"string","default":"x"}"#,
            r#""a":{"type":"string","default":"x","nullable":true}"#,
            true,
            false,
        );
        let (object, open) = (
            r#""a":{"type":"object"}"#,
            r#""a":{"type":"object","x-kubernetes-preserve-unknown-fields":true}"#,
        );
        check(object, open, false, false);
        check(object, r#""a":{"type":"object","additionalProperties":{"type":"string"}}"#, false, false);
        // What is a member's member is not a member.
        check(
            r#""a":{"type":"object","properties":{"b":{"type":"string"}}}"#,
            r#""a":{"type":"object"},"b":{"type":"string"}"#,
            false,
            false,
        );
    }

    #[test]
    fn what_a_read_adds_is_bounded() {
        let items = vec!["{}"; 1000].join(",");
        let schema = compiled(&format!(
            r#"{{"type":"object","properties":{{"a":{{"type":"array","default":[{items}],"items":{{"type":"object",
                "properties":{{"b":{{"type":"string","default":"{}"}}}}}}}}}}}}"#,
            "x".repeat(100)
        ));
        let (mut read, mut written) = (Value::parse(b"{}").unwrap(), Value::parse(b"{}").unwrap());
        complete_for_reading(&schema, &mut read);
        complete(&schema, &mut written).unwrap();
        assert!(read.to_vec().len() < 2 * READ_ADDED_MAX, "{}", read.to_vec().len());
        assert_eq!(read.array_at(&["a"]).len(), 1000);
        assert!(written.to_vec().len() > 100_000);
    }

    #[test]
    fn what_is_complete_stays_as_it_is() {
        let schema = compiled(
            r#"{"type":"object","properties":{"a":{"type":"string","default":"x"},"b":{"type":"object",
                "default":{},"properties":{"c":{"type":"integer","default":3},"n":{"type":"string"}}}}}"#,
        );
        let mut value = Value::parse(br#"{"a":null,"b":{"n":null,"gone":1},"gone":2}"#).unwrap();
        complete(&schema, &mut value).unwrap();
        assert_eq!(value.to_string(), r#"{"a":"x","b":{"c":3}}"#);
        let before = value.clone();
        complete(&schema, &mut value).unwrap();
        narrow(&schema, &mut value);
        assert_eq!(value, before);
    }
}
