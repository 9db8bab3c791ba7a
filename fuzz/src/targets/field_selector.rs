//! Field selectors: what was parsed prints as what it means.

use std::borrow::Cow;

use polder_model::selector::FieldSelector;

pub const WORDS: &[&str] = &[
    "metadata.name", "status.phase", "=", "==", "!=", "!", ",", "\\", "\\,", "\\=", "\\\\", "x", "Running", " ", "é", "",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(selector) = FieldSelector::parse(text) else { return };
    let printed = selector.to_string();
    let again = FieldSelector::parse(&printed).unwrap_or_else(|error| panic!("cannot read {printed:?}: {error}"));
    // The order is that of the terms as written, which `==` for `=` and escapes change.
    assert_eq!(again.requirements().len(), selector.requirements().len());
    assert!(selector.requirements().iter().all(|one| again.requirements().contains(one)), "{printed:?}");
    assert_eq!(again.is_everything(), selector.is_everything());
    for value in ["", "x", "Running", "a,b", "\\"] {
        let lookup = |path: &str| path.starts_with('m').then_some(Cow::Borrowed(value));
        assert_eq!(selector.matches(lookup), again.matches(lookup), "{printed:?} on {value:?}");
        if let Some(required) = selector.required_value("metadata.name") {
            assert!(!selector.matches(lookup) || required == value);
        }
    }
    crate::accepted();
}
