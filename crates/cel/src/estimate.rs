//! What an expression can cost at most and at least, from the sizes that the shapes of documents allow.
//!
//! Macros cost what upstream's expansions of them would: the numbers in `fold` are those of the loop it writes. One
//! pass over the arena suffices, because children come before their parents; loop variables need the recursion.

use std::collections::HashMap;

use polder_model::SmolStr;

use crate::ast::{Access, Ast, ExprId, ExprKind, Fold, FoldKind, Literal};
use crate::check::{Checked, Meaning};
use crate::cost::{Arg, LIST_NEW, MAP_NEW, Range, STRUCT_NEW};
use crate::env::Environment;
use crate::shape::{Shape, ShapeKind};
use crate::types::Type;

pub(crate) fn estimate(ast: &Ast, checked: &Checked, env: &Environment) -> Range {
    let root = env.shape(0).map(|shape| &**shape);
    let mut estimator = Estimator { ast, checked, env, root, locals: HashMap::new() };
    estimator.cost(ast.root).cost
}

/// What is known about a node.
#[derive(Clone, Debug, Default)]
struct Known<'s> {
    cost: Cost,
    size: Option<Range>,
    /// Sizes of what a list or map holds.
    entry: Option<EntrySize>,
    place: Place<'s>,
}

type Cost = Range;

impl Default for Range {
    fn default() -> Range {
        Range::ZERO
    }
}

/// Where in a document a value comes from.
///
/// Upstream keeps a path and drops its first part, the variable. Of a value that was computed there is no path, so the
/// part it drops is the first step from there: that step leads to the root of the document. It is what decides about
/// rules, so it is done the same here.
#[derive(Clone, Copy, Debug, Default)]
enum Place<'s> {
    /// Computed.
    #[default]
    Nowhere,
    At(&'s Shape),
    /// The keys of a map: upstream gives them no size.
    Keys,
    /// A path that leads to nothing.
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct EntrySize {
    is_list: bool,
    key: Range,
    value: Range,
}

impl EntrySize {
    fn union(self, other: EntrySize) -> EntrySize {
        EntrySize {
            is_list: self.is_list,
            key: self.key.union(other.key),
            value: self.value.union(other.value),
        }
    }
}

impl<'s> Place<'s> {
    fn step(self, root: Option<&'s Shape>, inner: impl FnOnce(&'s Shape) -> Option<Place<'s>>) -> Place<'s> {
        match self {
            Place::Nowhere => root.map_or(Place::Lost, Place::At),
            Place::At(shape) => inner(shape).unwrap_or(Place::Lost),
            Place::Keys | Place::Lost => Place::Lost,
        }
    }

    fn field(self, root: Option<&'s Shape>, name: &str) -> Place<'s> {
        self.step(root, |shape| shape.field_named(name).map(|field| Place::At(&field.shape)))
    }

    fn elements(self, root: Option<&'s Shape>) -> Place<'s> {
        self.step(root, |shape| match &shape.kind {
            ShapeKind::List { items: inner, .. } | ShapeKind::Map { values: inner } => Some(Place::At(inner)),
            _ => None,
        })
    }

    fn keys(self, root: Option<&'s Shape>) -> Place<'s> {
        self.step(root, |shape| matches!(shape.kind, ShapeKind::Map { .. }).then_some(Place::Keys))
    }

    fn indices(self, root: Option<&'s Shape>) -> Place<'s> {
        self.step(root, |_| None)
    }

    fn size(self) -> Option<Range> {
        match self {
            Place::Nowhere | Place::Lost => None,
            Place::At(shape) => Some(Range { min: 0, max: shape.elements_max }),
            Place::Keys => Some(Range::ZERO),
        }
    }
}

struct Estimator<'e> {
    ast: &'e Ast,
    checked: &'e Checked,
    env: &'e Environment,
    root: Option<&'e Shape>,
    locals: HashMap<SmolStr, Vec<Known<'e>>>,
}

impl<'e> Estimator<'e> {
    fn cost(&mut self, id: ExprId) -> Known<'e> {
        let ast = self.ast;
        match ast.kind(id) {
            ExprKind::Literal(literal) => {
                Known { size: Some(Range::fixed(literal_size(literal))), ..Known::default() }
            }
            ExprKind::Ident(name) => self.ident(id, name),
            ExprKind::Select { operand, field, access } => self.select(id, *operand, field, *access),
            ExprKind::Call { target, function, args } => self.call(id, *target, function, args),
            ExprKind::And(terms) | ExprKind::Or(terms) => {
                let costs: Vec<Range> = terms.iter().map(|term| self.cost(*term).cost).collect();
                let max = costs.iter().fold(0, |sum: u64, cost| sum.saturating_add(cost.max));
                let cost = Range { min: costs.first().map_or(0, |cost| cost.min), max };
                self.sized(id, Known { cost, ..Known::default() })
            }
            ExprKind::Conditional { test, yes, no } => {
                let (test, yes, no) = (self.cost(*test), self.cost(*yes), self.cost(*no));
                let size = yes.size.unwrap_or(Range::UNKNOWN).union(no.size.unwrap_or(Range::UNKNOWN));
                let entry = yes.entry.zip(no.entry).map(|(yes, no)| yes.union(no));
                let cost = test.cost.plus(yes.cost.union(no.cost));
                Known { cost, size: Some(size), entry, place: Place::Nowhere }
            }
            ExprKind::List(items) => {
                let mut value = Range { min: if items.is_empty() { 0 } else { u64::MAX }, max: 0 };
                let mut cost = Range::fixed(LIST_NEW);
                for item in items {
                    let item = self.cost(item.value);
                    cost = cost.plus(item.cost);
                    value = value.union(item.size.unwrap_or(Range::UNKNOWN));
                }
                let entry = Some(EntrySize { is_list: true, key: Range::ONE, value });
                Known { cost, size: Some(Range::fixed(items.len() as u64)), entry, place: Place::Nowhere }
            }
            ExprKind::Map(entries) => {
                let least = if entries.is_empty() { 0 } else { u64::MAX };
                let mut entry = EntrySize {
                    is_list: false,
                    key: Range { min: least, max: 0 },
                    value: Range { min: least, max: 0 },
                };
                let mut cost = Range::fixed(MAP_NEW);
                for one in entries {
                    let (key, value) = (self.cost(one.key), self.cost(one.value));
                    cost = cost.plus(key.cost).plus(value.cost);
                    entry.key = entry.key.union(key.size.unwrap_or(Range::UNKNOWN));
                    entry.value = entry.value.union(value.size.unwrap_or(Range::UNKNOWN));
                }
                let size = Some(Range::fixed(entries.len() as u64));
                Known { cost, size, entry: Some(entry), place: Place::Nowhere }
            }
            ExprKind::Struct { fields, .. } => {
                let mut cost = Range::fixed(STRUCT_NEW);
                for field in fields {
                    cost = cost.plus(self.cost(field.value).cost);
                }
                Known { cost, ..Known::default() }
            }
            ExprKind::Fold(fold) => {
                let known = self.fold(fold);
                self.sized(id, known)
            }
            ExprKind::Bind { variable, init, body } => {
                let init = self.cost(*init);
                let init_cost = init.cost;
                let body = self.with_local(variable, init, |estimator| estimator.cost(*body));
                Known { cost: Range::fixed(LIST_NEW).plus(init_cost).plus(body.cost), ..body }
            }
            ExprKind::OptMap { target, variable, body, flat } => {
                let target = self.cost(*target);
                // `value()` of the target, in a binding, and wrapped again.
                let bound = Known { cost: Range::ZERO, ..Known::default() };
                let body = self.with_local(variable, bound, |estimator| estimator.cost(*body));
                let unwrapped = target.cost.plus(Range::ONE);
                let wrap = Range::fixed(u64::from(!*flat));
                let yes = wrap.plus(Range::fixed(LIST_NEW)).plus(unwrapped).plus(body.cost);
                let cost = target.cost.plus(Range::ONE).plus(yes.union(Range::ONE));
                self.sized(id, Known { cost, ..Known::default() })
            }
            ExprKind::Broken => Known::default(),
        }
    }

    /// Fills in the size that the place or the type tells, where nothing better is known.
    fn sized(&self, id: ExprId, mut known: Known<'e>) -> Known<'e> {
        if known.size.is_none() {
            known.size = known.place.size();
        }
        if known.size.is_none() && self.checked.types[id.index()].is_scalar() {
            known.size = Some(Range::ONE);
        }
        known
    }

    fn ident(&mut self, id: ExprId, name: &SmolStr) -> Known<'e> {
        let mut known = match &self.checked.meanings[id.index()] {
            Meaning::Local => {
                let local = self.locals.get(name).and_then(|known| known.last()).cloned().unwrap_or_default();
                let place = local.place;
                let scalar = self.checked.types[id.index()].is_scalar();
                // What the schema says goes before what was computed.
                let size = place.size().or(scalar.then_some(Range::ONE)).or(local.size);
                Known { cost: Range::ZERO, size, ..local }
            }
            Meaning::Variable(slot) => {
                let place = self.env.shape(*slot).map_or(Place::Nowhere, |shape| Place::At(shape));
                self.sized(id, Known { place, ..Known::default() })
            }
            // A path of one name, of which the first is dropped: see `Place`.
            _ => self.sized(id, Known { place: Place::Nowhere.indices(self.root), ..Known::default() }),
        };
        known.cost = Range::ONE;
        known
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, access: Access) -> Known<'e> {
        if matches!(self.checked.meanings[id.index()], Meaning::Variable(_) | Meaning::TypeName(_)) {
            return self.ident(id, &SmolStr::default());
        }
        let inner = self.cost(operand);
        let target = &self.checked.types[operand.index()];
        match access {
            Access::Test => self.sized(id, Known { cost: inner.cost, ..Known::default() }),
            Access::Get => {
                let has_cost =
                    matches!(target, Type::Map(_) | Type::Object(_) | Type::Opaque(_) | Type::Made(_));
                let cost = inner.cost.plus(Range::fixed(u64::from(has_cost)));
                self.sized(id, Known { cost, place: inner.place.field(self.root, field), ..Known::default() })
            }
            Access::Optional => {
                self.sized(id, Known { cost: inner.cost.plus(Range::ONE), ..Known::default() })
            }
        }
    }

    fn call(&mut self, id: ExprId, target: Option<ExprId>, function: &str, args: &[ExprId]) -> Known<'e> {
        let Meaning::Call { overloads, qualified } = &self.checked.meanings[id.index()] else {
            return Known::default();
        };
        let target = target.filter(|_| !*qualified);
        let operands: Vec<ExprId> = target.into_iter().chain(args.iter().copied()).collect();
        let known: Vec<Known<'e>> = operands.iter().map(|operand| self.cost(*operand)).collect();
        let operands_cost = known.iter().fold(Range::ZERO, |sum, known| sum.plus(known.cost));
        if function == "dyn"
            && let [inner] = known.as_slice()
        {
            return Known { cost: operands_cost.plus(Range::ONE), place: Place::Nowhere, ..inner.clone() };
        }
        let facts: Vec<Arg> = operands.iter().zip(&known).map(|(id, known)| self.arg(*id, known)).collect();
        let mut cost: Option<Range> = None;
        let mut result: Option<Range> = None;
        let mut made = Known::default();
        for overload in overloads {
            let special = self.equality_cost(overload.id, &operands);
            let estimate = match special {
                Some(cost) => crate::cost::Estimate { cost, result: None },
                None => overload.cost.estimate(&facts),
            };
            cost = Some(cost.map_or(estimate.cost, |cost| cost.union(estimate.cost)));
            if let Some(size) = estimate.result {
                result = Some(result.map_or(size, |result| result.union(size)));
            }
            match overload.id {
                "index_list" | "index_map" => {
                    made.place = known[0].place.elements(self.root);
                    result = known[0].entry.map(|entry| entry.value);
                }
                "add_list" | "add_string" | "add_bytes" => {
                    made.entry = known[0].entry.zip(known[1].entry).map(|(one, two)| one.union(two));
                }
                _ => {}
            }
        }
        made.cost = operands_cost.plus(cost.unwrap_or(Range::ZERO));
        made.size = result;
        self.sized(id, made)
    }

    /// Equality of values that Kubernetes adds has a price of its own.
    fn equality_cost(&self, overload: &str, operands: &[ExprId]) -> Option<Range> {
        use crate::types::Opaque;
        if overload != "equals" {
            return None;
        }
        let [one, two] = operands else { return None };
        match (&self.checked.types[one.index()], &self.checked.types[two.index()]) {
            (Type::Opaque(one), Type::Opaque(two)) if one == two => Some(match one {
                Opaque::Format => Range { min: 1, max: 64 }.scaled(crate::cost::TEXT),
                Opaque::Url => Range::ONE.scaled(crate::cost::TEXT),
                _ => Range::ONE,
            }),
            _ => None,
        }
    }

    fn arg(&self, id: ExprId, known: &Known<'e>) -> Arg {
        let item = match &self.checked.types[id.index()] {
            Type::List(item) => Some(item),
            _ => None,
        };
        Arg {
            size: known.size.unwrap_or(Range::UNKNOWN),
            element: item.map(|_| match known.place {
                Place::Nowhere => Range::UNKNOWN,
                place => place.elements(self.root).size().unwrap_or(Range::UNKNOWN),
            }),
            of_texts: item.is_some_and(|item| matches!(**item, Type::String | Type::Bytes)),
            literal_int: match self.ast.kind(id) {
                ExprKind::Literal(Literal::Int(number)) => Some(*number),
                _ => None,
            },
        }
    }

    fn with_local<T>(&mut self, name: &SmolStr, known: Known<'e>, run: impl FnOnce(&mut Self) -> T) -> T {
        self.locals.entry(name.clone()).or_default().push(known);
        let result = run(self);
        if let Some(known) = self.locals.get_mut(name) {
            known.pop();
        }
        result
    }

    fn fold(&mut self, fold: &Fold) -> Known<'e> {
        let range = self.cost(fold.range);
        let is_list = match range.entry {
            Some(entry) => entry.is_list,
            None => matches!(self.checked.types[fold.range.index()], Type::List(_)),
        };
        let local = |place: Place<'e>, size: Option<Range>| Known { size, place, ..Known::default() };
        let values = local(range.place.elements(self.root), range.entry.map(|entry| entry.value));
        let keys = match is_list {
            true => local(range.place.indices(self.root), range.entry.map(|entry| entry.key)),
            false => local(range.place.keys(self.root), range.entry.map(|entry| entry.key)),
        };
        let first = if fold.second.is_none() && is_list { values.clone() } else { keys };
        let (filter, body) = self.with_local(&fold.first, first.clone(), |estimator| {
            let inside = |estimator: &mut Self| {
                let filter = fold.filter.map(|filter| estimator.cost(filter));
                (filter, fold.body.map(|body| estimator.cost(body)))
            };
            match &fold.second {
                Some(second) => estimator.with_local(second, values, inside),
                None => inside(estimator),
            }
        });
        let body = body.unwrap_or(Known { cost: Range::ONE, ..first });
        let (init, each, result) = match fold.kind {
            // Test the accumulator, then combine it with the body.
            FoldKind::All => (0, Range { min: 3, max: body.cost.max.saturating_add(3) }, 1),
            FoldKind::Exists => (0, Range { min: 4, max: body.cost.max.saturating_add(4) }, 1),
            FoldKind::ExistsOne => (0, body.cost.plus(Range { min: 1, max: 2 }), 2),
            // The accumulator plus a new list of one.
            FoldKind::List => (LIST_NEW, body.cost.plus(Range::fixed(LIST_NEW + 2)), 1),
            FoldKind::Map => (MAP_NEW, body.cost.plus(Range::fixed(3)), 1),
            FoldKind::Entries => (MAP_NEW, body.cost.plus(Range::fixed(2)), 1),
        };
        let each = match &filter {
            Some(filter) => filter.cost.plus(each.union(Range::ONE)),
            None => each,
        };
        let count = range.size.unwrap_or(Range::UNKNOWN);
        let cost = range.cost.plus(Range::fixed(init + result)).plus(count.times(each));
        let item = body.size.unwrap_or(Range::UNKNOWN);
        match fold.kind {
            FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => {
                Known { cost, size: Some(Range::ONE), ..Known::default() }
            }
            FoldKind::List => {
                let value = Range { min: 0, max: item.max };
                let entry = Some(EntrySize { is_list: true, key: Range::ONE, value });
                Known { cost, size: Some(count), entry, place: Place::Nowhere }
            }
            FoldKind::Map | FoldKind::Entries => Known { cost, size: Some(count), ..Known::default() },
        }
    }
}

fn literal_size(literal: &Literal) -> u64 {
    match literal {
        Literal::String(text) => text.chars().count() as u64,
        Literal::Bytes(bytes) => bytes.len() as u64,
        _ => 1,
    }
}
