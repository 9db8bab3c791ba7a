//! What planes are told of the server they are on: an authority, in PEM. It changes while the server runs; then the planes are shown
//! anew to those who tell of it (`Controller::tells`).

use std::sync::Arc;

use parking_lot::RwLock;
use polder_model::SmolStr;

/// The same for everybody who has a copy of it. Nothing is told while it is empty.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<RwLock<SmolStr>>);

impl Told {
    pub fn get(&self) -> SmolStr {
        self.0.read().clone()
    }

    pub fn set(&self, text: &str) {
        *self.0.write() = SmolStr::new(text);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}

impl From<&str> for Told {
    fn from(text: &str) -> Told {
        Told(Arc::new(RwLock::new(SmolStr::new(text))))
    }
}
