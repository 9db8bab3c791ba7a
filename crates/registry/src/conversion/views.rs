//! An object in the versions in which somebody owns fields of it. Who owns what is found out without waiting: what is not known
//! yet is noted, asked, and all is looked at again.

use parking_lot::Mutex;
use polder_model::{SmolStr, Status, Value};

use crate::context::RequestContext;
use crate::definition::Target;
use crate::registry::Registry;

/// How often it is looked at again: an apply looks at the versions of its owners one after the other.
const ROUNDS_MAX: usize = 16;
/// Versions of an object that are looked at for one write, before and after it.
const VIEWS_MAX: usize = 32;

#[derive(Default)]
pub(crate) struct Views {
    asks: bool,
    known: Vec<(Value, SmolStr, Value)>,
    open: Mutex<Vec<(Value, SmolStr)>>,
}

impl Views {
    /// Whether a webhook is asked for views at all.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// An object as a version has it, if that is known.
    pub(crate) fn view(&self, object: &Value, version: &str) -> Option<Value> {
        // What says nothing is nothing in every version.
        if object.get("metadata").is_none() {
            return Some(object.clone());
        }
        let mut known = self.known.iter();
        if let Some((_, _, view)) = known.find(|(own, to, _)| to == version && own == object) {
            return Some(view.clone());
        }
        let mut open = self.open.lock();
        if !open.iter().any(|(own, to)| to == version && own == object) {
            open.push((object.clone(), SmolStr::new(version)));
        }
        None
    }
}

impl Registry {
    /// Looks at an object until all versions that are asked for are known.
    pub(crate) async fn with_views<T>(
        &self,
        context: &RequestContext,
        target: &Target,
        look: impl Fn(&Views) -> T,
    ) -> Result<T, Status> {
        let mut views = Views { asks: self.converter(context, target).is_some(), ..Views::default() };
        for _ in 0..ROUNDS_MAX {
            let seen = look(&views);
            let open = std::mem::take(views.open.get_mut());
            if open.is_empty() {
                return Ok(seen);
            }
            drop(seen);
            for (object, version) in open {
                if views.known.len() >= VIEWS_MAX {
                    return Err(Status::untyped(500, "too many versions have owners"));
                }
                let view = self.convert(context, target, object.clone(), &version).await?;
                views.known.push((object, version, view));
            }
        }
        Err(Status::untyped(500, "too many versions have owners"))
    }
}
