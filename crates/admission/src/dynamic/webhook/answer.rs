//! What a webhook answers: checked, since anybody may have written it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{Reason, SmolStr, Status, Value};

use super::ReviewVersion;

/// More warnings of one webhook than this are not passed on.
const WARNINGS_MAX: usize = 16;
/// Longer ones are cut.
const WARNING_LEN_MAX: usize = 4 * 1024;
/// Audit annotations of one webhook, and what each may take.
const ANNOTATIONS_MAX: usize = 16;
const ANNOTATION_LEN_MAX: usize = 10 * 1024;

/// What a webhook says.
#[derive(Debug)]
pub struct Accepted {
    pub warnings: Vec<String>,
    pub annotations: Vec<(SmolStr, String)>,
    /// Why not.
    pub refusal: Option<Status>,
    /// A JSON patch.
    pub patch: Vec<u8>,
}

/// Reads the answer of a webhook. `Err` when it is none; the text is what upstream says.
pub fn read(
    webhook: &str,
    version: ReviewVersion,
    mutating: bool,
    uid: &str,
    body: &[u8],
) -> Result<Accepted, String> {
    let undecodable = "failed to call webhook: couldn't get version/kind; json parse error";
    let invalid = |text: String| format!("received invalid webhook response: {text}");
    let review = Value::parse(body).map_err(|error| format!("{undecodable}: {error}"))?;
    understand(webhook, version, mutating, uid, &review).map_err(invalid)
}

fn understand(
    webhook: &str,
    version: ReviewVersion,
    mutating: bool,
    uid: &str,
    review: &Value,
) -> Result<Accepted, String> {
    let response = review.get("response").filter(|response| !response.is_null());
    let response = response.ok_or("webhook response was absent")?;
    let text = |path: &[&str]| response.str_at(path).unwrap_or_default();
    let has_type = response.get("patchType").is_some_and(|kind| !kind.is_null());
    let mut patch = text(&["patch"]);
    if version == ReviewVersion::V1 {
        if text(&["uid"]) != uid {
            return Err(format!("expected response.uid={uid:?}, got {:?}", text(&["uid"])));
        }
        let own = |field: &str| review.str_at(&[field]).unwrap_or_default();
        if own("apiVersion") != version.api_version() || own("kind") != "AdmissionReview" {
            let (group, version) = own("apiVersion").split_once('/').unwrap_or(("", own("apiVersion")));
            return Err(format!(
                "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got {group}/{version}, Kind={}",
                own("kind")
            ));
        }
        match (mutating, patch.is_empty(), has_type) {
            (true, false, false) => {
                return Err("webhook returned response.patch but not response.patchType".into());
            }
            (true, true, true) => {
                return Err("webhook returned response.patchType but not response.patch".into());
            }
            (false, false, _) => return Err("validating webhook may not return response.patch".into()),
            (false, _, true) => return Err("validating webhook may not return response.patchType".into()),
            _ => {}
        }
        if has_type && text(&["patchType"]) != "JSONPatch" {
            return Err(format!("webhook returned invalid response.patchType of {:?}", text(&["patchType"])));
        }
    }
    if !mutating {
        patch = "";
    }
    let patch = STANDARD.decode(patch).map_err(|error| format!("response.patch: {error}"))?;
    let allowed = response.get("allowed").and_then(Value::as_bool).unwrap_or_default();
    let cut = |text: &str, len: usize| text[..text.floor_char_boundary(len)].to_owned();
    let warnings = response.array_at(&["warnings"]).iter().filter_map(Value::as_str);
    let annotations = response.get("auditAnnotations").and_then(Value::as_object);
    let annotations = annotations.into_iter().flat_map(|all| all.iter()).filter_map(|(key, value)| {
        let name = key.len() <= ANNOTATION_LEN_MAX;
        Some((key.clone(), cut(value.as_str()?, ANNOTATION_LEN_MAX))).filter(|_| name)
    });
    Ok(Accepted {
        warnings: warnings.take(WARNINGS_MAX).map(|text| cut(text, WARNING_LEN_MAX)).collect(),
        annotations: annotations.take(ANNOTATIONS_MAX).collect(),
        refusal: (!allowed).then(|| refusal(webhook, response.get("status"))),
        patch,
    })
}

/// A refusal as clients see it.
fn refusal(webhook: &str, result: Option<&Value>) -> Status {
    let empty = Value::Null;
    let result = result.unwrap_or(&empty);
    let text = |path: &[&str]| result.str_at(path).unwrap_or_default();
    let code = result.i64_at(&["code"]).and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let denied = format!("admission webhook {webhook:?} denied the request");
    let message = match (text(&["message"]), text(&["reason"])) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    let mut status = Status::untyped(code, message);
    status.reason = REASONS.iter().copied().find(|reason| reason.as_str() == text(&["reason"]));
    if let Some(details) = result.get("details").filter(|details| !details.is_null()) {
        for cause in details.array_at(&["causes"]).iter().take(WARNINGS_MAX) {
            let own = |field: &str| cause.str_at(&[field]).unwrap_or_default();
            status = status.with_cause(own("reason"), own("message"), own("field"));
        }
        let own = |field: &str| SmolStr::new(details.str_at(&[field]).unwrap_or_default());
        let seconds = details.i64_at(&["retryAfterSeconds"]).and_then(|seconds| u32::try_from(seconds).ok());
        let kept = status.details.get_or_insert_default();
        (kept.name, kept.group, kept.kind, kept.uid) = (own("name"), own("group"), own("kind"), own("uid"));
        kept.retry_after_seconds = seconds.unwrap_or(0);
    }
    status
}

const REASONS: [Reason; 16] = [
    Reason::NotFound,
    Reason::AlreadyExists,
    Reason::Conflict,
    Reason::Invalid,
    Reason::BadRequest,
    Reason::Unauthorized,
    Reason::Forbidden,
    Reason::MethodNotAllowed,
    Reason::NotAcceptable,
    Reason::UnsupportedMediaType,
    Reason::RequestEntityTooLarge,
    Reason::Expired,
    Reason::TooManyRequests,
    Reason::InternalError,
    Reason::ServiceUnavailable,
    Reason::Timeout,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mutating: bool, body: &str, expected: Result<Option<(u16, &str)>, &str>) {
        let found = read("w.x.y", ReviewVersion::V1, mutating, "u", body.as_bytes());
        let found = found.map(|accepted| accepted.refusal.map(|status| (status.code, status.message)));
        let found = found.map_err(|text| text.replace("received invalid webhook response: ", ""));
        let expected = expected.map(|refusal| refusal.map(|(code, text)| (code, text.to_owned())));
        assert_eq!(found, expected.map_err(str::to_owned), "{body}");
    }

    fn v1(response: &str) -> String {
        format!(r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{response}}}"#)
    }

    #[test]
    fn answers_are_checked_like_upstream() {
        check(true, &v1(r#"{"uid":"u","allowed":true}"#), Ok(None));
        check(true, "{}", Err("webhook response was absent"));
        check(true, &v1(r#"{"uid":"v","allowed":true}"#), Err(r#"expected response.uid="u", got "v""#));
        check(
            true,
            r#"{"response":{"uid":"u"}}"#,
            Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind="),
        );
        check(
            true,
            &v1(r#"{"uid":"u","allowed":true,"patch":"W10="}"#),
            Err("webhook returned response.patch but not response.patchType"),
        );
        check(
            false,
            &v1(r#"{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}"#),
            Err("validating webhook may not return response.patch"),
        );
        check(
            true,
            &v1(r#"{"uid":"u","allowed":false}"#),
            Ok(Some((400, "admission webhook \"w.x.y\" denied the request without explanation"))),
        );
        check(
            true,
            &v1(r#"{"uid":"u","allowed":false,"status":{"code":403,"reason":"Forbidden"}}"#),
            Ok(Some((403, "admission webhook \"w.x.y\" denied the request: Forbidden"))),
        );
        check(
            true,
            &v1(r#"{"uid":"u","allowed":false,"status":{"code":200,"message":"no","reason":"x"}}"#),
            Ok(Some((400, "admission webhook \"w.x.y\" denied the request: no"))),
        );
    }

    #[test]
    fn the_old_form_is_believed_more_easily() {
        let body = br#"{"response":{"allowed":true,"patch":"W10="}}"#;
        let accepted = read("w", ReviewVersion::V1beta1, true, "u", body).unwrap();
        assert_eq!(accepted.patch, b"[]");
        assert!(read("w", ReviewVersion::V1beta1, false, "u", body).unwrap().patch.is_empty());
    }

    #[test]
    fn reports_are_bounded() {
        let many: Vec<String> = (0..1000).map(|index| format!("\"{index}{}\"", "x".repeat(5000))).collect();
        let body = v1(&format!(r#"{{"uid":"u","allowed":true,"warnings":[{}]}}"#, many.join(",")));
        let accepted = read("w", ReviewVersion::V1, true, "u", body.as_bytes()).unwrap();
        assert_eq!(accepted.warnings.len(), WARNINGS_MAX);
        assert!(accepted.warnings.iter().all(|warning| warning.len() <= WARNING_LEN_MAX));
    }
}
