//! Regular expressions: whatever is translated compiles or is refused, with a bound on both; what is accepted matches in linear time.
//!
//! The input is a pattern, or a pattern, a line `---` and a text to match.

use polder_cel::re2;

use crate::two_parts;

/// What a pattern may compile to here: small, so that many are tried.
const BYTES_MAX: usize = 64 << 10;

pub const WORDS: &[&str] = &[
    "(", ")", "(?:", "(?i)", "(?x)", "(?-s:", "(?P<a>", "(?<a>", "[", "]", "[^", "[[:alpha:]]", "[a-z]", "&&", "--", "~~", "{", "}", "{2}", "{1,3}", "{,2}", "{1001}",
    "*", "+", "?", "*?", "|", "^", "$", ".", "\\", "\\d", "\\W", "\\b", "\\B", "\\Q", "\\E", "\\x{41}", "\\u{41}", "\\pL", "\\p{Greek}", "\\A", "\\z", "\\<", "\n---\n", "a", "é",
];

pub fn run(data: &[u8]) {
    let (pattern, text) = two_parts(data);
    let Ok(pattern) = std::str::from_utf8(pattern) else { return };
    let Ok(translated) = re2::translate(pattern) else { return };
    assert!(translated.len() <= 16 * pattern.len() + 16, "{pattern:?} grows to {}", translated.len());
    let Ok(regex) = re2::compile(pattern, BYTES_MAX) else { return };
    let text = String::from_utf8_lossy(text);
    let found = regex.find(&text).map(|found| found.as_str().len());
    assert!(found.is_none_or(|len| len <= text.len()));
    assert_eq!(regex.is_match(&text), found.is_some());
    crate::accepted();
}
