//! What people are told while the webhook that decides what they may do cannot be asked.

use std::sync::Arc;

use polder_auth::authn::{Anonymous, Sources};
use polder_auth::authz::configuration::{AuthorizationConfiguration, AuthorizerKind};
use polder_auth::{ReviewAnswer, ReviewClient, ReviewFailure};
use polder_registry::authorizers::Decider;
use polder_test_support::{TestServer, json};

/// A webhook that fails, or never answers.
struct Dead {
    hangs: bool,
}

impl ReviewClient for Dead {
    fn review(&self, _: Vec<u8>) -> ReviewAnswer<'_> {
        Box::pin(async {
            match self.hangs {
                true => std::future::pending().await,
                false => Err(ReviewFailure::Passing("connection refused".into())),
            }
        })
    }
}

/// Asks a dead webhook, then the roles of the plane.
fn configure(server: &TestServer, dead: Dead, policy: &str, timeout: &str) {
    let document = format!(
        r#"{{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": [{{
            "type": "Webhook", "name": "iam", "webhook": {{
                "timeout": "{timeout}", "authorizedTTL": "5m", "unauthorizedTTL": "30s", "failurePolicy": "{policy}",
                "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
                "connectionInfo": {{"type": "KubeConfigFile", "kubeConfigFile": "/nowhere"}}}}}}]}}"#
    );
    let document = polder_model::Value::parse(document.as_bytes()).unwrap();
    let mut read = AuthorizationConfiguration::read(&document).unwrap().authorizers;
    let AuthorizerKind::Webhook(settings) = read.remove(0).kind else { panic!("no webhook") };
    let webhook = server.registry.access_webhook("iam".into(), settings, Arc::new(dead));
    server.registry.set_authorizers(&[
        ("iam".into(), Decider::Webhook(Arc::new(webhook))),
        ("rbac".into(), Decider::Rbac),
    ]);
}

#[test]
fn a_dead_webhook_tells_strangers_nothing() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let strangers = acme.anonymous().unwrap();
    for (hangs, policy) in [(true, "Deny"), (true, "NoOpinion"), (false, "Deny"), (false, "NoOpinion")] {
        configure(&server, Dead { hangs }, policy, "200ms");
        for anonymous in [Anonymous::Usual, Anonymous::Paths(Vec::new())] {
            let sources = Sources { anonymous, ..Sources::default() };
            server.registry.options.authenticators.replace(sources);
            for path in [
                "/api/v1/namespaces",
                "/apis",
                "/openapi/v2",
                "/.well-known/openid-configuration",
                "/openid/v1/jwks",
            ] {
                let there = strangers.get(path);
                let nowhere = strangers.in_plane("nowhere").get(path);
                let told = (there.code, there.text());
                assert_eq!(told, (nowhere.code, nowhere.text()), "{path} {hangs} {policy}");
                assert_eq!(told.0, 403, "{path} {hangs} {policy}");
            }
        }
    }
}

/// Whether somebody may be somebody else is asked within the time of the request.
#[test]
fn impersonation_ends_with_the_request() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let made = acme.post("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({})).expect(201);
    let token = made.json()["status"]["token"].as_str().unwrap().to_owned();
    let robot = acme.with_token(&token).unwrap();
    configure(&server, Dead { hangs: true }, "Deny", "30s");
    let as_ann = robot.with_header("Impersonate-User", "ann");
    let said = as_ann.get("/api/v1/namespaces?timeout=1s").expect(504).text();
    assert!(said.contains("Timeout: request did not complete within the allotted timeout"), "{said}");
}
