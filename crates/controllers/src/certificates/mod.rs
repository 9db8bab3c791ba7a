//! Certificate requests are answered: those of kubelets for themselves are approved when whoever asks may ask, and what was
//! approved for one of Kubernetes' own signers is signed by the authority of the plane.
//!
//! Invariant: nothing is signed that nobody approved, and a request is answered once, with a certificate or a failure.

mod plan;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_client::resource::{ACCESS_REVIEWS, CERTIFICATE_REQUESTS};
use polder_client::{Answer, At, CertificateAuthority, Change, Controller, InPlane, Interest, Next, Wake};
use polder_model::{Status, Value, json};

use crate::{meta, timestamp};

pub(crate) struct Approver(pub Option<Arc<dyn CertificateAuthority>>);
pub(crate) struct Signer(pub Option<Arc<dyn CertificateAuthority>>);

impl Controller for Approver {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-approving-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&CERTIFICATE_REQUESTS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        let wanted = |request: &polder_client::Snapshot| request.may_contain(plan::KUBELET_CLIENT);
        if change.new.as_ref().is_some_and(wanted) {
            wake(change.name.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            if let Some(authority) = &self.0
                && let Some(request) = plane.get(&CERTIFICATE_REQUESTS, "", key).await?
                && plan::is_undecided(&request)
                && let Ok(asked) = authority.read(&pem(&request))
            {
                for rule in plan::recognized(&request, &asked) {
                    if may(plane, &request, rule.subresource).await? {
                        approve(plane, &request, rule.message).await?;
                        break;
                    }
                }
            }
            Ok(Next::Done)
        })
    }
}

impl Controller for Signer {
    fn name(&self) -> &'static str {
        "certificatesigningrequest-signing-controller"
    }

    fn interest(&self) -> Interest {
        Interest::of(&[&CERTIFICATE_REQUESTS])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.new.as_ref().is_some_and(|request| request.may_contain("\"Approved\"")) {
            wake(change.name.clone());
        }
    }

    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            if let Some(authority) = &self.0
                && let Some(request) = plane.get(&CERTIFICATE_REQUESTS, "", key).await?
                && plan::is_to_be_signed(&request)
            {
                answer(plane, authority.as_ref(), &request).await?;
            }
            Ok(Next::Done)
        })
    }
}

/// The request itself, in PEM.
fn pem(request: &Value) -> Vec<u8> {
    STANDARD.decode(request.str_at(&["spec", "request"]).unwrap_or_default()).unwrap_or_default()
}

/// Whether whoever made a request may make one of a kind.
async fn may(plane: &InPlane, request: &Value, subresource: &str) -> Result<bool, Status> {
    let mut spec = json!({
        "resourceAttributes": {
            "group": "certificates.k8s.io", "resource": "certificatesigningrequests",
            "verb": "create", "subresource": subresource, "version": "*",
        },
    });
    for (from, to) in [("username", "user"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra")] {
        if let Some(value) = request.at(&["spec", from]) {
            spec.set_at(&[to], value.clone());
        }
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
    });
    let review = plane.create(&ACCESS_REVIEWS, "", review).await?;
    Ok(review.at(&["status", "allowed"]).and_then(Value::as_bool) == Some(true))
}

async fn approve(plane: &InPlane, request: &Value, message: &str) -> Result<(), Status> {
    let condition =
        json!({"type": "Approved", "status": "True", "reason": "AutoApproved", "message": message});
    let approved = with_condition(request, condition);
    let at = plane.at(&CERTIFICATE_REQUESTS, "", meta::name(request));
    plane.client.update(&At { subresource: "approval", ..at }, approved).await.map(drop)
}

/// Signs a request or says why not.
async fn answer(
    plane: &InPlane,
    authority: &dyn CertificateAuthority,
    request: &Value,
) -> Result<(), Status> {
    let pem = pem(request);
    let now = plane.client.now();
    let asked = authority.read(&pem);
    let signed = asked.and_then(|asked| match plan::judged(request, &asked) {
        Some(judged) => {
            judged.and_then(|()| authority.sign(plane.plane, &pem, &plan::terms(request, now))).map(Some)
        }
        None => Ok(None),
    });
    let answered = match signed {
        Ok(None) => return Ok(()),
        Ok(Some(certificate)) => {
            let mut answered = request.clone();
            answered.set_at(&["status", "certificate"], STANDARD.encode(certificate));
            answered
        }
        Err(why) => {
            let failed = json!({
                "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": why,
                "lastUpdateTime": (timestamp::text(now)),
            });
            with_condition(request, failed)
        }
    };
    plane.update_status(&CERTIFICATE_REQUESTS, answered).await.map(drop)
}

fn with_condition(request: &Value, condition: Value) -> Value {
    let mut conditions = request.array_at(&["status", "conditions"]).to_vec();
    conditions.push(condition);
    let mut new = request.clone();
    new.set_at(&["status", "conditions"], conditions);
    new
}
