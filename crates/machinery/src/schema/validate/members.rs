//! Checks of lists and maps: how many members they have, and what each of them is.

use std::collections::HashMap;

use polder_model::field::bounded;
use polder_model::{FieldError, FieldPath, Object, Value};

use super::super::{NodeRef, unique};
use super::shown::clipped;
use super::since::Before;
use super::{Outcome, Validator};

impl Validator {
    pub(super) fn check_items(
        &mut self,
        node: NodeRef<'_>,
        items: &[Value],
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        if let Some(item_node) = node.items() {
            self.depth += 1;
            let mut before: Option<HashMap<String, Before<'_>>> = None;
            for (index, item) in items.iter().enumerate() {
                let mut one = self.check(item_node, item, None, &name.index(index));
                // Which element it was is looked up only for one that is wrong: few are.
                if !one.is_valid()
                    && let Some((old, key)) = old.and_then(|old| Some((old, old.key(item)?)))
                    && let Some(known) = before.get_or_insert_with(|| old.elements()).get(&key)
                {
                    one = self.check(item_node, item, Some(*known), &name.index(index));
                }
                outcome.merge(one);
                if self.exhausted || outcome.is_full() {
                    break;
                }
            }
            self.depth -= 1;
        }
        let Some(checks) = node.get().checks.as_deref() else { return };
        self.check_count(items.len(), (checks.min_items, checks.max_items), "items", name, outcome);
        if checks.unique_items && unique::has_repeated(items) {
            outcome.add(self.invalid(name, Value::from(""), "shouldn't contain duplicates"));
        }
    }

    pub(super) fn check_members(
        &mut self,
        node: NodeRef<'_>,
        object: &Object,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        let own = node.get();
        let before = |key: &str| old.and_then(|old| old.member(key));
        let mut no_additional = false;
        if let Some(checks) = own.checks.as_deref() {
            no_additional = checks.no_additional;
            let bounds = (checks.min_properties, checks.max_properties);
            self.check_count(object.len(), bounds, "properties", name, outcome);
        }
        // Below the root, upstream names free-form members and missing ones with a leading dot.
        let dotted_root = FieldPath::root("");
        let dotted = if self.depth == 0 { &dotted_root } else { name };
        self.depth += 1;
        if no_additional || own.additional.is_some() {
            for (key, value) in object.iter().filter(|(key, _)| node.property(key).is_none()) {
                if no_additional {
                    let detail = format!("{} in body is a forbidden property", bounded(name.member(key)));
                    outcome.add(FieldError::invalid(self.at(name), clipped(key).as_ref(), detail));
                } else if let Some(id) = own.additional {
                    let one = self.check(node.at(id), value, before(key), &dotted.member(key));
                    outcome.merge(one);
                }
                if self.exhausted || outcome.is_full() {
                    break;
                }
            }
        }
        if !own.properties.is_empty() {
            for (key, value) in object.iter() {
                if outcome.is_full() {
                    break;
                }
                if let Some(member) = node.property(key) {
                    let one = self.check(member, value, before(key), &name.member(key));
                    outcome.merge(one);
                }
            }
        }
        self.depth -= 1;
        for required in own.required.iter().filter(|required| !object.contains_key(required)) {
            if outcome.is_full() {
                break;
            }
            outcome.add(FieldError::required(self.at(&dotted.member(required)), ""));
        }
    }

    fn check_count(
        &self,
        count: usize,
        (min, max): (Option<u64>, Option<u64>),
        what: &str,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        if let Some(min) = min.filter(|min| (count as u64) < *min) {
            let value = Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
            outcome.add(self.invalid(name, value, &format!("should have at least {min} {what}")));
        }
        if let Some(max) = max.filter(|max| (count as u64) > *max) {
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            outcome.add(FieldError::too_many(self.at(name), count, max));
        }
    }
}
