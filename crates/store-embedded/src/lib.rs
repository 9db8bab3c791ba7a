//! The embedded engine: a store in one directory of one machine, kept by SQLite.
//!
//! [`SqliteEngine`] implements [`polder_store::engine::Engine`]. A batch is one transaction in WAL mode with one
//! fsync; checkpoints run on a thread of their own; reads use a few connections beside the writer. Invariants: what
//! [`apply`](polder_store::engine::Engine::apply) returned `Ok` for survives a crash; a batch is there as a whole or
//! not at all; nothing that does not match its checksum is ever given out.
//!
//! # Files
//!
//! | file | what |
//! |---|---|
//! | `store.db` | the database, 8 KiB pages, each with a checksum. The `sqlite3` tool may read it, but must not write |
//! | `store.db-wal`, `store.db-shm` | commits that are not yet in `store.db`; SQLite's own index of them |
//! | `COMMITTED` | the newest acknowledged revision, see below |
//! | `LOCK` | locked by the process that uses the directory |
//!
//! # Damage: what is noticed and what is not
//!
//! * **A flipped or lost page of `store.db`** is noticed when it is read: every page has a checksum that includes its
//!   number, verified below SQLite ([`page`](self)). Values, log rows and plane rows have a second checksum that
//!   includes their key and revision. A page replaced by an *older* version of the same page is not noticed by that,
//!   only by [`verify()`], when rows and log contradict each other.
//! * **A torn tail of the WAL** is a commit that was never acknowledged. SQLite discards it; nothing is lost.
//! * **Damage inside the WAL** makes SQLite discard the damaged commit and all after it. Opening then finds that the
//!   log ends before the revision in `COMMITTED`, or that SQLite could read fewer WAL frames than `COMMITTED` knows to
//!   have been there, refuses, and leaves the WAL as it is. `COMMITTED` is written after each commit without an fsync, and
//!   synced with every checkpoint (at most a second after a commit, or 8 MiB) and at close. So after a killed process
//!   everything acknowledged is covered; after a power cut, damage that hits the WAL at the same time can go unnoticed
//!   for commits of the last second or two, if the disk lost the newest `COMMITTED` as well.
//! * **A missing, truncated, replaced or older `store.db` or WAL** is noticed by `COMMITTED` in the same way; it holds the
//!   checksum of the whole history up to its revision, so that a store with another history is refused too.
//! * **Holes in the log** are noticed at open: the log must be dense. The chain of checksums is verified at open for the
//!   last 1,000 commits, and for all by [`verify()`].
//! * **Not noticed**: damage to WAL pages between the moment they are written and the checkpoint that copies
//!   them, while the process runs (SQLite verifies the WAL's checksums only when it opens it); changes made on purpose by
//!   someone who also fixes the checksums; the loss of the whole directory.
//!
//! A store that cannot be opened is never changed: no checkpoint, no deletion, nothing but `LOCK` and SQLite's
//! `store.db-shm`.

mod at_rest;
mod checkpoint;
mod committed;
mod compact;
mod database;
mod engine;
mod error;
mod history;
mod key;
mod keys;
mod log;
mod page;
mod pool;
mod reader;
mod row;
mod snapshot;
mod traces;
mod value;
mod verify;
mod wal;

pub use at_rest::AtRest;
pub use engine::{Options, SqliteEngine};
pub use error::OpenError;
pub use snapshot::{Rows, Snapshot};
pub use traces::{Needles, Trace};
pub use verify::{Report, verify};

#[cfg(test)]
mod tests;
