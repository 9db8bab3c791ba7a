//! Questions to the authorizer from expressions.
//!
//! An expression does not wait. What it asks for the first time is noted and answered with "no"; whoever runs it then
//! finds the answers and runs it again, and what came out before does not count.

use std::collections::HashMap;

use parking_lot::Mutex;
use polder_cel::{Authorizer, Decision, Question, Resource, Target};
use polder_model::SmolStr;

/// What somebody wants to know about a user of the plane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// Somebody else than the user of the request: namespace and name.
    pub service_account: Option<(SmolStr, SmolStr)>,
    pub verb: SmolStr,
    pub about: About,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum About {
    Path(SmolStr),
    Resource { group: SmolStr, resource: SmolStr, subresource: SmolStr, namespace: SmolStr, name: SmolStr },
}

/// Questions of one request, over all its expressions.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    known: Mutex<HashMap<Asked, Decision>>,
    open: Mutex<Vec<Asked>>,
}

impl Answers {
    /// What was asked and is not answered yet.
    pub(crate) fn take_open(&self) -> Vec<Asked> {
        std::mem::take(&mut self.open.lock())
    }

    pub(crate) fn learn(&self, asked: Asked, decision: Decision) {
        self.known.lock().insert(asked, decision);
    }
}

impl Authorizer for Answers {
    fn check(&self, question: &Question<'_>) -> Decision {
        let asked = Asked {
            service_account: question
                .service_account
                .map(|(namespace, name)| (namespace.into(), name.into())),
            verb: question.verb.into(),
            about: match question.target {
                Target::Path(path) => About::Path(path.into()),
                Target::Resource(Resource { group, resource, subresource, namespace, name, .. }) => {
                    About::Resource {
                        group: group.clone(),
                        resource: resource.clone(),
                        subresource: subresource.clone(),
                        namespace: namespace.clone(),
                        name: name.clone(),
                    }
                }
            },
        };
        if let Some(known) = self.known.lock().get(&asked) {
            return known.clone();
        }
        let mut open = self.open.lock();
        if !open.contains(&asked) {
            open.push(asked);
        }
        Decision::default()
    }
}
