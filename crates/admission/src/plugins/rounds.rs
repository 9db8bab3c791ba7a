//! What those who change objects remember between the two rounds in which they may: when one of them changes something,
//! everybody looks once more, and those that want it are asked again.

use std::collections::BTreeSet;

use polder_model::{SmolStr, Value};

#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// This is the second round.
    pub(crate) second: bool,
    /// Something was changed, so there is to be one.
    pub(crate) wanted: bool,
    pub(super) webhooks: Asked,
    pub(super) policies: Asked,
}

/// Who was asked, of one kind.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Those that want to be asked again after a change.
    asked: BTreeSet<SmolStr>,
    /// Those that are to be asked again.
    again: BTreeSet<SmolStr>,
    /// What the last of them left behind.
    left: Option<Value>,
}

impl Asked {
    /// The second round begins; somebody else may have changed the object since the first.
    pub(super) fn begin_again(&mut self, object: &Value) {
        if self.left.as_ref() != Some(object) {
            self.ask_again();
        }
    }

    /// The object was changed after those were asked.
    pub(super) fn ask_again(&mut self) {
        self.again.append(&mut self.asked);
    }

    /// Whether somebody who was asked in the first round is asked in the second.
    pub(super) fn is_wanted(&self, who: &str) -> bool {
        self.again.contains(who)
    }

    pub(super) fn note(&mut self, who: SmolStr) {
        self.asked.insert(who);
    }

    pub(super) fn leave(&mut self, object: &Value) {
        self.left = Some(object.clone());
    }
}
