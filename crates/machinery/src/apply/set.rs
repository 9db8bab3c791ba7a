//! Sets of fields: who owns what.
//!
//! A set is kept in the very form in which `fieldsV1` shows it, a tree of objects whose keys are steps (see
//! [`super::path`]): an empty object is a field of the set, `.` marks one that has others below it. So the set of a
//! stored entry is taken as it lies there, and what an update does not touch is never taken apart. Most steps are
//! short enough to cost no allocation.
//!
//! Invariant: every step has its one spelling, and every branch ends in a field of the set.

use std::fmt;

use polder_model::{Object, SmolStr, Value};

use super::path::{Step, write_field};

/// Marks a place that is itself in the set and has others below it.
const SELF: &str = ".";
const SELF_STEP: SmolStr = SmolStr::new_static(SELF);

/// An empty tree: no fields, or at a step a field without others below it.
pub(super) static NOTHING: Object = Object::new();

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet {
    tree: Object,
}

impl FieldSet {
    pub const fn new() -> FieldSet {
        FieldSet { tree: Object::new() }
    }

    /// A set of plain fields: `[&["metadata", "labels"], &["status"]]`.
    pub fn of_fields<'p>(paths: impl IntoIterator<Item = &'p [&'p str]>) -> FieldSet {
        let mut set = FieldSet::new();
        for path in paths {
            let tree = path.iter().rev().fold(Object::new(), |below, field| {
                Object::from_iter([(write_field(field), Value::Object(below))])
            });
            set.add(FieldSet { tree });
        }
        set
    }

    /// Takes a tree that is known to keep the invariant.
    pub(super) fn from_tree(tree: Object) -> FieldSet {
        FieldSet { tree }
    }

    pub(super) fn into_tree(self) -> Object {
        self.tree
    }

    pub(super) fn tree(&self) -> &Object {
        &self.tree
    }

    /// The set as `fieldsV1` holds it.
    pub fn into_value(self) -> Value {
        Value::Object(self.tree)
    }

    pub fn is_empty(&self) -> bool {
        self.tree.is_empty()
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        count(&self.tree)
    }

    pub fn has(&self, steps: &[SmolStr]) -> bool {
        let mut here = &self.tree;
        for step in steps {
            match here.get(step) {
                Some(node) => here = below(node),
                None => return false,
            }
        }
        !steps.is_empty() && is_member(here)
    }

    /// Adds what is in the other set.
    pub fn add(&mut self, other: FieldSet) {
        if self.tree.is_empty() {
            self.tree = other.tree;
        } else if !other.tree.is_empty() {
            self.tree = union(std::mem::take(&mut self.tree), other.tree);
        }
    }

    /// Takes away what is in the other set; fields below a field of the other set stay.
    pub fn subtract(&mut self, other: &FieldSet) {
        subtract(&mut self.tree, &other.tree);
    }

    /// Takes away what is in the other set and all below it. A field of the other set that has others below it there
    /// goes alone.
    pub fn subtract_branches(&mut self, other: &FieldSet) {
        subtract_branches(&mut self.tree, &other.tree);
    }

    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        FieldSet { tree: intersection(&self.tree, &other.tree) }
    }

    pub fn intersects(&self, other: &FieldSet) -> bool {
        intersects(&self.tree, &other.tree)
    }

    pub fn is_subset(&self, other: &FieldSet) -> bool {
        is_subset(&self.tree, &other.tree)
    }

    /// The fields that have none of the set below them.
    pub fn leaves(&self) -> FieldSet {
        FieldSet { tree: leaves(&self.tree) }
    }

    /// Every field as people read it, in upstream's order: the fields of a place before what is below them.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        list(&self.tree, &mut String::new(), &mut paths);
        paths
    }
}

impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.paths().join("\n"))
    }
}

/// What lies below a node. Anything but an object counts as nothing.
pub(super) fn below(node: &Value) -> &Object {
    node.as_object().unwrap_or(&NOTHING)
}

/// Whether the place of this tree is itself in the set. `.` sorts before all steps.
pub(super) fn is_member(tree: &Object) -> bool {
    tree.keys().next().is_none_or(|first| first == SELF)
}

/// The places below, without the mark of the place itself.
pub(super) fn children(tree: &Object) -> impl Iterator<Item = (&SmolStr, &Value)> {
    tree.iter().filter(|(step, _)| *step != SELF)
}

/// A place that is in the set, with what is below it.
pub(super) fn member_with(mut children: Object) -> Object {
    if !children.is_empty() {
        children.insert(SELF_STEP, Object::new());
    }
    children
}

/// A place with what is below it; `None` when it would be neither in the set nor have anything below.
pub(super) fn place(is_member: bool, children: Object) -> Option<Value> {
    match (is_member, children.is_empty()) {
        (false, true) => None,
        (true, false) => Some(Value::Object(member_with(children))),
        _ => Some(Value::Object(children)),
    }
}

fn union(own: Object, other: Object) -> Object {
    // An empty tree is a field of the set: beside others it is a mark.
    match (own.is_empty(), other.is_empty()) {
        (true, _) => return member_with(other),
        (_, true) => return member_with(own),
        _ => {}
    }
    let other: Vec<(SmolStr, Value)> = other.into_iter().collect();
    let joined = own.merge_with(other, |step, own, other| {
        Ok::<_, std::convert::Infallible>(Some(match (own, other) {
            (Some(Value::Object(own)), Value::Object(other)) if step != SELF => {
                Value::Object(if own.is_empty() && other.is_empty() { own } else { union(own, other) })
            }
            (_, other) => other,
        }))
    });
    let Ok(joined) = joined;
    joined
}

fn subtract(own: &mut Object, other: &Object) {
    if other.is_empty() {
        return;
    }
    own.retain(|step, node| {
        let Some(other) = other.get(step).filter(|_| step != SELF) else { return true };
        let (Value::Object(node), other) = (node, below(other)) else { return false };
        let keeps = is_member(node) && !is_member(other);
        node.remove(SELF);
        subtract(node, other);
        settle(node, keeps)
    });
}

pub(super) fn subtract_branches(own: &mut Object, other: &Object) {
    own.retain(|step, node| {
        let Some(other) = other.get(step).filter(|_| step != SELF) else { return true };
        let (Value::Object(node), other) = (node, below(other)) else { return false };
        if other.is_empty() {
            return false;
        }
        let keeps = is_member(node) && !is_member(other);
        node.remove(SELF);
        subtract_branches(node, other);
        settle(node, keeps)
    });
}

/// Puts the mark back where it belongs, and says whether the place stays.
fn settle(node: &mut Object, is_member: bool) -> bool {
    if is_member && !node.is_empty() {
        node.insert(SELF_STEP, Object::new());
    }
    is_member || !node.is_empty()
}

fn intersection(own: &Object, other: &Object) -> Object {
    children(own)
        .filter_map(|(step, node)| {
            let (node, other) = (below(node), below(other.get(step)?));
            let both = is_member(node) && is_member(other);
            Some((step.clone(), place(both, intersection(node, other))?))
        })
        .collect()
}

fn intersects(own: &Object, other: &Object) -> bool {
    let (few, many) = if own.len() < other.len() { (own, other) } else { (other, own) };
    children(few).any(|(step, node)| {
        many.get(step).is_some_and(|other| {
            let (node, other) = (below(node), below(other));
            (is_member(node) && is_member(other)) || intersects(node, other)
        })
    })
}

fn is_subset(own: &Object, other: &Object) -> bool {
    children(own).all(|(step, node)| {
        other.get(step).is_some_and(|other| {
            let (node, other) = (below(node), below(other));
            (!is_member(node) || is_member(other)) && is_subset(node, other)
        })
    })
}

fn count(tree: &Object) -> usize {
    children(tree).map(|(_, node)| usize::from(is_member(below(node))) + count(below(node))).sum()
}

fn leaves(tree: &Object) -> Object {
    children(tree).map(|(step, node)| (step.clone(), Value::Object(leaves(below(node))))).collect()
}

fn list(tree: &Object, prefix: &mut String, out: &mut Vec<String>) {
    let mut steps: Vec<(Step<'_>, &Object)> =
        children(tree).filter_map(|(text, node)| Some((Step::parse(text).ok()?, below(node)))).collect();
    steps.sort_by(|(left, _), (right, _)| left.order(right));
    out.extend(steps.iter().filter(|(_, node)| is_member(node)).map(|(step, _)| format!("{prefix}{step}")));
    for (step, node) in steps {
        let len = prefix.len();
        prefix.push_str(&step.to_string());
        list(node, prefix, out);
        prefix.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> FieldSet {
        super::super::fields_v1::read(&Value::parse(text.as_bytes()).unwrap()).unwrap()
    }

    #[track_caller]
    fn check(own: &str, other: &str, [union, difference, branches, intersection]: [&str; 4]) {
        let changed = |change: &dyn Fn(&mut FieldSet)| {
            let mut own = set(own);
            change(&mut own);
            own.into_value().to_string()
        };
        assert_eq!(changed(&|own| own.add(set(other))), union, "union");
        assert_eq!(changed(&|own| own.subtract(&set(other))), difference, "difference");
        assert_eq!(changed(&|own| own.subtract_branches(&set(other))), branches, "branches");
        let both = set(own).intersection(&set(other));
        assert_eq!(both.clone().into_value().to_string(), intersection, "intersection");
        assert_eq!(set(own).intersects(&set(other)), !both.is_empty());
        assert!(both.is_subset(&set(own)) && both.is_subset(&set(other)));
        assert_eq!(set(own).is_subset(&set(other)), both == set(own));
    }

    #[test]
    fn sets_combine() {
        check("{}", "{}", ["{}", "{}", "{}", "{}"]);
        check(r#"{"f:a":{}}"#, "{}", [r#"{"f:a":{}}"#, r#"{"f:a":{}}"#, r#"{"f:a":{}}"#, "{}"]);
        check(r#"{"f:a":{}}"#, r#"{"f:a":{}}"#, [r#"{"f:a":{}}"#, "{}", "{}", r#"{"f:a":{}}"#]);
        check(
            r#"{"f:a":{}}"#,
            r#"{"f:a":{"f:b":{}}}"#,
            [r#"{"f:a":{".":{},"f:b":{}}}"#, r#"{"f:a":{}}"#, r#"{"f:a":{}}"#, "{}"],
        );
        check(
            r#"{"f:a":{".":{},"f:b":{},"f:c":{"v:1":{}}},"f:d":{}}"#,
            r#"{"f:a":{}}"#,
            [
                r#"{"f:a":{".":{},"f:b":{},"f:c":{"v:1":{}}},"f:d":{}}"#,
                r#"{"f:a":{"f:b":{},"f:c":{"v:1":{}}},"f:d":{}}"#,
                r#"{"f:d":{}}"#,
                r#"{"f:a":{}}"#,
            ],
        );
        check(
            r#"{"f:a":{".":{},"f:b":{"f:c":{}}}}"#,
            r#"{"f:a":{"f:b":{"f:c":{},"f:d":{}},"f:e":{}}}"#,
            [
                r#"{"f:a":{".":{},"f:b":{"f:c":{},"f:d":{}},"f:e":{}}}"#,
                r#"{"f:a":{}}"#,
                r#"{"f:a":{}}"#,
                r#"{"f:a":{"f:b":{"f:c":{}}}}"#,
            ],
        );
        // The set of a place that goes alone: what is never tracked of the metadata.
        check(
            r#"{"f:m":{".":{},"f:labels":{".":{},"f:x":{}},"f:name":{}}}"#,
            r#"{"f:m":{".":{},"f:name":{}}}"#,
            [
                r#"{"f:m":{".":{},"f:labels":{".":{},"f:x":{}},"f:name":{}}}"#,
                r#"{"f:m":{"f:labels":{".":{},"f:x":{}}}}"#,
                r#"{"f:m":{"f:labels":{".":{},"f:x":{}}}}"#,
                r#"{"f:m":{".":{},"f:name":{}}}"#,
            ],
        );
    }

    #[test]
    fn fields_are_found_and_listed() {
        let own = set(
            r#"{"f:l":{"k:{\"p\":10}":{".":{},"f:p":{}},"k:{\"p\":9}":{".":{},"f:p":{}}},"f:s":{".":{},"v:\"x\"":{}},"f:z":{}}"#,
        );
        assert_eq!(
            own.to_string(),
            ".s\n.z\n.l[p=9]\n.l[p=10]\n.l[p=9].p\n.l[p=10].p\n.s[=\"x\"]",
            "fields of a place first, then by place"
        );
        let has = |steps: &[&str]| own.has(&steps.iter().map(SmolStr::new).collect::<Vec<_>>());
        assert!(has(&["f:s"]) && has(&["f:s", "v:\"x\""]) && has(&["f:l", "k:{\"p\":9}"]));
        assert!(!has(&["f:l"]) && !has(&["f:y"]) && !has(&[]) && !has(&["f:z", "f:a"]));
        assert_eq!(own.leaves().to_string(), ".z\n.l[p=9].p\n.l[p=10].p\n.s[=\"x\"]");
    }

    #[test]
    fn plain_fields() {
        let own = FieldSet::of_fields([&["status"][..], &["metadata", "labels"], &["metadata"]]);
        assert_eq!(own.into_value().to_string(), r#"{"f:metadata":{".":{},"f:labels":{}},"f:status":{}}"#);
    }
}
