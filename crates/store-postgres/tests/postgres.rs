//! The journal on a real PostgreSQL: replicas, the suite of all engines over it, and what can go wrong.
//!
//! One server serves most tests of this binary, each in a schema of its own. `POLDER_TEST_POSTGRES` says where the program is
//! (`cargo xtask tools`), with `initdb` beside it; without it everything here is left out, and says so.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "postgres/appending.rs"]
mod appending;
#[path = "postgres/beginning.rs"]
mod beginning;
#[path = "postgres/cluster.rs"]
mod cluster;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/journaled.rs"]
mod journaled;
#[path = "postgres/leaders.rs"]
mod leaders;
#[path = "postgres/replicas.rs"]
mod replicas;
