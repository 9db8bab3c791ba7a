//! The text of an expression and what is wrong with it, shown the way cel-go shows it.
//!
//! Positions are byte offsets into the source. Lines and columns are worked out only when a report is printed;
//! columns count characters. A report names a bounded number of problems, however many there are.

use std::fmt;

/// Where something stands: a byte offset, or nowhere in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u32);

impl Position {
    pub const NOWHERE: Position = Position(u32::MAX);

    pub fn at(offset: usize) -> Position {
        Position(u32::try_from(offset).unwrap_or(u32::MAX))
    }
}

/// No more problems than this are named; the rest is counted.
const ISSUES_MAX: usize = 100;
/// A longer line is not repeated in the report.
const SNIPPET_LEN_MAX: usize = 16_384;
/// What the picture of one report may take: a hundred problems in one long line would repeat it a hundred times.
const REPORT_LEN_MAX: usize = 64 << 10;

/// Why an expression does not compile. Prints like cel-go: position, text, and a picture of the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.report())]
pub struct CompileErrors {
    whole: Box<str>,
    issues: Vec<Issue>,
    count: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    pub position: Position,
    pub text: String,
}

impl CompileErrors {
    pub(crate) fn new(source: &str) -> CompileErrors {
        CompileErrors { whole: source.into(), issues: Vec::new(), count: 0 }
    }

    pub(crate) fn add(&mut self, position: Position, text: impl Into<String>) {
        self.count += 1;
        if self.issues.len() < ISSUES_MAX {
            self.issues.push(Issue { position, text: text.into() });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count >= ISSUES_MAX
    }

    pub fn issues(&self) -> &[Issue] {
        &self.issues
    }

    fn report(&self) -> String {
        let mut issues: Vec<&Issue> = self.issues.iter().collect();
        // Nowhere comes first, as line -1 does upstream.
        issues.sort_by_key(|issue| issue.position.0.wrapping_add(1));
        let mut out = String::new();
        for issue in issues {
            if !out.is_empty() {
                out.push('\n');
            }
            self.show(issue, &mut out);
        }
        if self.count > self.issues.len() {
            out.push_str(&format!("\n{} more errors were truncated", self.count - self.issues.len()));
        }
        out
    }

    fn show(&self, issue: &Issue, out: &mut String) {
        let offset = issue.position.0 as usize;
        let Some(before) = (issue.position != Position::NOWHERE).then(|| self.whole.get(..offset)).flatten()
        else {
            out.push_str(&format!("ERROR: <input>:-1:0: {}", issue.text));
            return;
        };
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_number = before.matches('\n').count() + 1;
        let before = &self.whole[line_start..offset];
        let column = before.chars().count();
        out.push_str(&format!("ERROR: <input>:{line_number}:{}: {}", column + 1, issue.text));
        let line = self.whole[line_start..].split('\n').next().unwrap_or_default();
        if line.len() > SNIPPET_LEN_MAX || out.len() > REPORT_LEN_MAX {
            return;
        }
        out.push_str("\n | ");
        out.extend(line.chars().map(|char| if char == '\t' { ' ' } else { char }));
        out.push_str("\n | ");
        out.extend(before.chars().map(|char| if char.len_utf8() > 1 { '\u{ff0e}' } else { '.' }));
        let here = line[before.len().min(line.len())..].chars().next();
        out.push(if here.is_some_and(|char| char.len_utf8() > 1) { '\u{ff3e}' } else { '^' });
    }
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
