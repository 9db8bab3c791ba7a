//! `fieldsV1` of a client: what is read has one spelling, and sets of fields obey the laws of sets.
//!
//! The input is one set, a line `---` and another.

use polder_machinery::apply::FieldSet;
use polder_machinery::apply::fields_v1::read;
use polder_model::Value;

use super::json_value::check_canonical;
use crate::random::Random;
use crate::{generate, two_parts};

pub const WORDS: &[&str] = &[
    "\n---\n", "{}", "\".\":{}", "\"f:a\":{", "\"k:{\\\"name\\\":\\\"a\\\"}\":{", "\"v:1\":{}", "\"v:\\\"a\\\"\":{}", "\"i:0\":{}", "\"x:a\":{}",
    "\"k:{\\\"b\\\": 1.0, \\\"a\\\":null}\":{}", "}", "{", ",", "null", "\\u0000",
];

const STEPS: &[&str] = &[
    ".", "f:a", "f:b", "f:", "k:{\"name\":\"a\"}", "k:{\"b\":1,\"a\":2}", "v:1", "v:1.0", "v:\"a\"", "i:0", "i:1", "x:y", "ab",
];

pub fn make(random: &mut Random) -> Vec<u8> {
    let mut set = || tree(4, random);
    generate::two_documents(&set(), &set())
}

fn tree(depth: usize, random: &mut Random) -> Value {
    let mut steps = Vec::new();
    if depth > 0 {
        for _ in 0..random.below(4) {
            // The last one is no step: only now and then.
            let last = STEPS.len() - usize::from(random.below(20) > 0);
            steps.push((STEPS[random.below(last)].into(), tree(depth - 1, random)));
        }
    }
    Value::Object(steps.into_iter().collect())
}

pub fn run(data: &[u8]) {
    let (own, other) = two_parts(data);
    let (Ok(own), Ok(other)) = (Value::parse(own), Value::parse(other)) else { return };
    let (own, other) = match (read(&own), read(&other)) {
        (Ok(own), Ok(other)) => (own, other),
        (own, other) => {
            let errors = [own.err(), other.err()];
            assert!(errors.iter().flatten().all(|error| error.to_string().len() < 1024));
            return;
        }
    };
    let written = own.clone().into_value();
    check_canonical(&written);
    assert_eq!(read(&written).as_ref(), Ok(&own), "what is written reads back");
    assert_eq!(own.paths().len(), own.len());

    let changed = |change: &dyn Fn(&mut FieldSet)| {
        let mut set = own.clone();
        change(&mut set);
        assert_eq!(read(&set.clone().into_value()).as_ref(), Ok(&set), "the invariant holds");
        set
    };
    let union = changed(&|set| set.add(other.clone()));
    let difference = changed(&|set| set.subtract(&other));
    let branches = changed(&|set| set.subtract_branches(&other));
    let both = own.intersection(&other);
    assert!(own.is_subset(&union) && other.is_subset(&union));
    assert!(both.is_subset(&own) && both.is_subset(&other) && branches.is_subset(&own));
    assert!(!difference.intersects(&other));
    assert_eq!(own.intersects(&other), !both.is_empty());
    assert_eq!(difference.len() + both.len(), own.len());
    assert_eq!(union.len(), difference.len() + other.len());
    assert!(own.leaves().is_subset(&own));
    crate::accepted();
}
