//! Writing answers: status codes, headers, JSON, YAML or protobuf, pretty or compressed.

use std::io::Write as _;

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use polder_machinery::protobuf::envelope::encode_envelope;
use polder_model::value::write_string;
use polder_model::{Status, Value};

use crate::body::AnswerBody;
use crate::negotiate::Media;
use crate::protobuf;

pub(crate) type Answer = Response<AnswerBody>;

/// Smaller answers are sent as they are.
pub(crate) const GZIP_BYTES_MIN: usize = 128 * 1024;

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
        let pretty = match pretty_query {
            Some(text) => !matches!(text, "false" | "0"),
            None => browser,
        };
        Style { media, pretty, gzip }
    }
}

/// An answer that is already written: as a message, or else as a JSON document without its final line break.
pub(crate) fn written(code: StatusCode, mut bytes: Vec<u8>, style: Style) -> Answer {
    // A document we wrote ourselves parses.
    let parsed = |bytes: &[u8]| Value::parse(bytes).unwrap_or_default();
    match style.media {
        Media::Yaml => bytes = serde_saphyr::to_string(&parsed(&bytes)).unwrap_or_default().into_bytes(),
        Media::Json => {
            if style.pretty {
                let mut pretty = Vec::with_capacity(bytes.len() * 2);
                write_pretty(&parsed(&bytes), 0, &mut pretty);
                bytes = pretty;
            }
            bytes.push(b'\n');
        }
        Media::Protobuf => {}
    }
    whole(code, bytes, style)
}

/// An answer that is written to the last byte.
pub(crate) fn whole(code: StatusCode, mut bytes: Vec<u8>, style: Style) -> Answer {
    let zipped = style.gzip && bytes.len() > GZIP_BYTES_MIN;
    if zipped {
        bytes = gzip(&bytes);
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

/// An answer that is a value: an object, a Status, a document.
pub(crate) fn value(code: StatusCode, value: &Value, style: Style) -> Answer {
    match protobuf::message(value).filter(|_| style.media == Media::Protobuf) {
        Some(message) => {
            let mut bytes = Vec::new();
            encode_envelope(value, message, &mut bytes);
            written(code, bytes, style)
        }
        None if style.media == Media::Protobuf => {
            written(code, value.to_vec(), Style { media: Media::Json, ..style })
        }
        None => written(code, value.to_vec(), style),
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

/// About what a JSON document takes when it is written in this style: indentation may be most of it.
pub(crate) fn styled_len(json: &[u8], style: Style) -> usize {
    if style.media == Media::Protobuf || (style.media == Media::Json && !style.pretty) {
        return json.len();
    }
    let (mut depth, mut len, mut quoted, mut escaped) = (0usize, json.len(), false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => {
                depth += 1;
                len += 1 + 2 * depth;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                len += 1 + 2 * depth;
            }
            b',' => len += 1 + 2 * depth,
            b':' => len += 1,
            _ => {}
        }
    }
    len
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder =
        flate2::write::GzEncoder::new(Vec::with_capacity(bytes.len() / 4), flate2::Compression::fast());
    // Writing into memory does not fail.
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

/// JSON with two spaces a level, as Go indents it.
pub(crate) fn write_pretty(value: &Value, depth: usize, out: &mut Vec<u8>) {
    let indent = |depth: usize, out: &mut Vec<u8>| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', depth * 2));
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                indent(depth + 1, out);
                write_pretty(item, depth + 1, out);
            }
            indent(depth, out);
            out.push(b']');
        }
        Value::Object(object) if !object.is_empty() => {
            out.push(b'{');
            for (index, (key, member)) in object.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                indent(depth + 1, out);
                write_string(key, out);
                out.extend_from_slice(b": ");
                write_pretty(member, depth + 1, out);
            }
            indent(depth, out);
            out.push(b'}');
        }
        other => other.write(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    #[test]
    fn indentation_is_foreseen() {
        let style = Style { media: Media::Json, pretty: true, gzip: false };
        let deep = (0..50).fold(json!([1, 2, "a,b\\\"["]), |inner, _| json!({"a": [(inner), 3]}));
        let mut out = Vec::new();
        write_pretty(&deep, 0, &mut out);
        assert_eq!(styled_len(&deep.to_vec(), style), out.len());
        assert_eq!(styled_len(&deep.to_vec(), Style { pretty: false, ..style }), deep.to_vec().len());
    }

    #[test]
    fn pretty_json() {
        let mut out = Vec::new();
        write_pretty(&json!({"a": [1, {}], "b": {"c": "d"}, "e": []}), 0, &mut out);
        let expected =
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": \"d\"\n  },\n  \"e\": []\n}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
