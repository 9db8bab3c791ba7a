//! The plugins for one resource: found once, when the resource is defined.

use polder_model::{Status, Value};

use crate::attributes::{Attributes, Operation, Operations};
use crate::dynamic::Rulebook;
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Place, Plugin};
use crate::world::World;

#[derive(Default)]
pub struct Chain {
    plugins: Vec<(&'static dyn Plugin, Interest)>,
    /// What any of them is called for, whatever rules a plane has.
    interest: Interest,
    /// What any is called for because of such rules.
    dynamic: Interest,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fixed = self.plugins.iter().filter(|(plugin, _)| !plugin.is_dynamic());
        let names: Vec<&str> = fixed.map(|(plugin, _)| plugin.name()).collect();
        write!(f, "[{}]", names.join(", "))
    }
}

impl Chain {
    /// The plugins of a list that are on and care about a resource.
    pub fn new(places: &[Place], kind: Kind<'_>) -> Chain {
        let mut chain = Chain::default();
        for place in places {
            let Place::On(plugin) = place else { continue };
            let interest = plugin.interest(kind);
            if interest != Interest::NONE {
                let all = if plugin.is_dynamic() { &mut chain.dynamic } else { &mut chain.interest };
                *all = all.and(interest);
                chain.plugins.push((*plugin, interest));
            }
        }
        chain
    }

    pub fn admits(&self, operation: Operation, rules: &Rulebook) -> bool {
        let dynamic = !rules.changes_nothing() && self.dynamic.admit.has(operation);
        dynamic || self.interest.admit.has(operation)
    }

    pub fn validates(&self, operation: Operation, rules: &Rulebook) -> bool {
        let dynamic = !rules.judges_nothing() && self.dynamic.validate.has(operation);
        dynamic || self.interest.validate.has(operation)
    }

    /// Whether rules of a plane can be about this resource.
    pub fn heeds_rules(&self) -> bool {
        self.dynamic != Interest::NONE
    }

    pub fn accounts(&self, operation: Operation) -> bool {
        self.interest.account.has(operation)
    }

    pub async fn admit(
        &self,
        request: &Attributes<'_>,
        object: &mut Value,
        world: &dyn World,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        for plugin in self.called(request.operation, |interest| interest.admit) {
            plugin.admit(request, object, world, notes).await?;
        }
        if !notes.rounds.wanted {
            return Ok(());
        }
        // A webhook changed something: everybody looks once more.
        notes.rounds.second = true;
        for plugin in self.called(request.operation, |interest| interest.admit) {
            plugin.admit(request, object, world, notes).await?;
        }
        Ok(())
    }

    pub async fn validate(
        &self,
        request: &Attributes<'_>,
        object: Option<&Value>,
        world: &dyn World,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        for plugin in self.called(request.operation, |interest| interest.validate) {
            plugin.validate(request, object, world, notes).await?;
        }
        Ok(())
    }

    pub async fn account(
        &self,
        request: &Attributes<'_>,
        object: Option<&Value>,
        world: &dyn World,
        notes: &mut Notes,
    ) -> Result<(), Status> {
        for plugin in self.called(request.operation, |interest| interest.account) {
            plugin.account(request, object, world, notes).await?;
        }
        Ok(())
    }

    fn called(
        &self,
        operation: Operation,
        part: fn(&Interest) -> Operations,
    ) -> impl Iterator<Item = &'static dyn Plugin> {
        let called = self.plugins.iter().filter(move |(_, interest)| part(interest).has(operation));
        called.map(|(plugin, _)| *plugin)
    }
}
