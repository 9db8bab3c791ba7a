//! Proxies that authenticate for us: what their headers say about somebody. Only a proxy with a certificate of the authority
//! that the provider names for proxies is believed, and only by a name it allows.
//!
//! Whether the certificate is good is for whoever speaks TLS to say; here is whether its name is allowed, and what the
//! headers mean.

use polder_model::SmolStr;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::UserInfo;

/// How names begin by which a server like this one says to extension servers of tenants who somebody is. A tenant chooses where that
/// goes, so it must not be believed here, whichever authority the provider has named.
const TOLD_OF_PLANES: &str = "front-proxy-client-plane-";
/// Values that are read of one request; more are refused.
const VALUES_LEN_MAX: usize = 1024;

/// Which headers count, and whose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// Common names of proxies; with none, whoever has a certificate.
    pub allowed_names: Vec<String>,
    pub username: Vec<String>,
    pub uid: Vec<String>,
    pub group: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl ProxyHeaders {
    /// Whether a verified certificate is that of a proxy.
    pub fn allows(&self, der: &[u8]) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
        let name = certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
        if name.is_some_and(|name| name.starts_with(TOLD_OF_PLANES)) {
            return false;
        }
        self.allowed_names.is_empty()
            || name.is_some_and(|name| self.allowed_names.iter().any(|allowed| allowed == name))
    }

    /// Who the headers say it is; `None` when they name nobody. `Err` when they say too much.
    pub fn user(&self, headers: &[(&str, &[u8])]) -> Result<Option<UserInfo>, super::Unauthenticated> {
        let text =
            |value: &[u8]| std::str::from_utf8(value).map(SmolStr::new).map_err(|_| super::Unauthenticated);
        // The first name that is there counts, whatever the order of the headers.
        let first = |names: &[String]| {
            let found = names.iter().find_map(|wanted| {
                let mut own = headers
                    .iter()
                    .filter(|(name, value)| name.eq_ignore_ascii_case(wanted) && !value.is_empty());
                own.next()
            });
            found.map(|(_, value)| text(value)).transpose()
        };
        let Some(name) = first(&self.username)? else { return Ok(None) };
        let mut groups = Vec::new();
        let mut extra: Vec<(SmolStr, Vec<SmolStr>)> = Vec::new();
        let mut count = 0;
        for &(header, value) in headers {
            if is_among(header, &self.group) && !value.is_empty() {
                groups.push(text(value)?);
                count += 1;
            }
            if let Some(key) = self.extra_prefixes.iter().find_map(|prefix| after(header, prefix)) {
                let key = SmolStr::from(unescaped(key).to_lowercase());
                let value = text(value)?;
                count += 1;
                match extra.iter_mut().find(|(own, _)| *own == key) {
                    Some((_, values)) => values.push(value),
                    None => extra.push((key, vec![value])),
                }
            }
            if count > VALUES_LEN_MAX {
                return Err(super::Unauthenticated);
            }
        }
        let mut user = UserInfo::authenticated(name, groups);
        user.uid = first(&self.uid)?.unwrap_or_default();
        user.extra = extra;
        Ok(Some(user))
    }

    /// Whether a header is one of those, and so not for anybody behind.
    pub fn is_own(&self, header: &str) -> bool {
        [&self.username, &self.uid, &self.group].into_iter().any(|names| is_among(header, names))
            || self.extra_prefixes.iter().any(|prefix| after(header, prefix).is_some())
    }
}

fn is_among(header: &str, names: &[String]) -> bool {
    names.iter().any(|name| name.eq_ignore_ascii_case(header))
}

fn after<'h>(header: &'h str, prefix: &str) -> Option<&'h str> {
    let (start, rest) = header.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Percent-encoded bytes decoded; what is not encoded well stays as it is.
fn unescaped(key: &str) -> String {
    let mut out = Vec::with_capacity(key.len());
    let mut bytes = key.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits: Option<Vec<u8>> = (0..2)
            .map(|_| bytes.next().and_then(|digit| char::from(digit).to_digit(16)))
            .map(|digit| digit.and_then(|digit| u8::try_from(digit).ok()))
            .collect();
        match digits.as_deref() {
            Some([high, low]) => out.push(high * 16 + low),
            _ => return key.to_owned(),
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies() -> ProxyHeaders {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ProxyHeaders {
            allowed_names: list(&["proxy"]),
            username: list(&["X-Remote-User", "X-User"]),
            uid: list(&["X-Remote-Uid"]),
            group: list(&["X-Remote-Group"]),
            extra_prefixes: list(&["X-Remote-Extra-"]),
        }
    }

    fn user(headers: &[(&str, &str)]) -> Result<Option<UserInfo>, super::super::Unauthenticated> {
        {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
            proxies().user(&headers)
        }
    }

    #[test]
    fn headers_say_who() {
        let found = user(&[
            ("x-user", "second"),
            ("x-remote-user", "ann"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-polder.dev%2fPlane", "acme"),
            ("x-remote-extra-scope", "1"),
            ("x-remote-extra-scope", "2"),
        ]);
        let found = found.unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.uid.as_str()), ("ann", "7"));
        assert_eq!(found.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(found.extra[0], ("polder.dev/plane".into(), vec!["acme".into()]));
        assert_eq!(found.extra[1], ("scope".into(), vec!["1".into(), "2".into()]));
        assert_eq!(user(&[("x-remote-user", ""), ("x-remote-group", "system:masters")]), Ok(None));
        assert!(user(&[("x-remote-user", "a"), ("x-remote-extra-100%", "1")]).unwrap().is_some());
        let many = vec![("x-remote-group", "g"); VALUES_LEN_MAX + 1];
        assert!(user(&[&[("x-remote-user", "a")][..], &many].concat()).is_err());
        assert!(proxies().is_own("X-REMOTE-EXTRA-a") && !proxies().is_own("x-remote"));
    }

    #[test]
    fn only_allowed_names() {
        let certificate = |name: &str| {
            let mut params = rcgen::CertificateParams::default();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
        };
        assert!(proxies().allows(&certificate("proxy")));
        assert!(!proxies().allows(&certificate("other")) && !proxies().allows(b"x"));
        let anybody = ProxyHeaders { allowed_names: Vec::new(), ..proxies() };
        assert!(anybody.allows(&certificate("other")));
        assert!(!anybody.allows(&certificate("front-proxy-client-plane-7")), "that is for extension servers");
    }
}
