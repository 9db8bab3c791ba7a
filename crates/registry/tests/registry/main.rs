//! The registry on a memory store, a module for each of its promises.
#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod access_webhook;
mod admission;
mod conversion;
mod custom;
mod custom_rules;
mod listing;
mod nodes;
mod old_forms;
mod ownership;
mod policies;
mod roles;
mod round_trips;
mod strategies;
mod tokens;
mod verbs;
mod webhooks;
mod world;
