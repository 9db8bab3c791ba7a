//! The tree of an expression: nodes in one arena, pointing at each other by number.
//!
//! Macros have nodes of their own instead of being expanded, so that the tree is never larger than the source. What
//! upstream's expansion would cost is known to `estimate` and `eval`. A child always has a smaller number than its
//! parent, so a pass over the arena needs no recursion.

use std::sync::Arc;

use polder_model::SmolStr;

use crate::source::Position;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExprId(pub u32);

impl ExprId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub position: Position,
    pub kind: ExprKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    Ident(SmolStr),
    Select {
        operand: ExprId,
        field: SmolStr,
        access: Access,
    },
    /// A function or operator; operators have cel-go's names (`_==_`).
    Call {
        target: Option<ExprId>,
        function: SmolStr,
        args: Vec<ExprId>,
    },
    /// All terms of one row of `&&`.
    And(Vec<ExprId>),
    Or(Vec<ExprId>),
    Conditional {
        test: ExprId,
        yes: ExprId,
        no: ExprId,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Struct {
        name: SmolStr,
        fields: Vec<StructField>,
    },
    Fold(Box<Fold>),
    /// `variable` stands for `init` inside `body`: `cel.bind`, and the inner part of `sortBy`.
    Bind {
        variable: SmolStr,
        init: ExprId,
        body: ExprId,
    },
    /// `target.optMap(variable, body)`; `flat` for `optFlatMap`, whose body makes the optional itself.
    OptMap {
        target: ExprId,
        variable: SmolStr,
        body: ExprId,
        flat: bool,
    },
    /// Something broken that was reported.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// `a.b`
    Get,
    /// `has(a.b)`
    Test,
    /// `a.?b`
    Optional,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub value: ExprId,
    pub optional: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub key: ExprId,
    pub value: ExprId,
    pub optional: bool,
}

/// One `name: value` of `Object{name: value}`.
#[derive(Clone, Debug)]
pub(crate) struct StructField {
    pub name: SmolStr,
    pub value: ExprId,
    pub optional: bool,
    /// Of the colon, where problems are shown.
    pub position: Position,
}

/// One of the loops of the language.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub kind: FoldKind,
    pub range: ExprId,
    pub first: SmolStr,
    /// The value, where the first variable is the index or key.
    pub second: Option<SmolStr>,
    /// Only elements that pass take part.
    pub filter: Option<ExprId>,
    /// The predicate or the transformation; none for `filter`, which keeps elements as they are.
    pub body: Option<ExprId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter` and `transformList`.
    List,
    /// `transformMap`: same keys, other values.
    Map,
    /// `transformMapEntry`: the body makes a map of entries.
    Entries,
}

/// A parsed expression.
#[derive(Clone, Debug)]
pub(crate) struct Ast {
    pub exprs: Vec<Expr>,
    pub root: ExprId,
}

impl Ast {
    pub(crate) fn kind(&self, id: ExprId) -> &ExprKind {
        &self.exprs[id.index()].kind
    }

    pub(crate) fn position(&self, id: ExprId) -> Position {
        self.exprs[id.index()].position
    }

    /// Whether a member of a variable is read by its name, anywhere.
    pub(crate) fn selects(&self, variable: &str, member: &str) -> bool {
        self.exprs.iter().any(|expr| match &expr.kind {
            ExprKind::Select { operand, field, .. } => {
                field == member && matches!(self.kind(*operand), ExprKind::Ident(name) if name == variable)
            }
            _ => false,
        })
    }

    /// `a.b.c` as one name, where that is all there is.
    pub(crate) fn qualified_name(&self, id: ExprId) -> Option<String> {
        match self.kind(id) {
            ExprKind::Ident(name) => Some(name.to_string()),
            ExprKind::Select { operand, field, access: Access::Get } => {
                let mut name = self.qualified_name(*operand)?;
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}
