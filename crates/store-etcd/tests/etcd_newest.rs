//! The journal on the newest etcd that we promise to work with. `etcd.rs` has the whole suite, on the oldest one.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

/// Names the program, built from Go modules.
const PROGRAM: &str = "POLDER_TEST_ETCD_NEWEST";

#[path = "etcd/appending.rs"]
mod appending;
#[path = "etcd/beginning.rs"]
mod beginning;
#[path = "etcd/cluster.rs"]
mod cluster;
#[path = "etcd/replicas.rs"]
mod replicas;
