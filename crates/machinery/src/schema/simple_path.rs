//! Paths that name one place of a schema: `.spec.color`, `.spec.labels['a.b']`.

use super::structural::source::{Additional, Source};

/// Whether members may be named in brackets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brackets {
    Allowed,
    Refused,
}

/// A place that a path names.
pub(crate) struct Found<'a> {
    /// The members on the way.
    pub(crate) steps: Vec<String>,
    /// The schema there; `None` inside free-form values.
    pub(crate) schema: Option<Source<'a>>,
}

/// Follows a path through a schema; the error says what is wrong with the path.
pub(crate) fn find<'a>(path: &str, source: Source<'a>, brackets: Brackets) -> Result<Found<'a>, String> {
    const END: &str = "unexpected end of JSON path";
    let mut tokens = Tokens { rest: path };
    let mut found = Found { steps: Vec::new(), schema: Some(source) };
    while let Some(token) = tokens.next() {
        let name = match token {
            "[" => {
                if brackets == Brackets::Refused {
                    return Err("array notation is not allowed".into());
                }
                let quoted = tokens.next().ok_or(END)?;
                let name = quoted
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                let name = name.replace("\\'", "'").replace("\\\\", "\\");
                match tokens.next().ok_or(END)? {
                    "]" => name,
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            "." => tokens.next().ok_or(END)?.to_owned(),
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        const NO_FIELD: &str = "does not refer to a valid field";
        let schema = found.schema.ok_or(NO_FIELD)?;
        found.schema = if schema.has_properties() {
            Some(schema.property(&name).ok_or(NO_FIELD)?)
        } else {
            match schema.additional().ok_or(NO_FIELD)? {
                Additional::Schema(schema) => Some(schema),
                Additional::Allowed | Additional::Refused => None,
            }
        };
        found.steps.push(name);
    }
    Ok(found)
}

/// Delimiters, quoted strings, and the text between them.
struct Tokens<'p> {
    rest: &'p str,
}

impl<'p> Iterator for Tokens<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let first = self.rest.chars().next()?;
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let bytes = self.rest.as_bytes();
                (1..bytes.len())
                    .find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\')
                    .map_or(bytes.len(), |at| at + 1)
            }
            _ => self.rest.find(['.', '[', ']']).unwrap_or(self.rest.len()),
        };
        let (token, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(token)
    }
}

#[cfg(test)]
mod tests {
    use polder_model::Value;

    use super::*;

    #[test]
    fn places() {
        let schema = Value::parse(
            br#"{"properties":{"spec":{"properties":{"a":{"type":"string"},"m":{"additionalProperties":{"type":"integer"}}}}}}"#,
        )
        .unwrap();
        let rows = [
            (".spec.a", Ok("string")),
            (".spec.m.k", Ok("integer")),
            (".spec['m']['x.y']", Ok("integer")),
            (".spec.b", Err("does not refer to a valid field")),
            (".spec.a.b", Err("does not refer to a valid field")),
            (".spec.", Err("unexpected end of JSON path")),
            ("spec", Err("expected [ or . but got: spec")),
            (".spec[a]", Err("expected single quoted string but got a")),
        ];
        for (path, expected) in rows {
            let found = find(path, Source::new(&schema).unwrap(), Brackets::Allowed);
            let kind = found.map(|found| found.schema.unwrap().text("type"));
            assert_eq!(kind, expected.map_err(String::from), "{path}");
        }
        let refused = find(".spec['m']", Source::new(&schema).unwrap(), Brackets::Refused);
        assert_eq!(refused.err().unwrap(), "array notation is not allowed");
    }
}
