//! Values as Go prints them, because upstream's error messages hold them: `map[a:1 b:[x y]]`.

use std::fmt;

use polder_model::{Object, Value};

use crate::schema::go_text;

/// Longer texts are cut: an error message is for people.
const TEXT_LEN_MAX: usize = 8 * 1024;

pub(crate) struct GoText(String);

impl GoText {
    pub(crate) fn value(value: &Value) -> GoText {
        let mut text = String::new();
        write(value, &mut text);
        GoText::cut(text)
    }

    pub(super) fn map(object: &Object) -> GoText {
        let mut text = String::new();
        write_map(object, &mut text);
        GoText::cut(text)
    }

    pub(super) fn list(items: &[Value]) -> GoText {
        let mut text = String::new();
        write_list(items, &mut text);
        GoText::cut(text)
    }

    fn cut(mut text: String) -> GoText {
        if text.len() > TEXT_LEN_MAX {
            text.truncate(text.floor_char_boundary(TEXT_LEN_MAX));
            text.push_str("...");
        }
        GoText(text)
    }
}

impl fmt::Display for GoText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The Go type a JSON value is decoded into, as `%s` prints what should be one.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        value => go_text::type_name(value),
    }
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Float(number) => write_float(*number, out),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => write_list(items, out),
        Value::Object(object) => write_map(object, out),
    }
}

fn write_map(object: &Object, out: &mut String) {
    out.push_str("map[");
    for (index, (key, value)) in object.iter().enumerate() {
        if out.len() > TEXT_LEN_MAX {
            return;
        }
        if index > 0 {
            out.push(' ');
        }
        out.push_str(key);
        out.push(':');
        write(value, out);
    }
    out.push(']');
}

fn write_list(items: &[Value], out: &mut String) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if out.len() > TEXT_LEN_MAX {
            return;
        }
        if index > 0 {
            out.push(' ');
        }
        write(item, out);
    }
    out.push(']');
}

fn write_float(number: f64, out: &mut String) {
    if number == 0.0 || (1e-4..1e21).contains(&number.abs()) {
        out.push_str(&number.to_string());
        return;
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = match exponent.strip_prefix('-') {
        Some(digits) => ('-', digits),
        None => ('+', exponent),
    };
    out.push_str(&format!("{mantissa}e{sign}{digits:0>2}"));
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn reads_like_go() {
        let text = r#"{"b":[1,"x",null,true],"a":{"f":1.5,"g":1e21,"h":0.00001}}"#;
        let value = Value::parse(text.as_bytes()).unwrap();
        assert_eq!(GoText::value(&value).to_string(), "map[a:map[f:1.5 g:1e+21 h:1e-05] b:[1 x <nil> true]]");
        let long = json!([("é".repeat(100_000))]);
        assert!(GoText::value(&long).to_string().len() <= TEXT_LEN_MAX + 3);
    }
}
