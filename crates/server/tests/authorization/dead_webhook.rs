//! What somebody who proves nothing learns of planes while nobody can be asked about them.

use std::sync::Arc;

use polder_auth::authn::{Anonymous, Sources};
use polder_auth::authz::configuration::{AuthorizationConfiguration, AuthorizerKind};
use polder_auth::{ReviewAnswer, ReviewClient, ReviewFailure};
use polder_registry::authorizers::Decider;
use polder_test_support::TestServer;

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

#[test]
fn a_dead_webhook_tells_strangers_nothing() {
    let server = TestServer::start();
    let acme = server.plane("acme");
    let strangers = acme.anonymous().unwrap();
    for (hangs, policy) in [(true, "Deny"), (true, "NoOpinion"), (false, "Deny"), (false, "NoOpinion")] {
        let document = format!(
            r#"{{"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration", "authorizers": [{{
                "type": "Webhook", "name": "iam", "webhook": {{
                    "timeout": "200ms", "authorizedTTL": "5m", "unauthorizedTTL": "30s", "failurePolicy": "{policy}",
                    "subjectAccessReviewVersion": "v1", "matchConditionSubjectAccessReviewVersion": "v1",
                    "connectionInfo": {{"type": "KubeConfigFile", "kubeConfigFile": "/nowhere"}}}}}}]}}"#
        );
        let document = polder_model::Value::parse(document.as_bytes()).unwrap();
        let mut read = AuthorizationConfiguration::read(&document).unwrap().authorizers;
        let AuthorizerKind::Webhook(settings) = read.remove(0).kind else { panic!("no webhook") };
        let webhook = server.registry.access_webhook("iam".into(), settings, Arc::new(Dead { hangs }));
        server.registry.set_authorizers(&[
            ("iam".into(), Decider::Webhook(Arc::new(webhook))),
            ("rbac".into(), Decider::Rbac),
        ]);
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
