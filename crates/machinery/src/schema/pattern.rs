//! Patterns of custom resource schemas, read as Go reads them (`polder_cel::re2`).
//!
//! Compiling is bounded in memory, per pattern and per schema.

use std::collections::HashMap;

use polder_cel::re2;
use polder_model::SmolStr;
use regex::Regex;

/// The sizes tried for one compiled pattern, smallest first; the last is the limit.
const PATTERN_BYTES_STEPS: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// What all patterns of one schema may take together.
const SCHEMA_BYTES_MAX: usize = 32 << 20;

/// Compiles the patterns of one schema; equal patterns share one program.
#[derive(Debug)]
pub struct Patterns {
    known: HashMap<SmolStr, Result<Regex, String>>,
    bytes_left: usize,
}

impl Default for Patterns {
    fn default() -> Patterns {
        Patterns { known: HashMap::new(), bytes_left: SCHEMA_BYTES_MAX }
    }
}

impl Patterns {
    /// What all of them take, at most.
    pub fn bytes(&self) -> usize {
        SCHEMA_BYTES_MAX - self.bytes_left
    }

    /// The compiled pattern, or what is wrong with it.
    pub fn compile(&mut self, pattern: &str) -> Result<Regex, String> {
        if let Some(known) = self.known.get(pattern) {
            return known.clone();
        }
        let compiled = self.compile_new(pattern);
        self.known.insert(SmolStr::new(pattern), compiled.clone());
        compiled
    }

    fn compile_new(&mut self, pattern: &str) -> Result<Regex, String> {
        for bytes in PATTERN_BYTES_STEPS {
            match re2::compile(pattern, bytes) {
                Err(problem) if problem == re2::TOO_LARGE => {}
                Err(problem) => return Err(problem),
                Ok(regex) => {
                    self.bytes_left = self
                        .bytes_left
                        .checked_sub(bytes)
                        .ok_or("the patterns of the schema are too large together")?;
                    return Ok(regex);
                }
            }
        }
        Err(re2::TOO_LARGE.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let regex = Patterns::default().compile(pattern).unwrap();
        for text in matching {
            assert!(regex.is_match(text), "{pattern} should match {text:?}");
        }
        for text in others {
            assert!(!regex.is_match(text), "{pattern} should not match {text:?}");
        }
    }

    #[test]
    fn read_like_go() {
        check(r"^\d+$", &["12"], &["", "a", "٣"]);
        check(r"^[\d.]+$", &["1.2"], &["٣", "a"]);
        check(r"^\w\s\S$", &["a b"], &["é b", "a\u{a0}b"]);
        check(r"^[^\s]+$", &["ab"], &["a b"]);
        check(r"^[\D]$", &["a"], &["1"]);
        check(r"^[[a]+$", &["[a"], &["b"]);
        check(r"^[]a]+$", &["]a"], &["b"]);
        check(r"^[^]a]+$", &["b"], &["]"]);
        check(r"^[[:alpha:]]$", &["a"], &["1", ":"]);
        check(r"^[a&&b]+$", &["a&b"], &["c"]);
        check(r"^[+--]$", &["+", ",", "-"], &["a"]);
        check(r"^{a}$", &["{a}"], &["a"]);
        check(r"^a{,2}$", &["a{,2}"], &["aa"]);
        check(r"^a{1,2}$", &["aa"], &["aaa"]);
        check(r"^\Qa.b\E$", &["a.b"], &["axb"]);
        check(r"^\<a\>$", &["<a>"], &["a"]);
        check(r"\bfoo\b", &["a foo b"], &["afoob"]);
        check(
            r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?.+))?$",
            &["1Gi"],
            &["x"],
        );
    }

    #[test]
    fn bad_patterns_are_refused() {
        for (pattern, part) in [
            ("(", "error parsing regexp: unclosed group"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("\\", "trailing backslash"),
            ("(?=a)", "error parsing regexp: "),
            ("((a{1000}){1000}){1000}", "too large"),
        ] {
            let problem = Patterns::default().compile(pattern).unwrap_err();
            assert!(problem.contains(part), "{pattern}: {problem}");
        }
    }

    #[test]
    fn patterns_together_are_bounded_and_equal_ones_are_shared() {
        let mut patterns = Patterns::default();
        for _ in 0..10_000 {
            patterns.compile("^a$").unwrap();
        }
        patterns.bytes_left = 20 << 10;
        assert!(patterns.compile("^b$").is_ok());
        assert!(patterns.compile("^c$").is_err());
    }
}
