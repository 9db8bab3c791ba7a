//! What of an extension server's OpenAPI v2 document becomes part of the plane's: the paths of its group version, and the
//! definitions they lead to. Pure.
//!
//! Each part is kept as the text, and the protobuf, that goes between the parts of the plane's own document, so that nothing is
//! parsed or put together for a request.
//!
//! Invariant: a document that makes no sense is refused as a whole, and nothing that a server says about other groups, or about
//! names the plane has itself, is believed.

use std::collections::{BTreeMap, HashSet, VecDeque};

use bytes::Bytes;
use polder_machinery::schema::gnostic;
use polder_model::{Object, SmolStr, Value};
use sha2::{Digest as _, Sha256};

/// Paths of one group version, and definitions they lead to.
const PATHS_MAX: usize = 2000;
const DEFINITIONS_MAX: usize = 2000;
const GVK: &str = "x-kubernetes-group-version-kind";

/// The part of one group version.
pub(crate) struct Swagger {
    /// What the server calls this state of its document.
    pub(super) tag: Option<SmolStr>,
    pub(crate) paths: Piece,
    pub(crate) definitions: Vec<(SmolStr, Piece)>,
    /// Of all of it.
    pub(crate) digest: [u8; 32],
}

/// The same in both forms.
pub(crate) struct Piece {
    /// Members of an object, with a comma before the first.
    pub(crate) json: Bytes,
    /// A document that has nothing else.
    pub(crate) protobuf: Bytes,
}

impl Piece {
    fn new(member: &str, entries: Object) -> Piece {
        let value = Value::Object(entries);
        let mut json = value.to_vec();
        // The braces go.
        json.pop();
        if let Some(first) = json.first_mut() {
            *first = b',';
        }
        let mut document = Object::new();
        document.insert(member, value);
        let protobuf = gnostic::encode(&Value::Object(document));
        Piece { json: json.into(), protobuf: protobuf.into() }
    }

    fn len(&self) -> usize {
        self.json.len() + self.protobuf.len()
    }
}

impl Swagger {
    /// Reads the document of a server.
    pub(super) fn read(
        body: &[u8],
        tag: Option<SmolStr>,
        group: &str,
        version: &str,
    ) -> Result<Swagger, String> {
        let document = Value::parse(body).map_err(|error| error.to_string())?;
        if document.str_at(&["swagger"]) != Some("2.0") {
            return Err("the answer is no Swagger 2.0 document".into());
        }
        let prefix = format!("/apis/{group}/{version}/");
        let none = Object::new();
        let object = |key: &str| document.get(key).and_then(Value::as_object).unwrap_or(&none);
        let mut paths = Object::new();
        let mut wanted = Wanted::default();
        let mut count = 0;
        for (path, item) in object("paths").iter().filter(|(path, _)| path.starts_with(&prefix)) {
            count += 1;
            if count > PATHS_MAX || item.as_object().is_none() {
                return Err("the answer has paths that are none, or too many".into());
            }
            wanted.look(item);
            paths.insert(path.clone(), item.clone());
        }
        if count == 0 {
            return Err("the answer has no paths of this group version".into());
        }
        let all = object("definitions");
        let mut found: BTreeMap<SmolStr, Value> = BTreeMap::new();
        while let Some(name) = wanted.next.pop_front() {
            let schema = all.get(&name).filter(|schema| schema.as_object().is_some());
            let schema = schema.ok_or_else(|| format!("the answer lacks the definition {name:?}"))?;
            if found.len() >= DEFINITIONS_MAX {
                return Err(format!("the answer has more than {DEFINITIONS_MAX} definitions"));
            }
            wanted.look(schema);
            let mut schema = schema.clone();
            let mut kinds = schema.array_at(&[GVK]).to_vec();
            kinds.retain(|kind| kind.str_at(&["group"]) == Some(group));
            match kinds.is_empty() {
                true => drop(schema.remove_at(&[GVK])),
                false => schema.set_at(&[GVK], kinds),
            }
            found.insert(name, schema);
        }
        let paths = Piece::new("paths", paths);
        let definitions: Vec<(SmolStr, Piece)> = found
            .into_iter()
            .map(|(name, schema)| {
                let mut one = Object::new();
                one.insert(name.clone(), schema);
                (name, Piece::new("definitions", one))
            })
            .collect();
        let mut digest = Sha256::new();
        for piece in std::iter::once(&paths).chain(definitions.iter().map(|(_, piece)| piece)) {
            digest.update(piece.json.len().to_le_bytes());
            digest.update(&piece.json);
        }
        Ok(Swagger { tag, paths, definitions, digest: digest.finalize().into() })
    }

    /// What it weighs.
    pub(super) fn bytes(&self) -> usize {
        let definitions = self.definitions.iter().map(|(name, piece)| 64 + name.len() + piece.len());
        size_of::<Swagger>() + self.paths.len() + definitions.sum::<usize>()
    }
}

/// Definitions that something leads to.
#[derive(Default)]
struct Wanted {
    seen: HashSet<SmolStr>,
    next: VecDeque<SmolStr>,
}

impl Wanted {
    /// Values nest no deeper than the parser lets them.
    fn look(&mut self, value: &Value) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| self.look(one)),
            Value::Object(members) => {
                for (key, member) in members.iter() {
                    let name = member.as_str().filter(|_| key == "$ref");
                    match name.and_then(|name| name.strip_prefix("#/definitions/")) {
                        Some(name) if !self.seen.contains(name) => {
                            self.seen.insert(SmolStr::new(name));
                            self.next.push_back(SmolStr::new(name));
                        }
                        _ => self.look(member),
                    }
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    fn read(document: &Value) -> Result<Swagger, String> {
        Swagger::read(&document.to_vec(), None, "wardle.example.com", "v1")
    }

    fn operation(name: &str) -> Value {
        json!({"get": {"responses": {"200": {"schema": {"$ref": (format!("#/definitions/{name}"))}}}}})
    }

    #[test]
    fn what_is_of_the_group_is_taken() {
        let gvk = |group: &str| json!({"group": group, "version": "v1", "kind": "Flunder"});
        let document = json!({
            "swagger": "2.0",
            "paths": {
                "/apis/wardle.example.com/v1/flunders": (operation("Flunder")),
                "/api/v1/pods": (operation("Pod")),
                "/apis/wardle.example.com/v1beta1/flunders": (operation("Old")),
            },
            "definitions": {
                "Flunder": {
                    "x-kubernetes-group-version-kind": [(gvk("wardle.example.com")), (gvk("apps"))],
                    "properties": {"spec": {"$ref": "#/definitions/Spec"}, "self": {"$ref": "#/definitions/Flunder"}},
                },
                "Spec": {"type": "object", "x-kubernetes-group-version-kind": [(gvk("apps"))]},
                "Pod": {"type": "object"}, "Old": {"type": "object"},
            },
        });
        let found = read(&document).unwrap();
        let text = |piece: &Piece| String::from_utf8(piece.json.to_vec()).unwrap();
        assert!(text(&found.paths).starts_with(r#","/apis/wardle.example.com/v1/flunders":{"#));
        assert!(!text(&found.paths).contains("pods"));
        let names: Vec<&str> = found.definitions.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["Flunder", "Spec"]);
        assert!(!text(&found.definitions[0].1).contains("apps"), "of other groups nothing is believed");
        assert_eq!(text(&found.definitions[1].1), r#","Spec":{"type":"object"}"#);
        assert!(found.bytes() > found.paths.len());
    }

    #[test]
    fn nonsense_is_refused() {
        let paths = json!({"/apis/wardle.example.com/v1/flunders": (operation("Flunder"))});
        for (document, expected) in [
            (json!("text"), "the answer is no Swagger 2.0 document"),
            (json!({"swagger": "2.0"}), "the answer has no paths of this group version"),
            (
                json!({"swagger": "2.0", "paths": (paths.clone())}),
                "the answer lacks the definition \"Flunder\"",
            ),
            (
                json!({"swagger": "2.0", "paths": (paths.clone()), "definitions": {"Flunder": 1}}),
                "the answer lacks the definition \"Flunder\"",
            ),
            (
                json!({"swagger": "2.0", "paths": {"/apis/wardle.example.com/v1/x": 1}}),
                "the answer has paths that are none, or too many",
            ),
        ] {
            assert_eq!(read(&document).err().as_deref(), Some(expected));
        }
        // What has the wrong shape further in is passed on, and written without harm.
        let odd = json!({
            "swagger": "2.0", "paths": {"/apis/wardle.example.com/v1/x": {"get": [], "parameters": {"a": 1}}},
        });
        assert!(read(&odd).is_ok());
    }
}
