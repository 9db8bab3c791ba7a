//! Cuts source text into tokens. Bounded by the length of the source; the source is bounded by the parser.
//!
//! A token keeps its place in the source and not its text, so that the whole row of tokens stays small.

use crate::source::{CompileErrors, Position};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operator or bracket, as written.
    Mark(&'static str),
    In,
    True,
    False,
    Null,
    Ident,
    /// An identifier in backquotes.
    EscapedIdent,
    Int,
    Uint,
    Float,
    String,
    Bytes,
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// Longer marks first.
const MARKS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!", "?", ":",
    "+", "*", "/", "%",
];

/// All tokens with an end token behind them; what is no token is reported and skipped.
pub(crate) fn tokens(source: &str, errors: &mut CompileErrors) -> Vec<Token> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(char) = source[at..].chars().next() {
        let rest = &source[at..];
        if matches!(char, ' ' | '\t' | '\r' | '\n' | '\u{c}') {
            at += 1;
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if let Some((kind, len)) = token(rest) {
            out.push(Token { kind, start: at, end: at + len });
            at += len;
        } else {
            let len = stray_len(rest);
            errors.add(
                Position::at(at),
                format!("Syntax error: token recognition error at: '{}'", &rest[..len]),
            );
            if errors.is_full() {
                break;
            }
            at += len;
        }
    }
    out.push(Token { kind: Kind::End, start: source.len(), end: source.len() });
    out
}

/// How much of the source one complaint covers: an unclosed string takes the rest of its line.
fn stray_len(rest: &str) -> usize {
    let body = rest.trim_start_matches(['b', 'B', 'r', 'R']);
    if body.starts_with(['"', '\'']) {
        return rest.find('\n').map_or(rest.len(), |at| at + 1);
    }
    let first = rest.chars().next().map_or(0, char::len_utf8);
    // A lone `|`, `&` or `=` is half an operator: the generated lexer of upstream names the next letter too.
    match rest.as_bytes() {
        [b'|' | b'&' | b'=', ..] => first + rest[first..].chars().next().map_or(0, char::len_utf8),
        _ => first,
    }
}

fn token(rest: &str) -> Option<(Kind, usize)> {
    if let Some(found) = text_literal(rest) {
        return Some(found);
    }
    let first = rest.as_bytes()[0];
    if first.is_ascii_alphabetic() || first == b'_' {
        let len = rest.bytes().take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count();
        let kind = match &rest[..len] {
            "in" => Kind::In,
            "true" => Kind::True,
            "false" => Kind::False,
            "null" => Kind::Null,
            _ => Kind::Ident,
        };
        return Some((kind, len));
    }
    let dot_number = first == b'.' && rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if first.is_ascii_digit() || dot_number {
        return Some(number(rest));
    }
    if first == b'`' {
        let inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-/ ".contains(byte);
        let len = rest.bytes().skip(1).take_while(inner).count();
        return (len > 0 && rest.as_bytes().get(len + 1) == Some(&b'`'))
            .then_some((Kind::EscapedIdent, len + 2));
    }
    MARKS.iter().find(|mark| rest.starts_with(**mark)).map(|mark| (Kind::Mark(mark), mark.len()))
}

fn number(rest: &str) -> (Kind, usize) {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let unsigned = |len: usize, kind: Kind| match bytes.get(len) {
        Some(b'u' | b'U') => (Kind::Uint, len + 1),
        _ => (kind, len),
    };
    if rest.starts_with("0x") {
        let hex = bytes[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if hex > 0 {
            return unsigned(2 + hex, Kind::Int);
        }
    }
    let whole = digits(0);
    let mut len = whole;
    if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
        len += 1 + digits(len + 1);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let exponent = bytes.get(len + 1 + sign..).map_or(0, |_| digits(len + 1 + sign));
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    if len == whole { unsigned(len, Kind::Int) } else { (Kind::Float, len) }
}

/// A string or bytes literal with its prefix and quotes.
fn text_literal(rest: &str) -> Option<(Kind, usize)> {
    let bytes = rest.as_bytes();
    let mut at = 0;
    let is_bytes = matches!(bytes.first(), Some(b'b' | b'B'));
    at += usize::from(is_bytes);
    let raw = matches!(bytes.get(at), Some(b'r' | b'R'));
    at += usize::from(raw);
    let quote = *bytes.get(at).filter(|byte| matches!(byte, b'"' | b'\''))?;
    let triple = bytes.get(at..at + 3).is_some_and(|three| three.iter().all(|byte| *byte == quote));
    let kind = if is_bytes { Kind::Bytes } else { Kind::String };
    let close: &[u8] = if triple { &[quote; 3] } else { &[quote] };
    at += close.len();
    while at < bytes.len() {
        if bytes[at..].starts_with(close) {
            return Some((kind, at + close.len()));
        }
        match bytes[at] {
            b'\\' if !raw => at += escape_len(&bytes[at..])?,
            b'\n' | b'\r' if !triple => break,
            _ => at += 1,
        }
    }
    // `""` followed by something unclosed is still an empty string.
    (triple).then_some((kind, at_of_empty(is_bytes, raw)))
}

fn at_of_empty(is_bytes: bool, raw: bool) -> usize {
    usize::from(is_bytes) + usize::from(raw) + 2
}

/// The length of an escape sequence, if it is one.
fn escape_len(bytes: &[u8]) -> Option<usize> {
    let hex = |count: usize| {
        let digits = bytes.get(2..2 + count)?;
        digits.iter().all(u8::is_ascii_hexdigit).then_some(2 + count)
    };
    match bytes.get(1)? {
        b'a' | b'b' | b'f' | b'n' | b'r' | b't' | b'v' | b'"' | b'\'' | b'\\' | b'?' | b'`' => Some(2),
        b'x' | b'X' => hex(2),
        b'u' => hex(4),
        b'U' => hex(8),
        b'0'..=b'3' => {
            let digits = bytes.get(2..4)?;
            digits.iter().all(|byte| matches!(byte, b'0'..=b'7')).then_some(4)
        }
        _ => None,
    }
}
