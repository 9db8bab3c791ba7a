//! Texts as Go's `fmt` prints them, for messages that clients compare.

use polder_model::Value;

/// `%T`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Float(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// `%q`: a double-quoted string.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            char if char < ' ' || char == '\u{7f}' => out.push_str(&format!("\\x{:02x}", char as u32)),
            char if char.is_control() => out.push_str(&format!("\\u{:04x}", char as u32)),
            char => out.push(char),
        }
    }
    out.push('"');
    out
}

/// `%v` of a float: the shortest digits that read back, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn float(number: f64) -> String {
    let magnitude = number.abs();
    if number == 0.0 || (1e-4..1e6).contains(&magnitude) {
        return format!("{number}");
    }
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_go() {
        assert_eq!(quoted("a\"b\\\n\u{1}é"), r#""a\"b\\\n\x01é""#);
        let rows = [
            (1.0, "1"),
            (-2.25, "-2.25"),
            (123_456_789.0, "1.23456789e+08"),
            (999_999.5, "999999.5"),
            (1.5e-7, "1.5e-07"),
            (0.0, "0"),
        ];
        for (number, text) in rows {
            assert_eq!(float(number), text);
        }
    }
}
