//! A disk that is really full: a small file system of its own, filled to the last byte. Needs the right to mount one;
//! without it the test says so and does nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

use polder_model::{GroupResource, PlaneId, json};
use polder_store::engine::EngineError;
use polder_store::{
    Change, CommitError, Expect, Key, ListQuery, ObjectName, Record, ResourceId, Store, StoreOptions,
};
use polder_store_embedded::{Options, SqliteEngine, verify};

/// A mounted file system; unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, size: &str) -> Option<SmallDisk> {
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| SmallDisk(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

fn open(directory: &Path) -> std::sync::Arc<Store> {
    let engine = SqliteEngine::open(directory, &Options::default()).expect("the directory is a store");
    let options = StoreOptions { cache_bytes_max: 0, recent_bytes_max: 0, ..StoreOptions::default() };
    Store::open(Box::new(engine), options, "", |_, _| Vec::new()).expect("the store opens")
}

/// Text that does not compress.
fn noise(mut seed: u64) -> String {
    let next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from_digit(u32::try_from(seed >> 59).unwrap_or_default(), 36).unwrap_or('x')
    };
    std::iter::repeat_with(next).take(6_000).collect()
}

fn put(resource: ResourceId, index: u64) -> Change {
    let key = Key { plane: PlaneId::CORE, resource, name: ObjectName::new("ns", format!("n{index:06}")) };
    let record = Record::encode(&json!({"metadata": {"name": "x"}, "data": {"noise": (noise(index))}}));
    Change::put(key, record, Expect::Absent)
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_wait_for_room_and_reads_go_on() {
    let home = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(home.path(), "12m") else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let (directory, ballast) = (disk.0.join("store"), disk.0.join("ballast"));
    std::fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    let store = open(&directory);
    let resource = store.resource_id(&GroupResource::new("", "things"));
    let plane = store.plane("core").unwrap();

    let mut written = 0;
    for round in 0..3 {
        let error = loop {
            match store.commit(put(resource, written)).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 10_000, "it is never full");
        };
        let CommitError::Engine(cause) = &error else { panic!("round {round}: {error:?}") };
        assert!(matches!(**cause, EngineError::Full(_)), "round {round}: {cause:?}");
        assert!(written > 100, "only {written} fitted");
        // Nothing of it happened, what was there is there, and it stays that way however often it is tried.
        for _ in 0..20 {
            let again = store.commit(put(resource, written)).await;
            assert!(matches!(again, Err(CommitError::Engine(_))), "round {round}: {again:?}");
        }
        assert!(store.is_running());
        let page = store.list(&plane, ListQuery::all(resource)).await.unwrap();
        assert_eq!(page.objects.len() as u64, written, "round {round}");
        let name = ObjectName::new("ns", "n000007");
        assert!(store.get(&plane, resource, &name).await.unwrap().is_some());

        if round < 2 {
            let len = std::fs::metadata(&ballast).unwrap().len();
            std::fs::OpenOptions::new().write(true).open(&ballast).unwrap().set_len(len - (1 << 20)).unwrap();
        }
    }
    // As after a kill on a full disk: the files as they are, put where there is room.
    let killed = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "LOCK" {
            std::fs::copy(entry.path(), killed.path().join(entry.file_name())).unwrap();
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    store.commit(put(resource, written)).await.unwrap();
    written += 1;
    store.close();
    drop(store);
    for (directory, expected) in [(directory.as_path(), written), (killed.path(), written - 1)] {
        assert_eq!(verify(directory).unwrap().problems, Vec::<String>::new());
        let store = open(directory);
        let page = store.list(&store.plane("core").unwrap(), ListQuery::all(resource)).await.unwrap();
        assert_eq!(page.objects.len() as u64, expected);
        store.close();
    }
}
