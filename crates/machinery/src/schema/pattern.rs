//! Patterns of custom resource schemas: RE2 as Go reads it, compiled by the `regex` crate.
//!
//! The dialects differ where a hostile or merely old pattern would notice: ASCII classes, literal brackets inside
//! classes, braces that are no repetition, `\Q..\E`. Compiling is bounded in memory, per pattern and per schema.

use std::collections::HashMap;

use polder_model::SmolStr;
use regex::{Regex, RegexBuilder};

/// The sizes tried for one compiled pattern, smallest first; the last is the limit.
const PATTERN_BYTES_STEPS: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// What all patterns of one schema may take together.
const SCHEMA_BYTES_MAX: usize = 32 << 20;

/// What matching may cache per pattern.
const DFA_BYTES_MAX: usize = 256 << 10;

/// Go refuses larger repetition counts.
const REPEAT_MAX: u32 = 1000;

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
        let translated = translate(pattern)?;
        for bytes in PATTERN_BYTES_STEPS {
            let built =
                RegexBuilder::new(&translated).size_limit(bytes).dfa_size_limit(DFA_BYTES_MAX).build();
            match built {
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => return Err(problem(&error.to_string())),
                Ok(regex) => {
                    self.bytes_left = self
                        .bytes_left
                        .checked_sub(bytes)
                        .ok_or("the patterns of the schema are too large together")?;
                    return Ok(regex);
                }
            }
        }
        Err("expression too large".into())
    }
}

/// The last line of a syntax error carries the reason; the lines before it draw a picture.
fn problem(text: &str) -> String {
    let reason = text.lines().last().unwrap_or(text);
    format!("error parsing regexp: {}", reason.strip_prefix("error: ").unwrap_or(reason))
}

/// Rewrites what Go's RE2 reads differently.
fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut class = Class::Outside;
    while let Some(char) = rest.chars().next() {
        let after = &rest[char.len_utf8()..];
        rest = match (char, class) {
            ('\\', _) => escape(after, class != Class::Outside, &mut out)?,
            ('[', Class::Outside) => {
                let (negated, after) = after.strip_prefix('^').map_or((false, after), |after| (true, after));
                out.push_str(if negated { "[^" } else { "[" });
                class = Class::Start;
                after
            }
            (']', Class::Start) => {
                out.push_str("\\]");
                class = Class::Inside;
                after
            }
            (']', Class::Inside) => {
                out.push(']');
                class = Class::Outside;
                after
            }
            ('[', _) => {
                class = Class::Inside;
                match after.strip_prefix(':').and_then(|name| name.split_once(":]")) {
                    Some((name, after)) => {
                        out.push_str(&format!("[:{name}:]"));
                        after
                    }
                    None => {
                        out.push_str("\\[");
                        after
                    }
                }
            }
            ('&' | '~', Class::Start | Class::Inside) => {
                class = Class::Inside;
                out.push('\\');
                out.push(char);
                after
            }
            ('-', Class::Start | Class::Inside) if after.starts_with('-') => {
                class = Class::Inside;
                out.push_str("-\\-");
                &after[1..]
            }
            ('{', Class::Outside) => match repetition(after)? {
                Some(length) => {
                    out.push('{');
                    out.push_str(&after[..length]);
                    &after[length..]
                }
                None => {
                    out.push_str("\\{");
                    after
                }
            },
            _ => {
                if class == Class::Start {
                    class = Class::Inside;
                }
                out.push(char);
                after
            }
        };
        if class == Class::Start && !out.ends_with(['[', '^']) {
            class = Class::Inside;
        }
    }
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Outside,
    /// Right after the opening bracket, where `]` is a letter.
    Start,
    Inside,
}

/// Translates what follows a backslash and returns what follows that.
fn escape<'a>(after: &'a str, in_class: bool, out: &mut String) -> Result<&'a str, String> {
    let Some(char) = after.chars().next() else {
        return Err("error parsing regexp: trailing backslash at end of expression: ``".into());
    };
    let rest = &after[char.len_utf8()..];
    let class = match char {
        'd' => "0-9",
        'w' => "0-9A-Za-z_",
        's' => "\\t\\n\\f\\r ",
        'D' => "^0-9",
        'W' => "^0-9A-Za-z_",
        'S' => "^\\t\\n\\f\\r ",
        'b' | 'B' if !in_class => {
            out.push_str(if char == 'b' { "(?-u:\\b)" } else { "(?-u:\\B)" });
            return Ok(rest);
        }
        'Q' if !in_class => {
            let (literal, rest) = rest.split_once("\\E").unwrap_or((rest, ""));
            out.push_str(&regex::escape(literal));
            return Ok(rest);
        }
        '<' | '>' => {
            out.push(char);
            return Ok(rest);
        }
        _ => {
            out.push('\\');
            out.push(char);
            return Ok(rest);
        }
    };
    if in_class && !class.starts_with('^') {
        out.push_str(class);
    } else {
        out.push_str(&format!("[{class}]"));
    }
    Ok(rest)
}

/// The length of `2,3}` after an opening brace; `None` when the brace is a letter.
fn repetition(after: &str) -> Result<Option<usize>, String> {
    let Some(end) = after.find('}') else { return Ok(None) };
    let (low, high) = match after[..end].split_once(',') {
        None => (&after[..end], None),
        Some((low, high)) => (low, Some(high)),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(low) || !high.is_none_or(|high| high.is_empty() || is_number(high)) {
        return Ok(None);
    }
    let is_allowed =
        |text: &str| !text.is_empty() && text.parse::<u32>().is_ok_and(|count| count <= REPEAT_MAX);
    let fits = is_allowed(low) && high.is_none_or(|high| high.is_empty() || is_allowed(high));
    match fits {
        true => Ok(Some(end + 1)),
        false => Err(format!("error parsing regexp: invalid repeat count: `{{{}}}`", &after[..end])),
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
