//! Writing answers: status codes, headers, JSON, YAML or protobuf, pretty or compressed.

use std::io::Write as _;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use polder_machinery::protobuf::envelope::encode_envelope;
use polder_model::{Status, Value};

use crate::body::AnswerBody;
use crate::indent::{indented_len, write_indented, yaml};
use crate::negotiate::Media;
use crate::protobuf;

pub(crate) type Answer = Response<AnswerBody>;

/// Smaller answers are sent as they are.
pub(crate) const GZIP_BYTES_MIN: usize = 128 * 1024;

/// So much more than it needs may be set aside for an answer.
const SLACK_BYTES: usize = 4 * 1024;

/// How this client wants its answers, beside their content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) media: Media,
    pub(crate) pretty: bool,
    pub(crate) gzip: bool,
}

impl Style {
    pub(crate) fn new(media: Media, headers: &HeaderMap, pretty_query: Option<&str>) -> Style {
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let browser = ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name));
        let encodings = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let gzip = encodings.unwrap_or_default().split(',').any(|one| one.trim().starts_with("gzip"));
        // As Go reads truth: whatever else is said means no.
        let asked = match pretty_query.filter(|text| !text.is_empty()) {
            Some(text) => matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"),
            None => browser,
        };
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let pretty = asked || accepted.flat_map(|value| value.split(',')).any(accepts_pretty);
        Style { media, pretty, gzip }
    }
}

/// `application/json;pretty=1`.
fn accepts_pretty(clause: &str) -> bool {
    let mut parts = clause.split(';').map(str::trim);
    parts.next() == Some("application/json") && parts.any(|parameter| parameter == "pretty=1")
}

/// A document that is written but for its style: a message, or compact JSON without its final line break.
pub(crate) struct Draft {
    bytes: Vec<u8>,
    style: Style,
    /// What it takes when indented; `None` if it is not to be.
    indented: Option<usize>,
}

impl Draft {
    pub(crate) fn new(bytes: Vec<u8>, style: Style) -> Draft {
        let indented = indented_len(&bytes, style, 0);
        Draft { bytes, style, indented }
    }

    /// What the answer will take.
    pub(crate) fn len(&self) -> usize {
        self.indented.unwrap_or(self.bytes.len())
    }

    /// The same without indentation.
    pub(crate) fn plain(self) -> Draft {
        Draft { indented: None, ..self }
    }

    pub(crate) fn answer(self, code: StatusCode) -> Answer {
        let Draft { mut bytes, style, indented } = self;
        match (style.media, indented) {
            (Media::Yaml, Some(_)) => bytes = yaml(&bytes),
            (Media::Json, Some(len)) => {
                let mut out = Vec::with_capacity(len + 1);
                write_indented(&bytes, 0, len, &mut out);
                bytes = out;
            }
            _ => {}
        }
        if style.media != Media::Protobuf && bytes.last() != Some(&b'\n') {
            bytes.reserve_exact(1);
            bytes.push(b'\n');
        }
        whole(code, bytes, style)
    }
}

/// An answer that is written to the last byte.
pub(crate) fn whole(code: StatusCode, mut bytes: Vec<u8>, style: Style) -> Answer {
    let zipped = style.gzip && bytes.len() > GZIP_BYTES_MIN;
    if zipped {
        bytes = gzip(&bytes);
    }
    if bytes.capacity() - bytes.len() > SLACK_BYTES {
        // What is counted is what is there.
        bytes.shrink_to_fit();
    }
    let mut answer = with_body(AnswerBody::whole(bytes), style.media, zipped);
    *answer.status_mut() = code;
    answer
}

/// An answer whose body is as it should be.
pub(crate) fn with_body(body: AnswerBody, media: Media, zipped: bool) -> Answer {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media.content_type()));
    if zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    answer
}

/// An answer that is a small value: a Status, a document.
pub(crate) fn value(code: StatusCode, value: &Value, style: Style) -> Answer {
    draft(value, style).answer(code)
}

/// A value of any size, about to be an answer.
pub(crate) fn draft(value: &Value, style: Style) -> Draft {
    match protobuf::message(value).filter(|_| style.media == Media::Protobuf) {
        Some(message) => {
            let mut bytes = Vec::new();
            encode_envelope(value, message, &mut bytes);
            Draft::new(bytes, style)
        }
        None if style.media == Media::Protobuf => {
            Draft::new(value.to_vec(), Style { media: Media::Json, ..style })
        }
        None => Draft::new(value.to_vec(), style),
    }
}

/// A failure, as clients of the API expect it.
pub(crate) fn failure(status: &Status, style: Style) -> Answer {
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = value(code, &status.to_value(), style);
    let retry = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if retry > 0 {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry));
    }
    answer
}

pub(crate) fn text(code: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(AnswerBody::whole(text));
    *answer.status_mut() = code;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    answer.headers_mut().insert("X-Content-Type-Options", HeaderValue::from_static("nosniff"));
    answer
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder =
        flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::fast());
    // Writing into memory does not fail.
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gets_indentation() {
        let check = |accept: &'static str, agent: &'static str, query: Option<&str>, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
            let pretty = Style::new(Media::Json, &headers, query).pretty;
            assert_eq!(pretty, expected, "{accept} {agent} {query:?}");
        };
        check("*/*", "curl/8", None, true);
        check("*/*", "kubectl", None, false);
        check("*/*", "kubectl", Some("true"), true);
        check("*/*", "kubectl", Some("banana"), false);
        check("*/*", "curl/8", Some("False"), false);
        check("*/*", "curl/8", Some(""), true);
        check("application/json;pretty=1", "kubectl", None, true);
        check("application/yaml;pretty=1, application/json", "kubectl", None, false);
    }
}
