//! What a plugin is.

use polder_model::Value;

use crate::attributes::{Attributes, Operations};
use crate::notes::Notes;
use crate::world::{Answer, World};

pub type Verdict<'a> = Answer<'a, ()>;

/// One admission plugin. Which resources and operations it is for is asked once for each resource; the rest is called
/// for those only.
pub trait Plugin: Send + Sync {
    /// As upstream calls it.
    fn name(&self) -> &'static str;

    fn interest(&self, kind: Kind<'_>) -> Interest;

    /// Says something only if the plane has rules of its own.
    fn is_dynamic(&self) -> bool {
        false
    }

    /// May change the object.
    fn admit<'a>(
        &'a self,
        _request: &'a Attributes<'a>,
        _object: &'a mut Value,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        done()
    }

    /// May only refuse. Nothing comes with a delete.
    fn validate<'a>(
        &'a self,
        _request: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        done()
    }

    /// The last look, right before the commit: may refuse, and may ask for writes in the same commit. Called for every
    /// change, whoever makes it and through whichever subresource, and with `None` when an object goes.
    fn account<'a>(
        &'a self,
        _request: &'a Attributes<'a>,
        _object: Option<&'a Value>,
        _world: &'a dyn World,
        _notes: &'a mut Notes,
    ) -> Verdict<'a> {
        done()
    }
}

/// A resource, as far as the interest of a plugin may depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    pub group: &'a str,
    pub resource: &'a str,
    pub namespaced: bool,
}

impl Kind<'_> {
    pub fn is(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }
}

/// The operations a plugin is called for, in each of its parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    pub admit: Operations,
    pub validate: Operations,
    pub account: Operations,
}

impl Interest {
    pub const NONE: Interest =
        Interest { admit: Operations::NONE, validate: Operations::NONE, account: Operations::NONE };

    #[must_use]
    pub const fn and(self, other: Interest) -> Interest {
        Interest {
            admit: self.admit.and(other.admit),
            validate: self.validate.and(other.validate),
            account: self.account.and(other.account),
        }
    }

    /// In nothing unless a condition holds.
    #[must_use]
    pub fn when(self, holds: bool) -> Interest {
        if holds { self } else { Interest::NONE }
    }

    pub const fn admit(operations: Operations) -> Interest {
        Interest { admit: operations, ..Interest::NONE }
    }

    pub const fn validate(operations: Operations) -> Interest {
        Interest { validate: operations, ..Interest::NONE }
    }
}

/// A line of the list of plugins.
#[derive(Clone, Copy)]
pub enum Place {
    On(&'static dyn Plugin),
    /// Works, and is not used unless a server is told to.
    Off(&'static dyn Plugin),
    /// Part of the registry itself.
    Elsewhere(&'static str),
    /// Has a place and no code yet.
    Missing(&'static str),
}

impl Place {
    pub fn name(&self) -> &'static str {
        match self {
            Place::On(plugin) | Place::Off(plugin) => plugin.name(),
            Place::Elsewhere(name) | Place::Missing(name) => name,
        }
    }
}

pub(crate) fn done<'a>() -> Verdict<'a> {
    Box::pin(std::future::ready(Ok(())))
}
