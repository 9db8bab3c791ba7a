//! `AuthenticationConfiguration` of `apiserver.config.k8s.io`: which issuers are believed, and what is made of their tokens.
//!
//! Read strictly (`crate::document`). What is wrong is told in upstream's words. The same rules hold for the issuers a plane has of its own.

use std::collections::HashSet;
use std::sync::Arc;

use polder_model::{FieldError, FieldPath, SmolStr, Value, field, names};
use sha2::{Digest as _, Sha256};

use super::expressions::{Expression, ExpressionProblem, Wanted};
use super::oidc::{Issuer, Mapping, Rule};
use crate::document::{self, ConfigurationError, Form};

/// Issuers of a server, as upstream bounds them.
const ISSUERS_LEN_MAX: usize = 64;
/// Issuers of one plane.
pub const PLANE_ISSUERS_LEN_MAX: usize = 8;
const EMAIL_VERIFIED: &str = "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression";

/// What the file says.
#[derive(Debug, Default)]
pub struct Configuration {
    pub issuers: Vec<Arc<Issuer>>,
    pub anonymous: Anonymous,
}

/// What somebody who shows no credential may ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// Nothing was said: health, version, and what a plane tells everybody about its tokens.
    #[default]
    Usual,
    /// Nothing at all.
    Nobody,
    /// These paths, and what they may see there is for roles to say; with none, any path.
    Paths(Vec<SmolStr>),
}

impl Configuration {
    /// Reads a document. `own_url` is where this server is: it is no issuer for itself.
    pub fn read(document: &Value, own_url: &str) -> Result<Configuration, ConfigurationError> {
        document::check(document, "AuthenticationConfiguration", &FILE)?;
        let mut errors = Vec::new();
        let issuers = read_issuers(
            document.array_at(&["jwt"]),
            &FieldPath::ROOT,
            ISSUERS_LEN_MAX,
            Some(own_url),
            &mut errors,
        );
        let anonymous = anonymous(document.get("anonymous"), &mut errors);
        if !errors.is_empty() {
            return Err(ConfigurationError::Invalid(field::join(&errors)));
        }
        Ok(Configuration { issuers, anonymous })
    }
}

/// The issuers that a plane's `spec.authentication` names, and what is wrong with them.
pub fn plane_issuers(authentication: &Value, path: &FieldPath<'_>) -> (Vec<Arc<Issuer>>, Vec<FieldError>) {
    let mut errors = Vec::new();
    let issuers =
        read_issuers(authentication.array_at(&["jwt"]), path, PLANE_ISSUERS_LEN_MAX, None, &mut errors);
    (issuers, errors)
}

fn anonymous(value: Option<&Value>, errors: &mut Vec<FieldError>) -> Anonymous {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Anonymous::Usual };
    let conditions = value.array_at(&["conditions"]);
    let enabled = value.get("enabled").and_then(Value::as_bool).unwrap_or_default();
    if !enabled {
        if !conditions.is_empty() {
            let why = "enabled should be set to true when conditions are defined";
            errors.push(FieldError::invalid("anonymous.conditions", Value::Array(conditions.to_vec()), why));
        }
        return Anonymous::Nobody;
    }
    let paths = conditions.iter().filter_map(|one| one.str_at(&["path"])).map(SmolStr::new);
    Anonymous::Paths(paths.collect())
}

fn read_issuers(
    all: &[Value],
    path: &FieldPath<'_>,
    len_max: usize,
    own_url: Option<&str>,
    errors: &mut Vec<FieldError>,
) -> Vec<Arc<Issuer>> {
    let path = path.member("jwt");
    if all.len() > len_max {
        errors.push(FieldError::too_many(path, all.len(), len_max));
        return Vec::new();
    }
    let (mut urls, mut discovery_urls) = (HashSet::new(), HashSet::new());
    let mut issuers = Vec::new();
    for (index, value) in all.iter().enumerate() {
        let path = path.index(index);
        issuers.extend(issuer(value, &path, own_url, errors).map(Arc::new));
        let at = |name: &str| value.str_at(&["issuer", name]).unwrap_or_default();
        let own_path = path.member("issuer");
        if !urls.insert(at("url")) {
            errors.push(FieldError::duplicate(own_path.member("url"), at("url")));
        }
        if !at("discoveryURL").is_empty() && !discovery_urls.insert(at("discoveryURL")) {
            errors.push(FieldError::duplicate(own_path.member("discoveryURL"), at("discoveryURL")));
        }
    }
    issuers
}

/// One entry of `jwt`; `None` when something is wrong with it.
fn issuer(
    value: &Value,
    path: &FieldPath<'_>,
    own_url: Option<&str>,
    errors: &mut Vec<FieldError>,
) -> Option<Issuer> {
    let before = errors.len();
    let empty = Value::Null;
    let part = |name: &str| value.get(name).unwrap_or(&empty);
    let own = part("issuer");
    let text = |name: &str| own.str_at(&[name]).unwrap_or_default();
    check_issuer(own, &path.member("issuer"), own_url, errors);
    let claim_rules =
        claim_rules(value.array_at(&["claimValidationRules"]), &path.member("claimValidationRules"), errors);
    let mappings = mappings(part("claimMappings"), &claim_rules, &path.member("claimMappings"), errors);
    let user_rules =
        user_rules(value.array_at(&["userValidationRules"]), &path.member("userValidationRules"), errors);
    let (username, groups, uid, extra) = mappings?;
    if errors.len() > before {
        return None;
    }
    Some(Issuer {
        url: SmolStr::new(text("url")),
        discovery_url: Some(SmolStr::new(text("discoveryURL"))).filter(|url| !url.is_empty()),
        authorities: text("certificateAuthority").into(),
        audiences: own.array_at(&["audiences"]).iter().filter_map(Value::as_str).map(SmolStr::new).collect(),
        claim_rules,
        username,
        groups,
        uid,
        extra,
        user_rules,
        digest: Sha256::digest(value.to_vec()).into(),
    })
}

fn check_issuer(own: &Value, path: &FieldPath<'_>, own_url: Option<&str>, errors: &mut Vec<FieldError>) {
    let text = |name: &str| own.str_at(&[name]).unwrap_or_default();
    let (url, discovery) = (text("url"), text("discoveryURL"));
    let url_path = path.member("url");
    if url.is_empty() {
        errors.push(FieldError::required(url_path, ""));
    } else {
        if let Some(own_url) = own_url.filter(|own| is_of(url, own)) {
            let why = format!("URL must not overlap with disallowed issuers: [{own_url}]");
            errors.push(FieldError::invalid(url_path, url, why));
        }
        check_url(url, &url_path, errors);
    }
    if !discovery.is_empty() {
        let path = path.member("discoveryURL");
        if !url.is_empty() && url.trim_end_matches('/') == discovery.trim_end_matches('/') {
            errors.push(FieldError::invalid(path, discovery, "discoveryURL must be different from URL"));
        }
        check_url(discovery, &path, errors);
    }
    check_audiences(own, path, errors);
    let authorities = text("certificateAuthority");
    if let Some(problem) = pem_problem(authorities) {
        errors.push(FieldError::invalid(path.member("certificateAuthority"), "<omitted>", problem));
    }
    let selector = text("egressSelectorType");
    if !selector.is_empty() {
        // This server has one way out: what a selector would choose from is not there.
        let why = "egress selector is not supported when StructuredAuthenticationConfigurationEgressSelector feature gate is disabled";
        errors.push(FieldError::invalid(path.member("egressSelectorType"), selector, why));
    }
}

/// Whether a URL is this server's, or one of its planes'.
fn is_of(url: &str, own_url: &str) -> bool {
    let rest = url.trim_end_matches('/').strip_prefix(own_url);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("/clusters/"))
}

fn check_url(url: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let mut wrong = |why: &str| errors.push(FieldError::invalid(path, url, why));
    if url.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return wrong(&format!("parse {url:?}: net/url: invalid control character in URL"));
    }
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    if !scheme.eq_ignore_ascii_case("https") {
        wrong("URL scheme must be https");
    }
    if rest.split('/').next().is_some_and(|authority| authority.contains('@')) {
        wrong("URL must not contain a username or password");
    }
    if !query.is_empty() {
        wrong("URL must not contain a query");
    }
    if !fragment.is_empty() {
        wrong("URL must not contain a fragment");
    }
}

fn check_audiences(own: &Value, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    let audiences = own.array_at(&["audiences"]);
    let own_path = path.member("audiences");
    if audiences.is_empty() {
        errors.push(FieldError::required(own_path, format!("at least one {own_path} is required")));
        return;
    }
    let mut seen = HashSet::new();
    for (index, audience) in audiences.iter().filter_map(Value::as_str).enumerate() {
        if audience.is_empty() {
            errors.push(FieldError::required(own_path.index(index), ""));
        }
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(own_path.index(index), audience));
        }
    }
    let policy = own.str_at(&["audienceMatchPolicy"]).unwrap_or_default();
    let why = match audiences.len() {
        1 if policy.is_empty() || policy == "MatchAny" => return,
        1 => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ if policy == "MatchAny" => return,
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(FieldError::invalid(path.member("audienceMatchPolicy"), policy, why));
}

fn pem_problem(authorities: &str) -> Option<&'static str> {
    if authorities.is_empty() {
        return None;
    }
    let blocks = x509_parser::pem::Pem::iter_from_buffer(authorities.as_bytes()).filter_map(Result::ok);
    let blocks: Vec<_> = blocks.filter(|block| block.label == "CERTIFICATE").collect();
    let are_good = blocks.iter().all(|block| block.parse_x509().is_ok());
    (blocks.is_empty() || !are_good).then_some("data does not contain any valid RSA or ECDSA certificates")
}

fn claim_rules(all: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Vec<Rule> {
    let (mut claims, mut expressions) = (HashSet::new(), HashSet::new());
    let mut rules = Vec::new();
    for (index, rule) in all.iter().enumerate() {
        let path = path.index(index);
        let text = |name: &str| rule.str_at(&[name]).unwrap_or_default();
        let (claim, expression) = (text("claim"), text("expression"));
        match (claim.is_empty(), expression.is_empty()) {
            (false, false) => {
                errors.push(FieldError::invalid(path, claim, "claim and expression can't both be set"));
            }
            (true, true) => errors.push(FieldError::required(path, "claim or expression is required")),
            (false, true) => {
                if !text("message").is_empty() {
                    let why = "may not be specified when claim is set";
                    errors.push(FieldError::invalid(path.member("message"), text("message"), why));
                }
                if !claims.insert(claim) {
                    errors.push(FieldError::duplicate(path.member("claim"), claim));
                }
                rules.push(Rule::Claim { name: claim.into(), required: text("requiredValue").into() });
            }
            (true, false) => {
                if !text("requiredValue").is_empty() {
                    let why = "may not be specified when expression is set";
                    errors.push(FieldError::invalid(
                        path.member("requiredValue"),
                        text("requiredValue"),
                        why,
                    ));
                }
                let own_path = path.member("expression");
                if !expressions.insert(expression) {
                    errors.push(FieldError::duplicate(own_path, expression));
                    continue;
                }
                let compiled = Expression::of_claims(expression, Wanted::Bool);
                let Some(expression) = compiled_or(compiled, expression, &own_path, errors) else { continue };
                rules.push(Rule::Expression { expression, message: text("message").into() });
            }
        }
    }
    rules
}

fn user_rules(
    all: &[Value],
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> Vec<(Expression, SmolStr)> {
    let mut seen = HashSet::new();
    let mut rules = Vec::new();
    for (index, rule) in all.iter().enumerate() {
        let path = path.index(index);
        let path = path.member("expression");
        let source = rule.str_at(&["expression"]).unwrap_or_default();
        if source.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !seen.insert(source) {
            errors.push(FieldError::duplicate(path, source));
        } else if let Some(rule_of) = compiled_or(Expression::of_user(source), source, &path, errors) {
            rules.push((rule_of, SmolStr::new(rule.str_at(&["message"]).unwrap_or_default())));
        }
    }
    rules
}

type Mappings = (Mapping, Mapping, Mapping, Vec<(SmolStr, Expression)>);

fn mappings(
    value: &Value,
    claim_rules: &[Rule],
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<Mappings> {
    let username = prefixed(value.get("username"), &path.member("username"), true, errors);
    let groups = prefixed(value.get("groups"), &path.member("groups"), false, errors);
    let uid = uid(value.get("uid"), &path.member("uid"), errors);
    let extra = extra(value.array_at(&["extra"]), &path.member("extra"), errors);
    if let Some(Mapping::Expression(username)) = &username
        && username.reads_claim("email")
    {
        let own = extra.iter().map(|(_, expression)| expression).chain([username]);
        let rules = claim_rules.iter().filter_map(|rule| match rule {
            Rule::Expression { expression, .. } => Some(expression),
            Rule::Claim { .. } => None,
        });
        if !own.chain(rules).any(|expression| expression.reads_claim("email_verified")) {
            let path = path.member("username");
            errors.push(FieldError::invalid(path.member("expression"), &*username.source, EMAIL_VERIFIED));
        }
    }
    Some((username?, groups?, uid?, extra))
}

fn prefixed(
    value: Option<&Value>,
    path: &FieldPath<'_>,
    is_required: bool,
    errors: &mut Vec<FieldError>,
) -> Option<Mapping> {
    let text = |name: &str| value.and_then(|value| value.str_at(&[name]));
    let (claim, source) = (text("claim").unwrap_or_default(), text("expression").unwrap_or_default());
    match (claim.is_empty(), source.is_empty()) {
        (false, false) => {
            errors.push(FieldError::invalid(path, "", "claim and expression can't both be set"));
            None
        }
        (true, true) if is_required => {
            errors.push(FieldError::required(path, "claim or expression is required"));
            None
        }
        (true, true) => Some(Mapping::None),
        (true, false) => {
            if let Some(prefix) = text("prefix") {
                let why = "may not be specified when expression is set";
                errors.push(FieldError::invalid(path.member("prefix"), prefix, why));
            }
            let compiled = Expression::of_claims(source, Wanted::Anything);
            compiled_or(compiled, source, &path.member("expression"), errors).map(Mapping::Expression)
        }
        (false, true) => {
            if text("prefix").is_none() {
                let why = "prefix is required when claim is set. It can be set to an empty string to disable prefixing";
                errors.push(FieldError::required(path.member("prefix"), why));
            }
            Some(Mapping::Claim { name: claim.into(), prefix: text("prefix").unwrap_or_default().into() })
        }
    }
}

fn uid(value: Option<&Value>, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Option<Mapping> {
    let text = |name: &str| value.and_then(|value| value.str_at(&[name])).unwrap_or_default();
    match (text("claim"), text("expression")) {
        ("", "") => Some(Mapping::None),
        (claim, "") => Some(Mapping::Claim { name: claim.into(), prefix: SmolStr::default() }),
        ("", source) => {
            let compiled = Expression::of_claims(source, Wanted::Anything);
            compiled_or(compiled, source, &path.member("expression"), errors).map(Mapping::Expression)
        }
        _ => {
            errors.push(FieldError::invalid(path, "", "claim and expression can't both be set"));
            None
        }
    }
}

fn extra(all: &[Value], path: &FieldPath<'_>, errors: &mut Vec<FieldError>) -> Vec<(SmolStr, Expression)> {
    let mut seen = HashSet::new();
    let mut extra = Vec::new();
    for (index, mapping) in all.iter().enumerate() {
        let path = path.index(index);
        let key = mapping.str_at(&["key"]).unwrap_or_default();
        check_key(key, &path.member("key"), errors);
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(path.member("key"), key));
            continue;
        }
        let path = path.member("valueExpression");
        let source = mapping.str_at(&["valueExpression"]).unwrap_or_default();
        if source.is_empty() {
            errors.push(FieldError::required(path, ""));
            continue;
        }
        let compiled = Expression::of_claims(source, Wanted::Anything);
        extra.extend(compiled_or(compiled, source, &path, errors).map(|one| (SmolStr::new(key), one)));
    }
    extra
}

/// Keys are `example.org/foo`, in small letters, and not Kubernetes' own.
fn check_key(key: &str, path: &FieldPath<'_>, errors: &mut Vec<FieldError>) {
    if key.is_empty() {
        errors.push(FieldError::required(path, ""));
        return;
    }
    match key.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty()) {
        None => {
            let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            errors.push(FieldError::invalid(path, key, why));
        }
        Some((host, rest)) => {
            errors.extend(
                names::dns_subdomain_problems(host).map(|problem| FieldError::invalid(path, host, problem)),
            );
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&byte);
            if !rest.bytes().all(allowed) {
                let why = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";
                errors.push(FieldError::invalid(path, rest, why));
            }
            let is_below = |domain: &str| {
                host.strip_suffix(domain).is_some_and(|before| before.is_empty() || before.ends_with('.'))
            };
            if is_below("kubernetes.io") || is_below("k8s.io") {
                let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
                errors.push(FieldError::invalid(path, key, why));
            }
        }
    }
    if key.chars().any(char::is_uppercase) {
        errors.push(FieldError::invalid(path, key, "must be lowercase"));
    }
}

fn compiled_or(
    compiled: Result<Expression, ExpressionProblem>,
    source: &str,
    path: &FieldPath<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<Expression> {
    match compiled {
        Ok(expression) => Some(expression),
        Err(ExpressionProblem::Invalid(why)) => {
            errors.push(FieldError::invalid(path, source, why));
            None
        }
        Err(ExpressionProblem::Internal(why)) => {
            errors.push(FieldError::internal(path, why));
            None
        }
    }
}

const TEXTS: Form = Form::List(&Form::Text);
const PREFIXED: Form =
    Form::Members(&[("claim", Form::Text), ("prefix", Form::Text), ("expression", Form::Text)]);
const FILE: Form = Form::Members(&[
    ("apiVersion", Form::Text),
    ("kind", Form::Text),
    ("jwt", Form::List(&ENTRY)),
    (
        "anonymous",
        Form::Members(&[
            ("enabled", Form::Flag),
            ("conditions", Form::List(&Form::Members(&[("path", Form::Text)]))),
        ]),
    ),
]);
static ENTRY: Form = Form::Members(&[
    (
        "issuer",
        Form::Members(&[
            ("url", Form::Text),
            ("discoveryURL", Form::Text),
            ("certificateAuthority", Form::Text),
            ("audiences", TEXTS),
            ("audienceMatchPolicy", Form::Text),
            ("egressSelectorType", Form::Text),
        ]),
    ),
    (
        "claimValidationRules",
        Form::List(&Form::Members(&[
            ("claim", Form::Text),
            ("requiredValue", Form::Text),
            ("expression", Form::Text),
            ("message", Form::Text),
        ])),
    ),
    (
        "claimMappings",
        Form::Members(&[
            ("username", PREFIXED),
            ("groups", PREFIXED),
            ("uid", Form::Members(&[("claim", Form::Text), ("expression", Form::Text)])),
            ("extra", Form::List(&Form::Members(&[("key", Form::Text), ("valueExpression", Form::Text)]))),
        ]),
    ),
    (
        "userValidationRules",
        Form::List(&Form::Members(&[("expression", Form::Text), ("message", Form::Text)])),
    ),
]);

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn head(mut document: Value) -> Value {
        document.set_at(&["apiVersion"], "apiserver.config.k8s.io/v1");
        document.set_at(&["kind"], "AuthenticationConfiguration");
        document
    }

    fn entry(changes: &[(&[&str], Value)]) -> Value {
        let mut entry = json!({
            "issuer": {"url": "https://issuer.example", "audiences": ["polder"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        });
        for (path, value) in changes {
            entry.set_at(path, value.clone());
        }
        entry
    }

    #[track_caller]
    fn check(changes: &[(&[&str], Value)], expected: &[&str]) {
        let document = head(json!({"jwt": [(entry(changes))]}));
        match Configuration::read(&document, "https://polder.test") {
            Ok(configuration) => {
                assert_eq!((configuration.issuers.len(), expected), (1, &[][..]));
            }
            Err(error) => {
                let text = error.to_string();
                for part in expected {
                    assert!(text.contains(part), "{text}\nlacks {part}");
                }
                assert!(!expected.is_empty(), "{text}");
            }
        }
    }

    #[test]
    fn issuers() {
        check(&[], &[]);
        check(&[(&["issuer", "url"], json!(""))], &["jwt[0].issuer.url: Required value"]);
        let rows = [
            ("http://x", "URL scheme must be https"),
            ("https://a:b@x", "URL must not contain a username or password"),
            ("https://x?a=b", "URL must not contain a query"),
            ("https://x#a", "URL must not contain a fragment"),
            ("https://polder.test", "URL must not overlap with disallowed issuers: [https://polder.test]"),
            ("https://polder.test/clusters/a", "URL must not overlap with disallowed issuers"),
        ];
        for (url, why) in rows {
            let expected = format!("jwt[0].issuer.url: Invalid value: {url:?}: {why}");
            check(&[(&["issuer", "url"], json!(url))], &[&expected]);
        }
        check(&[(&["issuer", "url"], json!("https://polder.test.example"))], &[]);
        check(
            &[(&["issuer", "discoveryURL"], json!("https://issuer.example/"))],
            &[
                "jwt[0].issuer.discoveryURL: Invalid value: \"https://issuer.example/\": discoveryURL must be different from URL",
            ],
        );
        check(
            &[(&["issuer", "audiences"], json!([]))],
            &["jwt[0].issuer.audiences: Required value: at least one jwt[0].issuer.audiences is required"],
        );
        check(
            &[(&["issuer", "audiences"], json!(["a", "a", ""]))],
            &[
                "jwt[0].issuer.audiences[1]: Duplicate value: \"a\"",
                "jwt[0].issuer.audiences[2]: Required value",
                "jwt[0].issuer.audienceMatchPolicy: Invalid value: \"\": audienceMatchPolicy must be MatchAny for multiple audiences",
            ],
        );
        check(
            &[(&["issuer", "certificateAuthority"], json!("x"))],
            &[
                "jwt[0].issuer.certificateAuthority: Invalid value: \"<omitted>\": data does not contain any valid RSA or ECDSA certificates",
            ],
        );
        check(
            &[(&["issuer", "egressSelectorType"], json!("cluster"))],
            &["egress selector is not supported"],
        );
        let twice = head(json!({"jwt": [(entry(&[])), (entry(&[]))]}));
        let error = Configuration::read(&twice, "").unwrap_err().to_string();
        assert_eq!(error, "jwt[1].issuer.url: Duplicate value: \"https://issuer.example\"");
        let many = head(json!({"jwt": (vec![entry(&[]); 65])}));
        let error = Configuration::read(&many, "").unwrap_err().to_string();
        assert_eq!(error, "jwt: Too many: 65: must have at most 64 items");
    }

    #[test]
    fn mappings_and_rules() {
        let username = |value| (&["claimMappings", "username"][..], value);
        check(
            &[username(json!({}))],
            &["jwt[0].claimMappings.username: Required value: claim or expression is required"],
        );
        check(
            &[username(json!({"claim": "sub"}))],
            &["jwt[0].claimMappings.username.prefix: Required value: prefix is required when claim is set"],
        );
        check(
            &[username(json!({"claim": "sub", "prefix": "", "expression": "claims.sub"}))],
            &["jwt[0].claimMappings.username: Invalid value: \"\": claim and expression can't both be set"],
        );
        check(
            &[username(json!({"expression": "claims.sub", "prefix": "x"}))],
            &[
                "jwt[0].claimMappings.username.prefix: Invalid value: \"x\": may not be specified when expression is set",
            ],
        );
        check(
            &[username(json!({"expression": "claims."}))],
            &[
                "jwt[0].claimMappings.username.expression: Invalid value: \"claims.\": compilation failed: ERROR: <input>:1:8",
            ],
        );
        check(&[username(json!({"expression": "claims.email"}))], &["claims.email_verified must be used in"]);
        let verified = json!([{"expression": "claims.email_verified == true"}]);
        check(&[username(json!({"expression": "claims.email"})), (&["claimValidationRules"], verified)], &[]);
        let extra = |key: &str, source: &str| {
            (&["claimMappings", "extra"][..], json!([{"key": key, "valueExpression": source}]))
        };
        check(&[extra("polder.dev/plane", "claims.tenant")], &[]);
        check(&[extra("plane", "'a'")], &["must be a domain-prefixed path (such as \"acme.io/foo\")"]);
        check(&[extra("A.io/x", "'a'")], &["must be lowercase"]);
        check(
            &[extra("a.kubernetes.io/x", "'a'")],
            &["k8s.io, kubernetes.io and their subdomains are reserved"],
        );
        check(&[extra("a.io/x", "")], &["jwt[0].claimMappings.extra[0].valueExpression: Required value"]);
        let rules = |value| (&["claimValidationRules"][..], value);
        check(
            &[rules(json!([{}]))],
            &["jwt[0].claimValidationRules[0]: Required value: claim or expression is required"],
        );
        check(&[rules(json!([{"expression": "claims.a"}]))], &["must evaluate to bool"]);
        check(
            &[rules(json!([{"claim": "a", "message": "m"}, {"claim": "a"}]))],
            &[
                "jwt[0].claimValidationRules[0].message: Invalid value: \"m\": may not be specified when claim is set",
                "jwt[0].claimValidationRules[1].claim: Duplicate value: \"a\"",
            ],
        );
        check(
            &[(&["userValidationRules"], json!([{"expression": "claims.a"}]))],
            &["undeclared reference to 'claims'"],
        );
    }

    #[test]
    fn files_are_read_strictly() {
        let read = |document: Value| Configuration::read(&document, "");
        let error = read(head(json!({"jwt": [{"issuer": {"uri": "x", "audiences": "a"}}], "oidc": 1})));
        assert_eq!(
            error.unwrap_err().to_string(),
            "strict decoding error: jwt[0].issuer.audiences must be a list, unknown field \"jwt[0].issuer.uri\", unknown field \"oidc\""
        );
        let error = read(json!({"apiVersion": "v1", "kind": "AuthenticationConfiguration"})).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no kind \"AuthenticationConfiguration\" is registered for version \"v1\""
        );
        let anonymous = |value| read(head(json!({"anonymous": value}))).map(|read| read.anonymous);
        assert_eq!(anonymous(Value::Null), Ok(Anonymous::Usual));
        assert_eq!(anonymous(json!({"enabled": false})), Ok(Anonymous::Nobody));
        let paths = json!({"enabled": true, "conditions": [{"path": "/livez"}]});
        assert_eq!(anonymous(paths), Ok(Anonymous::Paths(vec!["/livez".into()])));
        let error = anonymous(json!({"enabled": false, "conditions": [{"path": "/livez"}]})).unwrap_err();
        assert!(error.to_string().contains("enabled should be set to true when conditions are defined"));
    }
}
