//! What the provider's webhooks answer about tokens and about access: it is read or refused, and what is kept of it is bounded.

use polder_auth::authn::read_token_review;
use polder_auth::authz::webhook::read as read_access_review;
use polder_model::{SmolStr, Value, json};

use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "\"status\":{", "\"allowed\":true", "\"denied\":true", "\"reason\":\"r\"", "\"evaluationError\":\"e\"",
    "\"authenticated\":true", "\"error\":\"e\"", "\"audiences\":[\"us\"]", "\"user\":{\"username\":\"u\"",
    "\"groups\":[\"system:masters\"]", "\"extra\":{\"a\":[\"b\"]}", "\"uid\":\"1\"", "null", "{", "}", "[", "]", ",",
];

pub fn make(random: &mut Random) -> Vec<u8> {
    let mut answer = json!({"status": {
        "authenticated": (random.below(4) > 0), "allowed": (random.below(2) > 0), "denied": (random.below(3) == 0),
        "reason": (SmolStr::from("é".repeat(random.below(3000)))), "audiences": ["us"],
        "user": {"username": "u", "groups": ["a"], "extra": {"k": ["v"]}},
    }});
    let wrong: [&[&str]; 8] = [
        &["status"], &["status", "user"], &["status", "user", "groups"], &["status", "user", "extra"],
        &["status", "audiences"], &["status", "allowed"], &["status", "reason"], &["status", "user", "username"],
    ];
    if random.below(2) == 0 {
        let path = *random.pick(&wrong);
        answer.set_at(path, generate::json(&["username", "groups", "extra", "allowed"], 3, random));
    }
    if random.below(16) == 0 {
        let many: Vec<Value> = (0..3000).map(|index| Value::from(SmolStr::from(index.to_string()))).collect();
        answer.set_at(&["status", "user", "groups"], many);
    }
    answer.to_vec()
}

pub fn run(data: &[u8]) {
    match read_token_review(data, "us") {
        Ok(Some(user)) => {
            assert!(!user.name.is_empty());
            // One more: everybody who is somebody.
            assert!(user.groups.len() <= 1025 && user.extra.len() <= 1024);
            crate::accepted();
        }
        Ok(None) => {}
        Err(why) => assert!(why.len() < 4 << 10),
    }
    match read_access_review(data) {
        Ok(review) => {
            assert!(!(review.allowed && review.denied), "who is refused is not allowed");
            assert!(review.reason.chars().count() <= 1024);
            crate::accepted();
        }
        Err(why) => assert!(why.len() < 4 << 10),
    }
}
