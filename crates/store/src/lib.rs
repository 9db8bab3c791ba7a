//! The store: where every object of every plane lives.
//!
//! One deep module with a narrow door. Above, the registry sees planes, objects, revisions and watches
//! ([`Store`]). Below, an [`engine::Engine`] keeps versions durably and knows nothing about planes: it sees
//! *spaces*. A plane is a small overlay space on a chain of sealed parent spaces (layers), so that creating, forking
//! and deleting a plane is one commit however large it is (ADR 0002).
//!
//! Invariants: a write is acknowledged only after it is durable; every commit has one revision, revisions are
//! dense and totally ordered, and every change appears exactly once in the feed, in that order; a read at a revision
//! sees exactly the commits up to it.

pub mod bytes;
pub mod change;
pub mod conformance;
pub mod copy;
pub mod engine;
pub mod journal;
pub mod key;
pub mod memory;
pub mod object;
pub mod plane;
pub mod replica;
pub mod sealed;

mod cache;
mod committer;
mod feed;
mod fresh;
mod list;
mod noting;
mod read;
mod scan;
mod shared;
mod store;
mod turns;

pub use change::{Change, CommitError, Committed, Expect, ForkSource, PlaneChange, Renewal, Write};
pub use feed::{Event, Watch, WatchError, WatchScope};
pub use key::{Key, ObjectName, ResourceId, Revision, SpaceId};
pub use list::{Filter, ListPage, ListQuery, Remaining};
pub use object::{Record, StoredObject};
pub use plane::{Limits, Plane, Profile, Usage};
pub use read::ReadError;
pub use store::{BaseObject, BaseObjects, Beginning, CoreLookup, Sharing, Store, StoreOptions};
pub use turns::{Turn, Turns};
