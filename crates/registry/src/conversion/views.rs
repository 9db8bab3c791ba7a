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
/// What they may weigh together, in converted objects as heavy as they may be.
const OBJECTS_MAX: usize = 8;

#[derive(Default)]
pub(crate) struct Views {
    asks: bool,
    known: Vec<(Value, SmolStr, Value)>,
    known_bytes: usize,
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

    /// Takes note of an object as a version has it.
    fn keep(
        &mut self,
        object: Value,
        version: SmolStr,
        view: Value,
        object_bytes_max: usize,
    ) -> Result<(), Status> {
        self.known_bytes += object.to_vec().len() + view.to_vec().len();
        if self.known_bytes > OBJECTS_MAX.saturating_mul(object_bytes_max) {
            return Err(Status::untyped(500, "the versions that have owners are too large"));
        }
        self.known.push((object, version, view));
        Ok(())
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
                views.keep(object, version, view, self.converted_bytes_max(context))?;
            }
        }
        Err(Status::untyped(500, "too many versions have owners"))
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    /// How many views of a weight are kept, where an object may weigh so much.
    fn check(view_len: usize, object_bytes_max: usize, expected: usize) {
        let mut views = Views::default();
        let kept = (0..VIEWS_MAX).take_while(|_| {
            let view = json!({"metadata": {}, "spec": ("x".repeat(view_len))});
            views.keep(json!({"metadata": {}}), "v2".into(), view, object_bytes_max).is_ok()
        });
        assert_eq!(kept.count(), expected, "{view_len} of {object_bytes_max}");
    }

    #[test]
    fn views_are_bounded_together() {
        check(100, 200_000, VIEWS_MAX);
        check(40_000, 200_000, VIEWS_MAX);
        check(199_000, 200_000, OBJECTS_MAX);
        check(8 << 20, 3 << 20, 2);
        check(8 << 20, 200_000, 0);
    }
}
