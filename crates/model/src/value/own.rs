//! A reader for JSON as [`Value::write`] writes it: no blanks, no member twice. Stored objects are read far more often than
//! anything else, and this takes half the time of a reader that must expect everything.
//!
//! Invariant: whatever it does not expect, it does not read.

use memchr::memchr2;
use smol_str::SmolStr;

use super::{Object, Value};

/// Deeper documents are left to the other reader.
const DEPTH_MAX: usize = 100;
/// Longer numbers may not fit.
const INTEGER_LEN_MAX: usize = 18;

/// Reads a document without the member at a path; the empty path means all of it.
pub(super) fn read(bytes: &[u8], except: &[&str]) -> Option<Value> {
    // Strings have none but escaped ones, and there are no blanks between the tokens.
    if bytes.iter().any(|byte| *byte < b' ') {
        return None;
    }
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader { text, at: 0, depth: 0, members: Vec::new(), items: Vec::new() };
    let value = reader.value(except)?;
    (reader.at == text.len()).then_some(value)
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    /// Members of all objects that are open; when one closes, its own are moved out in one piece.
    members: Vec<(SmolStr, Value)>,
    items: Vec<Value>,
}

impl<'t> Reader<'t> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then(|| self.at += 1)
    }

    fn value(&mut self, except: &[&str]) -> Option<Value> {
        match self.byte()? {
            b'"' => self.string().map(Value::String),
            b'{' => self.nested(|reader| reader.object(except)),
            b'[' => self.nested(Reader::array),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => None,
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Option<Value>) -> Option<Value> {
        self.depth += 1;
        self.at += 1;
        let value = if self.depth > DEPTH_MAX { None } else { read(self) };
        self.depth -= 1;
        value
    }

    fn object(&mut self, except: &[&str]) -> Option<Value> {
        let mark = self.members.len();
        if self.take(b'}').is_some() {
            return Some(Value::Object(Object::default()));
        }
        loop {
            let key = self.string()?;
            self.take(b':')?;
            match except {
                [last] if key == *last => self.skip()?,
                _ => {
                    let inner = match except {
                        [first, inner @ ..] if key == *first => inner,
                        _ => &[],
                    };
                    let value = self.value(inner)?;
                    self.members.push((key, value));
                }
            }
            match self.byte()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return None,
            }
        }
        self.at += 1;
        let (object, repeated) = Object::from_unsorted(self.members.drain(mark..).collect());
        repeated.is_empty().then_some(Value::Object(object))
    }

    fn array(&mut self) -> Option<Value> {
        let mark = self.items.len();
        if self.take(b']').is_some() {
            return Some(Value::Array(Vec::new()));
        }
        loop {
            let item = self.value(&[])?;
            self.items.push(item);
            match self.byte()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return None,
            }
        }
        self.at += 1;
        Some(Value::Array(self.items.drain(mark..).collect()))
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        self.text.get(self.at..)?.starts_with(word).then(|| {
            self.at += word.len();
            value
        })
    }

    fn string(&mut self) -> Option<SmolStr> {
        let (raw, is_escaped) = self.raw_string()?;
        if !is_escaped {
            return Some(SmolStr::new(&raw[1..raw.len() - 1]));
        }
        serde_json::from_str::<String>(raw).ok().map(SmolStr::from)
    }

    /// The next string with its quotes, and whether anything in it is escaped.
    fn raw_string(&mut self) -> Option<(&'t str, bool)> {
        let start = self.at;
        self.take(b'"')?;
        let mut is_escaped = false;
        loop {
            let rest = self.text.as_bytes().get(self.at..)?;
            let found = memchr2(b'"', b'\\', rest)?;
            self.at += found + 1;
            if rest[found] == b'"' {
                return Some((self.text.get(start..self.at)?, is_escaped));
            }
            is_escaped = true;
            // Whatever is escaped does not end the string.
            self.at += 1;
        }
    }

    fn number(&mut self) -> Option<Value> {
        let rest = self.text.get(self.at..)?;
        let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
        let len = rest.bytes().take_while(is_part).count();
        let token = &rest[..len];
        self.at += len;
        let digits = token.strip_prefix('-').unwrap_or(token);
        let is_plain = len <= INTEGER_LEN_MAX
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && !digits.starts_with('0');
        match token {
            "0" => Some(Value::Int(0)),
            token if is_plain => token.parse().ok().map(Value::Int),
            token => Value::parse(token.as_bytes()).ok(),
        }
    }

    /// Passes over a value without a look at it.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.byte()? {
                b'"' => drop(self.raw_string()?),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.at += 1;
                }
                _ => self.at += 1,
            }
            if depth == 0 && matches!(self.byte()?, b',' | b'}' | b']') {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[track_caller]
    fn check(text: &str, expected: Option<Value>) {
        let read = read(text.as_bytes(), &[]);
        assert_eq!(read, expected, "{text}");
        if let Some(read) = read {
            assert_eq!(Ok(read), Value::parse(text.as_bytes()).map_err(drop), "{text}");
        }
    }

    #[test]
    fn reads_what_is_written() {
        for text in [
            "{}",
            "[]",
            "0",
            "-1",
            "null",
            r#""text""#,
            r#"{"a":[],"b":{},"c":[1,-5,true,false,null],"d":{"e":{"f":"g"}}}"#,
            r#"{"\"":"quote \" and \\ and \n\u0001","zażółć":"gęślą \ud83d\ude00 😀"}"#,
            "[9223372036854775807,-9223372036854775808,1.5,-0.25,1e+300,100000000000000000,18446744073709551616]",
        ] {
            let value = Value::parse(text.as_bytes()).unwrap();
            check(text, Some(value.clone()));
            check(&value.to_string(), Some(value));
        }
        let long = "x".repeat(100);
        check(&format!("[{long:?},{long:?}]"), Some(json!([(long.as_str()), (long.as_str())])));
    }

    #[test]
    fn leaves_the_rest_to_the_other_reader() {
        for text in [
            "",
            "{",
            "[1",
            "{\"a\"",
            "{\"a\":}",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\":1,\"a\":2}",
            "{ }",
            "[1] ",
            "\"a",
            "\"\\x\"",
            "\"\\",
            "01",
            "-",
            "1.",
            "tru",
            "nul",
            "NaN",
            "[[1]",
            "[1]]",
        ] {
            check(text, None);
        }
        check(&format!("{}{}", "[".repeat(101), "]".repeat(101)), None);
    }

    #[test]
    fn a_member_can_be_left_out() {
        let without = |value: &Value, path: &[&str]| {
            let read = read(value.to_string().as_bytes(), path);
            let mut expected = value.clone();
            expected.remove_at(path);
            assert_eq!(read, Some(expected), "{value} {path:?}");
        };
        let value = json!({
            "metadata": {"a": 1, "managedFields": [{"f:a": "]}\"\\", "x": [1, 2]}, {}], "name": "n"},
            "spec": {"managedFields": [1], "metadata": {"managedFields": {}}},
        });
        without(&value, &["metadata", "managedFields"]);
        without(&value, &["metadata", "name"]);
        without(&value, &["metadata"]);
        without(&value, &["none", "such"]);
        without(&json!({"metadata": {"managedFields": []}}), &["metadata", "managedFields"]);
        without(&json!({"metadata": {"managedFields": 5, "z": 1}}), &["metadata", "managedFields"]);
    }
}
