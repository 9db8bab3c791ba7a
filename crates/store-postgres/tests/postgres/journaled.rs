//! The suite of all engines over a journal on PostgreSQL, with one replica.

use polder_store::conformance::Fixture;
use polder_store::engine::Engine;
use polder_store::memory::MemoryEngine;
use polder_store::replica::Replica;
use polder_store_postgres::{JournalOptions, PostgresJournal};

use crate::cluster;

struct Alone(MemoryEngine, JournalOptions);

impl Fixture for Alone {
    fn engine(&self) -> Box<dyn Engine> {
        let journal = PostgresJournal::open(self.1.clone()).unwrap();
        let leading = journal.leading();
        // A store that does not lead merges nothing, and the suite expects one that does.
        while !leading.leads() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Box::new(Replica::new(self.0.clone(), journal))
    }

    fn simulation_len(&self) -> usize {
        300
    }
}

fn alone() -> Box<dyn Fixture> {
    Box::new(Alone(MemoryEngine::default(), cluster::history(cluster::shared().unwrap())))
}

polder_store::conformance_tests!(alone, || cluster::shared().is_some());
