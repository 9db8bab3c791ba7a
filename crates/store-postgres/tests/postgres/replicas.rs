//! Three replicas on one PostgreSQL, each with a way to it that can be cut; with what they store sealed, and not.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_store::conformance::Replicas;
use polder_store::engine::Engine;
use polder_store::memory::MemoryEngine;
use polder_store::replica::Replica;
use polder_store_postgres::{JournalOptions, Leading, PostgresJournal};

use crate::cluster::{self, Way};

struct Three {
    options: JournalOptions,
    ways: [Way; 3],
    engines: Mutex<[MemoryEngine; 3]>,
    leading: Mutex<([Option<Leading>; 3], usize)>,
}

impl Three {
    fn new(port: u16) -> Three {
        let options = JournalOptions { timeout: Duration::from_secs(5), ..cluster::history(port) };
        let ways = std::array::from_fn(|_| Way::to(&format!("127.0.0.1:{port}")));
        Three { options, ways, engines: Mutex::default(), leading: Mutex::default() }
    }

    fn replica(&self, number: usize) -> Replica<MemoryEngine, PostgresJournal> {
        let mut leading = self.leading.lock();
        let mut options = cluster::through(self.ways[number].port(), &self.options);
        options.is_candidate = leading.1 == number;
        let journal = PostgresJournal::open(options).unwrap();
        leading.0[number] = Some(journal.leading());
        Replica::new(self.engines.lock()[number].clone(), journal)
    }

    fn empty(&self, number: usize) {
        self.engines.lock()[number] = MemoryEngine::default();
    }
}

impl Replicas for Three {
    fn engine(&self, number: usize) -> Box<dyn Engine> {
        Box::new(self.replica(number))
    }

    fn new_engine(&self, number: usize) -> Box<dyn Engine> {
        self.empty(number);
        self.engine(number)
    }

    fn cut_off(&self, number: usize, is_cut_off: bool) {
        if is_cut_off { self.ways[number].cut() } else { self.ways[number].open() }
    }

    fn set_leader(&self, number: usize) {
        let mut leading = self.leading.lock();
        leading.1 = number;
        for (own, leading) in leading.0.iter().enumerate() {
            leading.iter().for_each(|leading| leading.stand(own == number));
        }
        let patience = Instant::now() + Duration::from_secs(30);
        while !leading.0[number].as_ref().is_some_and(Leading::leads) {
            assert!(Instant::now() < patience, "replica {number} does not lead");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn three() -> Box<dyn Replicas> {
    Box::new(Three::new(cluster::shared().unwrap()))
}

polder_store::replica_tests!(three, || cluster::shared().is_some());

mod sealed {
    use polder_model::GroupResource;
    use polder_store::sealed::{KeyFile, Keyring, SealedEngine};

    use super::*;

    /// The same, with what they store sealed; all have the same key file.
    struct Sealed(Three, tempfile::TempDir);

    impl Replicas for Sealed {
        fn engine(&self, number: usize) -> Box<dyn Engine> {
            let file = KeyFile::made_at(self.1.path().join("encryption.key"));
            let resources = ["pods", "configs"].map(|name| GroupResource::new("", name));
            let keyring = Keyring::new(Box::new(file), resources.to_vec());
            Box::new(SealedEngine::new(self.0.replica(number), keyring))
        }

        fn new_engine(&self, number: usize) -> Box<dyn Engine> {
            self.0.empty(number);
            self.engine(number)
        }

        fn cut_off(&self, number: usize, is_cut_off: bool) {
            self.0.cut_off(number, is_cut_off);
        }

        fn set_leader(&self, number: usize) {
            self.0.set_leader(number);
        }
    }

    fn three_sealed() -> Box<dyn Replicas> {
        Box::new(Sealed(Three::new(cluster::shared().unwrap()), tempfile::tempdir().unwrap()))
    }

    polder_store::replica_tests!(three_sealed, || cluster::shared().is_some());
}
