//! Which flow schema and priority level a request belongs to, by what the plane's objects of those kinds say.
//!
//! Clients read in the headers of their answers what they belong to, and within its plane it decides who goes first while
//! there is much to do. How planes share the server is decided elsewhere and by nobody's objects.
//!
//! The schemas of a plane are read when somebody first asks something of it, compiled, shared by content with the other
//! planes that have the same, and kept until one of them is written. To classify costs some comparisons.

mod levels;

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value};
use polder_store::{ListQuery, Plane, StoredObject};
use sha2::{Digest as _, Sha256};

use crate::custom::Interned;
use crate::memo::{Epoch, Memo};
use crate::registry::Registry;
use crate::status::read_failed;

pub(crate) const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";

/// Planes whose schemas are kept.
const PLANES_LEN_MAX: usize = 100_000;
/// What all compiled schemas may take.
const BYTES_MAX: usize = 32 << 20;
/// Of a plane that has more schemas or levels, only so many bytes are read.
const READ_BYTES_MAX: usize = 256 << 10;
/// Names that rules of one plane may have, so that every request of it is classified quickly. Schemas behind that many
/// are not heeded.
const NAMES_MAX: usize = 4096;

pub use self::levels::{Extent, Level, WhenFull};

/// What a request belongs to.
#[derive(Debug)]
pub struct Flow {
    /// UID, as headers show it.
    pub schema: Bytes,
    /// Its place among the levels.
    level: usize,
    pub kept_apart: KeptApart,
}

/// Which requests of a schema are different flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptApart {
    None,
    ByUser,
    ByNamespace,
}

/// A request, as far as schemas are about it.
#[derive(Clone, Copy, Debug)]
pub struct FlowRequest<'a> {
    pub user: &'a UserInfo,
    pub verb: &'a str,
    pub target: FlowTarget<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum FlowTarget<'a> {
    /// The namespace is empty for what is in none; a namespace is in itself.
    Resource {
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        namespace: &'a str,
    },
    Path(&'a str),
}

/// The schemas of a plane in the order in which they are asked.
#[derive(Debug, Default)]
pub struct Flows {
    schemas: Vec<Schema>,
    levels: Vec<Level>,
    bytes: usize,
}

#[derive(Debug)]
struct Schema {
    flow: Flow,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Debug)]
enum Subject {
    Everybody,
    User(SmolStr),
    Group(SmolStr),
    /// All accounts of a namespace without a name.
    Account(SmolStr, Option<SmolStr>),
}

#[derive(Debug)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster: bool,
}

#[derive(Debug)]
struct PathRule {
    verbs: Names,
    paths: Vec<SmolStr>,
}

/// What the rules of a schema have: names, and what the text of those takes.
#[derive(Default)]
struct Tally {
    names: usize,
    bytes: usize,
}

impl Tally {
    fn read(&mut self, name: &str) -> SmolStr {
        self.names += 1;
        self.bytes += name.len();
        SmolStr::new(name)
    }
}

#[derive(Debug)]
enum Names {
    All,
    Some(Vec<SmolStr>),
}

/// The schemas of planes that are in use.
pub(crate) struct FlowsOfPlanes {
    planes: Memo<Arc<Flows>>,
    compiled: Mutex<Interned<[u8; 32], Flows>>,
}

impl Default for FlowsOfPlanes {
    fn default() -> FlowsOfPlanes {
        FlowsOfPlanes { planes: Memo::default(), compiled: Mutex::new(Interned::new(BYTES_MAX)) }
    }
}

impl FlowsOfPlanes {
    pub(crate) fn forget(&self, plane: PlaneId) {
        self.planes.forget(plane);
    }

    fn keep(&self, plane: PlaneId, flows: Arc<Flows>, epoch: Epoch) {
        self.planes.keep(plane, flows, epoch);
        if self.planes.len() > PLANES_LEN_MAX {
            self.planes.let_go(|_| true);
        }
        while self.compiled.lock().is_heavy() && !self.planes.let_go(|_| true).is_empty() {
            self.compiled.lock().sweep();
        }
    }

    fn compile(&self, schemas: &[Arc<StoredObject>], levels: &[Arc<StoredObject>]) -> Arc<Flows> {
        let mut hash = Sha256::new();
        for stored in schemas.iter().chain(levels) {
            hash.update(stored.name.name.as_bytes());
            hash.update([0]);
            hash.update(stored.record.body());
        }
        let digest: [u8; 32] = hash.finalize().into();
        if let Some(known) = self.compiled.lock().get(&digest) {
            return known;
        }
        let parse = |stored: &Arc<StoredObject>| {
            let value = Value::parse_own(stored.record.body()).unwrap_or_default();
            (stored.name.name.clone(), value)
        };
        let schemas: Vec<(SmolStr, Value)> = schemas.iter().map(parse).collect();
        let levels: Vec<(SmolStr, Value)> = levels.iter().map(parse).collect();
        let flows = Flows::compile(&schemas, &levels);
        let bytes = flows.bytes;
        self.compiled.lock().insert(digest, flows, bytes)
    }
}

impl Registry {
    /// The flow schemas of a plane, if somebody has asked for them lately.
    pub fn known_flows(&self, plane: PlaneId) -> Option<Arc<Flows>> {
        self.flows.planes.get(plane)
    }

    /// The flow schemas of a plane.
    pub async fn flows(&self, plane: &Arc<Plane>) -> Result<Arc<Flows>, Status> {
        if let Some(known) = self.known_flows(plane.id) {
            return Ok(known);
        }
        let epoch = self.flows.planes.epoch(plane.id);
        let at = Some(self.store.current());
        let list = async |plural: &'static str| {
            let Some(resource) = self.store.known_resource(&GroupResource::new(GROUP, plural)) else {
                return Ok(Vec::new());
            };
            let query = ListQuery { at, bytes_max: READ_BYTES_MAX, ..ListQuery::all(resource) };
            let page = self.store.list(plane, query).await;
            page.map(|page| page.objects).map_err(|error| read_failed(plane, error))
        };
        let flows = self.flows.compile(&list(SCHEMAS).await?, &list(LEVELS).await?);
        self.flows.keep(plane.id, flows.clone(), epoch);
        Ok(flows)
    }
}

impl Flows {
    /// What objects of both kinds say, by name. A schema whose level is not there says nothing.
    pub fn compile(schemas: &[(SmolStr, Value)], levels: &[(SmolStr, Value)]) -> Flows {
        let uid = |value: &Value| {
            Bytes::copy_from_slice(value.str_at(&["metadata", "uid"]).unwrap_or_default().as_bytes())
        };
        let mut found: Vec<(i64, &SmolStr, Schema, Tally)> = Vec::new();
        for (name, schema) in schemas {
            let wanted = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]);
            let Some(level) = levels.iter().position(|(own, _)| Some(own.as_str()) == wanted) else {
                continue;
            };
            let precedence = schema.i64_at(&["spec", "matchingPrecedence"]).unwrap_or(i64::MAX);
            let mut tally = Tally::default();
            let rules = schema.array_at(&["spec", "rules"]).iter().map(|rule| Rule::read(rule, &mut tally));
            let rules = rules.collect();
            let kept_apart = match schema.str_at(&["spec", "distinguisherMethod", "type"]) {
                Some("ByUser") => KeptApart::ByUser,
                Some("ByNamespace") => KeptApart::ByNamespace,
                _ => KeptApart::None,
            };
            let flow = Flow { schema: uid(schema), level, kept_apart };
            found.push((precedence, name, Schema { flow, rules }, tally));
        }
        found.sort_by_key(|(precedence, name, ..)| (*precedence, *name));
        let mut flows = Flows {
            levels: levels.iter().map(|(name, level)| Level::read(name, level)).collect(),
            ..Flows::default()
        };
        flows.bytes = size_of::<Flows>() + flows.levels.iter().map(Level::bytes).sum::<usize>();
        let mut names_sum = 0;
        for (_, _, schema, tally) in found {
            names_sum += tally.names;
            if names_sum > NAMES_MAX {
                break;
            }
            flows.bytes += 512 + tally.names * 64 + tally.bytes;
            flows.schemas.push(schema);
        }
        flows
    }

    /// The place of the schema that a request belongs to; nothing where none is about it.
    pub fn classify(&self, request: &FlowRequest<'_>) -> Option<usize> {
        self.schemas.iter().position(|schema| schema.rules.iter().any(|rule| rule.fits(request)))
    }

    /// What a schema says, and the level it names.
    pub fn flow(&self, schema: usize) -> Option<(&Flow, &Level)> {
        let flow = &self.schemas.get(schema)?.flow;
        Some((flow, self.levels.get(flow.level)?))
    }

    /// Which part each level has of so many seats.
    pub fn extents(&self, seats: u64) -> impl Iterator<Item = (&Level, Extent)> {
        let sum = self.levels.iter().fold(0_u64, |sum, level| sum.saturating_add(level.shares()));
        self.levels.iter().map(move |level| (level, level.extent(seats, sum)))
    }
}

impl Rule {
    fn read(rule: &Value, tally: &mut Tally) -> Rule {
        let subjects: Vec<Subject> = rule.array_at(&["subjects"]).iter().filter_map(Subject::read).collect();
        tally.names += subjects.len() + 1;
        tally.bytes += subjects.iter().map(Subject::text_len).sum::<usize>();
        let mut of = |rule: &Value, field: &str| {
            tally.bytes += size_of::<Names>();
            Names::read(rule, field, tally)
        };
        let resources = rule.array_at(&["resourceRules"]).iter().map(|rule| ResourceRule {
            verbs: of(rule, "verbs"),
            groups: of(rule, "apiGroups"),
            resources: of(rule, "resources"),
            namespaces: of(rule, "namespaces"),
            cluster: rule.at(&["clusterScope"]).and_then(Value::as_bool).unwrap_or(false),
        });
        let resources = resources.collect();
        let paths = rule.array_at(&["nonResourceRules"]).iter().map(|rule| {
            let paths = rule.array_at(&["nonResourceURLs"]).iter().filter_map(Value::as_str);
            let paths = paths.map(|path| tally.read(path)).collect();
            tally.bytes += size_of::<PathRule>();
            PathRule { verbs: Names::read(rule, "verbs", tally), paths }
        });
        Rule { subjects, resources, paths: paths.collect() }
    }

    fn fits(&self, request: &FlowRequest<'_>) -> bool {
        if !self.subjects.iter().any(|subject| subject.is(request.user)) {
            return false;
        }
        match request.target {
            FlowTarget::Resource { group, resource, subresource, namespace } => {
                self.resources.iter().any(|rule| {
                    rule.verbs.has(request.verb)
                        && rule.resources.has_part(resource, subresource)
                        && rule.groups.has(group)
                        && if namespace.is_empty() { rule.cluster } else { rule.namespaces.has(namespace) }
                })
            }
            FlowTarget::Path(path) => self
                .paths
                .iter()
                .any(|rule| rule.verbs.has(request.verb) && rule.paths.iter().any(|own| is_below(own, path))),
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Subject> {
        let text = |path: &[&str]| SmolStr::new(subject.str_at(path).unwrap_or_default());
        Some(match subject.str_at(&["kind"])? {
            "User" => match text(&["user", "name"]) {
                name if name == "*" => Subject::Everybody,
                name => Subject::User(name),
            },
            "Group" => match text(&["group", "name"]) {
                name if name == "*" => Subject::Everybody,
                name => Subject::Group(name),
            },
            "ServiceAccount" => {
                let name = text(&["serviceAccount", "name"]);
                let name = (name != "*").then_some(name);
                Subject::Account(text(&["serviceAccount", "namespace"]), name)
            }
            _ => return None,
        })
    }

    fn text_len(&self) -> usize {
        match self {
            Subject::Everybody => 0,
            Subject::User(name) | Subject::Group(name) => name.len(),
            Subject::Account(namespace, name) => namespace.len() + name.as_ref().map_or(0, SmolStr::len),
        }
    }

    fn is(&self, user: &UserInfo) -> bool {
        match self {
            Subject::Everybody => true,
            Subject::User(name) => user.name == *name,
            Subject::Group(name) => user.groups.iter().any(|own| own == name),
            Subject::Account(namespace, name) => {
                let own = user.name.strip_prefix("system:serviceaccount:");
                let own = own.and_then(|own| own.strip_prefix(namespace.as_str())?.strip_prefix(':'));
                own.is_some_and(|own| name.as_ref().is_none_or(|name| own == name))
            }
        }
    }
}

impl Names {
    fn read(rule: &Value, field: &str, tally: &mut Tally) -> Names {
        let all = rule.array_at(&[field]).iter().filter_map(Value::as_str);
        let all: Vec<SmolStr> = all.map(|name| tally.read(name)).collect();
        match all.as_slice() {
            [one] if one == "*" => Names::All,
            _ => Names::Some(all),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::Some(names) => names.iter().any(|own| own == name),
        }
    }

    /// `pods`, or `pods/status`.
    fn has_part(&self, resource: &str, subresource: &str) -> bool {
        match self {
            Names::All => true,
            Names::Some(names) if subresource.is_empty() => names.iter().any(|own| own == resource),
            Names::Some(names) => names
                .iter()
                .any(|own| own.split_once('/').is_some_and(|parts| parts == (resource, subresource))),
        }
    }
}

/// Whether a path is what a rule says, or below it.
fn is_below(rule: &str, path: &str) -> bool {
    if rule == "*" || rule == path {
        return true;
    }
    let rule = rule.strip_suffix('*').unwrap_or(rule);
    let rule = rule.strip_suffix('/').unwrap_or(rule);
    path.strip_prefix(rule).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Value {
        Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn default_flows(more: &[(&str, &str)]) -> Flows {
        let all = crate::bootstrap::objects("2026-01-01T00:00:00Z", &crate::bootstrap::Site::default());
        let of = |plural: &str| -> Vec<(SmolStr, Value)> {
            let own = all.iter().filter(|object| object.resource == plural);
            let named = own.map(|object| {
                let mut value = object.value.clone();
                value.set_at(&["metadata", "uid"], object.name.clone());
                (object.name.clone(), value)
            });
            named.collect()
        };
        let mut schemas = of(SCHEMAS);
        for (name, spec) in more {
            let mut value = parse(&format!(r#"{{"metadata":{{"uid":"{name}"}}}}"#));
            value.set_at(&["spec"], parse(spec));
            schemas.push(((*name).into(), value));
        }
        Flows::compile(&schemas, &of(LEVELS))
    }

    #[track_caller]
    fn check(flows: &Flows, user: &str, groups: &[&str], verb: &str, path: &str, expected: (&str, &str)) {
        let user = UserInfo {
            name: user.into(),
            groups: groups.iter().map(SmolStr::new).collect(),
            ..UserInfo::authenticated(user.to_owned(), [])
        };
        let parts: Vec<&str> = path.split('|').collect();
        let target = match parts.as_slice() {
            [path] => FlowTarget::Path(path),
            [group, resource, subresource, namespace] => {
                FlowTarget::Resource { group, resource, subresource, namespace }
            }
            _ => panic!("{path}"),
        };
        let found = flows.classify(&FlowRequest { user: &user, verb, target });
        let found = found.and_then(|at| flows.flow(at)).map(|(flow, level)| (&*flow.schema, &*level.uid));
        assert_eq!(found, Some((expected.0.as_bytes(), expected.1.as_bytes())), "{path}");
    }

    #[test]
    fn requests_are_classified_as_upstream_does() {
        let flows = default_flows(&[]);
        let known = "system:authenticated";
        let pods = "|pods||default";
        check(&flows, "admin", &["system:masters", known], "get", pods, ("exempt", "exempt"));
        check(&flows, "jane", &[known], "get", pods, ("global-default", "global-default"));
        check(&flows, "jane", &[known], "get", "/livez", ("probes", "exempt"));
        check(&flows, "jane", &[known], "get", "/livez/ping", ("probes", "exempt"));
        check(&flows, "jane", &[known], "get", "/livezy", ("global-default", "global-default"));
        check(
            &flows,
            "x",
            &["system:unauthenticated"],
            "get",
            "/version",
            ("global-default", "global-default"),
        );
        let account = "system:serviceaccount:a:b";
        let groups = ["system:serviceaccounts", known];
        check(&flows, account, &groups, "list", pods, ("service-accounts", "workload-low"));
        let account = "system:serviceaccount:kube-system:b";
        check(&flows, account, &groups, "list", pods, ("kube-system-service-accounts", "workload-high"));
        let lease = "coordination.k8s.io|leases||kube-system";
        check(&flows, account, &groups, "update", lease, ("system-leader-election", "leader-election"));
        let nodes = ["system:nodes", known];
        check(&flows, "n", &nodes, "update", "|nodes|status|", ("system-node-high", "node-high"));
        check(&flows, "n", &nodes, "update", "|nodes|proxy|", ("system-nodes", "system"));
    }

    #[test]
    fn schemas_of_users_come_first_by_precedence_and_then_name() {
        let spec = |precedence: i64, level: &str| {
            format!(
                r#"{{"matchingPrecedence":{precedence},"priorityLevelConfiguration":{{"name":"{level}"}},"rules":[{{
                    "subjects":[{{"kind":"User","user":{{"name":"jane"}}}}],
                    "nonResourceRules":[{{"verbs":["get"],"nonResourceURLs":["/a/*"]}}],
                    "resourceRules":[{{"verbs":["*"],"apiGroups":["*"],"resources":["pods","pods/log"],"namespaces":["x"]}}]}}]}}"#
            )
        };
        let rows = [("b", spec(50, "system")), ("a", spec(50, "system")), ("c", spec(40, "none"))];
        let rows: Vec<(&str, &str)> = rows.iter().map(|(name, spec)| (*name, spec.as_str())).collect();
        let flows = default_flows(&rows);
        let (known, other) = (["system:authenticated"], ("global-default", "global-default"));
        check(&flows, "jane", &known, "get", "|pods||x", ("a", "system"));
        check(&flows, "jane", &known, "get", "|pods|log|x", ("a", "system"));
        check(&flows, "jane", &known, "get", "|pods|status|x", other);
        check(&flows, "jane", &known, "get", "|pods||", other);
        check(&flows, "jane", &known, "get", "/a/b", ("a", "system"));
        check(&flows, "jane", &known, "get", "/b", other);
        check(&flows, "joe", &known, "get", "|pods||x", other);
    }

    #[test]
    fn levels_stand_for_their_share() {
        let flows = default_flows(&[]);
        let of = |name: &str| {
            flows.extents(245).find(|(level, _)| level.name == name).map(|(_, extent)| extent.nominal)
        };
        assert_eq!((of("exempt"), of("workload-low"), of("catch-all")), (Some(0), Some(100), Some(5)));
    }

    #[test]
    fn a_plane_with_very_many_names_is_classified_by_the_first() {
        let names: Vec<String> = (0..NAMES_MAX).map(|at| format!(r#""r{at}""#)).collect();
        let spec = format!(
            r#"{{"matchingPrecedence":5,"priorityLevelConfiguration":{{"name":"system"}},"rules":[{{
                "subjects":[{{"kind":"User","user":{{"name":"jane"}}}}],
                "resourceRules":[{{"verbs":["*"],"apiGroups":["*"],"resources":[{}],"namespaces":["x"]}}]}}]}}"#,
            names.join(",")
        );
        let flows = default_flows(&[("large", &spec)]);
        assert_eq!(flows.schemas.len(), 2, "exempt and probes come before it");
    }

    #[test]
    fn long_names_of_many_planes_do_not_stay() {
        let of = |plane: u64| {
            let name = format!("{plane}-{}", "x".repeat(200_000));
            let rows = [
                r#""subjects":[{"kind":"User","user":{"name":"NAME"}}]"#,
                r#""subjects":[{"kind":"ServiceAccount","serviceAccount":{"namespace":"NAME","name":"*"}}]"#,
                r#""nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["NAME"]}]"#,
                r#""resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["pods"],"namespaces":["NAME"]}]"#,
            ];
            let rules: Vec<String> =
                rows.iter().map(|row| format!("{{{}}}", row.replace("NAME", &name))).collect();
            let spec =
                r#"{"matchingPrecedence":5,"priorityLevelConfiguration":{"name":"system"},"rules":[RULES]}"#;
            default_flows(&[("long", &spec.replace("RULES", &rules.join(",")))])
        };
        let all = FlowsOfPlanes::default();
        for plane in 0..100 {
            let flows = of(plane);
            let bytes = flows.bytes;
            assert!(bytes > 800_000, "{bytes}");
            let mut digest = [0; 32];
            digest[..8].copy_from_slice(&plane.to_le_bytes());
            let flows = all.compiled.lock().insert(digest, flows, bytes);
            let plane = PlaneId(plane);
            all.keep(plane, flows, all.planes.epoch(plane));
            assert!(!all.compiled.lock().is_heavy(), "{plane:?}");
        }
        assert!((1..60).contains(&all.planes.len()), "{}", all.planes.len());
        assert!(all.planes.get(PlaneId(99)).is_some(), "who came last stays");
    }
}
