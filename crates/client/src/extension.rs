//! Extension servers, as controllers know them: whether one answers, by what it knows that a request comes from us, and
//! what may be asked of it.
//!
//! A request is built from parts, so that no name in it can lead to another place.
//!
//! Invariant: the name in the certificate that goes with a plane's requests is that plane's alone. An extension server
//! that believes it believes no request of another plane, wherever that plane's `APIService` objects lead.

use futures_util::future::BoxFuture;
use polder_model::{Object, PlaneId, SmolStr, Value};

use crate::client::Answer;

/// Asks extension servers whether they are there.
pub trait ExtensionProbe: Send + Sync {
    /// Asks the server behind an `APIService` object of the plane for its resources. `Err` has upstream's words for why it is
    /// taken to be unavailable. Ends within some seconds.
    fn probe<'a>(&'a self, plane: PlaneId, api_service: &'a Value) -> BoxFuture<'a, Result<(), String>>;
}

/// Asks extension servers in the name of controllers.
pub trait ExtensionCaller: Send + Sync {
    /// What the server behind a group version of the plane answers; nothing if no extension server has that. A refusal, and a
    /// server that does not answer, are a `Status` in the words of upstream's clients. Ends within some seconds, and the answer
    /// is bounded.
    fn call(&self, plane: PlaneId, request: ExtensionRequest) -> Answer<'_, Option<Value>>;
}

/// What is to be done there.
#[derive(Clone, Debug, PartialEq)]
pub enum ExtensionVerb {
    Get,
    /// With its options.
    Delete(Value),
    /// With a merge patch.
    Patch(Value),
}

impl ExtensionVerb {
    pub fn is_write(&self) -> bool {
        *self != ExtensionVerb::Get
    }
}

/// One request to an extension server.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtensionRequest {
    pub verb: ExtensionVerb,
    pub group: SmolStr,
    pub version: SmolStr,
    /// The account of `kube-system` in whose name it is asked.
    pub account: &'static str,
    /// What it is about, as messages have it.
    pub about: String,
    /// Of a list only the metadata of its objects is wanted. A server that does not know how to do that sends all.
    pub metadata_only: bool,
    path: String,
    query: String,
}

impl ExtensionRequest {
    pub fn new(account: &'static str, verb: ExtensionVerb, group: &str, version: &str) -> ExtensionRequest {
        let request = ExtensionRequest {
            verb,
            group: SmolStr::new(group),
            version: SmolStr::new(version),
            account,
            about: String::new(),
            metadata_only: false,
            path: "/apis".into(),
            query: String::new(),
        };
        request.under(&[group, version])
    }

    /// The same with more parts behind it.
    #[must_use]
    pub fn under(mut self, parts: &[&str]) -> ExtensionRequest {
        for part in parts {
            self.path.push('/');
            // These would be steps, not names.
            match *part {
                "." => self.path.push_str("%2E"),
                ".." => self.path.push_str("%2E%2E"),
                name => escape(&mut self.path, name),
            }
        }
        self
    }

    /// The same with a parameter, unless that is empty.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> ExtensionRequest {
        if !value.is_empty() {
            self.query.push(if self.query.is_empty() { '?' } else { '&' });
            escape(&mut self.query, name);
            self.query.push('=');
            escape(&mut self.query, value);
        }
        self
    }

    /// The same with what messages say it is about.
    #[must_use]
    pub fn about(self, about: impl Into<String>) -> ExtensionRequest {
        ExtensionRequest { about: about.into(), ..self }
    }

    /// The same list, of the metadata of its objects.
    #[must_use]
    pub fn metadata_only(self) -> ExtensionRequest {
        ExtensionRequest { metadata_only: true, ..self }
    }

    /// Path and query.
    pub fn path(&self) -> String {
        format!("{}{}", self.path, self.query)
    }
}

fn escape(text: &mut String, part: &str) {
    for byte in part.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The name in the client certificate that goes with requests of a plane to its extension servers.
pub fn front_proxy_name(plane: PlaneId) -> String {
    format!("front-proxy-client-plane-{plane}")
}

/// What `kube-system/extension-apiserver-authentication` tells extension servers. There is no `client-ca-file`: all planes
/// share one authority for clients, so a certificate alone does not say whose plane somebody belongs to.
pub fn authentication_data(front_proxy_ca: &str, allowed_name: &str) -> Object {
    let list = |text: &str| format!("[{text:?}]");
    let members = [
        ("requestheader-allowed-names", list(allowed_name)),
        ("requestheader-client-ca-file", front_proxy_ca.to_owned()),
        ("requestheader-extra-headers-prefix", list("X-Remote-Extra-")),
        ("requestheader-group-headers", list("X-Remote-Group")),
        ("requestheader-uid-headers", list("X-Remote-Uid")),
        ("requestheader-username-headers", list("X-Remote-User")),
    ];
    members.into_iter().map(|(key, text)| (key.into(), text.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let request = ExtensionRequest::new("a", ExtensionVerb::Get, "custom.metrics.k8s.io", "v1beta1");
        let asked = |parts: &[&str]| request.clone().under(parts).path();
        let base = "/apis/custom.metrics.k8s.io/v1beta1";
        assert_eq!(
            asked(&["namespaces", "n", "pods", "*", "q/s"]),
            format!("{base}/namespaces/n/pods/%2A/q%2Fs")
        );
        assert_eq!(asked(&["..", "."]), format!("{base}/%2E%2E/%2E"));
        assert_eq!(asked(&["a?b#c"]), format!("{base}/a%3Fb%23c"));
        let query = request.with("labelSelector", "a=b,c in (d)").with("empty", "");
        assert_eq!(query.path(), format!("{base}?labelSelector=a%3Db%2Cc%20in%20%28d%29"));
    }

    #[test]
    fn names_are_of_one_plane() {
        let data = authentication_data("pem", &front_proxy_name(PlaneId(7)));
        assert_eq!(data.str("requestheader-allowed-names"), Some(r#"["front-proxy-client-plane-7"]"#));
        assert!(data.get("client-ca-file").is_none());
        assert_ne!(front_proxy_name(PlaneId(1)), front_proxy_name(PlaneId(11)));
    }
}
