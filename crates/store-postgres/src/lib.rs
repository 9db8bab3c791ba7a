//! The journal of replicas ([`polder_store::replica`]) on PostgreSQL, 13 and newer.
//!
//! An entry is a row of a table, `log`. It is added by one statement: behind the row of the entry before it, which is locked
//! meanwhile, and if nobody else has added one. `NOTIFY` tells the others. Whoever leads carries entries that are old enough into
//! tables of what there is, and removes them from the log, in one transaction; whoever begins reads those tables and goes on
//! with the log. `sql` has the tables.
//!
//! Invariants: every wait ends in time; nothing is added twice; what the server sends is checked before it is believed, and
//! bounded; passwords are in no message.

mod error;
mod fold;
mod following;
mod journal;
mod leading;
mod options;
mod server;
mod snapshot;
mod sql;
mod tls;

pub use journal::PostgresJournal;
pub use options::{JournalOptions, OptionsError};
pub use polder_store::journal::Leading;
