//! What Go says about text that is no JSON: secrets are checked with it, and its words reach clients.
//!
//! One pass over the bytes with a stack of what is open. It says what is wrong first and looks no further; the depth
//! is bounded as Go's is.

/// What may come next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Value,
    /// Right after `[`: a value, or the end.
    FirstValue,
    /// Right after `{`: a key, or the end.
    FirstKey,
    Key,
    Colon,
    /// A comma, or the end of what is open.
    Rest,
}

const DEPTH_MAX: usize = 10_000;
const ENDED: &str = "unexpected end of JSON input";

/// The first thing wrong with a text; `None` when it is JSON.
pub(super) fn problem(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.whole().err()
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn whole(&mut self) -> Result<(), String> {
        let mut open: Vec<u8> = Vec::new();
        let mut wanted = Wanted::Value;
        loop {
            self.skip_space();
            if wanted == Wanted::Rest && open.is_empty() {
                return match self.text.get(self.at) {
                    None => Ok(()),
                    Some(byte) => Err(unexpected(*byte, "after top-level value")),
                };
            }
            let byte = self.next()?;
            wanted = match (wanted, byte, open.last()) {
                (Wanted::FirstValue, b']', _) | (Wanted::FirstKey, b'}', _) => {
                    open.pop();
                    Wanted::Rest
                }
                (Wanted::Value | Wanted::FirstValue, b'{' | b'[', _) => {
                    open.push(byte);
                    if open.len() > DEPTH_MAX {
                        return Err("exceeded max depth".into());
                    }
                    if byte == b'{' { Wanted::FirstKey } else { Wanted::FirstValue }
                }
                (Wanted::Value | Wanted::FirstValue, _, _) => {
                    self.scalar(byte)?;
                    Wanted::Rest
                }
                (Wanted::FirstKey | Wanted::Key, b'"', _) => {
                    self.string()?;
                    Wanted::Colon
                }
                (Wanted::FirstKey | Wanted::Key, _, _) => {
                    return Err(unexpected(byte, "looking for beginning of object key string"));
                }
                (Wanted::Colon, b':', _) => Wanted::Value,
                (Wanted::Colon, _, _) => return Err(unexpected(byte, "after object key")),
                (Wanted::Rest, b',', Some(b'{')) => Wanted::Key,
                (Wanted::Rest, b',', _) => Wanted::Value,
                (Wanted::Rest, b'}', Some(b'{')) | (Wanted::Rest, b']', Some(b'[')) => {
                    open.pop();
                    Wanted::Rest
                }
                (Wanted::Rest, _, Some(b'{')) => {
                    return Err(unexpected(byte, "after object key:value pair"));
                }
                (Wanted::Rest, _, _) => return Err(unexpected(byte, "after array element")),
            };
        }
    }

    fn skip_space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn next(&mut self) -> Result<u8, String> {
        let byte = self.text.get(self.at).copied().ok_or(ENDED)?;
        self.at += 1;
        Ok(byte)
    }

    fn scalar(&mut self, first: u8) -> Result<(), String> {
        match first {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' => {
                let digit = self.next()?;
                if !digit.is_ascii_digit() {
                    return Err(unexpected(digit, "in numeric literal"));
                }
                self.number(digit)
            }
            b'0'..=b'9' => self.number(first),
            _ => Err(unexpected(first, "looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                let place = format!("in literal {word} (expecting {})", quoted(expected));
                return Err(unexpected(byte, &place));
            }
        }
        Ok(())
    }

    /// The rest of a number after its first digit. A zero is not followed by digits.
    fn number(&mut self, first: u8) -> Result<(), String> {
        if first != b'0' {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.first_digit("after decimal point in numeric literal")?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.first_digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn first_digit(&mut self, place: &str) -> Result<(), String> {
        let digit = self.next()?;
        if !digit.is_ascii_digit() {
            return Err(unexpected(digit, place));
        }
        self.digits();
        Ok(())
    }

    fn digits(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                return Err(unexpected(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    other => return Err(unexpected(other, "in string escape code")),
                },
                control @ ..0x20 => return Err(unexpected(control, "in string literal")),
                _ => {}
            }
        }
    }
}

fn unexpected(byte: u8, place: &str) -> String {
    format!("invalid character {} {place}", quoted(byte))
}

/// A byte as Go quotes it: taken for a character of its own, even in the middle of one.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".into(),
        b'"' => r#"'"'"#.into(),
        b'\\' => r"'\\'".into(),
        b'\n' => r"'\n'".into(),
        b'\r' => r"'\r'".into(),
        b'\t' => r"'\t'".into(),
        0x07 => r"'\a'".into(),
        0x08 => r"'\b'".into(),
        0x0b => r"'\v'".into(),
        0x0c => r"'\f'".into(),
        0x20..=0x7e | 0xa1..=0xac | 0xae..=0xff => format!("'{}'", char::from(byte)),
        0x00..=0x1f | 0x7f => format!(r"'\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!(r"'\u{byte:04x}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_go() {
        let rows = [
            ("{}", None),
            (r#" {"a": [1, -0.5e+3, "x\u00e9\n", true, null, {}], "b": []} "#, None),
            ("", Some("unexpected end of JSON input")),
            ("{", Some("unexpected end of JSON input")),
            (r#"{"a":"#, Some("unexpected end of JSON input")),
            ("\"a", Some("unexpected end of JSON input")),
            ("x", Some("invalid character 'x' looking for beginning of value")),
            ("[1,]", Some("invalid character ']' looking for beginning of value")),
            ("{a", Some("invalid character 'a' looking for beginning of object key string")),
            (r#"{"a":1,}"#, Some("invalid character '}' looking for beginning of object key string")),
            (r#"{"a" 1}"#, Some("invalid character '1' after object key")),
            (r#"{"a":1 "b"}"#, Some(r#"invalid character '"' after object key:value pair"#)),
            ("[1 2]", Some("invalid character '2' after array element")),
            ("[1}", Some("invalid character '}' after array element")),
            ("{} {}", Some("invalid character '{' after top-level value")),
            ("01", Some("invalid character '1' after top-level value")),
            ("-x", Some("invalid character 'x' in numeric literal")),
            ("1.x", Some("invalid character 'x' after decimal point in numeric literal")),
            ("1e'", Some(r"invalid character '\'' in exponent of numeric literal")),
            ("trux", Some("invalid character 'x' in literal true (expecting 'e')")),
            ("\"\n\"", Some(r"invalid character '\n' in string literal")),
            ("\"\\x\"", Some("invalid character 'x' in string escape code")),
            ("\"\\u00g0\"", Some(r"invalid character 'g' in \u hexadecimal character escape")),
            ("é", Some("invalid character 'Ã' looking for beginning of value")),
            ("\u{1}", Some(r"invalid character '\x01' looking for beginning of value")),
        ];
        for (text, expected) in rows {
            assert_eq!(problem(text.as_bytes()).as_deref(), expected, "{text}");
        }
        assert_eq!(problem(&b"[".repeat(DEPTH_MAX + 1)).as_deref(), Some("exceeded max depth"));
    }
}
