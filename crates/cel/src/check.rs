//! The type checker: finds the type of every node and the overloads each call may mean.
//!
//! Recursion is as deep as the tree, which the parser bounds. Texts of problems are cel-go's.

use std::collections::HashMap;

use polder_model::SmolStr;

use crate::ast::{Access, Ast, ExprId, ExprKind, Fold, FoldKind, Literal, StructField};
use crate::env::Environment;
use crate::made;
use crate::overload::{self, Overload};
use crate::source::{CompileErrors, Position};
use crate::types::Type;
use crate::unify::Unifier;

/// What the checker found out, by node.
pub(crate) struct Checked {
    pub types: Vec<Type>,
    pub meanings: Vec<Meaning>,
}

/// What a name or call stands for.
#[derive(Clone, Debug, Default)]
pub(crate) enum Meaning {
    #[default]
    Nothing,
    /// A variable of the environment.
    Variable(u32),
    /// A variable of a loop or binding, by name.
    Local,
    /// A type used as a value.
    TypeName(&'static str),
    /// The overloads that fit; the target is no argument but part of the function's name when `qualified`.
    Call { overloads: Vec<&'static Overload>, qualified: bool },
}

/// A type with more nodes than this is refused: it is larger than what made it.
const TYPE_NODES_MAX: usize = 2000;

pub(crate) fn check(ast: &Ast, source: &str, env: &Environment) -> Result<Checked, CompileErrors> {
    let count = ast.exprs.len();
    let mut checker = Checker {
        ast,
        env,
        errors: CompileErrors::new(source),
        unifier: Unifier::default(),
        types: vec![Type::Error; count],
        meanings: vec![Meaning::Nothing; count],
        locals: HashMap::new(),
    };
    checker.check(ast.root);
    if checker.unifier.exhausted() {
        checker.errors.add(Position::NOWHERE, "expression is too complex to check");
    }
    if !checker.errors.is_empty() {
        return Err(checker.errors);
    }
    let mut types = std::mem::take(&mut checker.types);
    for found in &mut types {
        *found = checker.unifier.resolve(found, true);
    }
    if checker.unifier.exhausted() {
        checker.errors.add(Position::NOWHERE, "expression is too complex to check");
        return Err(checker.errors);
    }
    Ok(Checked { types, meanings: checker.meanings })
}

struct Checker<'c> {
    ast: &'c Ast,
    env: &'c Environment,
    errors: CompileErrors,
    unifier: Unifier,
    types: Vec<Type>,
    meanings: Vec<Meaning>,
    /// Variables of loops around, the innermost last.
    locals: HashMap<SmolStr, Vec<Type>>,
}

impl Checker<'_> {
    fn check(&mut self, id: ExprId) -> Type {
        let ast = self.ast;
        let found = match ast.kind(id) {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => self.ident(id, name).unwrap_or_else(|| self.undeclared(id, name)),
            ExprKind::Select { operand, field, access } => self.select(id, *operand, field, *access),
            ExprKind::Call { target, function, args } => self.call(id, *target, function, args),
            ExprKind::And(terms) | ExprKind::Or(terms) => {
                for term in terms {
                    let given = self.check(*term);
                    self.expect(*term, &Type::Bool, &given);
                }
                Type::Bool
            }
            ExprKind::Conditional { test, yes, no } => self.conditional(id, *test, *yes, *no),
            ExprKind::List(items) => {
                let mut joined = None;
                for item in items {
                    let given = self.check(item.value);
                    let given = self.present(item.value, given, item.optional);
                    joined = Some(self.join(joined, given));
                }
                let item = joined.unwrap_or_else(|| self.unifier.fresh());
                self.bounded(id, Type::list(item))
            }
            ExprKind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    let key = self.check(entry.key);
                    keys = Some(self.join(keys, key));
                    let given = self.check(entry.value);
                    let given = self.present(entry.value, given, entry.optional);
                    values = Some(self.join(values, given));
                }
                let key = keys.unwrap_or_else(|| self.unifier.fresh());
                let value = values.unwrap_or_else(|| self.unifier.fresh());
                self.bounded(id, Type::map(key, value))
            }
            ExprKind::Struct { name, fields } => match Type::named(name.trim_start_matches('.')) {
                Some(_) => {
                    self.report(id, format!("'{name}' is not a message type"));
                    for field in fields {
                        self.check(field.value);
                    }
                    Type::Error
                }
                None if self.env.makes_objects && made::is_name(name.trim_start_matches('.')) => {
                    self.made(name.trim_start_matches('.').into(), fields)
                }
                None => self.undeclared(id, name),
            },
            ExprKind::Fold(fold) => self.fold(id, fold),
            ExprKind::Bind { variable, init, body } => {
                let given = self.check(*init);
                self.with_local(variable, given, |checker| checker.check(*body))
            }
            ExprKind::OptMap { target, variable, body, flat } => {
                self.opt_map(id, *target, variable, *body, *flat)
            }
            ExprKind::Broken => Type::Error,
        };
        self.types[id.index()] = found.clone();
        found
    }

    /// The type of an object that is made here: any member of any type, and four of a patch.
    fn made(&mut self, name: SmolStr, fields: &[StructField]) -> Type {
        for field in fields {
            let given = self.check(field.value);
            let given = self.present(field.value, given, field.optional);
            let wanted = made::field_type(&name, &field.name);
            let fits = wanted.as_ref().is_some_and(|wanted| self.unifier.assignable(&given, wanted));
            if !fits {
                let given = self.unifier.resolve(&given, true);
                let wanted = wanted.map_or_else(String::new, |wanted| wanted.to_string());
                let text = format!(
                    "expected type of field '{}' is '{wanted}' but provided type is '{given}'",
                    field.name
                );
                self.errors.add(field.position, text);
            }
        }
        Type::Made(name)
    }

    fn ident(&mut self, id: ExprId, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        if let Some(local) = self.locals.get(name).and_then(|types| types.last()) {
            self.meanings[id.index()] = Meaning::Local;
            return Some(local.clone());
        }
        if let Some((slot, declared)) = self.env.variable(name) {
            self.meanings[id.index()] = Meaning::Variable(slot);
            return Some(declared);
        }
        let named = Type::named(name)?;
        self.meanings[id.index()] = Meaning::TypeName(named.runtime_name());
        Some(Type::Type(named.into()))
    }

    fn undeclared(&mut self, id: ExprId, name: &str) -> Type {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        Type::Error
    }

    fn select(&mut self, id: ExprId, operand: ExprId, field: &str, access: Access) -> Type {
        if access == Access::Get
            && let Some(name) = self.ast.qualified_name(id)
            && let Some(found) = self.ident(id, &name)
        {
            return found;
        }
        let given = self.check(operand);
        let given = self.unifier.resolve(&given, false);
        let (target, was_optional) = match &given {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let found = match &target {
            Type::Map(pair) => pair.1.clone(),
            Type::Object(shape) => match shape.field_named(field) {
                Some(field) => field.shape.cel_type(),
                None => {
                    self.report(id, format!("undefined field '{field}'"));
                    Type::Error
                }
            },
            Type::Variable(_) => {
                self.unifier.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Made(name) => made::field_type(name, field).unwrap_or(Type::Dyn),
            // Values without members, in upstream objects that know none.
            Type::Opaque(opaque)
                if !matches!(opaque, crate::types::Opaque::Ip | crate::types::Opaque::Cidr) =>
            {
                self.report(id, format!("undefined field '{field}'"));
                Type::Error
            }
            other => {
                if !other.is_dyn_or_error() {
                    self.report(id, format!("type '{other}' does not support field selection"));
                }
                Type::Dyn
            }
        };
        match access {
            Access::Test => Type::Bool,
            Access::Get if !was_optional => found,
            _ => Type::optional(found),
        }
    }

    fn call(&mut self, id: ExprId, target: Option<ExprId>, function: &str, args: &[ExprId]) -> Type {
        let mut given: Vec<Type> = args.iter().map(|arg| self.check(*arg)).collect();
        let Some(target) = target else {
            let name = function.strip_prefix('.').unwrap_or(function);
            return match self.function(name) {
                Some(overloads) => self.resolve_call(id, name, overloads, false, false, &given),
                None => self.undeclared(id, function),
            };
        };
        // `a.b(c)` is the function `a.b` if there is one.
        if let Some(prefix) = self.ast.qualified_name(target) {
            let name = format!("{}.{function}", prefix.trim_start_matches('.'));
            if let Some(overloads) = self.function(&name) {
                return self.resolve_call(id, &name, overloads, false, true, &given);
            }
        }
        let receiver = self.check(target);
        given.insert(0, receiver);
        match self.function(function) {
            Some(overloads) => self.resolve_call(id, function, overloads, true, false, &given),
            None => self.undeclared(id, function),
        }
    }

    fn function(&self, name: &str) -> Option<&'static [Overload]> {
        let known = self.env.makes_objects || !name.starts_with("jsonpatch.");
        overload::function(name).filter(|_| known)
    }

    fn resolve_call(
        &mut self,
        id: ExprId,
        name: &str,
        overloads: &'static [Overload],
        member: bool,
        qualified: bool,
        given: &[Type],
    ) -> Type {
        let mut fitting: Vec<&'static Overload> = Vec::new();
        let mut result: Option<Type> = None;
        for overload in overloads.iter().filter(|overload| overload.member == member) {
            if overload.args.len() != given.len() {
                continue;
            }
            let first = self.unifier.fresh_row(overload.letters);
            let wanted: Vec<Type> =
                overload.args.iter().map(|arg| Unifier::instantiate(arg, first)).collect();
            if !self.unifier.all_assignable(given, &wanted) {
                continue;
            }
            fitting.push(overload);
            let made = self.unifier.resolve(&Unifier::instantiate(&overload.result, first), false);
            result = Some(match result {
                None => made,
                Some(Type::Dyn) => Type::Dyn,
                Some(known) if self.unifier.exact(&made, &known) => known,
                Some(_) => Type::Dyn,
            });
        }
        let Some(result) = result else {
            self.no_overload(id, name, member, given);
            return Type::Error;
        };
        self.meanings[id.index()] = Meaning::Call { overloads: fitting, qualified };
        result
    }

    fn no_overload(&mut self, id: ExprId, name: &str, member: bool, given: &[Type]) {
        let mut shown: Vec<String> =
            given.iter().map(|given| self.unifier.resolve(given, true).to_string()).collect();
        let receiver = if member { format!("{}.", shown.remove(0)) } else { String::new() };
        let args = shown.join(", ");
        self.report(id, format!("found no matching overload for '{name}' applied to '{receiver}({args})'"));
    }

    fn conditional(&mut self, id: ExprId, test: ExprId, yes: ExprId, no: ExprId) -> Type {
        let given = [self.check(test), self.check(yes), self.check(no)];
        let either = self.unifier.fresh();
        let wanted = [Type::Bool, either.clone(), either.clone()];
        if !self.unifier.all_assignable(&given, &wanted) {
            self.no_overload(id, "_?_:_", false, &given);
            return Type::Error;
        }
        self.unifier.resolve(&either, false)
    }

    /// The type of a value that is left out when it is none.
    fn present(&mut self, id: ExprId, given: Type, optional: bool) -> Type {
        if !optional {
            return given;
        }
        match self.unifier.resolve(&given, false) {
            Type::Optional(inner) => (*inner).clone(),
            other if other.is_dyn_or_error() => other,
            other => {
                let wanted = Type::optional(other.clone());
                self.report(id, format!("expected type '{wanted}' but found '{other}'"));
                other
            }
        }
    }

    fn join(&mut self, joined: Option<Type>, given: Type) -> Type {
        match joined {
            None => given,
            Some(joined) if self.unifier.assignable(&joined, &given) => {
                self.unifier.most_general(&joined, &given)
            }
            // Literals of mixed types are reported by `validate`, where `format` may have them.
            Some(_) => Type::Dyn,
        }
    }

    fn bounded(&mut self, id: ExprId, made: Type) -> Type {
        if nodes(&made, TYPE_NODES_MAX) >= TYPE_NODES_MAX {
            self.report(id, "expression is too complex to check".into());
            return Type::Error;
        }
        made
    }

    fn with_local<T>(&mut self, name: &SmolStr, local: Type, run: impl FnOnce(&mut Self) -> T) -> T {
        self.locals.entry(name.clone()).or_default().push(local);
        let result = run(self);
        if let Some(types) = self.locals.get_mut(name) {
            types.pop();
        }
        result
    }

    fn fold(&mut self, id: ExprId, fold: &Fold) -> Type {
        let range = self.check(fold.range);
        let range = self.unifier.resolve(&range, false);
        let (key, value) = match &range {
            Type::List(item) => (Type::Int, (**item).clone()),
            Type::Map(pair) => (pair.0.clone(), pair.1.clone()),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.unifier.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let text = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(fold.range, text);
                (Type::Error, Type::Error)
            }
        };
        let (first, second) = match &fold.second {
            Some(name) => (key.clone(), Some((name, value))),
            // One variable is the item of a list, and the key of a map.
            None => (if matches!(range, Type::List(_)) { value } else { key.clone() }, None),
        };
        self.with_local(&fold.first, first.clone(), |checker| match second {
            Some((name, value)) => {
                checker.with_local(name, value, |checker| checker.fold_inside(id, fold, &key, &first))
            }
            None => checker.fold_inside(id, fold, &key, &first),
        })
    }

    fn fold_inside(&mut self, id: ExprId, fold: &Fold, key: &Type, first: &Type) -> Type {
        let filter = fold.filter.map(|filter| self.check(filter));
        let body = fold.body.map(|body| self.check(body));
        let filter = filter.filter(|filter| !self.unifier.assignable(filter, &Type::Bool));
        let made = self.fold_result(id, fold, key, first, body);
        if let Some(filter) = filter {
            self.no_overload(id, "_?_:_", false, &[filter, made.clone(), made]);
            return Type::Error;
        }
        made
    }

    fn fold_result(&mut self, id: ExprId, fold: &Fold, key: &Type, first: &Type, body: Option<Type>) -> Type {
        match (fold.kind, body) {
            (FoldKind::All | FoldKind::Exists, Some(given)) => {
                self.expect(fold.body.unwrap_or(fold.range), &Type::Bool, &given);
                Type::Bool
            }
            (FoldKind::ExistsOne, Some(given)) => {
                if !self.unifier.assignable(&given, &Type::Bool) {
                    self.no_overload(id, "_?_:_", false, &[given, Type::Int, Type::Int]);
                }
                Type::Bool
            }
            (FoldKind::List, None) => Type::list(first.clone()),
            (FoldKind::List, Some(made)) => {
                let made = self.unifier.resolve(&made, false);
                self.bounded(fold.range, Type::list(made))
            }
            (FoldKind::Map, Some(made)) => self.bounded(fold.range, Type::map(key.clone(), made)),
            (FoldKind::Entries, Some(made)) => match self.unifier.resolve(&made, false) {
                Type::Map(pair) => Type::Map(pair),
                Type::Dyn | Type::Error => Type::map(Type::Dyn, Type::Dyn),
                other => {
                    let accumulated = Type::map(Type::Dyn, Type::Dyn);
                    self.no_overload(id, "cel.@mapInsert", false, &[accumulated, other]);
                    Type::Error
                }
            },
            _ => Type::Error,
        }
    }

    fn opt_map(&mut self, id: ExprId, target: ExprId, variable: &SmolStr, body: ExprId, flat: bool) -> Type {
        let given = self.check(target);
        let inner = match self.unifier.resolve(&given, false) {
            Type::Optional(inner) => (*inner).clone(),
            other => {
                let inner = self.unifier.fresh();
                if !self.unifier.assignable(&other, &Type::optional(inner.clone())) {
                    self.no_overload(id, "hasValue", true, &[other]);
                    return Type::Error;
                }
                self.unifier.resolve(&inner, false)
            }
        };
        let made = self.with_local(variable, inner, |checker| checker.check(body));
        if !flat {
            return Type::optional(made);
        }
        let inner = self.unifier.fresh();
        let wanted = Type::optional(inner);
        if !self.unifier.assignable(&made, &wanted) {
            self.no_overload(id, "_?_:_", false, &[Type::Bool, made, Type::optional(Type::Dyn)]);
            return Type::Error;
        }
        self.unifier.resolve(&wanted, false)
    }

    fn expect(&mut self, id: ExprId, wanted: &Type, given: &Type) {
        if !self.unifier.assignable(given, wanted) {
            let given = self.unifier.resolve(given, true);
            self.report(id, format!("expected type '{wanted}' but found '{given}'"));
        }
    }

    fn report(&mut self, id: ExprId, text: String) {
        self.errors.add(self.ast.position(id), text);
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// How many nodes a type has, up to a limit.
fn nodes(of: &Type, max: usize) -> usize {
    if max == 0 {
        return 0;
    }
    1 + match of {
        Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => nodes(inner, max - 1),
        Type::Map(pair) => {
            let key = nodes(&pair.0, max - 1);
            key + nodes(&pair.1, (max - 1).saturating_sub(key))
        }
        _ => 0,
    }
}
