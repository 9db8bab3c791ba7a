//! Custom objects that a webhook turns into other versions: what it is asked, and what of its answer is believed.
//!
//! Invariant: whatever a webhook answers, an object that comes out of [`read`] is of the version that was asked for and has
//! the kind and the metadata it went in with, except labels and annotations, which are valid ones.

use polder_model::field::join;
use polder_model::names::{label_value_problems, qualified_name_problems};
use polder_model::{FieldError, FieldPath, GroupVersion, Object, Value};

use crate::schema::go_text;

/// More problems than this are not told.
const PROBLEMS_MAX: usize = 16;
/// Of texts that a webhook wrote, so much is passed on.
const TEXT_LEN_MAX: usize = 8 * 1024;
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The forms of review that we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1beta1,
}

impl ReviewVersion {
    /// The first of the forms a CRD lists that we speak.
    pub fn first_known(listed: &[Value]) -> Option<ReviewVersion> {
        listed.iter().find_map(|name| match name.as_str()? {
            "v1" => Some(ReviewVersion::V1),
            "v1beta1" => Some(ReviewVersion::V1beta1),
            _ => None,
        })
    }

    fn api_version(self) -> &'static str {
        match self {
            ReviewVersion::V1 => "apiextensions.k8s.io/v1",
            ReviewVersion::V1beta1 => "apiextensions.k8s.io/v1beta1",
        }
    }
}

/// What a webhook is asked: one question about one or more objects.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    pub version: ReviewVersion,
    /// What the answer must repeat.
    pub uid: &'a str,
    /// The version that is wanted: `stable.example.com/v2`.
    pub desired: &'a str,
}

/// Why objects could not be converted, in the words of upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    #[error("no supported conversion review versions")]
    NoReview,
    /// There was no answer, or it does not say that it worked.
    #[error("conversion webhook for {kind} failed: {why}")]
    Failed { kind: String, why: String },
    #[error("conversion webhook for {kind} returned {found} objects, expected {expected}")]
    Count { kind: String, found: usize, expected: usize },
    #[error("conversion webhook for {kind} returned invalid {what}: {why}")]
    Invalid { kind: String, what: &'static str, why: String },
    #[error("{0}")]
    NoObject(String),
}

impl ConversionError {
    /// There was no answer that could be read.
    pub fn failed(object: &Value, why: impl Into<String>) -> ConversionError {
        ConversionError::Failed { kind: kind_text(object), why: cut(&why.into()) }
    }

    /// Whether the webhook answered, but not with the objects. Asked about one object at a time it may do better.
    pub fn is_about_objects(&self) -> bool {
        matches!(
            self,
            ConversionError::Count { .. } | ConversionError::Invalid { .. } | ConversionError::NoObject(_)
        )
    }
}

/// The body of a question.
pub fn ask(question: Question<'_>, objects: &[Value]) -> Vec<u8> {
    let mut body = Vec::with_capacity(4096);
    let mut review = Object::new();
    review.insert("kind", "ConversionReview");
    review.insert("apiVersion", question.version.api_version());
    review.write(&mut body);
    body.pop();
    body.extend_from_slice(b",\"request\":");
    let mut request = Object::new();
    request.insert("uid", question.uid);
    request.insert("desiredAPIVersion", question.desired);
    request.write(&mut body);
    body.pop();
    // Written into the question, not copied first.
    body.extend_from_slice(b",\"objects\":[");
    for (index, object) in objects.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        object.write(&mut body);
    }
    // Upstream sends an empty answer along.
    body.extend_from_slice(
        b"]},\"response\":{\"uid\":\"\",\"convertedObjects\":null,\"result\":{\"metadata\":{}}}}",
    );
    body
}

/// The objects of an answer, in the order of those that were sent.
pub fn read(question: Question<'_>, originals: &[Value], body: &[u8]) -> Result<Vec<Value>, ConversionError> {
    let kind = || originals.first().map(kind_text).unwrap_or_default();
    let failed = |why: String| ConversionError::Failed { kind: kind(), why: cut(&why) };
    if body.is_empty() {
        let why = "0-length response with status code: 200 and content type: application/json";
        return Err(failed(why.to_owned()));
    }
    let review = Value::parse(body)
        .map_err(|error| failed(format!("couldn't get version/kind; json parse error: {error}")))?;
    let objects = objects_of(question, review).map_err(failed)?;
    if objects.len() != originals.len() {
        let (found, expected) = (objects.len(), originals.len());
        return Err(ConversionError::Count { kind: kind(), found, expected });
    }
    let pairs = originals.iter().zip(objects);
    pairs.map(|(original, object)| believe(question, original, object)).collect()
}

/// Whether a reader that expects a review would take this for one. What is left out is taken to be right.
fn check_type(version: ReviewVersion, api_version: &str, kind: &str) -> Result<(), String> {
    let short = |version: ReviewVersion| match version {
        ReviewVersion::V1 => "v1",
        ReviewVersion::V1beta1 => "v1beta1",
    };
    let other = match version {
        ReviewVersion::V1 => ReviewVersion::V1beta1,
        ReviewVersion::V1beta1 => ReviewVersion::V1,
    };
    let api_version = if api_version.is_empty() { version.api_version() } else { api_version };
    let kind = if kind.is_empty() { "ConversionReview" } else { kind };
    let found = match (api_version, kind) {
        (own, "ConversionReview") if own == version.api_version() => return Ok(()),
        (own, "ConversionReview") if own == other.api_version() => {
            format!("{}.ConversionReview", short(other))
        }
        ("v1", "Status") => "v1.Status".to_owned(),
        _ => {
            return Err(format!(
                "no kind {kind:?} is registered for version {api_version:?} in scheme \"pkg/runtime/scheme.go:111\""
            ));
        }
    };
    Err(format!("converting ({found}) to ({}.ConversionReview): unknown conversion", short(version)))
}

/// What an answer says that it is, and that it worked.
fn objects_of(question: Question<'_>, mut review: Value) -> Result<Vec<Value>, String> {
    if review.as_object().is_none() {
        return Err(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value of type struct \
             {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
            json_type(&review)
        ));
    }
    let own = |field: &str| review.str_at(&[field]).unwrap_or_default();
    let expected = question.version.api_version();
    check_type(question.version, own("apiVersion"), own("kind"))?;
    if question.version == ReviewVersion::V1
        && (own("apiVersion") != expected || own("kind") != "ConversionReview")
    {
        let (group, version) = own("apiVersion").split_once('/').unwrap_or(("", own("apiVersion")));
        return Err(format!(
            "expected webhook response of {expected}, Kind=ConversionReview, got {group}/{version}, Kind={}",
            own("kind")
        ));
    }
    let response = review.at_mut(&["response"]).filter(|response| !response.is_null());
    let response = response.ok_or("no response provided")?;
    let text = |path: &[&str]| response.str_at(path).unwrap_or_default();
    if question.version == ReviewVersion::V1 && text(&["uid"]) != question.uid {
        return Err(format!("expected response.uid={:?}, got {:?}", question.uid, text(&["uid"])));
    }
    let status = text(&["result", "status"]);
    if status != "Success" {
        let message = text(&["result", "message"]);
        return Err(match message {
            "" => format!("response.result.status was '{status}', not 'Success'"),
            message => message.to_owned(),
        });
    }
    match response.remove_at(&["convertedObjects"]) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(objects)) => Ok(objects),
        Some(other) => Err(format!(
            "json: cannot unmarshal {} into Go struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension",
            other.type_name()
        )),
    }
}

/// Takes from a converted object what a webhook may decide.
fn believe(question: Question<'_>, original: &Value, mut object: Value) -> Result<Value, ConversionError> {
    let invalid = |what, why: String| {
        let kind = kind_text(original);
        ConversionError::Invalid { kind, what, why: cut(&why) }
    };
    if object.is_null() {
        return Err(ConversionError::NoObject("unexpected end of JSON input".into()));
    }
    if object.as_object().is_none() {
        let found = json_type(&object);
        let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
        return Err(ConversionError::NoObject(why));
    }
    // Upstream loses the kind where it cannot read the version.
    let slashes = object.str_at(&["apiVersion"]).map_or(0, |version| version.matches('/').count());
    if object.str_at(&["kind"]).is_none_or(str::is_empty) || slashes > 1 {
        let shown = cut(&object.to_string());
        return Err(ConversionError::NoObject(format!("Object 'Kind' is missing in '{shown}'")));
    }
    let found = object.str_at(&["apiVersion"]).and_then(GroupVersion::parse);
    let found = found.map(|version| version.to_string()).unwrap_or_default();
    if found != question.desired {
        let why = format!("invalid groupVersion (expected {}, received {found})", question.desired);
        return Err(invalid("object at index 0", why));
    }
    let text = |value: &Value, path: &[&str]| value.str_at(path).unwrap_or_default().to_owned();
    let (expected, found) = (text(original, &["kind"]), text(&object, &["kind"]));
    if expected != found {
        let why = format!("invalid kind (expected {expected}, received {found})");
        return Err(invalid("object at index 0", why));
    }
    for (label, field) in [("name", "name"), ("namespace", "namespace"), ("UID", "uid")] {
        let path = ["metadata", field];
        let (expected, found) = (text(original, &path), text(&object, &path));
        if expected != found {
            return Err(invalid("object", format!("must have the same {label}: {expected} != {found}")));
        }
    }
    let metadata = object.remove_at(&["metadata"]);
    let metadata = metadata_of(original, metadata).map_err(|why| invalid("metadata", why))?;
    object.set_at(&["metadata"], metadata);
    Ok(object)
}

/// The metadata that went in, with the labels and annotations that came out.
fn metadata_of(original: &Value, converted: Option<Value>) -> Result<Object, String> {
    let mut converted = match converted {
        Some(Value::Object(metadata)) => metadata,
        Some(other) => {
            return Err(format!(
                "invalid metadata of type {} in converted object",
                go_text::type_name(&other)
            ));
        }
        None => return Err("missing metadata in converted object".into()),
    };
    let mut metadata = original.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        let words = match converted.remove(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
                continue;
            }
            Some(Value::Object(words)) => words,
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    go_text::type_name(&other)
                ));
            }
        };
        if let Some((key, value)) = words.iter().find(|(_, value)| value.as_str().is_none()) {
            let found = go_text::type_name(value);
            return Err(format!(
                "metadata.{field}[{key}] must be a string, but is {found} in converted object"
            ));
        }
        if metadata.get(field).and_then(Value::as_object) != Some(&words) {
            let problems = problems(field, &words);
            if !problems.is_empty() {
                return Err(join(&problems));
            }
        }
        metadata.insert(field, words);
    }
    Ok(metadata)
}

fn problems(field: &str, words: &Object) -> Vec<FieldError> {
    let root = FieldPath::root("metadata");
    let mut problems = Vec::new();
    let mut bytes = 0;
    // Upstream has lost a letter here.
    let path = root.member(if field == "labels" { "labels" } else { "annotation" });
    for (key, value) in words.iter() {
        let value = value.as_str().unwrap_or_default();
        bytes += key.len() + value.len();
        if problems.len() >= PROBLEMS_MAX {
            continue;
        }
        if field == "labels" {
            problems.extend(
                qualified_name_problems(key).into_iter().map(|why| FieldError::invalid(path, key, why)),
            );
            problems.extend(label_value_problems(value).map(|why| FieldError::invalid(path, value, why)));
        } else {
            let found = qualified_name_problems(&key.to_lowercase()).into_iter();
            problems.extend(found.map(|why| FieldError::invalid(path, key, why)));
        }
    }
    if field == "annotations" && bytes > ANNOTATIONS_BYTES_MAX {
        problems.push(FieldError::too_long(path, ANNOTATIONS_BYTES_MAX));
    }
    problems
}

/// `stable.example.com/v1, Kind=Widget`.
fn kind_text(object: &Value) -> String {
    let text = |field: &str| object.str_at(&[field]).unwrap_or_default();
    format!("{}, Kind={}", text("apiVersion"), text("kind"))
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Int(_) | Value::Float(_) => "number",
        Value::Bool(_) => "bool",
        other => other.type_name(),
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_LEN_MAX)].to_owned()
}

#[cfg(test)]
mod tests;
