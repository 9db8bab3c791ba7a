//! What somebody would give away without having it.
//!
//! Rules are taken apart into single permissions, each of which one rule of the giver must allow. A role can have far more
//! of these than bytes, so there is a bound to how much is looked at; beyond it the answer is no.

use std::collections::{BTreeMap, BTreeSet};

use polder_model::SmolStr;

use super::index::clipped;
use super::rule::Rule;
use super::set::Permission;

/// What may be looked at: permissions that are wanted, and words of rules that somebody has.
const LOOKS_MAX: usize = 1_000_000;
/// Missing permissions that are looked for.
const MISSING_MAX: usize = 4096;
/// What a text about them may take.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// What is missing.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    Rules(Vec<Rule>),
    /// There is too much to compare.
    TooMany,
}

/// What of some rules somebody does not have, who is asked whether they have one thing and notes how much was looked at.
pub fn missing(mut has: impl FnMut(&Permission<'_>, &mut usize) -> bool, wanted: &[Rule]) -> Option<Missing> {
    let (mut missing, mut looked) = (Vec::new(), 0);
    // Nothing is taken apart for somebody who has everything.
    let (all, none) = (SmolStr::new_static("*"), None);
    let everywhere = Permission::Resource { verb: &all, group: &all, resource: &all, name: none };
    let every_path = Permission::Path { verb: &all, url: &all };
    let everything = (has(&everywhere, &mut looked), has(&every_path, &mut looked));
    for permission in wanted.iter().flat_map(|rule| permissions(rule, everything)) {
        looked += 1;
        if !has(&permission, &mut looked) {
            missing.push(rule(&permission));
        }
        if looked > LOOKS_MAX {
            return Some(Missing::TooMany);
        }
        if missing.len() >= MISSING_MAX {
            break;
        }
    }
    (!missing.is_empty()).then_some(Missing::Rules(missing))
}

/// What a rule allows, one by one, without resources or paths for whoever has all of those.
fn permissions(rule: &Rule, (resources, paths): (bool, bool)) -> impl Iterator<Item = Permission<'_>> {
    let groups = rule.groups.iter().filter(move |_| !resources);
    let of_groups = groups.flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)));
    let verbs =
        of_groups.flat_map(|(group, resource)| rule.verbs.iter().map(move |verb| (group, resource, verb)));
    let of_resources = verbs.flat_map(|(group, resource, verb)| {
        let all = rule.names.is_empty().then_some(None);
        let names = all.into_iter().chain(rule.names.iter().map(Some));
        names.map(move |name| Permission::Resource { verb, group, resource, name })
    });
    let urls = rule.urls.iter().filter(move |_| !paths);
    let of_paths = urls.flat_map(|url| rule.verbs.iter().map(move |verb| Permission::Path { verb, url }));
    of_resources.chain(of_paths)
}

fn rule(permission: &Permission<'_>) -> Rule {
    let one = |text: &SmolStr| vec![text.clone()];
    match permission {
        Permission::Path { url, verb } => Rule { verbs: one(verb), urls: one(url), ..Rule::default() },
        Permission::Resource { group, resource, verb, name } => Rule {
            verbs: one(verb),
            groups: one(group),
            resources: one(resource),
            names: name.map(one).unwrap_or_default(),
            urls: Vec::new(),
        },
    }
}

/// Rules as upstream names them in refusals: those about one resource put together, in the order of their texts.
pub fn describe(rules: &[Rule]) -> String {
    let mut simple: BTreeMap<(&SmolStr, &SmolStr, Option<&SmolStr>), Rule> = BTreeMap::new();
    let mut others = Vec::new();
    for rule in rules {
        match (&rule.groups[..], &rule.resources[..], &rule.names[..]) {
            ([group], [resource], [] | [_]) => {
                let key = (group, resource, rule.names.first());
                match simple.get_mut(&key) {
                    Some(known) => known.verbs.extend(rule.verbs.iter().cloned()),
                    None => drop(simple.insert(key, rule.clone())),
                }
            }
            _ => others.push(rule),
        }
    }
    let (mut texts, mut bytes) = (BTreeSet::new(), 0);
    for rule in others.into_iter().chain(simple.values()) {
        let text = text(rule);
        bytes += text.len();
        if bytes > TEXT_BYTES_MAX {
            texts.insert("{...}".to_owned());
            break;
        }
        texts.insert(text);
    }
    texts.into_iter().collect::<Vec<_>>().join("\n")
}

fn text(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.urls),
        ("ResourceNames", &rule.names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.into_iter().filter(|(_, texts)| !texts.is_empty());
    let parts: Vec<String> = parts.map(|(name, texts)| format!("{name}:{}", quoted(texts))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// Texts as Go prints a list of them, so many as a refusal can hold.
pub fn quoted(texts: &[SmolStr]) -> String {
    let texts: Vec<String> = texts.iter().take(256).map(|text| format!("{:?}", clipped(text))).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::rule::tests::rule;
    use super::super::{Role, RoleSet};
    use super::*;

    #[test]
    fn what_is_not_held_is_named() {
        let rows: &[(&[&str], &str, &str)] = &[
            (
                &[r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#],
                r#"{"verbs":["get","list","watch"],"apiGroups":[""],"resources":["pods"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
            ),
            (
                &[
                    r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#,
                    r#"{"verbs":["list"],"apiGroups":["*"],"resources":["*"]}"#,
                ],
                r#"{"verbs":["get","list"],"apiGroups":[""],"resources":["pods"]}"#,
                "",
            ),
            (
                &[r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*/log"]}"#],
                r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods/log","pods"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#,
            ),
            (
                &[r#"{"verbs":["get"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a"]}"#],
                r#"{"verbs":["get"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a","b"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#,
            ),
            (
                &[r#"{"verbs":["get"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a"]}"#],
                r#"{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#,
            ),
            (
                &[r#"{"verbs":["get"],"nonResourceURLs":["/logs/*"]}"#],
                r#"{"verbs":["get"],"nonResourceURLs":["/logs/a","/logs/*","/logs","*"]}"#,
                "{NonResourceURLs:[\"*\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/logs\"], Verbs:[\"get\"]}",
            ),
            (
                &[r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#],
                r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#,
                r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#,
            ),
            (&[], r#"{"verbs":["get"]}"#, ""),
        ];
        for (own, wanted, expected) in rows {
            let set = set(own.iter().map(|text| rule(text)).collect());
            let has = |permission: &Permission<'_>, looked: &mut usize| set.covers(permission, looked);
            let found = match missing(has, &[rule(wanted)]) {
                None => String::new(),
                Some(Missing::Rules(rules)) => describe(&rules),
                Some(Missing::TooMany) => "too many".to_owned(),
            };
            assert_eq!(&found, expected, "{wanted}");
        }
    }

    #[test]
    fn a_role_of_a_million_permissions_is_not_taken_apart() {
        let many =
            |prefix: &str| (0..1000).map(|n| SmolStr::from(format!("{prefix}{n}"))).collect::<Vec<_>>();
        let bomb = Rule { verbs: many("v"), groups: many("g"), resources: many("r"), ..Rule::default() };
        let star = || vec![SmolStr::new_static("*")];
        let all = Rule { verbs: star(), groups: star(), resources: star(), ..Rule::default() };
        let ask = |own: Vec<Rule>, wanted: &Rule| {
            let set = set(own);
            let mut looks = 0;
            let has = |permission: &Permission<'_>, looked: &mut usize| {
                let found = set.covers(permission, looked);
                looks = *looked;
                found
            };
            let found = missing(has, std::slice::from_ref(wanted));
            assert!(looks < 2 * LOOKS_MAX, "{looks}");
            found
        };
        assert_eq!(ask(vec![all.clone()], &bomb), None);
        let half = Rule { verbs: vec!["v0".into()], ..all.clone() };
        let Some(Missing::Rules(rules)) = ask(vec![half], &bomb) else { panic!() };
        assert_eq!(rules.len(), MISSING_MAX);
        // Nearly all of it is held, rule by rule, or name by name.
        let rest = (0..999).map(|n| Rule { verbs: vec![format!("v{n}").into()], ..all.clone() });
        assert_eq!(ask(rest.collect(), &bomb), Some(Missing::TooMany));
        let named = Rule { verbs: many("v"), names: many("n"), ..all };
        assert_eq!(ask(vec![named.clone()], &named), Some(Missing::TooMany));
    }

    #[test]
    fn long_words_are_not_repeated() {
        let words = (0..4096).map(|n| Rule {
            verbs: vec!["v".repeat(1 << 20).into()],
            groups: vec!["".into()],
            resources: vec![format!("r{n}").into()],
            ..Rule::default()
        });
        let text = describe(&words.take(512).collect::<Vec<_>>());
        assert!(text.len() < TEXT_BYTES_MAX + 1024 && text.contains("{...}"), "{}", text.len());
    }

    fn set(rules: Vec<Rule>) -> RoleSet {
        RoleSet::new(vec![Arc::new(Role::new(rules))])
    }
}
