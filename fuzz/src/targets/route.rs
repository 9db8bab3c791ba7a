//! Paths and host names: at most one plane is selected, and a route means the same when it is written down.
//!
//! The input is a host name, a newline and a path.

use polder_model::SmolStr;
use polder_server::route::{Request, Route, plane_of_host};

pub const WORDS: &[&str] = &[
    "/", "\n/", "clusters", "/clusters/acme", "/clusters/", "%63lusters", "acme", "acme.localhost", "localhost:6443",
    ".localhost", "a.planes.example", "/api/v1", "/apis/apps/v1", "/namespaces/n", "/pods", "/watch", "/status",
    "/proxy/", "%2f", "%2e%2e", "..", ".", "//", "%00", "%25", "%zz", "%c3%a9", "é", "\\", "A", ":", "?", "#", ";",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (host, path) = text.split_once('\n').unwrap_or(("", text));
    let domains = [SmolStr::new("localhost"), SmolStr::new("planes.example")];
    let by_host = plane_of_host(host, &domains);
    let Ok(route) = Route::parse(path, host, &domains) else { return };

    match (&by_host, &route.plane) {
        (Some(by_host), plane) => assert_eq!(plane.as_ref(), Some(by_host), "the host names the plane"),
        (None, Some(plane)) => {
            let rest = path.strip_prefix(&format!("/clusters/{plane}")).expect("the path names the plane");
            assert!(rest.is_empty() || rest.starts_with('/'), "the path names this plane and no longer one");
        }
        (None, None) => {}
    }
    assert_ne!(route.segments.first().map(SmolStr::as_str), Some("clusters"), "no second plane is named");
    for segment in &route.segments {
        assert!(!segment.is_empty() && segment != "." && segment != "..", "{segment:?}");
        assert!(!segment.contains(['/', '%', '\0', '\\']), "{segment:?}");
    }

    let prefix = route.plane.as_ref().map_or(String::new(), |plane| format!("/clusters/{plane}"));
    let printed = format!("{prefix}{}", route.path());
    let printed = if printed.is_empty() { "/".to_string() } else { printed };
    assert_eq!(Route::parse(&printed, "", &domains).as_ref(), Ok(&route), "{printed} means the same");

    if let Request::Resource(resource) = route.request() {
        let parts = [&resource.group, &resource.version, &resource.resource, &resource.namespace, &resource.name];
        for part in parts.into_iter().chain([&resource.subresource]).chain(&resource.rest) {
            assert!(part.is_empty() || route.segments.contains(part), "{part:?} stands in the path");
        }
        assert!(!resource.resource.is_empty());
    }
    crate::accepted();
}
