//! URLs as Go reads them in a request: absolute, or a path from the root.

use std::collections::BTreeMap;

use super::opaque::{OpaqueValue, opaque_arg, text};
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, global, member};
use crate::value::{Key, Text, Value};

pub(super) fn table() -> Vec<Overload> {
    vec![
        global("string_to_url", "url(string) -> url", to_url, Cost::Scan),
        member("url_get_scheme", "url.getScheme() -> string", scheme, Cost::One),
        member("url_get_host", "url.getHost() -> string", host, Cost::One),
        member("url_get_hostname", "url.getHostname() -> string", hostname, Cost::One),
        member("url_get_port", "url.getPort() -> string", port, Cost::One),
        member("url_get_escaped_path", "url.getEscapedPath() -> string", escaped_path, Cost::One),
        member("url_get_query", "url.getQuery() -> map(string, list(string))", query, Cost::One),
        global("is_url_string", "isURL(string) -> bool", is_url, Cost::One),
    ]
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    user: String,
    host: String,
    opaque: String,
    path: String,
    query: String,
    fragment: String,
}

/// Why a text is no URL, in Go's words.
pub(super) fn problem(text: &str) -> Option<String> {
    Url::parse(text, true).err().map(|why| format!("parse {text:?}: {why}"))
}

impl Url {
    fn parse(text: &str, request: bool) -> Result<Url, String> {
        if text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
            return Err("net/url: invalid control character in URL".into());
        }
        if text.is_empty() && request {
            return Err("empty url".into());
        }
        let mut url = Url::default();
        if text == "*" {
            url.path = "*".into();
            return Ok(url);
        }
        let (scheme, rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        url.query = query.into();
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                url.opaque = rest.into();
                return Ok(url);
            }
            if request {
                return Err("invalid URI for request".into());
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        let has_authority = !scheme.is_empty() || (!request && !rest.starts_with("///"));
        let path = match rest.strip_prefix("//").filter(|_| has_authority) {
            Some(authority) => {
                let end = authority.find('/').unwrap_or(authority.len());
                let (authority, path) = authority.split_at(end);
                let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
                url.user = user.into();
                url.host = parse_host(&url.scheme, host)?;
                path
            }
            None => rest,
        };
        let plain = unescape(path, false)?;
        url.path = match escape(&plain) {
            escaped if escaped == path || !is_encoded(path) => escaped,
            _ => path.into(),
        };
        Ok(url)
    }

    fn hostname(&self) -> &str {
        let host = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.host,
        };
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    fn port(&self) -> &str {
        match self.host.rsplit_once(':') {
            Some((_, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => port,
            _ => "",
        }
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&text[..at], &text[at + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn parse_host(scheme: &str, host: &str) -> Result<String, String> {
    let port_fine = |port: &str| {
        port.is_empty()
            || port.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let bad_port = |port: &str| format!("invalid port {port:?} after host");
    match host.rfind('[') {
        Some(0) => {
            let close = host.rfind(']').ok_or("missing ']' in host")?;
            if !port_fine(&host[close + 1..]) {
                return Err(bad_port(&host[close + 1..]));
            }
            let inner = host[1..close].split("%25").next().unwrap_or_default();
            if inner.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(format!("invalid host: ParseAddr({:?}): unable to parse IP", &host[1..close]));
            }
            return Ok(host.replace("%25", "%"));
        }
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    let first = host.find(':');
    let colon = if matches!(scheme, "http" | "https") { first } else { host.rfind(':') };
    if let Some(at) = colon.filter(|at| !port_fine(&host[*at..])) {
        return Err(bad_port(&host[at..]));
    }
    unescape(host, true)
}

/// Percent signs decoded. Hosts may only hide letters beyond ASCII that way.
fn unescape(text: &str, host: bool) -> Result<String, String> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%' {
            let digits = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
            let code = digits
                .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .and_then(|digits| u8::from_str_radix(digits, 16).ok());
            let shown = || String::from_utf8_lossy(&bytes[at..bytes.len().min(at + 3)]).into_owned();
            match code {
                Some(code) if !host || code >= 0x80 => out.push(code),
                _ => return Err(format!("invalid URL escape {:?}", shown())),
            }
            at += 3;
            continue;
        }
        if host
            && byte.is_ascii()
            && !byte.is_ascii_alphanumeric()
            && !b"-_.~!$&'()*+,;=:[]<>\"".contains(byte)
        {
            return Err(format!("invalid character {:?} in host name", char::from(*byte).to_string()));
        }
        out.push(*byte);
        at += 1;
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn escape(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn is_encoded(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!'()*[]%".contains(&byte))
}

opaque_arg!(url, Url, Url);

fn to_url<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    meter.allocate(text.len() * 2)?;
    if let Some(problem) = problem(text) {
        return Err(Fault::error(format!("URL parse error during conversion from string: {problem}")));
    }
    let (main, fragment) = text.split_once('#').unwrap_or((text, ""));
    let mut url = Url::parse(main, false).map_err(|why| {
        Fault::error(format!("URL parse error during conversion from string: parse {text:?}: {why}"))
    })?;
    url.fragment = fragment.into();
    Ok(Value::opaque(OpaqueValue::Url(url)))
}

fn is_url<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let text = text(args, 0)?;
    meter.work(text.len() as u64)?;
    Ok(Value::Bool(problem(text).is_none()))
}

fn scheme<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(url(args, 0)?.scheme.as_str()))
}

fn host<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(url(args, 0)?.host.as_str()))
}

fn hostname<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(url(args, 0)?.hostname()))
}

fn port<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(url(args, 0)?.port()))
}

fn escaped_path<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let url = url(args, 0)?;
    meter.allocate(url.path.len())?;
    Ok(Value::text(url.path.as_str()))
}

fn query<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let url = url(args, 0)?;
    meter.allocate(url.query.len().saturating_mul(4))?;
    let decode = |text: &str| unescape(&text.replace('+', " "), false).ok();
    let mut values: BTreeMap<String, Vec<Value<'a>>> = BTreeMap::new();
    for pair in url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        meter.allocate(size_of::<Value<'_>>())?;
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(key), Some(value)) = (decode(key), decode(value)) {
            values.entry(key).or_default().push(Value::text(value));
        }
    }
    let entries =
        values.into_iter().map(|(key, values)| (Key::String(Text::Shared(key.into())), Value::list(values)));
    Ok(Value::map(entries.collect()))
}
