//! What a write changed: which fields it touched, which it took away.
//!
//! This is on the path of every write, so equal parts are skipped before anything is asked about them, and nothing is
//! allocated for what did not change.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use polder_model::{Object, SmolStr, Value};

use super::collect::everything;
use super::path::write_field;
use super::place::{Items, Place, Shape};
use super::set::{FieldSet, NOTHING, below, is_member, place, subtract_branches};

/// The difference between two states of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Comparison {
    /// Fields that are new or have another value.
    pub(super) touched: FieldSet,
    /// Fields that are gone.
    pub(super) removed: FieldSet,
}

impl Comparison {
    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.removed.is_empty()
    }
}

/// Compares, leaving out what is in `ignored` and below it.
pub(super) fn compare(root: Place<'_>, old: &Value, new: &Value, ignored: &FieldSet) -> Comparison {
    let found = compare_both(root, old, new, ignored.tree());
    Comparison {
        touched: FieldSet::from_tree(found.touched.below),
        removed: FieldSet::from_tree(found.removed.below),
    }
}

/// Whether two values are the same to Kubernetes: numbers count by value.
pub(super) fn is_same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Int(_) | Value::Float(_), Value::Int(_) | Value::Float(_)) => old.as_f64() == new.as_f64(),
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new))
        }
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && old.iter().zip(new.iter()).all(|(old, new)| old.0 == new.0 && is_same(old.1, new.1))
        }
        _ => old == new,
    }
}

/// What was found at a place: whether it counts itself, and what is below it.
#[derive(Default)]
struct Found {
    touched: Branch,
    removed: Branch,
}

#[derive(Default)]
struct Branch {
    is_member: bool,
    below: Object,
}

fn compare_both(here: Place<'_>, old: &Value, new: &Value, ignored: &Object) -> Found {
    if old == new {
        return Found::default();
    }
    let (old_shape, new_shape) = (here.shape(old), here.shape(new));
    match (old_shape, new_shape) {
        (Shape::Map(here), Shape::Map(_)) => members(here, old, new, ignored),
        (Shape::List(items), Shape::List(_)) => elements(items, old, new),
        (Shape::Leaf(_), Shape::Leaf(_)) => leaf(old, new),
        // Only where no type is known: the old shape's parts go, the new shape's parts come.
        _ => {
            let gone = match old_shape {
                Shape::Map(here) => members(here, old, &Value::Null, ignored),
                Shape::List(items) => elements(items, old, &Value::Null),
                Shape::Leaf(_) => leaf(old, new),
            };
            let come = match new_shape {
                Shape::Map(here) => members(here, &Value::Null, new, ignored),
                Shape::List(items) => elements(items, &Value::Null, new),
                Shape::Leaf(_) => leaf(old, new),
            };
            let is_member = gone.touched.is_member || come.touched.is_member;
            let touched = Branch { is_member, below: come.touched.below };
            Found { touched, removed: Branch { is_member: false, below: gone.removed.below } }
        }
    }
}

fn leaf(old: &Value, new: &Value) -> Found {
    let touched = Branch { is_member: !is_same(old, new), below: Object::new() };
    Found { touched, removed: Branch::default() }
}

fn members(here: Place<'_>, old: &Value, new: &Value, ignored: &Object) -> Found {
    let (own_old, own_new) = (below(old), below(new));
    if own_old.is_empty() && own_new.is_empty() {
        // This is how an empty map differs from none.
        return leaf(old, new);
    }
    let mut steps = Steps::default();
    let (mut old, mut new) = (own_old.iter().peekable(), own_new.iter().peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = if order.is_le() { old.next() } else { None };
        let new = if order.is_ge() { new.next() } else { None };
        let Some((name, _)) = old.or(new) else { break };
        let (old, new) = (old.map(|(_, value)| value), new.map(|(_, value)| value));
        if old == new {
            continue;
        }
        let step = write_field(name);
        let ignored = match ignored.get(&step).map(below) {
            // All of it, unless parts are named: then these, and the place itself.
            Some(ignored) if ignored.is_empty() => continue,
            Some(ignored) => ignored,
            None => &NOTHING,
        };
        let mut found = one(here.member(name), old, new, ignored);
        if !ignored.is_empty() && is_member(ignored) {
            (found.touched.is_member, found.removed.is_member) = (false, false);
        }
        steps.add(step, found);
    }
    steps.found()
}

fn one(here: Place<'_>, old: Option<&Value>, new: Option<&Value>, ignored: &Object) -> Found {
    let whole = |value| {
        let mut below = everything(here, value);
        subtract_branches(&mut below, ignored);
        Branch { is_member: true, below }
    };
    match (old, new) {
        (Some(old), Some(new)) => compare_both(here, old, new, ignored),
        (None, Some(new)) => Found { touched: whole(new), removed: Branch::default() },
        (Some(old), None) => Found { touched: Branch::default(), removed: whole(old) },
        (None, None) => Found::default(),
    }
}

/// All elements of one identity, before and after. Almost always there is one of each.
#[derive(Default)]
struct Twins<'v> {
    old: Vec<&'v Value>,
    new: Vec<&'v Value>,
}

fn elements(items: Items<'_>, old: &Value, new: &Value) -> Found {
    let (own_old, own_new) = (old.as_array().unwrap_or_default(), new.as_array().unwrap_or_default());
    if own_old.is_empty() && own_new.is_empty() {
        return leaf(old, new);
    }
    let mut by_step: BTreeMap<SmolStr, Twins<'_>> = BTreeMap::new();
    for element in own_old {
        if let Ok(step) = items.step(element) {
            by_step.entry(step).or_default().old.push(element);
        }
    }
    for element in own_new {
        if let Ok(step) = items.step(element) {
            by_step.entry(step).or_default().new.push(element);
        }
    }
    let mut steps = Steps::default();
    for (step, twins) in by_step {
        steps.add(step, element(items.element, &twins));
    }
    steps.found()
}

/// Elements that stand twice are owned as one, under their common identity.
fn element(here: Place<'_>, Twins { old, new }: &Twins<'_>) -> Found {
    let one = |old, new| one(here, old, new, &NOTHING);
    match (old.as_slice(), new.as_slice()) {
        ([], [new]) => one(None, Some(new)),
        ([old], []) => one(Some(old), None),
        ([old], [new]) => one(Some(old), Some(new)),
        (old, new) if old.len() > 1 && new.len() > 1 => {
            let same = old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same(old, new));
            let touched = Branch { is_member: !same, below: Object::new() };
            Found { touched, removed: Branch::default() }
        }
        (old, new) if old.len() > 1 => {
            let mut found = new.first().map_or_else(Found::default, |new| one(None, Some(new)));
            found.removed.is_member = true;
            found
        }
        (old, _) => {
            let mut found = old.first().map_or_else(Found::default, |old| one(Some(old), None));
            found.touched.is_member = true;
            found
        }
    }
}

/// Collects what was found below a place.
#[derive(Default)]
struct Steps {
    touched: Vec<(SmolStr, Value)>,
    removed: Vec<(SmolStr, Value)>,
}

impl Steps {
    fn add(&mut self, step: SmolStr, found: Found) {
        let node = |branch: Branch| place(branch.is_member, branch.below);
        let Found { touched, removed } = found;
        if let Some(node) = node(touched) {
            self.touched.push((step.clone(), node));
        }
        if let Some(node) = node(removed) {
            self.removed.push((step, node));
        }
    }

    fn found(self) -> Found {
        let branch =
            |steps: Vec<(SmolStr, Value)>| Branch { is_member: false, below: steps.into_iter().collect() };
        Found { touched: branch(self.touched), removed: branch(self.removed) }
    }
}
