//! The memory engine under the suite of all engines: as it is, with every record sealed, alone and among others on a journal.

use std::path::Path;
use std::sync::Arc;

use polder_model::GroupResource;
use polder_store::conformance::Fixture;
use polder_store::engine::Engine;
use polder_store::memory::MemoryEngine;
use polder_store::sealed::{KeyFile, Keyring, SealedEngine};

fn keyring(directory: &Path) -> Arc<Keyring> {
    let file = KeyFile::made_at(directory.join("encryption.key"));
    let resources = ["pods", "configs"].map(|name| GroupResource::new("", name));
    Keyring::new(Box::new(file), resources.to_vec())
}

struct Memory(MemoryEngine);

impl Fixture for Memory {
    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.0.clone())
    }
}

fn memory() -> Box<dyn Fixture> {
    Box::new(Memory(MemoryEngine::default()))
}

polder_store::conformance_tests!(memory);

mod sealed {
    use super::*;

    struct Sealed(MemoryEngine, tempfile::TempDir);

    impl Fixture for Sealed {
        fn engine(&self) -> Box<dyn Engine> {
            Box::new(SealedEngine::new(self.0.clone(), keyring(self.1.path())))
        }
    }

    fn sealed() -> Box<dyn Fixture> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Box::new(Sealed(MemoryEngine::default(), directory))
    }

    polder_store::conformance_tests!(sealed);
}

mod journaled {
    use polder_store::replica::{MemoryJournal, Replica};

    use super::*;

    struct Alone(MemoryEngine, MemoryJournal);

    impl Fixture for Alone {
        fn engine(&self) -> Box<dyn Engine> {
            Box::new(Replica::new(self.0.clone(), self.1.clone()))
        }
    }

    fn alone() -> Box<dyn Fixture> {
        Box::new(Alone(MemoryEngine::default(), MemoryJournal::default()))
    }

    polder_store::conformance_tests!(alone);
}

mod replicas {
    use parking_lot::Mutex;

    use polder_store::conformance::Replicas;
    use polder_store::replica::{MemoryJournal, Replica};

    use super::*;

    #[derive(Default)]
    struct Three {
        journal: MemoryJournal,
        engines: Mutex<[MemoryEngine; 3]>,
    }

    impl Three {
        fn replica(&self, number: usize) -> Replica<MemoryEngine, MemoryJournal> {
            let engine = self.engines.lock()[number].clone();
            Replica::new(engine, self.journal.replica(number))
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
            self.journal.cut_off(number, is_cut_off);
        }

        fn set_leader(&self, number: usize) {
            self.journal.set_leader(number);
        }
    }

    fn three() -> Box<dyn Replicas> {
        Box::new(Three::default())
    }

    polder_store::replica_tests!(three);

    mod sealed {
        use super::*;

        /// The same, with what they store sealed; all have the same key file.
        struct Sealed(Three, tempfile::TempDir);

        impl Replicas for Sealed {
            fn engine(&self, number: usize) -> Box<dyn Engine> {
                Box::new(SealedEngine::new(self.0.replica(number), keyring(self.1.path())))
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
            Box::new(Sealed(Three::default(), tempfile::tempdir().expect("a temporary directory")))
        }

        polder_store::replica_tests!(three_sealed);
    }
}
