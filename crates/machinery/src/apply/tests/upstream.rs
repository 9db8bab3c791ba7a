//! What Kubernetes 1.35 answered.
//!
//! Each line of `upstream.jsonl` is a story of random writes to one object, with what upstream's field management (its
//! own packages, called with the same schema) made of each. Times are left out.

use super::*;

const SCHEMA: &str = include_str!("upstream-schema.json");
const STORIES: &str = include_str!("upstream.jsonl");

#[test]
fn like_upstream() {
    // A longer file, when there is one to try.
    let more = std::env::var("UPSTREAM_STORIES").map(|path| std::fs::read_to_string(path).unwrap());
    for (at, story) in STORIES.lines().chain(more.as_deref().unwrap_or_default().lines()).enumerate() {
        let mut world = World { clock: None, ..World::new(SCHEMA, &[]) };
        let story = Value::parse(story.as_bytes()).unwrap();
        for (step_at, step) in story.as_array().unwrap().iter().enumerate() {
            check_step(&mut world, step, &format!("story {at}, step {step_at}"));
        }
    }
}

fn check_step(world: &mut World, step: &Value, place: &str) {
    let (manager, object) = (step.str_at(&["manager"]).unwrap(), step.get("object").unwrap());
    let outcome = match step.str_at(&["op"]).unwrap() {
        "update" => {
            world.update(manager, object.clone());
            Ok(())
        }
        "force" => world.apply(manager, object, Force::Take),
        _ => world.apply(manager, object, Force::Refuse),
    };
    match step.str_at(&["error"]) {
        Some(error) => assert_eq!(outcome.unwrap_err(), error, "{place}: {object}"),
        None => {
            outcome.unwrap_or_else(|error| panic!("{place}: {error}"));
            let expected = timeless(step.get("live").unwrap());
            assert_eq!(timeless(&world.live).to_string(), expected.to_string(), "{place}: {object}");
        }
    }
}

/// The object without times, and entries sorted as if all were of one second.
fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Array(entries)) = object.at_mut(&["metadata", "managedFields"]) {
        entries.iter_mut().for_each(|entry| drop(entry.remove_at(&["time"])));
        entries.sort_by_key(|entry| {
            (entry.get("operation").map(Value::to_string), entry.get("manager").map(Value::to_string))
        });
    }
    object
}
