//! What commands print: data on stdout, everything else on stderr.

use std::io::Write as _;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use polder_model::Value;

/// Prints to stdout. A reader that has seen enough (`| head`) ends the program in peace.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        outcome => outcome.context("cannot write to stdout"),
    }
}

/// So many planes, in words.
pub(crate) fn planes(count: usize) -> String {
    if count == 1 { "1 plane".into() } else { format!("{count} planes") }
}

pub(crate) fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

pub(crate) fn print_yaml(value: &Value) -> anyhow::Result<()> {
    print(&serde_saphyr::to_string(value)?)
}

/// Columns as wide as their widest cell, three spaces between, none at the end of a line: as kubectl does it.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}   ", width = *width));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A bar on stderr, if somebody is looking.
pub(crate) fn bar(length: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {human_pos}/{human_len} {per_sec} {eta}");
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_message(what)
}

/// A byte counter on stderr, if somebody is looking.
pub(crate) fn counter(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {bytes} {bytes_per_sec}") {
        bar.set_style(style);
    }
    bar.with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_string()).collect::<Vec<_>>();
        let text =
            table(&[row(&["NAME", "AGE", "URL"]), row(&["a-long-name", "5s", ""]), row(&["é", "10m", "x"])]);
        assert_eq!(text, "NAME          AGE   URL\na-long-name   5s\né             10m   x\n");
    }
}
