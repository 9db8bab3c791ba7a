//! The outer tests: the real binary, driven over its network port by plain HTTP and by real clients.
//!
//! Every test names the promise it checks. Tests that need a program this machine lacks say so and pass; `cargo xtask
//! test` fetches those programs first.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod aggregation;
mod audit;
mod authentication;
mod authorization;
mod collisions;
mod conversion;
mod copies;
mod custom;
mod discovery;
mod errors;
mod extension_controllers;
mod extension_garbage;
mod fairness;
mod floods;
mod forms;
mod hostile;
mod inside;
mod isolation;
mod kubectl;
mod leaks;
mod lifecycle;
mod limits;
mod list;
mod objects;
mod operator;
mod planes;
mod process;
mod python;
mod real_clients;
mod replicas;
mod rotation;
mod sample_apiserver;
mod sealing;
mod smuggling;
mod tokens;
mod tools;
mod watch;
mod webhooks;
