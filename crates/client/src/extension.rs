//! Extension servers, as controllers know them: whether one answers, and by what it knows that a request comes from us.
//!
//! Invariant: the name in the certificate that goes with a plane's requests is that plane's alone. An extension server
//! that believes it believes no request of another plane, wherever that plane's `APIService` objects lead.

use futures_util::future::BoxFuture;
use polder_model::{Object, PlaneId, Value};

/// Asks extension servers whether they are there.
pub trait ExtensionProbe: Send + Sync {
    /// Asks the server behind an `APIService` object of the plane for its resources. `Err` has upstream's words for why it is
    /// taken to be unavailable. Ends within some seconds.
    fn probe<'a>(&'a self, plane: PlaneId, api_service: &'a Value) -> BoxFuture<'a, Result<(), String>>;
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
    fn names_are_of_one_plane() {
        let data = authentication_data("pem", &front_proxy_name(PlaneId(7)));
        assert_eq!(data.str("requestheader-allowed-names"), Some(r#"["front-proxy-client-plane-7"]"#));
        assert!(data.get("client-ca-file").is_none());
        assert_ne!(front_proxy_name(PlaneId(1)), front_proxy_name(PlaneId(11)));
    }
}
