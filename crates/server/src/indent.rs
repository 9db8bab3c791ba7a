//! Compact JSON, indented: two spaces a level, as Go does it, or as YAML; and how long that will be.
//!
//! A few bytes can become a great many: each line of a deep document begins with its depth in spaces. So the length is
//! known before anything is made, and beyond a bound there is no indentation: beauty is no right. Indented JSON is made
//! from text, without parsing it. JSON that is not indented is YAML too.
//!
//! **Invariant.** What comes in is JSON as we write it: no space between its parts.

use polder_model::Value;

use crate::answer::Style;
use crate::negotiate::Media;

/// What would be longer than this when indented is not.
pub(crate) const INDENTED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A part of an indented document.
enum Piece<'a> {
    Text(&'a [u8]),
    /// A new line, so deep.
    Line(usize),
}

/// What a document takes in a style that indents; `None` if it is not to be indented.
pub(crate) fn indented_len(json: &[u8], style: Style, depth: usize) -> Option<usize> {
    if style.media == Media::Protobuf || (style.media == Media::Json && !style.pretty) {
        return None;
    }
    let (mut len, mut deep) = (0usize, depth);
    walk(json, depth, |piece| match piece {
        Piece::Text(text) => {
            len += text.len();
            if style.media == Media::Yaml {
                // The lines of a text are lines of the document.
                len += text.windows(2).filter(|pair| pair == b"\\n").count() * deep * 2;
            }
        }
        Piece::Line(depth) => {
            len += 1 + depth * 2;
            deep = depth;
        }
    });
    (len <= INDENTED_BYTES_MAX).then_some(len)
}

/// What a document takes in a style, without its final line break.
pub(crate) fn styled_len(json: &[u8], style: Style) -> usize {
    indented_len(json, style, 0).unwrap_or(json.len())
}

/// Appends JSON with two spaces a level. `depth` is where it begins, `len` what it takes.
pub(crate) fn write_indented(json: &[u8], depth: usize, len: usize, out: &mut Vec<u8>) {
    out.reserve_exact(len);
    walk(json, depth, |piece| match piece {
        Piece::Text(text) => out.extend_from_slice(text),
        Piece::Line(depth) => {
            out.push(b'\n');
            out.extend(std::iter::repeat_n(b' ', depth * 2));
        }
    });
}

/// A document as YAML, with its final line break.
pub(crate) fn yaml(json: &[u8]) -> Vec<u8> {
    // A document we wrote ourselves parses, and can be written.
    let value = Value::parse(json).unwrap_or_default();
    serde_saphyr::to_string(&value).unwrap_or_default().into_bytes()
}

fn walk<'a>(json: &'a [u8], mut depth: usize, mut put: impl FnMut(Piece<'a>)) {
    let (mut from, mut at) = (0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b'{' | b'[' if matches!(json.get(at), Some(b'}' | b']')) => at += 1,
            b'{' | b'[' => {
                depth += 1;
                put(Piece::Text(&json[from..at]));
                put(Piece::Line(depth));
                from = at;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                put(Piece::Text(&json[from..at - 1]));
                put(Piece::Line(depth));
                from = at - 1;
            }
            b',' => {
                put(Piece::Text(&json[from..at]));
                put(Piece::Line(depth));
                from = at;
            }
            b':' => {
                put(Piece::Text(&json[from..at]));
                put(Piece::Text(b" "));
                from = at;
            }
            _ => {}
        }
    }
    put(Piece::Text(&json[from..]));
}

/// Where a string ends that begins before `at`.
fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    const PRETTY: Style = Style { media: Media::Json, pretty: true, gzip: false };
    const YAML: Style = Style { media: Media::Yaml, ..PRETTY };

    #[track_caller]
    fn check(value: &Value, expected: &str) {
        let (json, mut out) = (value.to_vec(), Vec::new());
        let len = indented_len(&json, PRETTY, 0).unwrap();
        write_indented(&json, 0, len, &mut out);
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        assert_eq!((out.len(), out.capacity()), (len, len));
        assert_eq!(Value::parse(&out).unwrap(), *value);
    }

    #[test]
    fn pretty_json() {
        check(
            &json!({"a": [1, {}], "b": {"c": "d"}, "e": []}),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  },\n  \"e\": []\n}",
        );
        check(&json!({"a,\"\\{": "[:]\\"}), "{\n  \"a,\\\"\\\\{\": \"[:]\\\\\"\n}");
        check(&json!({}), "{}");
        check(&json!("a:b"), "\"a:b\"");
        check(&json!([[[]], null]), "[\n  [\n    []\n  ],\n  null\n]");
    }

    /// Deep documents, and deep texts of many lines.
    #[test]
    fn indentation_is_foreseen_and_bounded() {
        let deep = |inner: Value| (0..100).fold(inner, |inner, _| json!([inner]));
        for (inner, style, is_indented) in [
            (Value::from(vec![json!(1); 15_000]), PRETTY, true),
            (Value::from(vec![json!(1); 15_000]), YAML, true),
            (Value::from(vec![json!(1); 700_000]), PRETTY, false),
            (Value::from(vec![json!(1); 700_000]), YAML, false),
            (json!("a\n".repeat(700_000)), PRETTY, true),
            (json!("a\n".repeat(700_000)), YAML, false),
        ] {
            let json = deep(inner).to_vec();
            let len = indented_len(&json, style, 0);
            assert_eq!(len.is_some(), is_indented, "{style:?}, {}", json.len());
            if style.media == Media::Yaml && is_indented {
                let made = yaml(&json).len();
                assert!(made <= len.unwrap() + len.unwrap() / 2, "{made}");
            }
            assert!(styled_len(&json, style) <= INDENTED_BYTES_MAX);
        }
    }

    #[test]
    fn json_is_yaml() {
        let value = json!({"a": ["yes", "1.0", null, true, 1, "a\n\"b\u{1}"], "b: c": {}, "d": "# é 😀"});
        let read: Value = serde_saphyr::from_str(std::str::from_utf8(&value.to_vec()).unwrap()).unwrap();
        assert_eq!(read, value);
    }
}
