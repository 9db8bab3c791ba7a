//! Which requests a webhook or a policy is about.

use polder_model::selector::LabelSelector;
use polder_model::{GroupResource, SmolStr, Status, Value};

use crate::attributes::{Attributes, Form, Operation, Operations};

/// Rules and selectors of one webhook, policy or binding.
#[derive(Debug)]
pub(crate) struct Matcher {
    rules: Vec<Rule>,
    exclude: Vec<Rule>,
    /// A rule about one version is about the others too.
    equivalent: bool,
    namespaces: Selector,
    objects: Selector,
}

#[derive(Debug)]
struct Rule {
    operations: Operations,
    groups: Vec<SmolStr>,
    versions: Vec<SmolStr>,
    /// With what comes behind the slash.
    resources: Vec<(SmolStr, SmolStr)>,
    scope: Scope,
    /// Empty means any.
    names: Vec<SmolStr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// Broken ones are refused when they are written; one that was stored all the same fails whoever it is about.
type Selector = Result<LabelSelector, String>;

/// What a request is matched with beside its attributes.
pub(crate) struct Surroundings<'a> {
    pub(crate) object: Option<&'a Value>,
    /// The namespace that [`Attributes::place`] names, if it is there.
    pub(crate) namespace: Option<&'a Value>,
}

impl Matcher {
    /// `rules` names the list: `rules` of a webhook, `resourceRules` of a policy.
    pub(crate) fn read(value: &Value, rules: &str) -> Matcher {
        let read = |list: &str| value.array_at(&[list]).iter().map(Rule::read).collect();
        let selector = |field: &str| match value.get(field).filter(|selector| !selector.is_null()) {
            None => Ok(LabelSelector::everything()),
            Some(selector) => LabelSelector::from_value(selector).map_err(|error| error.to_string()),
        };
        Matcher {
            rules: read(rules),
            exclude: read("excludeResourceRules"),
            equivalent: value.str_at(&["matchPolicy"]) != Some("Exact"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The form in which whoever has these rules wants to see the request; `None` when it does not. What cannot be told
    /// fails only requests that the rules are about.
    pub(crate) fn form(
        &self,
        request: &Attributes<'_>,
        around: &Surroundings<'_>,
    ) -> Result<Option<Form>, Status> {
        let in_namespace = self.selects_namespace(request, around);
        if matches!(in_namespace, Ok(false)) {
            return Ok(None);
        }
        let selects = self.selects_object(request, around);
        if matches!(selects, Ok(false)) || self.matched(&self.exclude, request).is_some() {
            return Ok(None);
        }
        let found = self.matched(&self.rules, request);
        if found.is_some() {
            in_namespace?;
            selects?;
        }
        Ok(found)
    }

    /// As [`Matcher::form`], for a binding: without rules it is about whatever its policy is about.
    pub(crate) fn narrows(
        &self,
        request: &Attributes<'_>,
        around: &Surroundings<'_>,
    ) -> Result<bool, Status> {
        if !self.rules.is_empty() {
            return Ok(self.form(request, around)?.is_some());
        }
        if self.matched(&self.exclude, request).is_some() {
            return Ok(false);
        }
        Ok(self.selects_namespace(request, around)? && self.selects_object(request, around)?)
    }

    fn matched(&self, rules: &[Rule], request: &Attributes<'_>) -> Option<Form> {
        let fits = |rule: &Rule, resource: &GroupResource, version: &str| {
            rule.fits(request, resource, version) && rule.names_it(request.own_name)
        };
        if rules.iter().any(|rule| fits(rule, request.resource, request.version)) {
            return Some(request.form());
        }
        if !self.equivalent {
            return None;
        }
        let others = |rule: &Rule| {
            request.others.iter().find(|other| fits(rule, &other.resource, &other.version)).cloned()
        };
        rules.iter().find_map(others)
    }

    fn selects_namespace(&self, request: &Attributes<'_>, around: &Surroundings<'_>) -> Result<bool, Status> {
        let is_namespace = request.resource.resource == "namespaces";
        if request.place().is_empty() && !is_namespace {
            // What is in no namespace is about all of them.
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(internal)?;
        if selector.is_everything() {
            return Ok(true);
        }
        let written = matches!(request.operation, Operation::Create | Operation::Update);
        let namespace = match is_namespace && request.is_whole() && written {
            true => around.object,
            false => around.namespace,
        };
        let missing = || Status::not_found(&GroupResource::new("", "namespaces"), request.place());
        Ok(labels_match(selector, namespace.ok_or_else(missing)?))
    }

    fn selects_object(&self, request: &Attributes<'_>, around: &Surroundings<'_>) -> Result<bool, Status> {
        let selector = self.objects.as_ref().map_err(internal)?;
        let matches = |object: Option<&Value>| object.is_some_and(|object| labels_match(selector, object));
        Ok(selector.is_everything() || matches(around.object) || matches(request.old))
    }
}

fn labels_match(selector: &LabelSelector, object: &Value) -> bool {
    selector.matches(|key| object.str_at(&["metadata", "labels", key]))
}

fn internal(why: impl AsRef<str>) -> Status {
    Status::internal(why.as_ref())
}

impl Rule {
    fn read(value: &Value) -> Rule {
        let texts = |field: &str| {
            let all = value.array_at(&[field]).iter().filter_map(Value::as_str);
            all.map(SmolStr::new).collect::<Vec<SmolStr>>()
        };
        let operation = |name: &str| match name {
            "*" => Operations::ALL,
            "CREATE" => Operations::CREATE,
            "UPDATE" => Operations::UPDATE,
            "DELETE" => Operations::DELETE,
            "CONNECT" => Operations::CONNECT,
            _ => Operations::NONE,
        };
        let split = |resource: &SmolStr| match resource.split_once('/') {
            Some((resource, part)) => (resource.into(), part.into()),
            None => (resource.clone(), SmolStr::default()),
        };
        Rule {
            operations: texts("operations")
                .iter()
                .fold(Operations::NONE, |all, name| all.and(operation(name))),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").iter().map(split).collect(),
            scope: match value.str_at(&["scope"]) {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
            names: texts("resourceNames"),
        }
    }

    fn fits(&self, request: &Attributes<'_>, resource: &GroupResource, version: &str) -> bool {
        let any = |items: &[SmolStr], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
        let in_namespace = !request.namespace.is_empty();
        let scoped = match self.scope {
            Scope::All => true,
            Scope::Namespaced => in_namespace,
            Scope::Cluster => !in_namespace,
        };
        let named = |(own, part): &(SmolStr, SmolStr)| {
            (own == "*" || *own == resource.resource) && (part == "*" || part == request.subresource)
        };
        scoped
            && self.operations.has(request.operation)
            && any(&self.groups, &resource.group)
            && any(&self.versions, version)
            && self.resources.iter().any(named)
    }

    fn names_it(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|own| own == name)
    }
}
