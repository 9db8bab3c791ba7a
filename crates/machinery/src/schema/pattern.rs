//! Patterns of custom resource schemas, read as Go reads them (`polder_cel::re2`).
//!
//! Compiling is bounded: of one schema in memory, of all schemas of a CRD by an effort.

use polder_cel::re2::{self, Effort, Problem};
use regex::Regex;

/// What all patterns of one schema may take together.
const SCHEMA_BYTES_MAX: usize = 32 << 20;

/// Compiles the patterns of one schema.
#[derive(Debug)]
pub struct Patterns(re2::Patterns);

impl Patterns {
    pub fn new(effort: &Effort) -> Patterns {
        Patterns(re2::Patterns::new(SCHEMA_BYTES_MAX, effort))
    }

    /// What all of them take, at most.
    pub fn bytes(&self) -> usize {
        self.0.used()
    }

    /// The compiled pattern, or what is wrong with it.
    pub fn compile(&mut self, pattern: &str) -> Result<Regex, String> {
        self.0.compile(pattern).map_err(|problem| match problem {
            Problem::Pattern(problem) => problem,
            Problem::Exhausted => "the patterns of the schema are too large together".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let regex = Patterns::new(&Effort::default()).compile(pattern).unwrap();
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
            let problem = Patterns::new(&Effort::default()).compile(pattern).unwrap_err();
            assert!(problem.contains(part), "{pattern}: {problem}");
        }
    }

    #[test]
    fn patterns_together_are_bounded_and_equal_ones_are_shared() {
        let mut patterns = Patterns::new(&Effort::default());
        for _ in 0..10_000 {
            patterns.compile("^a$").unwrap();
        }
        patterns.0 = re2::Patterns::new(20 << 10, &Effort::default());
        assert!(patterns.compile("^b$").is_ok());
        assert!(patterns.compile("^c$").is_err());
    }

    #[test]
    fn schemas_of_one_definition_share_an_effort() {
        let effort = Effort::default();
        let problem = |index: usize| {
            let pattern = format!("((a{{100}}){{100}}){{100}}{index}");
            Patterns::new(&effort).compile(&pattern).unwrap_err()
        };
        let tried = (0..1000).take_while(|index| problem(*index) == re2::TOO_LARGE).count();
        assert!((1..100).contains(&tried), "{tried}");
    }
}
