//! Which plugins a server uses: those that are on, and what its operator has said beside.

use std::sync::Arc;

use crate::chain::Chain;
use crate::plugin::{Kind, Place};
use crate::plugins::ALL;

/// The plugins in use, in their order.
#[derive(Clone)]
pub struct Plugins(Arc<[Place]>);

impl Default for Plugins {
    fn default() -> Plugins {
        Plugins(ALL.into())
    }
}

impl std::fmt::Debug for Plugins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let on = self.0.iter().filter(|place| matches!(place, Place::On(_)));
        f.debug_list().entries(on.map(Place::name)).finish()
    }
}

/// A plugin that cannot be chosen.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error("there is no admission plugin {name:?}: choose among {}", known().join(", "))]
    Unknown { name: String },
    #[error("admission plugin {name:?} cannot be turned off: it is a part of the server that others rely on")]
    Fixed { name: String },
    #[error("admission plugin {name:?} is to be both on and off")]
    Both { name: String },
}

/// What can be turned on and off.
fn known() -> Vec<&'static str> {
    let can_be = |place: &&Place| matches!(place, Place::On(_) | Place::Off(_));
    ALL.iter().filter(can_be).map(Place::name).collect()
}

impl Plugins {
    /// The usual ones, with some more and without others.
    pub fn chosen(enable: &[String], disable: &[String]) -> Result<Plugins, SelectionError> {
        let is_fixed =
            |name: &String| ALL.iter().any(|place| matches!(place, Place::Elsewhere(own) if own == name));
        if let Some(name) = disable.iter().find(|name| is_fixed(name)) {
            return Err(SelectionError::Fixed { name: name.clone() });
        }
        for name in enable.iter().chain(disable).filter(|name| !is_fixed(name)) {
            if !known().contains(&name.as_str()) {
                return Err(SelectionError::Unknown { name: name.clone() });
            }
        }
        if let Some(name) = enable.iter().find(|name| disable.contains(name)) {
            return Err(SelectionError::Both { name: name.clone() });
        }
        let chosen = |place: &Place| {
            let is_in = |names: &[String]| names.iter().any(|name| name == place.name());
            match *place {
                Place::Off(plugin) if is_in(enable) => Place::On(plugin),
                Place::On(plugin) if is_in(disable) => Place::Off(plugin),
                other => other,
            }
        };
        Ok(Plugins(ALL.iter().map(chosen).collect()))
    }

    /// Those that care about a resource.
    pub fn chain(&self, kind: Kind<'_>) -> Chain {
        Chain::new(&self.0, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_turned_on_and_off() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let maps = Kind { group: "", resource: "configmaps", namespaced: true };
        let chain = |plugins: Plugins| format!("{:?}", plugins.chain(maps));
        assert_eq!(chain(Plugins::default()), "[ResourceQuota]");
        let (on, off) = (names(&["OwnerReferencesPermissionEnforcement"]), names(&["ResourceQuota"]));
        assert_eq!(
            chain(Plugins::chosen(&on, &[]).unwrap()),
            "[OwnerReferencesPermissionEnforcement, ResourceQuota]"
        );
        assert_eq!(chain(Plugins::chosen(&on, &off).unwrap()), "[OwnerReferencesPermissionEnforcement]");
        let wrong = Plugins::chosen(&names(&["Resourcequota"]), &[]).unwrap_err().to_string();
        assert!(
            wrong.starts_with(r#"there is no admission plugin "Resourcequota": choose among LimitRanger, "#)
        );
        assert!(matches!(Plugins::chosen(&on, &on), Err(SelectionError::Both { .. })));
        let fixed = names(&["NamespaceLifecycle"]);
        assert_eq!(chain(Plugins::chosen(&fixed, &[]).unwrap()), "[ResourceQuota]");
        assert_eq!(
            Plugins::chosen(&[], &fixed).unwrap_err().to_string(),
            r#"admission plugin "NamespaceLifecycle" cannot be turned off: it is a part of the server that others rely on"#
        );
    }
}
