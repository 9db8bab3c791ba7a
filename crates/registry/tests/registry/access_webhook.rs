//! Webhooks of the provider's that decide: what they are asked, what is remembered, and what it means that one is dead.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::world::shaky::ShakyEngine;
use crate::world::{Plane, World};
use polder_auth::authz::configuration::{AuthorizationConfiguration, AuthorizerKind};
use polder_auth::{ReviewAnswer, ReviewClient, ReviewFailure};
use polder_model::{SmolStr, Status, Value, json};
use polder_registry::authorizers::{AccessWebhook, Decider};
use polder_registry::context::Pace;
use polder_store::memory::MemoryEngine;

const MAPS: &str = "v1/configmaps/default";

/// A webhook that says what a function does of the `spec` of its question; `None` never answers.
struct Fake {
    say: fn(&Value) -> Option<Result<Value, ReviewFailure>>,
    asked: Mutex<Vec<Value>>,
    /// Questions under way, and the most there were, by plane.
    under_way: Mutex<HashMap<String, (usize, usize)>>,
}

fn plane_of(spec: &Value) -> String {
    let plane = spec.array_at(&["extra", "authorization.polder.dev/plane"]);
    plane.first().and_then(Value::as_str).unwrap_or_default().to_owned()
}

impl Fake {
    fn new(say: fn(&Value) -> Option<Result<Value, ReviewFailure>>) -> Arc<Fake> {
        Arc::new(Fake { say, asked: Mutex::default(), under_way: Mutex::default() })
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn last(&self) -> Value {
        self.asked.lock().unwrap().last().cloned().unwrap()
    }
}

/// Gives back a place however the question ends.
struct UnderWay<'a>(&'a Fake, String);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().unwrap().get_mut(&self.1).unwrap().0 -= 1;
    }
}

impl ReviewClient for Fake {
    fn review(&self, question: Vec<u8>) -> ReviewAnswer<'_> {
        Box::pin(async move {
            let question = Value::parse(&question).unwrap();
            let spec = question.get("spec").unwrap().clone();
            self.asked.lock().unwrap().push(question);
            let plane = plane_of(&spec);
            {
                let mut all = self.under_way.lock().unwrap();
                let (now, most) = all.entry(plane.clone()).or_default();
                *now += 1;
                *most = (*most).max(*now);
            }
            let _under_way = UnderWay(self, plane);
            match (self.say)(&spec) {
                Some(answer) => answer.map(|status| json!({"status": status}).to_vec()),
                None => std::future::pending().await,
            }
        })
    }
}

/// Makes the registry ask a webhook, then the roles of the plane.
fn configure(world: &World, client: Arc<Fake>, changes: &[(&str, Value)]) -> Arc<AccessWebhook> {
    let mut webhook = json!({
        "timeout": "10s", "authorizedTTL": "5m", "unauthorizedTTL": "30s", "subjectAccessReviewVersion": "v1",
        "matchConditionSubjectAccessReviewVersion": "v1", "failurePolicy": "NoOpinion",
        "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": "/nowhere"},
    });
    for (name, value) in changes {
        webhook.set_at(&[name], value.clone());
    }
    let document = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration",
        "authorizers": [{"type": "Webhook", "name": "iam", "webhook": webhook}],
    });
    let mut read = AuthorizationConfiguration::read(&document).unwrap().authorizers;
    let AuthorizerKind::Webhook(settings) = read.remove(0).kind else { panic!("no webhook") };
    let webhook = Arc::new(world.registry.access_webhook("iam".into(), settings, client));
    let all: [(SmolStr, Decider); 2] =
        [("iam".into(), Decider::Webhook(webhook.clone())), ("rbac".into(), Decider::Rbac)];
    world.registry.set_authorizers(&all);
    webhook
}

async fn status(plane: &Plane<'_>) -> u16 {
    match plane.list(MAPS, &[]).await {
        Ok(_) => 200,
        Err(status) => status.code,
    }
}

fn count(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// What it says is in force, named by plane, and remembered for that plane as long as it is told to be.
#[tokio::test]
async fn webhooks_decide_and_are_remembered() {
    static NOW: AtomicI64 = AtomicI64::new(1_767_225_600);
    let world = World::with_clock(|| NOW.load(Ordering::Relaxed));
    let acme = world.plane("acme", json!({})).await;
    world
        .core()
        .create(
            "polder.dev/v1alpha1/layers",
            json!({"metadata": {"name": "golden"}, "spec": {"plane": "acme"}}),
        )
        .await
        .unwrap();
    let other = world.plane("other", json!({"forkFrom": "layer/golden"})).await;
    let fake = Fake::new(|spec| {
        let user = spec.str_at(&["user"]);
        Some(Ok(match (plane_of(spec).as_str(), user) {
            ("acme", Some("ann")) => json!({"allowed": true, "reason": "she may"}),
            (_, Some("bob")) => json!({"allowed": false, "denied": true, "reason": "not he"}),
            _ => json!({"allowed": false}),
        }))
    });
    configure(&world, fake.clone(), &[]);
    let ann = acme.as_user("ann", &["dev"]);
    for _ in 0..3 {
        assert_eq!(status(&ann).await, 200);
    }
    assert_eq!(fake.asked(), 1, "a yes is remembered");
    let spec = fake.last().get("spec").unwrap().clone();
    let number = acme.context().plane.id.0.to_string();
    assert_eq!(
        spec.at(&["extra"]),
        Some(&json!({
            "authorization.polder.dev/plane": ["acme"], "authorization.polder.dev/plane-number": [(number.as_str())],
        }))
    );
    let asked = json!({"namespace": "default", "verb": "list", "version": "v1", "resource": "configmaps"});
    assert_eq!(spec.get("resourceAttributes"), Some(&asked));

    // Another plane is another question, whoever asks.
    assert_eq!(status(&other.as_user("ann", &["dev"])).await, 403);
    assert_eq!(fake.asked(), 2);
    let from = fake.last().array_at(&["spec", "extra", "authorization.polder.dev/forked-from"]).to_vec();
    assert_eq!(from, ["layer/golden", "acme"].map(Value::from));
    // The parents of a parent too.
    let grandchild = world.plane("grandchild", json!({"forkFrom": "other"})).await;
    let last = world.plane("last", json!({"forkFrom": "grandchild"})).await;
    for (plane, expected) in [
        (grandchild, &["other", "layer/golden", "acme"] as &[&str]),
        (last, &["grandchild", "other", "layer/golden", "acme"]),
    ] {
        assert_eq!(status(&plane.as_user("ann", &["dev"])).await, 403);
        let from = fake.last().array_at(&["spec", "extra", "authorization.polder.dev/forked-from"]).to_vec();
        assert_eq!(from, expected.iter().map(|name| Value::from(*name)).collect::<Vec<_>>());
    }
    // Selectors are part of the question.
    let labels = [("labelSelector", "a=b"), ("fieldSelector", "metadata.namespace=default")];
    ann.list(MAPS, &labels).await.unwrap();
    let attributes = fake.last().at(&["spec", "resourceAttributes"]).cloned().unwrap();
    assert_eq!(attributes.array_at(&["labelSelector", "requirements"]).len(), 1, "{attributes}");
    assert_eq!(attributes.str_at(&["fieldSelector", "rawSelector"]), None);
    assert_eq!(
        attributes.array_at(&["fieldSelector", "requirements"])[0].str_at(&["key"]),
        Some("metadata.namespace")
    );

    // Yes and no are forgotten after their own time.
    let before = fake.asked();
    NOW.fetch_add(30, Ordering::Relaxed);
    assert_eq!(status(&other.as_user("ann", &["dev"])).await, 403);
    assert_eq!(status(&ann).await, 200);
    assert_eq!(fake.asked(), before + 1);
    NOW.fetch_add(300, Ordering::Relaxed);
    assert_eq!(status(&ann).await, 200);
    assert_eq!(fake.asked(), before + 2);

    // A no is final, whatever the roles of the plane say; masters are not asked about.
    let role = json!({"metadata": {"name": "bob"}, "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    acme.create("rbac.authorization.k8s.io/v1/clusterrolebindings", role).await.unwrap();
    let (code, text) = crate::world::code(acme.as_user("bob", &[]).list(MAPS, &[]).await);
    assert_eq!(code, 403);
    assert!(text.ends_with(r#"in the namespace "default": not he"#), "{text}");
    let before = fake.asked();
    assert_eq!(status(&acme).await, 200);
    assert_eq!(fake.asked(), before);
    // Somebody of one plane is nobody in another, and the webhook does not hear of it.
    let lost = Plane { user: ann.user.clone(), ..Plane::new(&world, "other") };
    assert_eq!(status(&lost).await, 403);
    assert_eq!(fake.asked(), before);
}

/// A webhook that fails is passed over or stands in the way, as configured; nothing of it is remembered.
#[tokio::test(start_paused = true)]
async fn what_a_dead_webhook_means() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let binding = json!({"metadata": {"name": "ann"}, "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    acme.create("rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.unwrap();
    let (ann, bob) = (acme.as_user("ann", &[]), acme.as_user("bob", &[]));
    type Say = fn(&Value) -> Option<Result<Value, ReviewFailure>>;
    // How often each is asked one question.
    let rows: [(Say, usize); 4] = [
        (|_| Some(Err(ReviewFailure::Passing("connection refused".into()))), 5),
        (|_| Some(Err(ReviewFailure::Lasting("the webhook answered 401".into()))), 1),
        (|_| Some(Ok(json!({"allowed": true, "denied": true}))), 1),
        (|_| Some(Ok(json!("?"))), 1),
    ];
    for (say, tries) in rows {
        let fake = Fake::new(say);
        let webhook = configure(&world, fake.clone(), &[]);
        let before = count(&webhook.counts().failed);
        assert_eq!([status(&ann).await, status(&bob).await, status(&acme).await], [200, 500, 200]);
        assert_eq!(fake.asked(), 2 * tries);
        assert_eq!(count(&webhook.counts().failed), before + 2);
        configure(&world, fake.clone(), &[("failurePolicy", json!("Deny"))]);
        assert_eq!([status(&ann).await, status(&bob).await, status(&acme).await], [500, 500, 200]);
        let (_, text) = crate::world::code(ann.list(MAPS, &[]).await);
        assert_eq!(
            text,
            "Internal error occurred: the authorizer \"iam\" of the server could not be asked: try again later"
        );
    }
}

/// One that cannot be asked because the server cannot read what to say is as one that does not answer.
#[tokio::test]
async fn what_an_unreadable_plane_means() {
    let unreadable = Arc::new(AtomicBool::new(false));
    let inner = MemoryEngine::default();
    let (failing, asked) = (Arc::default(), Arc::default());
    let engine = ShakyEngine { inner, failing, unreadable: unreadable.clone(), asked };
    let world = World::idle(Box::new(engine));
    let acme = world.plane("acme", json!({})).await;
    let binding = json!({"metadata": {"name": "ann"}, "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    acme.create("rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.unwrap();
    let ann = acme.as_user("ann", &[]);
    assert_eq!(status(&ann).await, 200);
    for (policy, expected) in [("Deny", 500), ("NoOpinion", 200)] {
        let fake = Fake::new(|_| Some(Ok(json!({"allowed": false}))));
        configure(&world, fake.clone(), &[("failurePolicy", json!(policy))]);
        unreadable.store(true, Ordering::Relaxed);
        assert_eq!((status(&ann).await, fake.asked()), (expected, 0), "{policy}");
    }
    unreadable.store(false, Ordering::Relaxed);
    let fake = Fake::new(|_| Some(Ok(json!({"allowed": false}))));
    configure(&world, fake.clone(), &[("failurePolicy", json!("Deny"))]);
    assert_eq!((status(&ann).await, fake.asked()), (200, 1), "nothing of it is remembered");
}

/// Questions that get no answer end; a plane has only so many under way, and others go on meanwhile.
#[tokio::test]
async fn a_webhook_that_hangs_hurts_boundedly() {
    let world = World::new();
    let (acme, other) = (world.plane("acme", json!({})).await, world.plane("other", json!({})).await);
    let fake = Fake::new(|spec| match plane_of(spec).as_str() {
        "acme" => None,
        _ => Some(Ok(json!({"allowed": true}))),
    });
    let webhook = configure(&world, fake.clone(), &[("timeout", json!("300ms"))]);
    let users: Vec<Plane<'_>> = (0..100).map(|number| acme.as_user(&format!("u{number}"), &[])).collect();
    let hanging = futures_util::future::join_all(users.iter().map(status));
    let neighbor = async {
        while fake.under_way.lock().unwrap().get("acme").is_none_or(|(now, _)| *now < 32) {
            tokio::task::yield_now().await;
        }
        status(&other.as_user("ann", &[])).await
    };
    let (codes, neighbor) = tokio::join!(hanging, neighbor);
    assert_eq!(neighbor, 200);
    assert!(codes.iter().all(|code| *code == 500), "{codes:?}");
    assert_eq!(fake.under_way.lock().unwrap()["acme"], (0, 32));
    // Those that come when the first have waited in vain are not asked.
    let (late, failed) = (count(&webhook.counts().timed_out), count(&webhook.counts().failed));
    assert!(late >= 32 && late + failed == 100, "{late} {failed}");
    assert_eq!(count(&webhook.counts().answered), 1);
}

/// A failure that passes is asked over; one request does not feel it.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_stumbles_is_asked_again() {
    static LEFT: AtomicU64 = AtomicU64::new(0);
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let fake = Fake::new(|_| match LEFT.load(Ordering::Relaxed) {
        0 => Some(Ok(json!({"allowed": true}))),
        left => {
            LEFT.store(left - 1, Ordering::Relaxed);
            Some(Err(ReviewFailure::Passing("the webhook answered 503".into())))
        }
    });
    for (stumbles, expected, asked) in [(4, 200, 5), (5, 500, 5), (0, 200, 1)] {
        LEFT.store(stumbles, Ordering::Relaxed);
        let before = fake.asked();
        configure(&world, fake.clone(), &[]);
        assert_eq!(status(&acme.as_user("ann", &[])).await, expected, "{stumbles}");
        assert_eq!(fake.asked() - before, asked, "{stumbles}");
    }
    // Not for longer than a question may take.
    LEFT.store(5, Ordering::Relaxed);
    let before = fake.asked();
    configure(&world, fake.clone(), &[("timeout", json!("1s"))]);
    assert_eq!(status(&acme.as_user("ann", &[])).await, 500);
    assert_eq!(fake.asked() - before, 2);
}

/// A plane that got no answer several times in a row does not wait for each question any more; others find out for themselves, and
/// the first answer is good news for all.
#[tokio::test(start_paused = true)]
async fn a_dead_webhook_is_not_waited_for_again_and_again() {
    static IS_DEAD: AtomicU64 = AtomicU64::new(1);
    let world = World::new();
    let (acme, other) = (world.plane("acme", json!({})).await, world.plane("other", json!({})).await);
    let fake = Fake::new(|_| match IS_DEAD.load(Ordering::Relaxed) {
        0 => Some(Ok(json!({"allowed": true}))),
        _ => None,
    });
    configure(&world, fake.clone(), &[]);
    let ask = async |plane: &Plane<'_>, user: &str| (status(&plane.as_user(user, &[])).await, fake.asked());
    for number in 1..=3 {
        assert_eq!(ask(&acme, "ann").await, (500, number));
    }
    for _ in 0..10 {
        assert_eq!(ask(&acme, "ann").await, (500, 3));
    }
    assert_eq!(ask(&other, "bob").await, (500, 4));
    // That took longer than the first plane's rest.
    assert_eq!(ask(&acme, "ann").await, (500, 5));
    IS_DEAD.store(0, Ordering::Relaxed);
    assert_eq!(ask(&acme, "ann").await, (500, 5));
    assert_eq!(ask(&other, "bob").await, (200, 6));
    assert_eq!(ask(&acme, "ann").await, (200, 7));
}

/// It is asked where its conditions hold. Where that cannot be told it is as if it were dead.
#[tokio::test]
async fn conditions_choose_what_is_asked() {
    let world = World::new();
    let (acme, other) = (world.plane("acme", json!({})).await, world.plane("other", json!({})).await);
    let fake = Fake::new(|_| Some(Ok(json!({"allowed": true}))));
    let condition = |text: &str| [("matchConditions", json!([{"expression": text}]))];
    let plane = "request.extra['authorization.polder.dev/plane'][0] == 'acme'";
    let webhook = configure(&world, fake.clone(), &condition(plane));
    assert_eq!(
        [status(&acme.as_user("ann", &[])).await, status(&other.as_user("ann", &[])).await],
        [200, 403]
    );
    assert_eq!((fake.asked(), count(&webhook.counts().excluded)), (1, 1));
    // What one counted goes on in the next.
    let webhook = configure(&world, fake.clone(), &condition("request.nonResourceAttributes.path == '/x'"));
    assert_eq!(status(&acme.as_user("ann", &[])).await, 500);
    assert_eq!((count(&webhook.counts().unclear), count(&webhook.counts().excluded)), (1, 1));
    assert_eq!(fake.asked(), 1);
}

/// Reviews ask whoever decides, and rules reviews say that not all can tell their rules.
#[tokio::test]
async fn reviews_ask_webhooks() {
    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let fake = Fake::new(|spec| Some(Ok(json!({"allowed": (spec.str_at(&["user"]) == Some("ann"))}))));
    configure(&world, fake.clone(), &[]);
    let review = |user: &str| {
        json!({"spec": {"user": user, "extra": {"a": ["b"]}, "resourceAttributes": {"verb": "list", "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]},
            "labelSelector": {"requirements": [{"key": "x", "operator": "Exists"}]}}}})
    };
    let path = "authorization.k8s.io/v1/subjectaccessreviews";
    let said = acme.create(path, review("ann")).await.unwrap();
    assert_eq!(said.at(&["status", "allowed"]), Some(&Value::Bool(true)));
    let attributes = fake.last().at(&["spec", "resourceAttributes"]).cloned().unwrap();
    assert_eq!(
        attributes.at(&["fieldSelector", "requirements"]),
        Some(&json!([{"key": "spec.nodeName", "operator": "In", "values": ["n"]}]))
    );
    assert_eq!(
        attributes.at(&["labelSelector", "requirements"]),
        Some(&json!([{"key": "x", "operator": "Exists"}]))
    );
    assert_eq!(fake.last().at(&["spec", "extra", "a"]), Some(&json!(["b"])));
    let said = acme.create(path, review("bob")).await.unwrap();
    assert_eq!(said.at(&["status", "allowed"]), Some(&Value::Bool(false)));
    let rules = json!({"spec": {"namespace": "default"}});
    let said = acme.create("authorization.k8s.io/v1/selfsubjectrulesreviews", rules).await.unwrap();
    assert_eq!(said.at(&["status", "incomplete"]), Some(&Value::Bool(true)));
    let problem = "webhook authorizer does not support user rule resolution";
    assert_eq!(said.str_at(&["status", "evaluationError"]), Some(problem));
}

/// Whoever holds a turn that others want gives it back before a webhook is waited for, and only then.
#[tokio::test]
async fn turns_are_given_back_before_webhooks_are_asked() {
    #[derive(Default)]
    struct Turn(AtomicU64);

    impl Pace for Turn {
        fn waits(&self) -> Result<(), Status> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    let world = World::new();
    let acme = world.plane("acme", json!({})).await;
    let ann = acme.as_user("ann", &[]);
    let given_back = async |plane: &Plane<'_>| {
        let (context, turn) = (plane.context(), Arc::new(Turn::default()));
        context.set_pace(Some(turn.clone()));
        let target = plane.target("v1/configmaps/default/x").await;
        world.registry.get(&context, &target, "").await.unwrap_err();
        count(&turn.0)
    };
    assert_eq!(given_back(&ann).await, 0);
    configure(&world, Fake::new(|_| Some(Ok(json!({"allowed": true})))), &[]);
    assert_eq!((given_back(&ann).await, given_back(&acme).await), (1, 0));
}
