//! From tokens to a tree, by precedence climbing. Stops at the first syntax error it cannot step over.
//!
//! Bounds: the source has a limit in characters, the tree one in depth, and nothing here recurses deeper than the
//! tree. Whoever walks the tree may therefore recurse. Texts of errors are those of upstream's generated parser
//! where one token tells what is wrong.

use polder_model::{SmolStr, format_smolstr};

use crate::ast::{Access, Ast, Entry, Expr, ExprId, ExprKind, Item, Literal, StructField};
use crate::lexer::{self, Kind, Token};
use crate::literal;
use crate::macros;
use crate::source::{CompileErrors, Position};

/// Longer expressions are refused, as upstream does.
const SOURCE_CHARS_MAX: usize = 100_000;
/// Deeper trees are refused, as upstream does.
const DEPTH_MAX: u32 = 250;
/// Loops in loops count for more: nobody can pay for many of them anyway.
const LOOP_WEIGHT: u32 = 4;

/// Names that are words of the language, though the grammar has no use for them. Members may have them.
const RESERVED: [&str; 17] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether the name is reserved, words with a meaning of their own included.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || matches!(name, "true" | "false" | "null" | "in")
}

/// What of the grammar is on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grammar {
    /// `cel.bind(x, init, body)`: not in Kubernetes.
    pub bind: bool,
}

pub(crate) fn parse(source: &str, grammar: Grammar) -> Result<Ast, CompileErrors> {
    let mut errors = CompileErrors::new(source);
    let count = source.chars().count();
    if count > SOURCE_CHARS_MAX {
        let text =
            format!("expression code point size exceeds limit: size: {count}, limit {SOURCE_CHARS_MAX}");
        errors.add(Position::NOWHERE, text);
        return Err(errors);
    }
    let tokens = lexer::tokens(source, &mut errors);
    let exprs = Vec::with_capacity(tokens.len());
    let mut parser =
        Parser { source, grammar, tokens, next: 0, exprs, depths: Vec::new(), nesting: 0, errors };
    let root = parser.whole();
    match root {
        Ok(root) if parser.errors.is_empty() => Ok(Ast { exprs: parser.exprs, root }),
        _ => Err(parser.errors),
    }
}

/// A problem was reported and there is no way on.
pub(crate) struct Stop;

pub(crate) struct Parser<'s> {
    source: &'s str,
    pub(crate) grammar: Grammar,
    tokens: Vec<Token>,
    next: usize,
    pub(crate) exprs: Vec<Expr>,
    depths: Vec<u32>,
    nesting: u32,
    errors: CompileErrors,
}

/// What may stand where an expression is expected, with the marks that may stand there too.
fn expected(also: &[&str]) -> String {
    const STARTS: [(&str, bool); 13] = [
        ("'['", true),
        ("']'", false),
        ("'{'", true),
        ("'}'", false),
        ("'('", true),
        ("')'", false),
        ("'.'", true),
        ("','", false),
        ("'-'", true),
        ("'!'", true),
        ("'?'", false),
        ("'true'", true),
        ("'false'", true),
    ];
    let marks = STARTS.iter().filter(|(mark, always)| *always || also.contains(&mark.trim_matches('\'')));
    let marks: Vec<&str> = marks.map(|(mark, _)| *mark).collect();
    format!("{{{}, 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}}", marks.join(", "))
}

/// Binary operators from weak to strong, `&&` and `||` apart.
fn binary(kind: Kind) -> Option<(u8, &'static str)> {
    Some(match kind {
        Kind::Mark("<") => (1, "_<_"),
        Kind::Mark("<=") => (1, "_<=_"),
        Kind::Mark(">=") => (1, "_>=_"),
        Kind::Mark(">") => (1, "_>_"),
        Kind::Mark("==") => (1, "_==_"),
        Kind::Mark("!=") => (1, "_!=_"),
        Kind::In => (1, "@in"),
        Kind::Mark("+") => (2, "_+_"),
        Kind::Mark("-") => (2, "_-_"),
        Kind::Mark("*") => (3, "_*_"),
        Kind::Mark("/") => (3, "_/_"),
        Kind::Mark("%") => (3, "_%_"),
        _ => return None,
    })
}

impl<'s> Parser<'s> {
    fn whole(&mut self) -> Result<ExprId, Stop> {
        let root = self.expr(&[])?;
        let token = self.peek();
        if token.kind == Kind::End {
            return Ok(root);
        }
        let at_end = self.tokens.get(self.next + 1).is_none_or(|token| token.kind == Kind::End);
        let what = if at_end { "extraneous" } else { "mismatched" };
        Err(self.syntax(token, &format!("{what} input '{}' expecting <EOF>", self.text(token))))
    }

    fn expr(&mut self, also: &[&str]) -> Result<ExprId, Stop> {
        self.nesting += 1;
        if self.nesting > DEPTH_MAX {
            return Err(self.too_deep());
        }
        let test = self.or(also)?;
        let question = self.peek();
        let expr = if self.take("?") {
            let yes = self.or(&[])?;
            self.expect(":")?;
            let no = self.expr(&[])?;
            self.add(Position::at(question.start), ExprKind::Conditional { test, yes, no }, &[test, yes, no])?
        } else {
            test
        };
        self.nesting -= 1;
        Ok(expr)
    }

    fn or(&mut self, also: &[&str]) -> Result<ExprId, Stop> {
        self.row("||", also, |parser, also| parser.row("&&", also, |parser, also| parser.binary(1, also)))
    }

    /// Terms between equal logical operators: one node, however many.
    fn row(
        &mut self,
        mark: &'static str,
        also: &[&str],
        mut term: impl FnMut(&mut Self, &[&str]) -> Result<ExprId, Stop>,
    ) -> Result<ExprId, Stop> {
        let first = term(self, also)?;
        let position = Position::at(self.peek().start);
        let mut terms = vec![first];
        while self.take(mark) {
            terms.push(term(self, &[])?);
        }
        if terms.len() == 1 {
            return Ok(first);
        }
        let children = terms.clone();
        let kind = if mark == "||" { ExprKind::Or(terms) } else { ExprKind::And(terms) };
        self.add(position, kind, &children)
    }

    fn binary(&mut self, weakest: u8, also: &[&str]) -> Result<ExprId, Stop> {
        let mut left = self.unary(also)?;
        loop {
            let token = self.peek();
            let Some((strength, function)) = binary(token.kind).filter(|(strength, _)| *strength >= weakest)
            else {
                return Ok(left);
            };
            self.next += 1;
            let right = self.binary(strength + 1, &[])?;
            left = self.call(Position::at(token.start), None, function.into(), vec![left, right])?;
        }
    }

    fn unary(&mut self, also: &[&str]) -> Result<ExprId, Stop> {
        let first = self.peek();
        for (mark, function) in [("!", "!_"), ("-", "-_")] {
            let count =
                self.tokens[self.next..].iter().take_while(|token| token.kind == Kind::Mark(mark)).count();
            let number = self.tokens.get(self.next + count).map(|token| token.kind);
            // One minus before a number is part of it.
            let is_sign = mark == "-" && count == 1 && matches!(number, Some(Kind::Int | Kind::Float));
            if count > 0 && !is_sign {
                self.next += count;
                let odd = count % 2 == 1;
                let operand = self.member(&[])?;
                if !odd {
                    return Ok(operand);
                }
                return self.call(Position::at(first.start), None, function.into(), vec![operand]);
            }
        }
        self.member(also)
    }

    fn member(&mut self, also: &[&str]) -> Result<ExprId, Stop> {
        let parenthesized = self.peek().kind == Kind::Mark("(");
        let mut operand = self.primary(also)?;
        let mut is_name = !parenthesized;
        loop {
            let token = self.peek();
            let position = Position::at(token.start);
            match token.kind {
                Kind::Mark(".") => {
                    self.next += 1;
                    let optional = self.take("?");
                    let name = self.peek();
                    let field = self.member_name()?;
                    let open = self.peek();
                    if !optional && name.kind == Kind::Ident && self.take("(") {
                        let args = self.args()?;
                        operand = self.call_or_macro(Position::at(open.start), Some(operand), field, args)?;
                        is_name = false;
                    } else {
                        let access = if optional { Access::Optional } else { Access::Get };
                        operand =
                            self.add(position, ExprKind::Select { operand, field, access }, &[operand])?;
                        is_name &= !optional;
                    }
                }
                Kind::Mark("[") => {
                    self.next += 1;
                    let function = if self.take("?") { "_[?_]" } else { "_[_]" };
                    let index = self.expr(&[])?;
                    self.expect("]")?;
                    operand = self.call(position, None, function.into(), vec![operand, index])?;
                    is_name = false;
                }
                Kind::Mark("{") if is_name && self.name_of(operand).is_some() => {
                    let name = self.name_of(operand).unwrap_or_default();
                    self.next += 1;
                    operand = self.struct_literal(position, name.into())?;
                    is_name = false;
                }
                _ => return Ok(operand),
            }
        }
    }

    fn name_of(&self, id: ExprId) -> Option<String> {
        let mut parts = Vec::new();
        let mut id = id;
        loop {
            match &self.exprs[id.index()].kind {
                ExprKind::Ident(name) => {
                    parts.push(name.as_str());
                    parts.reverse();
                    return Some(parts.join("."));
                }
                ExprKind::Select { operand, field, access: Access::Get } => {
                    parts.push(field);
                    id = *operand;
                }
                _ => return None,
            }
        }
    }

    fn member_name(&mut self) -> Result<SmolStr, Stop> {
        let token = self.peek();
        let text = self.text(token);
        match token.kind {
            Kind::Ident => {
                let name = SmolStr::new(text);
                self.next += 1;
                Ok(name)
            }
            Kind::EscapedIdent => Err(self.report(token, "unsupported syntax: '`'")),
            Kind::True | Kind::False | Kind::Null => {
                Err(self.syntax(token, &format!("mismatched input '{text}' expecting IDENTIFIER")))
            }
            Kind::End => Err(self.syntax(token, "no viable alternative at input '.'")),
            _ => Err(self.syntax(token, &format!("no viable alternative at input '.{text}'"))),
        }
    }

    fn primary(&mut self, also: &[&str]) -> Result<ExprId, Stop> {
        let mut token = self.peek();
        if !self.starts_expr(token) {
            let after = self.tokens.get(self.next + 1).copied();
            let text = self.text(token);
            if token.kind == Kind::End || !after.is_some_and(|after| self.starts_expr(after)) {
                let text = format!("mismatched input '{text}' expecting {}", expected(also));
                return Err(self.syntax(token, &text));
            }
            // One token too many: say so, and go on behind it to report what else there is.
            let _reported =
                self.syntax(token, &format!("extraneous input '{text}' expecting {}", expected(also)));
            self.next += 1;
            token = self.peek();
        }
        let position = Position::at(token.start);
        let text = self.text(token);
        self.next += 1;
        let literal = match token.kind {
            Kind::Mark("(") => {
                let inner = self.expr(&[])?;
                self.expect(")")?;
                return Ok(inner);
            }
            Kind::Mark("[") => return self.list(position),
            Kind::Mark("{") => return self.map(position),
            Kind::Mark(".") => {
                let name = self.peek();
                if name.kind != Kind::Ident {
                    let text = format!("mismatched input '{}' expecting IDENTIFIER", self.text(name));
                    return Err(self.syntax(name, &text));
                }
                self.next += 1;
                return self.ident(name, true);
            }
            Kind::Ident => return self.ident(token, false),
            Kind::Mark("-") => {
                let number = self.peek();
                let text = self.text(number);
                self.next += 1;
                match number.kind {
                    Kind::Int => literal::int(text, true).ok_or("invalid int literal"),
                    _ => literal::double(text, true).ok_or("invalid double literal"),
                }
            }
            Kind::Int => literal::int(text, false).ok_or("invalid int literal"),
            Kind::Uint => literal::uint(text).ok_or("invalid uint literal"),
            Kind::Float => literal::double(text, false).ok_or("invalid double literal"),
            Kind::String => literal::string(text),
            Kind::Bytes => literal::bytes(text),
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        match literal {
            Ok(literal) => self.add(position, ExprKind::Literal(literal), &[]),
            Err(problem) => {
                self.errors.add(position, problem);
                self.add(position, ExprKind::Broken, &[])
            }
        }
    }

    fn starts_expr(&self, token: Token) -> bool {
        match token.kind {
            Kind::Mark(mark) => matches!(mark, "[" | "{" | "(" | "." | "-" | "!"),
            Kind::In | Kind::End | Kind::EscapedIdent => false,
            _ => true,
        }
    }

    fn ident(&mut self, token: Token, absolute: bool) -> Result<ExprId, Stop> {
        let name = self.text(token);
        let position = Position::at(token.start);
        if RESERVED.contains(&name) {
            let text = format!("reserved identifier: {name}");
            self.errors.add(position, text);
            // The arguments of a call are read all the same.
            if self.take("(") {
                self.args()?;
            }
            return self.add(position, ExprKind::Broken, &[]);
        }
        let name = if absolute { format_smolstr!(".{name}") } else { SmolStr::new(name) };
        let open = self.peek();
        if self.take("(") {
            let args = self.args()?;
            return self.call_or_macro(Position::at(open.start), None, name, args);
        }
        self.add(position, ExprKind::Ident(name), &[])
    }

    /// Arguments and the closing parenthesis.
    fn args(&mut self) -> Result<Vec<ExprId>, Stop> {
        let mut args = Vec::new();
        if self.take(")") {
            return Ok(args);
        }
        loop {
            let also: &[&str] = if args.is_empty() { &[")"] } else { &[] };
            args.push(self.expr(also)?);
            if !self.take(",") {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn list(&mut self, position: Position) -> Result<ExprId, Stop> {
        let mut items = Vec::new();
        loop {
            if self.closes("]", items.is_empty()) {
                break;
            }
            let optional = self.take("?");
            items.push(Item { value: self.expr(&["]", ",", "?"])?, optional });
            if !self.take(",") {
                self.expect_in("]", true)?;
                break;
            }
        }
        let children: Vec<ExprId> = items.iter().map(|item| item.value).collect();
        self.add(position, ExprKind::List(items), &children)
    }

    fn map(&mut self, position: Position) -> Result<ExprId, Stop> {
        let mut entries = Vec::new();
        loop {
            if self.closes("}", entries.is_empty()) {
                break;
            }
            let optional = self.take("?");
            let key = self.expr(&["}", ",", "?"])?;
            self.expect(":")?;
            entries.push(Entry { key, value: self.expr(&[])?, optional });
            if !self.take(",") {
                self.expect_in("}", true)?;
                break;
            }
        }
        let children: Vec<ExprId> = entries.iter().flat_map(|entry| [entry.key, entry.value]).collect();
        self.add(position, ExprKind::Map(entries), &children)
    }

    fn struct_literal(&mut self, position: Position, name: SmolStr) -> Result<ExprId, Stop> {
        let mut fields = Vec::new();
        loop {
            if self.closes("}", fields.is_empty()) {
                break;
            }
            let optional = self.take("?");
            let name = self.member_name()?;
            let position = Position::at(self.peek().start);
            self.expect(":")?;
            fields.push(StructField { name, value: self.expr(&[])?, optional, position });
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        let children: Vec<ExprId> = fields.iter().map(|field| field.value).collect();
        self.add(position, ExprKind::Struct { name, fields }, &children)
    }

    /// A closing bracket here, also behind a trailing comma.
    fn closes(&mut self, mark: &'static str, empty: bool) -> bool {
        if empty && self.peek().kind == Kind::Mark(",") {
            let next = self.tokens.get(self.next + 1).map(|token| token.kind);
            if next == Some(Kind::Mark(mark)) {
                self.next += 1;
            }
        }
        self.take(mark)
    }

    fn call_or_macro(
        &mut self,
        position: Position,
        target: Option<ExprId>,
        function: SmolStr,
        args: Vec<ExprId>,
    ) -> Result<ExprId, Stop> {
        match macros::expand(self, position, target, &function, &args)? {
            Some(expr) => Ok(expr),
            None => self.call(position, target, function, args),
        }
    }

    pub(crate) fn call(
        &mut self,
        position: Position,
        target: Option<ExprId>,
        function: SmolStr,
        args: Vec<ExprId>,
    ) -> Result<ExprId, Stop> {
        let children: Vec<ExprId> = target.into_iter().chain(args.iter().copied()).collect();
        self.add(position, ExprKind::Call { target, function, args }, &children)
    }

    pub(crate) fn add(
        &mut self,
        position: Position,
        kind: ExprKind,
        children: &[ExprId],
    ) -> Result<ExprId, Stop> {
        // A loop takes more of the stack than other nodes when it runs.
        let weight = if matches!(kind, ExprKind::Fold(_)) { LOOP_WEIGHT } else { 1 };
        let depth = children.iter().map(|child| self.depths[child.index()]).max().unwrap_or(0) + weight;
        if depth > DEPTH_MAX {
            return Err(self.too_deep());
        }
        let id = ExprId(u32::try_from(self.exprs.len()).map_err(|_| Stop)?);
        self.exprs.push(Expr { position, kind });
        self.depths.push(depth);
        Ok(id)
    }

    /// Reports a problem that does not keep the rest from being read.
    pub(crate) fn broken(&mut self, position: Position, text: impl Into<String>) -> Result<ExprId, Stop> {
        self.errors.add(position, text);
        self.add(position, ExprKind::Broken, &[])
    }

    fn too_deep(&mut self) -> Stop {
        self.errors.add(Position::NOWHERE, format!("expression recursion limit exceeded: {DEPTH_MAX}"));
        Stop
    }

    fn peek(&self) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[self.next.min(last)]
    }

    fn take(&mut self, mark: &'static str) -> bool {
        let found = self.peek().kind == Kind::Mark(mark);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, mark: &'static str) -> Result<(), Stop> {
        self.expect_in(mark, false)
    }

    /// A closing mark, where another item could stand too.
    fn expect_in(&mut self, mark: &'static str, listed: bool) -> Result<(), Stop> {
        if self.take(mark) {
            return Ok(());
        }
        let token = self.peek();
        let text = self.text(token);
        let wanted = match mark {
            "]" | "}" if listed => format!("{{'{mark}', ','}}"),
            _ => format!("'{mark}'"),
        };
        let after = self.tokens.get(self.next + 1).map(|token| token.kind);
        match token.kind {
            Kind::End if mark == ")" => Err(self.syntax(token, "missing ')' at '<EOF>'")),
            Kind::End => Err(self.syntax(token, &format!("mismatched input '<EOF>' expecting {wanted}"))),
            // One token too many: say so, and go on behind it.
            _ if after == Some(Kind::Mark(mark)) => {
                let _reported = self.syntax(token, &format!("extraneous input '{text}' expecting {wanted}"));
                self.next += 2;
                Ok(())
            }
            _ => Err(self.syntax(token, &format!("mismatched input '{text}' expecting {wanted}"))),
        }
    }

    fn text(&self, token: Token) -> &'s str {
        if token.kind == Kind::End { "<EOF>" } else { &self.source[token.start..token.end] }
    }

    fn syntax(&mut self, token: Token, text: &str) -> Stop {
        self.report(token, &format!("Syntax error: {text}"))
    }

    fn report(&mut self, token: Token, text: &str) -> Stop {
        self.errors.add(Position::at(token.start), text);
        Stop
    }
}
