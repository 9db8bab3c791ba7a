//! Lost answers, lost sessions, lost servers; whom the server does not know, and what it has lost.

use std::time::{Duration, Instant};

use polder_client_http::grpc::Identity;
use polder_store::engine::EngineError;
use polder_store::replica::{Journal as _, Position};
use polder_store_postgres::JournalOptions;

use crate::appending::{PATIENCE, add, entry, next, open};
use crate::cluster::{self, Postgres, Way};

/// The answer to an entry gets lost: it was added, and that is found out.
#[test]
fn lost_answers_are_found_again() {
    let Some(port) = cluster::shared() else { return };
    let options = cluster::history(port);
    let way = Way::to(&format!("127.0.0.1:{port}"));
    let call_timeout = Duration::from_millis(1_500);
    let own = JournalOptions { call_timeout, timeout: PATIENCE, ..cluster::through(way.port(), &options) };
    let mut writer = open(&own);
    let first = add(&mut writer, Position(0));
    way.mute(true);
    let second = entry(2, &[("a", Some("two"))]);
    let heard = std::thread::scope(|scope| {
        let adding = scope.spawn(|| writer.append(first, &second));
        // Whoever looks elsewhere sees when it has been added.
        let (position, seen) = next(&mut open(&options), first);
        assert_eq!(format!("{seen:?}"), format!("{second:?}"));
        way.mute(false);
        assert_eq!(adding.join().unwrap().unwrap(), Some(position));
        position
    });
    assert!(writer.next(heard).unwrap().is_none());
    add(&mut writer, heard);
}

/// The same, but nobody answers in time: it is said that nobody knows, and whoever was added turns up.
#[test]
fn answers_that_stay_away_are_told() {
    let Some(port) = cluster::shared() else { return };
    let options = cluster::history(port);
    let way = Way::to(&format!("127.0.0.1:{port}"));
    let (timeout, call_timeout) = (Duration::from_secs(2), Duration::from_millis(700));
    let own = JournalOptions { timeout, call_timeout, ..cluster::through(way.port(), &options) };
    let mut writer = open(&own);
    let first = add(&mut writer, Position(0));
    way.mute(true);
    let second = entry(2, &[("a", Some("two"))]);
    let outcome = writer.append(first, &second);
    assert!(matches!(outcome, Err(EngineError::Unknown(_))), "{outcome:?}");
    way.mute(false);
    let patience = Instant::now() + PATIENCE;
    let (position, seen) = loop {
        match writer.next(first) {
            Ok(Some(found)) => break found,
            outcome => assert!(Instant::now() < patience, "it does not turn up: {outcome:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(format!("{seen:?}"), format!("{second:?}"));
    assert_eq!(writer.append(first, &second).unwrap(), None, "its place is taken");
    add(&mut writer, position);
    way.cut();
    let outcome = open(&own).append(first, &second);
    assert!(matches!(outcome, Err(EngineError::Unavailable(_))), "nobody can have heard of it: {outcome:?}");
}

/// Sessions are ended by an administrator again and again, while entries are added and read.
#[test]
fn sessions_that_end_are_begun_again() {
    let Some(server) = Postgres::start(&["-c", "fsync=off"]) else { return };
    let options = JournalOptions { timeout: PATIENCE, ..cluster::history(server.port()) };
    let (mut writer, mut reader) = (open(&options), open(&options));
    let mut at = Position(0);
    for round in 0..60 {
        if round % 3 == 0 {
            let end =
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'polder'";
            server.ask(end);
        }
        let position = add(&mut writer, at);
        assert_eq!(next(&mut reader, at).0, position);
        at = position;
    }
}

/// A server that goes at once and comes back has lost nothing that was acknowledged.
#[test]
fn a_server_that_comes_back_is_used_again() {
    let Some(mut server) = Postgres::start(&[]) else { return };
    let options = JournalOptions { timeout: Duration::from_secs(3), ..cluster::history(server.port()) };
    let (mut writer, mut reader) = (open(&options), open(&options));
    let mut at = Position(0);
    for _ in 0..3 {
        let position = add(&mut writer, at);
        assert_eq!(next(&mut reader, at).0, position);
        at = position;
        server.stop();
        let begun = Instant::now();
        let outcome = writer.append(at, &entry(at.0 + 1, &[("a", Some("nobody"))]));
        let was_told = matches!(outcome, Err(EngineError::Unavailable(_) | EngineError::Unknown(_)));
        assert!(was_told, "{outcome:?}");
        assert!(reader.end().is_err());
        assert!(begun.elapsed() < PATIENCE, "it is told in time");
        server.start_again();
        assert_eq!(reader.end().unwrap(), at);
    }
    let position = add(&mut writer, at);
    assert_eq!(next(&mut reader, at).0, position);
}

/// A server that has lost what it had acknowledged, as a standby may that was behind, is not followed.
#[test]
fn a_journal_that_goes_back_is_noticed() {
    let Some(port) = cluster::shared() else { return };
    let options = JournalOptions { poll: Duration::from_millis(100), ..cluster::history(port) };
    let (mut journal, mut other) = (open(&options), open(&options));
    let mut at = Position(0);
    for _ in 0..3 {
        let position = add(&mut journal, at);
        assert_eq!(next(&mut other, at).0, position);
        at = position;
    }
    cluster::ask(port, &format!("DELETE FROM {}.log WHERE position = 3", options.schema));
    let outcome = wait_for_error(|| journal.next(at).map(drop));
    assert!(matches!(outcome, EngineError::Damaged(_)), "{outcome:?}");
    // Somebody else goes on where it was.
    add(&mut open(&options), Position(2));
    let outcome = wait_for_error(|| other.next(at).map(drop));
    assert!(matches!(outcome, EngineError::Damaged(_)), "{outcome:?}");
    let outcome = other.append(at, &entry(4, &[("a", Some("four"))]));
    assert!(matches!(outcome, Ok(None)), "nothing is added behind what is not there: {outcome:?}");
}

#[track_caller]
fn wait_for_error(mut attempt: impl FnMut() -> Result<(), EngineError>) -> EngineError {
    let patience = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) => return error,
            Ok(()) => assert!(Instant::now() < patience, "nobody notices"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server that lets others be content with less is not allowed to with us.
#[test]
fn what_is_acknowledged_is_durable() {
    let Some(server) = Postgres::start(&["-c", "synchronous_commit=off"]) else { return };
    let options = cluster::history(server.port());
    // The statement that adds entries says how, in a place where it can be read afterwards.
    let mut journal = open(&options);
    let at = add(&mut journal, Position(0));
    server.ask(&format!(
        "CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
           INSERT INTO {0}.row VALUES ('x', current_setting('synchronous_commit'), ''); RETURN NEW; END $$; \
         CREATE TRIGGER told BEFORE INSERT ON {0}.log FOR EACH ROW EXECUTE FUNCTION told()",
        options.schema
    ));
    add(&mut journal, at);
    assert_eq!(server.ask(&format!("SELECT key FROM {}.row WHERE kind = 'x'", options.schema)), ["on"]);
}

#[test]
fn users_and_passwords() {
    let Some(server) = Postgres::start_with("scram-sha-256", &[], |_| {}) else { return };
    let address =
        |user: &str| format!("postgres://{user}@127.0.0.1:{}/postgres?sslmode=disable", server.port());
    for (url, password, is_right) in [
        (address("polder:geheim"), None, true),
        (address("polder"), Some("geheim"), true),
        (address("polder"), None, false),
        (address("polder:falsch"), Some("geheim"), false),
        (address("nobody:geheim"), None, false),
    ] {
        let options = JournalOptions::parse(&url, password.map(str::as_bytes)).unwrap();
        let begun = Instant::now();
        let outcome = open(&options).end();
        assert_eq!(outcome.is_ok(), is_right, "{outcome:?}");
        if let Err(error) = outcome {
            assert!(matches!(error, EngineError::Failed(_)), "{error:?}");
            assert!(begun.elapsed() < options.timeout, "nobody waits for what will not change");
            assert!(!format!("{error:?}").contains("falsch"), "a password is told: {error:?}");
        }
    }
}

#[test]
fn certificates() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    // Another name than the certificate has: OpenSSL would take that for one that has signed itself.
    params.distinguished_name.push(rcgen::DnType::CommonName, "authority");
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.extended_key_usages =
        vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth, rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let (certificate, key) = (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem());
    let arguments =
        ["ssl=on", "ssl_cert_file=../certificate", "ssl_key_file=../key", "ssl_ca_file=../authority"];
    let arguments = arguments.map(|argument| ["-c", argument]).concat();
    let server = Postgres::start_with("trust", &arguments, |directory| {
        let all = "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n";
        for (name, text) in [
            ("certificate", certificate.as_str()),
            ("key", &key),
            ("authority", &authority),
            ("data/pg_hba.conf", all),
        ] {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            cluster::own(&path, directory);
        }
    });
    let Some(server) = server else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (authority_file, certificate_file) =
        (file("authority", &authority), file("certificate", &certificate));
    let own = format!("sslrootcert={authority_file}&sslcert={certificate_file}&sslkey={}", file("key", &key));
    for (host, parameters, is_right) in [
        ("127.0.0.1", own.as_str(), true),
        ("127.0.0.1", &format!("sslrootcert={authority_file}"), false),
        ("127.0.0.1", &own.replace(&authority_file, &certificate_file), false),
        ("localhost", &own, false),
        ("127.0.0.1", "sslmode=disable", false),
    ] {
        let url = format!("postgres://polder@{host}:{}/postgres?{parameters}", server.port());
        let options =
            JournalOptions { timeout: Duration::from_secs(3), ..JournalOptions::parse(&url, None).unwrap() };
        let outcome = open(&options).end();
        assert_eq!(outcome.is_ok(), is_right, "{host} {parameters}: {outcome:?}");
    }
    let options =
        JournalOptions::parse(&format!("postgres://polder@127.0.0.1:{}/postgres", server.port()), None);
    let certificate = Some((certificate.into_bytes(), key.into_bytes()));
    let identity = Some(Identity { authorities: Some(authority.into_bytes()), certificate });
    add(&mut open(&JournalOptions { identity, ..options.unwrap() }), Position(0));
}
