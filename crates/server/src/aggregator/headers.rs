//! What of the head of a request and of an answer passes between clients and extension servers. Pure.
//!
//! Invariant: what proves who a client is stays here, and nobody but this server says who is asking. What an extension
//! server answers is shown to browsers as a document without rights, for it stands under the provider's own name.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use polder_auth::UserInfo;

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Said to one side of a connection and to nobody behind it, or told in another way there.
const HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// Of requests: credentials, and words about who is asking.
const KEPT_HERE: [&str; 4] = ["authorization", "cookie", "host", "expect"];
/// A browser's token is among the protocols of a web socket.
const KEPT_HERE_PREFIXES: [&str; 4] = ["x-remote-", "impersonate-", "x-forwarded-", "sec-websocket-"];
/// Of answers: what would change how a client or browser deals with this server.
const NOT_SAID: [&str; 10] = [
    "location",
    "www-authenticate",
    "set-cookie",
    "strict-transport-security",
    "alt-svc",
    "clear-site-data",
    "service-worker-allowed",
    "content-security-policy",
    "refresh",
    "x-content-type-options",
];
const NOT_SAID_PREFIXES: [&str; 1] = ["access-control-"];

/// Says who is asking. Whatever the headers said about that before is gone.
pub(super) fn identify(headers: &mut HeaderMap, user: &UserInfo) -> Result<(), String> {
    let said: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    said.into_iter().for_each(|name| drop(headers.remove(name)));
    // Blanks at the ends are taken off by whoever reads a header, which would make it another name.
    let value = |text: &str| {
        let told = HeaderValue::from_bytes(text.as_bytes()).ok().filter(|_| text.trim() == text);
        told.ok_or_else(|| "the user's name or groups cannot be told to an extension server".to_owned())
    };
    headers.insert(USER, value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append(GROUP, value(group)?);
    }
    for (key, texts) in &user.extra {
        let name = HeaderName::from_bytes(format!("{EXTRA}{}", escaped(key)).as_bytes())
            .map_err(|_| "what is known of the user cannot be told to an extension server".to_owned())?;
        for text in texts {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// A key as part of the name of a header: what may not stand there, and the sign itself, is percent-encoded.
fn escaped(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

/// What of a client's request goes on.
pub(super) fn to_server(own: &HeaderMap) -> HeaderMap {
    passed(own, &KEPT_HERE, &KEPT_HERE_PREFIXES)
}

/// What of an extension server's answer goes back.
pub(super) fn to_client(own: &HeaderMap) -> HeaderMap {
    let mut headers = passed(own, &NOT_SAID, &NOT_SAID_PREFIXES);
    let sandbox = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(header::CONTENT_SECURITY_POLICY, sandbox);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers
}

fn passed(own: &HeaderMap, names: &[&str], prefixes: &[&str]) -> HeaderMap {
    // What the sender itself says is for the next one only.
    let listed: Vec<String> = own
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let mut headers = HeaderMap::new();
    for (name, value) in own {
        let text = name.as_str();
        let stays = HOP.contains(&text)
            || names.contains(&text)
            || prefixes.iter().any(|prefix| text.starts_with(prefix))
            || listed.iter().any(|one| one == text);
        if !stays {
            headers.append(name.clone(), value.clone());
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rows: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in rows {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn shown(headers: &HeaderMap) -> Vec<String> {
        let mut rows: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        rows.sort();
        rows
    }

    #[test]
    fn credentials_stay_here() {
        let own = map(&[
            ("Authorization", "Bearer t"),
            ("X-Remote-User", "root"),
            ("X-Remote-Extra-Scopes", "all"),
            ("Impersonate-User", "root"),
            ("X-Forwarded-For", "192.0.2.1"),
            ("Cookie", "a=b"),
            ("Host", "polder"),
            ("Connection", "keep-alive, X-Private"),
            ("X-Private", "1"),
            ("Transfer-Encoding", "chunked"),
            ("Accept", "application/json"),
            ("If-None-Match", "x"),
        ]);
        assert_eq!(shown(&to_server(&own)), ["accept: application/json", "if-none-match: x"]);
    }

    #[test]
    fn users_are_told() {
        let mut headers = map(&[("X-Remote-Group", "system:masters"), ("X-Remote-Extra-A", "x")]);
        let user = UserInfo {
            uid: "u-1".into(),
            extra: vec![("example.org/Key%".into(), vec!["1".into(), "2".into()])],
            ..UserInfo::authenticated("ann", ["dev".into()])
        };
        identify(&mut headers, &user).unwrap();
        assert_eq!(
            shown(&headers),
            [
                "x-remote-extra-example.org%2fkey%25: 1",
                "x-remote-extra-example.org%2fkey%25: 2",
                "x-remote-group: dev",
                "x-remote-group: system:authenticated",
                "x-remote-uid: u-1",
                "x-remote-user: ann",
            ]
        );
        let odd = UserInfo::authenticated("a\nX-Remote-Group: system:masters", []);
        assert!(identify(&mut headers, &odd).is_err(), "nobody writes a second header");
        let masked = UserInfo { groups: vec![" system:masters".into()], ..odd };
        assert!(identify(&mut headers, &masked).is_err(), "nobody becomes another by blanks");
    }

    #[test]
    fn answers_change_no_browser() {
        let own = map(&[
            ("Content-Type", "text/html"),
            ("Set-Cookie", "a=b"),
            ("Access-Control-Allow-Origin", "*"),
            ("Strict-Transport-Security", "max-age=1"),
            ("Content-Security-Policy", "default-src *"),
            ("Location", "/openapi/v3?x"),
            ("WWW-Authenticate", "Basic"),
            ("Warning", "299 - \"old\""),
        ]);
        assert_eq!(
            shown(&to_client(&own)),
            [
                "content-security-policy: sandbox; default-src 'none'",
                "content-type: text/html",
                "warning: 299 - \"old\"",
                "x-content-type-options: nosniff",
            ]
        );
    }
}
