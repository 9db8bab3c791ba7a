//! Who shows a bearer token in a plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use polder_model::json;
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
        let found = world.registry.bearer_user(Some(&plane), token).await;
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
