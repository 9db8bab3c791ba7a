//! Kinds that are questions: nothing is stored, the answer comes back in `status`.

use polder_auth::UserInfo;
use polder_auth::authz::{Attributes, Decision, Selectors, Target as AuthTarget, node};
use polder_model::selector::{
    FieldOperator, FieldRequirement, FieldSelector, LabelRequirement, LabelSelector,
};
use polder_model::{GroupKind, GroupResource, Object, SmolStr, Status, Value, format_smolstr, json};

use crate::context::RequestContext;
use crate::definition::Target;
use crate::registry::Registry;

/// Whether a kind is a question.
pub(crate) fn is_question(target: &Target) -> bool {
    matches!(target.definition.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io")
}

/// Answers a question; `None` when the kind is an ordinary one.
pub(crate) async fn answer(
    registry: &Registry,
    context: &RequestContext,
    target: &Target,
    question: &Value,
) -> Result<Option<Value>, Status> {
    let status = match (target.definition.group.as_str(), target.definition.plural.as_str()) {
        ("authentication.k8s.io", "selfsubjectreviews") => json!({"userInfo": (user_value(&context.user))}),
        ("authentication.k8s.io", "tokenreviews") => registry.review_token(context, question).await,
        ("authorization.k8s.io", "selfsubjectaccessreviews") => {
            access(registry, context, question, &context.user).await?
        }
        ("authorization.k8s.io", "subjectaccessreviews" | "localsubjectaccessreviews") => {
            access(registry, context, question, &subject(context, question)).await?
        }
        ("authorization.k8s.io", "selfsubjectrulesreviews") => {
            let namespace = question.str_at(&["spec", "namespace"]).unwrap_or_default();
            if namespace.is_empty() {
                return Err(Status::bad_request("no namespace on request"));
            }
            rules(registry, context, namespace).await?
        }
        _ => return Ok(None),
    };
    let mut answer = question.clone();
    answer.set_at(&["status"], status);
    Ok(Some(answer))
}

/// Refuses what is no question.
pub(crate) fn validate(target: &Target, question: &Value) -> Result<(), Status> {
    let mut errors = Vec::new();
    (target.definition.behavior.validate)(question, None, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    // Upstream names no kind here.
    let kind = GroupKind { group: target.definition.group.clone(), kind: SmolStr::default() };
    Err(Status::invalid(&kind, "", &errors))
}

async fn access(
    registry: &Registry,
    context: &RequestContext,
    question: &Value,
    user: &UserInfo,
) -> Result<Value, Status> {
    let text = |path: &[&str]| question.str_at(path).unwrap_or_default();
    let resource_part = &["spec", "resourceAttributes"];
    let path_part = &["spec", "nonResourceAttributes"];
    let resource = GroupResource::new(
        text(&["spec", "resourceAttributes", "group"]),
        text(&["spec", "resourceAttributes", "resource"]),
    );
    let (verb, target) = match (question.at(resource_part), question.at(path_part)) {
        (Some(_), None) => (
            text(&["spec", "resourceAttributes", "verb"]),
            AuthTarget::Resource {
                resource: &resource,
                version: text(&["spec", "resourceAttributes", "version"]),
                subresource: text(&["spec", "resourceAttributes", "subresource"]),
                namespace: text(&["spec", "resourceAttributes", "namespace"]),
                name: text(&["spec", "resourceAttributes", "name"]),
            },
        ),
        (None, Some(_)) => (
            text(&["spec", "nonResourceAttributes", "verb"]),
            AuthTarget::Path(text(&["spec", "nonResourceAttributes", "path"])),
        ),
        _ => return Err(Status::internal("a question is about a resource or a path")),
    };
    let (fields, labels) = (field_requirements(question), label_requirements(question));
    let selectors = Selectors { fields: &fields, labels: &labels };
    let attributes = Attributes { user, plane: context.plane.id, verb, target, selectors };
    let decision = match registry.decide(context, &attributes).await {
        Ok(decision) => decision,
        Err(status) => return Ok(json!({"allowed": false, "evaluationError": (status.message)})),
    };
    let (mut status, reason) = (json!({"allowed": (decision.is_allow())}), decision.reason());
    if let Decision::Deny { .. } = decision {
        status.set_at(&["denied"], true);
    }
    if !reason.is_empty() {
        status.set_at(&["reason"], reason);
    }
    Ok(status)
}

/// What the question narrows itself down to, as far as it can be read: what cannot be makes it about more.
fn field_requirements(question: &Value) -> Vec<FieldRequirement> {
    let path = ["spec", "resourceAttributes", "fieldSelector"];
    let Some(selector) = question.at(&path) else { return Vec::new() };
    let raw = selector.str_at(&["rawSelector"]).and_then(|raw| FieldSelector::parse(raw).ok());
    let mut all = raw.map(|raw| raw.requirements().to_vec()).unwrap_or_default();
    for one in selector.array_at(&["requirements"]).iter().take(REQUIREMENTS_MAX) {
        let operator = match one.str_at(&["operator"]) {
            Some("In") => FieldOperator::Equals,
            Some("NotIn") => FieldOperator::NotEquals,
            _ => continue,
        };
        if let (Some(path), [Value::String(value)]) = (one.str_at(&["key"]), one.array_at(&["values"])) {
            all.push(FieldRequirement { path: path.into(), operator, value: value.clone() });
        }
    }
    all
}

fn label_requirements(question: &Value) -> Vec<LabelRequirement> {
    let path = ["spec", "resourceAttributes", "labelSelector"];
    let Some(selector) = question.at(&path) else { return Vec::new() };
    let raw = selector.str_at(&["rawSelector"]).and_then(|raw| LabelSelector::parse(raw).ok());
    let mut all = raw.map(|raw| raw.requirements().to_vec()).unwrap_or_default();
    for one in selector.array_at(&["requirements"]).iter().take(REQUIREMENTS_MAX) {
        let read = LabelSelector::from_value(&json!({"matchExpressions": [(one.clone())]}));
        all.extend(read.into_iter().flat_map(|read| read.requirements().to_vec()));
    }
    all
}

/// Whom a question is about: somebody of the plane it is asked in.
fn subject(context: &RequestContext, question: &Value) -> UserInfo {
    let groups = question.array_at(&["spec", "groups"]).iter().filter_map(Value::as_str).map(SmolStr::new);
    let name = question.str_at(&["spec", "user"]).unwrap_or_default();
    let extra = question.at(&["spec", "extra"]).and_then(Value::as_object);
    let extra = extra.into_iter().flat_map(|extra| extra.iter()).map(|(key, values)| {
        let values = values.as_array().unwrap_or_default().iter().filter_map(Value::as_str);
        (key.clone(), values.map(SmolStr::new).collect())
    });
    UserInfo {
        name: SmolStr::new(name),
        uid: SmolStr::new(question.str_at(&["spec", "uid"]).unwrap_or_default()),
        groups: groups.collect(),
        extra: extra.take(EXTRA_LEN_MAX).collect(),
        home: Some(context.plane.id),
    }
}

/// Extras of somebody beyond these are not looked at.
const EXTRA_LEN_MAX: usize = 1024;
/// Requirements of a selector beyond these are not looked at.
const REQUIREMENTS_MAX: usize = 1_000;
/// Of rules that take more, the rest is not told.
const RULES_BYTES_MAX: usize = 1 << 20;

/// What somebody may do in a namespace by the plane's roles.
async fn rules(registry: &Registry, context: &RequestContext, namespace: &str) -> Result<Value, Status> {
    let book = registry.roles.book(&context.plane).await?;
    let list = |texts: &[SmolStr]| Value::Array(texts.iter().map(Value::from).collect());
    let (mut of_resources, mut of_paths, mut bytes) = (Vec::new(), Vec::new(), 0);
    let sets = book.sets(&context.user, namespace);
    let rules = sets.into_iter().flat_map(|set| set.roles()).flat_map(|role| &role.rules);
    for rule in rules {
        bytes += rule.bytes();
        if bytes > RULES_BYTES_MAX {
            break;
        }
        if !rule.resources.is_empty() {
            let mut value = json!({
                "verbs": (list(&rule.verbs)), "apiGroups": (list(&rule.groups)), "resources": (list(&rule.resources)),
            });
            if !rule.names.is_empty() {
                value.set_at(&["resourceNames"], list(&rule.names));
            }
            of_resources.push(value);
        }
        if !rule.urls.is_empty() {
            of_paths.push(json!({"verbs": (list(&rule.verbs)), "nonResourceURLs": (list(&rule.urls))}));
        }
    }
    let mut status = json!({"resourceRules": of_resources, "nonResourceRules": of_paths, "incomplete": (bytes > RULES_BYTES_MAX)});
    let mut problems = vec![book.missing(&context.user, namespace)];
    // Not all who decide can say what they would say.
    for step in registry.authorizer.steps().iter() {
        let what = match step.kind {
            "Webhook" => "webhook",
            "Node" if node::node_name(&context.user).is_some() => "node",
            _ => continue,
        };
        status.set_at(&["incomplete"], true);
        let problem = format_smolstr!("{what} authorizer does not support user rule resolution");
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
    problems.retain(|problem| !problem.is_empty());
    match &problems[..] {
        [] => {}
        [one] => status.set_at(&["evaluationError"], one.clone()),
        all => status.set_at(&["evaluationError"], format_smolstr!("[{}]", all.join(", "))),
    }
    Ok(status)
}

pub(crate) fn user_value(user: &UserInfo) -> Value {
    let mut value = Object::new();
    value.insert("username", user.name.clone());
    if !user.uid.is_empty() {
        value.insert("uid", user.uid.clone());
    }
    value.insert("groups", user.groups.iter().map(Value::from).collect::<Vec<_>>());
    let extra = user
        .extra
        .iter()
        .map(|(key, values)| (key.clone(), Value::Array(values.iter().map(Value::from).collect())));
    let extra: Object = extra.collect();
    if !extra.is_empty() {
        value.insert("extra", extra);
    }
    Value::Object(value)
}
