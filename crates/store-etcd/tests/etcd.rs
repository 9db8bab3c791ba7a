//! The journal on a real etcd: replicas, the suite of all engines over it, and what can go wrong.
//!
//! One etcd serves all tests of this binary, each under a prefix of its own. `POLDER_TEST_ETCD` says where the program is
//! (`cargo xtask tools`); without it everything here is left out, and says so.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

/// Names the program: Debian's, of 3.4.
const PROGRAM: &str = "POLDER_TEST_ETCD";

#[path = "etcd/appending.rs"]
mod appending;
#[path = "etcd/beginning.rs"]
mod beginning;
#[path = "etcd/cluster.rs"]
mod cluster;
#[path = "etcd/faults.rs"]
mod faults;
#[path = "etcd/history.rs"]
mod history;
#[path = "etcd/journaled.rs"]
mod journaled;
#[path = "etcd/members.rs"]
mod members;
#[path = "etcd/replicas.rs"]
mod replicas;
