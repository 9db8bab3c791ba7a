//! Who has which roles where.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use polder_model::{SmolStr, Value, format_smolstr};

use super::rule::Role;
use super::set::RoleSet;
use crate::UserInfo;
use crate::authz::Target;

/// Whoever proved a name, and whoever did not: to be one of them says nothing about who somebody is.
const ANYBODY: [&str; 2] = ["system:authenticated", "system:unauthenticated"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoleKind {
    Role,
    ClusterRole,
}

/// Who a binding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    User(SmolStr),
    Group(SmolStr),
    /// Its namespace is the binding's if it names none.
    Account {
        namespace: SmolStr,
        name: SmolStr,
    },
}

/// What a `RoleBinding` or a `ClusterRoleBinding` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub kind: RoleKind,
    pub role: SmolStr,
    pub subjects: Vec<Subject>,
}

impl Binding {
    /// Nothing if it is about no kind of role that there is.
    pub fn read(binding: &Value) -> Option<Binding> {
        let kind = match binding.str_at(&["roleRef", "kind"])? {
            "Role" => RoleKind::Role,
            "ClusterRole" => RoleKind::ClusterRole,
            _ => return None,
        };
        let subjects = binding.array_at(&["subjects"]).iter().filter_map(|subject| {
            let text = |key: &str| SmolStr::new(subject.str_at(&[key]).unwrap_or_default());
            match subject.str_at(&["kind"])? {
                "User" => Some(Subject::User(text("name"))),
                "Group" => Some(Subject::Group(text("name"))),
                "ServiceAccount" => {
                    Some(Subject::Account { namespace: text("namespace"), name: text("name") })
                }
                _ => None,
            }
        });
        let subjects = subjects.collect();
        Some(Binding { kind, role: SmolStr::new(binding.str_at(&["roleRef", "name"])?), subjects })
    }

    pub fn bytes(&self) -> usize {
        let subject = |subject: &Subject| match subject {
            Subject::User(name) | Subject::Group(name) => name.len(),
            Subject::Account { namespace, name } => namespace.len() + name.len(),
        };
        let subjects: usize = self.subjects.iter().map(|one| size_of::<Subject>() + subject(one)).sum();
        size_of::<Binding>() + self.role.len() + subjects
    }
}

/// A binding and what it binds to.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Empty for one that is about all namespaces, and what is in none.
    pub namespace: SmolStr,
    pub name: SmolStr,
    pub binding: Arc<Binding>,
    /// Nothing if there is no such role: it may come yet.
    pub role: Option<Arc<Role>>,
}

/// Bindings by whom they are about.
#[derive(Debug, Default)]
pub struct Index {
    users: HashMap<SmolStr, Places>,
    groups: HashMap<SmolStr, Places>,
    bytes: usize,
}

/// What somebody has, by namespace; the first may be that of none.
#[derive(Debug, Default)]
struct Places(Vec<(SmolStr, Held)>);

#[derive(Debug)]
struct Held {
    set: Arc<RoleSet>,
    /// For each role of the set, by which binding somebody has it.
    grants: Vec<Grant>,
    /// Bindings to roles that are not there.
    missing: Vec<Grant>,
}

/// That somebody has a role: the binding says so, of one of its subjects.
#[derive(Clone, Debug)]
pub struct Grant {
    bound: Arc<Bound>,
    subject: usize,
}

/// What is found about somebody while an index is made.
#[derive(Default)]
struct Found {
    roles: Vec<(Arc<Role>, Grant)>,
    missing: Vec<Grant>,
}

impl Index {
    /// An index of bindings. Sets of roles come from whoever keeps those that others have already.
    pub fn new(bounds: &[Arc<Bound>], mut intern: impl FnMut(Vec<Arc<Role>>) -> Arc<RoleSet>) -> Index {
        let mut found: HashMap<(bool, SmolStr), HashMap<SmolStr, Found>> = HashMap::new();
        let mut index = Index { bytes: size_of::<Index>(), ..Index::default() };
        for bound in bounds {
            index.bytes += size_of::<Bound>() + bound.name.len() + bound.namespace.len();
            for (number, subject) in bound.binding.subjects.iter().enumerate() {
                let Some((is_group, name)) = subject_key(subject, &bound.namespace) else { continue };
                let places = found.entry((is_group, name)).or_default();
                let found = places.entry(bound.namespace.clone()).or_default();
                let grant = Grant { bound: bound.clone(), subject: number };
                match &bound.role {
                    Some(role) => found.roles.push((role.clone(), grant)),
                    None => found.missing.push(grant),
                }
            }
        }
        let mut sets: HashMap<*const RoleSet, usize> = HashMap::new();
        for ((is_group, name), places) in found {
            let mut places: Vec<(SmolStr, Held)> = places
                .into_iter()
                .map(|(namespace, found)| (namespace, Held::new(found, &mut intern)))
                .collect();
            places.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            places.shrink_to_fit();
            index.bytes += 64 + name.len() + places.iter().map(|(_, held)| held.bytes()).sum::<usize>();
            sets.extend(places.iter().map(|(_, held)| (Arc::as_ptr(&held.set), held.set.bytes())));
            let map = if is_group { &mut index.groups } else { &mut index.users };
            map.insert(name, Places(places));
        }
        index.bytes += sets.values().sum::<usize>();
        index
    }

    /// Everything somebody has in the places a request is about.
    fn held<'a, 'b>(
        &'a self,
        user: &'b UserInfo,
        namespace: &'b str,
    ) -> impl Iterator<Item = &'a Held> + use<'a, 'b> {
        let own = self.users.get(&user.name).into_iter();
        let by_group = user.groups.iter().filter_map(|group| self.groups.get(group));
        own.chain(by_group).flat_map(move |places| places.at(namespace))
    }

    /// By what somebody may do something, if they may.
    pub fn allows(&self, user: &UserInfo, verb: &str, target: &Target<'_>) -> Option<&Grant> {
        self.held(user, target.namespace())
            .find_map(|held| held.set.allows(verb, target).map(|role| &held.grants[role]))
    }

    /// What somebody would have in a namespace if it were there.
    pub fn missing<'a>(&'a self, user: &'a UserInfo, namespace: &'a str) -> impl Iterator<Item = SmolStr> {
        self.held(user, namespace).flat_map(|held| &held.missing).map(|grant| missing(&grant.bound.binding))
    }

    /// What somebody has in a namespace; a set may come more than once.
    pub fn sets<'a>(
        &'a self,
        user: &'a UserInfo,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<RoleSet>> {
        self.held(user, namespace).map(|held| &held.set)
    }

    /// Whether a binding is about somebody, and not just about anybody.
    pub fn knows(&self, user: &UserInfo) -> bool {
        let by_group =
            |group: &SmolStr| !ANYBODY.contains(&group.as_str()) && self.groups.contains_key(group);
        self.users.contains_key(&user.name) || user.groups.iter().any(by_group)
    }

    /// What it takes with its sets, whoever else has them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Places {
    /// What is had everywhere, and what is had in a namespace.
    fn at(&self, namespace: &str) -> impl Iterator<Item = &Held> {
        let everywhere = self.0.first().filter(|(own, _)| own.is_empty());
        let place = self.0.binary_search_by(|(own, _)| own.as_str().cmp(namespace)).ok();
        let here = place.filter(|_| !namespace.is_empty()).map(|place| &self.0[place]);
        everywhere.into_iter().chain(here).map(|(_, held)| held)
    }
}

impl Held {
    fn new(found: Found, intern: &mut impl FnMut(Vec<Arc<Role>>) -> Arc<RoleSet>) -> Held {
        let Found { mut roles, missing } = found;
        roles.sort_by_key(|(role, _)| role.digest);
        roles.dedup_by(|(one, _), (other, _)| one.digest == other.digest);
        let (roles, grants): (Vec<_>, Vec<_>) = roles.into_iter().unzip();
        Held { set: intern(roles), grants, missing }
    }

    /// Without the set, which is shared.
    fn bytes(&self) -> usize {
        size_of::<Held>() + 32 + (self.grants.len() + self.missing.len()) * size_of::<Grant>()
    }
}

/// Whether a subject is a group, and its name among users or groups.
fn subject_key(subject: &Subject, namespace: &SmolStr) -> Option<(bool, SmolStr)> {
    match subject {
        Subject::User(name) => Some((false, name.clone())),
        Subject::Group(name) => Some((true, name.clone())),
        Subject::Account { namespace: own, name } => {
            let namespace = if own.is_empty() { namespace } else { own };
            let user = format_smolstr!("system:serviceaccount:{namespace}:{name}");
            (!namespace.is_empty()).then_some((false, user))
        }
    }
}

/// Why somebody may, in upstream's words.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound { namespace, name, binding, .. } = &*self.bound;
        match namespace.as_str() {
            "" => write!(f, "RBAC: allowed by ClusterRoleBinding {:?}", clipped(name))?,
            namespace => write!(f, "RBAC: allowed by RoleBinding \"{}/{namespace}\"", clipped(name))?,
        }
        write!(f, " of {:?} {:?} to ", binding.kind, clipped(&binding.role))?;
        match &binding.subjects[self.subject] {
            Subject::User(name) => write!(f, "User {:?}", clipped(name)),
            Subject::Group(name) => write!(f, "Group {:?}", clipped(name)),
            Subject::Account { namespace: own, name } => {
                let namespace = if own.is_empty() { namespace } else { own };
                write!(f, "ServiceAccount \"{}/{}\"", clipped(name), clipped(namespace))
            }
        }
    }
}

/// The beginning of a text that may be of any length, for one that is to be read.
pub(super) fn clipped(text: &str) -> &str {
    let end = text.char_indices().nth(TEXT_LEN_MAX).map_or(text.len(), |(end, _)| end);
    &text[..end]
}

const TEXT_LEN_MAX: usize = 253;

fn missing(binding: &Binding) -> SmolStr {
    let kind = match binding.kind {
        RoleKind::Role => "role",
        RoleKind::ClusterRole => "clusterrole",
    };
    format_smolstr!("{kind}.rbac.authorization.k8s.io {:?} not found", clipped(&binding.role))
}

#[cfg(test)]
mod tests {
    use super::super::rule::tests::{request, rule};
    use super::*;

    fn index() -> Index {
        let pods = |verb: &str| {
            let text = format!(r#"{{"verbs":["{verb}"],"apiGroups":[""],"resources":["pods"]}}"#);
            Some(Arc::new(Role::new(vec![rule(&text)])))
        };
        let bound = |namespace: &str, name: &str, kind, role: Option<Arc<Role>>, subject: Subject| {
            let binding = Arc::new(Binding { kind, role: "r".into(), subjects: vec![subject] });
            Arc::new(Bound { namespace: namespace.into(), name: name.into(), binding, role })
        };
        let (role, cluster) = (RoleKind::Role, RoleKind::ClusterRole);
        let user = |name: &str| Subject::User(name.into());
        let group = |name: &str| Subject::Group(name.into());
        let account =
            |namespace: &str, name: &str| Subject::Account { namespace: namespace.into(), name: name.into() };
        let bounds = [
            bound("", "everywhere", cluster, pods("get"), user("ann")),
            bound("a", "here", role, pods("list"), user("ann")),
            bound("a", "again", cluster, pods("list"), user("ann")),
            bound("b", "of-group", role, pods("watch"), group("dikes")),
            bound("", "of-all", cluster, pods("get"), group("system:authenticated")),
            bound("a", "of-account", role, pods("patch"), account("", "bot")),
            bound("b", "of-other", role, pods("patch"), account("a", "bot")),
            bound("", "of-nobody", cluster, pods("*"), account("", "bot")),
            bound("", "lost", cluster, None, user("bob")),
            bound("a", "lost", role, None, user("bob")),
        ];
        Index::new(&bounds, |roles| Arc::new(RoleSet::new(roles)))
    }

    fn decide(user: &UserInfo, namespace: &str, asked: &str) -> String {
        let index = index();
        request(asked, |verb, target| {
            let target = match target {
                Target::Resource { resource, version, subresource, name, .. } => {
                    Target::Resource { resource, version, subresource, namespace, name }
                }
                path @ Target::Path(_) => path,
            };
            match index.allows(user, verb, &target) {
                Some(reason) => reason.to_string(),
                None => {
                    let missing: Vec<SmolStr> = index.missing(user, namespace).collect();
                    format!("no: {}", missing.join(", "))
                }
            }
        })
    }

    #[test]
    fn who_may_do_what_where() {
        let ann = UserInfo::authenticated("ann", [SmolStr::new("dikes")]);
        let bot = UserInfo::authenticated("system:serviceaccount:a:bot", []);
        let bob = UserInfo::authenticated("bob", []);
        let everywhere =
            r#"RBAC: allowed by ClusterRoleBinding "everywhere" of ClusterRole "r" to User "ann""#;
        let account = r#"RBAC: allowed by RoleBinding "of-account/a" of Role "r" to ServiceAccount "bot/a""#;
        let rows = [
            (&ann, "", "get '' pods", everywhere),
            (&ann, "b", "get '' pods", everywhere),
            (&ann, "a", "list '' pods", r#"RBAC: allowed by RoleBinding "here/a" of Role "r" to User "ann""#),
            (&ann, "", "list '' pods", "no: "),
            (&ann, "b", "list '' pods", "no: "),
            (
                &ann,
                "b",
                "watch '' pods",
                r#"RBAC: allowed by RoleBinding "of-group/b" of Role "r" to Group "dikes""#,
            ),
            (&ann, "a", "watch '' pods", "no: "),
            (&bot, "a", "patch '' pods", account),
            (
                &bot,
                "b",
                "patch '' pods",
                r#"RBAC: allowed by RoleBinding "of-other/b" of Role "r" to ServiceAccount "bot/a""#,
            ),
            (&bot, "", "patch '' pods", "no: "),
            (&bob, "", "patch '' pods", r#"no: clusterrole.rbac.authorization.k8s.io "r" not found"#),
            (
                &bob,
                "a",
                "patch '' pods",
                r#"no: clusterrole.rbac.authorization.k8s.io "r" not found, role.rbac.authorization.k8s.io "r" not found"#,
            ),
        ];
        for (user, namespace, asked, expected) in rows {
            assert_eq!(decide(user, namespace, asked), expected, "{} {namespace} {asked}", user.name);
        }
    }

    #[test]
    fn to_be_anybody_is_to_be_unknown() {
        let index = index();
        let known = |name: &str, groups: &[&'static str]| {
            index.knows(&UserInfo::authenticated(name, groups.iter().map(|group| SmolStr::new_static(group))))
        };
        assert!(known("ann", &[]) && known("x", &["dikes"]));
        assert!(!known("x", &[]) && !known("x", &["others"]));
        assert!(!index.knows(&UserInfo::anonymous()));
    }

    #[test]
    fn rules_are_those_of_everywhere_and_of_the_place() {
        let (index, ann) = (index(), UserInfo::authenticated("ann", []));
        let verbs = |namespace: &str| -> Vec<SmolStr> {
            let roles = index.sets(&ann, namespace).flat_map(|set| set.roles());
            let mut verbs: Vec<_> =
                roles.flat_map(|role| &role.rules).flat_map(|rule| rule.verbs.clone()).collect();
            verbs.sort();
            verbs
        };
        assert_eq!(verbs(""), ["get", "get"]);
        assert_eq!(verbs("a"), ["get", "get", "list"]);
    }

    /// A name of any length, and any number of subjects, take what their text takes.
    #[test]
    fn long_names_are_not_repeated() {
        let subjects = (0..1_000).map(|n| Subject::User(format_smolstr!("user-{n}"))).collect();
        let binding = Binding { kind: RoleKind::ClusterRole, role: "r".repeat(1 << 20).into(), subjects };
        let bound = Bound { namespace: "".into(), name: "b".into(), binding: Arc::new(binding), role: None };
        let index = Index::new(&[Arc::new(bound)], |roles| Arc::new(RoleSet::new(roles)));
        assert!(index.bytes() < 1_000 * 1_000, "{}", index.bytes());
        let user = UserInfo::authenticated("user-7", []);
        let missing: Vec<SmolStr> = index.missing(&user, "").collect();
        assert!(missing.len() == 1 && missing[0].len() < 400, "{missing:?}");
    }
}
