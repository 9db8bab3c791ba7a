//! Whole stories: who applied and updated what, what the object is afterwards, and who owns it.

mod entries;
mod real_kinds;
mod stories;
mod upstream;
mod versions;

use polder_model::{SmolStr, Value};

use super::entries::{Entry, Origin, decode};
use super::*;
use crate::schema::Schema;
use crate::schema::structural::compile;
use crate::schema::table::builtin;

/// A kind of one version.
struct Single<'a>(&'a Schema);

impl Versions for Single<'_> {
    fn view<'v>(&'v self, object: &'v Value, api_version: &str) -> Option<View<'v>> {
        (api_version == "test.dev/v1").then(|| View { schema: self.0.node(), object: Cow::Borrowed(object) })
    }
}

fn schema_of(schema: &str) -> Schema {
    let metadata = builtin().schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").unwrap();
    compile(&Value::parse(schema.as_bytes()).unwrap(), &metadata).unwrap()
}

/// An object and its schema.
struct World {
    schema: Schema,
    live: Value,
    untracked: Untracked,
    /// Counts writes, so that times differ; `None`: it stands still.
    clock: Option<u32>,
}

impl World {
    fn new(schema: &str, reset: &[&[&str]]) -> World {
        World::with(schema_of(schema), reset)
    }

    fn with(schema: Schema, reset: &[&[&str]]) -> World {
        World { schema, live: blank(), untracked: Untracked::new(reset), clock: Some(0) }
    }

    fn write<T>(&mut self, manager: &str, write: impl FnOnce(&Writer<'_>, &mut Value) -> T) -> T {
        self.clock = self.clock.map(|writes| writes + 1);
        let now = format!("2026-01-01T00:00:{:02}Z", self.clock.unwrap_or_default());
        let versions = Single(&self.schema);
        let (subresource, manager) = manager.split_once('/').map_or(("", manager), |(own, part)| (part, own));
        let writer = Writer {
            manager,
            subresource,
            api_version: "test.dev/v1",
            kind: "Thing",
            schema: self.schema.node(),
            now: &now,
            untracked: &self.untracked,
            schema_may_change: true,
            versions: &versions,
        };
        write(&writer, &mut self.live)
    }

    fn apply(&mut self, manager: &str, intent: &Value, force: Force) -> Result<(), String> {
        self.write(manager, |writer, live| {
            let merged = apply(writer, live, &blank(), intent, force).map_err(|error| error.to_string())?;
            *live = merged;
            keeps_invariants(live);
            Ok(())
        })
    }

    fn update(&mut self, manager: &str, mut new: Value) {
        self.write(manager, |writer, live| {
            if live.at(&["metadata", "managedFields"]).is_none() {
                created(writer, live, &mut new);
            } else {
                updated(writer, live, &mut new);
            }
            *live = new;
            keeps_invariants(live);
        });
    }

    fn entries(&self) -> Vec<Entry> {
        decode(self.live.array_at(&["metadata", "managedFields"]).to_vec(), Origin::Stored).unwrap()
    }
}

/// What we write reads back as it is, even with suspicion.
#[track_caller]
fn keeps_invariants(object: &Value) {
    let entries = object.array_at(&["metadata", "managedFields"]);
    let stored = decode(entries.to_vec(), Origin::Stored).unwrap();
    assert_eq!(decode(entries.to_vec(), Origin::Sent).as_ref(), Ok(&stored));
    assert_eq!(
        super::entries::encode(stored).map_or(vec![], |value| value.as_array().unwrap().to_vec()),
        entries
    );
}

fn blank() -> Value {
    polder_model::json!({"apiVersion": "test.dev/v1", "kind": "Thing"})
}

/// JSON in which plain words need no quotes.
fn relaxed(text: &str) -> Value {
    let mut json = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let word = rest.find(|char: char| !(char.is_alphanumeric() || "_-./".contains(char)));
        let (word, after) = rest.split_at(word.unwrap_or(rest.len()));
        if char == '"' {
            let end = rest[1..].find('"').unwrap() + 2;
            json.push_str(&rest[..end]);
            rest = &rest[end..];
        } else if word.is_empty() {
            json.push(char);
            rest = &rest[char.len_utf8()..];
        } else {
            let plain = matches!(word, "true" | "false" | "null") || word.parse::<f64>().is_ok();
            json.push_str(&if plain { word.to_string() } else { format!("{word:?}") });
            rest = after;
        }
    }
    Value::parse(json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// The object that has these fields.
fn object(fields: &str) -> Value {
    let mut object = blank();
    object.set_at(&["metadata", "name"], "x");
    for (name, value) in relaxed(fields).as_object().unwrap().iter() {
        if name == "metadata" {
            for (name, value) in value.as_object().unwrap().iter() {
                object.set_at(&["metadata", name], value.clone());
            }
        } else {
            object.set_at(&[name], value.clone());
        }
    }
    object
}

/// Without what every object has.
fn shown(object: &Value) -> String {
    let mut object = object.as_object().unwrap().clone();
    object.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|name, _| !matches!(name.as_str(), "name" | "managedFields"));
        if metadata.is_empty() {
            object.remove("metadata");
        }
    }
    Value::Object(object).to_string()
}

/// Plays a story, a line a step:
///
/// ```text
/// apply bob {..}      force bob {..}      update bob {..} (or bob/status)
/// refused bob {..} => first line of the message, up to the end of the line; further lines after " | "
/// is {..}             the object
/// bob .a .b           what an applier owns; `update:bob` what an updater owns; nothing: no entry
/// ```
#[track_caller]
fn check(schema: &str, story: &str) {
    check_in(&mut World::new(schema, &[&["ignored"]]), story);
}

#[track_caller]
fn check_in(world: &mut World, story: &str) {
    for line in story.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (manager, body) = rest.split_once(' ').unwrap_or((rest, ""));
        match word {
            "apply" => {
                world.apply(manager, &object(body), Force::Refuse).unwrap_or_else(|e| panic!("{line}: {e}"))
            }
            "force" => {
                world.apply(manager, &object(body), Force::Take).unwrap_or_else(|e| panic!("{line}: {e}"))
            }
            "update" => {
                let mut new = object(body);
                if let Some(entries) = world.live.at(&["metadata", "managedFields"]) {
                    new.set_at(&["metadata", "managedFields"], entries.clone());
                }
                world.update(manager, new);
            }
            "refused" => {
                let (body, message) = body.split_once(" => ").unwrap();
                let refused = world.apply(manager, &object(body), Force::Refuse).unwrap_err();
                assert_eq!(refused.replace('\n', " | "), message, "{line}");
            }
            "is" => assert_eq!(shown(&world.live), relaxed(rest).to_string(), "{line}"),
            owner => {
                let (operation, name) = match owner.strip_prefix("update:") {
                    Some(name) => (Operation::Update, name),
                    None => (Operation::Apply, owner),
                };
                let (name, subresource) = name.split_once('/').unwrap_or((name, ""));
                let entries = world.entries();
                let entry = entries.iter().find(|entry| {
                    entry.manager == name && entry.operation == operation && entry.subresource == subresource
                });
                let owned = entry.map_or_else(String::new, |entry| entry.fields.paths().join(" "));
                assert_eq!(owned, rest, "{line}");
            }
        }
    }
}
