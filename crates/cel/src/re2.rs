//! Regular expressions as Go's RE2 reads them, compiled by the `regex` crate.
//!
//! The dialects differ where a hostile or merely old pattern would notice: ASCII classes, literal brackets inside
//! classes, braces that are no repetition, `\Q..\E`. Both take linear time to match; compiling is bounded in memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use polder_model::SmolStr;
use regex::{Regex, RegexBuilder};

/// What matching may cache per pattern.
const DFA_BYTES_MAX: usize = 256 << 10;

/// What is said of a pattern that compiles to more bytes than allowed.
pub const TOO_LARGE: &str = "expression too large";

/// Go refuses larger repetition counts.
const REPEAT_MAX: u32 = 1000;

/// The compiled pattern, or what is wrong with it in words like Go's.
pub fn compile(pattern: &str, bytes_max: usize) -> Result<Regex, String> {
    let translated = translate(pattern)?;
    let built = RegexBuilder::new(&translated).size_limit(bytes_max).dfa_size_limit(DFA_BYTES_MAX).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => TOO_LARGE.into(),
        error => problem(&error.to_string()),
    })
}

/// What may be spent on compiling all patterns of one object, be they good or bad: of a policy, of a CRD. Clones share it.
#[derive(Clone, Debug)]
pub struct Effort(Arc<AtomicUsize>);

/// Some tenths of a second.
const EFFORT_MAX: usize = 64 << 20;
/// A class of Unicode is a table of some hundred rows even before anything is compiled.
const UNICODE_CLASS_EFFORT: usize = 16 << 10;
const CLASS_EFFORT: usize = 1 << 10;

impl Default for Effort {
    fn default() -> Effort {
        Effort::new(EFFORT_MAX)
    }
}

impl Effort {
    /// So much, in bytes of compiled patterns and what takes as long.
    pub fn new(effort_max: usize) -> Effort {
        Effort(Arc::new(AtomicUsize::new(effort_max)))
    }

    /// Whether there is as much left; then it is spent.
    fn spend(&self, effort: usize) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(effort)).is_ok()
    }
}

/// What one try to compile a pattern takes.
fn effort(pattern: &str, bytes_max: usize) -> usize {
    let classes = pattern.matches('[').count() * CLASS_EFFORT;
    let is_unicode = |pair: &&[u8]| matches!(pair, [b'\\', b'p' | b'P']);
    let unicode = pattern.as_bytes().windows(2).filter(is_unicode).count() * UNICODE_CLASS_EFFORT;
    bytes_max + pattern.len() + classes + unicode
}

/// Compiles patterns that may take so much together, of memory and of an effort. Equal ones are compiled once.
#[derive(Debug)]
pub struct Patterns {
    known: HashMap<SmolStr, Result<Regex, String>>,
    bytes_max: usize,
    bytes_left: usize,
    effort: Effort,
}

/// Why a pattern is not compiled.
#[derive(Debug)]
pub enum Problem {
    Pattern(String),
    /// There were too many before it.
    Exhausted,
}

/// Sizes tried for one compiled pattern, to know about how much it takes; the last is the limit.
const BYTES_STEPS: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];
/// What the patterns of one expression may take.
const EXPRESSION_BYTES_MAX: usize = 4 << 20;

impl Patterns {
    pub fn new(bytes_max: usize, effort: &Effort) -> Patterns {
        Patterns { known: HashMap::new(), bytes_max, bytes_left: bytes_max, effort: effort.clone() }
    }

    pub(crate) fn of_expression(effort: &Effort) -> Patterns {
        Patterns::new(EXPRESSION_BYTES_MAX, effort)
    }

    /// What all compiled patterns take, at most.
    pub fn used(&self) -> usize {
        self.bytes_max - self.bytes_left
    }

    pub fn compile(&mut self, pattern: &str) -> Result<Regex, Problem> {
        if let Some(known) = self.known.get(pattern) {
            return known.clone().map_err(Problem::Pattern);
        }
        let compiled = self.compile_new(pattern)?;
        self.known.insert(SmolStr::new(pattern), compiled.clone());
        compiled.map_err(Problem::Pattern)
    }

    fn compile_new(&mut self, pattern: &str) -> Result<Result<Regex, String>, Problem> {
        for bytes in BYTES_STEPS {
            // Trying costs too, whether it succeeds or not.
            if !self.effort.spend(effort(pattern, bytes)) {
                return Err(Problem::Exhausted);
            }
            self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or(Problem::Exhausted)?;
            let compiled = compile(pattern, bytes);
            if !compiled.as_ref().is_err_and(|problem| problem == TOO_LARGE) {
                return Ok(compiled);
            }
        }
        Ok(Err(TOO_LARGE.into()))
    }
}

/// The last line of a syntax error carries the reason; the lines before it draw a picture.
fn problem(text: &str) -> String {
    let reason = text.lines().last().unwrap_or(text);
    format!("error parsing regexp: {}", reason.strip_prefix("error: ").unwrap_or(reason))
}

/// Rewrites what Go's RE2 reads differently.
pub fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    let mut class = Class::Outside;
    // Where a repetition began that was read last: another one may not follow.
    let mut repeated: Option<&str> = None;
    while let Some(char) = rest.chars().next() {
        if class == Class::Outside
            && let Some(length) = repetition_len(rest)?
        {
            let lazy = usize::from(rest[length..].starts_with('?'));
            if let Some(start) = repeated {
                let shown = &start[..start.len() - rest.len() + length];
                return Err(format!("error parsing regexp: invalid nested repetition operator: `{shown}`"));
            }
            repeated = Some(rest);
            out.push_str(&rest[..length + lazy]);
            rest = &rest[length + lazy..];
            continue;
        }
        repeated = None;
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
            ('(', Class::Outside) => {
                check_flags(rest)?;
                out.push('(');
                after
            }
            ('{', Class::Outside) => {
                out.push_str("\\{");
                after
            }
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
        // Code points by number are written `\x{41}` in Go.
        'u' | 'U' => return Err(format!("error parsing regexp: invalid escape sequence: `\\{char}`")),
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

/// Groups may set flags; the other dialect knows more of them.
fn check_flags(group: &str) -> Result<(), String> {
    let Some(flags) = group.strip_prefix("(?") else { return Ok(()) };
    for (index, flag) in flags.char_indices() {
        match flag {
            'i' | 'm' | 's' | 'U' | '-' => {}
            'x' | 'u' | 'R' => {
                let shown = &group[..2 + index + flag.len_utf8()];
                return Err(format!("error parsing regexp: invalid or unsupported Perl syntax: `{shown}`"));
            }
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// The length of a repetition at the beginning of the text.
fn repetition_len(text: &str) -> Result<Option<usize>, String> {
    match text.as_bytes().first() {
        Some(b'*' | b'+' | b'?') => Ok(Some(1)),
        Some(b'{') => Ok(repetition(&text[1..])?.map(|length| length + 1)),
        _ => Ok(None),
    }
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

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let rows = [
            ("^[a-z]+$", "abc", true),
            ("a{,2}", "a{,2}", true),
            ("x*?y", "xxy", true),
            (r"\w", "é", false),
            (r"[[a]", "[", true),
            (r"\Qa.b\E", "a.b", true),
            ("(?:a)", "a", true),
            ("(?i)A", "a", true),
            ("a{2}", "aa", true),
            ("a??", "", true),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(compile(pattern, 1 << 20).unwrap().is_match(text), expected, "{pattern}");
        }
        for (pattern, problem) in [
            ("(?x)a b", "error parsing regexp: invalid or unsupported Perl syntax: `(?x`"),
            ("(?i-u:a)", "error parsing regexp: invalid or unsupported Perl syntax: `(?i-u`"),
            (r"\u{41}", r"error parsing regexp: invalid escape sequence: `\u`"),
            (r"[\U00000041]", r"error parsing regexp: invalid escape sequence: `\U`"),
        ] {
            assert_eq!(compile(pattern, 1 << 20).unwrap_err(), problem, "{pattern}");
        }
        assert!(compile("(?is-mU:A)(?P<x>b)(?<u>c)[(?x)]", 1 << 20).is_ok());
        for pattern in ["x++", "x**", "x{2}{3}", "(", "a{1001}", "*a", "x+?+"] {
            assert!(compile(pattern, 1 << 20).is_err(), "{pattern}");
        }
        assert_eq!(compile("((a{100}){100}){100}", 1 << 20).unwrap_err(), "expression too large");
    }

    /// However many there are, and however many times one begins, an effort ends.
    #[test]
    fn bad_patterns_cost_what_good_ones_do() {
        let unicode = r"\pL".repeat(1000) + "(";
        let rows = [("((a{100}){100}){100}", 60), ("(", 5000), (unicode.as_str(), 10), ("^a$", 5000)];
        for (pattern, tries_max) in rows {
            let effort = Effort::default();
            let is_tried = |_: &usize| {
                !matches!(Patterns::of_expression(&effort).compile(pattern), Err(Problem::Exhausted))
            };
            let tries = (0..10_000).take_while(is_tried).count();
            assert!((1..=tries_max).contains(&tries), "{pattern:.40}: {tries}");
        }
    }
}
