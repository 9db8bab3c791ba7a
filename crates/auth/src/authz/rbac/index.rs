//! Who has which roles where.
//!
//! An index never changes; one that differs in a binding shares all else with it, so that a change costs what it is about and not
//! what there is.

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
#[derive(Clone, Debug, Default)]
pub struct Index {
    users: imbl::HashMap<SmolStr, Places>,
    groups: imbl::HashMap<SmolStr, Places>,
    /// By namespace and name.
    bounds: imbl::HashMap<(SmolStr, SmolStr), Arc<Bound>>,
    bytes: usize,
}

/// What somebody has, by namespace; the first may be that of none.
#[derive(Clone, Debug, Default)]
struct Places(Arc<[(SmolStr, Arc<Held>)]>);

#[derive(Debug)]
struct Held {
    set: Arc<RoleSet>,
    /// For each role of the set, by which binding somebody has it.
    grants: Vec<Grant>,
    /// Further bindings to the same roles.
    again: Vec<Grant>,
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
            index.bytes += bound.bytes();
            index.bounds.insert(bound.key(), bound.clone());
            for (number, subject) in bound.binding.subjects.iter().enumerate() {
                let Some((is_group, name)) = subject_key(subject, &bound.namespace) else { continue };
                let places = found.entry((is_group, name)).or_default();
                let found = places.entry(bound.namespace.clone()).or_default();
                found.add(Grant { bound: bound.clone(), subject: number });
            }
        }
        let mut sets: HashMap<*const RoleSet, usize> = HashMap::new();
        for ((is_group, name), places) in found {
            let mut places: Vec<(SmolStr, Arc<Held>)> = places
                .into_iter()
                .map(|(namespace, found)| (namespace, Arc::new(Held::new(found, &mut intern))))
                .collect();
            places.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            index.bytes += 64 + name.len() + places.iter().map(|(_, held)| held.bytes()).sum::<usize>();
            sets.extend(places.iter().map(|(_, held)| (Arc::as_ptr(&held.set), held.set.bytes())));
            let map = if is_group { &mut index.groups } else { &mut index.users };
            map.insert(name, Places(places.into()));
        }
        index.bytes += sets.values().sum::<usize>();
        index
    }

    /// The binding of a name, as far as it is known here.
    pub fn bound(&self, namespace: &str, name: &str) -> Option<&Arc<Bound>> {
        self.bounds.get(&(SmolStr::new(namespace), SmolStr::new(name)))
    }

    pub fn bounds(&self) -> impl Iterator<Item = &Arc<Bound>> {
        self.bounds.values()
    }

    /// How many bindings it is of.
    pub fn len(&self) -> usize {
        self.bounds.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
    }

    /// The same with another binding in the place of one of the same name, or with none. What it weighs is guessed, and not too low:
    /// what nobody needs any more is not taken off.
    #[must_use]
    pub fn with(
        &self,
        (namespace, name): (&SmolStr, &SmolStr),
        bound: Option<Arc<Bound>>,
        mut intern: impl FnMut(Vec<Arc<Role>>) -> Arc<RoleSet>,
    ) -> Index {
        let mut index = self.clone();
        let key = (namespace.clone(), name.clone());
        let old = index.bounds.remove(&key);
        let subjects = |bound: &Option<Arc<Bound>>| {
            let own = bound.iter().flat_map(|bound| &bound.binding.subjects);
            own.filter_map(|subject| subject_key(subject, namespace)).collect::<Vec<_>>()
        };
        let mut about = subjects(&old);
        about.extend(subjects(&bound));
        about.sort_unstable();
        about.dedup();
        // Each subject of the new one by itself: a binding may have very many.
        let mut numbers: HashMap<(bool, SmolStr), Vec<usize>> = HashMap::new();
        for (number, own) in bound.iter().flat_map(|bound| bound.binding.subjects.iter().enumerate()) {
            if let Some(own) = subject_key(own, namespace) {
                numbers.entry(own).or_default().push(number);
            }
        }
        if let Some(bound) = &bound {
            index.bytes += bound.bytes();
            index.bounds.insert(key, bound.clone());
        }
        for (is_group, subject) in about {
            let map = if is_group { &mut index.groups } else { &mut index.users };
            let places = map.get(&subject).cloned().unwrap_or_default();
            let held = places.exactly(namespace);
            let mut found = Found::default();
            for grant in held.into_iter().flat_map(|held| held.all()) {
                if !old.as_ref().is_some_and(|old| Arc::ptr_eq(old, &grant.bound)) {
                    found.add(grant.clone());
                }
            }
            let own = numbers.remove(&(is_group, subject.clone())).unwrap_or_default();
            for (bound, number) in bound.iter().flat_map(|bound| own.iter().map(move |own| (bound, *own))) {
                found.add(Grant { bound: bound.clone(), subject: number });
            }
            let new = (!found.is_empty()).then(|| Arc::new(Held::new(found, &mut intern)));
            if let Some(new) = &new {
                let is_known = held.is_some_and(|held| Arc::ptr_eq(&held.set, &new.set));
                index.bytes += 64 + subject.len() + new.bytes() + if is_known { 0 } else { new.set.bytes() };
            }
            match places.with(namespace, new) {
                Some(places) => map.insert(subject, places),
                None => map.remove(&subject),
            };
        }
        index
    }

    /// Everything somebody has in the places a request is about.
    fn held<'a, 'b>(
        &'a self,
        user: &'b UserInfo,
        namespace: &'b str,
    ) -> impl Iterator<Item = &'a Arc<Held>> + use<'a, 'b> {
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

impl Bound {
    /// The namespace and the name of the role it is to; no namespace for one of all.
    pub fn role_name(&self) -> (&str, &str) {
        let namespace = match self.binding.kind {
            RoleKind::Role => self.namespace.as_str(),
            RoleKind::ClusterRole => "",
        };
        (namespace, &self.binding.role)
    }

    fn key(&self) -> (SmolStr, SmolStr) {
        (self.namespace.clone(), self.name.clone())
    }

    fn bytes(&self) -> usize {
        // With its place among those that are found by name.
        size_of::<Bound>() + 2 * (self.name.len() + self.namespace.len()) + 96
    }
}

impl Found {
    fn add(&mut self, grant: Grant) {
        match &grant.bound.role {
            Some(role) => self.roles.push((role.clone(), grant)),
            None => self.missing.push(grant),
        }
    }

    fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.missing.is_empty()
    }
}

impl Places {
    /// What is had in a namespace alone, or in none.
    fn exactly(&self, namespace: &str) -> Option<&Arc<Held>> {
        let place = self.0.binary_search_by(|(own, _)| own.as_str().cmp(namespace)).ok()?;
        Some(&self.0[place].1)
    }

    /// The same with something else in a namespace; nothing if that was all.
    fn with(&self, namespace: &SmolStr, held: Option<Arc<Held>>) -> Option<Places> {
        let at = self.0.partition_point(|(own, _)| own < namespace);
        let rest = self.0[at..].iter().skip_while(|(own, _)| own == namespace).cloned();
        let new = held.map(|held| (namespace.clone(), held));
        let all: Arc<[_]> = self.0[..at].iter().cloned().chain(new).chain(rest).collect();
        (!all.is_empty()).then_some(Places(all))
    }

    /// What is had everywhere, and what is had in a namespace.
    fn at(&self, namespace: &str) -> impl Iterator<Item = &Arc<Held>> {
        let everywhere = self.0.first().filter(|(own, _)| own.is_empty());
        let place = self.0.binary_search_by(|(own, _)| own.as_str().cmp(namespace)).ok();
        let here = place.filter(|_| !namespace.is_empty()).map(|place| &self.0[place]);
        everywhere.into_iter().chain(here).map(|(_, held)| held)
    }
}

impl Held {
    fn new(found: Found, intern: &mut impl FnMut(Vec<Arc<Role>>) -> Arc<RoleSet>) -> Held {
        let Found { roles: mut all, missing } = found;
        all.sort_by_key(|(role, _)| role.digest);
        let (mut roles, mut grants, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for (role, grant) in all {
            if roles.last().is_some_and(|last: &Arc<Role>| last.digest == role.digest) {
                again.push(grant);
            } else {
                roles.push(role);
                grants.push(grant);
            }
        }
        Held { set: intern(roles), grants, again, missing }
    }

    /// All bindings somebody has something by.
    fn all(&self) -> impl Iterator<Item = &Grant> {
        self.grants.iter().chain(&self.again).chain(&self.missing)
    }

    /// Without the set, which is shared.
    fn bytes(&self) -> usize {
        let grants = self.grants.len() + self.again.len() + self.missing.len();
        size_of::<Held>() + 56 + grants * size_of::<Grant>()
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

    /// One that was changed binding by binding says what one says that is made of the bindings there are in the end.
    #[test]
    fn changes_come_to_the_same() {
        let role = |verb: &str| {
            let text = format!(r#"{{"verbs":["{verb}"],"apiGroups":[""],"resources":["pods"]}}"#);
            Arc::new(Role::new(vec![rule(&text)]))
        };
        let roles = ["get", "list", "watch", "patch"].map(role);
        let intern = |roles: Vec<Arc<Role>>| Arc::new(RoleSet::new(roles));
        let mut state = 1u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        let mut index = Index::new(&[], intern);
        let mut bounds: HashMap<(SmolStr, SmolStr), Arc<Bound>> = HashMap::new();
        for step in 0..2_000 {
            let namespace = SmolStr::new(["", "a", "b"][random(3)]);
            let name = format_smolstr!("b{}", random(12));
            let key = (namespace.clone(), name.clone());
            let new = (random(4) > 0).then(|| {
                let subjects = (0..random(4)).map(|_| match random(3) {
                    0 => Subject::User(format_smolstr!("u{}", random(3))),
                    1 => Subject::Group(format_smolstr!("g{}", random(3))),
                    _ => Subject::Account { namespace: "".into(), name: format_smolstr!("s{}", random(2)) },
                });
                let binding =
                    Binding { kind: RoleKind::Role, role: "r".into(), subjects: subjects.collect() };
                let role = roles.get(random(5)).cloned();
                Arc::new(Bound { namespace, name, binding: Arc::new(binding), role })
            });
            match &new {
                Some(bound) => bounds.insert(key.clone(), bound.clone()),
                None => bounds.remove(&key),
            };
            index = index.with((&key.0, &key.1), new, intern);
            if step % 50 != 0 {
                continue;
            }
            let all: Vec<Arc<Bound>> = bounds.values().cloned().collect();
            let fresh = Index::new(&all, intern);
            assert_eq!(index.len(), fresh.len());
            assert_eq!((index.users.len(), index.groups.len()), (fresh.users.len(), fresh.groups.len()));
            let names = ["u0", "u1", "u2", "system:serviceaccount:a:s0", "system:serviceaccount:b:s1"];
            for name in names {
                let user = UserInfo::authenticated(name, ["g0".into(), "g2".into()]);
                for namespace in ["", "a", "b", "c"] {
                    let shown = |index: &Index| {
                        let sets = index.sets(&user, namespace).map(|set| RoleSet::digest(set.roles()));
                        let mut missing: Vec<SmolStr> = index.missing(&user, namespace).collect();
                        missing.sort();
                        (sets.collect::<Vec<_>>(), missing)
                    };
                    assert_eq!(shown(&index), shown(&fresh), "step {step}, {name} in {namespace:?}");
                    assert!(index.knows(&user) == fresh.knows(&user));
                }
            }
            assert!(index.bytes() >= size_of::<Index>());
        }
        for key in bounds.keys() {
            index = index.with((&key.0, &key.1), None, intern);
        }
        assert!(index.is_empty() && index.users.is_empty() && index.groups.is_empty());
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
