//! From a URL to what it asks for: which plane, and which resource, document or probe in it.
//!
//! A plane is chosen by the path prefix `/clusters/<plane>/` or by the host name `<plane>.<base domain>`, never by
//! both and never twice. Segments are decoded one by one; one that decodes to something with a slash in it, to
//! nothing, or to dots, selects nothing.

use polder_model::{PlaneName, SmolStr};
use polder_registry::tokens::{ISSUER_PATH, KEYS_PATH};

/// How many bytes of path are looked at.
const PATH_LEN_MAX: usize = 8 * 1024;
const PREFIX: &str = "clusters";

/// What a URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The plane the path or host names; `None` means the core plane.
    pub plane: Option<PlaneName>,
    /// What remains of the path, decoded.
    pub segments: Vec<SmolStr>,
}

/// What a path inside a plane asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Resource(ResourcePath),
    /// `/api`, `/apis`, `/apis/<group>`, `/api/v1`, `/apis/<group>/<version>`.
    Groups {
        core: bool,
    },
    Group(SmolStr),
    GroupVersion {
        group: SmolStr,
        version: SmolStr,
    },
    /// Anything else, by its path.
    Other(String),
}

/// What a plane serves beside its API groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// `/`: which paths there are.
    Paths,
    Version,
    /// `/livez` and the like, and `/livez/<check>`.
    Health,
    Metrics,
    /// `/metrics/slis`.
    Indicators,
    /// How tokens of the plane are verified, and with which keys.
    Issuer,
    IssuerKeys,
    OpenApiV2,
    /// The index, and behind it a document for each group version.
    OpenApiV3,
}

/// All pages. Requests find theirs here and nowhere else, and so does the test that asks who may read which.
pub const PAGES: &[(&str, Page)] = &[
    ("/", Page::Paths),
    (ISSUER_PATH, Page::Issuer),
    ("/healthz", Page::Health),
    ("/livez", Page::Health),
    ("/metrics", Page::Metrics),
    ("/metrics/slis", Page::Indicators),
    ("/openapi/v2", Page::OpenApiV2),
    ("/openapi/v3", Page::OpenApiV3),
    (KEYS_PATH, Page::IssuerKeys),
    ("/readyz", Page::Health),
    ("/version", Page::Version),
];

impl Page {
    /// The page at a path, and what follows it where a page has parts.
    pub fn find(path: &str) -> Option<(Page, &str)> {
        PAGES.iter().find_map(|(own, page)| match path.strip_prefix(own)? {
            "" => Some((*page, "")),
            part if page.has_parts() => Some((*page, part.strip_prefix('/')?)),
            _ => None,
        })
    }

    /// Whether something is served below it.
    pub fn has_parts(self) -> bool {
        matches!(self, Page::Health | Page::OpenApiV3)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: SmolStr,
    pub version: SmolStr,
    pub resource: SmolStr,
    pub namespace: SmolStr,
    pub name: SmolStr,
    pub subresource: SmolStr,
    /// What follows the subresource: the path behind `proxy`.
    pub rest: Vec<SmolStr>,
    /// The old `/watch/` prefix: a watch whatever the query says.
    pub watch_prefix: bool,
}

/// A URL that names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoute;

impl Route {
    /// Reads the path and host of a request. `base_domains` are the domains whose subdomains are planes.
    pub fn parse(path: &str, host: &str, base_domains: &[SmolStr]) -> Result<Route, NoRoute> {
        if path.len() > PATH_LEN_MAX {
            return Err(NoRoute);
        }
        let path = path.strip_prefix('/').ok_or(NoRoute)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let raw: Vec<&str> = if path.is_empty() { Vec::new() } else { path.split('/').collect() };
        let by_host = plane_of_host(host, base_domains);
        let (plane, rest) = match raw.as_slice() {
            [PREFIX, name, rest @ ..] if by_host.is_none() => {
                // As written, not decoded: one plane has one spelling.
                (Some(name.parse::<PlaneName>().map_err(|_| NoRoute)?), rest)
            }
            rest => (by_host, rest),
        };
        let segments: Vec<SmolStr> =
            rest.iter().map(|segment| decode(segment).ok_or(NoRoute)).collect::<Result<_, _>>()?;
        // A second plane, or one behind an escape: whoever reads the decoded path would see another plane than we do.
        if segments.first().is_some_and(|first| first == PREFIX) {
            return Err(NoRoute);
        }
        Ok(Route { plane, segments })
    }

    pub fn request(&self) -> Request {
        let texts: Vec<&str> = self.segments.iter().map(SmolStr::as_str).collect();
        match texts.as_slice() {
            ["api"] => Request::Groups { core: true },
            ["apis"] => Request::Groups { core: false },
            ["apis", group] => Request::Group(SmolStr::new(group)),
            ["api", version] => {
                Request::GroupVersion { group: SmolStr::default(), version: SmolStr::new(version) }
            }
            ["apis", group, version] => {
                Request::GroupVersion { group: SmolStr::new(group), version: SmolStr::new(version) }
            }
            ["api", version, rest @ ..] => resource("", version, rest),
            ["apis", group, version, rest @ ..] => resource(group, version, rest),
            _ => Request::Other(self.path()),
        }
    }

    /// The first part of the path inside the plane.
    pub fn first(&self) -> Option<&str> {
        self.segments.first().map(SmolStr::as_str)
    }

    /// The path inside the plane.
    pub fn path(&self) -> String {
        if self.segments.is_empty() {
            return "/".into();
        }
        self.segments.iter().fold(String::new(), |path, segment| path + "/" + segment)
    }
}

/// The plane a host name selects: the label in front of a base domain.
pub fn plane_of_host(host: &str, base_domains: &[SmolStr]) -> Option<PlaneName> {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
    });
    // The root of the name system may be spelled out.
    let name = name.strip_suffix('.').unwrap_or(name);
    base_domains.iter().find_map(|domain| {
        let label = name.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        label.parse().ok()
    })
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Request {
    let (watch_prefix, rest) = match rest {
        ["watch", rest @ ..] if !rest.is_empty() => (true, rest),
        rest => (false, rest),
    };
    let mut path = ResourcePath {
        group: SmolStr::new(group),
        version: SmolStr::new(version),
        watch_prefix,
        ..ResourcePath::default()
    };
    let own = |text: &&str| SmolStr::new(text);
    let rest = match rest {
        // `namespaces/<name>/status` and `/finalize` are parts of the namespace; anything else is inside it.
        ["namespaces", namespace, second, rest @ ..]
            if !(group.is_empty() && rest.is_empty() && matches!(*second, "status" | "finalize")) =>
        {
            path.namespace = own(namespace);
            path.resource = own(second);
            rest
        }
        [resource, rest @ ..] => {
            path.resource = own(resource);
            rest
        }
        [] => rest,
    };
    if let [name, rest @ ..] = rest {
        path.name = own(name);
        if let [subresource, rest @ ..] = rest {
            path.subresource = own(subresource);
            path.rest = rest.iter().map(own).collect();
        }
    }
    Request::Resource(path)
}

/// Percent-decodes one segment; `None` when it is empty, is dots, or hides a separator.
fn decode(segment: &str) -> Option<SmolStr> {
    let decoded = if segment.contains('%') { percent_decode(segment)? } else { segment.to_string() };
    let bad = decoded.is_empty()
        || decoded == "."
        || decoded == ".."
        || decoded.contains(['/', '\\', '\0', '%'])
        || decoded.chars().any(char::is_control);
    (!bad).then(|| SmolStr::from(decoded))
}

/// Percent-decodes text; `None` when an escape is broken or the result is no UTF-8.
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            let (high, low) = (digit(rest.next())?, digit(rest.next())?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Splits and decodes a query string; broken escapes are kept as written, as Go does not.
pub fn parse_query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        percent_decode(&text).unwrap_or(text)
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decode(key), decode(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains() -> Vec<SmolStr> {
        vec!["localhost".into(), "planes.example".into()]
    }

    #[track_caller]
    fn check(path: &str, host: &str, expected: Option<(&str, &str)>) {
        let found = Route::parse(path, host, &domains()).ok();
        let found = found
            .map(|route| (route.plane.as_ref().map_or(String::new(), ToString::to_string), route.path()));
        assert_eq!(found, expected.map(|(plane, path)| (plane.into(), path.into())), "{host} {path}");
    }

    #[test]
    fn planes_are_chosen_once() {
        check("/api/v1/pods", "h", Some(("", "/api/v1/pods")));
        check("/clusters/acme/api/v1/pods", "h", Some(("acme", "/api/v1/pods")));
        check("/", "h", Some(("", "/")));
        check("/clusters/acme", "h", Some(("acme", "/")));
        check("/clusters/acme/", "h:6443", Some(("acme", "/")));
        check("/api/v1", "acme.localhost:6443", Some(("acme", "/api/v1")));
        check("/api/v1", "acme.planes.example", Some(("acme", "/api/v1")));
        check("/api/v1", "acme.localhost.:6443", Some(("acme", "/api/v1")));
        check("/api/v1", "localhost:6443", Some(("", "/api/v1")));
        check("/api/v1", "a.b.localhost", Some(("", "/api/v1")));
    }

    #[test]
    fn tricks_select_nothing() {
        for path in [
            "/clusters",
            "/clusters/",
            "/clusters//api",
            "/clusters/a/clusters/b/api",
            "/clusters/a/clusters",
            "/clusters/a/%63lusters/b/api",
            "/%63lusters/a/api",
            "/cluster%73",
            "/clusters/A/api",
            "/clusters/a%2fb/api",
            "/clusters/%61/api",
            "/clusters/../api",
            "/clusters/a/../b/api",
            "/clusters/a/%2e%2e/b",
            "/clusters/a/api%2fv1",
            "/clusters/a//api",
            "/clusters/a/api/v1/namespaces/x/../../y",
            "//api",
            "/api//v1",
            "/api/v1/%00",
            "/api/v1/%zz",
            "/api/v1/%252f",
            "api",
            "",
        ] {
            check(path, "h", None);
        }
        check("/clusters/b/api", "a.localhost", None);
        check("/clusters", "a.localhost", None);
    }

    #[test]
    fn pages() {
        let rows = [
            ("/", Some((Page::Paths, ""))),
            ("/livez", Some((Page::Health, ""))),
            ("/livez/poststarthook/x", Some((Page::Health, "poststarthook/x"))),
            ("/livezz", None),
            ("/metrics/slis", Some((Page::Indicators, ""))),
            ("/metrics/other", None),
            ("/openapi/v3/apis/apps/v1", Some((Page::OpenApiV3, "apis/apps/v1"))),
            ("/openapi/v2/x", None),
            ("/anything", None),
            ("", None),
        ];
        for (path, expected) in rows {
            assert_eq!(Page::find(path), expected, "{path}");
        }
    }

    #[test]
    fn resources() {
        let request = |path: &str| match Route::parse(path, "h", &[]).unwrap().request() {
            Request::Resource(path) => format!(
                "{}/{} {} ns={} name={} sub={} rest={}{}",
                path.group,
                path.version,
                path.resource,
                path.namespace,
                path.name,
                path.subresource,
                path.rest.join("/"),
                if path.watch_prefix { " watch" } else { "" }
            ),
            other => format!("{other:?}"),
        };
        let rows = [
            ("/api/v1/pods", "/v1 pods ns= name= sub= rest="),
            ("/api/v1/namespaces/n/pods/p", "/v1 pods ns=n name=p sub= rest="),
            ("/api/v1/namespaces/n", "/v1 namespaces ns= name=n sub= rest="),
            ("/api/v1/namespaces/n/status", "/v1 namespaces ns= name=n sub=status rest="),
            ("/api/v1/namespaces/n/finalize", "/v1 namespaces ns= name=n sub=finalize rest="),
            ("/api/v1/namespaces/n/pods/p/log", "/v1 pods ns=n name=p sub=log rest="),
            (
                "/apis/apps/v1/namespaces/n/deployments/d/scale",
                "apps/v1 deployments ns=n name=d sub=scale rest=",
            ),
            ("/apis/apps/v1/namespaces/n/status", "apps/v1 status ns=n name= sub= rest="),
            ("/api/v1/nodes/n/proxy/a/b", "/v1 nodes ns= name=n sub=proxy rest=a/b"),
            ("/api/v1/watch/pods", "/v1 pods ns= name= sub= rest= watch"),
            ("/apis/apps", "Group(\"apps\")"),
            ("/version", "Other(\"/version\")"),
        ];
        for (path, expected) in rows {
            assert_eq!(request(path), expected, "{path}");
        }
    }
}
