//! `audit.k8s.io/v1` Policy: which requests are noted, how much of them, and at which stages.
//!
//! Invariant: whatever a policy says, requests about credentials ([`holds_credentials`]) are noted without their bodies.

use polder_auth::UserInfo;
use polder_model::names::dns_subdomain_problems;
use polder_model::{FieldError, FieldPath, Object, SmolStr, Value};

/// Rules of one policy: each is looked at for every request.
const RULES_MAX: usize = 512;
/// Texts of all rules together.
const TEXTS_MAX: usize = 16 * 1024;

/// How much of a request is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

/// When something is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// Some stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

/// What is noted of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub level: Level,
    pub omit_stages: Stages,
    pub omit_managed_fields: bool,
}

/// A request, as rules see it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// `None` if nobody could tell who asks.
    pub user: Option<&'a UserInfo>,
    pub verb: &'a str,
    pub resource: Option<AskedResource<'a>>,
    /// Inside the plane.
    pub path: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub struct AskedResource<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

#[derive(Clone, Debug, Default)]
pub struct Policy {
    rules: Vec<Rule>,
    /// What no rule is about is not noted.
    omit_stages: Stages,
}

#[derive(Clone, Debug, Default)]
struct Rule {
    verdict: Verdict,
    users: Vec<SmolStr>,
    groups: Vec<SmolStr>,
    verbs: Vec<SmolStr>,
    namespaces: Vec<SmolStr>,
    resources: Vec<Resources>,
    paths: Vec<SmolStr>,
}

#[derive(Clone, Debug, Default)]
struct Resources {
    group: SmolStr,
    resources: Vec<SmolStr>,
    names: Vec<SmolStr>,
}

impl Level {
    const ALL: [Level; 4] = [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }
}

impl Stage {
    const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }
}

impl Stages {
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    fn with(self, stage: Stage) -> Stages {
        Stages(self.0 | (1 << stage as u8))
    }

    fn and(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }
}

impl Verdict {
    pub fn notes(&self, stage: Stage) -> bool {
        self.level > Level::None && !self.omit_stages.contains(stage)
    }
}

/// Whether what is sent or answered here is a credential, or may hold some: the body is never noted. What is read of a trail
/// is not noted in it again.
pub fn holds_credentials(asked: &AskedResource<'_>) -> bool {
    matches!(
        (asked.group, asked.resource, asked.subresource),
        (_, "secrets", _)
            | ("", "serviceaccounts", "token")
            | ("authentication.k8s.io", "tokenreviews", _)
            | ("polder.dev", "planes", "kubeconfig" | "export" | "import")
            | ("audit.polder.dev", _, _)
    )
}

impl Policy {
    /// What planes note of themselves when nobody says otherwise: who changed what. Reads, and what the system does all the
    /// time, would drown it; but nobody is left out for a name alone, which whoever signs certificates in a plane can give.
    pub fn of_planes() -> Policy {
        let rules: &[&str] = &[
            r#"{"level":"None","userGroups":["system:nodes"],"resources":[
                {"group":"","resources":["nodes/status","pods/status","serviceaccounts/token"]}]}"#,
            r#"{"level":"None","users":["system:kube-scheduler"],"resources":[{"group":"","resources":["pods/binding","pods/status"]}]}"#,
            r#"{"level":"None","resources":[{"group":"coordination.k8s.io","resources":["leases"]},
                {"group":"","resources":["events"]},{"group":"events.k8s.io","resources":["events"]}]}"#,
            r#"{"level":"None","resources":[{"group":"authorization.k8s.io"},{"group":"authentication.k8s.io"}]}"#,
            r#"{"level":"None","nonResourceURLs":["*"]}"#,
            r#"{"level":"Metadata","verbs":["create","update","patch","delete","deletecollection"],"omitStages":["RequestReceived"]}"#,
        ];
        let text = format!(r#"{{"rules":[{}]}}"#, rules.join(","));
        let value = Value::parse(text.as_bytes()).unwrap_or_default();
        Policy::read(&value, &FieldPath::root("policy")).unwrap_or_default()
    }

    /// Reads a whole policy document.
    pub fn document(value: &Value) -> Result<Policy, String> {
        let found = (value.str_at(&["apiVersion"]), value.str_at(&["kind"]));
        if found != (Some("audit.k8s.io/v1"), Some("Policy")) {
            return Err("it must say `apiVersion: audit.k8s.io/v1` and `kind: Policy`".into());
        }
        let mut value = value.clone();
        for key in ["apiVersion", "kind", "metadata"] {
            value.remove_at(&[key]);
        }
        if value.array_at(&["rules"]).is_empty() {
            return Err("it has no rules: nothing would be noted".into());
        }
        let errors = Policy::read(&value, &FieldPath::root("policy"));
        errors.map_err(|errors| polder_model::field::join(&errors))
    }

    /// Reads what a policy says: `rules`, `omitStages`, `omitManagedFields`.
    pub fn read(value: &Value, path: &FieldPath<'_>) -> Result<Policy, Vec<FieldError>> {
        let mut reading = Reading { errors: Vec::new(), texts_left: TEXTS_MAX };
        let policy = reading.policy(value, path);
        if reading.errors.is_empty() { Ok(policy) } else { Err(reading.errors) }
    }

    /// What is noted of a request: the first rule about it decides.
    pub fn judge(&self, asked: &Asked<'_>) -> Verdict {
        let rule = self.rules.iter().find(|rule| rule.matches(asked));
        let fallback = Verdict { omit_stages: self.omit_stages, ..Verdict::default() };
        let mut verdict = rule.map_or(fallback, |rule| rule.verdict);
        if asked.resource.as_ref().is_some_and(holds_credentials) {
            verdict.level = verdict.level.min(Level::Metadata);
        }
        verdict
    }
}

impl Rule {
    fn matches(&self, asked: &Asked<'_>) -> bool {
        if !self.users.is_empty() && !asked.user.is_some_and(|user| self.users.contains(&user.name)) {
            return false;
        }
        let in_groups = |user: &UserInfo| user.groups.iter().any(|group| self.groups.contains(group));
        if !self.groups.is_empty() && !asked.user.is_some_and(in_groups) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, asked.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return asked.resource.is_some_and(|resource| self.matches_resource(&resource));
        }
        self.paths.is_empty()
            || (asked.resource.is_none() && self.paths.iter().any(|own| path_matches(own, asked.path)))
    }

    fn matches_resource(&self, asked: &AskedResource<'_>) -> bool {
        if !self.namespaces.is_empty() && !has(&self.namespaces, asked.namespace) {
            return false;
        }
        self.resources.is_empty() || self.resources.iter().any(|own| own.matches(asked))
    }
}

impl Resources {
    fn matches(&self, asked: &AskedResource<'_>) -> bool {
        if self.group != asked.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !has(&self.names, asked.name) {
            return false;
        }
        self.resources.iter().any(|own| match own.split_once('/') {
            None => own == "*" || (asked.subresource.is_empty() && own == asked.resource),
            // A part of whatever has it.
            Some(("*", part)) if !asked.subresource.is_empty() && part == asked.subresource => true,
            // A thing and all its parts.
            Some((resource, "*")) => resource == asked.resource,
            Some((resource, part)) => resource == asked.resource && part == asked.subresource,
        })
    }
}

fn has(all: &[SmolStr], one: &str) -> bool {
    all.iter().any(|own| own == one)
}

fn path_matches(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

/// Reads strictly: a member that nobody knows is a mistake somebody should hear of.
struct Reading {
    errors: Vec<FieldError>,
    texts_left: usize,
}

impl Reading {
    fn object<'v>(&mut self, value: &'v Value, path: &FieldPath<'_>, known: &[&str]) -> Option<&'v Object> {
        let Some(object) = value.as_object() else {
            self.errors.push(FieldError::invalid(path, value.clone(), "must be an object"));
            return None;
        };
        for key in object.keys().filter(|key| !known.contains(&key.as_str())) {
            self.errors.push(FieldError::forbidden(path.member(key), "unknown field"));
        }
        Some(object)
    }

    fn list<'v>(&mut self, object: &'v Object, key: &str, path: &FieldPath<'_>) -> &'v [Value] {
        match object.get(key) {
            None | Some(Value::Null) => &[],
            Some(Value::Array(list)) => list,
            Some(other) => {
                self.errors.push(FieldError::invalid(path.member(key), other.clone(), "must be a list"));
                &[]
            }
        }
    }

    fn texts(&mut self, object: &Object, key: &str, path: &FieldPath<'_>) -> Vec<SmolStr> {
        let list = self.list(object, key, path);
        let path = path.member(key);
        if list.len() > self.texts_left {
            self.errors.push(FieldError::too_many(path, list.len(), TEXTS_MAX));
            return Vec::new();
        }
        self.texts_left -= list.len();
        let mut texts = Vec::new();
        for (index, one) in list.iter().enumerate() {
            match one.as_str() {
                Some(text) => texts.push(SmolStr::new(text)),
                None => {
                    self.errors.push(FieldError::invalid(path.index(index), one.clone(), "must be a text"));
                }
            }
        }
        texts
    }

    fn flag(&mut self, object: &Object, key: &str, path: &FieldPath<'_>) -> Option<bool> {
        match object.get(key) {
            None | Some(Value::Null) => None,
            Some(Value::Bool(flag)) => Some(*flag),
            Some(other) => {
                let why = "must be true or false";
                self.errors.push(FieldError::invalid(path.member(key), other.clone(), why));
                None
            }
        }
    }

    fn stages(&mut self, object: &Object, path: &FieldPath<'_>) -> Stages {
        let mut stages = Stages::default();
        for (index, text) in self.texts(object, "omitStages", path).iter().enumerate() {
            match Stage::ALL.into_iter().find(|stage| stage.name() == text) {
                Some(stage) => stages = stages.with(stage),
                None => {
                    let why = "allowed stages are RequestReceived,ResponseStarted,ResponseComplete,Panic";
                    let path = path.member("omitStages");
                    self.errors.push(FieldError::invalid(path.index(index), text.clone(), why));
                }
            }
        }
        stages
    }

    fn policy(&mut self, value: &Value, path: &FieldPath<'_>) -> Policy {
        let known = ["rules", "omitStages", "omitManagedFields"];
        let Some(object) = self.object(value, path, &known) else { return Policy::default() };
        let omit_stages = self.stages(object, path);
        let omit_managed_fields = self.flag(object, "omitManagedFields", path).unwrap_or_default();
        let rules = self.list(object, "rules", path);
        let path = path.member("rules");
        if rules.len() > RULES_MAX {
            self.errors.push(FieldError::too_many(path, rules.len(), RULES_MAX));
            return Policy::default();
        }
        let defaults = Verdict { level: Level::None, omit_stages, omit_managed_fields };
        let mut read = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            read.extend(self.rule(rule, &path.index(index), defaults));
        }
        Policy { rules: read, omit_stages }
    }

    fn rule(&mut self, value: &Value, path: &FieldPath<'_>, defaults: Verdict) -> Option<Rule> {
        let known = [
            "level",
            "users",
            "userGroups",
            "verbs",
            "resources",
            "namespaces",
            "nonResourceURLs",
            "omitStages",
            "omitManagedFields",
        ];
        let object = self.object(value, path, &known)?;
        let level = match object.get("level").map(|level| level.as_str().unwrap_or("?")) {
            None | Some("") => {
                self.errors.push(FieldError::required(path.member("level"), ""));
                Level::None
            }
            Some(text) => Level::ALL.into_iter().find(|level| level.name() == text).unwrap_or_else(|| {
                let names = Level::ALL.map(Level::name);
                self.errors.push(FieldError::not_supported(path.member("level"), text, names));
                Level::None
            }),
        };
        let omit_stages = defaults.omit_stages.and(self.stages(object, path));
        let omit_managed_fields = self.flag(object, "omitManagedFields", path);
        let omit_managed_fields = omit_managed_fields.unwrap_or(defaults.omit_managed_fields);
        let mut rule = Rule {
            verdict: Verdict { level, omit_stages, omit_managed_fields },
            users: self.texts(object, "users", path),
            groups: self.texts(object, "userGroups", path),
            verbs: self.texts(object, "verbs", path),
            namespaces: self.texts(object, "namespaces", path),
            resources: Vec::new(),
            paths: self.texts(object, "nonResourceURLs", path),
        };
        let urls = path.member("nonResourceURLs");
        for (index, url) in rule.paths.iter().enumerate().filter(|(_, url)| *url != "*") {
            let path = urls.index(index);
            if !url.starts_with('/') {
                let why = "non-resource URL rules must begin with a '/' character";
                self.errors.push(FieldError::invalid(path, url.clone(), why));
            }
            if url.find('*').is_some_and(|at| at + 1 < url.len()) {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                self.errors.push(FieldError::invalid(path, url.clone(), why));
            }
        }
        for (index, one) in self.list(object, "resources", path).iter().enumerate() {
            rule.resources.extend(self.resources(one, &path.member("resources").index(index)));
        }
        if !rule.paths.is_empty() && (!rule.resources.is_empty() || !rule.namespaces.is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            let given: Vec<Value> = rule.paths.iter().map(Value::from).collect();
            self.errors.push(FieldError::invalid(urls, given, why));
        }
        Some(rule)
    }

    fn resources(&mut self, value: &Value, path: &FieldPath<'_>) -> Option<Resources> {
        let object = self.object(value, path, &["group", "resources", "resourceNames"])?;
        let group = match object.get("group") {
            None => SmolStr::default(),
            Some(group) => SmolStr::new(group.as_str().unwrap_or("?")),
        };
        let problems: Vec<&str> = match group.as_str() {
            "" => Vec::new(),
            group => dns_subdomain_problems(group).collect(),
        };
        if !problems.is_empty() {
            let why = problems.join(",");
            self.errors.push(FieldError::invalid(path.member("group"), group.clone(), why));
        }
        let resources = self.texts(object, "resources", path);
        let names = self.texts(object, "resourceNames", path);
        if resources.is_empty() && !names.is_empty() {
            let why = "using resourceNames requires at least one resource";
            let given: Vec<Value> = names.iter().map(Value::from).collect();
            self.errors.push(FieldError::invalid(path.member("resourceNames"), given, why));
        }
        Some(Resources { group, resources, names })
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
