//! Events of `audit.k8s.io/v1`, written as JSON straight into a buffer. Everything but the head (`kind`, `apiVersion`, or
//! the metadata of an entry of a trail) is the *tail*, which all backends share.
//!
//! Invariant: no credential is in it. Values of the query that may be one are cut, and whoever writes bodies has asked the policy,
//! which allows none where credentials are.

use std::net::IpAddr;

use http::{HeaderMap, Uri};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use polder_auth::UserInfo;
use polder_model::value::write_string;

/// The annotation that says how many events are missing.
pub(super) const LOST: &str = "audit.polder.dev/lost";
/// As upstream has it.
const AGENT_LEN_MAX: usize = 1024;
const URI_LEN_MAX: usize = 8 * 1024;
/// What proxies say about where a request comes from.
const SOURCES_MAX: usize = 8;
/// Names of query parameters whose values are cut, in small letters.
const SECRET_WORDS: [&str; 11] = [
    "token",
    "bearer",
    "password",
    "secret",
    "authorization",
    "credential",
    "api_key",
    "apikey",
    "api-key",
    "jwt",
    "signature",
];

/// What stands before the tail in logs and lists.
pub(super) const HEAD: &[u8] = b"{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",";

/// `"key":"text",`.
pub(super) fn write_member(key: &str, text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":");
    write_string(text, out);
    out.push(b',');
}

/// The same if there is something to say.
fn write_some(key: &str, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        write_member(key, text, out);
    }
}

/// Ends an object that was written with a comma after each member.
pub(super) fn end_object(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
}

fn write_texts<'a>(texts: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (index, text) in texts.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(text, out);
    }
    out.push(b']');
}

pub(super) fn write_user(key: &str, user: &UserInfo, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(b"\":{");
    write_some("username", &user.name, out);
    write_some("uid", &user.uid, out);
    if !user.groups.is_empty() {
        out.extend_from_slice(b"\"groups\":");
        write_texts(user.groups.iter().map(|group| group.as_str()), out);
        out.push(b',');
    }
    if !user.extra.is_empty() {
        out.extend_from_slice(b"\"extra\":{");
        for (key, values) in &user.extra {
            write_string(key, out);
            out.push(b':');
            write_texts(values.iter().map(|value| value.as_str()), out);
            out.push(b',');
        }
        end_object(out);
        out.push(b',');
    }
    end_object(out);
    out.push(b',');
}

/// `"requestURI":"…",` without what may be a credential.
pub(super) fn write_uri(uri: &Uri, out: &mut Vec<u8>) {
    let mut text = String::from(uri.path());
    for (index, pair) in uri.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // A name may be spelled with escapes.
        let name = crate::route::percent_decode(key).unwrap_or_else(|| key.to_string()).to_ascii_lowercase();
        match SECRET_WORDS.iter().any(|word| name.contains(word)) && !value.is_empty() {
            true => {
                text.push_str(key);
                text.push_str("=<cut>");
            }
            false => text.push_str(pair),
        }
    }
    write_member("requestURI", cut(&text, URI_LEN_MAX), out);
}

fn cut(text: &str, len_max: usize) -> &str {
    &text[..text.floor_char_boundary(len_max)]
}

/// `"sourceIPs":[…],"userAgent":"…",`.
pub(super) fn write_origin(headers: &HeaderMap, address: Option<IpAddr>, out: &mut Vec<u8>) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let forwarded = text("x-forwarded-for").into_iter().flat_map(|all| all.split(','));
    let told = forwarded.chain(text("x-real-ip")).filter_map(|one| one.trim().parse::<IpAddr>().ok());
    let mut sources: Vec<IpAddr> = told.take(SOURCES_MAX).collect();
    if let Some(address) = address
        && sources.last() != Some(&address)
    {
        sources.push(address);
    }
    if !sources.is_empty() {
        out.extend_from_slice(b"\"sourceIPs\":[");
        for address in sources {
            out.push(b'"');
            out.extend_from_slice(address.to_string().as_bytes());
            out.extend_from_slice(b"\",");
        }
        out.pop();
        out.extend_from_slice(b"],");
    }
    if let Some(agent) = text("user-agent").filter(|agent| !agent.is_empty()) {
        match agent.len() > AGENT_LEN_MAX {
            true => write_member("userAgent", &format!("{}...TRUNCATED", cut(agent, AGENT_LEN_MAX)), out),
            false => write_member("userAgent", agent, out),
        }
    }
}

/// To the microsecond, in UTC.
pub(super) fn write_time(time: Timestamp, out: &mut Vec<u8>) {
    write_date(time, out);
    let micros = time.subsec_microsecond().unsigned_abs();
    out.push(b'.');
    write_digits(micros, 6, out);
    out.push(b'Z');
}

/// To the second.
pub(super) fn write_seconds(seconds: i64, out: &mut Vec<u8>) {
    write_date(Timestamp::from_second(seconds).unwrap_or_default(), out);
    out.push(b'Z');
}

fn write_date(time: Timestamp, out: &mut Vec<u8>) {
    let when = TimeZone::UTC.to_datetime(time);
    let number = |number: i8| u32::from(number.unsigned_abs());
    for (number, digits, before) in [
        (u32::from(when.year().unsigned_abs()), 4, None),
        (number(when.month()), 2, Some(b'-')),
        (number(when.day()), 2, Some(b'-')),
        (number(when.hour()), 2, Some(b'T')),
        (number(when.minute()), 2, Some(b':')),
        (number(when.second()), 2, Some(b':')),
    ] {
        out.extend(before);
        write_digits(number, digits, out);
    }
}

fn write_digits(number: u32, digits: u32, out: &mut Vec<u8>) {
    for place in (0..digits).rev() {
        out.push(b'0' + u8::try_from(number / 10_u32.pow(place) % 10).unwrap_or_default());
    }
}

/// The tail of an event that says that others are missing.
pub(super) fn write_gap(seconds: i64, lost: u64, why: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(
        b"\"level\":\"Metadata\",\"auditID\":\"\",\"stage\":\"\",\"requestURI\":\"\",\"verb\":\"\",",
    );
    out.extend_from_slice(b"\"user\":{},\"stageTimestamp\":\"");
    write_time(Timestamp::from_second(seconds).unwrap_or_default(), out);
    out.extend_from_slice(b"\",\"annotations\":{");
    write_member(LOST, &lost.to_string(), out);
    write_member("audit.polder.dev/lost-why", why, out);
    end_object(out);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_uri(uri: &str, expected: &str) {
        let mut out = Vec::new();
        write_uri(&uri.parse().unwrap(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), format!("\"requestURI\":\"{expected}\","));
    }

    #[test]
    fn credentials_in_the_query_are_cut() {
        check_uri("/api/v1/pods?limit=5&watch=1", "/api/v1/pods?limit=5&watch=1");
        check_uri("/x?token=abc&limit=1", "/x?token=<cut>&limit=1");
        check_uri("/x?access_token=abc", "/x?access_token=<cut>");
        check_uri("/x?api_key=abc&X-Amz-Signature=0", "/x?api_key=<cut>&X-Amz-Signature=<cut>");
        check_uri("/x?%74oken=abc", "/x?%74oken=<cut>");
        check_uri("/x?Authorization=abc&token=", "/x?Authorization=<cut>&token=");
        check_uri("/x?continue=abc", "/x?continue=abc");
    }

    #[test]
    fn times() {
        let mut out = Vec::new();
        write_time(Timestamp::from_microsecond(1_700_000_000_000_042).unwrap(), &mut out);
        out.push(b' ');
        write_seconds(0, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "2023-11-14T22:13:20.000042Z 1970-01-01T00:00:00Z");
    }

    #[test]
    fn origins() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "10.0.0.1, nonsense, 10.0.0.2".parse().unwrap());
        headers.insert("user-agent", "kubectl/v1".parse().unwrap());
        let mut out = Vec::new();
        write_origin(&headers, Some("192.0.2.1".parse().unwrap()), &mut out);
        let expected = r#""sourceIPs":["10.0.0.1","10.0.0.2","192.0.2.1"],"userAgent":"kubectl/v1","#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
