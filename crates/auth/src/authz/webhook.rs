//! A webhook of the provider's that decides: the question it gets, a `SubjectAccessReview`, and what its answer means. Who asks it,
//! and what is remembered, is left to whoever knows planes.
//!
//! The question names the plane in `spec.extra`. Nobody can say that of themselves: what a user has under those keys is left out.

use polder_model::selector::{FieldOperator, FieldRequirement, LabelOperator, LabelRequirement};
use polder_model::{Object, PlaneId, SmolStr, Value, format_smolstr, json};

use super::{Attributes, Selectors, Target};

/// What all keys begin with that this server has in `spec.extra`.
const EXTRA_PREFIX: &str = "authorization.polder.dev/";
/// The plane a question is about: its name.
pub const PLANE: &str = "authorization.polder.dev/plane";
/// Its number, which no other plane will ever have.
pub const PLANE_NUMBER: &str = "authorization.polder.dev/plane-number";
/// What it was forked from, and what that was, nearest first: planes, or `layer/<name>`. Not there for a plane that was made anew.
pub const FORKED_FROM: &str = "authorization.polder.dev/forked-from";

/// A reason that is longer is cut.
const REASON_LEN_MAX: usize = 1024;

/// Which plane a question is about.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub plane: PlaneId,
    pub name: &'a str,
    /// Nearest first; none if it was made anew.
    pub forked_from: &'a [SmolStr],
}

/// In which version the webhook is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReviewVersion {
    V1,
    V1Beta1,
}

/// What a webhook said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    pub allowed: bool,
    pub denied: bool,
    pub reason: SmolStr,
}

/// `spec` of the question, in version `v1`.
pub fn spec(attributes: &Attributes<'_>, place: Place<'_>) -> Value {
    let mut spec = Object::new();
    match &attributes.target {
        Target::Path(path) => {
            spec.insert("nonResourceAttributes", texts_of(&[("path", path), ("verb", attributes.verb)]));
        }
        Target::Resource { resource, version, subresource, namespace, name } => {
            let mut own = texts_of(&[
                ("namespace", namespace),
                ("verb", attributes.verb),
                ("group", &resource.group),
                ("version", version),
                ("resource", &resource.resource),
                ("subresource", subresource),
                ("name", name),
            ]);
            let Selectors { fields, labels } = attributes.selectors;
            let fields: Vec<Value> = fields.iter().map(of_field).collect();
            let labels: Vec<Value> = labels.iter().filter_map(of_label).collect();
            for (key, requirements) in [("fieldSelector", fields), ("labelSelector", labels)] {
                if !requirements.is_empty() {
                    own.insert(key, json!({"requirements": requirements}));
                }
            }
            spec.insert("resourceAttributes", own);
        }
    }
    let user = attributes.user;
    if !user.name.is_empty() {
        spec.insert("user", user.name.clone());
    }
    if !user.groups.is_empty() {
        spec.insert("groups", texts(&user.groups));
    }
    let mut extra = Object::new();
    for (key, values) in user.extra.iter().filter(|(key, _)| !is_own(key)) {
        extra.insert(key.clone(), texts(values));
    }
    let number = format_smolstr!("{}", place.plane.0);
    for (key, value) in [(PLANE, place.name), (PLANE_NUMBER, &number)] {
        extra.insert(key, vec![Value::from(value)]);
    }
    if !place.forked_from.is_empty() {
        extra.insert(FORKED_FROM, texts(place.forked_from));
    }
    spec.insert("extra", extra);
    if !user.uid.is_empty() {
        spec.insert("uid", user.uid.clone());
    }
    Value::Object(spec)
}

/// The question as it is sent.
pub fn question(spec: &Value, version: ReviewVersion) -> Vec<u8> {
    let mut spec = spec.clone();
    let version = match version {
        ReviewVersion::V1 => "authorization.k8s.io/v1",
        ReviewVersion::V1Beta1 => {
            // The old version has another name for them.
            if let Some(groups) = spec.remove_at(&["groups"]) {
                spec.set_at(&["group"], groups);
            }
            "authorization.k8s.io/v1beta1"
        }
    };
    json!({"apiVersion": version, "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}).to_vec()
}

/// What an answer says.
pub fn read(answer: &[u8]) -> Result<Review, String> {
    let answer = Value::parse(answer).map_err(|_| "the answer is no JSON".to_owned())?;
    let status = answer.get("status").filter(|status| status.as_object().is_some());
    let status = status.ok_or("the answer has no status")?;
    let flag = |name: &str| match status.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(format!("status.{name} is neither true nor false")),
    };
    let (allowed, denied) = (flag("allowed")?, flag("denied")?);
    if allowed && denied {
        return Err("webhook subject access review returned both allow and deny response".into());
    }
    let reason = status.str_at(&["reason"]).unwrap_or_default();
    let reason: String = reason.chars().take(REASON_LEN_MAX).collect();
    Ok(Review { allowed, denied, reason: SmolStr::from(reason) })
}

/// Whether a key is one that this server gives, in whatever letters.
fn is_own(key: &str) -> bool {
    key.get(..EXTRA_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(EXTRA_PREFIX))
}

fn texts(all: &[SmolStr]) -> Value {
    Value::Array(all.iter().map(Value::from).collect())
}

/// Those that are not empty.
fn texts_of(pairs: &[(&'static str, &str)]) -> Object {
    let mut object = Object::new();
    for (key, text) in pairs.iter().filter(|(_, text)| !text.is_empty()) {
        object.insert(*key, SmolStr::new(text));
    }
    object
}

fn of_field(requirement: &FieldRequirement) -> Value {
    let operator = match requirement.operator {
        FieldOperator::Equals => "In",
        FieldOperator::NotEquals => "NotIn",
    };
    json!({"key": (requirement.path.clone()), "operator": operator, "values": [(requirement.value.clone())]})
}

/// Nothing for what the question has no word for: without it, it is about more.
fn of_label(requirement: &LabelRequirement) -> Option<Value> {
    let operator = match requirement.operator() {
        LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => "In",
        LabelOperator::NotEquals | LabelOperator::NotIn => "NotIn",
        LabelOperator::Exists => "Exists",
        LabelOperator::DoesNotExist => "DoesNotExist",
        LabelOperator::Gt | LabelOperator::Lt => return None,
    };
    let mut value = json!({"key": (SmolStr::new(requirement.key())), "operator": operator});
    if !requirement.values().is_empty() {
        value.set_at(&["values"], texts(requirement.values()));
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use polder_model::GroupResource;
    use polder_model::selector::{FieldSelector, LabelSelector};

    use super::*;
    use crate::UserInfo;

    const PARENTS: &[SmolStr] = &[SmolStr::new_static("layer/golden"), SmolStr::new_static("old")];
    const PLACE: Place<'_> = Place { plane: PlaneId(7), name: "acme", forked_from: PARENTS };

    #[test]
    fn questions_name_the_plane_and_what_is_asked() {
        let mut ann = UserInfo::authenticated("ann", ["dev".into()]);
        ann.uid = "u".into();
        ann.extra = vec![
            ("a.io/b".into(), vec!["c".into()]),
            (PLANE.into(), vec!["globex".into()]),
            ("Authorization.polder.dev/Plane".into(), vec!["globex".into()]),
        ];
        let pods = GroupResource::new("", "pods");
        let fields = FieldSelector::parse("spec.nodeName=n,status.phase!=Failed").unwrap();
        let labels = LabelSelector::parse("a=b,c in (d,e),!f,g,h!=i,j>1").unwrap();
        let mut attributes = Attributes {
            user: &ann,
            plane: PlaneId(7),
            verb: "list",
            target: Target::Resource {
                resource: &pods,
                version: "v1",
                subresource: "",
                namespace: "x",
                name: "",
            },
            selectors: Selectors { fields: fields.requirements(), labels: labels.requirements() },
        };
        let expected = json!({
            "resourceAttributes": {
                "namespace": "x", "verb": "list", "version": "v1", "resource": "pods",
                "fieldSelector": {"requirements": [
                    {"key": "spec.nodeName", "operator": "In", "values": ["n"]},
                    {"key": "status.phase", "operator": "NotIn", "values": ["Failed"]},
                ]},
                "labelSelector": {"requirements": [
                    {"key": "a", "operator": "In", "values": ["b"]},
                    {"key": "c", "operator": "In", "values": ["d", "e"]},
                    {"key": "f", "operator": "DoesNotExist"},
                    {"key": "g", "operator": "Exists"},
                    {"key": "h", "operator": "NotIn", "values": ["i"]},
                ]},
            },
            "user": "ann", "groups": ["dev", "system:authenticated"],
            "extra": {
                "a.io/b": ["c"], "authorization.polder.dev/plane": ["acme"],
                "authorization.polder.dev/plane-number": ["7"],
                "authorization.polder.dev/forked-from": ["layer/golden", "old"],
            },
            "uid": "u",
        });
        let found = spec(&attributes, PLACE);
        assert_eq!(found, expected, "{found}");

        attributes.target = Target::Path("/metrics");
        let found = spec(&attributes, Place { forked_from: &[], ..PLACE });
        assert_eq!(found.get("nonResourceAttributes"), Some(&json!({"path": "/metrics", "verb": "list"})));
        assert!(found.get("resourceAttributes").is_none());
        assert!(found.at(&["extra", FORKED_FROM]).is_none());

        let old = Value::parse(&question(&found, ReviewVersion::V1Beta1)).unwrap();
        assert_eq!(old.str_at(&["apiVersion"]), Some("authorization.k8s.io/v1beta1"));
        assert_eq!(old.array_at(&["spec", "group"]).len(), 2);
        assert!(old.at(&["spec", "groups"]).is_none());
    }

    #[test]
    fn what_answers_mean() {
        let said = |status: Value| read(&json!({"status": status}).to_vec());
        let review = |allowed, denied, reason: &str| Ok(Review { allowed, denied, reason: reason.into() });
        assert_eq!(said(json!({"allowed": true, "reason": "r"})), review(true, false, "r"));
        assert_eq!(said(json!({"denied": true})), review(false, true, ""));
        assert_eq!(said(json!({"allowed": false, "denied": null})), review(false, false, ""));
        let both = "webhook subject access review returned both allow and deny response";
        assert_eq!(said(json!({"allowed": true, "denied": true})), Err(both.into()));
        assert!(said(json!({"allowed": "true"})).is_err());
        assert!(read(b"{}").is_err() && read(b"<html>").is_err() && read(br#"{"status": true}"#).is_err());
        let long = said(json!({"allowed": true, "reason": ("\u{e9}".repeat(5000))})).unwrap();
        assert_eq!(long.reason.chars().count(), REASON_LEN_MAX);
    }
}
