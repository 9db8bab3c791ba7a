//! How many installations of Polder, *cells*, could carry one fleet of planes: `docs/scale.md` tells it, this tries it.
//!
//! A cell is what issue and design call an installation of its own: three etcd and some replicas. Nothing here is
//! part of the product, and nothing here talks to a network: cells, routers and the directory are plain values that a
//! simulation calls in an order that a seed decides. What they promise each other is what real ones would have to.
//!
//! **Invariant.** Of one plane at most one cell accepts writes, whatever is lost, late or done twice.

pub mod cell;
pub mod checker;
pub mod directory;
pub mod map;
pub mod model;
pub mod placement;
pub mod random;
pub mod report;
pub mod router;
pub mod scenario;
pub mod simulation;
