//! Checks of a container's environment.

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{Errors, config_key, dns_label, dns_subdomain, required, some, text};
use super::downward;

/// Checks `env` and `envFrom`.
pub(super) fn validate(container: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    variables(container, &path.member("env"), errors);
    env_from(container, &path.member("envFrom"), errors);
}

/// A key of a config map or secret. A missing name is not refused, an empty one is: old clients write no name.
fn key_reference(reference: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(name) = some(reference, "name").and_then(Value::as_str) {
        dns_subdomain(name, &path.member("name"), errors);
    }
    if required(reference, "key", path, errors) {
        config_key(text(reference, "key"), &path.member("key"), errors);
    }
}

fn env_name(name: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    let allowed = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'=';
    if !name.bytes().all(allowed) {
        let text = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        errors.push(FieldError::invalid(path, name, text));
    }
}

fn variables(container: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    for (index, variable) in container.array_at(&["env"]).iter().enumerate() {
        let path = path.index(index);
        match text(variable, "name") {
            "" => errors.push(FieldError::required(path.member("name"), "")),
            name => env_name(name, &path.member("name"), errors),
        }
        let Some(from) = some(variable, "valueFrom") else { continue };
        let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
        let from_path = path.member("valueFrom");
        if let Some(reference) = some(from, "fieldRef") {
            let path = from_path.member("fieldRef");
            downward::validate_field(reference, &downward::ENV_FIELDS, &path, errors);
        }
        if let Some(reference) = some(from, "resourceFieldRef") {
            downward::validate_resource(reference, false, &from_path.member("resourceFieldRef"), errors);
        }
        for key in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = some(from, key) {
                key_reference(reference, &from_path.member(key), errors);
            }
        }
        if let Some(reference) = some(from, "fileKeyRef") {
            let path = from_path.member("fileKeyRef");
            if required(reference, "key", &path, errors) {
                env_name(text(reference, "key"), &path.member("key"), errors);
            }
            if required(reference, "volumeName", &path, errors) {
                dns_label(text(reference, "volumeName"), &path.member("volumeName"), errors);
            }
            required(reference, "path", &path, errors);
        }
        let found = sources.iter().filter(|source| some(from, source).is_some()).count();
        let text = match found {
            0 => {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
            }
            _ if !text(variable, "value").is_empty() => "may not be specified when `value` is not empty",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        errors.push(FieldError::invalid(from_path, "", text));
    }
}

fn env_from(container: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    for (index, source) in container.array_at(&["envFrom"]).iter().enumerate() {
        let item = path.index(index);
        env_name(text(source, "prefix"), &item.member("prefix"), errors);
        for key in ["configMapRef", "secretRef"] {
            let Some(reference) = some(source, key) else { continue };
            let path = item.member(key);
            if required(reference, "name", &path, errors) {
                dns_subdomain(text(reference, "name"), &path.member("name"), errors);
            }
        }
        let found = ["configMapRef", "secretRef"].iter().filter(|key| some(source, key).is_some()).count();
        match found {
            0 => errors.push(FieldError::invalid(
                path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            )),
            1 => {}
            _ => errors.push(FieldError::invalid(
                path,
                "",
                "may not have more than one field specified at a time",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[test]
    fn variables_and_sources() {
        let rows: &[(&str, &[&str])] = &[
            (
                r#"{"env":[{"name":"a","value":"b"},{"name":"c","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}"#,
                &[],
            ),
            (
                r#"{"env":[{"name":"a","valueFrom":{"configMapKeyRef":{"name":"c","key":"a b"},"fieldRef":{"fieldPath":"metadata.bogus"}}}]}"#,
                &[
                    r#"c.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.bogus": error converting fieldPath: field label not supported: metadata.bogus"#,
                    r#"c.env[0].valueFrom.configMapKeyRef.key: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#,
                    r#"c.env[0].valueFrom: Invalid value: "": may not have more than one field specified at a time"#,
                ],
            ),
            (
                r#"{"envFrom":[{"configMapRef":{"name":""}},{"prefix":"a=","secretRef":{"name":"s"}}]}"#,
                &[
                    "c.envFrom[0].configMapRef.name: Required value",
                    r#"c.envFrom[1].prefix: Invalid value: "a=": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
                ],
            ),
        ];
        for (container, expected) in rows {
            let mut errors = Errors::new();
            validate(&parse(container), &FieldPath::root("c"), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{container}");
        }
    }
}
