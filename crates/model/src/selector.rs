//! Selectors: which objects a list, a watch or a controller is about, by label or by field.
//!
//! Parsing is the edge: a selector that exists is valid, and matching it cannot fail.

mod field;
mod label;

pub use field::{FieldOperator, FieldRequirement, FieldSelector};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};

/// A longer selector is refused, so that matching one object stays cheap.
pub const SELECTOR_LEN_MAX: usize = 128 * 1024;

/// Text that is no selector; clients see upstream's wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);

fn checked_len(text: &str) -> Result<(), SelectorError> {
    if text.len() > SELECTOR_LEN_MAX {
        return Err(SelectorError(format!("selector may not be more than {SELECTOR_LEN_MAX} bytes")));
    }
    Ok(())
}

/// Texts that look random and are the same in every run.
#[cfg(test)]
fn random_texts(alphabet: &'static [&'static str]) -> impl Iterator<Item = String> {
    let mut state: u64 = 0x5eed;
    let mut below = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    (0..50_000).map(move |_| (0..below(12)).map(|_| alphabet[below(alphabet.len())]).collect())
}
