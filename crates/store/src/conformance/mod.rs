//! The one suite every engine must pass, through the store above it: what the store promises is promised over any
//! engine, with and without its caches.
//!
//! An engine's crate writes one [`Fixture`] and one line, `polder_store::conformance_tests!(make_fixture)`, and gets
//! one `#[test]` per case. Each case runs on fresh contents under every [`profile`](PROFILES): with a large cache, with
//! none, and with one so small that loading and eviction never rest.

#![expect(clippy::unwrap_used, reason = "a test suite that lives in a library because several crates run it")]

mod caching;
mod commits;
mod engines;
mod faults;
mod histories;
mod layers;
mod planes;
mod probe;
pub mod replicas;
mod simulation;
mod watches;
pub mod way;
mod world;

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use crate::engine::Engine;
use crate::store::StoreOptions;

pub use self::replicas::{MakeReplicas, Replicas};

/// The contents one case works on.
pub trait Fixture: Send + Sync {
    /// Opens the contents: empty the first time, afterwards what the engine before it left. An earlier engine has
    /// been dropped by then.
    fn engine(&self) -> Box<dyn Engine>;

    /// Steps of the random simulation; a slow engine takes fewer.
    fn simulation_len(&self) -> usize {
        2_000
    }
}

/// Makes fresh, empty contents.
pub type MakeFixture<'a> = &'a dyn Fn() -> Box<dyn Fixture>;

/// Longer than any case takes on a busy machine: a case that hangs fails.
const CASE_PATIENCE: Duration = Duration::from_secs(120);

/// Memory for the cache and for recent events under which every case must hold.
pub const PROFILES: [(&str, usize, usize); 3] =
    [("cached", 64 << 20, 16 << 20), ("uncached", 0, 0), ("tight", 16 << 10, 6 << 10)];

/// What a case is given.
pub(crate) struct Setup<'a> {
    make: MakeFixture<'a>,
    options: StoreOptions,
}

type CaseFuture<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Case = for<'a> fn(&'a Setup<'a>) -> CaseFuture<'a>;

/// Hands the names of all cases to a macro, so that they are written down once.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($callback:ident $($input:tt)*) => {
        $crate::$callback! { $($input)* ;
            engines: batches_follow_each_other, versions_and_scans, scans_in_name_order, scans_end_at_bytes,
                log_chunks_are_whole,
                rows_come_back, spaces_are_dropped_whole, compaction_keeps_what_is_visible,
                deletions_that_hide_nothing_go;
            commits: counters_lose_no_update, expectations, several_writes_are_one_commit, a_key_is_written_once,
                planes_take_turns, guards, readers_never_go_back, names_without_a_place;
            watches: resume_from_every_revision, watchers_agree, slow_watchers_miss_nothing, memory_equals_log,
                watch_from_the_future, cancelled_waits_lose_nothing, watches_end, progress_never_runs_ahead,
                resuming_reads_only_its_plane, heavy_events_do_not_pile_up;
            histories: compaction_forgets_only_the_past, compaction_spares_the_newest, pages_are_one_state,
                ranges_and_continuations, filters, pages_count_once, pages_end_at_bytes;
            caching: loads_race_with_writers, reads_between_durable_and_visible, writes_during_a_load,
                forks_during_a_read, deletion_during_a_read, slow_reads_leave_room;
            layers: overlays_and_tombstones, forks_are_isolated, forks_in_one_commit_with_writes,
                unchanged_planes_fork_flat, history_runs_across_a_fork, shared_layers_outlive_planes, named_layers,
                depth_is_bounded, usage_is_exact, merging_under_readers, interrupted_merges_leave_nothing,
                forks_without_pause_are_refused, heavy_layers_are_merged_in_steps, templates_are_merged,
                layers_change_hands_in_steps;
            planes: deletion_returns_space, ids_are_never_reused, names_in_one_group,
                planes_begin_with_something_of_their_own, limits_under_concurrency, only_growth_is_refused, deleted_with_its_writes, reopening_keeps_everything,
                another_base_for_new_planes, no_base_at_all;
            faults: a_full_disk_changes_nothing, a_failed_group_leaks_nothing, failed_compaction_is_retried,
                closing_finishes_the_queue, unknown_outcomes_are_told;
            simulation: random_operations_match_a_model;
        }
    };
}

/// One `#[test]` per case. `$make` makes an empty [`Fixture`](crate::conformance::Fixture) in a box. Where an engine needs
/// something that may be missing, `$is_ready` says whether it is there.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests! { $make, || true }
    };
    ($make:expr, $is_ready:expr) => {
        $crate::conformance_cases! { conformance_test_functions $make, $is_ready }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_functions {
    ($make:expr, $is_ready:expr; $($module:ident: $($case:ident),*;)*) => {
        $($(
            #[test]
            fn $case() {
                if ($is_ready)() {
                    $crate::conformance::run(stringify!($case), &|| $make());
                }
            }
        )*)*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_case_table {
    (; $($module:ident: $($case:ident),*;)*) => {
        &[$($((stringify!($case), |setup| Box::pin($module::$case(setup)))),*),*]
    };
}

const CASES: &[(&str, Case)] = crate::conformance_cases! { conformance_case_table };

/// Runs every case, in order.
pub fn run_all(make: MakeFixture<'_>) {
    for (name, _) in CASES {
        run(name, make);
    }
}

/// Runs one case under every profile.
pub fn run(name: &str, make: MakeFixture<'_>) {
    let (_, case) = CASES.iter().find(|(own, _)| *own == name).expect("a case of this suite");
    under_profiles(name, |options| {
        let setup = Setup { make, options };
        Box::pin(async move { case(&setup).await })
    });
}

fn under_profiles<'a>(name: &str, mut case: impl FnMut(StoreOptions) -> CaseFuture<'a>) {
    for (profile, cache_bytes_max, recent_bytes_max) in PROFILES {
        eprintln!("conformance: {name}, {profile}");
        let _named = Named { name, profile };
        let options = StoreOptions {
            cache_bytes_max,
            recent_bytes_max,
            // Nothing is forgotten behind a case's back.
            history: Duration::from_secs(3_600),
            history_len_min: 1 << 40,
            ..StoreOptions::default()
        };
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
        let limited = async { tokio::time::timeout(CASE_PATIENCE, case(options)).await };
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(limited)));
        // Dropping the runtime would wait for what a failed case left hanging.
        runtime.shutdown_background();
        let finished = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        finished.unwrap_or_else(|_| panic!("conformance case {name} ({profile}) hangs"));
    }
}

/// Says which case a panic belongs to.
struct Named<'a> {
    name: &'a str,
    profile: &'a str,
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("conformance case {} ({}) failed", self.name, self.profile);
        }
    }
}
