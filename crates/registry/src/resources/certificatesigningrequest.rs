//! Certificate signing requests: somebody wants a certificate from a signer.
//!
//! Who asked is written by the registry, which knows the user; clients cannot say it. The PEM armor is checked here, the
//! request inside it by the signer.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_machinery::age::human_duration;
use polder_model::names::{dns_label_problem, dns_subdomain_problem};
use polder_model::{FieldError, FieldPath, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, each, same, text};
use crate::behavior::{Behavior, Column, NameRule, Print, Selectable};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const EXPIRATION_MIN: i64 = 600;
const DOMAIN_LEN_MAX: usize = 253;
const PATH_LEN_MAX: usize = 253 + 63 + 1;

/// What only the registry may write into the spec.
pub(crate) const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) const CERTIFICATE_SIGNING_REQUEST: Behavior = Behavior {
    group: "certificates.k8s.io",
    resource: "certificatesigningrequests",
    names: NameRule::PathSegment,
    selectable: &[Selectable { label: "spec.signerName", paths: &[&["spec", "signerName"]], missing: "" }],
    columns: &[
        Column::NAME,
        Column::AGE,
        Column::text("SignerName"),
        Column::text("Requestor"),
        Column::text("RequestedDuration"),
        Column::text("Condition"),
    ],
    cells,
    prepare_create: |object| {
        for key in REQUESTER {
            object.remove_at(&["spec", key]);
        }
        object.remove_at(&["status"]);
        blank_status::set(object, json!({}));
    },
    prepare_update: |new, old| {
        for key in ["spec", "status"] {
            match old.get(key) {
                Some(value) => new.set_at(&[key], value.clone()),
                None => {
                    new.remove_at(&[key]);
                }
            }
        }
    },
    validate_status,
    validate,
    ..Behavior::PLAIN
};

fn cells(object: &Value, print: &Print) -> Vec<Value> {
    let duration = match object.i64_at(&["spec", "expirationSeconds"]) {
        Some(seconds) => human_duration(seconds),
        None => "<none>".into(),
    };
    let signer = match object.str_at(&["spec", "signerName"]) {
        None | Some("") => "<none>",
        Some(signer) => signer,
    };
    vec![
        cells::name(object),
        cells::age(object, print),
        signer.into(),
        cells::text(object, &["spec", "username"]),
        duration.into(),
        condition(object).into(),
    ]
}

fn condition(object: &Value) -> String {
    let has = |kind: &str| {
        object.array_at(&["status", "conditions"]).iter().any(|condition| text(condition, "type") == kind)
    };
    let mut shown = String::from(match () {
        () if has("Denied") => "Denied",
        () if has("Approved") => "Approved",
        () => "Pending",
    });
    if has("Failed") {
        shown.push_str(",Failed");
    }
    if object.str_at(&["status", "certificate"]).is_some_and(|certificate| !certificate.is_empty()) {
        shown.push_str(",Issued");
    }
    shown
}

fn validate(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = new.get("spec").unwrap_or(&empty);
    // The spec cannot change, so that what was accepted once is not judged again.
    if old.is_none_or(|old| !same(old.get("spec"), new.get("spec"))) {
        validate_spec(spec, errors);
    }
    let status = new.get("status").unwrap_or(&empty);
    validate_conditions(status, errors);
    if let Some(old) = old {
        validate_kept(new, old, errors);
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    if !is_request(text(spec, "request")) {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        errors.push(FieldError::invalid(path.member("request"), text(spec, "request"), why));
    }
    if spec.array_at(&["usages"]).is_empty() {
        errors.push(FieldError::required(path.member("usages"), ""));
    }
    let mut seen = HashSet::new();
    each(spec, "usages", &path, errors, |usage, path, errors| {
        let usage = usage.as_str().unwrap_or_default();
        if !USAGES.contains(&usage) {
            errors.push(FieldError::not_supported(path, usage, USAGES));
        }
        if !seen.insert(usage.to_owned()) {
            errors.push(FieldError::duplicate(path, usage));
        }
    });
    match text(spec, "signerName") {
        LEGACY_SIGNER => {
            let why = "the legacy signerName is not allowed via this API version";
            errors.push(FieldError::invalid(path.member("signerName"), LEGACY_SIGNER, why));
        }
        signer => validate_signer(signer, &path.member("signerName"), errors),
    }
    let seconds = spec.i64_at(&["expirationSeconds"]);
    if let Some(seconds) = seconds.filter(|seconds| *seconds < EXPIRATION_MIN) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.push(FieldError::invalid(path.member("expirationSeconds"), seconds, why));
    }
}

/// Whether base64 text holds a PEM block of the right type.
fn is_request(encoded: &str) -> bool {
    let Ok(bytes) = STANDARD.decode(encoded) else { return false };
    let Ok(pem) = std::str::from_utf8(&bytes) else { return false };
    let Some((_, rest)) = pem.split_once("-----BEGIN CERTIFICATE REQUEST-----") else { return false };
    let Some((body, _)) = rest.split_once("-----END CERTIFICATE REQUEST-----") else { return false };
    let body: String = body.split_whitespace().collect();
    STANDARD.decode(body).is_ok_and(|der| !der.is_empty())
}

/// `domain/path`, where the domain has at least two labels.
fn validate_signer(signer: &str, path: &FieldPath<'_>, errors: &mut Errors) {
    if signer.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    let Some((domain, rest)) = signer.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        errors.push(FieldError::invalid(path, signer, why));
        return;
    };
    if domain.len() > DOMAIN_LEN_MAX {
        errors.push(FieldError::too_long(path, DOMAIN_LEN_MAX));
    }
    validate_labels(domain, dns_label_problem, path, errors);
    if !domain.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        errors.push(FieldError::invalid(path, domain, why));
    }
    validate_labels(rest, dns_subdomain_problem, path, errors);
    if rest.len() > PATH_LEN_MAX {
        errors.push(FieldError::too_long(path, PATH_LEN_MAX));
    }
}

/// The first bad part between dots is enough to hear about.
fn validate_labels(
    whole: &str,
    wrong: fn(&str) -> Option<&'static str>,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    let bad = whole.split('.').find_map(|label| wrong(label).map(|problem| (label, problem)));
    if let Some((label, problem)) = bad {
        errors.push(FieldError::invalid(path, whole, format!("validating label {label:?}: {problem}")));
    }
}

fn is_verdict(kind: &str) -> bool {
    matches!(kind, "Approved" | "Denied" | "Failed")
}

fn validate_conditions(status: &Value, errors: &mut Errors) {
    let path = FieldPath::root("status");
    let mut seen = HashSet::new();
    each(status, "conditions", &path, errors, |condition, at, errors| {
        let kind = text(condition, "type");
        if kind.is_empty() {
            errors.push(FieldError::required(at.member("type"), ""));
        }
        let supported: &[&str] = if is_verdict(kind) { &["True"] } else { &["False", "True", "Unknown"] };
        match text(condition, "status") {
            "" => errors.push(FieldError::required(at.member("status"), "")),
            value if !supported.contains(&value) => {
                errors.push(FieldError::not_supported(at.member("status"), value, supported));
            }
            _ => {}
        }
        let opposite = match kind {
            "Approved" => "Denied",
            "Denied" => "Approved",
            _ => "",
        };
        if seen.contains(opposite) {
            let why = "Approved and Denied conditions are mutually exclusive";
            errors.push(FieldError::invalid(path.member("conditions"), kind, why));
        }
        if !seen.insert(kind.to_owned()) {
            errors.push(FieldError::duplicate(at.member("type"), kind));
        }
    });
}

/// Verdicts and certificates stay once given.
fn validate_kept(new: &Value, old: &Value, errors: &mut Errors) {
    let count = |object: &Value, kind: &str| {
        let conditions = object.array_at(&["status", "conditions"]);
        conditions.iter().filter(|condition| text(condition, "type") == kind).count()
    };
    for kind in ["Approved", "Denied", "Failed"] {
        if count(new, kind) < count(old, kind) {
            let why = format!("updates may not remove a condition of type {kind:?}");
            errors.push(FieldError::forbidden("status.conditions", why));
        }
    }
    let certificate =
        |object: &Value| object.str_at(&["status", "certificate"]).unwrap_or_default().to_owned();
    if !certificate(old).is_empty() && certificate(old) != certificate(new) {
        let why = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", why));
    }
}

/// What a signer reports. Approving is not its business: that has a subresource, and a permission, of its own.
fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = FieldPath::root("status");
    each(
        new.get("status").unwrap_or(&Value::Null),
        "conditions",
        &path,
        errors,
        |condition, path, errors| {
            for key in ["type", "status"] {
                if text(condition, key).is_empty() {
                    errors.push(FieldError::required(path.member(key), ""));
                }
            }
            let (kind, status) = (text(condition, "type"), text(condition, "status"));
            if ["Approved", "Denied", "Failed"].contains(&kind) && !["", "True"].contains(&status) {
                errors.push(FieldError::not_supported(path.member("status"), status, ["True"]));
            }
        },
    );
    let conditions = |object: &'_ Value, kind: &str| -> Vec<Value> {
        let all = object.array_at(&["status", "conditions"]).iter();
        all.filter(|condition| text(condition, "type") == kind).cloned().collect()
    };
    let path = path.member("conditions");
    for kind in ["Approved", "Denied", "Failed"] {
        let (before, after) = (conditions(old, kind), conditions(new, kind));
        let verb = if after.len() < before.len() {
            "remove"
        } else if kind == "Failed" || before == after {
            continue;
        } else if after.len() > before.len() {
            "add"
        } else {
            "modify"
        };
        let text = format!("updates may not {verb} a condition of type {kind:?}");
        errors.push(FieldError::forbidden(path, text));
    }
    if old.str_at(&["status", "certificate"]).is_some_and(|old| !old.is_empty())
        && !same(new.at(&["status", "certificate"]), old.at(&["status", "certificate"]))
    {
        let text = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, check_cells, check_update, parse};
    use super::*;

    fn request() -> String {
        STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n")
    }

    #[test]
    fn specs() {
        let good = format!(
            r#"{{"spec":{{"request":"{}","signerName":"example.com/s","usages":["client auth"]}}}}"#,
            request()
        );
        let legacy = format!(
            r#"{{"spec":{{"request":"{}","signerName":"kubernetes.io/legacy-unknown","usages":["any","any"],"expirationSeconds":5}}}}"#,
            request()
        );
        check(
            &CERTIFICATE_SIGNING_REQUEST,
            &[
                (&good, &[]),
                (
                    "{}",
                    &[
                        r#"spec.request: Invalid value: "": PEM block type must be CERTIFICATE REQUEST"#,
                        "spec.usages: Required value",
                        "spec.signerName: Required value",
                    ],
                ),
                (
                    &legacy,
                    &[
                        r#"spec.usages[1]: Duplicate value: "any""#,
                        r#"spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version"#,
                        "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds (10 minutes)",
                    ],
                ),
            ],
        );
    }

    #[test]
    fn signers() {
        let rows: [(&str, &[&str]); 4] = [
            ("example.com/a.b", &[]),
            (
                "example.com",
                &[
                    r#"s: Invalid value: "example.com": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
                ],
            ),
            (
                "a/b/c",
                &[
                    r#"s: Invalid value: "a/b/c": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
                ],
            ),
            (
                "example/b",
                &[
                    r#"s: Invalid value: "example": should be a domain with at least two segments separated by dots"#,
                ],
            ),
        ];
        for (signer, expected) in rows {
            let mut errors = Errors::new();
            validate_signer(signer, &FieldPath::root("s"), &mut errors);
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected, "{signer}");
        }
    }

    #[test]
    fn verdicts_stay() {
        let approved =
            r#"{"status":{"conditions":[{"type":"Approved","status":"True"}],"certificate":"YQ=="}}"#;
        check_update(
            &CERTIFICATE_SIGNING_REQUEST,
            &[
                (approved, approved, &[]),
                (
                    approved,
                    r#"{"status":{"certificate":"Yg=="}}"#,
                    &[
                        r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#,
                        "status.certificate: Forbidden: updates may not modify existing certificate content",
                    ],
                ),
                (
                    "{}",
                    r#"{"status":{"conditions":[{"type":"Approved","status":"False"},{"type":"Denied","status":"True"}]}}"#,
                    &[
                        r#"status.conditions[0].status: Unsupported value: "False": supported values: "True""#,
                        r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
                    ],
                ),
            ],
        );
    }

    #[test]
    fn clients_cannot_say_who_asks() {
        let mut object =
            parse(r#"{"spec":{"username":"root","groups":["system:masters"],"signerName":"s"},"status":{}}"#);
        (CERTIFICATE_SIGNING_REQUEST.prepare_create)(&mut object);
        assert_eq!(object.to_string(), r#"{"spec":{"signerName":"s"},"status":{}}"#);
        let mut changed = parse(r#"{"spec":{"signerName":"t"}}"#);
        (CERTIFICATE_SIGNING_REQUEST.prepare_update)(&mut changed, &object);
        assert_eq!(changed.to_string(), r#"{"spec":{"signerName":"s"},"status":{}}"#);
    }

    #[test]
    fn cells() {
        check_cells(
            &CERTIFICATE_SIGNING_REQUEST,
            &[
                (
                    r#"{"metadata":{"name":"c"},"spec":{"signerName":"s","username":"u","expirationSeconds":3600}}"#,
                    r#"["c","<unknown>","s","u","60m","Pending"]"#,
                ),
                (
                    r#"{"metadata":{"name":"c"},"spec":{},"status":{"certificate":"YQ==","conditions":[{"type":"Approved"},{"type":"Failed"}]}}"#,
                    r#"["c","<unknown>","<none>","","<none>","Approved,Failed,Issued"]"#,
                ),
            ],
        );
    }

    #[test]
    fn signers_do_not_approve() {
        let rows: &[(&str, &str, &[&str])] = &[
            ("{}", r#"{"conditions":[{"type":"Failed","status":"True"}]}"#, &[]),
            (
                "{}",
                r#"{"conditions":[{"type":"Approved","status":"True"}]}"#,
                &[r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#],
            ),
            (
                r#"{"conditions":[{"type":"Denied","status":"True"}],"certificate":"eA=="}"#,
                r#"{"conditions":[{"type":"Failed","status":"x"}],"certificate":"eB=="}"#,
                &[
                    r#"status.conditions[0].status: Unsupported value: "x": supported values: "True""#,
                    r#"status.conditions: Forbidden: updates may not remove a condition of type "Denied""#,
                    "status.certificate: Forbidden: updates may not modify existing certificate content",
                ],
            ),
        ];
        for (before, after, expected) in rows {
            let object = |status: &str| parse(&format!(r#"{{"status":{status}}}"#));
            let mut errors = Errors::new();
            (CERTIFICATE_SIGNING_REQUEST.validate_status)(&object(after), &object(before), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{after}");
        }
    }
}
