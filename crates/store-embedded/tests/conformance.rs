//! The store's conformance suite over SQLite, in a directory of its own for every case; and over SQLite with every record
//! sealed.

use polder_store::conformance::Fixture;
use polder_store::engine::Engine;
use polder_store_embedded::{Options, SqliteEngine, verify};

struct Directory(tempfile::TempDir);

impl Directory {
    fn open(&self) -> SqliteEngine {
        // Whatever a case did before it opens the store again, what it left must hold together.
        if self.0.path().join("store.db").exists() {
            let report = verify(self.0.path()).expect("the store can be verified");
            assert_eq!(report.problems, Vec::<String>::new());
        }
        SqliteEngine::open(self.0.path(), &Options::default()).expect("the store opens again")
    }
}

impl Fixture for Directory {
    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.open())
    }

    fn simulation_len(&self) -> usize {
        400
    }
}

fn make() -> Box<dyn Fixture> {
    Box::new(Directory(tempfile::tempdir().expect("a temporary directory")))
}

polder_store::conformance_tests!(make);

mod sealed {
    use polder_model::GroupResource;
    use polder_store::sealed::{KeyFile, Keyring, SealedEngine};

    use super::*;

    struct Sealed(Directory);

    impl Fixture for Sealed {
        fn engine(&self) -> Box<dyn Engine> {
            let file = KeyFile::made_at(self.0.0.path().join("encryption.key"));
            let resources = ["pods", "configs"].map(|name| GroupResource::new("", name));
            Box::new(SealedEngine::new(self.0.open(), Keyring::new(Box::new(file), resources.to_vec())))
        }

        fn simulation_len(&self) -> usize {
            400
        }
    }

    fn make() -> Box<dyn Fixture> {
        Box::new(Sealed(Directory(tempfile::tempdir().expect("a temporary directory"))))
    }

    polder_store::conformance_tests!(make);
}
