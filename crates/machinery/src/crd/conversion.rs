//! How a definition converts between its versions.
//!
//! Certificates in `caBundle` are not looked at here: a bad one fails when the webhook is called.

use std::collections::HashSet;

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
