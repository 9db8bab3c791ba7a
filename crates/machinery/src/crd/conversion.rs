//! How a definition converts between its versions.
//!
//! As upstream has it, a definition may come with authorities nobody can read: then it is not served until they are mended.
//! One that is served does not get such.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{FieldError, FieldPath, Value, names};

use super::enum_problems;
use crate::schema::validate::{ERRORS_MAX, shown};

const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

pub(super) fn conversion_problems(spec: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    let Some(conversion) = spec.get("conversion").filter(|conversion| !conversion.is_null()) else { return };
    let strategy = conversion.str_at(&["strategy"]);
    let preserves = spec.get("preserveUnknownFields") == Some(&Value::Bool(true));
    if preserves && strategy != Some("None") {
        let detail = "must be None if spec.preserveUnknownFields is true";
        let value = strategy.unwrap_or_default();
        problems.push(FieldError::invalid(path.member("strategy"), value, detail));
    }
    enum_problems(strategy, &["None", "Webhook"], path.member("strategy"), problems);
    let client = conversion.at(&["webhook", "clientConfig"]).filter(|client| !client.is_null());
    let reviews = conversion.array_at(&["webhook", "conversionReviewVersions"]);
    let (at_client, at_reviews) =
        (path.member("webhookClientConfig"), path.member("conversionReviewVersions"));
    if strategy == Some("Webhook") {
        match client {
            None => {
                let detail = "required when strategy is set to Webhook";
                problems.push(FieldError::required(at_client, detail));
            }
            Some(client) => client_problems(client, &at_client, problems),
        }
        review_problems(reviews, &at_reviews, problems);
    } else {
        let detail = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            problems.push(FieldError::forbidden(at_client, detail));
        }
        if !reviews.is_empty() {
            problems.push(FieldError::forbidden(at_reviews, detail));
        }
    }
}

/// Why nobody can read the authorities of a definition's webhook; `None` when it has none.
pub fn bundle_problem(crd: &Value) -> Option<String> {
    let bundle = crd.str_at(&["spec", "conversion", "webhook", "clientConfig", "caBundle"])?;
    let bundle = STANDARD.decode(bundle).unwrap_or_default();
    if bundle.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(&bundle);
    let blocks: Vec<Block<'_>> = blocks(&text).collect();
    if blocks.iter().any(|block| block.is_certificate()) {
        return None;
    }
    let why = match blocks.iter().find(|block| block.kind == "CERTIFICATE") {
        Some(_) => "failed to parse certificate: x509: malformed certificate",
        None if blocks.is_empty() => "unable to parse bytes as PEM block",
        None => "no valid certificate authority data seen",
    };
    Some(format!("unable to load root certificates: {why}"))
}

/// A change that gives a definition which is served authorities that nobody can read, where it had others.
pub(super) fn bundle_problems(crd: &Value, old: &Value, problems: &mut Vec<FieldError>) {
    let is_established =
        |one: &Value| one.str_at(&["type"]) == Some("Established") && one.str_at(&["status"]) == Some("True");
    if !old.array_at(&["status", "conditions"]).iter().any(is_established)
        || crd.str_at(&["spec", "conversion", "strategy"]) != Some("Webhook")
        || bundle_problem(old).is_some()
    {
        return;
    }
    let Some(problem) = bundle_problem(crd) else { return };
    let (root, conversion) = (FieldPath::root("spec"), "conversion");
    let conversion = root.member(conversion);
    let client = conversion.member("webhookClientConfig");
    let bundle = crd.at(&["spec", "conversion", "webhook", "clientConfig", "caBundle"]);
    let bundle = bundle.cloned().unwrap_or_default();
    problems.push(FieldError::invalid(client.member("caBundle"), shown(&bundle), problem));
}

/// A part of a PEM text.
struct Block<'t> {
    kind: &'t str,
    body: &'t str,
}

impl Block<'_> {
    /// Whether it could be a certificate: a whole DER sequence. What is in it is looked at when it is used.
    fn is_certificate(&self) -> bool {
        let body: String = self.body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).unwrap_or_default();
        let len = match der.get(1..) {
            Some([len @ ..=0x7f, ..]) => usize::from(*len) + 2,
            Some([0x81, len, ..]) => usize::from(*len) + 3,
            Some([0x82, high, low, ..]) => usize::from(u16::from_be_bytes([*high, *low])) + 4,
            _ => return false,
        };
        self.kind == "CERTIFICATE" && der.first() == Some(&0x30) && der.len() == len
    }
}

fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    text.split("-----BEGIN ").skip(1).filter_map(|rest| {
        let (kind, rest) = rest.split_once("-----")?;
        let (body, _) = rest.split_once("-----END ")?;
        Some(Block { kind, body })
    })
}

fn client_problems(client: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    let url = client.str_at(&["url"]);
    let service = client.get("service").filter(|service| !service.is_null());
    match (url, service) {
        (Some(url), None) => url_problems(url, &path.member("url"), problems),
        (None, Some(service)) => service_problems(service, &path.member("service"), problems),
        _ => problems.push(FieldError::required(path, "exactly one of url or service is required")),
    }
}

fn url_problems(url: &str, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut report = |value: &str, detail: &str| {
        problems.push(FieldError::invalid(path, shown(&Value::from(value)), detail));
    };
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    if scheme != "https" {
        report(scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        report("", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = user {
        report(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        report(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        report(query, "query parameters are not permitted in the URL");
    }
}

fn service_problems(service: &Value, path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    for key in ["name", "namespace"] {
        if service.str_at(&[key]).is_none_or(str::is_empty) {
            problems.push(FieldError::required(path.member(key), ""));
        }
    }
    let port = service.i64_at(&["port"]).unwrap_or_default();
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        problems.push(FieldError::invalid(path.member("port"), port, detail));
    }
    let url_path = service.str_at(&["path"]).unwrap_or_default();
    if matches!(url_path, "" | "/") {
        return;
    }
    let mut report = |detail: String| {
        problems.push(FieldError::invalid(path.member("path"), shown(&Value::from(url_path)), detail));
    };
    if url_path == "//" {
        return report("segment[0] may not be empty".into());
    }
    if !url_path.starts_with('/') {
        report("must start with a '/'".into());
    }
    // Upstream skips the first letter whatever it is.
    let mut letters = url_path.chars();
    letters.next();
    let inner = letters.as_str();
    let steps = inner.strip_suffix('/').unwrap_or(inner).split('/');
    for (index, step) in steps.enumerate().take(ERRORS_MAX) {
        if step.is_empty() {
            report(format!("segment[{index}] may not be empty"));
        } else if let Some(problem) = names::dns_subdomain_problem(step) {
            report(format!("segment[{index}]: {problem}"));
        }
    }
}

fn review_problems(reviews: &[Value], path: &FieldPath<'_>, problems: &mut Vec<FieldError>) {
    if reviews.is_empty() {
        problems.push(FieldError::required(path, ""));
        return;
    }
    let mut seen = HashSet::new();
    for (index, review) in reviews.iter().enumerate().take(ERRORS_MAX) {
        let review = review.as_str().unwrap_or_default();
        if !seen.insert(review) {
            problems.push(FieldError::invalid(path.index(index), review, "duplicate version"));
        } else if let Some(problem) = names::dns_1035_label_problem(review) {
            problems.push(FieldError::invalid(path.index(index), review, problem));
        }
    }
    if !REVIEW_VERSIONS.iter().any(|version| seen.contains(version)) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        problems.push(FieldError::invalid(path, shown(&Value::Array(reviews.to_vec())), detail));
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn crd(bundle: &str, established: &str) -> Value {
        let client = json!({"url": "https://a.b/", "caBundle": (STANDARD.encode(bundle))});
        json!({
            "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client}}},
            "status": {"conditions": [{"type": "Established", "status": established}]},
        })
    }

    const GOOD: &str = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";
    const OTHER: &str = "-----BEGIN KEY-----\nMAMCAQE=\n-----END KEY-----\n";

    #[test]
    fn authorities_that_nobody_can_read() {
        for (bundle, expected) in [
            ("", None),
            (GOOD, None),
            (&format!("{OTHER}{GOOD}"), None),
            ("bad", Some("unable to parse bytes as PEM block")),
            (OTHER, Some("no valid certificate authority data seen")),
            (
                "-----BEGIN CERTIFICATE-----\nMAMCAQ==\n-----END CERTIFICATE-----\n",
                Some("failed to parse certificate: x509: malformed certificate"),
            ),
        ] {
            let expected = expected.map(|why| format!("unable to load root certificates: {why}"));
            assert_eq!(bundle_problem(&crd(bundle, "True")), expected, "{bundle}");
        }
    }

    #[test]
    fn what_is_served_gets_no_bad_authorities() {
        for (old, established, count) in
            [(GOOD, "True", 1), ("", "True", 1), (GOOD, "False", 0), ("bad", "True", 0)]
        {
            let mut problems = Vec::new();
            bundle_problems(&crd("bad", "True"), &crd(old, established), &mut problems);
            assert_eq!(problems.len(), count, "{old} {established}");
        }
    }
}
