//! Runs a planned expression over values.
//!
//! An error is a result like others until a limit is reached: `&&`, `||` and loops can do without the term that failed.
//! Costs are counted as upstream's interpreter counts them for the loops it writes for macros.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Access, FoldKind};
use crate::cost::{Cost, LIST_NEW, MAP_NEW, STRUCT_NEW};
use crate::library::opaque::OpaqueValue;
use crate::library::regexes;
use crate::list::List;
use crate::made::Made;
use crate::map::Map;
use crate::meter::{Budget, Fault, Meter, Outcome};
use crate::overload::Overload;
use crate::plan::{FoldNode, MadeNode, Member, Node, NodeId};
use crate::program::{Bindings, Evaluation, Members, Program};
use crate::value::{Key, Value};

pub(crate) fn run<'a>(
    program: &'a Program,
    bindings: &'a Bindings<'a>,
    host: Option<&dyn Members<'a>>,
    budget: Budget<'_>,
) -> Evaluation<'a> {
    let mut run = Run {
        nodes: &program.nodes,
        bindings,
        host,
        locals: vec![Value::Null; program.locals],
        meter: Meter::new(budget),
    };
    let value = run.eval(program.root);
    Evaluation { value, cost: run.meter.cost() }
}

struct Run<'a, 'h, 'b> {
    nodes: &'a [Node],
    bindings: &'a Bindings<'a>,
    host: Option<&'h dyn Members<'a>>,
    locals: Vec<Value<'a>>,
    meter: Meter<'b>,
}

impl<'a> Run<'a, '_, '_> {
    fn eval(&mut self, id: NodeId) -> Outcome<'a> {
        let nodes = self.nodes;
        match &nodes[id.0 as usize] {
            Node::Const(Value::String(text)) => Ok(Value::str(text)),
            Node::Const(value) => Ok(value.clone()),
            Node::Variable(slot) => {
                self.meter.charge(1)?;
                let missing = || Fault::error(format!("no such attribute(s): variable {slot}"));
                self.bindings.get(*slot).cloned().ok_or_else(missing)
            }
            Node::Local(slot) => {
                self.meter.charge(1)?;
                Ok(self.locals[*slot as usize].clone())
            }
            Node::Select { operand, member, access } => self.select(*operand, member, *access),
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Conditional { test, yes, no } => {
                let chosen = match self.eval(*test)? {
                    Value::Bool(true) => *yes,
                    Value::Bool(false) => *no,
                    _ => return Err(Fault::no_overload()),
                };
                let value = self.eval(chosen)?;
                // Upstream looks a name up as part of the choice.
                if self.is_path(chosen) {
                    self.meter.refund(1);
                }
                Ok(value)
            }
            Node::Binary { overload, left, right } => {
                let left = match self.eval(*left) {
                    Err(fault) if !fault.is_fatal() => {
                        // Both sides are paid for, though one is in vain.
                        self.eval(*right)
                            .or_else(|fault| if fault.is_fatal() { Err(fault) } else { Ok(Value::Null) })?;
                        self.meter.charge(1)?;
                        return Err(fault);
                    }
                    other => other?,
                };
                let args = [left, self.eval(*right)?];
                self.call(overload, &args)
            }
            Node::Index { overload, container, key } => {
                let args = [self.eval(*container)?, self.eval(*key)?];
                let result = self.call(overload, &args)?;
                self.meter.charge(u64::from(!self.is_path(*container)))?;
                if self.is_path(*key) {
                    self.meter.refund(1);
                }
                Ok(result)
            }
            Node::Call { overloads, args } => match &**args {
                [] => self.call_any(overloads, &[]),
                [one] => {
                    let args = [self.eval(*one)?];
                    self.call_any(overloads, &args)
                }
                [one, two] => {
                    let args = [self.eval(*one)?, self.eval(*two)?];
                    self.call_any(overloads, &args)
                }
                many => {
                    let args = many.iter().map(|arg| self.eval(*arg)).collect::<Result<Vec<_>, _>>()?;
                    self.call_any(overloads, &args)
                }
            },
            Node::Regex { overload, regex, args } => {
                let args = args.iter().map(|arg| self.eval(*arg)).collect::<Result<Vec<_>, _>>()?;
                let result = regexes::with(regex, &overload.function, &mut self.meter, &args)?;
                self.pay(overload.cost, &args, &result)?;
                Ok(result)
            }
            Node::InSet { value, set } => {
                let value = self.eval(*value)?;
                // A key of a shorter life than the set's.
                let found = Key::of(&value).is_some_and(|key| contains(set, &key));
                Ok(Value::Bool(found))
            }
            Node::OrElse { left, right, unwrap } => match self.eval(*left)? {
                Value::Optional(None) => self.eval(*right),
                Value::Optional(Some(inner)) if *unwrap => Ok((*inner).clone()),
                other => Ok(other),
            },
            Node::List(items) => self.list(items),
            Node::Map(entries) => self.map(entries),
            Node::Made(made) => self.made(made),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind { slot, init, body } => {
                let value = self.eval(*init)?;
                self.locals[*slot as usize] = value;
                self.eval(*body)
            }
            Node::OptMap { target, slot, body, flat } => {
                let before = self.meter.cost();
                let target = self.eval(*target)?;
                let target_cost = self.meter.cost() - before;
                self.meter.charge(1)?;
                match target {
                    Value::Optional(None) => self.meter.charge(1).map(|()| Value::Optional(None)),
                    Value::Optional(Some(inner)) => {
                        // Upstream writes the target down twice: to look, and to take.
                        self.meter.charge(target_cost + 1 + u64::from(!*flat))?;
                        self.locals[*slot as usize] = (*inner).clone();
                        let made = self.eval(*body)?;
                        Ok(if *flat { made } else { Value::some(made) })
                    }
                    _ => Err(Fault::no_overload()),
                }
            }
        }
    }

    /// Names, members and elements: what upstream counts as one thing with its parts.
    fn is_path(&self, id: NodeId) -> bool {
        matches!(
            self.nodes[id.0 as usize],
            Node::Variable(_)
                | Node::Local(_)
                | Node::Index { .. }
                | Node::Select { access: Access::Get | Access::Optional, .. }
        )
    }

    fn call_any(&mut self, overloads: &[&'static Overload], args: &[Value<'a>]) -> Outcome<'a> {
        match overloads {
            [overload] => self.call(overload, args),
            many => match many.iter().find(|overload| overload.accepts(args)) {
                Some(overload) => self.call(overload, args),
                None => Err(no_overload(many[0], args)),
            },
        }
    }

    fn call(&mut self, overload: &'static Overload, args: &[Value<'a>]) -> Outcome<'a> {
        match (overload.call)(&mut self.meter, args) {
            Ok(result) => {
                self.pay(overload.cost, args, &result)?;
                Ok(result)
            }
            Err(fault) if fault.is_fatal() => Err(fault),
            Err(fault) => {
                self.meter.charge(1)?;
                let unfit = fault == Fault::no_overload() && !overload.accepts(args);
                Err(if unfit { no_overload(overload, args) } else { fault })
            }
        }
    }

    fn pay(&mut self, cost: Cost, args: &[Value<'a>], result: &Value<'a>) -> Result<(), Fault> {
        self.meter.charge(match cost {
            Cost::One => 1,
            other => other.actual(args, result),
        })
    }

    fn select(&mut self, operand: NodeId, member: &'a Member, access: Access) -> Outcome<'a> {
        let found = match self.nodes[operand.0 as usize] {
            Node::Variable(slot) if self.bindings.get(slot).is_none() => {
                self.meter.charge(1)?;
                match self.host.and_then(|host| host.member(slot, &member.name)) {
                    Some(found) => Some(found?),
                    None if access == Access::Get => {
                        return Err(Fault::error(format!("no such key: {}", member.name)));
                    }
                    None => None,
                }
            }
            _ => {
                let value = self.eval(operand)?;
                if !self.is_path(operand) {
                    self.meter.charge(1)?;
                }
                return self.select_from(&value, member, access);
            }
        };
        self.finish_select(found, member, access, false)
    }

    fn select_from(&mut self, value: &Value<'a>, member: &'a Member, access: Access) -> Outcome<'a> {
        let (target, was_optional) = match value {
            Value::Optional(None) => {
                return Ok(match access {
                    Access::Test => Value::Bool(false),
                    _ => Value::Optional(None),
                });
            }
            Value::Optional(Some(inner)) => (&**inner, true),
            other => (other, false),
        };
        let found = match target {
            Value::Map(map) => map.find_named(&member.name, member.plain.as_deref()).transpose()?,
            _ => None,
        };
        self.finish_select(found, member, access, was_optional)
    }

    fn finish_select(
        &mut self,
        found: Option<Value<'a>>,
        member: &'a Member,
        access: Access,
        was_optional: bool,
    ) -> Outcome<'a> {
        if access == Access::Test {
            return Ok(Value::Bool(found.is_some()));
        }
        let optional = access == Access::Optional || was_optional;
        if found.is_some() || !optional {
            self.meter.charge(1)?;
        }
        match (found, optional) {
            (found, true) => Ok(Value::Optional(found.map(Arc::new))),
            (Some(found), false) => Ok(found),
            (None, false) => Err(Fault::error(format!("no such key: {}", member.name))),
        }
    }

    /// `||` for `decisive` true, `&&` for false: the first term that decides does, wherever it stands.
    fn logic(&mut self, terms: &[NodeId], decisive: bool) -> Outcome<'a> {
        let mut problem = None;
        for term in terms {
            match self.eval(*term) {
                Ok(Value::Bool(flag)) if flag == decisive => return Ok(Value::Bool(flag)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => problem = problem.or(Some(Fault::no_overload())),
                Err(fault) if fault.is_fatal() => return Err(fault),
                Err(fault) => problem = problem.or(Some(fault)),
            }
        }
        problem.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn list(&mut self, items: &[(NodeId, bool)]) -> Outcome<'a> {
        self.meter.allocate(items.len() * size_of::<Value<'_>>())?;
        let mut out = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.eval(*item)?;
            match (optional, value) {
                (false, value) => out.push(value),
                (true, Value::Optional(inner)) => out.extend(inner.map(|inner| (*inner).clone())),
                (true, _) => {
                    return Err(Fault::error(
                        "cannot initialize optional list element from non-optional value",
                    ));
                }
            }
        }
        self.meter.charge(LIST_NEW)?;
        Ok(Value::list(out))
    }

    fn map(&mut self, entries: &[(NodeId, NodeId, bool)]) -> Outcome<'a> {
        self.meter.allocate(entries.len() * 2 * size_of::<Value<'_>>())?;
        let mut out = BTreeMap::new();
        for (key, value, optional) in entries {
            let key = self.eval(*key)?;
            let unsupported = || Fault::error(format!("unsupported key type: {}", key.type_name()));
            let key = Key::of(&key).ok_or_else(unsupported)?;
            let value = self.eval(*value)?;
            match (optional, value) {
                (false, value) => {
                    out.insert(key, value);
                }
                (true, Value::Optional(None)) => {}
                (true, Value::Optional(Some(inner))) => {
                    out.insert(key, (*inner).clone());
                }
                (true, _) => {
                    return Err(Fault::error("cannot initialize optional entry from non-optional value"));
                }
            }
        }
        self.meter.charge(MAP_NEW)?;
        Ok(Value::map(out))
    }

    fn made(&mut self, node: &'a MadeNode) -> Outcome<'a> {
        self.meter.allocate(node.fields.len() * (size_of::<Value<'_>>() + 32) + 64)?;
        let mut made = Made::new(&node.name);
        for (name, value, optional) in &node.fields {
            match (optional, self.eval(*value)?) {
                (false, value) => made.set(name, value)?,
                (true, Value::Optional(None)) => made.unset(name),
                (true, Value::Optional(Some(inner))) => made.set(name, (*inner).clone())?,
                (true, other) => {
                    let found = other.type_name();
                    let text =
                        format!("cannot initialize optional entry '{name}' from non-optional value {found}");
                    return Err(Fault::error(text));
                }
            }
        }
        self.meter.charge(STRUCT_NEW)?;
        Ok(Value::opaque(OpaqueValue::Made(made)))
    }

    fn fold(&mut self, fold: &'a FoldNode) -> Outcome<'a> {
        let mut state = State::new(fold.kind);
        match self.eval(fold.range)? {
            Value::List(list) => {
                // One variable is the item; with two, the first is its index.
                for (index, item) in list.iter().enumerate() {
                    let item = item?;
                    let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    if !self.step(fold, &mut state, index, item)? {
                        break;
                    }
                }
            }
            Value::Map(map) => {
                for key in keys(&map, &mut self.meter)? {
                    let value = match fold.second {
                        Some(_) => map.find(&key)?.unwrap_or(Value::Null),
                        None => key.clone(),
                    };
                    if !self.step(fold, &mut state, key, value)? {
                        break;
                    }
                }
            }
            other => {
                let text = format!("got '{}', expected iterable type", other.type_name());
                return Err(Fault::error(text));
            }
        }
        self.meter.charge(if fold.kind == FoldKind::ExistsOne { 2 } else { 1 })?;
        state.result()
    }

    /// One round of a loop; `false` ends it.
    fn step(
        &mut self,
        fold: &'a FoldNode,
        state: &mut State<'a>,
        key: Value<'a>,
        value: Value<'a>,
    ) -> Result<bool, Fault> {
        if let State::Quantifier { decisive, decided: true, .. } = state {
            // The test that ends the loop.
            self.meter.charge(if *decisive { 3 } else { 2 })?;
            return Ok(false);
        }
        match fold.second {
            Some(second) => {
                self.locals[fold.first as usize] = key.clone();
                self.locals[second as usize] = value.clone();
            }
            None => self.locals[fold.first as usize] = value.clone(),
        }
        if let Some(filter) = fold.filter {
            match self.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(true),
                _ => return Err(Fault::no_overload()),
            }
        }
        let body = match fold.body {
            Some(body) => self.eval(body),
            // The item itself, as a loop that names it would have it.
            None => self.meter.charge(1).map(|()| value),
        };
        match state {
            State::Quantifier { decisive, decided, problem } => {
                self.meter.charge(if *decisive { 4 } else { 3 })?;
                match body {
                    Ok(Value::Bool(flag)) if flag == *decisive => {
                        *decided = true;
                    }
                    Ok(Value::Bool(_)) => {}
                    Ok(_) => *problem = problem.take().or(Some(Fault::no_overload())),
                    Err(fault) if fault.is_fatal() => return Err(fault),
                    Err(fault) => *problem = problem.take().or(Some(fault)),
                }
            }
            State::Count(count) => match body? {
                Value::Bool(true) => {
                    self.meter.charge(2)?;
                    *count += 1;
                }
                Value::Bool(false) => {}
                _ => return Err(Fault::no_overload()),
            },
            State::List(items) => {
                let item = body?;
                self.meter.charge(LIST_NEW + 2)?;
                self.meter.allocate(size_of::<Value<'_>>())?;
                items.push(item);
            }
            State::Map(entries) => {
                let made = body?;
                self.meter.charge(if fold.kind == FoldKind::Map { 3 } else { 2 })?;
                if fold.kind == FoldKind::Map {
                    insert(entries, &key, made, &mut self.meter)?;
                } else {
                    let Value::Map(made) = made else { return Err(Fault::no_overload()) };
                    for key in keys(&made, &mut self.meter)? {
                        let value = made.find(&key)?.unwrap_or(Value::Null);
                        insert(entries, &key, value, &mut self.meter)?;
                    }
                }
            }
        }
        Ok(true)
    }
}

/// Upstream names the operator where its left side has no such operator at all, and functions with what they got.
fn no_overload(overload: &Overload, args: &[Value<'_>]) -> Fault {
    let is_number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_));
    let is_time = |value: &Value<'_>| matches!(value, Value::Duration(_) | Value::Timestamp(_));
    let is_text = |value: &Value<'_>| matches!(value, Value::String(_) | Value::Bytes(_));
    let Some(left) = args.first() else { return Fault::no_overload() };
    let known = match overload.function.as_str() {
        "_<_" | "_<=_" | "_>_" | "_>=_" => {
            is_number(left) || is_time(left) || is_text(left) || matches!(left, Value::Bool(_))
        }
        "_+_" => is_number(left) || is_time(left) || is_text(left) || matches!(left, Value::List(_)),
        "_-_" => is_number(left) || is_time(left),
        "_*_" | "_/_" | "-_" => is_number(left),
        "_%_" => matches!(left, Value::Int(_) | Value::Uint(_)),
        "size" => is_text(left) || matches!(left, Value::List(_) | Value::Map(_)),
        "matches" => matches!(left, Value::String(_)),
        "sort" => matches!(left, Value::List(_)),
        "!_" | "_==_" | "_!=_" | "@in" | "startsWith" | "endsWith" | "contains" => true,
        function => {
            let given: Vec<&str> = args.iter().map(Value::type_name).collect();
            return Fault::error(format!("no such overload: {function}({})", given.join(", ")));
        }
    };
    if known {
        Fault::no_overload()
    } else {
        Fault::error(format!("no such overload: {}", overload.function))
    }
}

fn contains<'k>(set: &'k std::collections::BTreeSet<Key<'static>>, key: &Key<'k>) -> bool {
    let set: &std::collections::BTreeSet<Key<'k>> = set;
    set.contains(key)
}

fn keys<'a>(map: &Map<'a>, meter: &mut Meter<'_>) -> Result<Vec<Value<'a>>, Fault> {
    meter.allocate(map.len() * size_of::<Value<'_>>())?;
    Ok(map.keys())
}

fn insert<'a>(
    entries: &mut BTreeMap<Key<'a>, Value<'a>>,
    key: &Value<'a>,
    value: Value<'a>,
    meter: &mut Meter<'_>,
) -> Result<(), Fault> {
    meter.allocate(2 * size_of::<Value<'_>>())?;
    let shown = || crate::library::plain(key);
    let unsupported = || Fault::error(format!("unsupported key type: {}", key.type_name()));
    match entries.entry(Key::of(key).ok_or_else(unsupported)?) {
        std::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert(value);
            Ok(())
        }
        std::collections::btree_map::Entry::Occupied(_) => {
            Err(Fault::error(format!("insert failed: key {} already exists", shown())))
        }
    }
}

/// What a loop has so far.
enum State<'a> {
    /// `exists` looks for a true body, `all` for a false one.
    Quantifier {
        decisive: bool,
        decided: bool,
        problem: Option<Fault>,
    },
    Count(u64),
    List(Vec<Value<'a>>),
    Map(BTreeMap<Key<'a>, Value<'a>>),
}

impl<'a> State<'a> {
    fn new(kind: FoldKind) -> State<'a> {
        match kind {
            FoldKind::All => State::Quantifier { decisive: false, decided: false, problem: None },
            FoldKind::Exists => State::Quantifier { decisive: true, decided: false, problem: None },
            FoldKind::ExistsOne => State::Count(0),
            FoldKind::List => State::List(Vec::new()),
            FoldKind::Map | FoldKind::Entries => State::Map(BTreeMap::new()),
        }
    }

    fn result(self) -> Outcome<'a> {
        match self {
            State::Quantifier { decisive, decided: true, .. } => Ok(Value::Bool(decisive)),
            State::Quantifier { problem: Some(problem), .. } => Err(problem),
            State::Quantifier { decisive, .. } => Ok(Value::Bool(!decisive)),
            State::Count(count) => Ok(Value::Bool(count == 1)),
            State::List(items) => Ok(Value::List(List::Owned(Arc::new(items), None))),
            State::Map(entries) => Ok(Value::map(entries)),
        }
    }
}
