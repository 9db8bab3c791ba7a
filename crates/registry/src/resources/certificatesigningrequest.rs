//! Certificate signing requests: somebody wants a certificate from a signer.
//!
//! Who asked is written here from the request itself; clients cannot say it. Approvers give their verdict through one
//! subresource and signers their certificate through another, and neither does the other's work. The PEM armor is
//! checked here, what is inside it by the signer.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_machinery::age::human_duration;
use polder_model::names::{dns_label_problem, dns_subdomain_problem};
use polder_model::{FieldError, FieldPath, Object, SmolStr, Value, json};

use super::blank_status;
use super::cells;
use super::checks::{Errors, each, same, text};
use crate::behavior::{Behavior, Column, NameRule, Occasion, Print, Selectable};

const LEGACY_SIGNER: &str = "kubernetes.io/legacy-unknown";
const EXPIRATION_MIN: i64 = 600;
const DOMAIN_LEN_MAX: usize = 253;
const PATH_LEN_MAX: usize = 253 + 63 + 1;

/// Judgments on a request: given once, and only in the positive.
const VERDICTS: [&str; 3] = ["Approved", "Denied", "Failed"];

/// What only the server may write into the spec.
const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];

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
    sign,
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
    prepare_part,
    validate_status: |new, old, errors| validate_change("status", new, old, errors),
    validate_part: validate_change,
    validate,
    ..Behavior::PLAIN
};

/// Notes who asks, for approvers and signers to judge.
fn sign(request: &mut Value, occasion: &Occasion<'_>) {
    if request.as_object().is_none() {
        return;
    }
    let user = occasion.user;
    let list = |texts: &[SmolStr]| Value::Array(texts.iter().map(Value::from).collect());
    let extra: Object = user.extra.iter().map(|(key, values)| (key.clone(), list(values))).collect();
    let members = [
        ("username", Value::from(&user.name), user.name.is_empty()),
        ("uid", Value::from(&user.uid), user.uid.is_empty()),
        ("groups", list(&user.groups), user.groups.is_empty()),
        ("extra", Value::Object(extra), user.extra.is_empty()),
    ];
    for (key, value, empty) in members {
        if !empty {
            request.set_at(&["spec", key], value);
        }
    }
}

/// Verdicts stay as they were given when a signer reports; what is new gets its times.
fn prepare_part(new: &mut Value, old: &Value, occasion: &Occasion<'_>) {
    let old_conditions = old.array_at(&["status", "conditions"]);
    let Some(conditions) = new.at_mut(&["status", "conditions"]).and_then(Value::as_array_mut) else {
        return;
    };
    if occasion.part == "status" {
        for kind in ["Approved", "Denied"] {
            let is = |condition: &Value| text(condition, "type") == kind;
            let given: Vec<&Value> = old_conditions.iter().filter(|one| is(one)).collect();
            if given.len() == conditions.iter().filter(|one| is(one)).count() {
                let places = conditions.iter_mut().filter(|one| is(one));
                places.zip(given).for_each(|(place, given)| place.clone_from(given));
            }
        }
    }
    for condition in conditions.iter_mut().filter(|condition| condition.as_object().is_some()) {
        let unset = |key: &str| text(condition, key).is_empty();
        let (updated, changed) = (unset("lastUpdateTime"), unset("lastTransitionTime"));
        if updated {
            condition.set_at(&["lastUpdateTime"], occasion.now);
        }
        if changed {
            let alike =
                |one: &&Value| ["type", "status"].iter().all(|key| text(one, key) == text(condition, key));
            let mut times = old_conditions.iter().filter(alike).map(|one| text(one, "lastTransitionTime"));
            let since = times.find(|time| !time.is_empty()).unwrap_or(occasion.now).to_owned();
            condition.set_at(&["lastTransitionTime"], since);
        }
    }
}

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
    match old {
        None => validate_conditions(new.get("status").unwrap_or(&empty), errors),
        Some(old) => validate_change("", new, old, errors),
    }
}

fn validate_spec(spec: &Value, errors: &mut Errors) {
    let path = FieldPath::root("spec");
    if !is_request(text(spec, "request")) {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        let shown = spec.get("request").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(path.member("request"), shown, why));
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

fn validate_conditions(status: &Value, errors: &mut Errors) {
    let path = FieldPath::root("status");
    let mut seen = HashSet::new();
    each(status, "conditions", &path, errors, |condition, at, errors| {
        let kind = text(condition, "type");
        if kind.is_empty() {
            errors.push(FieldError::required(at.member("type"), ""));
        }
        let supported: &[&str] =
            if VERDICTS.contains(&kind) { &["True"] } else { &["False", "True", "Unknown"] };
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

/// What may change through a part of the object: verdicts through `approval`, the certificate through `status`. Both
/// stay once given.
fn validate_change(part: &str, new: &Value, old: &Value, errors: &mut Errors) {
    validate_conditions(new.get("status").unwrap_or(&Value::Null), errors);
    let certificate =
        |object: &'_ Value| object.str_at(&["status", "certificate"]).unwrap_or_default().to_owned();
    let (before, after) = (certificate(old), certificate(new));
    if before != after
        && certificate_problem(&before).is_none()
        && let Some(problem) = certificate_problem(&after)
    {
        errors.push(FieldError::invalid("status.certificate", "<certificate data>", problem));
    }
    validate_verdicts(part, new, old, errors);
    if before != after && part != "status" {
        errors.push(FieldError::forbidden("status.certificate", "updates may not set certificate content"));
    } else if before != after && !before.is_empty() {
        let why = "updates may not modify existing certificate content";
        errors.push(FieldError::forbidden("status.certificate", why));
    }
}

fn validate_verdicts(part: &str, new: &Value, old: &Value, errors: &mut Errors) {
    let conditions = |object: &'_ Value, kind: &str| -> Vec<Value> {
        let all = object.array_at(&["status", "conditions"]).iter();
        all.filter(|condition| text(condition, "type") == kind).cloned().collect()
    };
    let mut refuse = |verb: &str, kind: &str| {
        let why = format!("updates may not {verb} a condition of type {kind:?}");
        errors.push(FieldError::forbidden("status.conditions", why));
    };
    for kind in VERDICTS {
        if conditions(new, kind).len() < conditions(old, kind).len() {
            refuse("remove", kind);
        }
    }
    for kind in ["Approved", "Denied"].into_iter().filter(|_| part != "approval") {
        let (before, after) = (conditions(old, kind), conditions(new, kind));
        if after.len() > before.len() {
            refuse("add", kind);
        } else if after.len() == before.len() && after != before {
            refuse("modify", kind);
        }
    }
}

/// What is wrong with base64 text that should hold certificates. None at all is fine: nobody has signed yet.
fn certificate_problem(encoded: &str) -> Option<String> {
    const BEGIN: &str = "-----BEGIN ";
    if encoded.is_empty() {
        return None;
    }
    let bytes = STANDARD.decode(encoded).unwrap_or_default();
    let mut rest = std::str::from_utf8(&bytes).unwrap_or_default();
    let mut blocks = 0;
    while let Some((_, after)) = rest.split_once(BEGIN) {
        // What does not end is no block.
        let Some((kind, body)) = after.split_once("-----") else { break };
        let Some((body, after)) = body.split_once(&format!("-----END {kind}-----")) else { break };
        if kind != "CERTIFICATE" {
            return Some(format!("only CERTIFICATE PEM blocks are allowed, found {kind:?}"));
        }
        if body.contains(':') {
            return Some("no PEM block headers are permitted".into());
        }
        blocks += 1;
        rest = after;
    }
    (blocks == 0).then(|| "must contain at least one CERTIFICATE PEM block".into())
}

#[cfg(test)]
mod tests {
    use polder_auth::UserInfo;

    use super::super::rows::{NOON, check, check_cells, parse, updates_part};
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
                        r#"spec.request: Invalid value: null: PEM block type must be CERTIFICATE REQUEST"#,
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
    fn clients_cannot_say_who_asks() {
        let mut object =
            parse(r#"{"spec":{"username":"root","groups":["system:masters"],"signerName":"s"},"status":{}}"#);
        (CERTIFICATE_SIGNING_REQUEST.prepare_create)(&mut object);
        assert_eq!(object.to_string(), r#"{"spec":{"signerName":"s"},"status":{}}"#);
        let mut user = UserInfo::authenticated("ann", ["dev".into()]);
        let mut signed = object.clone();
        let occasion = Occasion { user: &user, now: NOON, part: "" };
        (CERTIFICATE_SIGNING_REQUEST.sign)(&mut signed, &occasion);
        let groups = r#""groups":["dev","system:authenticated"]"#;
        let expected = format!(r#"{{"spec":{{{groups},"signerName":"s","username":"ann"}},"status":{{}}}}"#);
        assert_eq!(signed.to_string(), expected);
        user.uid = "7".into();
        user.extra = vec![("scope".into(), vec!["a".into(), "b".into()])];
        let mut signed = object.clone();
        let occasion = Occasion { user: &user, now: NOON, part: "" };
        (CERTIFICATE_SIGNING_REQUEST.sign)(&mut signed, &occasion);
        let extra = signed.at(&["spec", "extra"]).unwrap().to_string();
        assert_eq!((signed.str_at(&["spec", "uid"]), extra.as_str()), (Some("7"), r#"{"scope":["a","b"]}"#));
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

    /// A part, the status before and after, and what is said about it.
    #[test]
    fn each_part_has_its_own_writers() {
        let issued = |pem: &str| format!(r#"{{"certificate":"{}"}}"#, STANDARD.encode(pem));
        let certificate = issued("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n");
        let key = issued("-----BEGIN KEY-----\nMIIB\n-----END KEY-----\n");
        let approved = r#"{"conditions":[{"type":"Approved","status":"True"}]}"#;
        let set = "status.certificate: Forbidden: updates may not set certificate content";
        let rows: &[(&str, &str, &str, &[&str])] = &[
            ("approval", "{}", approved, &[]),
            ("approval", approved, approved, &[]),
            (
                "approval",
                approved,
                "{}",
                &[r#"status.conditions: Forbidden: updates may not remove a condition of type "Approved""#],
            ),
            (
                "approval",
                "{}",
                r#"{"conditions":[{"type":"Approved","status":"False"},{"type":"Denied","status":"True"}]}"#,
                &[
                    r#"status.conditions[0].status: Unsupported value: "False": supported values: "True""#,
                    r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#,
                ],
            ),
            (
                "approval",
                "{}",
                r#"{"conditions":[{"type":"","status":""}]}"#,
                &["status.conditions[0].type: Required value", "status.conditions[0].status: Required value"],
            ),
            ("approval", "{}", &certificate, &[set]),
            ("", "{}", &certificate, &[set]),
            ("status", "{}", &certificate, &[]),
            (
                "status",
                "{}",
                r#"{"certificate":"eA=="}"#,
                &[
                    r#"status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block"#,
                ],
            ),
            (
                "status",
                "{}",
                &key,
                &[
                    r#"status.certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are allowed, found "KEY""#,
                ],
            ),
            (
                "status",
                &certificate,
                "{}",
                &["status.certificate: Forbidden: updates may not modify existing certificate content"],
            ),
            ("status", "{}", r#"{"conditions":[{"type":"Failed","status":"True"}]}"#, &[]),
            (
                "status",
                "{}",
                approved,
                &[r#"status.conditions: Forbidden: updates may not add a condition of type "Approved""#],
            ),
            (
                "status",
                r#"{"conditions":[{"type":"Denied","status":"True"}],"certificate":"eA=="}"#,
                r#"{"conditions":[{"type":"Failed","status":"x"}],"certificate":"eB=="}"#,
                &[
                    r#"status.conditions[0].status: Unsupported value: "x": supported values: "True""#,
                    r#"status.conditions: Forbidden: updates may not remove a condition of type "Denied""#,
                    "status.certificate: Forbidden: updates may not modify existing certificate content",
                ],
            ),
        ];
        for (part, before, after, expected) in rows {
            let object = |status: &str| parse(&format!(r#"{{"status":{status}}}"#));
            let mut errors = Errors::new();
            validate_change(part, &object(after), &object(before), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{part} {after}");
        }
    }

    #[test]
    fn verdicts_get_their_times() {
        let condition = |kind: &str, times: &str| {
            format!(r#"{{"status":{{"conditions":[{{"status":"True","type":"{kind}"{times}}}]}}}}"#)
        };
        let times = |updated: &str, changed: &str| {
            format!(r#","lastUpdateTime":"{updated}","lastTransitionTime":"{changed}""#)
        };
        let old = condition("Approved", &times("a", "b"));
        let rows = [
            ("approval", condition("Approved", ""), "{}", condition("Approved", &times(NOON, NOON))),
            ("approval", condition("Approved", ""), old.as_str(), condition("Approved", &times(NOON, "b"))),
            (
                "approval",
                condition("Approved", &times("c", "d")),
                old.as_str(),
                condition("Approved", &times("c", "d")),
            ),
            ("status", condition("Approved", &times("c", "d")), old.as_str(), old.clone()),
            ("status", condition("Failed", ""), old.as_str(), condition("Failed", &times(NOON, NOON))),
        ];
        for (part, new, old, after) in rows {
            updates_part(&CERTIFICATE_SIGNING_REQUEST, part, &new, old, &after);
        }
    }
}
