//! Patches: JSON patch, merge patch and strategic merge patch, as upstream's API server applies them.
//!
//! The functions take the object apart and give back a new one, or say why not; checking the result against its
//! schema is left to the caller. The work done is proportional to the object and the patch, whatever is in them.

mod json_patch;
mod merge_patch;
mod strategic;

pub use json_patch::{apply_json_patch, json_patch_unknown_fields};
pub use merge_patch::apply_merge_patch;
pub(crate) use strategic::go_text::GoText;
pub use strategic::{apply_strategic_merge_patch, strategic_patch_text};

use polder_model::Value;

/// A JSON patch with more operations is refused.
pub const OPERATIONS_MAX: usize = 10_000;
/// What the `copy` operations of one JSON patch may add in total.
pub const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Why a patch was not applied. The variants are the status classes upstream answers with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// This is no patch: 400, with this text.
    #[error("{0}")]
    Malformed(String),
    /// 413, with this text.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {found}")]
    TooManyOperations { found: usize },
    /// The patch does not fit the object: 422 with [`PatchError::NOT_APPLICABLE`]. Upstream keeps this text to itself.
    #[error("{0}")]
    NotApplicable(String),
    /// A `test` did not hold: as [`PatchError::NotApplicable`], but to policies it only means that nothing is changed.
    #[error("{0}")]
    TestFailed(String),
    /// A strategic merge patch upstream did not expect: 500 without a reason, with this text.
    #[error("{0}")]
    Unclassified(String),
}

impl PatchError {
    /// What the client reads when a patch does not fit the object.
    pub const NOT_APPLICABLE: &str = "the server rejected our request due to an error in our request";
}

/// The name Go's JSON decoder gives to what it found.
fn go_json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
