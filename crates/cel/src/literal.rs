//! What literals mean: numbers, strings and bytes with their escapes.

use crate::ast::Literal;

/// An integer, with its sign in front if it has one.
pub(crate) fn int(text: &str, negative: bool) -> Option<Literal> {
    let sign = if negative { "-" } else { "" };
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16),
        None => format!("{sign}{text}").parse(),
    };
    parsed.ok().map(Literal::Int)
}

pub(crate) fn uint(text: &str) -> Option<Literal> {
    let text = text.trim_end_matches(['u', 'U']);
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.ok().map(Literal::Uint)
}

pub(crate) fn double(text: &str, negative: bool) -> Option<Literal> {
    let number: f64 = text.parse().ok()?;
    number.is_finite().then_some(Literal::Double(if negative { -number } else { number }))
}

pub(crate) fn string(text: &str) -> Result<Literal, &'static str> {
    let bytes = unescape(text, false)?;
    String::from_utf8(bytes)
        .map(|text| Literal::String(text.into()))
        .map_err(|_| "invalid unicode code point")
}

pub(crate) fn bytes(text: &str) -> Result<Literal, &'static str> {
    unescape(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into()))
}

/// Without quotes and escapes. The lexer has checked the shape of both.
fn unescape(text: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    const BROKEN: &str = "unable to unescape string";
    let normal = text.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match normal.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, normal.as_str()),
    };
    let quotes =
        if quoted.len() >= 6 && (quoted.starts_with("\"\"\"") || quoted.starts_with("'''")) { 3 } else { 1 };
    let inner = quoted.get(quotes..quoted.len().saturating_sub(quotes)).ok_or(BROKEN)?;
    if raw || !inner.contains('\\') {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let letter = *rest.as_bytes().get(at + 1).ok_or(BROKEN)?;
        let after = &rest[at + 2..];
        let digits = |count: usize, radix: u32, from: &str| {
            let digits = from.get(..count).ok_or(BROKEN)?;
            u32::from_str_radix(digits, radix).map_err(|_| BROKEN)
        };
        let (code, len) = match letter {
            b'a' => (7, 0),
            b'b' => (8, 0),
            b'f' => (12, 0),
            b'n' => (10, 0),
            b'r' => (13, 0),
            b't' => (9, 0),
            b'v' => (11, 0),
            b'\\' | b'\'' | b'"' | b'`' | b'?' => (u32::from(letter), 0),
            b'x' | b'X' => (digits(2, 16, after)?, 2),
            b'u' if !is_bytes => (digits(4, 16, after)?, 4),
            b'U' if !is_bytes => (digits(8, 16, after)?, 8),
            b'0'..=b'3' => (digits(3, 8, &rest[at + 1..])?, 2),
            _ => return Err(BROKEN),
        };
        if is_bytes {
            out.push(u8::try_from(code).map_err(|_| BROKEN)?);
        } else {
            let char = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = &after[len..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}
