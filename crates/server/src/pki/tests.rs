use std::sync::atomic::{AtomicUsize, Ordering};

use polder_client::CertificateTerms;
use polder_model::PlaneId;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::{ServerName, UnixTime};

use super::*;
use crate::keys::{DAY, When};

const START: i64 = 1_800_000_000;

struct World {
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        World { directory: tempfile::tempdir().unwrap() }
    }

    fn open(&self, now: i64) -> Pki {
        Pki::open(self.directory.path(), &["localhost".into()], now).unwrap()
    }

    /// What an operator does beside the server.
    fn rotate(&self, family: Family, when: When, now: i64) {
        let file = KeyFile::existing(self.directory.path()).unwrap();
        file.change(|keys| keys.rotate(family, now, when).map(drop)).unwrap();
    }
}

fn at(now: i64) -> UnixTime {
    UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.try_into().unwrap()))
}

/// A kubeconfig: whom it trusts, and who it is of.
struct Held {
    ca: Vec<CertificateDer<'static>>,
    certificate: CertificateDer<'static>,
}

fn held(kubeconfig: &str) -> Held {
    let part = |field: &str| {
        let (_, rest) = kubeconfig.split_once(&format!("{field}: ")).unwrap();
        base64::engine::general_purpose::STANDARD.decode(rest.lines().next().unwrap()).unwrap()
    };
    let all = |pem: &[u8]| CertificateDer::pem_slice_iter(pem).map(Result::unwrap).collect::<Vec<_>>();
    let ca = all(&part("certificate-authority-data"));
    Held { ca, certificate: all(&part("client-certificate-data")).remove(0) }
}

/// Whether the server believes this client, and this client the server.
fn both_believe(pki: &Pki, held: &Held, now: i64) -> [bool; 2] {
    let current = pki.current();
    let client = current.clients.verify_client_cert(&held.certificate, &[], at(now)).is_ok();
    let mut roots = RootCertStore::empty();
    held.ca.iter().for_each(|ca| roots.add(ca.clone()).unwrap());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider()).build().unwrap();
    let (first, rest) = current.serving.chain().split_first().unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let server = verifier.verify_server_cert(first, rest, &name, &[], at(now)).is_ok();
    [client, server]
}

#[test]
fn kubeconfigs_are_good_until_they_end_whatever_happens() {
    let world = World::new();
    let pki = world.open(START);
    // A new one every 50 days; each is tried every 10 days until it ends. For thirty years.
    let mut all: Vec<(i64, Held)> = Vec::new();
    for day in (0..30 * 365).step_by(10) {
        let now = START + day * DAY;
        pki.keep_up(now).unwrap();
        if day % 50 == 0 {
            all.push((now, held(&pki.admin_kubeconfig("https://x", now).unwrap())));
        }
        for (made, held) in &all {
            let is_good = now <= made + LEAF_SECONDS;
            assert_eq!(both_believe(&pki, held, now)[0], is_good, "made {made}, day {day}");
            if is_good {
                assert_eq!(both_believe(&pki, held, now), [true, true], "made {made}, day {day}");
            }
        }
        all.retain(|(made, _)| now <= made + LEAF_SECONDS);
    }
    let newest = pki.current().keys.newest(Family::Authority).unwrap().number;
    assert!(newest >= 4, "the authority was turned over: {newest}");
}

#[test]
fn who_knows_only_the_old_authority_believes_the_server_that_uses_a_new_one() {
    let world = World::new();
    let pki = world.open(START);
    let old = held(&pki.admin_kubeconfig("https://x", START).unwrap());
    for _ in 0..3 {
        world.rotate(Family::Authority, When::Now, START + 10);
        assert!(pki.keep_up(START + 10).unwrap(), "planes are to be told");
        assert_eq!(both_believe(&pki, &old, START + 10), [true, true]);
    }
    let new = held(&pki.admin_kubeconfig("https://x", START + 10).unwrap());
    assert_eq!((new.ca.len(), both_believe(&pki, &new, START + 10)), (4, [true, true]));
    assert!(!pki.keep_up(START + 11).unwrap());
    // In wrong hands: nobody who has it is believed, in the next request on open connections too.
    let epoch = pki.current().epoch;
    let file = KeyFile::existing(world.directory.path()).unwrap();
    file.change(|keys| keys.drop_generation(Family::Authority, 1, START + 12).map(drop)).unwrap();
    pki.keep_up(START + 12).unwrap();
    assert!(pki.current().epoch > epoch);
    assert_eq!(both_believe(&pki, &old, START + 12), [false, false], "and nothing leads on from it");
    assert_eq!(both_believe(&pki, &new, START + 12), [true, true]);
}

/// What leads clients from an old authority to a new one leads nobody in here: a server that believes only the old one does not
/// believe a client that shows both.
#[test]
fn clients_are_believed_by_no_detour() {
    let (world, copy) = (World::new(), World::new());
    let pki = world.open(START);
    fs::copy(world.directory.path().join("keys.json"), copy.directory.path().join("keys.json")).unwrap();
    world.rotate(Family::Authority, When::Now, START);
    pki.keep_up(START).unwrap();
    let new = held(&pki.admin_kubeconfig("https://x", START).unwrap());
    let crosses = pki.current().keys.crosses(Family::Authority, START).unwrap();
    assert_eq!(crosses.len(), 1);
    let verify = |pki: &Pki, rest: &[CertificateDer<'_>]| {
        pki.current().clients.verify_client_cert(&new.certificate, rest, at(START)).is_ok()
    };
    assert!(verify(&pki, &[]) && verify(&pki, &crosses));
    assert!(!verify(&copy.open(START), &[]) && !verify(&copy.open(START), &crosses));
}

#[test]
fn certificates_of_planes_outlive_the_authority_they_came_from() {
    let world = World::new();
    let pki = world.open(START);
    let request = || {
        let params = named(&[(DnType::CommonName, "ann")], START, DAY);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    };
    let authority = pki.plane_authority();
    let sign = |now: i64| {
        let terms = CertificateTerms {
            usages: vec!["client auth".into()],
            not_before: now - 300,
            not_after: now + LEAF_SECONDS,
        };
        let pem = authority.sign(PlaneId(7), request().as_bytes(), &terms).unwrap();
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().into_owned()
    };
    let is_good = |pki: &Pki, certificate: &CertificateDer<'_>, now: i64| {
        pki.current().clients.verify_client_cert(certificate, &[], at(now)).is_ok()
    };
    let old = sign(START);
    world.rotate(Family::Authority, When::Now, START + 1);
    pki.keep_up(START + 1).unwrap();
    let new = sign(START + 1);
    let restarted = world.open(START + 2);
    for pki in [&pki, &restarted] {
        assert!(is_good(pki, &old, START + 2) && is_good(pki, &new, START + 2));
    }
    pki.keep_up(START + LEAF_SECONDS - 1).unwrap();
    assert!(is_good(&pki, &old, START + LEAF_SECONDS - 1));
    pki.keep_up(START + LEAF_SECONDS + 2 * DAY).unwrap();
    assert_eq!(pki.current().keys.of(Family::Authority).len(), 1, "nothing it signed is about");
}

#[test]
fn certificates_that_are_shown_are_renewed() {
    let world = World::new();
    let pki = world.open(START);
    let shown = || pki.current().serving.chain()[0].clone();
    let admin = world.directory.path().join("admin.kubeconfig");
    pki.admin_write(&admin, "https://x", START).unwrap();
    let first = shown();
    pki.keep_up(START + 243 * DAY).unwrap();
    assert!(shown() == first && !pki.is_admin_due(START + 243 * DAY), "two thirds of a year are not over");
    pki.keep_up(START + 244 * DAY).unwrap();
    assert!(shown() != first && pki.is_admin_due(START + 244 * DAY));
    pki.admin_write(&world.directory.path().join("not/there"), "https://x", START + 244 * DAY).unwrap_err();
    assert!(pki.is_admin_due(START + 244 * DAY), "what was not written is due");
    pki.admin_write(&admin, "https://x", START + 244 * DAY).unwrap();
    assert!(!pki.is_admin_due(START + 244 * DAY));
    let second = shown();
    let file = KeyFile::existing(world.directory.path()).unwrap();
    let now = START + 245 * DAY;
    file.change(|keys| {
        (keys.serving_from, keys.admin_from) = (now, now);
        Ok(())
    })
    .unwrap();
    pki.keep_up(now).unwrap();
    assert!(shown() != second && pki.is_admin_due(now), "an operator asks for it");
    let third = shown();
    pki.keep_up(now).unwrap();
    assert!(shown() == third, "once");
    let ends = pki.ends(now);
    let end = |name: &str| ends.iter().find(|(own, _)| own == name).unwrap().1;
    assert_eq!((end("serving"), end("admin")), (now + LEAF_SECONDS, START + 244 * DAY + LEAF_SECONDS));
    assert_eq!(end("authority-1"), START + 3_650 * DAY);
}

/// The server shows nothing that an authority has signed which was dropped, however long it was used before that.
#[test]
fn a_dropped_authority_vouches_for_nobody() {
    let world = World::new();
    let pki = world.open(START);
    let old = held(&pki.admin_kubeconfig("https://x", START).unwrap());
    world.rotate(Family::Authority, When::Now, START);
    pki.keep_up(START).unwrap();
    assert_eq!(both_believe(&pki, &old, START), [true, true], "it is led on");
    let file = KeyFile::existing(world.directory.path()).unwrap();
    file.change(|keys| keys.drop_generation(Family::Authority, 1, START).map(drop)).unwrap();
    pki.keep_up(START + 1).unwrap();
    assert_eq!(both_believe(&pki, &old, START + 1), [false, false]);
}

#[test]
fn planes_are_told_once() {
    let world = World::new();
    let pki = world.open(START);
    assert!(!pki.is_untold() && !pki.has_changed(), "new planes know it");
    world.rotate(Family::FrontProxy, When::Told, START);
    pki.keep_up(START).unwrap();
    assert!(pki.is_untold() && pki.has_changed());
    assert!(world.open(START).is_untold(), "a stop in the middle of it");
    pki.note_told(pki.digest()).unwrap();
    pki.keep_up(START + 1).unwrap();
    assert!(!pki.is_untold());
    pki.keep_up(START + DAY + 1).unwrap();
    assert!(!pki.is_untold(), "it is used now; who knew it knows it");
    pki.keep_up(START + 3 * DAY).unwrap();
    assert!(pki.is_untold(), "the old one is gone");
    assert!(world.open(START + 3 * DAY).is_untold());
}

/// Who keeps tokens hears of a key that was dropped, and not of one that is new.
#[test]
fn planes_are_told_of_dropped_keys_of_tokens() {
    let world = World::new();
    let pki = world.open(START);
    world.rotate(Family::ServiceAccounts, When::Now, START);
    pki.keep_up(START).unwrap();
    assert!(!pki.is_untold());
    let file = KeyFile::existing(world.directory.path()).unwrap();
    file.change(|keys| keys.drop_generation(Family::ServiceAccounts, 1, START).map(drop)).unwrap();
    pki.keep_up(START).unwrap();
    assert!(pki.is_untold() && world.open(START).is_untold());
    pki.note_told(pki.digest()).unwrap();
    pki.keep_up(START + 1).unwrap();
    assert!(!pki.is_untold());
}

/// A certificate of the provider's, in the form of files.
fn provided(names: &[&str]) -> ServingFiles {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = named(&[(DnType::CommonName, "provider")], START, 3_650 * DAY);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::from_ca_cert_pem(&authority, authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = named(&[(DnType::CommonName, "api")], START, 90 * DAY);
    for name in names {
        params.subject_alt_names.push(match name.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().unwrap()),
        });
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    ServingFiles {
        name: "tls.crt".into(),
        certificates: params.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
        authority: Some(authority),
        names: Vec::new(),
    }
}

#[test]
fn certificates_of_the_provider_are_shown_for_their_names() {
    let world = World::new();
    let pki = world.open(START);
    let first = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let shown = |name: Option<&str>| {
        let current = pki.current();
        let shown = Shown { own: current.serving.clone(), provided: current.provided.clone() };
        shown.chain(name)[0].clone()
    };
    let own = shown(None);
    assert!(!pki.is_untold());
    let (api, planes) = (provided(&["api.example.org"]), provided(&["*.planes.example.org", "192.0.2.1"]));
    pki.set_serving(vec![api.clone(), planes.clone()], START).unwrap();
    for (name, expected) in [
        (Some("api.example.org"), &first(&api.certificates)),
        (Some("API.Example.org"), &first(&api.certificates)),
        (Some("acme.planes.example.org"), &first(&planes.certificates)),
        (Some("a.b.planes.example.org"), &own),
        (Some("localhost"), &own),
        (None, &first(&planes.certificates)),
    ] {
        assert_eq!(shown(name), *expected, "{name:?}");
    }
    let held = held(&pki.admin_kubeconfig("https://x", START).unwrap());
    let authorities = [&api, &planes].map(|own| first(own.authority.as_ref().unwrap()));
    assert!(authorities.iter().all(|ca| held.ca.contains(ca)), "kubeconfigs tell of them");
    assert_eq!((held.ca.len(), both_believe(&pki, &held, START)), (3, [true, true]));
    assert!(pki.is_untold(), "and planes");
    assert!(pki.ends(START).contains(&("tls-1".into(), START + 90 * DAY)));

    // Another one takes its place; one that cannot be used does not.
    let newer = provided(&["api.example.org"]);
    pki.set_serving(vec![newer.clone()], START).unwrap();
    assert_eq!(shown(Some("api.example.org")), first(&newer.certificates));
    assert_eq!(shown(None), own);
    for (what, wrong) in [
        ("do not go together", ServingFiles { key: api.key.clone(), ..newer.clone() }),
        ("no certificate in it", ServingFiles { certificates: String::new(), ..newer.clone() }),
        ("its key is none", ServingFiles { key: newer.certificates.clone(), ..newer.clone() }),
        ("no certificate of its authority", ServingFiles { authority: Some("x".into()), ..newer.clone() }),
        ("for no name", provided(&[])),
    ] {
        let said = pki.set_serving(vec![wrong], START).unwrap_err().to_string();
        assert!(said.starts_with("tls.crt cannot be used: ") && said.contains(what), "{said}");
    }
    assert_eq!(shown(Some("api.example.org")), first(&newer.certificates));
    pki.keep_up(START + 244 * DAY).unwrap();
    assert_eq!(shown(Some("api.example.org")), first(&newer.certificates), "whatever becomes of its own");
    // Without an authority, the last certificate is what to trust; and names may be chosen.
    let alone = ServingFiles { authority: None, names: vec!["other.example.org".into()], ..newer };
    pki.set_serving(vec![alone.clone()], START).unwrap();
    assert!(pki.ca().contains(alone.certificates.trim()));
    assert_eq!(shown(Some("other.example.org")), first(&alone.certificates));
    assert_eq!(shown(Some("api.example.org")), shown(None));
}

/// The files of a server that had each key in a file of its own; from then on it has them in one.
#[test]
fn keys_from_before_are_taken_over() {
    let world = World::new();
    let make = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = named(&[(DnType::CommonName, name)], START, 3_650 * DAY);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let write = |name: &str, text: &str| fs::write(world.directory.path().join(name), text).unwrap();
    let ((ca, ca_key), (proxy, proxy_key)) = (make("polder"), make("polder-front-proxy"));
    write("ca.crt", &ca);
    write("ca.key", &ca_key);
    write("front-proxy-ca.crt", &proxy);
    write("front-proxy-ca.key", &proxy_key);
    write("service-accounts.key", &make("x").1);
    let pki = world.open(START + DAY);
    assert_eq!((pki.ca(), pki.front_proxy_ca()), (ca.clone(), proxy));
    let held = held(&pki.admin_kubeconfig("https://x", START + DAY).unwrap());
    assert_eq!(both_believe(&pki, &held, START + DAY), [true, true]);
    assert!(!world.directory.path().join("ca.key").exists(), "keys are in one place");
    assert_eq!(world.open(START + DAY).ca(), ca);
    // Without its keys an authority is of no use, and another one is not made in its place.
    fs::remove_file(world.directory.path().join("keys.json")).unwrap();
    let refused = Pki::open(world.directory.path(), &[], START).err().unwrap();
    assert!(matches!(refused, PkiError::Unusable { .. }), "{refused}");
}

/// Whatever step of a change a kill comes after, what is found is the state before it or after it.
#[test]
fn a_kill_leaves_one_state_or_the_other() {
    let world = World::new();
    let pki = world.open(START);
    let old = held(&pki.admin_kubeconfig("https://x", START).unwrap());
    let before = fs::read(world.directory.path().join("keys.json")).unwrap();
    world.rotate(Family::Authority, When::Now, START);
    let after = fs::read(world.directory.path().join("keys.json")).unwrap();
    let tried = AtomicUsize::new(0);
    for len in (0..=after.len()).step_by(97).chain([after.len()]) {
        // Half of the new file is beside the old one; then it has taken its place; what people read is behind.
        for current in [&before, &after] {
            fs::write(world.directory.path().join("keys.new"), &after[..len]).unwrap();
            fs::write(world.directory.path().join("keys.json"), current).unwrap();
            let pki = world.open(START + 1);
            assert_eq!(both_believe(&pki, &old, START + 1), [true, true]);
            tried.fetch_add(1, Ordering::Relaxed);
        }
    }
    assert!(tried.load(Ordering::Relaxed) > 10);
}

#[test]
fn keys_are_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    world.open(START);
    let mode = fs::metadata(world.directory.path().join("keys.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
