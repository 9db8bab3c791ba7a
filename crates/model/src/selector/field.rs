//! Field selectors: `metadata.name=x,status.phase!=Running`.
//!
//! Which paths a kind supports is for the caller to say.

use std::borrow::Cow;
use std::fmt;

use smol_str::SmolStr;

use super::{SelectorError, checked_len};

/// All requirements must hold; none means everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    pub path: SmolStr,
    pub operator: FieldOperator,
    pub value: SmolStr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    Equals,
    NotEquals,
}

impl FieldSelector {
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        checked_len(text)?;
        let mut terms = terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::with_capacity(terms.len());
        for term in terms {
            let Some((path, operator, value)) = split(term) else {
                return Err(SelectorError(format!("invalid selector: '{text}'; can't understand '{term}'")));
            };
            requirements.push(FieldRequirement { path: path.into(), operator, value: unescape(value)? });
        }
        Ok(FieldSelector { requirements })
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Looks the fields up one by one; a field that is not there counts as empty.
    pub fn matches<'v>(&self, lookup: impl Fn(&str) -> Option<Cow<'v, str>>) -> bool {
        self.requirements.iter().all(|requirement| {
            let found = lookup(&requirement.path).unwrap_or_default();
            (found == requirement.value.as_str()) == (requirement.operator == FieldOperator::Equals)
        })
    }

    /// The one value a field must have, if the selector names one.
    pub fn required_value(&self, path: &str) -> Option<&str> {
        let mut requirements = self.requirements.iter();
        let exact = requirements.find(|one| one.operator == FieldOperator::Equals && one.path == path);
        exact.map(|one| one.value.as_str())
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, FieldRequirement { path, operator, value }) in self.requirements.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let operator = if *operator == FieldOperator::Equals { "=" } else { "!=" };
            write!(f, "{comma}{path}{operator}")?;
            for character in value.chars() {
                if matches!(character, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

/// The parts between commas, without the empty ones. A backslash takes its meaning from the next character.
fn terms(text: &str) -> Vec<&str> {
    let mut escaped = false;
    let parts = text.split(|character| {
        let ends = character == ',' && !escaped;
        escaped = character == '\\' && !escaped;
        ends
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// Splits at the first operator.
fn split(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let at = term.find('=')?;
    let (left, right) = (&term[..at], &term[at + 1..]);
    // `!=` ends where its equals sign does, and that is the first one in the term.
    if let Some(path) = left.strip_suffix('!') {
        return Some((path, FieldOperator::NotEquals, right));
    }
    Some((left, FieldOperator::Equals, right.strip_prefix('=').unwrap_or(right)))
}

fn unescape(text: &str) -> Result<SmolStr, SelectorError> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => value.push(escaped),
                other => {
                    let sequence: String = ['\\'].into_iter().chain(other).collect();
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: {sequence}"
                    )));
                }
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(character)
                )));
            }
            other => value.push(other),
        }
    }
    Ok(value.into())
}

#[cfg(test)]
mod tests {
    use super::super::random_texts;
    use super::*;

    /// Inputs of ours with what upstream makes of them.
    const ROWS: &[(&str, Result<&str, &str>)] = &[
        ("", Ok("")),
        ("metadata.name=x", Ok("metadata.name=x")),
        ("metadata.name==x", Ok("metadata.name=x")),
        ("metadata.name!=x", Ok("metadata.name!=x")),
        ("b=1,a!=2", Ok("a!=2,b=1")),
        ("a=", Ok("a=")),
        (r#"a=b\,c"#, Ok(r#"a=b\,c"#)),
        (r#"a=b\=c"#, Ok(r#"a=b\=c"#)),
        (r#"a=b\\"#, Ok(r#"a=b\\"#)),
        (r#"a=b\"#, Err(r#"invalid field selector: invalid escape sequence: \"#)),
        (r#"a=b\d"#, Err(r#"invalid field selector: invalid escape sequence: \d"#)),
        ("a=b=c", Err("invalid field selector: unescaped character in value: 61")),
        ("a", Err("invalid selector: 'a'; can't understand 'a'")),
        ("a,b=1", Err("invalid selector: 'a,b=1'; can't understand 'a'")),
        (",", Ok("")),
        ("a=1,", Ok("a=1")),
        ("=x", Ok("=x")),
        ("!=x", Ok("!=x")),
        ("a===b", Err("invalid field selector: unescaped character in value: 61")),
        ("a!b", Err("invalid selector: 'a!b'; can't understand 'a!b'")),
        ("a= b ", Ok("a= b ")),
        ("a=é", Ok("a=é")),
        (r#"a=b\é"#, Err(r#"invalid field selector: invalid escape sequence: \é"#)),
        ("a!==b", Err("invalid field selector: unescaped character in value: 61")),
        ("a!=b=c", Err("invalid field selector: unescaped character in value: 61")),
        (r#"a==b\,c,d=e"#, Ok(r#"a=b\,c,d=e"#)),
    ];

    #[test]
    fn parses_like_upstream() {
        for (text, expected) in ROWS {
            let found = FieldSelector::parse(text).map(|selector| selector.to_string());
            assert_eq!(
                found.map_err(|error| error.to_string()),
                expected.map(str::to_string).map_err(str::to_string),
                "{text}"
            );
        }
    }

    #[test]
    fn matching() {
        let rows = [
            ("", true),
            ("metadata.name=x", true),
            ("metadata.name!=x", false),
            ("metadata.name!=y", true),
            ("absent=", true),
            ("absent!=", false),
            ("absent=x", false),
            ("metadata.name=x,status.phase!=Running", false),
        ];
        for (text, expected) in rows {
            let matches = FieldSelector::parse(text).unwrap().matches(|path| match path {
                "metadata.name" => Some("x".into()),
                "status.phase" => Some("Running".into()),
                _ => None,
            });
            assert_eq!(matches, expected, "{text}");
        }
    }

    #[test]
    fn required_values() {
        let selector = FieldSelector::parse("metadata.name!=a,metadata.name=b\\,c").unwrap();
        assert_eq!(selector.required_value("metadata.name"), Some("b,c"));
        assert_eq!(selector.required_value("metadata.namespace"), None);
    }

    #[test]
    fn no_text_panics_and_what_parses_prints_as_it_means() {
        for text in random_texts(&["a", "=", "!", ",", "\\", "é", ".", " ", "\0"]) {
            if let Ok(selector) = FieldSelector::parse(&text) {
                // The order is that of the terms as written, which `==` for `=` changes.
                let again = FieldSelector::parse(&selector.to_string()).unwrap();
                assert!(selector.requirements.iter().all(|one| again.requirements.contains(one)), "{text}");
            }
        }
        assert!(FieldSelector::parse(&"a".repeat(1 << 20)).is_err());
    }
}
