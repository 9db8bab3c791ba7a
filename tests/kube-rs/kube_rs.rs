//! kube-rs works unchanged: create, read, update, patch, delete, watch, discovery and a controller, in two planes at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{Error as FinalizerError, Event, finalizer};
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource as _, ResourceExt as _, discovery};
use polder_test_support::TestServer;
use serde_json::json;
use tokio::task::JoinSet;

/// A client of a new plane.
async fn plane(server: &TestServer, name: &str) -> anyhow::Result<Client> {
    server.plane(name);
    let path = format!("/apis/polder.dev/v1alpha1/planes/{name}/kubeconfig");
    let answer = server.admin.post(&path, &json!({})).expect(201).json();
    let kubeconfig = Kubeconfig::from_yaml(answer["kubeconfig"].as_str().unwrap_or_default())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

fn map(name: &str) -> ConfigMap {
    let mut map =
        ConfigMap { data: Some(BTreeMap::from([("k".into(), "v".into())])), ..ConfigMap::default() };
    map.metadata.name = Some(name.into());
    map
}

#[tokio::test(flavor = "multi_thread")]
async fn objects() -> anyhow::Result<()> {
    let server = TestServer::start();
    let (acme, globex) = tokio::try_join!(plane(&server, "acme"), plane(&server, "globex"))?;
    let maps: Api<ConfigMap> = Api::namespaced(acme.clone(), "default");
    let post = PostParams::default();
    let mut made = maps.create(&post, &map("a")).await?;
    made.labels_mut().insert("x".into(), "y".into());
    let stale = made.clone();
    let replaced = maps.replace("a", &post, &made).await?;
    assert_ne!(replaced.resource_version(), stale.resource_version());
    let mut other = stale;
    other.labels_mut().insert("x".into(), "z".into());
    assert!(
        matches!(maps.replace("a", &post, &other).await, Err(kube::Error::Api(status)) if status.code == 409)
    );
    let patch = Patch::Merge(json!({"data": {"k": null, "l": "m"}}));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await?;
    assert_eq!(patched.data, Some(BTreeMap::from([("l".into(), "m".into())])));
    let found = maps.list(&ListParams::default().labels("x=y").limit(1)).await?;
    assert_eq!(found.items.iter().map(|one| one.name_any()).collect::<Vec<_>>(), ["a"]);
    let elsewhere: Api<ConfigMap> = Api::namespaced(globex, "default");
    assert!(elsewhere.get_opt("a").await?.is_none());
    maps.delete("a", &DeleteParams::default()).await?;
    assert!(maps.get_opt("a").await?.is_none());

    let deployments: Api<Deployment> = Api::namespaced(acme, "default");
    let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let made = deployments.create(&post, &serde_json::from_value(web)?).await?;
    assert_eq!(made.spec.and_then(|spec| spec.replicas), Some(1));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn watches() -> anyhow::Result<()> {
    let server = TestServer::start();
    let acme = plane(&server, "acme").await?;
    let maps: Api<ConfigMap> = Api::namespaced(acme.clone(), "default");
    let version = maps.list(&ListParams::default()).await?.metadata.resource_version.unwrap_or_default();
    let mut stream = maps.watch(&WatchParams::default().timeout(20), &version).await?.boxed();
    maps.create(&PostParams::default(), &map("a")).await?;
    maps.delete("a", &DeleteParams::default()).await?;
    assert!(matches!(stream.try_next().await?, Some(WatchEvent::Added(map)) if map.name_any() == "a"));
    assert!(matches!(stream.try_next().await?, Some(WatchEvent::Deleted(map)) if map.name_any() == "a"));
    drop(stream);

    // What controllers use: both ways to learn the state first, then what changes.
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let secrets: Api<Secret> = Api::namespaced(acme.clone(), "default");
        let mut secret = Secret::default();
        secret.metadata.name = Some("s".into());
        secrets.create(&PostParams::default(), &secret).await?;
        let mut events = watcher(secrets.clone(), config).boxed();
        let mut next = async || tokio::time::timeout(Duration::from_secs(20), events.try_next()).await;
        assert!(matches!(next().await??, Some(watcher::Event::Init)));
        assert!(
            matches!(next().await??, Some(watcher::Event::InitApply(secret)) if secret.name_any() == "s")
        );
        assert!(matches!(next().await??, Some(watcher::Event::InitDone)));
        secrets.delete("s", &DeleteParams::default()).await?;
        assert!(matches!(next().await??, Some(watcher::Event::Delete(secret)) if secret.name_any() == "s"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn discovered_kinds() -> anyhow::Result<()> {
    let server = TestServer::start();
    let acme = plane(&server, "acme").await?;
    let version = acme.apiserver_version().await?;
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "35"));
    let (resource, capabilities) =
        discovery::pinned_kind(&acme, &kube::core::GroupVersionKind::gvk("apps", "v1", "Deployment")).await?;
    assert_eq!(resource.plural, "deployments");
    assert!(capabilities.supports_operation("watch"));
    let namespaces: Api<DynamicObject> =
        Api::all_with(acme.clone(), &kube::core::ApiResource::erase::<Namespace>(&()));
    let names: Vec<String> =
        namespaces.list(&ListParams::default()).await?.items.iter().map(|one| one.name_any()).collect();
    assert!(names.contains(&"default".into()), "{names:?}");
    Ok(())
}

/// Gives every secret with a label a config map of its own, and says goodbye in another one.
async fn reconcile(secret: Arc<Secret>, client: Arc<Client>) -> Result<Action, FinalizerError<kube::Error>> {
    let secrets: Api<Secret> = Api::namespaced(client.as_ref().clone(), "default");
    let maps: Api<ConfigMap> = Api::namespaced(client.as_ref().clone(), "default");
    let apply = PatchParams::apply("kube-rs-test").force();
    let put = async |name: String, owner: Option<OwnerReference>| {
        let mut map = map(&name);
        map.metadata.owner_references = owner.map(|owner| vec![owner]);
        maps.patch(&name, &apply, &Patch::Apply(map)).await
    };
    let done = finalizer(&secrets, "polder.test/farewell", secret, async |event| {
        match event {
            Event::Apply(secret) => put(secret.name_any(), secret.controller_owner_ref(&())).await?,
            Event::Cleanup(secret) => put(format!("farewell-{}", secret.name_any()), None).await?,
        };
        Ok(Action::await_change())
    });
    done.await
}

async fn until(what: &str, maps: &Api<ConfigMap>, name: &str, there: bool) -> anyhow::Result<()> {
    for _ in 0..1_500 {
        if maps.get_opt(name).await?.is_some() == there {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    anyhow::bail!("this did not come true: {what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers() -> anyhow::Result<()> {
    let server = TestServer::start();
    let clients = [plane(&server, "acme").await?, plane(&server, "globex").await?];
    let mut running = JoinSet::new();
    for client in &clients {
        let chosen = watcher::Config::default().labels("greet=yes");
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let controller = Controller::new(secrets, chosen).owns(maps, watcher::Config::default());
        let again =
            |_: Arc<Secret>, _: &FinalizerError<kube::Error>, _| Action::requeue(Duration::from_secs(1));
        let stream = controller.run(reconcile, again, Arc::new(client.clone()));
        running.spawn(stream.for_each(|_| std::future::ready(())));
    }
    let [acme, globex] = clients.map(|client| {
        (
            Api::<Secret>::namespaced(client.clone(), "default"),
            Api::<ConfigMap>::namespaced(client, "default"),
        )
    });
    let mut secret = Secret::default();
    secret.metadata.name = Some("hello".into());
    secret.metadata.labels = Some(BTreeMap::from([("greet".into(), "yes".into())]));
    for (secrets, maps) in [&acme, &globex] {
        secrets.create(&PostParams::default(), &secret).await?;
        until("there is a map", maps, "hello", true).await?;
    }
    acme.1.delete("hello", &DeleteParams::default()).await?;
    until("the map is back", &acme.1, "hello", true).await?;
    acme.0.delete("hello", &DeleteParams::default()).await?;
    until("it said goodbye", &acme.1, "farewell-hello", true).await?;
    until("what it owned is collected", &acme.1, "hello", false).await?;
    assert!(globex.1.get_opt("farewell-hello").await?.is_none());
    assert!(globex.1.get_opt("hello").await?.is_some());
    Ok(())
}
