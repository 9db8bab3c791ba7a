//! Lists: part of a document, made, or two of them joined without copying.

use std::sync::Arc;

use polder_model::Value as Json;

use crate::meter::{Fault, Meter, Outcome};
use crate::shape::{ListKind, Shape, ShapeKind};
use crate::value::Value;

#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Part of a document, with the shape of the list itself.
    Json(&'a [Json], Option<&'a Shape>),
    /// With the shape it was made from, where that says how to compare it.
    Owned(Arc<Vec<Value<'a>>>, Option<&'a Shape>),
    Joined(Arc<Joined<'a>>),
}

#[derive(Debug)]
pub struct Joined<'a> {
    pub(crate) left: List<'a>,
    pub(crate) right: List<'a>,
    len: usize,
}

impl<'a> List<'a> {
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, _) => items.len(),
            List::Owned(items, _) => items.len(),
            List::Joined(joined) => joined.len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, mut index: usize) -> Option<Outcome<'a>> {
        // The nesting of joined lists is that of the expression, and so bounded.
        let mut list = self;
        loop {
            match list {
                List::Json(items, shape) => {
                    return items.get(index).map(|item| Value::read(item, items_of(*shape)));
                }
                List::Owned(items, _) => return items.get(index).cloned().map(Ok),
                List::Joined(joined) if index < joined.left.len() => list = &joined.left,
                List::Joined(joined) => {
                    index -= joined.left.len();
                    list = &joined.right;
                }
            }
        }
    }

    pub fn iter(&self) -> Items<'_, 'a> {
        Items { waiting: vec![self], leaf: None, index: 0 }
    }

    /// Joins two lists. Sets keep one of equal items, lists with keys the later one.
    pub(crate) fn plus(&self, other: &List<'a>, meter: &mut Meter<'_>) -> Result<List<'a>, Fault> {
        let shape = self.shape();
        match shape.and_then(list_kind) {
            None | Some(ListKind::Atomic) => {
                if self.is_empty() {
                    return Ok(other.clone());
                }
                if other.is_empty() {
                    return Ok(self.clone());
                }
                let len = self.len().saturating_add(other.len());
                Ok(List::Joined(Arc::new(Joined { left: self.clone(), right: other.clone(), len })))
            }
            Some(kind) => {
                let mut items: Vec<Value<'a>> = self.iter().collect::<Result<_, _>>()?;
                meter.allocate((items.len() + other.len()) * size_of::<Value<'_>>())?;
                for item in other.iter() {
                    let item = item?;
                    let same = find_same(&items, &item, kind, meter)?;
                    match (same, kind) {
                        (Some(at), ListKind::Map(_)) => items[at] = item,
                        (Some(_), _) => {}
                        (None, _) => items.push(item),
                    }
                }
                Ok(List::Owned(Arc::new(items), shape))
            }
        }
    }

    pub(crate) fn shape(&self) -> Option<&'a Shape> {
        match self {
            List::Json(_, shape) | List::Owned(_, shape) => *shape,
            List::Joined(_) => None,
        }
    }

    /// Whether order matters, and what items are known by.
    pub(crate) fn kind(&self) -> Option<&'a ListKind> {
        self.shape().and_then(list_kind)
    }

    pub(crate) fn contains(&self, wanted: &Value<'a>, meter: &mut Meter<'_>) -> Result<bool, Fault> {
        let mut problem = None;
        for item in self.iter() {
            match item.and_then(|item| crate::compare::equal(&item, wanted, meter)) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(fault) if fault.is_fatal() => return Err(fault),
                Err(fault) => problem = problem.or(Some(fault)),
            }
        }
        problem.map_or(Ok(false), Err)
    }
}

fn items_of(shape: Option<&Shape>) -> Option<&Shape> {
    match &shape?.kind {
        ShapeKind::List { items, .. } => Some(items),
        _ => None,
    }
}

fn list_kind(shape: &Shape) -> Option<&ListKind> {
    match &shape.kind {
        ShapeKind::List { list, .. } => Some(list),
        _ => None,
    }
}

/// The item that a set or a list with keys takes for the same.
pub(crate) fn find_same<'a>(
    items: &[Value<'a>],
    wanted: &Value<'a>,
    kind: &ListKind,
    meter: &mut Meter<'_>,
) -> Result<Option<usize>, Fault> {
    for (at, item) in items.iter().enumerate() {
        let same = match kind {
            ListKind::Map(keys) => same_keys(item, wanted, keys, meter)?,
            _ => crate::compare::equal(item, wanted, meter)?,
        };
        if same {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn same_keys<'a>(
    one: &Value<'a>,
    two: &Value<'a>,
    keys: &[polder_model::SmolStr],
    meter: &mut Meter<'_>,
) -> Result<bool, Fault> {
    let (Value::Map(one), Value::Map(two)) = (one, two) else { return Ok(false) };
    for key in keys {
        let same = match (one.member(key), two.member(key)) {
            (None, None) => true,
            (Some(one), Some(two)) => crate::compare::equal(&one?, &two?, meter)?,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The items of a list, one after the other.
#[derive(Debug)]
pub struct Items<'l, 'a> {
    waiting: Vec<&'l List<'a>>,
    leaf: Option<&'l List<'a>>,
    index: usize,
}

impl<'a> Iterator for Items<'_, 'a> {
    type Item = Outcome<'a>;

    fn next(&mut self) -> Option<Outcome<'a>> {
        loop {
            if let Some(leaf) = self.leaf {
                if let Some(item) = leaf.get(self.index) {
                    self.index += 1;
                    return Some(item);
                }
                self.leaf = None;
            }
            match self.waiting.pop()? {
                List::Joined(joined) => {
                    self.waiting.push(&joined.right);
                    self.waiting.push(&joined.left);
                }
                leaf => {
                    self.leaf = Some(leaf);
                    self.index = 0;
                }
            }
        }
    }
}
