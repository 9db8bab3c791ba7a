//! Schemas: the shape of an object, for built-in kinds and custom resources alike.
//!
//! A schema is a place in an [`Arena`] of nodes that point at each other by index, so that types are shared, may be
//! recursive (`JSONSchemaProps` is), and cost one allocation per list. All built-in types live in one arena, read
//! from the generated table (`table`); each distinct custom resource version has its own (`structural`). Schemas are
//! immutable and shared over planes by content.

pub mod coerce;
pub mod default;
mod descriptions;
pub mod embedded;
pub mod formats;
pub mod gnostic;
pub(crate) mod go_text;
pub mod openapi;
pub mod pattern;
pub mod prune;
pub mod reading;
pub mod required;
pub mod rules;
pub(crate) mod simple_path;
pub mod structural;
pub mod table;
mod timestamp;
pub mod unique;
pub mod validate;

use std::sync::Arc;

use polder_model::{SmolStr, Value};

/// A schema: one node of an arena.
#[derive(Clone, Debug)]
pub struct Schema {
    pub arena: Arc<Arena>,
    pub root: NodeId,
}

impl Schema {
    pub fn node(&self) -> NodeRef<'_> {
        self.arena.node(self.root)
    }

    /// About how much memory the whole arena takes.
    pub fn bytes(&self) -> usize {
        let rules = self.arena.rules.as_ref().map_or(0, |rules| rules.bytes());
        self.arena.pattern_bytes + rules + self.arena.nodes.iter().map(Node::bytes).sum::<usize>()
    }
}

/// Nodes that point at each other.
#[derive(Clone, Debug, Default)]
pub struct Arena {
    pub nodes: Vec<Node>,
    /// What compiled patterns may take.
    pub pattern_bytes: usize,
    /// Its validation rules, compiled.
    pub rules: Option<Arc<rules::Rules>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub u32);

impl Arena {
    pub fn node(&self, id: NodeId) -> NodeRef<'_> {
        NodeRef { arena: self, id }
    }

    pub fn add(&mut self, node: Node) -> NodeId {
        let id =
            NodeId(u32::try_from(self.nodes.len()).expect("a schema is bounded by the size of a request"));
        self.nodes.push(node);
        id
    }

    /// Makes walks fast. Call it when the arena is complete; without it they work, but look everywhere.
    pub fn index(&mut self) {
        for node in &mut self.nodes {
            node.heads = node.properties.iter().map(|(name, _)| head(name)).collect();
        }
        self.index_defaults();
    }

    /// Notes at every node which members have defaults and whether anything below has, so that defaulting skips
    /// the rest.
    fn index_defaults(&mut self) {
        // A node is interesting when it, or a node it points at, is: one pass over reversed edges.
        let mut parents: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        let mut waiting: Vec<u32> = Vec::new();
        let mut interesting = vec![false; self.nodes.len()];
        for (index, node) in (0_u32..).zip(&self.nodes) {
            let members = node.properties.iter().map(|(_, id)| *id);
            for child in members.chain(node.additional).chain(node.items) {
                if let Some(known) = parents.get_mut(child.0 as usize) {
                    known.push(index);
                }
            }
            if node.default.is_some() {
                interesting[index as usize] = true;
                waiting.push(index);
            }
        }
        while let Some(index) = waiting.pop() {
            for &parent in &parents[index as usize] {
                if !std::mem::replace(&mut interesting[parent as usize], true) {
                    waiting.push(parent);
                }
            }
        }
        for (index, interesting) in interesting.into_iter().enumerate() {
            let has_default =
                |id: &NodeId| self.nodes.get(id.0 as usize).is_some_and(|n| n.default.is_some());
            self.nodes[index].defaults_below = if interesting {
                let members = (0_u32..).zip(&self.nodes[index].properties);
                DefaultsBelow::Some(
                    members.filter(|(_, (_, id))| has_default(id)).map(|(at, _)| at).collect(),
                )
            } else {
                DefaultsBelow::None
            };
        }
    }
}

/// What a value at this place may look like.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub kind: Kind,
    /// Named members, sorted by name.
    pub properties: Vec<(SmolStr, NodeId)>,
    /// Schema of the values of a free-form map.
    pub additional: Option<NodeId>,
    /// Schema of the elements of a list.
    pub items: Option<NodeId>,
    /// Names of members that must be there.
    pub required: Vec<SmolStr>,
    /// The only values allowed; empty means any.
    pub allowed: Vec<Value>,
    pub format: Option<SmolStr>,
    pub nullable: bool,
    pub default: Option<Value>,
    /// Unknown members are kept: `x-kubernetes-preserve-unknown-fields`.
    pub preserve_unknown: bool,
    /// A whole object with its own apiVersion, kind and metadata: `x-kubernetes-embedded-resource`.
    pub embedded_resource: bool,
    pub list_type: ListType,
    /// The members that identify an element of a `ListType::Map`.
    pub list_map_keys: Vec<SmolStr>,
    /// The whole map or struct is replaced as one: `x-kubernetes-map-type: atomic`.
    pub map_atomic: bool,
    /// Strategic merge patch: how this list or struct is merged.
    pub patch: PatchStrategy,
    /// Strategic merge patch: the member that identifies an element of this list.
    pub patch_merge_key: Option<SmolStr>,
    /// Value checks beyond the type; most nodes have none.
    pub checks: Option<Box<Checks>>,
    /// The definition this node was made from (`io.k8s.api.apps.v1.DeploymentSpec`): decoding errors name it.
    pub type_name: Option<SmolStr>,
    /// A scalar that Go does not write when it is zero, and so cannot tell from one that nobody set.
    pub omits_zero: bool,
    /// Any JSON type, but objects inside have no known members: `additionalProperties: true` without a schema.
    pub opaque: bool,
    /// Where defaults are: see `Arena::index_defaults`.
    pub defaults_below: DefaultsBelow,
    /// How the names of the properties begin, so that one is found without a look at all the others: see `head`.
    pub(crate) heads: Box<[u64]>,
}

impl Node {
    fn bytes(&self) -> usize {
        let names = self.required.len() + self.list_map_keys.len();
        let checks = self.checks.as_ref().map_or(0, |checks| size_of::<Checks>() + 64 * checks.rules.len());
        size_of::<Node>()
            + self.properties.len() * size_of::<(SmolStr, NodeId)>()
            + size_of_val(&*self.heads)
            + names * size_of::<SmolStr>()
            + self.allowed.len() * size_of::<Value>()
            + checks
    }
}

/// So many names that begin alike are told apart by their beginning alone.
const ALIKE_MAX: usize = 8;

/// The first eight bytes of a name, as a number that sorts as names do. Few members of one object begin alike.
fn head(name: &str) -> u64 {
    let bytes = name.as_bytes();
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    (0..8).fold(0, |head, at| head << 8 | u64::from(bytes.get(at).copied().unwrap_or(0)))
}

/// Where defaulting has something to do, at a node and below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DefaultsBelow {
    /// Nobody looked yet.
    #[default]
    Unknown,
    /// Neither this node nor anything below it has a default.
    None,
    /// Something has; these properties (by position) have one themselves.
    Some(Box<[u32]>),
}

/// The JSON type at a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Anything: raw JSON such as `RawExtension`, or a CRD node that preserves unknown fields and names no type.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// An integer or a string: ports, `maxUnavailable`.
    IntOrString,
    /// A resource quantity: a string, or a number that is read as one.
    Quantity,
    /// RFC 3339 with seconds. `null` means absent.
    Time,
    /// RFC 3339 with microseconds. `null` means absent.
    MicroTime,
    /// Base64 text.
    Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map,
}

/// How strategic merge patch treats a place: flags, because upstream combines them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// Lists merge element by element instead of being replaced.
    pub merge: bool,
    /// Members not named in `$retainKeys` are dropped.
    pub retain_keys: bool,
    /// A struct that is replaced whole.
    pub replace: bool,
}

/// Value checks of OpenAPI v3, as custom resources may use them.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    /// The pattern as written, and compiled once.
    pub pattern: Option<(SmolStr, regex::Regex)>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<NodeId>,
    pub any_of: Vec<NodeId>,
    pub one_of: Vec<NodeId>,
    pub not: Option<NodeId>,
    /// No member beyond the named ones: `additionalProperties: false`.
    pub no_additional: bool,
    /// `x-kubernetes-validations` as written; compiled, they are in [`Arena::rules`].
    pub rules: Vec<Value>,
}

/// A node with its arena: what the walkers carry.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a> {
    arena: &'a Arena,
    id: NodeId,
}

impl<'a> NodeRef<'a> {
    pub fn id(self) -> NodeId {
        self.id
    }

    pub fn get(self) -> &'a Node {
        &self.arena.nodes[self.id.0 as usize]
    }

    pub fn at(self, id: NodeId) -> NodeRef<'a> {
        self.arena.node(id)
    }

    /// The schema of a named member, not counting the free-form rest.
    pub fn property(self, name: &str) -> Option<NodeRef<'a>> {
        let Node { properties, heads, .. } = self.get();
        // Without an index all names are alike. Those that are may be many: a tenant names them.
        let alike = if heads.len() == properties.len() {
            let own = head(name);
            let first = heads.partition_point(|other| *other < own);
            let len = heads[first..].iter().take(ALIKE_MAX).take_while(|other| **other == own).count();
            if len < ALIKE_MAX { &properties[first..first + len] } else { &properties[first..] }
        } else {
            &properties[..]
        };
        let at = alike.binary_search_by(|(own, _)| own.as_str().cmp(name)).ok()?;
        Some(self.at(alike[at].1))
    }

    /// The schema of a member, named or free-form; `None` when the member is unknown here.
    pub fn member(self, name: &str) -> Option<NodeRef<'a>> {
        self.property(name).or_else(|| self.get().additional.map(|id| self.at(id)))
    }

    pub fn items(self) -> Option<NodeRef<'a>> {
        self.get().items.map(|id| self.at(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_with_an_index_and_without() {
        let mut names: Vec<SmolStr> =
            ["", "a", "a\0", "ab", "abcdefg", "abcdefgh", "abcdefgh\0", "abcdefghi", "b", "é", "z"]
                .map(SmolStr::new)
                .into();
        names.extend((0..50).map(|index| SmolStr::from(format!("maxUnavailable{index:02}"))));
        names.sort();
        let mut arena = Arena::default();
        let ids: Vec<NodeId> = names.iter().map(|_| arena.add(Node::default())).collect();
        let properties = names.iter().cloned().zip(ids).collect();
        let root = arena.add(Node { kind: Kind::Object, properties, ..Node::default() });
        for _ in 0..2 {
            for (at, name) in names.iter().enumerate() {
                let found = arena.node(root).property(name).map(NodeRef::id);
                assert_eq!(found, arena.node(root).get().properties.get(at).map(|(_, id)| *id), "{name:?}");
            }
            for name in
                ["abcdefgi", "maxUnavailable", "maxUnavailable5", "maxUnavailable99", "c", "zz", "\u{ff}"]
            {
                assert!(arena.node(root).property(name).is_none(), "{name}");
            }
            arena.index();
        }
    }
}
