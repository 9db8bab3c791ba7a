//! Documents of `apiserver.config.k8s.io`, which say who people are and what they may do. Read strictly: a field nobody knows is a
//! mistake, and in these files a mistake lets the wrong people in.

use polder_model::{Value, field};

/// Problems beyond these are not told.
const PROBLEMS_LEN_MAX: usize = 64;

/// Why a file is no configuration.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigurationError {
    #[error("strict decoding error: {0}")]
    Strict(String),
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind { kind: String, version: String },
    #[error("{0}")]
    Invalid(String),
}

/// Checks what a document says it is, and that it has nothing nobody knows.
pub(crate) fn check(document: &Value, wanted_kind: &str, form: &Form) -> Result<(), ConfigurationError> {
    let text = |name: &str| document.str_at(&[name]).unwrap_or_default().to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let group = "apiserver.config.k8s.io/";
    let known = version.strip_prefix(group).is_some_and(|version| ["v1", "v1beta1"].contains(&version));
    if !known || kind != wanted_kind {
        return Err(ConfigurationError::Kind { kind, version });
    }
    let mut problems = Vec::new();
    check_shape(document, form, "", &mut problems);
    if problems.is_empty() { Ok(()) } else { Err(ConfigurationError::Strict(problems.join(", "))) }
}

/// What a document may have.
pub(crate) enum Form {
    Text,
    Flag,
    List(&'static Form),
    Members(&'static [(&'static str, Form)]),
}

fn check_shape(value: &Value, form: &Form, path: &str, problems: &mut Vec<String>) {
    if value.is_null() || problems.len() >= PROBLEMS_LEN_MAX {
        return;
    }
    let mut wrong = |what: &str| {
        problems.push(format!("{} must be {what}", if path.is_empty() { "the document" } else { path }));
    };
    match (form, value) {
        (Form::Text, Value::String(_)) | (Form::Flag, Value::Bool(_)) => {}
        (Form::Text, _) => wrong("a string"),
        (Form::Flag, _) => wrong("true or false"),
        (Form::List(items), Value::Array(all)) => {
            for (index, item) in all.iter().enumerate() {
                check_shape(item, items, &format!("{path}[{index}]"), problems);
            }
        }
        (Form::List(_), _) => wrong("a list"),
        (Form::Members(members), Value::Object(object)) => {
            for (key, value) in object.iter() {
                let inner = if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
                match members.iter().find(|(name, _)| name == key) {
                    Some((_, form)) => check_shape(value, form, &inner, problems),
                    None => problems.push(format!("unknown field {:?}", field::bounded(&inner))),
                }
            }
        }
        (Form::Members(_), _) => wrong("an object"),
    }
}
