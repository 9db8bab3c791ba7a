//! Three replicas on one etcd, each with a way to it that can be cut.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_store::conformance::Replicas;
use polder_store::engine::Engine;
use polder_store::memory::MemoryEngine;
use polder_store::replica::Replica;
use polder_store_etcd::{EtcdJournal, JournalOptions, Leading};

use crate::cluster::{self, Way};

struct Three {
    options: JournalOptions,
    ways: [Way; 3],
    engines: Mutex<[MemoryEngine; 3]>,
    leading: Mutex<([Option<Leading>; 3], usize)>,
}

impl Three {
    fn new(url: &str) -> Three {
        let options = JournalOptions { timeout: Duration::from_secs(5), ..cluster::history(url) };
        let ways = std::array::from_fn(|_| Way::to(url));
        Three { options, ways, engines: Mutex::default(), leading: Mutex::default() }
    }
}

impl Replicas for Three {
    fn engine(&self, number: usize) -> Box<dyn Engine> {
        let mut leading = self.leading.lock();
        let mut options = self.options.clone();
        options.client.endpoints = vec![self.ways[number].url()];
        options.is_candidate = leading.1 == number;
        let journal = EtcdJournal::open(options).unwrap();
        leading.0[number] = Some(journal.leading());
        Box::new(Replica::new(self.engines.lock()[number].clone(), journal))
    }

    fn new_engine(&self, number: usize) -> Box<dyn Engine> {
        self.engines.lock()[number] = MemoryEngine::default();
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
