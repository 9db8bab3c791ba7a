//! Checks of what is run in or against a container: probes and hooks.

use polder_model::{FieldError, FieldPath, Value};

use super::checks;

const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex \
    used for validation is '[-A-Za-z0-9]+')";

/// Checks probes and hooks, which ordinary containers and sidecars may have. `grace` is the pod's.
pub(super) fn validate(
    container: &Value,
    grace: Option<i64>,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) {
    for hook in ["postStart", "preStop"] {
        if let Some(handler) = container.at(&["lifecycle", hook]).filter(|handler| !handler.is_null()) {
            handler_rules(handler, grace, &path.member("lifecycle").member(hook), errors);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = checks::some(container, key) else { continue };
        let path = path.member(key);
        handler_rules(probe, grace, &path, errors);
        let numbers = [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ];
        checks::not_negative(probe, &numbers, &path, errors);
        let own_grace = probe.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
        let grace_path = path.member("terminationGracePeriodSeconds");
        if let Some(grace) = own_grace.filter(|grace| *grace <= 0) {
            errors.push(FieldError::invalid(grace_path, grace, "must be greater than 0"));
        }
        if key == "readinessProbe" {
            if let Some(grace) = own_grace {
                let text = "must not be set for readinessProbes";
                errors.push(FieldError::invalid(grace_path, grace, text));
            }
        } else if let Some(threshold) =
            probe.get("successThreshold").and_then(Value::as_i64).filter(|threshold| *threshold != 1)
        {
            errors.push(FieldError::invalid(path.member("successThreshold"), threshold, "must be 1"));
        }
    }
}

fn handler_rules(handler: &Value, grace: Option<i64>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut found = false;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc", "sleep"] {
        let Some(action) = checks::some(handler, kind) else { continue };
        let path = path.member(kind);
        if found {
            errors.push(FieldError::forbidden(path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match kind {
            "exec" if action.array_at(&["command"]).is_empty() => {
                errors.push(FieldError::required(path.member("command"), ""));
            }
            "httpGet" => {
                checks::port_or_name(action.get("port"), &path.member("port"), errors);
                checks::one_of_required(action, "scheme", &["HTTP", "HTTPS"], &path, errors);
                for header in action.array_at(&["httpHeaders"]).iter().take(checks::ERRORS_MAX) {
                    let name = checks::text(header, "name");
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                    let wrong = name.is_empty() || !name.bytes().all(plain);
                    checks::problem(name, wrong.then_some(HEADER), &path.member("httpHeaders"), errors);
                }
            }
            "sleep" => {
                let seconds = action.i64_at(&["seconds"]).unwrap_or_default();
                if let Some(grace) = grace.filter(|grace| !(0..=*grace).contains(&seconds)) {
                    let text =
                        format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
                    errors.push(FieldError::invalid(path, seconds, text));
                }
            }
            "tcpSocket" | "grpc" => checks::port_or_name(action.get("port"), &path.member("port"), errors),
            _ => {}
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
}
