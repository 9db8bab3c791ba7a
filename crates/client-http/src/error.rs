//! What can go wrong between here and a server's answer.

use std::time::Duration;

use polder_model::Value;

use crate::kubeconfig::KubeconfigError;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no answer, or not the one that was wanted.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    #[error("cannot reach {url}: is the server running?")]
    Unreachable {
        url: String,
        #[source]
        source: Cause,
    },
    #[error("cannot make a secure connection to {url}: is the kubeconfig from this server?")]
    Handshake {
        url: String,
        #[source]
        source: Cause,
    },
    #[error("{url} did not answer within {} s", patience.as_secs())]
    TimedOut { url: String, patience: Duration },
    #[error("the connection to {url} broke; whether the request was carried out is not known")]
    Interrupted {
        url: String,
        #[source]
        source: Cause,
    },
    #[error("the answer of {url} is larger than {bytes_max} bytes")]
    TooLarge { url: String, bytes_max: usize },
    #[error("{url} answered something that is not JSON: is it a Kubernetes API server?")]
    NotJson { url: String },
    #[error("{0:?} is not a path")]
    BadPath(String),
    /// The server refused.
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl ClientError {
    /// The server's refusal, if that is what this is.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            ClientError::Api(error) => Some(error),
            _ => None,
        }
    }

    /// The code of the server's refusal; zero when there was none.
    pub fn code(&self) -> u16 {
        self.api().map_or(0, |error| error.code)
    }
}

/// A server's `Status`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub code: u16,
    /// `NotFound`, `AlreadyExists`; empty where the server gave none.
    pub reason: String,
    pub message: String,
}

/// How much of an answer that is no `Status` is shown.
const TEXT_LEN_MAX: usize = 300;

impl ApiError {
    /// Reads what a server said with a failure code: a `Status`, or whatever a proxy in between made up.
    pub(crate) fn read(code: u16, body: &[u8]) -> ApiError {
        let status = Value::parse(body).ok().filter(|value| value.str_at(&["kind"]) == Some("Status"));
        match status {
            Some(status) => ApiError::from_status(code, &status),
            None => {
                let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_LEN_MAX)]);
                let text = text.trim();
                let reason = http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason());
                let message = match (text, reason) {
                    ("", Some(reason)) => format!("the server answered {code} {reason}"),
                    ("", None) => format!("the server answered {code}"),
                    (text, _) => format!("the server answered {code}: {text}"),
                };
                ApiError { code, reason: String::new(), message }
            }
        }
    }

    /// A `Status` that came as a value; `code` is used when it names none.
    pub fn from_status(code: u16, status: &Value) -> ApiError {
        let text = |field: &str| status.str_at(&[field]).unwrap_or_default().to_string();
        let own = status.i64_at(&["code"]).and_then(|own| u16::try_from(own).ok());
        let message = match text("message") {
            empty if empty.is_empty() => format!("the server answered {code}"),
            message => message,
        };
        ApiError { code: own.unwrap_or(code), reason: text("reason"), message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_read() {
        let rows = [
            (404, r#"{"kind":"Status","code":404,"reason":"NotFound","message":"no"}"#, "404 NotFound no"),
            (409, r#"{"kind":"Status","message":"m"}"#, "409  m"),
            (502, "<html>bad gateway\n", "502  the server answered 502: <html>bad gateway"),
            (503, "", "503  the server answered 503 Service Unavailable"),
            (403, r#"{"kind":"Pod"}"#, r#"403  the server answered 403: {"kind":"Pod"}"#),
        ];
        for (code, body, expected) in rows {
            let ApiError { code, reason, message } = ApiError::read(code, body.as_bytes());
            assert_eq!(format!("{code} {reason} {message}"), expected);
        }
    }
}
