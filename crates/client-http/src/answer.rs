//! Answers: whole ones, and lines as they come.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderMap};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use polder_model::Value;

use crate::connection::Sender;
use crate::error::{ApiError, ClientError};

/// The longest line that is read.
const LINE_BYTES_MAX: usize = 64 << 20;

/// What a server said, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
    /// What the client should know although the request worked.
    pub warnings: Vec<String>,
}

impl Answer {
    /// The answer, or the refusal it is.
    pub(crate) fn checked(self) -> Result<Answer, ClientError> {
        if self.status >= 400 { Err(ApiError::read(self.status, &self.body).into()) } else { Ok(self) }
    }

    pub(crate) fn json(&self, url: &str) -> Result<Value, ClientError> {
        self.value().ok_or_else(|| ClientError::NotJson { url: url.into() })
    }

    /// The body, if it is JSON.
    pub fn value(&self) -> Option<Value> {
        Value::parse(&self.body).ok()
    }
}

/// The texts of `Warning` headers: `299 - "text"`.
pub(crate) fn warnings(headers: &HeaderMap) -> Vec<String> {
    let texts = headers.get_all(header::WARNING).into_iter().filter_map(|value| {
        let quoted = value.to_str().ok()?.strip_prefix("299 - \"")?.strip_suffix('"')?;
        let mut text = String::with_capacity(quoted.len());
        let mut chars = quoted.chars();
        while let Some(char) = chars.next() {
            text.extend(if char == '\\' { chars.next() } else { Some(char) });
        }
        Some(text)
    });
    texts.collect()
}

/// An answer line by line.
pub struct Lines {
    url: String,
    body: Incoming,
    /// Kept so that the connection stays while the answer is read.
    _sender: Sender,
    idle: Option<Duration>,
    splitter: Splitter,
}

impl Lines {
    pub(crate) fn new(url: String, body: Incoming, sender: Sender, idle: Option<Duration>) -> Lines {
        Lines { url, body, _sender: sender, idle, splitter: Splitter::default() }
    }

    /// The next line, without its line break; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            if let Some(line) = self.splitter.line() {
                return Ok(Some(line));
            }
            if self.splitter.waiting.len() > LINE_BYTES_MAX {
                return Err(ClientError::TooLarge { url: self.url.clone(), bytes_max: LINE_BYTES_MAX });
            }
            let frame = match self.idle {
                Some(patience) => {
                    let frame = tokio::time::timeout(patience, self.body.frame()).await;
                    frame.map_err(|_| ClientError::TimedOut { url: self.url.clone(), patience })?
                }
                None => self.body.frame().await,
            };
            match frame {
                None => return Ok(self.splitter.rest()),
                Some(Err(source)) => {
                    return Err(ClientError::Interrupted { url: self.url.clone(), source: Box::new(source) });
                }
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.splitter.waiting.extend_from_slice(&piece);
                    }
                }
            }
        }
    }

    /// The next line as JSON.
    pub async fn next_json(&mut self) -> Result<Option<Value>, ClientError> {
        let Some(line) = self.next().await? else { return Ok(None) };
        Value::parse(&line).map(Some).map_err(|_| ClientError::NotJson { url: self.url.clone() })
    }
}

/// Finds line ends; looks at every byte once.
#[derive(Default)]
struct Splitter {
    waiting: BytesMut,
    seen: usize,
}

impl Splitter {
    fn line(&mut self) -> Option<Bytes> {
        let found = self.waiting[self.seen..].iter().position(|byte| *byte == b'\n');
        let Some(at) = found else {
            self.seen = self.waiting.len();
            return None;
        };
        let mut line = self.waiting.split_to(self.seen + at + 1);
        self.seen = 0;
        line.truncate(line.len() - 1);
        Some(line.freeze())
    }

    /// A last line that has no end.
    fn rest(&mut self) -> Option<Bytes> {
        self.seen = 0;
        let rest = self.waiting.split();
        (!rest.is_empty()).then(|| rest.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn warnings_are_unquoted() {
        let mut headers = HeaderMap::new();
        for text in
            [r#"299 - "plane \"a\" is full""#, r#"299 - "c:\\d""#, "110 anderson stale", "299 - \"cut"]
        {
            headers.append(header::WARNING, HeaderValue::from_static(text));
        }
        assert_eq!(warnings(&headers), ["plane \"a\" is full", r"c:\d"]);
    }

    #[test]
    fn pieces_become_lines() {
        let mut splitter = Splitter::default();
        let mut lines = Vec::new();
        for piece in ["ab", "c\n\nd", "e", "\nf"] {
            splitter.waiting.extend_from_slice(piece.as_bytes());
            while let Some(line) = splitter.line() {
                lines.push(String::from_utf8(line.to_vec()).unwrap());
            }
        }
        assert_eq!(lines, ["abc", "", "de"]);
        assert_eq!(splitter.rest().as_deref(), Some(&b"f"[..]));
        assert_eq!(splitter.rest(), None);
    }
}
