//! What may be asked of Kubernetes' own signers, and for how long a certificate is good. Pure.

use polder_client::{CertificateRequest, CertificateTerms};
use polder_model::{SmolStr, Value};

use crate::meta;

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const LEGACY: &str = "kubernetes.io/legacy-unknown";

const DURATION_SECONDS_MAX: i64 = 365 * 24 * 3600;
const DURATION_SECONDS_MIN: i64 = 600;
/// Clocks differ.
const BACKDATE_SECONDS: i64 = 300;
/// Certificates that are good for less than this lose nothing of it by being dated back.
const SHORT_SECONDS: i64 = 8 * 3600;

/// Something that may be approved without asking anybody.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    /// Whoever may create this may have it.
    pub subresource: &'static str,
    pub message: &'static str,
}

pub(super) fn is_undecided(request: &Value) -> bool {
    let decided = ["Approved", "Denied"].iter().any(|kind| meta::find_condition(request, kind).is_some());
    !decided && !has_certificate(request)
}

pub(super) fn is_to_be_signed(request: &Value) -> bool {
    let is_true = |kind| meta::condition(request, kind) == Some("True");
    let approved = is_true("Approved") && meta::find_condition(request, "Denied").is_none();
    approved && !is_true("Failed") && !has_certificate(request)
}

fn has_certificate(request: &Value) -> bool {
    request.str_at(&["status", "certificate"]).is_some_and(|certificate| !certificate.is_empty())
}

/// The rules by which a request may be approved, to be tried in order.
pub(super) fn recognized(request: &Value, asked: &CertificateRequest) -> Vec<Rule> {
    if signer(request) != KUBELET_CLIENT || kubelet_client(asked, &usages(request)).is_err() {
        return Vec::new();
    }
    let own = Rule {
        subresource: "selfnodeclient",
        message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
    };
    let any = Rule {
        subresource: "nodeclient",
        message: "Auto approving kubelet client certificate after SubjectAccessReview.",
    };
    let is_own = request.str_at(&["spec", "username"]) == Some(&asked.common_name);
    is_own.then_some(own).into_iter().chain([any]).collect()
}

/// Whether the signer a request is for signs such a thing; nothing when the signer is none of ours.
pub(super) fn judged(request: &Value, asked: &CertificateRequest) -> Option<Result<(), String>> {
    let usages = usages(request);
    let judged = match signer(request) {
        CLIENT => client(&usages),
        KUBELET_CLIENT => kubelet_client(asked, &usages),
        KUBELET_SERVING => kubelet_serving(asked, &usages),
        LEGACY => Ok(()),
        _ => return None,
    };
    Some(judged)
}

pub(super) fn terms(request: &Value, now: i64) -> CertificateTerms {
    let wanted = request.at(&["spec", "expirationSeconds"]).and_then(Value::as_i64);
    let wanted = wanted
        .map_or(DURATION_SECONDS_MAX, |seconds| seconds.clamp(DURATION_SECONDS_MIN, DURATION_SECONDS_MAX));
    let counted = if wanted < SHORT_SECONDS { wanted } else { wanted - BACKDATE_SECONDS };
    CertificateTerms {
        usages: usages(request).into_iter().map(SmolStr::new).collect(),
        not_before: now.saturating_sub(BACKDATE_SECONDS),
        not_after: now.saturating_add(counted),
    }
}

fn signer(request: &Value) -> &str {
    request.str_at(&["spec", "signerName"]).unwrap_or_default()
}

fn usages(request: &Value) -> Vec<&str> {
    request.array_at(&["spec", "usages"]).iter().filter_map(Value::as_str).collect()
}

fn client(usages: &[&str]) -> Result<(), String> {
    let optional = ["digital signature", "key encipherment", "client auth"];
    if let Some(other) = usages.iter().find(|usage| !optional.contains(usage)) {
        return Err(format!("invalid usage for client certificate: {other}"));
    }
    match usages.contains(&"client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".into()),
    }
}

fn kubelet_client(asked: &CertificateRequest, usages: &[&str]) -> Result<(), String> {
    of_nodes(asked)?;
    let forbidden = [
        (asked.has_dns_names, "DNS"),
        (asked.has_emails, "Email"),
        (asked.has_addresses, "IP"),
        (asked.has_uris, "URI"),
    ];
    none_of(&forbidden)?;
    of_a_node(asked)?;
    exactly(usages, "client auth")
}

fn kubelet_serving(asked: &CertificateRequest, usages: &[&str]) -> Result<(), String> {
    of_nodes(asked)?;
    if !asked.has_dns_names && !asked.has_addresses {
        return Err("DNS or IP subjectAltName is required".into());
    }
    none_of(&[(asked.has_emails, "Email"), (asked.has_uris, "URI")])?;
    exactly(usages, "server auth")?;
    of_a_node(asked)
}

fn of_nodes(asked: &CertificateRequest) -> Result<(), String> {
    match asked.organizations.as_slice() {
        [one] if one == "system:nodes" => Ok(()),
        _ => Err("subject organization is not system:nodes".into()),
    }
}

fn of_a_node(asked: &CertificateRequest) -> Result<(), String> {
    match asked.common_name.starts_with("system:node:") {
        true => Ok(()),
        false => Err("subject common name does not begin with system:node:".into()),
    }
}

fn none_of(kinds: &[(bool, &str)]) -> Result<(), String> {
    match kinds.iter().find(|(there, _)| *there) {
        Some((_, kind)) => Err(format!("{kind} subjectAltNames are not allowed")),
        None => Ok(()),
    }
}

/// Exactly what a key needs for a purpose; keys other than RSA encipher nothing.
fn exactly(usages: &[&str], purpose: &str) -> Result<(), String> {
    let all = ["digital signature", "key encipherment", purpose];
    let others = usages.iter().any(|usage| !all.contains(usage));
    if others || !usages.contains(&"digital signature") || !usages.contains(&purpose) {
        let mut words = all;
        words.sort_unstable();
        return Err(format!("usages did not match [{}]", words.join(" ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn request(signer: &str, usages: &[&str]) -> Value {
        let usages: Vec<Value> = usages.iter().map(|usage| Value::from(*usage)).collect();
        json!({"spec": {"signerName": signer, "usages": usages, "username": "system:node:a"}})
    }

    fn node() -> CertificateRequest {
        CertificateRequest {
            common_name: "system:node:a".into(),
            organizations: vec!["system:nodes".into()],
            ..CertificateRequest::default()
        }
    }

    #[test]
    fn signers_sign_what_is_theirs() {
        #[track_caller]
        fn check(signer: &str, asked: CertificateRequest, usages: &[&str], expected: Option<&str>) {
            let judged = judged(&request(signer, usages), &asked);
            let text = judged.map(|judged| judged.err().unwrap_or_default());
            assert_eq!(text.as_deref(), expected);
        }
        let nobody = CertificateRequest::default;
        check("example.com/x", nobody(), &[], None);
        check(LEGACY, nobody(), &["any"], Some(""));
        check(CLIENT, nobody(), &["client auth"], Some(""));
        check(CLIENT, nobody(), &["digital signature", "key encipherment", "client auth"], Some(""));
        let missing = "missing required usage for client certificate: client auth";
        check(CLIENT, nobody(), &["digital signature"], Some(missing));
        let other = "invalid usage for client certificate: server auth";
        check(CLIENT, nobody(), &["client auth", "server auth"], Some(other));

        let kubelet = ["digital signature", "client auth"];
        check(KUBELET_CLIENT, node(), &kubelet, Some(""));
        check(KUBELET_CLIENT, nobody(), &kubelet, Some("subject organization is not system:nodes"));
        let named = CertificateRequest { has_dns_names: true, ..node() };
        check(KUBELET_CLIENT, named.clone(), &kubelet, Some("DNS subjectAltNames are not allowed"));
        let unnamed = CertificateRequest { common_name: "a".into(), ..node() };
        let no_node = "subject common name does not begin with system:node:";
        check(KUBELET_CLIENT, unnamed, &kubelet, Some(no_node));
        let few = "usages did not match [client auth digital signature key encipherment]";
        check(KUBELET_CLIENT, node(), &["client auth"], Some(few));

        let serving = ["digital signature", "key encipherment", "server auth"];
        check(KUBELET_SERVING, named.clone(), &serving, Some(""));
        check(KUBELET_SERVING, node(), &serving, Some("DNS or IP subjectAltName is required"));
        let linked = CertificateRequest { has_uris: true, ..named };
        check(KUBELET_SERVING, linked, &serving, Some("URI subjectAltNames are not allowed"));
    }

    #[test]
    fn kubelets_are_recognized() {
        let names = |request: &Value, asked: &CertificateRequest| -> Vec<&str> {
            recognized(request, asked).iter().map(|rule| rule.subresource).collect()
        };
        let usages = ["digital signature", "client auth"];
        let own = request(KUBELET_CLIENT, &usages);
        assert_eq!(names(&own, &node()), ["selfnodeclient", "nodeclient"]);
        let another = CertificateRequest { common_name: "system:node:b".into(), ..node() };
        assert_eq!(names(&own, &another), ["nodeclient"]);
        assert!(names(&request(CLIENT, &usages), &node()).is_empty());
        assert!(names(&own, &CertificateRequest::default()).is_empty());
    }

    #[test]
    fn terms_are_bounded() {
        #[track_caller]
        fn check(seconds: Option<i64>, after: i64) {
            let mut request = request(CLIENT, &["client auth"]);
            if let Some(seconds) = seconds {
                request.set_at(&["spec", "expirationSeconds"], seconds);
            }
            let terms = terms(&request, 1_000_000);
            assert_eq!((terms.not_before, terms.not_after), (999_700, 1_000_000 + after));
        }
        check(None, DURATION_SECONDS_MAX - 300);
        check(Some(3600), 3600);
        check(Some(8 * 3600), 8 * 3600 - 300);
        check(Some(1), 600);
        check(Some(i64::MAX), DURATION_SECONDS_MAX - 300);
    }

    #[test]
    fn what_is_to_be_done() {
        let with = |kinds: &[&str]| {
            let conditions: Vec<Value> =
                kinds.iter().map(|kind| json!({"type": (*kind), "status": "True"})).collect();
            json!({"status": {"conditions": conditions}})
        };
        assert!(is_undecided(&with(&[])) && !is_undecided(&with(&["Denied"])));
        assert!(is_to_be_signed(&with(&["Approved"])));
        for kinds in [&[][..], &["Denied"], &["Approved", "Denied"], &["Approved", "Failed"]] {
            assert!(!is_to_be_signed(&with(kinds)), "{kinds:?}");
        }
        let mut signed = with(&["Approved"]);
        signed.set_at(&["status", "certificate"], "x");
        assert!(!is_to_be_signed(&signed) && !is_undecided(&json!({"status": {"certificate": "x"}})));
    }
}
