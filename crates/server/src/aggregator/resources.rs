//! What an extension server says it serves, as the aggregated form of discovery has it. Pure.
//!
//! Invariant: nothing is taken over but fields that are known, of bounded number, in the shapes they must have. A document
//! that makes no sense is refused as a whole, and nothing that a server says about other groups is believed.

use polder_model::{Object, Value, json};

/// Resources and subresources of one group version.
const RESOURCES_MAX: usize = 1000;
/// A name, a kind, a verb.
const TEXT_LEN_MAX: usize = 256;
/// Verbs, short names or categories of one resource.
const TEXTS_MAX: usize = 32;

/// The resources of an `APIResourceList`.
pub(super) fn aggregated(list: &Value, group: &str, version: &str) -> Result<Vec<Value>, String> {
    if list.str_at(&["kind"]) != Some("APIResourceList") {
        return Err("the answer is no APIResourceList".into());
    }
    if list.str_at(&["groupVersion"]) != Some(&format!("{group}/{version}")) {
        return Err("the answer is about another group version".into());
    }
    let listed = list.array_at(&["resources"]);
    if listed.len() > RESOURCES_MAX {
        return Err(format!("the answer lists more than {RESOURCES_MAX} resources"));
    }
    let mut resources: Vec<(String, Value, Vec<Value>)> = Vec::new();
    let (parts, wholes): (Vec<&Value>, Vec<&Value>) =
        listed.iter().partition(|one| one.str_at(&["name"]).is_some_and(|name| name.contains('/')));
    for one in wholes {
        let name = text(one, "name")?;
        let mut resource = json!({
            "resource": name, "responseKind": (response_kind(one, group, version)?),
            "scope": (if namespaced(one) { "Namespaced" } else { "Cluster" }),
            "singularResource": (text(one, "singularName").unwrap_or_default()),
            "verbs": (texts(one, "verbs")?),
        });
        for key in ["shortNames", "categories"] {
            let names = texts(one, key)?;
            if !names.is_empty() {
                resource.set_at(&[key], names);
            }
        }
        resources.push((name.to_owned(), resource, Vec::new()));
    }
    for one in parts {
        let (owner, name) = text(one, "name")?.split_once('/').unwrap_or_default();
        let part = json!({
            "subresource": name, "responseKind": (response_kind(one, group, version)?),
            "verbs": (texts(one, "verbs")?),
        });
        match resources.iter_mut().find(|(resource, ..)| resource == owner) {
            Some((_, _, parts)) => parts.push(part),
            // A part without a whole has no verbs of its own.
            None => {
                let scope = if namespaced(one) { "Namespaced" } else { "Cluster" };
                let whole = json!({"resource": owner, "responseKind": {}, "scope": scope, "singularResource": "", "verbs": []});
                resources.push((owner.to_owned(), whole, vec![part]));
            }
        }
    }
    Ok(resources
        .into_iter()
        .map(|(_, mut resource, parts)| {
            if !parts.is_empty() {
                resource.set_at(&["subresources"], parts);
            }
            resource
        })
        .collect())
}

fn namespaced(resource: &Value) -> bool {
    resource.get("namespaced").and_then(Value::as_bool) == Some(true)
}

fn text<'v>(value: &'v Value, key: &str) -> Result<&'v str, String> {
    let text = value.str_at(&[key]).unwrap_or_default();
    if text.len() > TEXT_LEN_MAX || text.chars().any(char::is_control) {
        return Err(format!("the answer has a {key} that is none"));
    }
    Ok(text)
}

fn texts(value: &Value, key: &str) -> Result<Vec<Value>, String> {
    let all = value.array_at(&[key]);
    let fits = |one: &Value| one.as_str().is_some_and(|text| text.len() <= TEXT_LEN_MAX);
    if all.len() > TEXTS_MAX || !all.iter().all(fits) {
        return Err(format!("the answer has {key} that are none"));
    }
    Ok(all.to_vec())
}

/// Without a group and version of its own, a kind has those of the list.
fn response_kind(resource: &Value, group: &str, version: &str) -> Result<Value, String> {
    let (own_group, own_version) = (text(resource, "group")?, text(resource, "version")?);
    let own = !own_group.is_empty() || !own_version.is_empty();
    let (group, version) = if own { (own_group, own_version) } else { (group, version) };
    let mut kind = Object::new();
    kind.insert("group", group);
    kind.insert("version", version);
    kind.insert("kind", text(resource, "kind")?);
    Ok(Value::Object(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &Value, expected: Result<&str, &str>) {
        let found = aggregated(list, "wardle.example.com", "v1");
        let found = found.map(|resources| Value::Array(resources).to_string());
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    fn list(resources: Value) -> Value {
        json!({"kind": "APIResourceList", "groupVersion": "wardle.example.com/v1", "resources": resources})
    }

    #[test]
    fn lists_become_aggregated() {
        check(
            &list(json!([
                {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder",
                    "verbs": ["get", "list"], "shortNames": ["fl"], "storageVersionHash": "x"},
                {"name": "flunders/status", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
                {"name": "flunders/scale", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale",
                    "verbs": ["get"]},
            ])),
            Ok(concat!(
                r#"[{"resource":"flunders","#,
                r#""responseKind":{"group":"wardle.example.com","kind":"Flunder","version":"v1"},"scope":"Namespaced","#,
                r#""shortNames":["fl"],"singularResource":"flunder","#,
                r#""subresources":[{"responseKind":{"group":"wardle.example.com","kind":"Flunder","version":"v1"},"#,
                r#""subresource":"status","verbs":["get"]},"#,
                r#"{"responseKind":{"group":"autoscaling","kind":"Scale","version":"v1"},"subresource":"scale","verbs":["get"]}],"#,
                r#""verbs":["get","list"]}]"#
            )),
        );
        check(&list(json!([])), Ok("[]"));
    }

    #[test]
    fn nonsense_is_refused() {
        check(&json!("text"), Err("the answer is no APIResourceList"));
        let other = json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []});
        check(&other, Err("the answer is about another group version"));
        check(&list(json!([{"name": "a", "verbs": [1]}])), Err("the answer has verbs that are none"));
        check(&list(json!([{"name": "a\n"}])), Err("the answer has a name that is none"));
        let many = (0..2000).map(|_| json!({"name": "a"})).collect::<Vec<_>>();
        check(&list(Value::Array(many)), Err("the answer lists more than 1000 resources"));
    }
}
