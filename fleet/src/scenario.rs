//! What a fleet has to live through, in phases; each ends when all is settled, and is then looked at as a whole.

use crate::map::{CellId, Zone};
use crate::placement::{Load, Rates};
use crate::simulation::{Config, Counts, Faults, Simulation, WINDOW_TICKS};

/// A fleet takes longer than this to settle only if something hangs.
const SETTLE_TICKS_MAX: u64 = 100_000;

#[derive(Clone, Debug)]
pub struct Size {
    pub planes: u32,
    pub cells: u16,
    pub seed: u64,
    /// How long each phase has faults.
    pub ticks: u64,
    pub requests_per_tick: u64,
    /// Look at all planes after every tick, and through every router at the end of a phase: for small fleets.
    pub thorough: bool,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub phase: &'static str,
    pub counts: Counts,
    /// How much more than the average the fullest cell has at the end.
    pub imbalance: f64,
    pub cells: usize,
    pub changes: usize,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub rows: Vec<Row>,
    pub firsts: Vec<(u64, String)>,
    pub violations: Vec<String>,
    /// Of all planes, those that moved when a cell was added, times the number of cells then: about one.
    pub share_moved_for_new_cell: f64,
}

pub fn config(size: &Size) -> Config {
    let cells = u64::from(size.cells);
    let planes_mean = u64::from(size.planes) / cells;
    let writes_mean = size.requests_per_tick * WINDOW_TICKS * 345 / 1000 / cells;
    Config {
        seed: size.seed,
        planes: size.planes,
        cells: size.cells,
        zones: 3,
        routers: if size.thorough { 4 } else { 16 },
        requests_per_tick: size.requests_per_tick,
        router_table_len_max: if size.thorough { 200 } else { 65_536 },
        lease_ticks: 30,
        lease_margin_ticks: 5,
        backup_lag_ticks: 5,
        restore_ticks: if size.thorough { 30 } else { 300 },
        seed_backup_ticks: if size.thorough { 40 } else { 300 },
        copy_bytes_per_tick: 8 << 20,
        rates: Rates {
            moves_max: if size.thorough { 300 } else { 8_000 },
            moves_of_cell_max: if size.thorough { 100 } else { 1_000 },
        },
        bounds: Load {
            planes: planes_mean * 13 / 10,
            bytes: planes_mean * 17_408 * 2,
            writes: writes_mean * 5 / 2,
        },
        sweep_every_ticks: u64::from(size.thorough),
    }
}

pub fn run(size: &Size, mut progress: impl FnMut(&Row)) -> Report {
    let mut simulation = Simulation::new(config(size));
    let mut rows: Vec<Row> = Vec::new();
    let small_faults = Faults {
        machine: 40_000,
        cell_cut: 10_000,
        router_cut: 20_000,
        directory: 3_000,
        mover: 3_000,
        ..Faults::default()
    };
    let mut phase = |simulation: &mut Simulation, phase: &'static str, faults: Faults, ticks: u64| {
        simulation.set_faults(faults);
        simulation.run(ticks);
        let settled = simulation.settle(SETTLE_TICKS_MAX);
        let mut imbalance = simulation.audit(if size.thorough { 500 } else { 20_000 });
        if !settled {
            imbalance = f64::NAN;
        }
        let row = Row {
            phase,
            counts: simulation.take_counts(),
            imbalance,
            cells: simulation.directory().members().len(),
            changes: simulation.directory().len(),
        };
        progress(&row);
        rows.push(row);
    };

    phase(&mut simulation, "nothing breaks", Faults::default(), size.ticks);
    phase(&mut simulation, "machines stop, networks part", small_faults, size.ticks);
    simulation.destroy_cell(CellId(1));
    phase(&mut simulation, "a cell is lost", Faults::default(), size.ticks);
    simulation.add_cell();
    phase(&mut simulation, "a cell is added", Faults::default(), size.ticks);
    simulation.drain_cell(CellId(0));
    // Those who drive moves die, and messages are late: 3 of 1,000 movers in each tick.
    let late = Faults { mover: 3_000, router_cut: 5_000, ..Faults::default() };
    phase(&mut simulation, "a cell is drained, movers die", late, size.ticks);
    simulation.lose_zone(Zone(2));
    phase(&mut simulation, "a zone is lost", Faults::default(), size.ticks);
    simulation.add_cell();
    let all = Faults { cell: 2_000, zone: 1_000, ..small_faults };
    phase(&mut simulation, "all of it, and a cell added", all, size.ticks * 2);

    let mut violations = simulation.violations().to_vec();
    violations.extend(
        rows.iter().filter(|row| row.imbalance.is_nan()).map(|row| format!("{}: never settled", row.phase)),
    );
    let added = rows.iter().find(|row| row.phase == "a cell is added");
    let share =
        added.map_or(0.0, |row| row.counts.moves_done as f64 * row.cells as f64 / f64::from(size.planes));
    Report { rows, firsts: simulation.firsts().to_vec(), violations, share_moved_for_new_cell: share }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::seed_from_environment;
    use crate::router::Retry;

    fn small(seed: u64) -> Size {
        eprintln!("fleet: POLDER_SEED={seed}");
        Size { planes: 6_000, cells: 9, seed, ticks: 300, requests_per_tick: 30, thorough: true }
    }

    #[test]
    fn a_fleet_lives_through_everything() {
        for seed in [seed_from_environment(), 1, 2] {
            let report = run(&small(seed), |_| {});
            assert_eq!(report.violations, [""; 0], "seed {seed}");
            let share = report.share_moved_for_new_cell;
            assert!((0.6..1.6).contains(&share), "seed {seed}: {share} of the share of a new cell moved");
            for row in &report.rows {
                assert!(row.imbalance < 1.35, "seed {seed}: {}: {}", row.phase, row.imbalance);
                assert!(row.counts.router_table_max <= 200, "seed {seed}: {}", row.phase);
            }
            // A run that meets no failure proves nothing.
            let total =
                |count: fn(&Counts) -> u64| report.rows.iter().map(|row| count(&row.counts)).sum::<u64>();
            assert!(total(|counts| counts.restored) >= 4, "seed {seed}");
            assert!(total(|counts| counts.moves_done) > 1_000, "seed {seed}");
            assert!(total(|counts| counts.moves_aborted) > 0, "seed {seed}");
            assert!(total(|counts| counts.movers_crashed) > 0, "seed {seed}");
            assert!(total(|counts| counts.two_hops) > 0, "seed {seed}");
            assert!(
                total(|counts| counts.retries.get(&Retry::Away).copied().unwrap_or_default()) > 0,
                "seed {seed}"
            );
            // While nothing breaks nobody is turned away but by planes on the move.
            let calm = &report.rows[0].counts;
            assert!(calm.retries.keys().all(|retry| *retry == Retry::Moving), "seed {seed}: {calm:?}");
            assert_eq!((calm.writes_lost, calm.planes_lost), (0, 0));
        }
    }

    #[test]
    fn a_seed_is_a_run() {
        let size = Size { planes: 2_000, ticks: 60, ..small(7) };
        let one = format!("{:?}", run(&size, |_| {}));
        assert_eq!(one, format!("{:?}", run(&size, |_| {})));
        assert_ne!(one, format!("{:?}", run(&Size { seed: 8, ..size }, |_| {})));
    }

    #[test]
    fn moves_lose_nothing_though_movers_die_at_every_step() {
        let mut simulation = Simulation::new(config(&small(11)));
        simulation.set_faults(Faults { mover: 60_000, ..Faults::default() });
        simulation.add_cell();
        simulation.run(400);
        let crashed = simulation.take_counts();
        assert!(crashed.movers_crashed > 100 && crashed.moves_aborted > 100, "{crashed:?}");
        assert!(simulation.settle(SETTLE_TICKS_MAX));
        simulation.audit(500);
        assert_eq!(simulation.violations(), [""; 0]);
        assert_eq!(simulation.take_counts().writes_lost, 0);
    }
}
