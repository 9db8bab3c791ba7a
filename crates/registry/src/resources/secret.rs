//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use polder_model::{FieldError, FieldPath, Value};

use super::configmap::{BYTES_MAX, decoded_len, validate_frozen};
use super::{cells, checks, go_json};
use crate::behavior::{Behavior, Column, Print, Selectable};

const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";

pub(super) const SECRETS: Behavior = Behavior {
    resource: "secrets",
    selectable: &[Selectable { label: "type", paths: &[&["type"]], missing: "" }],
    columns: &[Column::NAME, Column::text("Type"), Column::text("Data"), Column::AGE],
    cells,
    default,
    prepare_update,
    validate,
    ..Behavior::PLAIN
};

fn cells(secret: &Value, print: &Print) -> Vec<Value> {
    let entries = cells::len(secret.get("data"));
    vec![cells::name(secret), cells::text(secret, &["type"]), entries.into(), cells::age(secret, print)]
}

/// `stringData` is for writing only: it becomes part of `data`.
fn default(secret: &mut Value) {
    let Some(Value::Object(plain)) = secret.remove_at(&["stringData"]) else { return };
    for (key, value) in plain {
        if let Some(text) = value.as_str() {
            let encoded = STANDARD.encode(text);
            secret.set_at(&["data", &key], encoded);
        }
    }
}

fn prepare_update(new: &mut Value, old: &Value) {
    if new.str_at(&["type"]).unwrap_or_default().is_empty()
        && let Some(kind) = old.get("type")
    {
        new.set_at(&["type"], kind.clone());
    }
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(old) = old {
        checks::immutable(new, old, "type", &FieldPath::ROOT, errors);
        validate_frozen(new, old, &["data"], errors);
    }
    let path = FieldPath::root("data");
    let mut bytes = 0;
    for (key, value) in new.get("data").and_then(Value::as_object).into_iter().flat_map(|all| all.iter()) {
        checks::config_key(key, &path.key(key), errors);
        bytes += decoded_len(value.as_str().unwrap_or_default());
    }
    if bytes > BYTES_MAX {
        errors.push(FieldError::too_long(path, BYTES_MAX));
    }
    validate_type(new, &path, errors);
}

fn validate_type(secret: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let value = |key: &str| secret.at(&["data", key]).and_then(Value::as_str);
    let mut require = |keys: &[&str]| {
        for key in keys {
            errors.push(FieldError::required(path.key(key), ""));
        }
    };
    match checks::text(secret, "type") {
        "kubernetes.io/service-account-token"
            if secret.str_at(&["metadata", "annotations", ACCOUNT_NAME]).unwrap_or_default().is_empty() =>
        {
            errors.push(FieldError::required(format!("metadata.annotations[{ACCOUNT_NAME}]"), ""));
        }
        "kubernetes.io/dockercfg" => docker_config(value(".dockercfg"), &path.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => {
            docker_config(value(".dockerconfigjson"), &path.key(".dockerconfigjson"), errors);
        }
        "kubernetes.io/basic-auth" if value("username").is_none() && value("password").is_none() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if value("ssh-privatekey").unwrap_or_default().is_empty() => {
            require(&["ssh-privatekey"]);
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if value(key).is_none() {
                    require(&[key]);
                }
            }
        }
        _ => {}
    }
}

fn docker_config(encoded: Option<&str>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let Some(encoded) = encoded else {
        errors.push(FieldError::required(path, ""));
        return;
    };
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    let problem = match Value::parse(&bytes) {
        Ok(Value::Object(_) | Value::Null) => return,
        Ok(other) => {
            let kind = match other {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "array",
                _ => "number",
            };
            format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")
        }
        // We refuse a little that Go takes, such as numbers of any size; those stay our words.
        Err(error) => go_json::problem(&bytes).unwrap_or_else(|| error.to_string()),
    };
    errors.push(FieldError::invalid(path, "<secret contents redacted>", problem));
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses, updates};
    use super::SECRETS;

    #[test]
    fn cells() {
        prints(
            &SECRETS,
            r#"{"metadata":{"name":"s"},"type":"Opaque","data":{"a":""}}"#,
            "s|Opaque|1|<unknown>",
        );
    }

    #[test]
    fn strings_become_data() {
        defaults(
            &SECRETS,
            r#"{"data":{"a":"eA==","b":"eQ=="},"stringData":{"b":"z","c":"ü"}}"#,
            r#"{"data":{"a":"eA==","b":"eg==","c":"w7w="}}"#,
        );
        updates(&SECRETS, r#"{"type":""}"#, r#"{"type":"T"}"#, r#"{"type":"T"}"#);
    }

    #[test]
    fn checks() {
        refuses(
            &SECRETS,
            r#"{"type":"a","data":{"a":"eA=="}}"#,
            Some(r#"{"type":"b","immutable":true}"#),
            &[
                r#"type: Invalid value: "a": field is immutable"#,
                "immutable: Forbidden: field is immutable when `immutable` is set",
                "data: Forbidden: field is immutable when `immutable` is set",
            ],
        );
        let rows: [(&str, &[&str]); 8] = [
            (
                r#"{"type":"kubernetes.io/tls"}"#,
                &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
            ),
            (
                r#"{"type":"kubernetes.io/ssh-auth","data":{"ssh-privatekey":""}}"#,
                &["data[ssh-privatekey]: Required value"],
            ),
            (r#"{"type":"kubernetes.io/basic-auth","data":{"password":""}}"#, &[]),
            (
                r#"{"type":"kubernetes.io/service-account-token"}"#,
                &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
            ),
            (r#"{"type":"kubernetes.io/dockerconfigjson"}"#, &["data[.dockerconfigjson]: Required value"]),
            (
                r#"{"type":"kubernetes.io/dockerconfigjson","data":{".dockerconfigjson":""}}"#,
                &[
                    r#"data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input"#,
                ],
            ),
            (r#"{"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{}"}}"#, &[]),
            (
                r#"{"type":"kubernetes.io/dockercfg","stringData":{".dockercfg":"x"}}"#,
                &[
                    r#"data[.dockercfg]: Invalid value: "<secret contents redacted>": invalid character 'x' looking for beginning of value"#,
                ],
            ),
        ];
        for (secret, expected) in rows {
            refuses(&SECRETS, secret, None, expected);
        }
    }
}
