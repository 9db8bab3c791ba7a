//! The store's conformance suite over SQLite, in a directory of its own for every case.

use polder_store::conformance::Fixture;
use polder_store::engine::Engine;
use polder_store_embedded::{Options, SqliteEngine, verify};

struct Directory(tempfile::TempDir);

impl Fixture for Directory {
    fn engine(&self) -> Box<dyn Engine> {
        // Whatever a case did before it opens the store again, what it left must hold together.
        if self.0.path().join("store.db").exists() {
            let report = verify(self.0.path()).expect("the store can be verified");
            assert_eq!(report.problems, Vec::<String>::new());
        }
        Box::new(SqliteEngine::open(self.0.path(), &Options::default()).expect("the store opens again"))
    }

    fn simulation_len(&self) -> usize {
        400
    }
}

fn make() -> Box<dyn Fixture> {
    Box::new(Directory(tempfile::tempdir().expect("a temporary directory")))
}

polder_store::conformance_tests!(make);
