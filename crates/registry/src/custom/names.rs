//! Which names of a group each CRD gets, and what its status says about that. Pure.
//!
//! A name belongs to the CRD that was accepted with it first. Another one that wants it waits, keeps what it was
//! accepted with before, and is served only if it was established with that; when the name becomes free it is looked
//! at again. Once established, a CRD stays so.

use std::collections::HashSet;

use polder_machinery::crd::bundle_problem;
use polder_model::{SmolStr, Value, json};

/// The names a CRD was accepted with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) plural: SmolStr,
    pub(crate) singular: SmolStr,
    pub(crate) kind: SmolStr,
    pub(crate) list_kind: SmolStr,
    pub(crate) short_names: Vec<SmolStr>,
    pub(crate) categories: Vec<SmolStr>,
}

impl Names {
    /// From `spec.names` or `status.acceptedNames`.
    pub(crate) fn read(names: Option<&Value>) -> Names {
        let text = |key: &str| SmolStr::new(names.and_then(|names| names.str_at(&[key])).unwrap_or_default());
        let list = |key: &str| -> Vec<SmolStr> {
            let items = names.map(|names| names.array_at(&[key])).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(SmolStr::new).collect()
        };
        Names {
            plural: text("plural"),
            singular: text("singular"),
            kind: text("kind"),
            list_kind: text("listKind"),
            short_names: list("shortNames"),
            categories: list("categories"),
        }
    }

    fn write(&self) -> Value {
        // These two are there even when they are empty.
        let mut names = json!({"plural": (self.plural.clone()), "kind": (self.kind.clone())});
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                names.set_at(&[key], text.clone());
            }
        }
        for (key, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                names.set_at(&[key], list.iter().map(Value::from).collect::<Vec<_>>());
            }
        }
        names
    }
}

/// What of a CRD's wishes others of its group have been accepted with. Only that is kept: a group may be large.
#[derive(Default)]
struct Taken<'a> {
    resources: HashSet<&'a str>,
    kinds: HashSet<&'a str>,
}

impl<'a> Taken<'a> {
    fn of<'b: 'a>(wanted: &Names, others: impl Iterator<Item = &'b Names>, own: &'a Names) -> Taken<'a> {
        let mut taken = Taken::default();
        others.for_each(|names| taken.add(wanted, names));
        taken.add(wanted, own);
        taken
    }

    fn add(&mut self, wanted: &Names, names: &'a Names) {
        let wants = |name: &&SmolStr| {
            wanted.plural == **name || wanted.singular == **name || wanted.short_names.contains(name)
        };
        let resources = [&names.plural, &names.singular].into_iter().chain(&names.short_names);
        self.resources.extend(resources.filter(wants).map(SmolStr::as_str));
        let kinds = [&names.kind, &names.list_kind].into_iter();
        let kinds = kinds.filter(|name| wanted.kind == **name || wanted.list_kind == **name);
        self.kinds.extend(kinds.map(SmolStr::as_str));
    }
}

/// What was decided about a CRD's names.
struct Decision {
    accepted: Names,
    /// Reason and message of the conflict that counts: the last one found.
    conflict: Option<(&'static str, String)>,
}

fn decide(wanted: &Names, accepted: Names, taken: &Taken<'_>) -> Decision {
    let mut decision = Decision { accepted, conflict: None };
    let own = &mut decision.accepted;
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut one = |reason, wanted: &SmolStr, own: &mut SmolStr, taken: &HashSet<&str>| {
        if wanted != own && taken.contains(wanted.as_str()) {
            decision.conflict = Some((reason, in_use(wanted)));
        } else {
            own.clone_from(wanted);
        }
    };
    one("PluralConflict", &wanted.plural, &mut own.plural, &taken.resources);
    one("SingularConflict", &wanted.singular, &mut own.singular, &taken.resources);
    let is_taken =
        |name: &&SmolStr| !own.short_names.contains(name) && taken.resources.contains(name.as_str());
    let conflicts: Vec<String> =
        wanted.short_names.iter().filter(is_taken).map(|name| in_use(name)).collect();
    if conflicts.is_empty() {
        own.short_names.clone_from(&wanted.short_names);
    }
    one("KindConflict", &wanted.kind, &mut own.kind, &taken.kinds);
    one("ListKindConflict", &wanted.list_kind, &mut own.list_kind, &taken.kinds);
    own.categories.clone_from(&wanted.categories);
    // Of several conflicts the last counts; that of a kind comes after that of a short name.
    let by_kind = matches!(decision.conflict, Some(("KindConflict" | "ListKindConflict", _)));
    if !conflicts.is_empty() && !by_kind {
        let message = match conflicts.as_slice() {
            [single] => single.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        decision.conflict = Some(("ShortNamesConflict", message));
    }
    decision
}

/// Decides which names a CRD gets and writes it into its status. True when all of them.
pub(super) fn settle<'a>(crd: &mut Value, others: impl Iterator<Item = &'a Names>, now: &str) -> bool {
    let wanted = Names::read(crd.at(&["spec", "names"]));
    let accepted = Names::read(crd.at(&["status", "acceptedNames"]));
    let decision = decide(&wanted, accepted.clone(), &Taken::of(&wanted, others, &accepted));
    crd.set_at(&["status", "acceptedNames"], decision.accepted.write());
    match &decision.conflict {
        None => {
            set_condition(crd, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now);
            if is_true(crd, "Established") {
                return true;
            }
            if bundle_problem(crd).is_some() {
                let message = "The conversion webhook CABundle is invalid";
                set_condition(crd, "Established", "False", "InvalidCABundle", message, now);
            } else {
                let message = "the initial names have been accepted";
                set_condition(crd, "Established", "True", "InitialNamesAccepted", message, now);
            }
        }
        Some((reason, message)) => {
            set_condition(crd, "NamesAccepted", "False", reason, message, now);
            if condition(crd, "Established").is_none() {
                set_condition(crd, "Established", "False", "NotAccepted", "not all names are accepted", now);
            }
        }
    }
    decision.conflict.is_none()
}

fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    crd.array_at(&["status", "conditions"]).iter().find(|one| one.str_at(&["type"]) == Some(kind))
}

pub(super) fn is_true(crd: &Value, kind: &str) -> bool {
    condition(crd, kind).is_some_and(|condition| condition.str_at(&["status"]) == Some("True"))
}

/// Sets a condition; the time of its last transition changes only with its status.
pub(crate) fn set_condition(
    crd: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let since = condition(crd, kind)
        .filter(|earlier| earlier.str_at(&["status"]) == Some(status))
        .and_then(|earlier| earlier.get("lastTransitionTime").cloned());
    let new = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": (since.unwrap_or_else(|| now.into())),
    });
    let mut conditions = crd.array_at(&["status", "conditions"]).to_vec();
    match conditions.iter_mut().find(|one| one.str_at(&["type"]) == Some(kind)) {
        Some(own) => *own = new,
        None => conditions.push(new),
    }
    crd.set_at(&["status", "conditions"], conditions);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        let mut parts = text.split(' ').map(SmolStr::new);
        let mut next = || parts.next().unwrap_or_default();
        Names {
            plural: next(),
            singular: next(),
            kind: next(),
            list_kind: next(),
            short_names: parts.collect(),
            categories: Vec::new(),
        }
    }

    fn crd(wanted: &str, accepted: &str) -> Value {
        let mut crd = json!({"spec": {"names": (names(wanted).write())}});
        if !accepted.is_empty() {
            crd.set_at(&["status", "acceptedNames"], names(accepted).write());
        }
        crd
    }

    fn shown(crd: &Value, kind: &str) -> String {
        let condition = condition(crd, kind).unwrap();
        let text = |key| condition.str_at(&[key]).unwrap_or_default();
        format!("{} {}: {}", text("status"), text("reason"), text("message"))
    }

    /// Wanted, accepted before, taken by another, `NamesAccepted`, accepted after.
    #[test]
    fn names_are_taken_once() {
        let rows = [
            ("as a A AList", "", "bs b B BList", "True NoConflicts: no conflicts found", "as a A AList"),
            (
                "as a A AList",
                "",
                "as x X XList",
                r#"False PluralConflict: "as" is already in use"#,
                " a A AList",
            ),
            (
                "as a A AList",
                "",
                "bs b A BList",
                r#"False KindConflict: "A" is already in use"#,
                "as a  AList",
            ),
            // Of several conflicts the last is told.
            (
                "as a A AList s t",
                "",
                "s a t AList",
                r#"False ListKindConflict: "AList" is already in use"#,
                "as  A ",
            ),
            (
                "as a A AList s t u",
                "as a A AList u",
                "s t B BList",
                r#"False ShortNamesConflict: ["s" is already in use, "t" is already in use]"#,
                "as a A AList u",
            ),
            // What one has already is no conflict, though it is among what is taken.
            (
                "as a A AList s",
                "as a A AList",
                "as a A AList",
                "True NoConflicts: no conflicts found",
                "as a A AList s",
            ),
        ];
        for (wanted, accepted, other, expected, after) in rows {
            let mut crd = crd(wanted, accepted);
            let other = names(other);
            settle(&mut crd, [&other].into_iter(), "now");
            assert_eq!(shown(&crd, "NamesAccepted"), expected, "{wanted}");
            assert_eq!(Names::read(crd.at(&["status", "acceptedNames"])), names(after), "{wanted}");
        }
    }

    #[test]
    fn established_is_for_good() {
        let other = names("bs b B BList");
        let mut crd = crd("as b A AList", "");
        assert!(!settle(&mut crd, [&other].into_iter(), "1"));
        assert_eq!(shown(&crd, "Established"), "False NotAccepted: not all names are accepted");
        assert!(settle(&mut crd, std::iter::empty(), "2"));
        let established = "True InitialNamesAccepted: the initial names have been accepted";
        assert_eq!(shown(&crd, "Established"), established);
        crd.set_at(&["spec", "names", "shortNames"], json!(["bs"]));
        assert!(!settle(&mut crd, [&other].into_iter(), "3"));
        assert_eq!(shown(&crd, "Established"), established);
        assert_eq!(shown(&crd, "NamesAccepted"), r#"False ShortNamesConflict: "bs" is already in use"#);
        let since = |kind| condition(&crd, kind).unwrap().str_at(&["lastTransitionTime"]).unwrap().to_owned();
        assert_eq!((since("Established"), since("NamesAccepted")), ("2".into(), "3".into()));
    }
}
