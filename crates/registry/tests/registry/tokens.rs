//! Who shows a bearer token in a plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_auth::authn::{AccountSecret, AccountTokens, Authenticators, Bound, Claims};
use polder_auth::authz::Chain;
use polder_model::{SmolStr, Value, json};
use polder_registry::tokens::CredentialNotes;
use polder_registry::write::PatchKind;
use polder_registry::{Registry, RegistryOptions};
use polder_store::memory::MemoryEngine;

use crate::world::World;
use crate::world::shaky::ShakyEngine;

/// Anybody can send tokens in the form of bootstrap tokens: what they name is not looked for in the store, however many there are. A
/// secret that is written counts in the next request all the same.
#[tokio::test(flavor = "multi_thread")]
async fn strange_bootstrap_tokens_are_not_looked_up() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (inner, failing) = (MemoryEngine::default(), Arc::default());
    let world = World::idle(Box::new(ShakyEngine {
        inner,
        failing,
        unreadable: Arc::default(),
        asked: asked.clone(),
    }));
    let acme = world.plane("acme", json!({})).await;
    let plane = world.registry.store.plane("acme").unwrap();
    let user = async |token: &str| {
        let found = world.registry.bearer_user(Some(&plane), token, &mut Default::default()).await;
        found.ok().map(|user| user.name.to_string())
    };
    assert_eq!(user("abcdef.0123456789abcdef").await, None);
    let before = asked.load(Ordering::Relaxed);
    for number in 0..1_000 {
        assert_eq!(user(&format!("{number:06}.0123456789abcdef")).await, None);
    }
    assert_eq!(asked.load(Ordering::Relaxed), before);

    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        },
    });
    acme.create("v1/secrets/kube-system", secret).await.unwrap();
    assert_eq!(user("abcdef.0123456789abcdef").await.as_deref(), Some("system:bootstrap:abcdef"));
    assert_eq!(user("abcdeg.0123456789abcdef").await, None);
    acme.delete("v1/secrets/kube-system/bootstrap-token-abcdef", json!({})).await.unwrap();
    assert_eq!(user("abcdef.0123456789abcdef").await, None);
}

/// What is noted of tokens that are older than they should be, and of those in secrets: the day they were used, and that they were. One
/// that was marked as invalid is none.
#[tokio::test(flavor = "multi_thread")]
async fn old_tokens_are_noted() {
    const NOW: i64 = 1_767_225_600;
    const SECRET: &str = "v1/secrets/default/robot";
    let secret = vec![7; 32];
    let accounts = AccountSecret { generation: 1, secret, used_from: 0, tokens_until: i64::MAX };
    let accounts = Arc::new(AccountTokens::new(&[accounts]));
    let world = World::idle(Box::new(MemoryEngine::default()));
    let options = RegistryOptions {
        authenticators: Arc::new(Authenticators::new(Some(accounts.clone()), Default::default())),
        ..world.registry.options.clone()
    };
    let registry = Registry::new(world.registry.store.clone(), Chain::default(), options);
    let world = World { registry: Arc::new(registry) };
    let acme = world.plane("acme", json!({})).await;
    let plane = world.registry.store.plane("acme").unwrap();
    let bound = |made: &Value| Bound {
        name: "robot".into(),
        uid: SmolStr::new(made.str_at(&["metadata", "uid"]).unwrap()),
    };
    let robot =
        acme.create("v1/serviceaccounts/default", json!({"metadata": {"name": "robot"}})).await.unwrap();
    let claims = Claims {
        plane: plane.id,
        issuer: "https://polder.test/clusters/acme".into(),
        audiences: vec!["https://polder.test/clusters/acme".into()],
        namespace: "default".into(),
        account: bound(&robot),
        bound: None,
        node: None,
        warn_after: None,
        id: "x".into(),
        issued: NOW - 100,
        expires: NOW + 100,
    };
    let shown = async |token: &str| {
        let mut notes = CredentialNotes::default();
        let user = world.registry.bearer_user(Some(&plane), token, &mut notes).await;
        (user.map(|user| user.name.to_string()).map_err(|status| status.code), notes)
    };
    let user = Ok("system:serviceaccount:default:robot".to_owned());
    for (warn_after, said) in [
        (None, None),
        (Some(NOW), None),
        (
            Some(NOW - 5),
            Some("subject: system:serviceaccount:default:robot, seconds after warning threshold: 5"),
        ),
    ] {
        let token = accounts.sign(&Claims { warn_after, ..claims.clone() }).unwrap();
        let (found, notes) = shown(&token).await;
        let expected: Vec<_> =
            said.map(|said| ("authentication.k8s.io/stale-token", said.to_owned())).into_iter().collect();
        assert_eq!((&found, notes.annotations), (&user, expected), "it is good all the same");
    }

    let made = json!({
        "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token",
    });
    let made = acme.create("v1/secrets/default", made).await.unwrap();
    let token = accounts.sign(&Claims { bound: Some(("secret".into(), bound(&made))), ..claims }).unwrap();
    let (found, notes) = shown(&token).await;
    assert!(
        found == user && notes.annotations.is_empty() && notes.secret.is_none(),
        "it is not the secret's own"
    );
    let patch = async |path: &str, patch: Value| acme.patch(path, PatchKind::Merge, patch).await.unwrap();
    patch(SECRET, json!({"data": {"token": (STANDARD.encode(&token))}})).await;
    let (found, notes) = shown(&token).await;
    let keys = |notes: &CredentialNotes| {
        let keys = notes.annotations.iter().map(|(key, value)| format!("{key}={value}"));
        keys.map(|text| text.replace("authentication.k8s.io/", "")).collect::<Vec<_>>()
    };
    let subject = "legacy-token=system:serviceaccount:default:robot";
    assert_eq!(
        (&found, keys(&notes)),
        (&user, vec!["legacy-token-manual-secret=robot".into(), subject.to_owned()])
    );
    world.registry.note_token_use(notes).await;
    let labels = acme.get(SECRET).await.unwrap().at(&["metadata", "labels"]).cloned();
    assert_eq!(labels, Some(json!({"kubernetes.io/legacy-token-last-used": "2026-01-01"})));
    assert!(shown(&token).await.1.secret.is_none(), "once a day");

    patch("v1/serviceaccounts/default/robot", json!({"secrets": [{"name": "robot"}]})).await;
    let (found, notes) = shown(&token).await;
    assert!(found == user && notes.warning.is_some(), "{notes:?}");
    assert_eq!(keys(&notes)[0], "legacy-token-autogenerated-secret=robot");
    let label =
        |day: Value| json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": day}}});
    patch(SECRET, label(json!("2025-12-31"))).await;
    assert_eq!(shown(&token).await.0, Err(401));
    patch(SECRET, label(Value::Null)).await;
    assert_eq!(shown(&token).await.0, user);
}
