//! The journal of replicas ([`polder_store::replica`]) on etcd, 3.4 to 3.6.
//!
//! An entry is one transaction: it replaces the key `head` if nobody else did since, and writes what the entry changes into keys
//! of their own (`keys` has the list). So entries have one order, that of etcd's revisions; whoever watches gets each with all
//! that belongs to it; and the keys as they stand at any revision are everything there is, for whoever begins.
//!
//! `client` is a small client of etcd, on [`polder_client_http::grpc`]. It knows nothing of journals.
//!
//! Invariants: every wait ends in time; nothing is added twice; what etcd sends is checked before it is believed, and bounded.

pub mod client;

mod arrivals;
mod error;
mod head;
mod journal;
mod keys;
mod layout;
mod leading;
mod snapshot;
pub mod wire;

use polder_store::journal::codec;

pub use error::EtcdError;
pub use journal::{EtcdJournal, JournalOptions};
pub use polder_store::journal::Leading;
