//! Checks after the type check: literals that can only fail at run time, and literals of mixed types.

use crate::ast::{Ast, ExprId, ExprKind, Literal};
use crate::check::Checked;
use crate::library::formatting::{self, Piece};
use crate::re2;
use crate::source::CompileErrors;
use crate::time;
use crate::types::Type;

pub(crate) fn validate(
    ast: &Ast,
    checked: &Checked,
    source: &str,
    regexes: &mut re2::Patterns,
) -> Result<(), CompileErrors> {
    let mut errors = CompileErrors::new(source);
    let exempt = inside_format(ast);
    for (at, expr) in ast.exprs.iter().enumerate() {
        match &expr.kind {
            ExprKind::Call { target: None, function, args } if args.len() == 1 => {
                let ExprKind::Literal(literal) = ast.kind(args[0]) else { continue };
                let broken = match (function.as_str(), literal) {
                    ("duration", Literal::String(text)) => time::parse_duration(text).is_none(),
                    ("timestamp", Literal::String(text)) => time::parse_timestamp(text).is_none(),
                    ("duration", Literal::Int(_)) => true,
                    ("timestamp", Literal::Int(seconds)) => time::Timestamp::new(*seconds, 0).is_none(),
                    _ => false,
                };
                if broken {
                    errors.add(ast.position(args[0]), format!("invalid {function} argument"));
                }
            }
            ExprKind::Call { target: Some(_), function, args }
                if function == "matches" && args.len() == 1 =>
            {
                // What is too much together is reported by the planner.
                let pattern = string(ast, args[0]).map(|pattern| regexes.compile(pattern));
                if let Some(Err(re2::Problem::Pattern(_))) = pattern {
                    errors.add(ast.position(args[0]), "invalid matches argument");
                }
            }
            ExprKind::Call { target: Some(target), function, args }
                if function == "format" && args.len() == 1 =>
            {
                check_format(
                    ast,
                    checked,
                    ExprId(u32::try_from(at).unwrap_or(0)),
                    *target,
                    args[0],
                    &mut errors,
                );
            }
            ExprKind::List(items) if !exempt[at] => {
                let mut first: Option<&Type> = None;
                for item in items {
                    let given = unwrapped(&checked.types[item.value.index()], item.optional);
                    match first {
                        Some(first) if !same(first, given) => {
                            mismatch(&mut errors, ast, item.value, first, given);
                            break;
                        }
                        _ => first = first.or(Some(given)),
                    }
                }
            }
            ExprKind::Map(entries) if !exempt[at] => {
                let mut first: Option<(&Type, &Type)> = None;
                for entry in entries {
                    let key = &checked.types[entry.key.index()];
                    let value = unwrapped(&checked.types[entry.value.index()], entry.optional);
                    let Some((first_key, first_value)) = first else {
                        first = Some((key, value));
                        continue;
                    };
                    if !same(first_key, key) {
                        mismatch(&mut errors, ast, entry.key, first_key, key);
                    }
                    if !same(first_value, value) {
                        mismatch(&mut errors, ast, entry.value, first_value, value);
                    }
                }
            }
            _ => {}
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn mismatch(errors: &mut CompileErrors, ast: &Ast, id: ExprId, wanted: &Type, given: &Type) {
    errors.add(ast.position(id), format!("expected type '{wanted}' but found '{given}'"));
}

fn string(ast: &Ast, id: ExprId) -> Option<&str> {
    match ast.kind(id) {
        ExprKind::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}

fn unwrapped(given: &Type, optional: bool) -> &Type {
    match given {
        Type::Optional(inner) if optional => inner,
        other => other,
    }
}

/// Equal types; names are compared as they print, which bounds the comparison.
fn same(one: &Type, two: &Type) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(two) && one.to_string() == two.to_string()
}

/// Which nodes stand somewhere inside the arguments of `format`: parents come after their children.
fn inside_format(ast: &Ast) -> Vec<bool> {
    let mut inside = vec![false; ast.exprs.len()];
    for (at, expr) in ast.exprs.iter().enumerate().rev() {
        let mark = inside[at];
        let is_format = matches!(&expr.kind, ExprKind::Call { function, .. } if function == "format");
        if mark || is_format {
            for child in children(&expr.kind) {
                inside[child.index()] = true;
            }
        }
    }
    inside
}

fn children(kind: &ExprKind) -> Vec<ExprId> {
    match kind {
        ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::Broken => Vec::new(),
        ExprKind::Select { operand, .. } => vec![*operand],
        ExprKind::Call { target, args, .. } => target.iter().chain(args).copied().collect(),
        ExprKind::And(terms) | ExprKind::Or(terms) => terms.clone(),
        ExprKind::Conditional { test, yes, no } => vec![*test, *yes, *no],
        ExprKind::List(items) => items.iter().map(|item| item.value).collect(),
        ExprKind::Map(entries) => entries.iter().flat_map(|entry| [entry.key, entry.value]).collect(),
        ExprKind::Struct { fields, .. } => fields.iter().map(|field| field.value).collect(),
        ExprKind::Fold(fold) => [Some(fold.range), fold.filter, fold.body].into_iter().flatten().collect(),
        ExprKind::Bind { init, body, .. } => vec![*init, *body],
        ExprKind::OptMap { target, body, .. } => vec![*target, *body],
    }
}

fn check_format(
    ast: &Ast,
    checked: &Checked,
    call: ExprId,
    target: ExprId,
    list: ExprId,
    errors: &mut CompileErrors,
) {
    let (Some(text), ExprKind::List(items)) = (string(ast, target), ast.kind(list)) else { return };
    let pieces = match formatting::pieces(text) {
        Ok(pieces) => pieces,
        Err(problem) => return errors.add(ast.position(call), problem),
    };
    let mut next = 0;
    for piece in pieces {
        let Piece::Clause { verb, .. } = piece else { continue };
        let Some(item) = items.get(next) else {
            return errors.add(ast.position(call), format!("index {next} out of range"));
        };
        next += 1;
        if let Some(problem) = formatting::type_problem(verb, &checked.types[item.value.index()]) {
            return errors.add(ast.position(item.value), problem);
        }
    }
    if items.len() > next {
        let got = items.len();
        let text = format!("too many arguments supplied to string.format (expected {next}, got {got})");
        errors.add(ast.position(call), text);
    }
}
