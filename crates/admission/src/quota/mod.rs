//! Resource quotas: what objects use, whether a quota is about them, and what is used of it.
//!
//! All of it is pure but for [`measure`], which counts what is there. The quota controller and the admission plugin
//! count with the same functions, so they cannot disagree.

pub mod scopes;
pub mod usage;

use polder_model::quantity::Quantity;
use polder_model::{GroupResource, SmolStr, Status, Value};

use crate::amounts::{self, Amounts};
use crate::world::World;

pub use usage::{Counted, usage};

/// How much of what a quota allows, by its own words.
pub fn hard(quota: &Value) -> Amounts {
    amounts::read(quota.at(&["spec", "hard"]))
}

pub fn used(quota: &Value) -> Amounts {
    amounts::read(quota.at(&["status", "used"]))
}

/// Whether the status is about the quota as it is now.
pub fn is_measured(quota: &Value) -> bool {
    let hard = hard(quota);
    let used = used(quota);
    amounts::read(quota.at(&["status", "hard"])) == hard && hard.keys().all(|name| used.contains_key(name))
}

/// Whether a quota is about an object.
pub fn matches(quota: &Value, counted: Counted<'_>, object: &Value) -> bool {
    let hard = quota.at(&["spec", "hard"]).and_then(Value::as_object);
    let named = hard.is_some_and(|hard| hard.keys().any(|name| counted.counts(name)));
    named && scopes::of(quota).all(|scope| scopes::matches(&scope, counted, object))
}

/// What an object uses of a quota; nothing if the quota is not about it.
pub fn share(quota: &Value, counted: Counted<'_>, object: Option<&Value>) -> Amounts {
    let Some(object) = object.filter(|object| matches(quota, counted, object)) else { return Amounts::new() };
    let mut share = usage(counted, object);
    let hard = quota.at(&["spec", "hard"]).and_then(Value::as_object);
    share.retain(|name, _| hard.is_some_and(|hard| hard.contains_key(name)));
    share
}

/// Puts into the status of a quota what it allows and what is used of it.
pub fn set_status(quota: &mut Value, used: &Amounts) {
    let hard = hard(quota);
    quota.set_at(&["status", "hard"], amounts::write(&hard));
    quota.set_at(&["status", "used"], amounts::write(used));
}

/// Counts what is used of a quota now.
pub async fn measure(quota: &Value, namespace: &str, world: &dyn World) -> Result<Amounts, Status> {
    let hard = hard(quota);
    let mut used: Amounts = hard.keys().map(|name| (name.clone(), Quantity::from_i64(0))).collect();
    let scoped = scopes::of(quota).next().is_some();
    for resource in usage::MEASURED {
        let counted = Counted { group: resource.0, resource: resource.1 };
        if !hard.keys().any(|name| counted.counts(name)) {
            continue;
        }
        let name = GroupResource::new(resource.0, resource.1);
        let mut add =
            |found: crate::Found| amounts::add(&mut used, &share(quota, counted, Some(&found.value)));
        world.each(&name, namespace, &mut add).await?;
    }
    for name in hard.keys() {
        let Some(resource) = usage::plainly_counted(name) else { continue };
        // A scope is about pods or claims, so nothing else is in it.
        let count = if scoped { 0 } else { world.count(&resource, namespace).await? };
        used.insert(name.clone(), Quantity::from_i64(i64::try_from(count).unwrap_or(i64::MAX)));
    }
    Ok(used)
}

/// What becomes of the use of a quota when an object changes, is made or goes.
///
/// Growth beyond what is allowed is refused with the text upstream refuses it with; what shrinks never goes below
/// nothing.
pub fn charge(quota: &Value, used: &Amounts, before: &Amounts, after: &Amounts) -> Result<Amounts, String> {
    let hard = hard(quota);
    let change = amounts::subtract(after, before);
    let (mut total, mut exceeded) = (used.clone(), Vec::<&SmolStr>::new());
    let zero = Quantity::from_i64(0);
    for (name, amount) in &change {
        let own = total.get(name).cloned().unwrap_or_else(|| zero.clone());
        let sum = own.plus(amount);
        if *amount > zero && hard.get(name).is_some_and(|limit| sum > *limit) {
            exceeded.push(name);
        }
        total.insert(name.clone(), if sum.is_negative() { zero.clone() } else { sum });
    }
    if exceeded.is_empty() {
        return Ok(total);
    }
    let list = |amounts: &Amounts| {
        let shown = exceeded.iter().filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)));
        shown.collect::<Vec<_>>().join(",")
    };
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.str_at(&["metadata", "name"]).unwrap_or_default(),
        list(&change),
        list(used),
        list(&hard)
    ))
}
