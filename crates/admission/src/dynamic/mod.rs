//! What a plane itself has to say about its writes: admission policies and webhooks, which its users write.
//!
//! All of it is read once into a [`Rulebook`] and shared: a plane that has none of it pays one look at an empty book.
//! Expressions are compiled when a book is made, never for a request.

mod binding;
mod conditions;
mod expressions;
mod matching;
mod policy;
mod questions;
mod request;
mod running;
mod webhook;

use std::collections::HashMap;
use std::sync::Arc;

use polder_model::SmolStr;

pub use binding::Binding;
pub use policy::{CheckedKind, MutatingPolicy, Policy, kinds_to_check, type_warnings};
pub use questions::{About, Asked};
pub use webhook::{Accepted, Endpoint, Location, ReviewVersion, Webhook, read as read_answer};

pub(crate) use conditions::Matched;
pub(crate) use matching::Surroundings;
pub(crate) use policy::{AnnotationOutcome, Basis, CHANGE_BYTES_MAX, Change, Judged, judge};
pub(crate) use questions::Answers;
pub(crate) use request::{Inputs, describe};
pub(crate) use running::{Meter, OUT_OF_BUDGET};
pub(crate) use webhook::review;

/// About what a binding takes.
const BINDING_BYTES: usize = 2048;

/// The policies and webhooks of one plane.
#[derive(Debug, Default)]
pub struct Rulebook {
    pub(crate) policies: Vec<BoundPolicy<Policy>>,
    pub(crate) mutating_policies: Vec<BoundPolicy<MutatingPolicy>>,
    pub(crate) mutating: Vec<Arc<Webhook>>,
    pub(crate) validating: Vec<Arc<Webhook>>,
}

/// A policy and where it applies.
#[derive(Debug)]
pub(crate) struct BoundPolicy<P> {
    pub(crate) name: SmolStr,
    pub(crate) policy: Arc<P>,
    pub(crate) bindings: Vec<Binding>,
}

/// In the order of their names. Policies that nothing binds, and bindings of policies that are not there, say nothing.
fn bound<P>(policies: Vec<(SmolStr, Arc<P>)>, bindings: Vec<Binding>) -> Vec<BoundPolicy<P>> {
    let mut by_policy: HashMap<SmolStr, Vec<Binding>> = HashMap::new();
    for binding in bindings {
        by_policy.entry(binding.policy.clone()).or_default().push(binding);
    }
    let bound = policies.into_iter().filter_map(|(name, policy)| {
        let bindings = by_policy.remove(&name)?;
        Some(BoundPolicy { name, policy, bindings })
    });
    bound.collect()
}

impl Rulebook {
    /// Of policies that judge.
    pub fn new(policies: Vec<(SmolStr, Arc<Policy>)>, bindings: Vec<Binding>) -> Rulebook {
        Rulebook { policies: bound(policies, bindings), ..Rulebook::default() }
    }

    /// With policies that change objects.
    #[must_use]
    pub fn with_mutating_policies(
        mut self,
        policies: Vec<(SmolStr, Arc<MutatingPolicy>)>,
        bindings: Vec<Binding>,
    ) -> Rulebook {
        self.mutating_policies = bound(policies, bindings);
        self
    }

    /// With webhooks, in the order in which they are asked.
    #[must_use]
    pub fn with_webhooks(mut self, mutating: Vec<Webhook>, validating: Vec<Webhook>) -> Rulebook {
        self.mutating = mutating.into_iter().map(Arc::new).collect();
        self.validating = validating.into_iter().map(Arc::new).collect();
        self
    }

    /// About how much memory it takes beside its policies, which are shared.
    pub fn bytes(&self) -> usize {
        let webhooks = self.mutating.iter().chain(&self.validating);
        let judging = self.policies.iter().map(|bound| bound.bindings.len()).sum::<usize>();
        let changing = self.mutating_policies.iter().map(|bound| bound.bindings.len()).sum::<usize>();
        webhooks.map(|webhook| webhook.bytes()).sum::<usize>() + (judging + changing) * BINDING_BYTES
    }

    /// Nobody judges what is written.
    pub fn judges_nothing(&self) -> bool {
        self.policies.is_empty() && self.validating.is_empty()
    }

    /// Nobody changes what is written.
    pub fn changes_nothing(&self) -> bool {
        self.mutating.is_empty() && self.mutating_policies.is_empty()
    }
}
