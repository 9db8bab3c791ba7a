//! Who are you ([`authn`]), and may you ([`authz`]).
//!
//! Identities may be confined to one plane: such a user does not exist anywhere else, whatever its name or groups.
//! The check is made once, before every authorizer, in [`authz::Chain`].

pub mod authn;
pub mod authority;
pub mod authz;
mod document;
mod review;

pub use document::ConfigurationError;
pub use review::{ReviewAnswer, ReviewClient, ReviewFailure};

use std::collections::HashSet;

use polder_model::{PlaneId, SmolStr, format_smolstr};

/// The group whose members may do everything in the planes they can reach.
pub const MASTERS: &str = "system:masters";

/// What comes before the names of those who belong to no plane, and of their groups, where a plane sees them.
pub const GUEST_PREFIX: &str = "provider:";

/// Groups without repeats: what is done for each of them is done once.
pub fn each_once(groups: impl IntoIterator<Item = SmolStr>) -> Vec<SmolStr> {
    let mut seen = HashSet::new();
    groups.into_iter().filter(|group| seen.insert(group.clone())).collect()
}

/// Somebody who proved who they are, or nobody in particular.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    pub name: SmolStr,
    pub uid: SmolStr,
    pub groups: Vec<SmolStr>,
    pub extra: Vec<(SmolStr, Vec<SmolStr>)>,
    /// The only plane this identity exists in; `None` for the provider's own people.
    pub home: Option<PlaneId>,
}

impl UserInfo {
    /// A user with a proven name: member of `system:authenticated` beside its own groups.
    pub fn authenticated(name: impl Into<SmolStr>, groups: impl IntoIterator<Item = SmolStr>) -> UserInfo {
        let mut groups = each_once(groups);
        if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push(SmolStr::new_static("system:authenticated"));
        }
        UserInfo { name: name.into(), uid: SmolStr::default(), groups, extra: Vec::new(), home: None }
    }

    pub fn anonymous() -> UserInfo {
        UserInfo {
            name: SmolStr::new_static("system:anonymous"),
            uid: SmolStr::default(),
            groups: vec![SmolStr::new_static("system:unauthenticated")],
            extra: Vec::new(),
            home: None,
        }
    }

    /// The server itself, acting through the registry like everybody else.
    pub fn system() -> UserInfo {
        UserInfo::authenticated("system:apiserver", [SmolStr::new_static(MASTERS)])
    }

    /// How a plane sees somebody who belongs to none: by names that nobody of the plane has.
    pub fn guest_of(&self, plane: PlaneId) -> UserInfo {
        let of_provider = |name: &SmolStr| format_smolstr!("{GUEST_PREFIX}{name}");
        let own = self.groups.iter().filter(|group| *group != "system:authenticated");
        let mut guest = UserInfo::authenticated(of_provider(&self.name), own.map(of_provider));
        guest.uid.clone_from(&self.uid);
        guest.home = Some(plane);
        guest
    }

    /// What it takes up, about.
    pub(crate) fn bytes(&self) -> usize {
        let text = |text: &SmolStr| size_of::<SmolStr>() + text.len();
        let texts = |all: &[SmolStr]| all.iter().map(text).sum::<usize>();
        let extra: usize = self.extra.iter().map(|(key, values)| text(key) + texts(values)).sum();
        size_of::<UserInfo>() + self.name.len() + self.uid.len() + texts(&self.groups) + extra
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == "system:anonymous"
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}
