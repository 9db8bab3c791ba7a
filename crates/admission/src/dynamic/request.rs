//! A request as expressions and webhooks see it.

use polder_cel::Value as Cel;
use polder_cel::{Bindings, Resource};
use polder_model::{GroupVersionKind, SmolStr, Value, json};

use super::expressions::{NAMESPACE, REQUEST};
use super::questions::Answers;
use crate::attributes::{Attributes, Form};

/// The members that reviews and the variable `request` share.
pub(crate) fn describe(request: &Attributes<'_>, form: &Form) -> Value {
    let kind = |kind: &GroupVersionKind| json!({"group": (kind.group.clone()), "version": (kind.version.clone()), "kind": (kind.kind.clone())});
    let resource = |form: &Form| {
        let (group, resource) = (form.resource.group.clone(), form.resource.resource.clone());
        json!({"group": group, "version": (form.version.clone()), "resource": resource})
    };
    let own = request.form();
    let mut described = json!({
        "kind": (kind(&form.kind)), "resource": (resource(form)),
        "requestKind": (kind(&own.kind)), "requestResource": (resource(&own)),
        "operation": (request.operation.as_str()), "userInfo": (request.user.to_value()),
        "dryRun": (request.dry_run),
    });
    let texts = [
        ("subResource", request.subresource),
        ("requestSubResource", request.subresource),
        ("name", request.own_name),
        ("namespace", request.place()),
    ];
    for (field, text) in texts {
        if !text.is_empty() {
            described.set_at(&[field], SmolStr::new(text));
        }
    }
    let options = request.options.to_value(request.operation, request.dry_run);
    described.set_at(&["options"], options.unwrap_or_default());
    described
}

/// What the expressions of one request are about.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) object: Option<&'a Value>,
    pub(crate) old: Option<&'a Value>,
    pub(crate) namespace: Option<&'a Value>,
    pub(crate) request: &'a Value,
    pub(crate) params: Option<&'a Value>,
    pub(crate) answers: &'a Answers,
}

impl<'a> Inputs<'a> {
    /// The values of the variables in the order of their numbers.
    pub(crate) fn bindings(&self, with_namespace: bool, with_authorizer: bool) -> Bindings<'a> {
        let plain = |value: Option<&'a Value>| value.map_or(Cel::Null, Cel::json);
        let namespace = self.namespace.filter(|_| with_namespace);
        let namespace = namespace.and_then(|namespace| Cel::shaped(namespace, &NAMESPACE).ok());
        let request = Cel::shaped(self.request, &REQUEST).unwrap_or(Cel::Null);
        let bindings = Bindings::new()
            .with(plain(self.object))
            .with(plain(self.old))
            .with(namespace.unwrap_or(Cel::Null))
            .with(request)
            .with(plain(self.params));
        if !with_authorizer {
            return bindings.without().without().without();
        }
        let text = |path: &[&str]| SmolStr::new(self.request.str_at(path).unwrap_or_default());
        let resource = Resource {
            group: text(&["requestResource", "group"]),
            resource: text(&["requestResource", "resource"]),
            subresource: text(&["requestSubResource"]),
            namespace: text(&["namespace"]),
            name: text(&["name"]),
            ..Resource::default()
        };
        let bindings = bindings.with(Cel::authorizer(self.answers));
        bindings.with(Cel::resource_check(self.answers, resource)).without()
    }
}
