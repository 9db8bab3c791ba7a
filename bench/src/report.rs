//! Everything that was measured, as tables and as JSON.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::load::Measured;

/// One operation under load, on our server and perhaps on the peer.
#[derive(Serialize)]
struct Row {
    case: String,
    clients: usize,
    polder: Cost,
    peer: Option<Cost>,
    /// The peer's CPU per request over ours.
    ratio: Option<f64>,
    /// What design section 10 allows, in CPU milliseconds per request.
    goal_cpu_ms: Option<f64>,
}

#[derive(Serialize)]
struct Cost {
    requests: usize,
    per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    cpu_ms: f64,
    resident_mib: f64,
}

/// One number: memory of a fleet, time of a restart.
#[derive(Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    goal: Option<f64>,
}

#[derive(Default, Serialize)]
pub(crate) struct Report {
    rows: Vec<Row>,
    figures: Vec<Figure>,
}

impl Report {
    /// Takes one case in. Prints it at once too: a whole run takes minutes.
    pub(crate) fn case(
        &mut self,
        case: impl Into<String>,
        goal_cpu_ms: Option<f64>,
        polder: &Measured,
        peer: Option<&Measured>,
    ) {
        let (case, clients) = (case.into(), polder.clients);
        let (polder, peer) = (Cost::new(polder), peer.map(Cost::new));
        let ratio = peer.as_ref().map(|peer| peer.cpu_ms / polder.cpu_ms);
        let row = Row { case, clients, polder, peer, ratio, goal_cpu_ms };
        eprintln!("{}", row.cells().join("  "));
        self.rows.push(row);
    }

    pub(crate) fn figure(
        &mut self,
        name: impl Into<String>,
        value: f64,
        unit: &'static str,
        goal: Option<f64>,
    ) {
        let figure = Figure { name: name.into(), value, unit, goal };
        eprintln!("{}", figure.cells().join("  "));
        self.figures.push(figure);
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        if !rows.is_empty() {
            table(&mut out, &Row::HEAD, &rows)?;
        }
        let figures: Vec<Vec<String>> = self.figures.iter().map(Figure::cells).collect();
        if !figures.is_empty() {
            writeln!(out)?;
            table(&mut out, &Figure::HEAD, &figures)?;
        }
        Ok(())
    }

    pub(crate) fn write_json(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Cost {
    fn new(measured: &Measured) -> Cost {
        #[expect(clippy::cast_precision_loss, reason = "counts are small")]
        let (done, resident) = (measured.done.max(1) as f64, measured.resident as f64);
        Cost {
            requests: measured.done,
            per_second: done / measured.elapsed.as_secs_f64(),
            p50_ms: measured.p50.as_secs_f64() * 1e3,
            p99_ms: measured.p99.as_secs_f64() * 1e3,
            cpu_ms: measured.cpu.as_secs_f64() * 1e3 / done,
            resident_mib: resident / (1024.0 * 1024.0),
        }
    }
}

impl Row {
    const HEAD: [&str; 12] = [
        "case",
        "clients",
        "requests",
        "per s",
        "p50 ms",
        "p99 ms",
        "CPU ms",
        "goal",
        "RSS MiB",
        "peer CPU ms",
        "peer p50 ms",
        "ratio",
    ];

    fn cells(&self) -> Vec<String> {
        let short = |value: Option<f64>| value.map_or_else(|| "-".into(), number);
        vec![
            self.case.clone(),
            self.clients.to_string(),
            self.polder.requests.to_string(),
            number(self.polder.per_second),
            number(self.polder.p50_ms),
            number(self.polder.p99_ms),
            number(self.polder.cpu_ms),
            short(self.goal_cpu_ms),
            number(self.polder.resident_mib),
            short(self.peer.as_ref().map(|peer| peer.cpu_ms)),
            short(self.peer.as_ref().map(|peer| peer.p50_ms)),
            short(self.ratio),
        ]
    }
}

impl Figure {
    const HEAD: [&str; 4] = ["figure", "value", "unit", "goal"];

    fn cells(&self) -> Vec<String> {
        let goal = self.goal.map_or_else(|| "-".into(), number);
        vec![self.name.clone(), number(self.value), self.unit.into(), goal]
    }
}

/// Three digits that mean something.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 => format!("{value:.2}"),
        tiny if tiny >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// A Markdown table with aligned columns, so that it reads well in both places.
fn table(out: &mut impl std::io::Write, head: &[&str], rows: &[Vec<String>]) -> anyhow::Result<()> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::len);
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| -> std::io::Result<()> {
        let cells = cells.zip(&widths).enumerate();
        for (column, (cell, width)) in cells {
            if column == 0 {
                write!(out, "| {cell:<width$} |")?;
            } else {
                write!(out, " {cell:>width$} |")?;
            }
        }
        writeln!(out)
    };
    line(&mut head.iter().copied())?;
    let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    line(&mut rules.iter().map(String::as_str))?;
    for row in rows {
        line(&mut row.iter().map(String::as_str))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_tables() {
        for (value, text) in
            [(12_345.6, "12346"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123"), (0.01234, "0.0123")]
        {
            assert_eq!(number(value), text);
        }
        let mut out = Vec::new();
        table(&mut out, &["a", "bcd"], &[vec!["long".into(), "1".into()]]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "| a    | bcd |\n| ---- | --- |\n| long |   1 |\n");
    }
}
