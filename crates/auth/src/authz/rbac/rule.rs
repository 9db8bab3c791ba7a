//! One rule of a role, and what it is about.

use polder_model::{SmolStr, Value};
use sha2::{Digest as _, Sha256};

pub(super) const ALL: &str = "*";

/// Verbs on resources, or on paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Vec<SmolStr>,
    pub groups: Vec<SmolStr>,
    /// As they are written: `pods`, `pods/log`, `*/log`, `*`.
    pub resources: Vec<SmolStr>,
    /// The only objects it is about; all without any.
    pub names: Vec<SmolStr>,
    pub urls: Vec<SmolStr>,
}

impl Rule {
    pub fn read(rule: &Value) -> Rule {
        let texts = |key: &str| -> Vec<SmolStr> {
            rule.array_at(&[key]).iter().filter_map(Value::as_str).map(SmolStr::new).collect()
        };
        Rule {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    pub(super) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == ALL || own == verb)
    }

    pub(super) fn has_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == ALL || own == group)
    }

    pub fn bytes(&self) -> usize {
        let texts =
            [&self.verbs, &self.groups, &self.resources, &self.names, &self.urls].into_iter().flatten();
        size_of::<Rule>() + texts.map(|text| size_of::<SmolStr>() + text.len()).sum::<usize>()
    }

    fn digest(&self, hash: &mut Sha256) {
        for texts in [&self.verbs, &self.groups, &self.resources, &self.names, &self.urls] {
            hash.update(texts.len().to_le_bytes());
            for text in texts {
                hash.update(text.len().to_le_bytes());
                hash.update(text.as_bytes());
            }
        }
    }
}

/// Whether what a rule calls a path is this one: with a star at its end it is all that begins so.
pub(super) fn url_covers(own: &str, path: &str) -> bool {
    own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}

/// The rules of a role, whatever it is called.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Role {
    pub rules: Vec<Rule>,
    /// The same for all roles that say the same.
    pub digest: [u8; 32],
}

impl Role {
    /// Reads a `Role` or a `ClusterRole`.
    pub fn read(role: &Value) -> Role {
        Role::new(role.array_at(&["rules"]).iter().map(Rule::read).collect())
    }

    pub fn new(rules: Vec<Rule>) -> Role {
        let mut hash = Sha256::new();
        rules.iter().for_each(|rule| rule.digest(&mut hash));
        Role { rules, digest: hash.finalize().into() }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Role>() + self.rules.iter().map(Rule::bytes).sum::<usize>()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use polder_model::GroupResource;

    use super::*;
    use crate::authz::Target;

    /// What a rule says, read as it stands: what everything quicker must agree with.
    pub(crate) fn allows(rule: &Rule, verb: &str, target: &Target<'_>) -> bool {
        match target {
            Target::Path(path) => rule.has_verb(verb) && rule.urls.iter().any(|url| url_covers(url, path)),
            Target::Resource { resource, subresource, name, .. } => {
                rule.has_verb(verb)
                    && rule.has_group(&resource.group)
                    && rule.resources.iter().any(|own| is_about(own, &resource.resource, subresource))
                    && (rule.names.is_empty() || rule.names.iter().any(|own| own == name))
            }
        }
    }

    /// Whether what a rule calls a resource is this one. `*` is everything, and `*/log` the logs of everything.
    fn is_about(own: &str, resource: &str, subresource: &str) -> bool {
        if own == ALL {
            return true;
        }
        match own.split_once('/') {
            None => subresource.is_empty() && own == resource,
            Some((ALL, part)) => !subresource.is_empty() && part == subresource,
            Some((name, part)) => !subresource.is_empty() && name == resource && part == subresource,
        }
    }

    pub(crate) fn rule(text: &str) -> Rule {
        Rule::read(&Value::parse(text.as_bytes()).unwrap())
    }

    /// A request written as `verb group resource[/subresource] [name]`, or `verb /path`.
    pub(crate) fn request<T>(text: &str, ask: impl FnOnce(&str, Target<'_>) -> T) -> T {
        match text.split(' ').collect::<Vec<_>>()[..] {
            [verb, path] => ask(verb, Target::Path(path)),
            [verb, group, resource, ref name @ ..] => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let resource = GroupResource::new(if group == "''" { "" } else { group }, resource);
                let name = name.first().copied().unwrap_or_default();
                let (version, namespace) = ("v1", "");
                ask(verb, Target::Resource { resource: &resource, version, subresource, namespace, name })
            }
            _ => panic!("{text}"),
        }
    }

    /// Rules, what they allow and what they do not.
    pub(crate) const ROWS: &[(&str, &[&str], &[&str])] = &[
        (
            r#"{"verbs":["get","list"],"apiGroups":["","apps"],"resources":["pods","pods/log"]}"#,
            &["get '' pods", "list '' pods x", "get apps pods/log x"],
            &["watch '' pods", "get batch pods", "get '' pods/exec", "get '' podss", "get /pods"],
        ),
        (
            r#"{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}"#,
            &["get '' pods", "bind x y/z n"],
            &["get /healthz"],
        ),
        (
            r#"{"verbs":["update"],"apiGroups":["*"],"resources":["*/scale"]}"#,
            &["update apps deployments/scale x"],
            &["update apps deployments", "update apps deployments/status", "get apps deployments/scale"],
        ),
        (
            r#"{"verbs":["get","create"],"apiGroups":[""],"resources":["secrets"],"resourceNames":["a","b"]}"#,
            &["get '' secrets a", "get '' secrets b"],
            &["get '' secrets c", "get '' secrets", "create '' secrets"],
        ),
        (
            r#"{"verbs":["get"],"nonResourceURLs":["/logs/*","/version"]}"#,
            &["get /logs/", "get /logs/a/b", "get /version"],
            &["post /version", "get /logs", "get /versions", "get '' pods"],
        ),
        (r#"{"verbs":["get"],"nonResourceURLs":["*"]}"#, &["get /", "get /x"], &["get '' pods"]),
        (
            r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#,
            &["get '' pods"],
            &["get '' pods/log"],
        ),
        (r#"{}"#, &[], &["get '' pods", "get /"]),
    ];

    #[test]
    fn what_rules_allow() {
        for (text, yes, no) in ROWS {
            let rule = rule(text);
            for asked in *yes {
                assert!(request(asked, |verb, target| allows(&rule, verb, &target)), "{text} {asked}");
            }
            for asked in *no {
                assert!(!request(asked, |verb, target| allows(&rule, verb, &target)), "{text} {asked}");
            }
        }
    }

    #[test]
    fn roles_that_say_the_same_are_the_same() {
        let one = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#;
        let other = r#"{"verbs":["get"],"apiGroups":["","pods"]}"#;
        let digest = |texts: &[&str]| Role::new(texts.iter().map(|text| rule(text)).collect()).digest;
        assert_eq!(digest(&[one]), digest(&[one]));
        assert_ne!(digest(&[one]), digest(&[other]));
        assert_ne!(digest(&[one]), digest(&[one, one]));
    }
}
