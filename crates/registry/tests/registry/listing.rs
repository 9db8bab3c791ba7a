//! Lists and the beginnings of watches, read page by page: they say what a list of the whole says, whatever is
//! written meanwhile, and hold a page at a time.

use std::sync::Arc;

use polder_auth::UserInfo;
use polder_auth::authz::Chain;
use polder_model::{SmolStr, Value, json};
use polder_registry::context::WriteOptions;
use polder_registry::decode::{Document, Duplicates};
use polder_registry::delete::DeleteOptions;
use polder_registry::list::ListOptions;
use polder_registry::listing::Listing;
use polder_registry::watch::{ClientWatch, WatchItem, WatchOptions};
use polder_registry::{Query, Registry, RegistryOptions, RequestContext, Target, bootstrap};
use polder_store::memory::MemoryEngine;
use polder_store::{Limits, Store, StoreOptions};

const OBJECTS: usize = 700;
/// Bytes of a heavy object.
const HEAVY: usize = 900_000;

struct World {
    registry: Arc<Registry>,
    context: Arc<RequestContext>,
    target: Target,
}

impl World {
    /// ConfigMaps, every other one labeled, every hundredth large. Without a cache, every read is the engine's.
    async fn new(cache_bytes_max: usize) -> World {
        World::with(OBJECTS, cache_bytes_max).await
    }

    async fn with(objects: usize, cache_bytes_max: usize) -> World {
        let store = Store::open(
            Box::new(MemoryEngine::default()),
            StoreOptions { cache_bytes_max, ..StoreOptions::default() },
            &bootstrap::digest(&bootstrap::Site::default()),
            |profile, resource_id| {
                bootstrap::records(profile, "2026-01-01T00:00:00Z", &bootstrap::Site::default(), resource_id)
            },
        );
        let options = RegistryOptions {
            base_url: "https://polder.test".into(),
            default_limits: Limits { object_bytes: 1 << 20, ..Limits::default() },
            clock: || 1_767_225_600,
            authenticators: std::sync::Arc::default(),
            plugins: Default::default(),
        };
        let registry = Arc::new(Registry::new(store.unwrap(), Chain::default(), options));
        let plane = registry.store.plane("core").unwrap();
        let (definition, version) = registry.resolve(&plane, "", "v1", "configmaps").await.unwrap().unwrap();
        let context = Arc::new(RequestContext::new(plane, UserInfo::system()));
        let namespace = SmolStr::new_static("default");
        let target = Target {
            definition,
            version,
            namespace,
            name: SmolStr::default(),
            subresource: SmolStr::default(),
        };
        let world = World { registry, context, target };
        for index in 0..objects {
            let text = "x".repeat(if index % 100 == 7 { 100_000 } else { 10 });
            world
                .create(json!({
                    "metadata": {"name": (format!("m-{index:04}")), "labels": {"odd": ((index % 2 == 1).to_string())}},
                    "data": {"a": text},
                }))
                .await;
        }
        world
    }

    async fn create(&self, value: Value) {
        let document = Document { value, duplicates: Duplicates::default() };
        let options = WriteOptions::default();
        self.registry.create(&self.context, &self.target, document, &options).await.unwrap();
    }

    async fn delete(&self, name: &str) {
        let target = self.target.with_name("default", name);
        let options = DeleteOptions::read(None, &Query::default()).unwrap();
        self.registry.delete(&self.context, &target, &options).await.unwrap();
    }

    fn options(&self, query: &[(&str, &str)]) -> ListOptions {
        ListOptions::from_query(&pairs(query), &self.target).unwrap()
    }

    async fn listing(&self, query: &[(&str, &str)]) -> Listing {
        self.registry.listing(&self.context, &self.target, &self.options(query)).await.unwrap()
    }

    async fn watch(&self, query: &[(&str, &str)]) -> ClientWatch {
        let options = WatchOptions::from_query(&pairs(query), &self.target).unwrap();
        self.registry.watch(self.context.clone(), &self.target, &options).await.unwrap()
    }
}

fn heavy(name: &str, labels: Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}, "data": {"a": ("x".repeat(HEAVY))}})
}

fn pairs(query: &[(&str, &str)]) -> Query {
    Query::new(query.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect())
}

/// Every name in a listing; no page may be large, unless it is one object.
async fn names(mut listing: Listing) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let page = listing.objects.page().await.unwrap();
        if page.is_empty() {
            assert!(listing.objects.page().await.unwrap().is_empty(), "the end is the end");
            return names;
        }
        names.extend(page.iter().map(|object| object.name.name.to_string()));
    }
}

#[tokio::test]
async fn pages_say_what_the_whole_says() {
    let odd = ("labelSelector", "odd=true");
    let queries: [&[(&str, &str)]; 16] = [
        &[],
        &[("limit", "1")],
        &[("limit", "64")],
        &[("limit", "65")],
        &[("limit", "500")],
        &[("limit", "699")],
        &[("limit", "700")],
        &[("limit", "701")],
        &[("limit", "5000")],
        &[odd],
        &[odd, ("limit", "3")],
        &[odd, ("limit", "349")],
        &[odd, ("limit", "350")],
        &[("fieldSelector", "metadata.name=m-0690")],
        &[("fieldSelector", "metadata.name=m-0690"), ("limit", "1")],
        &[("labelSelector", "odd=perhaps"), ("limit", "5")],
    ];
    for cache in [0, 64 << 20] {
        let world = World::new(cache).await;
        for query in queries {
            let whole =
                world.registry.list(&world.context, &world.target, &world.options(query)).await.unwrap();
            let listing = world.listing(query).await;
            assert_eq!(listing.resource_version, whole.resource_version, "{query:?}");
            assert_eq!(listing.continue_token, whole.continue_token, "{query:?}");
            assert_eq!(listing.remaining, whole.remaining, "{query:?}");
            let expected: Vec<String> =
                whole.objects.iter().map(|object| object.name.name.to_string()).collect();
            // A clone is the same list again.
            assert_eq!(names(listing.clone()).await, expected, "{query:?}");
            assert_eq!(names(listing).await, expected, "{query:?}");
            if let Some(token) = &whole.continue_token {
                let rest = [("continue", token.as_str()), ("limit", "2")];
                let whole =
                    world.registry.list(&world.context, &world.target, &world.options(&rest)).await.unwrap();
                let listing = world.listing(&rest).await;
                assert_eq!(listing.remaining, whole.remaining, "{query:?}");
                assert_eq!(names(listing).await.len(), whole.objects.len(), "{query:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_list_is_of_one_state_and_holds_a_page_of_it() {
    for cache in [0, 64 << 20] {
        let world = World::new(cache).await;
        let mut listing = world.listing(&[]).await;
        let first = listing.objects.page().await.unwrap();
        world.delete("m-0699").await;
        world.create(json!({"metadata": {"name": "m-0650a"}})).await;
        let mut all: Vec<String> = first.iter().map(|object| object.name.name.to_string()).collect();
        drop(first);
        loop {
            let page = listing.objects.page().await.unwrap();
            if page.is_empty() {
                break;
            }
            let bytes: usize = page.iter().map(|object| object.record.len()).sum();
            let last = page.last().map_or(0, |object| object.record.len());
            // What the cache holds anyway may be pointed to in larger numbers.
            let bytes_max = if cache > 0 { 1 << 20 } else { 128 << 10 };
            assert!(bytes - last < bytes_max, "{} objects, {bytes} bytes", page.len());
            all.extend(page.iter().map(|object| object.name.name.to_string()));
        }
        assert_eq!(all.len(), OBJECTS);
        assert!(all.is_sorted() && all.contains(&"m-0699".into()) && !all.contains(&"m-0650a".into()));
    }
}

#[tokio::test]
async fn a_watch_begins_with_one_state() {
    for cache in [0, 64 << 20] {
        let world = World::new(cache).await;
        let query = [("allowWatchBookmarks", "true"), ("labelSelector", "odd")];
        let mut watch = world.watch(&query).await;
        let mut told = Vec::new();
        for turn in 0.. {
            let item = if turn % 2 == 0 { watch.ready() } else { None };
            let item = match item {
                Some(item) => item,
                None => watch.next().await.unwrap(),
            };
            if turn == 10 {
                world.delete("m-0699").await;
                let labels = json!({"name": "m-0650a", "labels": {"odd": "new"}});
                world.create(json!({"metadata": labels})).await;
            }
            match item {
                WatchItem::Object { change, object, .. } => {
                    told.push(format!("{change:?} {}", object.name.name))
                }
                WatchItem::Bookmark { initial_end: true, .. } => told.push("end".into()),
                other => panic!("{other:?}"),
            }
            if told.len() == OBJECTS + 3 {
                break;
            }
        }
        assert!(told[..OBJECTS].iter().all(|line| line.starts_with("Added m-")), "{told:?}");
        assert_eq!(told[OBJECTS..], ["end", "Deleted m-0699", "Added m-0650a"]);
    }
}

/// Whoever is so slow that the state is forgotten meanwhile must start over, and hears so.
#[tokio::test]
async fn a_forgotten_state_is_said() {
    let world = World::new(0).await;
    let mut listing = world.listing(&[]).await;
    let mut watch = world.watch(&[]).await;
    listing.objects.page().await.unwrap();
    watch.next().await.unwrap();
    world.create(json!({"metadata": {"name": "new"}})).await;
    world.registry.store.compact(world.registry.store.current()).await.unwrap();
    assert_eq!(listing.objects.page().await.unwrap_err().code, 410);
    let error = loop {
        match watch.next().await.unwrap() {
            WatchItem::Error(status) => break status,
            WatchItem::Object { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(error.code, 410);
    assert!(watch.next().await.is_none());
}

/// Heavy objects do not come in large numbers: not at first, when nobody knows how heavy they are, and not when they are
/// looked through for some that match.
#[tokio::test]
async fn no_page_is_heavy() {
    for cache in [0, 64 << 20] {
        let world = World::with(0, cache).await;
        for index in 0..12 {
            let labels = json!({"odd": ((index % 2 == 1).to_string())});
            world.create(heavy(&format!("h-{index:02}"), labels)).await;
        }
        for query in [&[][..], &[("labelSelector", "odd=true")], &[("limit", "11")], &[("limit", "500")]] {
            let mut listing = world.listing(query).await;
            let mut names = 0;
            loop {
                let page = listing.objects.page().await.unwrap();
                if page.is_empty() {
                    break;
                }
                names += page.len();
                assert!(page.len() <= 2, "{query:?}: {} objects of {HEAVY} bytes", page.len());
            }
            let expected = match query {
                [("labelSelector", _)] => 6,
                [("limit", "11")] => 11,
                _ => 12,
            };
            assert_eq!(names, expected, "{query:?}");
        }
    }
}

/// A collection is deleted however large it is. The answer names what went as long as that is not much.
#[tokio::test]
async fn deleted_collections_are_told_while_small() {
    let rows =
        [(3, false, "0", 3), (3, true, "0", 3), (6, true, "0", 0), (6, false, "0", 0), (3, false, "2", 2)];
    for (len, dry_run, limit, told) in rows {
        let world = World::with(0, 0).await;
        for index in 0..len {
            world.create(heavy(&format!("h-{index:02}"), json!({}))).await;
        }
        let options = DeleteOptions { dry_run, ..DeleteOptions::default() };
        let (registry, list) = (&world.registry, world.options(&[("limit", limit)]));
        let deleted = registry.delete_collection(&world.context, &world.target, &list, &options).await;
        assert_eq!(deleted.unwrap().0.len(), told, "of {len}, dry run: {dry_run}");
        let left = names(world.listing(&[]).await).await.len();
        let kept = if limit == "0" { 0 } else { len - told };
        assert_eq!(left, if dry_run { len } else { kept });
    }
}
