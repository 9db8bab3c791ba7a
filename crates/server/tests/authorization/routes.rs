//! Everything that can be asked of a plane, from what the server routes by.

use std::sync::Arc;

use polder_registry::ResourceDefinition;
use polder_server::route::{PAGES, Page};
use polder_test_support::{TestServer, Value, json};

/// The group and version that another server serves.
pub(crate) const EXTENSION: (&str, &str) = ("wardle.example.com", "v1alpha1");
/// Nothing has this name, so nothing is changed by whoever may.
const NAME: &str = "missing";

/// What a request must be allowed: a verb on a resource or on a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    /// `None` for a path.
    pub(crate) group: Option<String>,
    /// `pods/exec`, or the path.
    pub(crate) resource: String,
    pub(crate) verb: &'static str,
    /// It also needs the right to create: it makes what is not there.
    pub(crate) and_create: bool,
}

impl Right {
    /// As people name it.
    pub(crate) fn thing(&self) -> String {
        match self.group.as_deref() {
            None | Some("") => self.resource.clone(),
            Some(group) => match self.resource.split_once('/') {
                Some((resource, part)) => format!("{resource}.{group}/{part}"),
                None => format!("{}.{group}", self.resource),
            },
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) right: Right,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) media: &'static str,
    pub(crate) body: String,
    /// A way to ask that is not the usual one.
    pub(crate) note: &'static str,
    /// The answer is a stream: only its head is looked at.
    pub(crate) streams: bool,
}

/// What is asked by a verb: the method, and whether it is about one object.
fn methods(verb: &str) -> (&'static str, bool, &'static str) {
    match verb {
        "get" => ("GET", true, "get"),
        "list" => ("GET", false, "list"),
        "watch" => ("GET", false, "watch"),
        "create" => ("POST", false, "create"),
        "update" => ("PUT", true, "update"),
        "patch" => ("PATCH", true, "patch"),
        "delete" => ("DELETE", true, "delete"),
        "deletecollection" => ("DELETE", false, "deletecollection"),
        other => panic!("nobody knows how to ask for the verb {other:?}: say so here"),
    }
}

/// Everything there is in a plane.
pub(crate) fn of_plane(server: &TestServer, plane: &str) -> Vec<Ask> {
    let definitions = definitions(server, plane);
    let mut asks: Vec<Ask> = definitions.iter().flat_map(|definition| of_definition(definition)).collect();
    let mut paths = vec!["/api".to_owned(), "/apis".to_owned()];
    for definition in &definitions {
        for version in &definition.versions {
            if definition.group.is_empty() {
                paths.push(format!("/api/{}", version.name));
            } else {
                paths.push(format!("/apis/{}", definition.group));
                paths.push(format!("/apis/{}/{}", definition.group, version.name));
            }
        }
    }
    let (group, version) = EXTENSION;
    paths.push(format!("/apis/{group}"));
    paths.push(format!("/apis/{group}/{version}"));
    paths.sort();
    paths.dedup();
    asks.extend(paths.into_iter().flat_map(of_path));
    asks.extend(pages());
    asks.extend(handed_on());
    asks
}

/// What only the core plane has, and the pages, some of which are others there.
pub(crate) fn of_core(server: &TestServer, elsewhere: &[Ask]) -> Vec<Ask> {
    let definitions = definitions(server, "core");
    let asks = definitions.iter().flat_map(|definition| of_definition(definition));
    asks.filter(|ask| elsewhere.iter().all(|known| known.path != ask.path)).chain(pages()).collect()
}

fn definitions(server: &TestServer, plane: &str) -> Vec<Arc<ResourceDefinition>> {
    let registry = &server.registry;
    let plane = registry.store.plane(plane).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let catalog = runtime.block_on(registry.catalog(&plane)).unwrap();
    catalog.definitions().cloned().collect()
}

fn pages() -> Vec<Ask> {
    let part = |page: &Page| match page {
        Page::Health => Some("ping"),
        Page::OpenApiV3 => Some("api/v1"),
        _ => None,
    };
    let all = PAGES.iter().flat_map(|(path, page)| {
        let below = part(page).filter(|_| page.has_parts()).map(|part| format!("{path}/{part}"));
        [Some((*path).to_owned()), below].into_iter().flatten()
    });
    all.flat_map(of_path).collect()
}

fn of_path(path: String) -> Vec<Ask> {
    let right = Right { group: None, resource: path.clone(), verb: "get", and_create: false };
    vec![plain(right, "GET", path)]
}

fn plain(right: Right, method: &'static str, path: String) -> Ask {
    Ask { right, method, path, media: "application/json", body: String::new(), note: "", streams: false }
}

/// Every way to ask for every verb of a resource and its parts, in every version.
fn of_definition(definition: &ResourceDefinition) -> Vec<Ask> {
    let mut asks = Vec::new();
    for version in &definition.versions {
        let root = match definition.group.as_str() {
            "" => format!("/api/{}", version.name),
            group => format!("/apis/{group}/{}", version.name),
        };
        let kind = (definition.kind.as_str(), root.trim_start_matches("/apis/").trim_start_matches("/api/"));
        let plural = &definition.plural;
        let place = if definition.namespaced { "/namespaces/default" } else { "" };
        let collection = format!("{root}{place}/{plural}");
        let named = format!("{collection}/{NAME}");
        let right = |resource: &str, verb| Right {
            group: Some(definition.group.to_string()),
            resource: resource.to_owned(),
            verb,
            and_create: false,
        };
        for verb in &version.verbs {
            let (method, one, verb) = methods(verb);
            let path = if one { &named } else { &collection };
            let own = right(plural, verb);
            let everywhere = format!("{root}/{plural}");
            match verb {
                "get" => asks.push(plain(own, method, path.clone())),
                "list" => {
                    asks.push(plain(own.clone(), method, format!("{path}?limit=1")));
                    if definition.namespaced {
                        let path = format!("{everywhere}?limit=1");
                        asks.push(Ask { note: "(everywhere)", ..plain(own, method, path) });
                    }
                }
                "watch" => {
                    let old = path.replacen(&root, &format!("{root}/watch"), 1);
                    let mut ways = vec![(format!("{path}?watch=true"), ""), (old.clone(), "(old path)")];
                    ways.push((format!("{old}/{NAME}"), "(old path, one)"));
                    if definition.namespaced {
                        ways.push((format!("{everywhere}?watch=true"), "(everywhere)"));
                    }
                    for (path, note) in ways {
                        asks.push(Ask { note, streams: true, ..plain(own.clone(), method, path) });
                    }
                }
                "patch" => asks.extend(patches(&own, path, kind, definition.is_custom())),
                "update" => {
                    let and_create = definition.behavior.create_on_update;
                    let own = Right { and_create, ..own };
                    asks.push(write(own, method, path, &object(kind, definition.namespaced)));
                }
                _ => asks.push(write(own, method, path, &body(method, kind))),
            }
        }
        for part in &version.subresources {
            let path = format!("{named}/{}", part.name);
            let resource = format!("{plural}/{}", part.name);
            for verb in &part.verbs {
                let (method, _, verb) = methods(verb);
                let own = right(&resource, verb);
                // The right must be enough wherever the path behind a proxy leads.
                let paths = match part.name.as_str() {
                    "proxy" => vec![path.clone(), format!("{path}/a/b")],
                    _ => vec![path.clone()],
                };
                for path in paths {
                    let own = own.clone();
                    asks.push(match method {
                        "GET" => plain(own, method, path),
                        // A plane comes as lines.
                        "POST" if part.name == "import" => {
                            Ask { media: "application/jsonl", ..write(own, method, &path, &json!({})) }
                        }
                        "PATCH" => Ask { media: MERGE, ..write(own, method, &path, &json!({})) },
                        _ => {
                            let api_version = match part.kind.group.as_str() {
                                "" => part.kind.version.to_string(),
                                group => format!("{group}/{}", part.kind.version),
                            };
                            let kind = (part.kind.kind.as_str(), api_version.as_str());
                            write(own, method, &path, &object(kind, definition.namespaced))
                        }
                    });
                }
            }
        }
    }
    asks
}

const MERGE: &str = "application/merge-patch+json";

/// Every kind of patch. One that applies makes what is not there.
fn patches(own: &Right, path: &str, kind: (&str, &str), is_custom: bool) -> Vec<Ask> {
    let mut asks = vec![
        Ask { media: MERGE, note: "(merge)", ..write(own.clone(), "PATCH", path, &json!({})) },
        Ask {
            media: "application/json-patch+json",
            note: "(json)",
            ..write(own.clone(), "PATCH", path, &json!([]))
        },
    ];
    if !is_custom {
        let media = "application/strategic-merge-patch+json";
        asks.push(Ask { media, note: "(strategic)", ..write(own.clone(), "PATCH", path, &json!({})) });
    }
    let applied = Right { and_create: true, ..own.clone() };
    let path = format!("{path}?fieldManager=test");
    let applied = write(applied, "PATCH", &path, &object(kind, path.contains("/namespaces/")));
    asks.push(Ask { media: "application/apply-patch+yaml", note: "(apply)", ..applied });
    asks
}

/// A write that changes nothing.
fn write(right: Right, method: &'static str, path: &str, body: &Value) -> Ask {
    let path = format!("{path}{}dryRun=All", if path.contains('?') { '&' } else { '?' });
    let body = if body.is_null() { String::new() } else { body.to_string() };
    Ask { body, ..plain(right, method, path) }
}

fn body(method: &str, (kind, api_version): (&str, &str)) -> Value {
    match method {
        "POST" => json!({"apiVersion": api_version, "kind": kind}),
        _ => Value::Null,
    }
}

fn object((kind, api_version): (&str, &str), namespaced: bool) -> Value {
    let metadata = match namespaced {
        true => json!({"name": NAME, "namespace": "default"}),
        false => json!({"name": NAME}),
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

/// What leads a plane to the extension server.
pub(crate) fn extension_objects() -> Vec<(String, Value)> {
    let (group, version) = EXTENSION;
    let address = "127.0.0.1:443".parse().unwrap();
    let (certificate, _) = polder_test_support::extension::certificate("api.default.svc").unwrap();
    let ca_bundle = polder_test_support::extension::ca_bundle(&certificate);
    let server = polder_test_support::extension::ExtensionServer { address, ca_bundle };
    server.objects("default", "api", group, version).into()
}

/// What an extension server is asked for: any verb, whether it has it or not.
fn handed_on() -> Vec<Ask> {
    let (group, version) = EXTENSION;
    let collection = format!("/apis/{group}/{version}/namespaces/default/flunders");
    let right = |resource: &str, verb| Right {
        group: Some(group.to_owned()),
        resource: resource.to_owned(),
        verb,
        and_create: false,
    };
    let mut asks = Vec::new();
    for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"] {
        let (method, one, verb) = methods(verb);
        let path = if one { format!("{collection}/{NAME}") } else { collection.clone() };
        let query = if verb == "watch" { "?watch=true" } else { "" };
        asks.push(Ask {
            streams: verb == "watch",
            ..plain(right("flunders", verb), method, format!("{path}{query}"))
        });
    }
    for (method, verb) in
        [("GET", "get"), ("POST", "create"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")]
    {
        let path = format!("{collection}/{NAME}/anything/below");
        asks.push(plain(right("flunders/anything", verb), method, path));
    }
    let path = format!("/openapi/v3/apis/{group}/{version}");
    asks.extend(of_path(path));
    asks
}
