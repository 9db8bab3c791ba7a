//! Every verb on every resource of every plane, without HTTP.
//!
//! One pipeline for built-in kinds, custom resources and in-process callers: authorize, decode, default, validate,
//! commit. What differs between kinds is data ([`definition::ResourceDefinition`]) and a few pure functions
//! ([`behavior::Behavior`]); no kind has a route or storage code of its own.

pub mod audit;
pub mod authentication;
pub mod authorizers;
pub mod behavior;
pub mod bootstrap;
mod breaker;
pub mod catalog;
pub mod client;
pub mod context;
pub mod decode;
pub mod definition;
pub mod delete;
pub mod ledger;
pub mod list;
pub mod listing;
pub mod planes;
pub mod registry;
pub mod selection;
pub mod status;
pub mod transfer;
pub mod watch;
pub mod write;

mod access_webhook;
pub mod actions;
mod admission;
mod allotment;
mod conversion;
mod custom;
mod default_roles;
mod escalation;
pub mod extensions;
mod finalize;
pub mod flows;
mod guests;
mod identity;
mod memo;
mod metadata;
mod nodes;
mod ownership;
mod params;
mod parsed;
mod profile;
mod remains;
mod remote_contents;
mod resources;
mod reviews;
mod roles;
mod rulebooks;
mod scale;
pub mod tokens;
mod upstream_key;
mod version_key;
pub mod webhooks;
mod written;

pub use context::{Query, RequestContext};
pub use definition::{ResourceDefinition, Target};
pub use polder_admission::Plugins;
pub use registry::{Answered, ObjectAnswer, Registry, RegistryOptions};
pub use version_key::VersionKey;
