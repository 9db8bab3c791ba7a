//! What somebody would give away without having it.
//!
//! Rules are taken apart into single permissions, each of which one rule of the giver must allow. A role can have far more
//! of these than bytes, so there is a bound to how many comparisons are made; beyond it the answer is no.

use std::collections::{BTreeMap, BTreeSet};

use polder_model::SmolStr;

use super::rule::{ALL, Rule, url_covers};

/// Comparisons of a permission with a rule.
const COMPARISONS_MAX: usize = 4_000_000;
/// Missing permissions that are looked for and named.
const MISSING_MAX: usize = 4096;

/// What is missing.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    Rules(Vec<Rule>),
    /// There is too much to compare.
    TooMany,
}

/// What of some rules is not covered by those that somebody has.
pub fn missing(own: &[&Rule], wanted: &[Rule]) -> Option<Missing> {
    let (mut missing, mut left) = (Vec::new(), COMPARISONS_MAX);
    for rule in wanted {
        // Nothing is taken apart that one rule covers as it is.
        if own.iter().any(|own| covers_whole(own, rule)) {
            continue;
        }
        for single in singles(rule) {
            let Some(rest) = left.checked_sub(own.len() + 1) else { return Some(Missing::TooMany) };
            left = rest;
            if own.iter().any(|own| single.is_covered(own)) {
                continue;
            }
            missing.push(single.rule());
            if missing.len() >= MISSING_MAX {
                return Some(Missing::Rules(missing));
            }
        }
    }
    (!missing.is_empty()).then_some(Missing::Rules(missing))
}

/// One permission.
enum Single<'a> {
    Resource { group: &'a SmolStr, resource: &'a SmolStr, verb: &'a SmolStr, name: Option<&'a SmolStr> },
    Path { url: &'a SmolStr, verb: &'a SmolStr },
}

fn singles(rule: &Rule) -> impl Iterator<Item = Single<'_>> {
    let groups = rule.groups.iter();
    let resources = groups.flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)));
    let verbs =
        resources.flat_map(|(group, resource)| rule.verbs.iter().map(move |verb| (group, resource, verb)));
    let of_resources = verbs.flat_map(|(group, resource, verb)| {
        let all = rule.names.is_empty().then_some(None);
        let names = all.into_iter().chain(rule.names.iter().map(Some));
        names.map(move |name| Single::Resource { group, resource, verb, name })
    });
    let urls = rule.urls.iter();
    let of_paths = urls.flat_map(|url| rule.verbs.iter().map(move |verb| Single::Path { url, verb }));
    of_resources.chain(of_paths)
}

impl Single<'_> {
    fn is_covered(&self, own: &Rule) -> bool {
        match self {
            Single::Path { url, verb } => {
                own.has_verb(verb) && own.names.is_empty() && own.urls.iter().any(|own| url_covers(own, url))
            }
            Single::Resource { group, resource, verb, name } => {
                own.has_verb(verb)
                    && own.has_group(group)
                    && covers_resource(&own.resources, resource)
                    && (own.names.is_empty() || name.is_some_and(|name| own.names.contains(name)))
            }
        }
    }

    fn rule(&self) -> Rule {
        let one = |text: &SmolStr| vec![text.clone()];
        match self {
            Single::Path { url, verb } => Rule { verbs: one(verb), urls: one(url), ..Rule::default() },
            Single::Resource { group, resource, verb, name } => Rule {
                verbs: one(verb),
                groups: one(group),
                resources: one(resource),
                names: name.map(one).unwrap_or_default(),
                urls: Vec::new(),
            },
        }
    }
}

/// A rule about the logs of everything covers one about the logs of pods.
fn covers_resource(own: &[SmolStr], resource: &str) -> bool {
    let by_part = |own: &SmolStr| match (own.split_once('/'), resource.split_once('/')) {
        (Some((ALL, own)), Some((_, part))) => own == part,
        _ => false,
    };
    own.iter().any(|own| own == ALL || own == resource || by_part(own))
}

fn covers_whole(own: &Rule, rule: &Rule) -> bool {
    let verbs = rule.verbs.iter().all(|verb| own.has_verb(verb));
    let groups = rule.groups.iter().all(|group| own.has_group(group));
    // What is not in a few is not looked for among many: this must cost no more than reading the rules.
    let few = own.resources.len() * rule.resources.len() + own.urls.len() * rule.urls.len() <= 1 << 16;
    few && verbs
        && groups
        && own.names.is_empty()
        && rule.resources.iter().all(|resource| covers_resource(&own.resources, resource))
        && rule.urls.iter().all(|url| own.urls.iter().any(|own| url_covers(own, url)))
}

/// Rules as upstream names them in refusals: those about one resource put together, in the order of their texts.
pub fn describe(rules: &[Rule]) -> String {
    let mut simple: BTreeMap<(&SmolStr, &SmolStr, Option<&SmolStr>), Rule> = BTreeMap::new();
    let mut texts: BTreeSet<String> = BTreeSet::new();
    for rule in rules {
        match (&rule.groups[..], &rule.resources[..], &rule.names[..]) {
            ([group], [resource], [] | [_]) => {
                let key = (group, resource, rule.names.first());
                match simple.get_mut(&key) {
                    Some(known) => known.verbs.extend(rule.verbs.iter().cloned()),
                    None => drop(simple.insert(key, rule.clone())),
                }
            }
            _ => drop(texts.insert(text(rule))),
        }
    }
    texts.extend(simple.values().map(text));
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

/// Texts as Go prints a list of them.
pub fn quoted(texts: &[SmolStr]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::rule;
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
            let own: Vec<Rule> = own.iter().map(|text| rule(text)).collect();
            let own: Vec<&Rule> = own.iter().collect();
            let found = match missing(&own, &[rule(wanted)]) {
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
        let all = Rule {
            verbs: vec![ALL.into()],
            groups: vec![ALL.into()],
            resources: vec![ALL.into()],
            ..Rule::default()
        };
        let half = Rule { verbs: vec!["v0".into()], ..all.clone() };
        assert_eq!(missing(&[&all], std::slice::from_ref(&bomb)), None);
        let Some(Missing::Rules(rules)) = missing(&[&half], std::slice::from_ref(&bomb)) else { panic!() };
        assert_eq!(rules.len(), MISSING_MAX);
        // Nearly all of it is held, rule by rule.
        let rest: Vec<Rule> =
            (0..999).map(|n| Rule { verbs: vec![format!("v{n}").into()], ..all.clone() }).collect();
        let rest: Vec<&Rule> = rest.iter().collect();
        assert_eq!(missing(&rest, &[bomb]), Some(Missing::TooMany));
    }
}
