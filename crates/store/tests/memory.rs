//! The memory engine under the suite of all engines, and with every record sealed.

use polder_store::conformance::Fixture;
use polder_store::engine::Engine;
use polder_store::memory::MemoryEngine;

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
    use polder_model::GroupResource;
    use polder_store::sealed::{KeyFile, Keyring, SealedEngine};

    use super::*;

    struct Sealed(MemoryEngine, tempfile::TempDir);

    impl Fixture for Sealed {
        fn engine(&self) -> Box<dyn Engine> {
            let file = KeyFile::made_at(self.1.path().join("encryption.key"));
            let resources = ["pods", "configs"].map(|name| GroupResource::new("", name));
            Box::new(SealedEngine::new(self.0.clone(), Keyring::new(Box::new(file), resources.to_vec())))
        }
    }

    fn sealed() -> Box<dyn Fixture> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Box::new(Sealed(MemoryEngine::default(), directory))
    }

    polder_store::conformance_tests!(sealed);
}
