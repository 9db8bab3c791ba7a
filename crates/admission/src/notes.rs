//! What plugins leave behind beside a verdict.

use polder_model::{GroupResource, SmolStr, Value};

use crate::plugins::Rounds;

/// More of a kind than this are not kept.
const LEN_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct Notes {
    /// For the client, although the request works.
    pub warnings: Vec<String>,
    /// For the audit log: `plugin/key` and a text.
    pub audit: Vec<(String, String)>,
    /// To be committed with the object, or nothing is.
    pub writes: Vec<ObjectWrite>,
    pub(crate) rounds: Rounds,
}

/// Another object that is written in the same commit.
#[derive(Clone, Debug)]
pub struct ObjectWrite {
    pub resource: GroupResource,
    pub namespace: SmolStr,
    pub name: SmolStr,
    /// In the version it is stored in.
    pub value: Value,
    pub expected: Expected,
}

/// What must be true of the other object for the commit to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    /// As [`crate::Found::revision`] says.
    At(u64),
}

impl Notes {
    pub fn warn(&mut self, text: impl Into<String>) {
        if self.warnings.len() < LEN_MAX {
            self.warnings.push(text.into());
        }
    }

    pub fn audit(&mut self, key: impl Into<String>, text: impl Into<String>) {
        if self.audit.len() < LEN_MAX {
            self.audit.push((key.into(), text.into()));
        }
    }
}
