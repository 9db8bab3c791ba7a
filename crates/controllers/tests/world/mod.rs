//! What tests of controllers do again and again.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::time::{Duration, Instant};

use polder_test_support::{Client, json};

/// Waits until something is so. Generous: a machine may be slow, and a controller that works is quick.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
pub fn namespace(plane: &Client, name: &str) {
    plane.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).expect(201);
}
