//! Several schemas for one value: `anyOf`, `oneOf`, `allOf` and `not`.

use polder_model::{FieldPath, Value};

use super::super::{Checks, NodeId, NodeRef};
use super::since::Before;
use super::{Outcome, Validator};

impl Validator {
    pub(super) fn check_combined(
        &mut self,
        node: NodeRef<'_>,
        checks: &Checks,
        value: &Value,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        outcome: &mut Outcome,
    ) {
        if !checks.any_of.is_empty() {
            let (valid, explanation) = self.alternatives((node, &checks.any_of), value, old, name, true);
            if valid == 0 {
                outcome.add(self.composite(name, "must validate at least one schema (anyOf)"));
            }
            outcome.merge(explanation);
        }
        if !checks.one_of.is_empty() {
            let (valid, explanation) = self.alternatives((node, &checks.one_of), value, old, name, false);
            match valid {
                0 => {
                    let problem = "must validate one and only one schema (oneOf). Found none valid";
                    outcome.add(self.composite(name, problem));
                    outcome.merge(explanation);
                }
                1 => outcome.merge(explanation),
                count => {
                    let problem = format!(
                        "must validate one and only one schema (oneOf). Found {count} valid alternatives"
                    );
                    outcome.add(self.composite(name, &problem));
                }
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for id in &checks.all_of {
                let one = self.check_anew(node.at(*id), value, old, name);
                valid += usize::from(one.is_valid());
                outcome.merge(one);
            }
            if valid != checks.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                outcome.add(self.composite(name, &format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(id) = checks.not
            && self.check_anew(node.at(id), value, old, name).is_valid()
        {
            outcome.add(self.composite(name, "must not validate the schema (not)"));
        }
    }

    /// How many alternatives fit, and the first that does or else the one that nearly does.
    fn alternatives(
        &mut self,
        (node, ids): (NodeRef<'_>, &[NodeId]),
        value: &Value,
        old: Option<Before<'_>>,
        name: &FieldPath<'_>,
        one_is_enough: bool,
    ) -> (usize, Outcome) {
        let mut valid = 0;
        let mut best: Option<Outcome> = None;
        for id in ids {
            let one = self.check_anew(node.at(*id), value, old, name);
            if one.is_valid() {
                valid += 1;
                if valid == 1 {
                    best = Some(one);
                }
                if one_is_enough {
                    break;
                }
            } else if valid == 0 && best.as_ref().is_none_or(|best| one.matches > best.matches) {
                best = Some(one);
            }
        }
        (valid, best.unwrap_or_default())
    }
}
