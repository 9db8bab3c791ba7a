//! The form of an expression that runs: names are numbers, constants are made, patterns are compiled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use polder_model::SmolStr;
use regex::Regex;

use crate::ast::{Access, Ast, ExprId, ExprKind, Fold, FoldKind, Literal};
use crate::check::{Checked, Meaning};
use crate::cost::Range;
use crate::escape;
use crate::meter::{Budget, Meter};
use crate::overload::Overload;
use crate::program::Program;
use crate::re2;
use crate::value::{Key, Text, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(pub u32);

#[derive(Debug)]
pub(crate) enum Node {
    Const(Value<'static>),
    Variable(u32),
    Local(u32),
    Select {
        operand: NodeId,
        member: Member,
        access: Access,
    },
    And(Box<[NodeId]>),
    Or(Box<[NodeId]>),
    Conditional {
        test: NodeId,
        yes: NodeId,
        no: NodeId,
    },
    Call {
        overloads: Box<[&'static Overload]>,
        args: Box<[NodeId]>,
    },
    /// A call with one overload and two arguments: most operators.
    Binary {
        overload: &'static Overload,
        left: NodeId,
        right: NodeId,
    },
    Index {
        overload: &'static Overload,
        container: NodeId,
        key: NodeId,
    },
    /// A call with a pattern that is known.
    Regex {
        overload: &'static Overload,
        regex: Box<Regex>,
        args: Box<[NodeId]>,
    },
    /// Membership in a list of constants.
    InSet {
        value: NodeId,
        set: BTreeSet<Key<'static>>,
    },
    /// `or` and `orValue`: the other side is looked at only when there is nothing on this.
    OrElse {
        left: NodeId,
        right: NodeId,
        unwrap: bool,
    },
    List(Box<[(NodeId, bool)]>),
    Map(Box<[(NodeId, NodeId, bool)]>),
    Made(Box<MadeNode>),
    Fold(Box<FoldNode>),
    Bind {
        slot: u32,
        init: NodeId,
        body: NodeId,
    },
    OptMap {
        target: NodeId,
        slot: u32,
        body: NodeId,
        flat: bool,
    },
}

/// The name of a member in expressions, and in documents with known members.
#[derive(Debug)]
pub(crate) struct Member {
    pub name: SmolStr,
    pub plain: Option<SmolStr>,
}

#[derive(Debug)]
pub(crate) struct MadeNode {
    pub name: SmolStr,
    /// Name, value, and whether it is left out when it is none.
    pub fields: Box<[(SmolStr, NodeId, bool)]>,
}

#[derive(Debug)]
pub(crate) struct FoldNode {
    pub kind: FoldKind,
    pub range: NodeId,
    pub first: u32,
    pub second: Option<u32>,
    pub filter: Option<NodeId>,
    pub body: Option<NodeId>,
}

pub(crate) fn plan(
    ast: &Ast,
    checked: &Checked,
    estimate: Range,
    regexes: re2::Patterns,
) -> Result<Program, String> {
    let mut planner = Planner {
        ast,
        checked,
        nodes: Vec::with_capacity(ast.exprs.len()),
        locals: HashMap::new(),
        depth: 0,
        depth_max: 0,
        variables: BTreeSet::new(),
        regexes,
    };
    let root = planner.plan(ast.root)?;
    planner.nodes.shrink_to_fit();
    let nodes_bytes: usize = planner.nodes.iter().map(node_bytes).sum();
    Ok(Program {
        root,
        locals: planner.depth_max as usize,
        result: checked.types[ast.root.index()].clone(),
        estimate,
        variables: planner.variables.into_iter().collect(),
        memory_bytes: size_of::<Program>() + nodes_bytes + planner.regexes.used(),
        nodes: planner.nodes,
    })
}

fn node_bytes(node: &Node) -> usize {
    let more = match node {
        Node::Const(Value::String(text)) => text.len() + 16,
        Node::Const(Value::List(list)) => list.len() * size_of::<Value<'_>>(),
        Node::Const(Value::Map(map)) => map.len() * 2 * size_of::<Value<'_>>(),
        Node::Const(Value::Bytes(bytes)) => bytes.len(),
        Node::And(ids) | Node::Or(ids) => ids.len() * 4,
        Node::Call { overloads, args } => overloads.len() * 8 + args.len() * 4,
        Node::Regex { args, .. } => args.len() * 4 + size_of::<Regex>(),
        Node::InSet { set, .. } => set.len() * 64,
        Node::List(items) => items.len() * 8,
        Node::Map(entries) => entries.len() * 12,
        Node::Fold(_) => size_of::<FoldNode>(),
        Node::Made(made) => size_of::<MadeNode>() + made.fields.len() * size_of::<(SmolStr, NodeId, bool)>(),
        _ => 0,
    };
    size_of::<Node>() + more
}

struct Planner<'p> {
    ast: &'p Ast,
    checked: &'p Checked,
    nodes: Vec<Node>,
    locals: HashMap<SmolStr, Vec<u32>>,
    depth: u32,
    depth_max: u32,
    variables: BTreeSet<u32>,
    regexes: re2::Patterns,
}

impl Planner<'_> {
    fn add(&mut self, node: Node) -> NodeId {
        // The arena of the tree has numbers of this size too.
        let id = NodeId(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX));
        self.nodes.push(node);
        id
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn constant(&self, id: NodeId) -> Option<&Value<'static>> {
        match self.node(id) {
            Node::Const(value) => Some(value),
            _ => None,
        }
    }

    fn plan(&mut self, id: ExprId) -> Result<NodeId, String> {
        let ast = self.ast;
        let node = match ast.kind(id) {
            ExprKind::Literal(literal) => Node::Const(literal_value(literal)),
            ExprKind::Ident(name) => self.name(id, name),
            ExprKind::Select { operand, field, access } => {
                if matches!(self.checked.meanings[id.index()], Meaning::Variable(_) | Meaning::TypeName(_)) {
                    self.name(id, field)
                } else {
                    let operand = self.plan(*operand)?;
                    let plain = escape::unescape(field).map(SmolStr::from);
                    Node::Select { operand, member: Member { name: field.clone(), plain }, access: *access }
                }
            }
            ExprKind::Call { target, args, .. } => return self.call(id, *target, args),
            ExprKind::And(terms) => Node::And(self.plan_all(terms)?),
            ExprKind::Or(terms) => Node::Or(self.plan_all(terms)?),
            ExprKind::Conditional { test, yes, no } => {
                Node::Conditional { test: self.plan(*test)?, yes: self.plan(*yes)?, no: self.plan(*no)? }
            }
            ExprKind::List(items) => {
                let mut planned = Vec::with_capacity(items.len());
                for item in items {
                    planned.push((self.plan(item.value)?, item.optional));
                }
                let constants = planned.iter().map(|(id, optional)| match optional {
                    true => None,
                    false => self.constant(*id).cloned(),
                });
                match constants.collect::<Option<Vec<_>>>() {
                    Some(constants) => Node::Const(Value::list(constants)),
                    None => Node::List(planned.into()),
                }
            }
            ExprKind::Map(entries) => {
                let mut planned = Vec::with_capacity(entries.len());
                for entry in entries {
                    planned.push((self.plan(entry.key)?, self.plan(entry.value)?, entry.optional));
                }
                let constants = planned.iter().map(|(key, value, optional)| {
                    let key = Key::of(self.constant(*key)?).filter(|_| !*optional)?;
                    Some((key, self.constant(*value)?.clone()))
                });
                match constants.collect::<Option<_>>() {
                    Some(constants) => Node::Const(Value::map(constants)),
                    None => Node::Map(planned.into()),
                }
            }
            ExprKind::Fold(fold) => self.fold(fold)?,
            ExprKind::Bind { variable, init, body } => {
                let init = self.plan(*init)?;
                let (slot, body) =
                    self.with_local(variable, |planner, slot| Ok((slot, planner.plan(*body)?)))?;
                Node::Bind { slot, init, body }
            }
            ExprKind::OptMap { target, variable, body, flat } => {
                let target = self.plan(*target)?;
                let (slot, body) =
                    self.with_local(variable, |planner, slot| Ok((slot, planner.plan(*body)?)))?;
                Node::OptMap { target, slot, body, flat: *flat }
            }
            ExprKind::Struct { name, fields } => {
                let mut planned = Vec::with_capacity(fields.len());
                for field in fields {
                    planned.push((field.name.clone(), self.plan(field.value)?, field.optional));
                }
                let name = name.trim_start_matches('.').into();
                Node::Made(Box::new(MadeNode { name, fields: planned.into() }))
            }
            ExprKind::Broken => return Err("unsupported expression".into()),
        };
        Ok(self.add(node))
    }

    fn plan_all(&mut self, ids: &[ExprId]) -> Result<Box<[NodeId]>, String> {
        ids.iter().map(|id| self.plan(*id)).collect()
    }

    fn name(&mut self, id: ExprId, name: &SmolStr) -> Node {
        match &self.checked.meanings[id.index()] {
            Meaning::Variable(slot) => {
                self.variables.insert(*slot);
                Node::Variable(*slot)
            }
            Meaning::TypeName(name) => Node::Const(Value::Type(name)),
            _ => {
                let name = name.strip_prefix('.').unwrap_or(name);
                Node::Local(self.locals.get(name).and_then(|slots| slots.last()).copied().unwrap_or(0))
            }
        }
    }

    fn with_local<T>(
        &mut self,
        name: &SmolStr,
        run: impl FnOnce(&mut Self, u32) -> Result<T, String>,
    ) -> Result<T, String> {
        let slot = self.depth;
        self.depth += 1;
        self.depth_max = self.depth_max.max(self.depth);
        self.locals.entry(name.clone()).or_default().push(slot);
        let result = run(self, slot);
        if let Some(slots) = self.locals.get_mut(name) {
            slots.pop();
        }
        self.depth -= 1;
        result
    }

    fn fold(&mut self, fold: &Fold) -> Result<Node, String> {
        let range = self.plan(fold.range)?;
        let inside = |planner: &mut Self, first: u32, second: Option<u32>| {
            let filter = fold.filter.map(|filter| planner.plan(filter)).transpose()?;
            let body = fold.body.map(|body| planner.plan(body)).transpose()?;
            Ok(Node::Fold(Box::new(FoldNode { kind: fold.kind, range, first, second, filter, body })))
        };
        self.with_local(&fold.first, |planner, first| match &fold.second {
            None => inside(planner, first, None),
            Some(name) => planner.with_local(name, |planner, second| inside(planner, first, Some(second))),
        })
    }

    fn call(&mut self, id: ExprId, target: Option<ExprId>, args: &[ExprId]) -> Result<NodeId, String> {
        let Meaning::Call { overloads, qualified } = &self.checked.meanings[id.index()] else {
            return Err("unsupported expression".into());
        };
        let target = target.filter(|_| !*qualified);
        let operands: Vec<ExprId> = target.into_iter().chain(args.iter().copied()).collect();
        let args = self.plan_all(&operands)?;
        let node = match (overloads.as_slice(), &*args) {
            ([overload], _) if overload.id == "optional_or_optional" => {
                Node::OrElse { left: args[0], right: args[1], unwrap: false }
            }
            ([overload], _) if overload.id == "optional_orValue_value" => {
                Node::OrElse { left: args[0], right: args[1], unwrap: true }
            }
            ([overload], [value, list]) if overload.id == "in_list" => match self.constant_set(*list) {
                Some(set) if set.is_empty() => Node::Const(Value::Bool(false)),
                Some(set) => Node::InSet { value: *value, set },
                None => Node::Binary { overload, left: *value, right: *list },
            },
            // Whatever the types turn out to be, looking up is one function.
            ([overload, ..], [container, key]) if matches!(overload.function.as_str(), "_[_]" | "_[?_]") => {
                Node::Index { overload, container: *container, key: *key }
            }
            ([overload], _) if matches!(overload.function.as_str(), "matches" | "find" | "findAll") => {
                match self.pattern(args[1])? {
                    Some(regex) => Node::Regex { overload, regex, args },
                    None => Node::Call { overloads: [*overload].into(), args },
                }
            }
            (overloads, [arg]) if is_conversion(&overloads[0].function) && self.constant(*arg).is_some() => {
                let value = self.constant(*arg).cloned().unwrap_or(Value::Null);
                let fitting =
                    overloads.iter().find(|overload| overload.accepts(std::slice::from_ref(&value)));
                let mut meter = Meter::new(Budget::default());
                let made = match fitting {
                    Some(overload) => {
                        (overload.call)(&mut meter, &[value]).map_err(|fault| fault.to_string())?
                    }
                    None => return Err("no such overload".into()),
                };
                Node::Const(made)
            }
            ([overload], [left, right]) => Node::Binary { overload, left: *left, right: *right },
            (overloads, _) => Node::Call { overloads: overloads.into(), args },
        };
        Ok(self.add(node))
    }

    /// The elements of a constant list, where all can be keys.
    fn constant_set(&self, list: NodeId) -> Option<BTreeSet<Key<'static>>> {
        let Some(Value::List(list)) = self.constant(list) else { return None };
        list.iter()
            .map(|item| match item.ok()? {
                Value::Double(_) => None,
                item => Key::of(&item),
            })
            .collect()
    }

    fn pattern(&mut self, id: NodeId) -> Result<Option<Box<Regex>>, String> {
        let Some(Value::String(pattern)) = self.constant(id) else { return Ok(None) };
        let pattern = pattern.to_string();
        match self.regexes.compile(&pattern) {
            Ok(regex) => Ok(Some(Box::new(regex))),
            Err(re2::Problem::Pattern(problem)) => Err(problem),
            Err(re2::Problem::Exhausted) => {
                Err("the patterns of the expressions are too large together".into())
            }
        }
    }
}

fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}

fn literal_value(literal: &Literal) -> Value<'static> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(flag) => Value::Bool(*flag),
        Literal::Int(number) => Value::Int(*number),
        Literal::Uint(number) => Value::Uint(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::String(text) => Value::String(Text::Shared(Arc::clone(text))),
        Literal::Bytes(bytes) => Value::Bytes(Arc::clone(bytes)),
    }
}
