//! Where in an object something is wrong, and what: the texts that `kubectl` users know.

use std::fmt;

use crate::Value;

/// A path into an object, built while walking down: `spec.containers[0].name`.
///
/// Each step borrows its parent, so that walking a valid object allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Member(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> FieldPath<'a> {
    pub const ROOT: FieldPath<'static> = FieldPath { parent: None, step: Step::Root };

    pub fn root(name: &'a str) -> FieldPath<'a> {
        FieldPath { parent: None, step: Step::Member(name) }
    }

    /// A member of an object: `.name`.
    pub fn member<'b>(&'b self, name: &'b str) -> FieldPath<'b> {
        FieldPath { parent: Some(self), step: Step::Member(name) }
    }

    /// An element of a list: `[3]`.
    pub fn index<'b>(&'b self, index: usize) -> FieldPath<'b> {
        FieldPath { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of a free-form map: `[key]`.
    pub fn key<'b>(&'b self, key: &'b str) -> FieldPath<'b> {
        FieldPath { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let below_root = match self.parent {
            Some(parent) => {
                parent.fmt(f)?;
                !matches!(parent.step, Step::Root)
            }
            None => false,
        };
        match self.step {
            Step::Root => Ok(()),
            Step::Member(name) if below_root => write!(f, ".{name}"),
            Step::Member(name) => f.write_str(name),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

/// Longer paths are cut: keys come from clients, and every error repeats the path.
const PATH_BYTES_MAX: usize = 1024;

/// The text of a path, or of anything else that may hold what a client wrote, cut where it gets too long. Writing
/// stops there too: the rest costs nothing.
pub fn bounded(text: impl fmt::Display) -> String {
    struct Cut(String);
    impl fmt::Write for Cut {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let left = PATH_BYTES_MAX - self.0.len();
            if text.len() <= left {
                self.0.push_str(text);
                return Ok(());
            }
            let end = (0..=left).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            self.0.push_str(&text[..end]);
            Err(fmt::Error)
        }
    }
    let mut cut = Cut(String::new());
    if fmt::Write::write_fmt(&mut cut, format_args!("{text}")).is_err() {
        cut.0.push_str("...");
    }
    cut.0
}

/// One thing wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: FieldErrorKind,
    pub path: String,
    /// The offending value, where the text shows it.
    pub value: Option<Value>,
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl FieldErrorKind {
    /// The machine-readable cause in `Status.details.causes`.
    pub fn reason(self) -> &'static str {
        match self {
            FieldErrorKind::NotFound => "FieldValueNotFound",
            FieldErrorKind::Required => "FieldValueRequired",
            FieldErrorKind::Duplicate => "FieldValueDuplicate",
            FieldErrorKind::Invalid => "FieldValueInvalid",
            FieldErrorKind::NotSupported => "FieldValueNotSupported",
            FieldErrorKind::Forbidden => "FieldValueForbidden",
            FieldErrorKind::TooLong => "FieldValueTooLong",
            FieldErrorKind::TooMany => "FieldValueTooMany",
            FieldErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            FieldErrorKind::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            FieldErrorKind::NotFound => "Not found",
            FieldErrorKind::Required => "Required value",
            FieldErrorKind::Duplicate => "Duplicate value",
            FieldErrorKind::Invalid | FieldErrorKind::TypeInvalid => "Invalid value",
            FieldErrorKind::NotSupported => "Unsupported value",
            FieldErrorKind::Forbidden => "Forbidden",
            FieldErrorKind::TooLong => "Too long",
            FieldErrorKind::TooMany => "Too many",
            FieldErrorKind::Internal => "Internal error",
        }
    }
}

impl FieldError {
    fn new(
        kind: FieldErrorKind,
        path: impl fmt::Display,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError { kind, path: bounded(path), value, detail: detail.into() }
    }

    pub fn required(path: impl fmt::Display, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Required, path, None, detail)
    }

    pub fn invalid(
        path: impl fmt::Display,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(FieldErrorKind::Invalid, path, Some(value.into()), detail)
    }

    pub fn type_invalid(
        path: impl fmt::Display,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> FieldError {
        FieldError::new(FieldErrorKind::TypeInvalid, path, Some(value.into()), detail)
    }

    pub fn duplicate(path: impl fmt::Display, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldErrorKind::Duplicate, path, Some(value.into()), "")
    }

    pub fn forbidden(path: impl fmt::Display, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Forbidden, path, None, detail)
    }

    pub fn not_found(path: impl fmt::Display, value: impl Into<Value>) -> FieldError {
        FieldError::new(FieldErrorKind::NotFound, path, Some(value.into()), "")
    }

    pub fn internal(path: impl fmt::Display, detail: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorKind::Internal, path, None, detail)
    }

    /// A value outside its enumeration; the text lists what is supported.
    pub fn not_supported<S: AsRef<str>>(
        path: impl fmt::Display,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = S>,
    ) -> FieldError {
        let listed: Vec<String> = supported.into_iter().map(|one| format!("{:?}", one.as_ref())).collect();
        let detail = if listed.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", listed.join(", "))
        };
        FieldError::new(FieldErrorKind::NotSupported, path, Some(value.into()), detail)
    }

    pub fn too_long(path: impl fmt::Display, bytes_max: usize) -> FieldError {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        FieldError::new(
            FieldErrorKind::TooLong,
            path,
            None,
            format!("may not be more than {bytes_max} {unit}"),
        )
    }

    pub fn too_many(path: impl fmt::Display, found: usize, items_max: usize) -> FieldError {
        let unit = if items_max == 1 { "item" } else { "items" };
        let found = Value::Int(i64::try_from(found).unwrap_or(i64::MAX));
        FieldError::new(
            FieldErrorKind::TooMany,
            path,
            Some(found),
            format!("must have at most {items_max} {unit}"),
        )
    }

    /// The text without the path, as `causes[].message` carries it.
    pub fn body(&self) -> String {
        let mut text = String::from(self.kind.text());
        let shows_value = !matches!(
            self.kind,
            FieldErrorKind::Required
                | FieldErrorKind::Forbidden
                | FieldErrorKind::TooLong
                | FieldErrorKind::Internal
        );
        if let (true, Some(value)) = (shows_value, &self.value) {
            text.push_str(": ");
            match value {
                Value::String(string) => text.push_str(&format!("{string:?}")),
                other => text.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.body())
    }
}

/// Many field errors as one line: a single one bare, several in brackets without repeats.
pub fn join(errors: &[FieldError]) -> String {
    let mut seen = std::collections::HashSet::new();
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.retain(|text| seen.insert(text.clone()));
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn paths_read_like_upstream() {
        let spec = FieldPath::root("spec");
        let containers = spec.member("containers");
        let first = containers.index(0);
        assert_eq!(first.member("name").to_string(), "spec.containers[0].name");
        assert_eq!(FieldPath::ROOT.member("data").key("a.b").to_string(), "data[a.b]");
    }

    #[test]
    fn long_paths_are_cut() {
        let key = "é".repeat(1 << 20);
        let root = FieldPath::root("spec");
        let (one, two) = (root.member(&key), root.key(&key));
        for path in [one, one.member(&key), two.index(3).member("x")] {
            let text = FieldError::required(path, "").path;
            assert!(text.len() <= PATH_BYTES_MAX + 3 && text.ends_with("é..."), "{}", text.len());
        }
        assert_eq!(bounded(root.key("short")), "spec[short]");
    }

    #[test]
    fn texts_read_like_upstream() {
        let rows = [
            (FieldError::required("spec.a", ""), "spec.a: Required value"),
            (FieldError::invalid("spec.a", "x", "must be y"), r#"spec.a: Invalid value: "x": must be y"#),
            (
                FieldError::not_supported("p", "X", ["A", "B"]),
                r#"p: Unsupported value: "X": supported values: "A", "B""#,
            ),
            (FieldError::invalid("p", json!({"a": 1}), "no"), r#"p: Invalid value: {"a":1}: no"#),
            (FieldError::too_long("p", 63), "p: Too long: may not be more than 63 bytes"),
            (FieldError::too_many("p", 5, 3), "p: Too many: 5: must have at most 3 items"),
            (FieldError::forbidden("p", "may not change"), "p: Forbidden: may not change"),
        ];
        for (error, text) in rows {
            assert_eq!(error.to_string(), text);
        }
    }
}
