//! The roles somebody has in one place, made quick to ask: a question costs a few lookups however many rules there are.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polder_model::{SmolStr, format_smolstr};
use sha2::{Digest as _, Sha256};

use super::rule::{ALL, Role, Rule, url_covers};
use crate::authz::Target;

/// Several roles. The same roles make the same set, for whomever.
#[derive(Debug, Default)]
pub struct RoleSet {
    roles: Vec<Arc<Role>>,
    /// Rules by what they call the resource.
    resources: HashMap<SmolStr, About>,
    /// Rules about paths.
    urls: Vec<At>,
    bytes: usize,
}

/// The rules about one resource.
#[derive(Debug, Default)]
struct About {
    /// Those about all objects of it.
    all: Vec<At>,
    /// Those about some of them, by name.
    named: HashMap<SmolStr, Vec<At>>,
}

/// A rule of a role of the set.
#[derive(Clone, Copy, Debug)]
struct At {
    role: usize,
    rule: usize,
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
                for resource in &rule.resources {
                    let about = set.resources.entry(resource.clone()).or_default();
                    if rule.names.is_empty() {
                        if seen.insert((resource, &rule.verbs, &rule.groups)) {
                            about.all.push(at);
                        }
                        continue;
                    }
                    for name in &rule.names {
                        about.named.entry(name.clone()).or_default().push(at);
                        set.bytes += 96 + name.len();
                    }
                }
                set.bytes += (rule.resources.len() + rule.urls.len()) * 128;
            }
        }
        set
    }

    fn rule(&self, at: At) -> &Rule {
        &self.roles[at.role].rules[at.rule]
    }

    /// The number of a role that allows something.
    pub fn allows(&self, verb: &str, target: &Target<'_>) -> Option<usize> {
        let (resource, subresource, name) = match target {
            Target::Path(path) => {
                let fits = |at: &&At| {
                    let rule = self.rule(**at);
                    rule.has_verb(verb) && rule.urls.iter().any(|url| url_covers(url, path))
                };
                return self.urls.iter().find(fits).map(|at| at.role);
            }
            Target::Resource { resource, subresource, name, .. } => (resource, *subresource, *name),
        };
        let ask = |about: &str| -> Option<usize> {
            let about = self.resources.get(about)?;
            let named = about.named.get(name).map(Vec::as_slice).unwrap_or_default();
            let fits = |at: &&At| {
                let rule = self.rule(**at);
                rule.has_verb(verb) && rule.has_group(&resource.group)
            };
            about.all.iter().chain(named).find(fits).map(|at| at.role)
        };
        if subresource.is_empty() {
            return ask(&resource.resource).or_else(|| ask(ALL));
        }
        ask(&format_smolstr!("{}/{subresource}", resource.resource))
            .or_else(|| ask(&format_smolstr!("*/{subresource}")))
            .or_else(|| ask(ALL))
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
    use super::super::rule::tests::{ROWS, request, rule};
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
                    let by = |role: &Arc<Role>| role.rules.iter().any(|rule| rule.allows(verb, &target));
                    let found = set.allows(verb, &target);
                    assert_eq!(found.is_some(), set.roles.iter().any(by), "{asked} of {:?}", set.roles);
                    assert!(found.is_none_or(|role| by(&set.roles[role])), "{asked}");
                });
            }
        }
    }
}
