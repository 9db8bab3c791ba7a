//! The memory engine under the suite of all engines.

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
