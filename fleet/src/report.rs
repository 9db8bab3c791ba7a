//! What was computed and what happened, as tables for people.

use std::fmt::Write as _;

use crate::model::{Fleet, Input, Inputs, Source, fleet};
use crate::router::Retry;
use crate::scenario::{Report, Row};

/// The size of a fleet, what decides it, and what would change it.
pub fn model(inputs: &Inputs) -> String {
    let mut text = String::new();
    line(&mut text, "| input | value | from |\n|---|---|---|");
    for row in Inputs::ALL {
        let source = match row.source {
            Source::Measured(words) => format!("measured: {words}"),
            Source::Assumed(words) => format!("**assumed**: {words}"),
            Source::Chosen(words) => format!("chosen: {words}"),
        };
        line(
            &mut text,
            &format!(
                "| {} | {} | {} |",
                row.what,
                number(inputs.get(row.input)),
                source.trim_end_matches(": ")
            ),
        );
    }
    let size = fleet(inputs);
    line(&mut text, "\n| a cell has enough | for planes |\n|---|---|");
    for limit in &size.limits {
        line(&mut text, &format!("| {} | {} |", limit.name, number(limit.planes)));
    }
    line(&mut text, "\n| the fleet | |\n|---|---|");
    for (what, value) in figures(&size) {
        line(&mut text, &format!("| {what} | {value} |"));
    }
    line(&mut text, "\n| input | cells if half | cells if double |\n|---|---|---|");
    // Twice the planes is another question, and nobody can use more than all of a machine.
    let changes = |row: &&crate::model::Row| !matches!(row.input, Input::Planes | Input::Headroom);
    for row in Inputs::ALL.iter().filter(changes) {
        let half = fleet(&inputs.scaled(row.input, 0.5));
        let double = fleet(&inputs.scaled(row.input, 2.0));
        if half.cells == size.cells && double.cells == size.cells {
            continue;
        }
        let cell = |fleet: &Fleet| format!("{}, by {}", number(fleet.cells), fleet.limits[0].name);
        line(&mut text, &format!("| {} | {} | {} |", row.what, cell(&half), cell(&double)));
    }
    text
}

pub const HEAD: &str = "| phase | s | requests | done % | met a move | cell away | stale map | 2 hops % | moved | given up | restored | writes lost | frozen s max | exceptions max | table max | fullest cell |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

pub fn row(row: &Row) -> String {
    let counts = &row.counts;
    let retries = |retry| counts.retries.get(&retry).copied().unwrap_or_default();
    let percent = |part: u64| 100.0 * part as f64 / counts.requests.max(1) as f64;
    format!(
        "| {} | {} | {} | {:.3} | {} | {} | {} | {:.2} | {} | {} | {} | {} | {} | {} | {} | {:.2} |",
        row.phase,
        counts.ticks,
        counts.requests,
        percent(counts.done),
        retries(Retry::Moving),
        retries(Retry::Away),
        retries(Retry::StaleMap),
        percent(counts.two_hops),
        counts.moves_done,
        counts.moves_aborted,
        counts.restored,
        counts.writes_lost,
        counts.frozen_ticks_max,
        counts.exceptions_max,
        counts.router_table_max,
        row.imbalance,
    )
}

/// What is to be said after the table.
pub fn end(report: &Report) -> String {
    let mut text = String::new();
    line(
        &mut text,
        &format!("a new cell got {:.2} times its share (1/N) of the planes", report.share_moved_for_new_cell),
    );
    line(&mut text, "what broke, in its order:");
    for (tick, what) in &report.firsts {
        line(&mut text, &format!("  {tick:>6} s  {what}"));
    }
    if report.violations.is_empty() {
        line(&mut text, "no invariant was broken");
    }
    for violation in &report.violations {
        line(&mut text, &format!("BROKEN: {violation}"));
    }
    text
}

fn figures(size: &Fleet) -> Vec<(&'static str, String)> {
    vec![
        ("cells", number(size.cells)),
        ("machines, three a cell", number(size.machines)),
        ("planes of a cell", number(size.planes_of_cell)),
        ("memory of a replica", bytes(size.memory_of_replica)),
        ("etcd of a cell", bytes(size.etcd_bytes_of_cell)),
        ("disk of a replica, not compressed", bytes(size.disk_of_replica)),
        ("writes/s of a cell", number(size.writes_of_cell)),
        ("map in each router", bytes(size.map_bytes)),
        ("the same with all planes by name, 100 bytes each", bytes(size.table_of_all_bytes)),
        ("s until a replica is ready again", number(size.restart_seconds)),
        ("s to restore a lost cell, beside the lease", number(size.restore_seconds)),
        ("planes/s that may move to a cell", number(size.moves_per_second)),
        ("minutes until a new cell has its share", number(size.cell_added_seconds / 60.0)),
        ("% of planes that one lost cell takes along", number(100.0 * size.blast_share)),
    ]
}

fn line(text: &mut String, line: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{line}");
}

fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = units[0];
    for next in &units[1..] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1} {unit}")
}

/// Three digits that matter, thousands apart.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 0.001 {
        return format!("{value:.1e}");
    }
    if value.abs() < 100.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_can_be_read() {
        let check = |value: f64, text: &str| assert_eq!(number(value), text);
        check(10_000_000.0, "10,000,000");
        check(0.027, "0.027");
        check(3.5e-6, "3.5e-6");
        check(44.0, "44");
        check(123.0, "123");
        assert_eq!(bytes(131_072.0), "128.0 KiB");
    }

    #[test]
    fn every_input_and_limit_is_told() {
        let text = model(&Inputs::default());
        for row in Inputs::ALL {
            assert!(text.contains(row.what), "{}", row.what);
        }
        for limit in fleet(&Inputs::default()).limits {
            assert!(text.contains(limit.name), "{}", limit.name);
        }
    }
}
