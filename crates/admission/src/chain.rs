//! The plugins for one resource: found once, when the resource is defined.

use polder_model::{Status, Value};

use crate::attributes::{Attributes, Operation, Operations};
use crate::notes::Notes;
use crate::plugin::{Interest, Kind, Place, Plugin};
use crate::world::World;

#[derive(Default)]
pub struct Chain {
    plugins: Vec<(&'static dyn Plugin, Interest)>,
    /// What any of them is called for.
    interest: Interest,
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.plugins.iter().map(|(plugin, _)| plugin.name()).collect();
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
                chain.interest.admit = chain.interest.admit.and(interest.admit);
                chain.interest.validate = chain.interest.validate.and(interest.validate);
                chain.interest.account = chain.interest.account.and(interest.account);
                chain.plugins.push((*plugin, interest));
            }
        }
        chain
    }

    pub fn admits(&self, operation: Operation) -> bool {
        self.interest.admit.has(operation)
    }

    pub fn validates(&self, operation: Operation) -> bool {
        self.interest.validate.has(operation)
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
