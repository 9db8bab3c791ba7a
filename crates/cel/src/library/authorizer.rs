//! Questions to the authorizer. The host answers them; here they are only put together.

use std::fmt;

use polder_model::{SmolStr, names};

use super::opaque::{OpaqueValue, opaque_arg, text};
use crate::cost::Cost;
use crate::meter::{Fault, Meter, Outcome};
use crate::overload::{Overload, member};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    vec![
        member("authorizer_path", "authorizer.path(string) -> pathCheck", path, Cost::One),
        member("authorizer_group", "authorizer.group(string) -> groupCheck", group, Cost::One),
        member(
            "authorizer_serviceaccount",
            "authorizer.serviceAccount(string, string) -> authorizer",
            service_account,
            Cost::One,
        ),
        member("groupcheck_resource", "groupCheck.resource(string) -> resourceCheck", resource, Cost::One),
        member(
            "resourcecheck_subresource",
            "resourceCheck.subresource(string) -> resourceCheck",
            subresource,
            Cost::One,
        ),
        member(
            "resourcecheck_namespace",
            "resourceCheck.namespace(string) -> resourceCheck",
            namespace,
            Cost::One,
        ),
        member("resourcecheck_name", "resourceCheck.name(string) -> resourceCheck", name, Cost::One),
        member(
            "authorizer_fieldselector",
            "resourceCheck.fieldSelector(string) -> resourceCheck",
            field_selector,
            Cost::Selector,
        ),
        member(
            "authorizer_labelselector",
            "resourceCheck.labelSelector(string) -> resourceCheck",
            label_selector,
            Cost::Selector,
        ),
        member("pathcheck_check", "pathCheck.check(string) -> decision", check_path, Cost::Check),
        member("resourcecheck_check", "resourceCheck.check(string) -> decision", check_resource, Cost::Check),
        member("decision_errored", "decision.errored() -> bool", errored, Cost::One),
        member("decision_error", "decision.error() -> string", error, Cost::One),
        member("decision_allowed", "decision.allowed() -> bool", allowed, Cost::One),
        member("decision_reason", "decision.reason() -> string", reason, Cost::One),
    ]
}

/// Who answers. Called while an expression runs, at most a few times.
pub trait Authorizer: Sync {
    fn check(&self, question: &Question<'_>) -> Decision;
}

/// What an expression wants to know.
#[derive(Debug)]
pub struct Question<'q> {
    /// Somebody else than the user of the request.
    pub service_account: Option<(&'q str, &'q str)>,
    pub verb: &'q str,
    pub target: Target<'q>,
}

#[derive(Debug)]
pub enum Target<'q> {
    Path(&'q str),
    Resource(&'q Resource),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    pub group: SmolStr,
    pub resource: SmolStr,
    pub subresource: SmolStr,
    pub namespace: SmolStr,
    pub name: SmolStr,
    /// As written; empty means none.
    pub field_selector: SmolStr,
    pub label_selector: SmolStr,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    /// Why there is no answer.
    pub error: Option<String>,
}

/// An authorizer and whom it is asked about.
#[derive(Clone)]
pub struct Subject<'a> {
    authorizer: &'a dyn Authorizer,
    service_account: Option<(SmolStr, SmolStr)>,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subject({:?})", self.service_account)
    }
}

#[derive(Clone, Debug)]
pub struct PathCheck<'a> {
    subject: Subject<'a>,
    path: SmolStr,
}

#[derive(Clone, Debug)]
pub struct GroupCheck<'a> {
    subject: Subject<'a>,
    group: SmolStr,
}

#[derive(Clone, Debug)]
pub struct ResourceCheck<'a> {
    subject: Subject<'a>,
    resource: Resource,
}

impl<'a> Subject<'a> {
    fn ask(&self, verb: &str, target: Target<'_>) -> Value<'a> {
        let service_account = self.service_account.as_ref();
        let service_account = service_account.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let decision = self.authorizer.check(&Question { service_account, verb, target });
        Value::opaque(OpaqueValue::Decision(decision))
    }
}

impl<'a> Value<'a> {
    /// The variable `authorizer`.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Value<'a> {
        Value::opaque(OpaqueValue::Authorizer(Subject { authorizer, service_account: None }))
    }

    /// The variable `authorizer.requestResource`.
    pub fn resource_check(authorizer: &'a dyn Authorizer, resource: Resource) -> Value<'a> {
        let subject = Subject { authorizer, service_account: None };
        Value::opaque(OpaqueValue::ResourceCheck(ResourceCheck { subject, resource }))
    }
}

/// The receiver, with the lifetime of the evaluation.
macro_rules! receiver {
    ($args:expr, $variant:ident) => {
        match &$args[0] {
            Value::Opaque(opaque) => match &**opaque {
                OpaqueValue::$variant(inner) => inner,
                _ => return Err(Fault::no_overload()),
            },
            _ => return Err(Fault::no_overload()),
        }
    };
}

fn path<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let subject = receiver!(args, Authorizer).clone();
    let path = text(args, 1)?;
    if path.trim().is_empty() {
        return Err(Fault::error("path must not be empty"));
    }
    Ok(Value::opaque(OpaqueValue::PathCheck(PathCheck { subject, path: path.into() })))
}

fn group<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let subject = receiver!(args, Authorizer).clone();
    let group = text(args, 1)?.into();
    Ok(Value::opaque(OpaqueValue::GroupCheck(GroupCheck { subject, group })))
}

fn service_account<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let subject = receiver!(args, Authorizer);
    let (namespace, name) = (text(args, 1)?, text(args, 2)?);
    if names::dns_subdomain_problem(name).is_some() {
        return Err(Fault::error("Invalid service account name"));
    }
    if names::dns_label_problem(namespace).is_some() {
        return Err(Fault::error("Invalid service account namespace"));
    }
    let service_account = Some((namespace.into(), name.into()));
    Ok(Value::opaque(OpaqueValue::Authorizer(Subject { authorizer: subject.authorizer, service_account })))
}

fn resource<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let check = receiver!(args, GroupCheck);
    let resource = text(args, 1)?;
    if resource.trim().is_empty() {
        return Err(Fault::error("resource must not be empty"));
    }
    let resource = Resource { group: check.group.clone(), resource: resource.into(), ..Resource::default() };
    Ok(Value::opaque(OpaqueValue::ResourceCheck(ResourceCheck { subject: check.subject.clone(), resource })))
}

fn with<'a>(args: &[Value<'a>], set: fn(&mut Resource, SmolStr)) -> Outcome<'a> {
    let mut check = receiver!(args, ResourceCheck).clone();
    set(&mut check.resource, text(args, 1)?.into());
    Ok(Value::opaque(OpaqueValue::ResourceCheck(check)))
}

fn subresource<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    with(args, |resource, text| resource.subresource = text)
}

fn namespace<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    with(args, |resource, text| resource.namespace = text)
}

fn name<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    with(args, |resource, text| resource.name = text)
}

fn field_selector<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    with(args, |resource, text| resource.field_selector = text)
}

fn label_selector<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    with(args, |resource, text| resource.label_selector = text)
}

fn check_path<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let check = receiver!(args, PathCheck);
    Ok(check.subject.ask(text(args, 1)?, Target::Path(&check.path)))
}

fn check_resource<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let check = receiver!(args, ResourceCheck);
    Ok(check.subject.ask(text(args, 1)?, Target::Resource(&check.resource)))
}

opaque_arg!(decision, Decision, Decision);

fn errored<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(decision(args, 0)?.error.is_some()))
}

fn error<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(decision(args, 0)?.error.as_deref().unwrap_or_default()))
}

fn allowed<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::Bool(decision(args, 0)?.allowed))
}

fn reason<'a>(_: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    Ok(Value::text(decision(args, 0)?.reason.as_str()))
}
