//! Moving planes: everything a plane holds as lines of JSON, and back. `docs/export-format.md` describes the lines.
//!
//! An export is consistent at one revision, streamed, and ends with a line that says how much there was. An import
//! goes into a plane nobody has written to, in commits of a few hundred objects. Invariants: what was imported equals
//! what was exported, identity and all; resource versions go on growing; a plane that got less than the whole file
//! is never called ready.

mod export;
mod import;

use polder_model::PlaneId;

use crate::registry::Registry;

pub use export::Export;
pub use import::Import;

/// The media type of the lines.
pub const MEDIA: &str = "application/jsonl";
/// The longest line an import takes: larger than any object a plane with default limits can hold.
pub const LINE_BYTES_MAX: usize = 16 << 20;

pub(crate) const HEADER_KIND: &str = "PlaneExport";
pub(crate) const END_KIND: &str = "PlaneExportEnd";
pub(crate) const IMPORT_KIND: &str = "PlaneImport";
const API_VERSION: &str = "polder.dev/v1alpha1";
const FORMAT_VERSION: i64 = 1;

impl Registry {
    /// Whether a plane is being filled right now. Its contents are incomplete: nobody should draw conclusions from
    /// what is missing.
    pub fn is_importing(&self, plane: PlaneId) -> bool {
        self.importing.lock().contains(&plane)
    }
}

#[cfg(test)]
mod tests;
