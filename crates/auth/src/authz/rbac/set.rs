//! The roles somebody has in one place, made quick to ask: a question looks at the rules about one resource, and of those that
//! are about objects by name at those about one object.
//!
//! What a set takes is in proportion to the text of its roles.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polder_model::{SmolStr, format_smolstr};
use sha2::{Digest as _, Sha256};

use super::rule::{ALL, Role, Rule, url_covers};
use crate::authz::Target;

/// Rules about more names of more resources are not found by name: there would be one entry for each pair.
const PAIRS_MAX: usize = 16;

/// Several roles. The same roles make the same set, for whomever.
#[derive(Debug, Default)]
pub struct RoleSet {
    roles: Vec<Arc<Role>>,
    /// Rules by what they call the resource.
    resources: HashMap<SmolStr, About>,
    /// Rules about paths.
    urls: Vec<At>,
    /// The names of rules that have many.
    names: HashMap<At, HashSet<SmolStr>>,
    bytes: usize,
}

/// The rules about one resource.
#[derive(Debug, Default)]
struct About {
    /// Those about all objects of it, or about many.
    all: Vec<At>,
    /// Those about some of them, by name.
    named: HashMap<SmolStr, Vec<At>>,
}

/// A rule of a role of the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct At {
    role: usize,
    rule: usize,
}

/// One thing a rule allows, in the words of rules.
#[derive(Clone, Copy, Debug)]
pub enum Permission<'a> {
    Resource {
        verb: &'a SmolStr,
        group: &'a SmolStr,
        /// With a part of it, if it is about one.
        resource: &'a SmolStr,
        /// The only object; all without one.
        name: Option<&'a SmolStr>,
    },
    Path {
        verb: &'a SmolStr,
        url: &'a SmolStr,
    },
}

impl RoleSet {
    /// What sets of the same roles have in common. Roles are in the order of their digests, each once.
    pub fn digest(roles: &[Arc<Role>]) -> [u8; 32] {
        let mut hash = Sha256::new();
        roles.iter().for_each(|role| hash.update(role.digest));
        hash.finalize().into()
    }

    pub fn new(roles: Vec<Arc<Role>>) -> RoleSet {
        let mut set = RoleSet { roles, bytes: size_of::<RoleSet>(), ..RoleSet::default() };
        // A rule that says of a resource what another says already is not asked.
        let mut seen: HashSet<(&str, &[SmolStr], &[SmolStr])> = HashSet::new();
        for (number, role) in set.roles.iter().enumerate() {
            // Roles are shared by sets; who has the only one has its weight too.
            set.bytes += role.bytes();
            for (index, rule) in role.rules.iter().enumerate() {
                let at = At { role: number, rule: index };
                if !rule.urls.is_empty() {
                    set.urls.push(at);
                }
                let by_name = rule.names.len().saturating_mul(rule.resources.len()) <= PAIRS_MAX;
                if !by_name {
                    set.names.insert(at, rule.names.iter().cloned().collect());
                    set.bytes += rule.names.len() * 48;
                }
                for resource in &rule.resources {
                    let about = set.resources.entry(resource.clone()).or_default();
                    if rule.names.is_empty() {
                        if seen.insert((resource, &rule.verbs, &rule.groups)) {
                            about.all.push(at);
                        }
                    } else if by_name {
                        for name in &rule.names {
                            about.named.entry(name.clone()).or_default().push(at);
                        }
                    } else {
                        about.all.push(at);
                    }
                }
                set.bytes += rule.resources.len() * 160 + rule.urls.len() * 32;
                set.bytes += if by_name { rule.names.len() * rule.resources.len() * 96 } else { 0 };
            }
        }
        set
    }

    fn rule(&self, at: At) -> &Rule {
        &self.roles[at.role].rules[at.rule]
    }

    /// The number of a role that allows something.
    pub fn allows(&self, verb: &str, target: &Target<'_>) -> Option<usize> {
        let mut looked = 0;
        let (resource, subresource, name) = match target {
            Target::Path(path) => return self.find_url(verb, path, &mut looked),
            Target::Resource { resource, subresource, name, .. } => (resource, *subresource, *name),
        };
        let mut ask = |about: &str| self.find(about, verb, &resource.group, Some(name), &mut looked);
        if subresource.is_empty() {
            return ask(&resource.resource).or_else(|| ask(ALL));
        }
        ask(&format_smolstr!("{}/{subresource}", resource.resource))
            .or_else(|| ask(&format_smolstr!("*/{subresource}")))
            .or_else(|| ask(ALL))
    }

    /// Whether one rule allows all that another does, and how much was looked at to say so.
    pub fn covers(&self, permission: &Permission<'_>, looked: &mut usize) -> bool {
        let (verb, group, resource, name) = match permission {
            Permission::Path { verb, url } => return self.find_url(verb, url, looked).is_some(),
            Permission::Resource { verb, group, resource, name } => (verb, group, resource, name),
        };
        let name = name.map(SmolStr::as_str);
        let mut ask = |about: &str| self.find(about, verb, group, name, looked).is_some();
        let part = resource.split_once('/').map(|(_, part)| format_smolstr!("*/{part}"));
        ask(resource) || part.is_some_and(|part| ask(&part)) || ask(ALL)
    }

    /// A rule that calls the resource so. Without a name it must be about all objects.
    fn find(
        &self,
        about: &str,
        verb: &str,
        group: &str,
        name: Option<&str>,
        looked: &mut usize,
    ) -> Option<usize> {
        *looked += 1;
        let about = self.resources.get(about)?;
        let named = name.and_then(|name| about.named.get(name)).map(Vec::as_slice).unwrap_or_default();
        let fits = |at: &&At| {
            let rule = self.rule(**at);
            *looked += rule.verbs.len() + rule.groups.len();
            let is_named = || {
                rule.names.is_empty()
                    || name.is_some_and(|name| self.names.get(at).is_none_or(|names| names.contains(name)))
            };
            rule.has_verb(verb) && rule.has_group(group) && is_named()
        };
        about.all.iter().chain(named).find(fits).map(|at| at.role)
    }

    fn find_url(&self, verb: &str, path: &str, looked: &mut usize) -> Option<usize> {
        let fits = |at: &&At| {
            let rule = self.rule(**at);
            *looked += rule.verbs.len() + rule.urls.len();
            rule.has_verb(verb) && rule.urls.iter().any(|url| url_covers(url, path))
        };
        self.urls.iter().find(fits).map(|at| at.role)
    }

    pub fn roles(&self) -> &[Arc<Role>] {
        &self.roles
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::{ROWS, allows, request, rule};
    use super::*;

    /// Every rule alone, beside all others, and twice: the set must say what the rules say.
    #[test]
    fn a_set_allows_what_its_rules_do() {
        let roles: Vec<Arc<Role>> =
            ROWS.iter().map(|(text, ..)| Arc::new(Role::new(vec![rule(text)]))).collect();
        let twice = |index: usize| vec![roles[index].clone(), roles[index].clone()];
        let sets = (0..roles.len()).map(twice).chain([roles.clone()]);
        let asked = ROWS.iter().flat_map(|(_, yes, no)| yes.iter().chain(*no));
        let asked: Vec<&&str> = asked.collect();
        for set in sets.map(RoleSet::new) {
            for asked in &asked {
                request(asked, |verb, target| {
                    let by = |role: &Arc<Role>| role.rules.iter().any(|rule| allows(rule, verb, &target));
                    let found = set.allows(verb, &target);
                    assert_eq!(found.is_some(), set.roles.iter().any(by), "{asked} of {:?}", set.roles);
                    assert!(found.is_none_or(|role| by(&set.roles[role])), "{asked}");
                });
            }
        }
    }

    /// Many names of many resources are no more than their sum.
    #[test]
    fn pairs_are_not_stored() {
        let many = |prefix: &str| (0..2_000).map(|n| format_smolstr!("{prefix}{n}")).collect::<Vec<_>>();
        let (verbs, groups) = (vec![ALL.into()], vec![ALL.into()]);
        let rule = Rule { verbs, groups, resources: many("r"), names: many("n"), urls: Vec::new() };
        let set = RoleSet::new(vec![Arc::new(Role::new(vec![rule]))]);
        let entries = set.resources.values().map(|about| about.all.len() + about.named.len()).sum::<usize>();
        assert_eq!(entries, 2_000);
        for (asked, allowed) in [("get '' r7 n9", true), ("get '' r7 x", false), ("get '' r7", false)] {
            assert_eq!(
                request(asked, |verb, target| set.allows(verb, &target)).is_some(),
                allowed,
                "{asked}"
            );
        }
    }
}
