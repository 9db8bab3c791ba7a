//! Calls that are no functions: `has`, the loops, `optMap` and their like.
//!
//! One row per macro: name, number of arguments, whether it is called on something.

use polder_model::SmolStr;

use crate::ast::{Access, ExprId, ExprKind, Fold, FoldKind};
use crate::parser::{Parser, Stop};
use crate::source::Position;

/// The node a macro becomes; `None` when the call is no macro.
pub(crate) fn expand(
    parser: &mut Parser<'_>,
    position: Position,
    target: Option<ExprId>,
    function: &str,
    args: &[ExprId],
) -> Result<Option<ExprId>, Stop> {
    let Some(target) = target else {
        return match (function, args) {
            ("has", [arg]) => has(parser, position, *arg).map(Some),
            _ => Ok(None),
        };
    };
    let kind = match function {
        "all" => FoldKind::All,
        "exists" => FoldKind::Exists,
        "exists_one" | "existsOne" => FoldKind::ExistsOne,
        "map" | "filter" | "transformList" => FoldKind::List,
        "transformMap" => FoldKind::Map,
        "transformMapEntry" => FoldKind::Entries,
        "optMap" | "optFlatMap" if args.len() == 2 => {
            let flat = function == "optFlatMap";
            let Some(variable) = ident(parser, args[0]) else {
                let text = format!("{function}() variable name must be a simple identifier");
                return parser.broken(place(parser, args[0]), text).map(Some);
            };
            let kind = ExprKind::OptMap { target, variable, body: args[1], flat };
            return parser.add(position, kind, &[target, args[1]]).map(Some);
        }
        "sortBy" if args.len() == 2 => return sort_by(parser, position, target, args).map(Some),
        "bind"
            if args.len() == 3 && parser.grammar.bind && ident(parser, target).as_deref() == Some("cel") =>
        {
            let Some(variable) = ident(parser, args[0]) else {
                let text = "cel.bind() variable names must be simple identifiers";
                return parser.broken(place(parser, args[0]), text).map(Some);
            };
            let kind = ExprKind::Bind { variable, init: args[1], body: args[2] };
            return parser.add(position, kind, &[args[1], args[2]]).map(Some);
        }
        _ => return Ok(None),
    };
    // Which arguments are variables, the filter and the body.
    let (variables, filter, body) = match (function, args.len()) {
        // `existsOne` came with the loops of two variables, and has no other form here.
        ("all" | "exists" | "exists_one" | "map", 2) => (1, None, Some(args[1])),
        ("filter", 2) => (1, Some(args[1]), None),
        ("map", 3) => (1, Some(args[1]), Some(args[2])),
        ("all" | "exists" | "exists_one" | "existsOne", 3) => (2, None, Some(args[2])),
        ("transformList" | "transformMap" | "transformMapEntry", 3) => (2, None, Some(args[2])),
        ("transformList" | "transformMap" | "transformMapEntry", 4) => (2, Some(args[2]), Some(args[3])),
        _ => return Ok(None),
    };
    let not_a_name = match function {
        "map" | "filter" => "argument is not an identifier",
        _ => "argument must be a simple name",
    };
    let mut names: Vec<SmolStr> = Vec::new();
    for arg in &args[..variables] {
        let problem = match ident(parser, *arg) {
            None => not_a_name.into(),
            Some(name) if names.contains(&name) => format!("duplicate variable name: {name}"),
            Some(name) if name == "__result__" => "iteration variable overwrites accumulator variable".into(),
            Some(name) => {
                names.push(name);
                continue;
            }
        };
        return parser.broken(place(parser, *arg), problem).map(Some);
    }
    let second = names.get(1).cloned();
    let first = names.swap_remove(0);
    let fold = Fold { kind, range: target, first, second, filter, body };
    let children: Vec<ExprId> = [Some(target), filter, body].into_iter().flatten().collect();
    parser.add(position, ExprKind::Fold(Box::new(fold)), &children).map(Some)
}

fn has(parser: &mut Parser<'_>, position: Position, arg: ExprId) -> Result<ExprId, Stop> {
    match &parser.exprs[arg.index()].kind {
        ExprKind::Select { operand, field, access: Access::Get } => {
            let (operand, field) = (*operand, field.clone());
            parser.add(position, ExprKind::Select { operand, field, access: Access::Test }, &[operand])
        }
        ExprKind::Broken => Ok(arg),
        _ => parser.broken(place(parser, arg), "invalid argument to has() macro"),
    }
}

/// The list is bound to a name nobody can write, its keys are mapped from it, and both go to one function.
fn sort_by(
    parser: &mut Parser<'_>,
    position: Position,
    target: ExprId,
    args: &[ExprId],
) -> Result<ExprId, Stop> {
    const INPUT: &str = "@__sortBy_input__";
    if matches!(
        parser.exprs[target.index()].kind,
        ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }
    ) {
        let text =
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
        return parser.broken(place(parser, target), text);
    }
    let Some(first) = ident(parser, args[0]) else {
        return parser.broken(place(parser, args[0]), "argument is not an identifier");
    };
    if first == "__result__" {
        return parser.broken(place(parser, args[0]), "iteration variable overwrites accumulator variable");
    }
    let input = |parser: &mut Parser<'_>| parser.add(position, ExprKind::Ident(INPUT.into()), &[]);
    let list = input(parser)?;
    let range = input(parser)?;
    let fold = Fold { kind: FoldKind::List, range, first, second: None, filter: None, body: Some(args[1]) };
    let keys = parser.add(position, ExprKind::Fold(Box::new(fold)), &[range, args[1]])?;
    let sorted = parser.call(position, Some(list), "@sortByAssociatedKeys".into(), vec![keys])?;
    parser.add(
        position,
        ExprKind::Bind { variable: INPUT.into(), init: target, body: sorted },
        &[target, sorted],
    )
}

fn ident(parser: &Parser<'_>, arg: ExprId) -> Option<SmolStr> {
    match &parser.exprs[arg.index()].kind {
        ExprKind::Ident(name) => Some(name.clone()),
        _ => None,
    }
}

fn place(parser: &Parser<'_>, arg: ExprId) -> Position {
    parser.exprs[arg.index()].position
}
