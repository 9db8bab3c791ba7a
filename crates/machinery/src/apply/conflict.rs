//! Fields that somebody else owns and an applier wants to have otherwise.

use std::fmt;

use super::entries::Entry;
use super::set::FieldSet;

/// More fields than this are counted but not named.
const NAMED_MAX: usize = 1000;

/// The fields in the way of one apply, by owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conflicts(Vec<Conflict>);

#[derive(Clone, Debug, PartialEq)]
struct Conflict {
    /// For sorting.
    owner: String,
    /// For people.
    shown: String,
    fields: FieldSet,
}

/// One field in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictCause {
    pub message: String,
    pub field: String,
}

impl Conflicts {
    pub(super) fn add(&mut self, entry: &Entry, fields: FieldSet) {
        let conflict = Conflict { owner: entry.owner(), shown: entry.to_string(), fields };
        let at = self.0.partition_point(|other| other.owner < conflict.owner);
        self.0.insert(at, conflict);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Leaves out conflicts over these fields.
    pub(super) fn excuse(&mut self, fields: &FieldSet) {
        for conflict in &mut self.0 {
            conflict.fields.subtract(fields);
        }
        self.0.retain(|conflict| !conflict.fields.is_empty());
    }

    /// What the details of the answer say.
    pub fn causes(&self) -> Vec<ConflictCause> {
        self.named()
            .into_iter()
            .flat_map(|(conflict, paths)| {
                let message = format!("conflict with {}", conflict.shown);
                paths.into_iter().map(move |field| ConflictCause { message: message.clone(), field })
            })
            .collect()
    }

    fn named(&self) -> Vec<(&Conflict, Vec<String>)> {
        let mut left = NAMED_MAX;
        let mut named = Vec::with_capacity(self.0.len());
        for conflict in &self.0 {
            let mut paths = conflict.fields.paths();
            paths.truncate(left);
            left -= paths.len();
            named.push((conflict, paths));
        }
        named
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.0.iter().map(|conflict| conflict.fields.len()).sum();
        let named = self.named();
        if let [(conflict, paths)] = named.as_slice()
            && let [path] = paths.as_slice()
        {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {path}", conflict.shown);
        }
        write!(f, "Apply failed with {count} conflicts: ")?;
        for (at, (conflict, paths)) in named.into_iter().enumerate() {
            let newline = if at > 0 { "\n" } else { "" };
            write!(f, "{newline}conflicts with {}:", conflict.shown)?;
            paths.iter().try_for_each(|path| write!(f, "\n- {path}"))?;
        }
        Ok(())
    }
}

impl std::error::Error for Conflicts {}
