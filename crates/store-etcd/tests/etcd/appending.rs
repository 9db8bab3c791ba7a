//! Entries, one by one: long ones, doubtful ones, forgotten ones; and who leads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use polder_client_http::grpc::Identity;
use polder_model::{GroupResource, PlaneId, json};
use polder_store::engine::{Batch, EngineError, FilledVersion, LogEntry, ObjectWrite, Version};
use polder_store::replica::{Act, Entry, Journal as _, Kept, Position, Snapshot};
use polder_store::{ObjectName, Record, ResourceId, Revision, SpaceId};
use polder_store_etcd::client::Client;
use polder_store_etcd::wire::Range;
use polder_store_etcd::{EtcdJournal, JournalOptions};

use crate::cluster::{self, Way};

const SPACE: SpaceId = SpaceId(7);
const RESOURCE: ResourceId = ResourceId(3);

fn open(options: &JournalOptions) -> EtcdJournal {
    EtcdJournal::open(JournalOptions { is_candidate: false, ..options.clone() }).unwrap()
}

fn record(text: &str) -> Record {
    Record::encode(&json!({"metadata": {"name": "x"}, "data": {"text": text}}))
}

fn names() -> Vec<(ResourceId, GroupResource)> {
    vec![(RESOURCE, GroupResource::new("example.com", "widgets"))]
}

/// A batch of one commit for each of some objects: name and text; no text deletes.
fn entry(first: u64, objects: &[(&str, Option<&str>)]) -> Entry {
    let write = |(index, (name, text)): (u64, &(&str, Option<&str>))| ObjectWrite {
        entry: LogEntry {
            revision: Revision(first + index),
            plane: PlaneId(2),
            space: SPACE,
            resource: RESOURCE,
            name: ObjectName::new("n", *name),
            deleted: text.is_none(),
            previous: None,
            before: Some(Revision(1)),
        },
        record: text.map(record),
    };
    let batch = Batch {
        first: Revision(first),
        last: Revision(first + objects.len() as u64 - 1),
        objects: (0..).zip(objects).map(write).collect(),
        notes: vec![("note".into(), Some(b"value"[..].into()))],
        ..Batch::default()
    };
    Entry { revision: batch.last, act: Act::Apply(batch), names: names(), bare: Vec::new() }
}

#[track_caller]
fn next(journal: &mut EtcdJournal, after: Position) -> (Position, Entry) {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some((position, entry)) = journal.next(after).unwrap() {
            return (position, (*entry).clone());
        }
        assert!(Instant::now() < patience, "nothing arrives");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Adds entries with one replica; another that is there and one that comes later see just them.
#[track_caller]
fn check_entries(options: &JournalOptions, entries: &[Entry]) {
    let (mut writer, mut reader) = (open(options), open(options));
    assert!(reader.next(Position(0)).unwrap().is_none());
    let mut last = Position(0);
    let mut added = Vec::new();
    for entry in entries {
        let position = writer.append(last, entry).unwrap().unwrap();
        assert!(position > last);
        assert_eq!(writer.append(last, entry).unwrap(), None, "behind what is not the last");
        last = position;
        added.push(position);
    }
    assert!(writer.next(last).unwrap().is_none(), "its own are not news to it");
    for reader in [&mut reader, &mut open(options)] {
        let mut after = Position(0);
        for (entry, position) in entries.iter().zip(&added) {
            let (found, seen) = next(reader, after);
            assert_eq!((found, format!("{seen:?}")), (*position, format!("{entry:?}")));
            after = found;
        }
        assert!(reader.next(after).unwrap().is_none());
    }
    let mut returned = open(options);
    assert!(returned.next(last).unwrap().is_none());
    let next_entry = entry(1_000, &[("last", Some("one"))]);
    assert!(returned.append(added[0], &next_entry).unwrap().is_none() || added.len() == 1);
    assert!(returned.append(last, &next_entry).unwrap().is_some());
}

#[test]
fn entries_arrive_as_they_were() {
    let Some(url) = cluster::shared() else { return };
    let version = |name: &str, revision, text: Option<&str>| FilledVersion {
        resource: RESOURCE,
        name: ObjectName::new("n", name),
        version: Version { revision: Revision(revision), record: text.map(record) },
    };
    let filled = vec![version("a", 1, Some("filled")), version("gone", 1, None)];
    let rewritten = vec![version("a", 3, Some("again")), version("b", 1, Some("too old"))];
    check_entries(
        &cluster::history(url),
        &[
            entry(1, &[("a", Some("one")), ("b", Some("two")), ("a", Some("three")), ("b", None)]),
            entry(5, &[("a/../b", Some("odd")), ("%", Some("odder"))]),
            Entry {
                act: Act::Fill(SpaceId(8), filled),
                revision: Revision(6),
                names: names(),
                bare: Vec::new(),
            },
            Entry {
                act: Act::Rewrite(SPACE, rewritten),
                revision: Revision(6),
                names: names(),
                bare: Vec::new(),
            },
        ],
    );
}

#[test]
fn long_entries_are_whole_or_not_there() {
    let Some(url) = cluster::shared() else { return };
    let many: Vec<String> = (0..300).map(|index| format!("object-{index}")).collect();
    let many: Vec<(&str, Option<&str>)> = many.iter().map(|name| (name.as_str(), Some("x"))).collect();
    let long = "x".repeat(1_000_000);
    let long =
        [("long", Some(long.as_str())), ("other", Some(&long)), ("third", Some(&long)), ("short", Some("x"))];
    let options = cluster::history(url);
    check_entries(&options, &[entry(1, &many), entry(301, &long), entry(305, &[("a", None)])]);
    let longer = "x".repeat(2_000_000);
    let outcome = open(&cluster::history(url)).append(Position(0), &entry(1, &[("a", Some(&longer))]));
    assert!(matches!(outcome, Err(EngineError::Failed(_))), "an object that no key can hold: {outcome:?}");
}

/// Whoever is cut off while it adds a long entry leaves it whole or not at all, and others go on.
#[test]
fn half_of_a_long_entry_is_none() {
    let Some(url) = cluster::shared() else { return };
    let options = cluster::history(url);
    let mut other = open(&options);
    let (mut at, mut first, mut there) = (Position(0), 1, BTreeMap::new());
    let mut whole = 0;
    for round in 0..10 {
        let way = Way::to(url);
        let mut own = JournalOptions { timeout: Duration::from_millis(2_500), ..options.clone() };
        own.client.endpoints = vec![way.url()];
        let names: Vec<String> = (0..300).map(|index| format!("{round}-{}", index % 200)).collect();
        let many: Vec<(&str, Option<&str>)> = names.iter().map(|name| (name.as_str(), Some("x"))).collect();
        let mut writer = open(&own);
        let ready = writer.append(at, &entry(first, &[("a", Some("ready"))])).unwrap();
        std::thread::scope(|scope| {
            let adding = scope.spawn(|| writer.append(ready.unwrap(), &entry(first + 1, &many)));
            // The last one is not cut off before it is over.
            std::thread::sleep(Duration::from_millis(if round == 9 { 5_000 } else { 9 * round }));
            way.cut();
            let outcome = adding.join().unwrap();
            assert!(!matches!(outcome, Ok(None) | Err(EngineError::Damaged(_))), "{outcome:?}");
        });
        // It may still be under way: then somebody else is overtaken, but not for long.
        loop {
            while let Some((position, entry)) = other.next(at).unwrap() {
                let Act::Apply(batch) = &entry.act else { panic!("{entry:?}") };
                whole += usize::from(batch.objects.len() == 300);
                there.extend(
                    batch.objects.iter().map(|write| (write.entry.name.clone(), write.entry.revision)),
                );
                (at, first) = (position, batch.last.0 + 1);
            }
            if let Some(position) = other.append(at, &entry(first, &[("b", Some("next"))])).unwrap() {
                there.insert(ObjectName::new("n", "b"), Revision(first));
                (at, first) = (position, first + 1);
                break;
            }
        }
        let mut kept = BTreeMap::new();
        let snapshot = open(&options).snapshot(&mut |part| {
            kept.extend(part.into_iter().filter_map(|kept| match kept {
                Kept::Object { name, version, .. } => Some((name, version.revision)),
                _ => None,
            }));
            Ok(())
        });
        assert_eq!(snapshot.unwrap(), Snapshot { position: at, current: Revision(first - 1) });
        assert_eq!(kept, there, "round {round}");
    }
    assert!(whole > 0, "nothing was cut off late enough");
}

/// While the last entry stands in pieces, keys say what was before it: whoever rewrites that does not put it back.
#[test]
fn rewrites_put_nothing_back() {
    let Some(url) = cluster::shared() else { return };
    let options = cluster::history(url);
    let client = Client::new(options.client.clone()).unwrap();
    let runtime = runtime();
    let find = |key: &str| {
        let key = format!("{}/{key}", options.prefix);
        let range = Range { key: key.as_bytes(), ..Range::default() };
        let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
        let found = runtime.block_on(async { client.range(&range, deadline).await.unwrap().found });
        found.first().map(|found| found.modified)
    };
    let objects: Vec<String> = (0..300).map(|index| format!("o{index:03}")).collect();
    let mut other = open(&options);
    let last = objects.last().unwrap().as_str();
    let (mut at, mut first) = (Position(0), 1);
    for _ in 0..20 {
        at = other.append(at, &entry(first, &[(last, Some("old"))])).unwrap().unwrap();
        // So small that it takes a while until all keys say it.
        let way = Way::to(url);
        let timeout = Duration::from_secs(1);
        let mut own = JournalOptions { txn_ops_max: 4, timeout, ..options.clone() };
        own.client.endpoints = vec![way.url()];
        let mut writer = open(&own);
        assert!(writer.next(at).unwrap().is_none());
        let many: Vec<(&str, Option<&str>)> =
            objects.iter().map(|name| (name.as_str(), Some("new"))).collect();
        let long = entry(first + 1, &many);
        let added = std::thread::scope(|scope| {
            let adding = scope.spawn(|| writer.append(at, &long));
            while find("head") == Some(at.0) {}
            way.cut();
            adding.join().unwrap()
        });
        let (position, _) = next(&mut other, at);
        assert!(matches!(added, Ok(Some(own)) if own == position), "{added:?}");
        let is_half = find("mark").is_some();
        let version = Version { revision: Revision(first), record: Some(record("rewritten")) };
        let rewritten = FilledVersion { resource: RESOURCE, name: ObjectName::new("n", last), version };
        let act = Act::Rewrite(SPACE, vec![rewritten]);
        let rewrite = Entry { act, revision: Revision(first + 300), names: names(), bare: Vec::new() };
        at = other.append(position, &rewrite).unwrap().unwrap();
        let mut found = None;
        let kept = other.snapshot(&mut |part| {
            found = found.take().or(part.into_iter().find_map(|kept| match kept {
                Kept::Object { name, version, .. } if name.name == last => Some(version.revision),
                _ => None,
            }));
            Ok(())
        });
        kept.unwrap();
        first += 301;
        assert_eq!(found, Some(Revision(first - 1)));
        if is_half {
            return;
        }
    }
    panic!("nothing stays in pieces");
}

/// The answer to an entry gets lost: it was added, and that is found out.
#[test]
fn lost_answers_are_found_again() {
    let Some(url) = cluster::shared() else { return };
    let options = cluster::history(url);
    let way = Way::to(url);
    let mut own = options.clone();
    own.client.endpoints = vec![way.url()];
    own.client.call_timeout = Duration::from_millis(700);
    let mut writer = open(&own);
    let first = writer.append(Position(0), &entry(1, &[("a", Some("one"))])).unwrap().unwrap();
    way.mute(true);
    let second = entry(2, &[("a", Some("two"))]);
    let heard = std::thread::scope(|scope| {
        let adding = scope.spawn(|| writer.append(first, &second));
        // Whoever looks elsewhere sees when it has been added.
        let mut reader = open(&options);
        let (position, seen) = next(&mut reader, first);
        assert_eq!(format!("{seen:?}"), format!("{second:?}"));
        way.mute(false);
        assert_eq!(adding.join().unwrap().unwrap(), Some(position));
        position
    });
    assert!(writer.next(heard).unwrap().is_none());
    assert!(writer.append(heard, &entry(3, &[("a", None)])).unwrap().is_some());
}

/// The same, but nobody answers in time: it is said that nobody knows.
#[test]
fn answers_that_stay_away_are_told() {
    let Some(url) = cluster::shared() else { return };
    let way = Way::to(url);
    let mut options = JournalOptions { timeout: Duration::from_secs(2), ..cluster::history(url) };
    options.client.endpoints = vec![way.url()];
    options.client.call_timeout = Duration::from_millis(500);
    let mut writer = open(&options);
    let first = writer.append(Position(0), &entry(1, &[("a", Some("one"))])).unwrap().unwrap();
    way.mute(true);
    let outcome = writer.append(first, &entry(2, &[("a", Some("two"))]));
    assert!(matches!(outcome, Err(EngineError::Unknown(_))), "{outcome:?}");
    way.mute(false);
    way.cut();
    let outcome = open(&options).append(first, &entry(2, &[("a", Some("two"))]));
    assert!(matches!(outcome, Err(EngineError::Unavailable(_))), "nobody can have heard of it: {outcome:?}");
}

#[test]
fn another_member_answers() {
    let Some(url) = cluster::shared() else { return };
    let mut options = cluster::history(url);
    let nobody = format!("http://127.0.0.1:{}", cluster::free_port());
    let (first, second) = (Way::to(url), Way::to(url));
    options.client.endpoints = vec![nobody, first.url(), second.url()];
    let (mut writer, mut reader) = (open(&options), open(&options));
    let one = entry(1, &[("a", Some("one"))]);
    let at = writer.append(Position(0), &one).unwrap().unwrap();
    assert_eq!(next(&mut reader, Position(0)).0, at);
    for way in [&first, &second] {
        way.cut();
        let two = entry(2, &[("a", Some("two"))]);
        assert_eq!(writer.append(Position(0), &two).unwrap(), None);
        way.open();
    }
    first.cut();
    let at = writer.append(at, &entry(2, &[("a", Some("two"))])).unwrap().unwrap();
    assert_eq!(next(&mut reader, Position(at.0 - 1)).0, at);
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn what_etcd_has_forgotten_is_told() {
    // Compaction is for all of an etcd.
    let Some((mut etcd, url)) = cluster::start(&[]) else { return };
    let options = cluster::history(&url);
    let mut writer = open(&options);
    let mut at = Position(0);
    let mut first = None;
    for round in 1..10 {
        at = writer.append(at, &entry(round, &[("a", Some("one"))])).unwrap().unwrap();
        first = first.or(Some(at));
    }
    let client = Client::new(options.client.clone()).unwrap();
    let deadline = || tokio::time::Instant::now() + Duration::from_secs(10);
    runtime().block_on(async { client.compact(at.0, deadline()).await.unwrap() });
    for after in [Position(0), first.unwrap()] {
        let mut late = open(&options);
        let outcome = late.next(after);
        assert!(matches!(outcome, Err(EngineError::Compacted)), "{outcome:?}");
    }
    let mut returned = open(&options);
    assert!(returned.next(at).unwrap().is_none(), "nothing of what was forgotten is missed");
    let again = runtime().block_on(async { client.compact(at.0, deadline()).await });
    assert!(again.is_ok(), "{again:?}");
    let other = cluster::history(&url);
    assert!(open(&other).append(Position(0), &entry(1, &[("a", None)])).unwrap().is_some(), "a new history");
    let mut wrong = open(&other);
    assert!(matches!(wrong.next(Position(u64::MAX)), Err(EngineError::Damaged(_))));
    etcd.stdin.take();
    etcd.wait().unwrap();
}

/// One leads; when it leaves, another does. What is old is forgotten by whoever leads.
#[test]
fn one_leads_and_forgets() {
    let Some((mut etcd, url)) = cluster::start(&[]) else { return };
    let options = JournalOptions { history: Some(Duration::from_secs(1)), ..cluster::history(&url) };
    let mut journals: Vec<EtcdJournal> =
        (0..3).map(|_| EtcdJournal::open(options.clone()).unwrap()).collect();
    let wait = |what: &str, is_so: &mut dyn FnMut() -> bool| {
        let patience = Instant::now() + Duration::from_secs(30);
        while !is_so() {
            assert!(Instant::now() < patience, "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut at = Position(0);
    for left in [3, 2, 1] {
        wait("nobody leads", &mut || journals.iter().any(|journal| journal.leads()));
        assert_eq!(journals.iter().filter(|journal| journal.leads()).count(), 1, "of {left}");
        let leader = journals.iter().position(|journal| journal.leads()).unwrap();
        let mut leader = journals.remove(leader);
        while let Some((position, _)) = leader.next(at).unwrap() {
            at = position;
        }
        at = leader.append(at, &entry(4 - left, &[("a", Some("one"))])).unwrap().unwrap();
        if left == 1 {
            let client = Client::new(options.client.clone()).unwrap();
            let old = |revision| {
                let range = Range { key: b"/", revision, ..Range::default() };
                let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
                runtime().block_on(async { client.range(&range, deadline).await }).is_err()
            };
            wait("nothing is forgotten", &mut || old(2));
        }
    }
    etcd.stdin.take();
    etcd.wait().unwrap();
}

#[test]
fn users_and_passwords() {
    let Some((mut etcd, url)) = cluster::start(&[]) else { return };
    let ask = |path: &str, body: &str| cluster::post(&url, path, body);
    ask("/v3/auth/user/add", r#"{"name": "root", "password": "secret"}"#);
    ask("/v3/auth/role/add", r#"{"name": "root"}"#);
    ask("/v3/auth/user/grant", r#"{"user": "root", "role": "root"}"#);
    ask("/v3/auth/enable", "{}");
    let mut options = JournalOptions { timeout: Duration::from_secs(5), ..cluster::history(&url) };
    let outcome = open(&options).next(Position(0));
    assert!(matches!(outcome, Err(EngineError::Failed(_))), "{outcome:?}");
    options.client.user = Some(("root".into(), "wrong".into()));
    let outcome = open(&options).next(Position(0));
    assert!(matches!(outcome, Err(EngineError::Failed(_))), "{outcome:?}");
    options.client.user = Some(("root".into(), "secret".into()));
    let way = Way::to(&url);
    let mut own = options.clone();
    own.client.endpoints = vec![way.url()];
    let (mut writer, mut reader) = (open(&options), open(&own));
    let first = writer.append(Position(0), &entry(1, &[("a", Some("one"))])).unwrap().unwrap();
    assert_eq!(next(&mut reader, Position(0)).0, first);
    // A new user makes all tokens old, for calls and for a watch that begins again.
    let token = ask("/v3/auth/authenticate", r#"{"name": "root", "password": "secret"}"#);
    let token = token.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap();
    cluster::post_as(&url, "/v3/auth/user/add", r#"{"name": "ann", "password": "secret"}"#, token);
    way.cut();
    let second = writer.append(first, &entry(2, &[("a", Some("two"))])).unwrap().unwrap();
    way.open();
    assert_eq!(next(&mut reader, first).0, second);
    etcd.stdin.take();
    etcd.wait().unwrap();
}

#[test]
fn certificates() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, pem: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let (certificate, key) = (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem());
    let files = [file("ca", &authority), file("certificate", &certificate), file("key", &key)];
    let [authority_file, certificate_file, key_file] = &files;
    let arguments =
        ["--trusted-ca-file", authority_file, "--cert-file", certificate_file, "--key-file", key_file];
    let arguments = [&arguments[..], &["--client-cert-auth"]].concat();
    let Some((mut etcd, url)) = cluster::start_with("https", &arguments) else { return };
    let mut options = JournalOptions { timeout: Duration::from_secs(3), ..cluster::history(&url) };
    let authorities = Some(authority.into_bytes());
    for (authorities, certificate, is_right) in [
        (authorities.clone(), None, false),
        (Some(certificate.clone().into_bytes()), Some((certificate.clone(), key.clone())), false),
        (authorities, Some((certificate, key)), true),
    ] {
        let certificate = certificate.map(|(chain, key)| (chain.into_bytes(), key.into_bytes()));
        options.client.identity = Identity { authorities, certificate };
        let outcome = open(&options).append(Position(0), &entry(1, &[("a", Some("one"))]));
        assert_eq!(matches!(&outcome, Ok(Some(_))), is_right, "{outcome:?}");
        assert!(is_right || matches!(&outcome, Err(EngineError::Unavailable(_))), "{outcome:?}");
    }
    etcd.stdin.take();
    etcd.wait().unwrap();
}

#[test]
fn a_full_etcd_is_told() {
    let Some((mut etcd, url)) = cluster::start(&["--quota-backend-bytes", "4000000"]) else { return };
    let options = cluster::history(&url);
    let mut writer = open(&options);
    let long = "x".repeat(1_000_000);
    let mut at = Position(0);
    let outcome = loop {
        let first = at.0 + 1;
        match writer.append(at, &entry(first, &[(&format!("o{first}"), Some(&long))])) {
            Ok(added) => at = added.unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(outcome, EngineError::Full(_)), "{outcome:?}");
    let mut reader = open(&options);
    let mut after = Position(0);
    while after < at {
        after = next(&mut reader, after).0;
    }
    assert!(reader.next(at).unwrap().is_none(), "what was refused is not there");
    etcd.stdin.take();
    etcd.wait().unwrap();
}
