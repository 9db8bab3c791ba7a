//! A controller: which changes it wants to know of, what each of them makes it look at, and what it does then.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use polder_model::{GroupResource, GroupVersionResource, PlaneId, SmolStr, Value};

use crate::client::Answer;
use crate::in_plane::InPlane;

/// One change of one object, or an object found when a plane was looked at anew: then there is no `old`.
pub struct Change {
    /// The place of the change in the feed.
    pub revision: u64,
    /// The same, as objects of the plane tell it.
    pub resource_version: u64,
    pub plane: PlaneId,
    /// The plane has objects that no change tells of: it is a fork, or was forked.
    pub is_copy: bool,
    pub resource: GroupResource,
    pub namespace: SmolStr,
    pub name: SmolStr,
    /// The object before; `None` when it was created.
    pub old: Option<Snapshot>,
    /// The object after; `None` when it was deleted.
    pub new: Option<Snapshot>,
}

/// A version of an object as it is stored. Parsed when somebody asks, once for all who do. Lacks managed fields, and may lack
/// `kind` and `apiVersion`.
pub struct Snapshot {
    /// Nothing when it came parsed.
    stored: Option<Box<dyn Stored>>,
    value: OnceLock<Arc<Value>>,
}

/// The stored form of an object.
pub trait Stored: Send + Sync {
    /// Whether its JSON has this text in it.
    fn contains(&self, text: &str) -> bool;
    /// Its JSON, whose members are in one order.
    fn json(&self) -> &[u8];
    fn parse(&self) -> Arc<Value>;
}

impl Snapshot {
    pub fn new(stored: impl Stored + 'static) -> Snapshot {
        Snapshot { stored: Some(Box::new(stored)), value: OnceLock::new() }
    }

    /// Whether a text may be in it: a cheap look before it is parsed.
    pub fn may_contain(&self, text: &str) -> bool {
        self.stored.as_ref().is_none_or(|stored| stored.contains(text))
    }

    /// It as it is stored: for whoever need not read all of it. Nothing when it came parsed.
    pub fn json(&self) -> Option<&[u8]> {
        self.stored.as_ref().map(|stored| stored.json())
    }

    pub fn value(&self) -> &Arc<Value> {
        let parse = || self.stored.as_ref().map(|stored| stored.parse()).unwrap_or_default();
        self.value.get_or_init(parse)
    }
}

impl From<Arc<Value>> for Snapshot {
    fn from(value: Arc<Value>) -> Snapshot {
        Snapshot { stored: None, value: OnceLock::from(value) }
    }
}

impl Change {
    pub fn is(&self, resource: &GroupVersionResource) -> bool {
        self.resource.group == resource.group && self.resource.resource == resource.resource
    }

    /// The object as it is now, or as it was last.
    pub fn last(&self) -> Option<&Snapshot> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// `namespace/name`, as most controllers call what they look after.
    pub fn key(&self) -> SmolStr {
        key(&self.namespace, &self.name)
    }

    /// The names of those who control this object or did before this change: owners of a kind, as
    /// `namespace/name` in the namespace of the object.
    pub fn controllers(&self, group: &str, kind: &str) -> Vec<SmolStr> {
        let mut keys = Vec::new();
        for snapshot in [&self.old, &self.new].into_iter().flatten() {
            let owners = snapshot.value().array_at(&["metadata", "ownerReferences"]).iter();
            for owner in owners.filter(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
            {
                let own_group = owner.str_at(&["apiVersion"]).unwrap_or_default();
                let own_group = own_group.split_once('/').map_or("", |(group, _)| group);
                let name = owner.str_at(&["name"]).unwrap_or_default();
                let key = key(&self.namespace, name);
                if own_group == group && owner.str_at(&["kind"]) == Some(kind) && !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        keys
    }
}

/// `namespace/name`.
pub fn key(namespace: &str, name: &str) -> SmolStr {
    polder_model::format_smolstr!("{namespace}/{name}")
}

/// Which changes a controller is told.
#[derive(Clone, Debug)]
pub enum Interest {
    /// Those of these resources.
    In(Vec<GroupResource>),
    /// All.
    Everything,
}

impl Interest {
    pub fn of(resources: &[&GroupVersionResource]) -> Interest {
        Interest::In(resources.iter().map(|resource| resource.group_resource()).collect())
    }
}

/// Takes the keys that a change makes a controller look at.
pub type Wake<'a> = &'a mut dyn FnMut(SmolStr);

/// What is to be done with a key next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something wakes it.
    Done,
    /// There is more to do, when others have had their turn.
    Again,
    /// Nothing can be done now; each time in a row the wait is longer.
    Later,
    /// The same where it is up to the plane's users whether there ever will be: in the end the wait is long.
    Seldom,
    /// It is due after this time, whatever happens.
    After(Duration),
    /// What is left takes more than its plane has room for now ([`slice::may_make`](crate::slice::may_make)).
    Aside,
}

/// One controller for all planes. Keys are its own: `namespace/name` in most.
pub trait Controller: Send + Sync + 'static {
    /// As upstream names it, for log lines and metrics.
    fn name(&self) -> &'static str;

    fn interest(&self) -> Interest;

    /// Whether it tells planes of the server they are on. Then it is shown all planes when that changes, and new ones.
    fn tells(&self) -> bool {
        false
    }

    /// What a change makes this controller look at. Called for every change it is interested in, in the order of the
    /// feed, and so it must be quick and must not wait. Also called for every object there is when a plane is looked
    /// at anew: after a restart, a fork, an overflow.
    fn observe(&self, change: &Change, wake: Wake<'_>);

    /// Looks at the world and makes it right. May run at any time, twice too. Keys of one plane may be worked on at
    /// the same time, one key never. An error is logged and tried again later; code 404 means that there is nothing to do.
    fn reconcile<'a>(&'a self, plane: &'a InPlane, key: &'a str) -> Answer<'a, Next>;

    /// A plane is looked at anew: keys that stand for no object of its own.
    fn look(&self, _plane: PlaneId, _wake: Wake<'_>) {}

    /// Some plane has been deleted: what is remembered of planes that are gone can be forgotten.
    fn forget(&self, _is_gone: &dyn Fn(PlaneId) -> bool) {}
}
