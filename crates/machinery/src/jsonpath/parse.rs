//! The text of a path, read from left to right as upstream reads it; errors are its words.

use polder_model::{SmolStr, Value};

use super::{Filter, Operand, Operator, Slice, SliceEnd, Step};

/// What stands between braces; a closing brace ends it.
pub(super) fn steps(text: &str) -> Result<Vec<Step>, String> {
    let steps = parts(text)?.into_iter().map(|part| match part {
        Part::Step(step) => step,
        // A literal is no place in the document.
        Part::Literal(_) => Step::Fails,
    });
    Ok(steps.collect())
}

enum Part {
    Step(Step),
    Literal(Value),
}

fn operand(text: &str) -> Result<Operand, String> {
    let mut steps = Vec::new();
    let mut parts = parts(text)?;
    if let [Part::Literal(_)] = parts.as_slice()
        && let Some(Part::Literal(value)) = parts.pop()
    {
        return Ok(Operand::Literal(value));
    }
    for part in parts {
        steps.push(match part {
            Part::Step(step) => step,
            Part::Literal(_) => Step::Fails,
        });
    }
    Ok(Operand::Path(steps))
}

fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("[?(") {
            let (filter, after) = filter(&rest[3..])?;
            parts.push(Part::Step(filter));
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("..") {
            if let Some(Part::Step(Step::Descend)) = parts.last() {
                return Err("invalid multiple recursive descent".into());
            }
            parts.push(Part::Step(Step::Descend));
            rest = after;
            if rest.starts_with(is_word) {
                rest = member(rest, &mut parts);
            }
            continue;
        }
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '}' => break,
            ' ' | '@' | '$' => after,
            '\r' | '\n' => return Err("unclosed action".into()),
            '[' => brackets(after, &mut parts)?,
            '"' | '\'' => {
                let (text, after) = quoted(after, first)?;
                parts.push(Part::Literal(Value::String(text)));
                after
            }
            '.' => member(after, &mut parts),
            '+' | '-' => number(rest, &mut parts)?,
            digit if digit.is_numeric() => number(rest, &mut parts)?,
            word if is_word(word) => {
                let (word, after) = rest.split_at(rest.find(is_terminator).unwrap_or(rest.len()));
                parts.push(match word {
                    "true" => Part::Literal(Value::Bool(true)),
                    "false" => Part::Literal(Value::Bool(false)),
                    _ => Part::Step(Step::Fails),
                });
                after
            }
            other => {
                return Err(format!(
                    "unrecognized character in action: U+{:04X} '{other}'",
                    u32::from(other)
                ));
            }
        };
    }
    Ok(parts)
}

fn is_word(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}

fn is_terminator(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

/// A name up to the next character that ends one; a backslash takes its meaning from the next character.
fn member<'t>(text: &'t str, parts: &mut Vec<Part>) -> &'t str {
    let mut escaped = false;
    let end = text.find(|character| {
        let ends = !escaped && is_terminator(character);
        escaped = !escaped && character == '\\';
        ends
    });
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    parts.push(Part::Step(match name {
        "*" => Step::Wildcard,
        name => Step::Member(name.replace('\\', "").into()),
    }));
    rest
}

/// `0]`, `1:3]`, `*]`, `'key']`, `0,2]`.
fn brackets<'t>(text: &'t str, parts: &mut Vec<Part>) -> Result<&'t str, String> {
    let end = text.find([']', '\n']).filter(|end| text.as_bytes()[*end] == b']');
    let (inner, rest) = end.map(|end| (&text[..end], &text[end + 1..])).ok_or("unterminated array")?;
    if inner.contains(',') {
        let mut paths = Vec::new();
        for part in inner.split(',') {
            let mut path = Vec::new();
            bracket(part.trim_matches(' '), &mut path)?;
            paths.push(
                path.into_iter()
                    .map(|part| if let Part::Step(step) = part { step } else { Step::Fails })
                    .collect(),
            );
        }
        parts.push(Part::Step(Step::Union(paths)));
    } else {
        bracket(inner, parts)?;
    }
    Ok(rest)
}

fn bracket(inner: &str, parts: &mut Vec<Part>) -> Result<(), String> {
    let key = inner.strip_prefix('\'').and_then(|inner| inner.strip_suffix('\''));
    if let Some(key) = key.filter(|key| !key.contains('\'')) {
        // A quoted key is read as a path of its own: dots in it want a backslash.
        let mut rest = member(key, parts);
        while let Some(after) = rest.strip_prefix('.') {
            rest = member(after, parts);
        }
        if !rest.is_empty() {
            parts.extend(self::parts(rest)?);
        }
        return Ok(());
    }
    parts.push(Part::Step(Step::Slice(slice(if inner == "*" { ":" } else { inner })?)));
    Ok(())
}

fn slice(text: &str) -> Result<Slice, String> {
    let fields: Vec<&str> = text.split(':').collect();
    let well_formed =
        |field: &&str| field.strip_prefix('-').unwrap_or(field).bytes().all(|byte| byte.is_ascii_digit());
    if fields.len() > 3 || !fields.iter().all(well_formed) {
        return Err(format!("invalid array index {text}"));
    }
    let number = |field: &str| match field {
        "" => Ok(None),
        field => field.parse().map(Some).map_err(|_| format!("array index {field} is not a number")),
    };
    Ok(Slice {
        start: number(fields[0])?,
        end: match fields.get(1) {
            None => SliceEnd::AfterStart,
            Some(field) => number(field)?.map_or(SliceEnd::Open, SliceEnd::At),
        },
        step: number(fields.get(2).unwrap_or(&""))?,
    })
}

/// What follows `[?(`.
fn filter(text: &str) -> Result<(Step, &str), String> {
    let mut quote: Option<char> = None;
    let mut closed = false;
    let mut before = ' ';
    let mut end = None;
    for (at, character) in text.char_indices() {
        match character {
            '\n' => break,
            '"' | '\'' => match quote {
                None => quote = Some(character),
                Some(open) => closed |= open == character && before != '\\',
            },
            ')' if quote.is_some() == closed => {
                end = Some(at);
                break;
            }
            _ => {}
        }
        before = character;
    }
    let end = end.ok_or("unterminated filter")?;
    let rest = text[end + 1..].strip_prefix(']').ok_or("unclosed array expect ]")?;
    let text = &text[..end];
    let is_operator = |character: char| matches!(character, '!' | '<' | '>' | '=');
    let Some(at) = text.find(is_operator).filter(|at| *at > 0 && *at + 1 < text.len()) else {
        return Ok((Step::Filter(Box::new(Filter { left: operand(text)?, compare: None })), rest));
    };
    let (left, right) = text.split_at(at);
    let (operator, right) =
        right.split_at(right.find(|character| !is_operator(character)).unwrap_or(right.len()));
    if right.is_empty() {
        return Err("unrecognized character in action: U+003D '='".into());
    }
    let operator = match operator {
        "==" => Operator::Equal,
        "!=" => Operator::NotEqual,
        "<" => Operator::Less,
        "<=" => Operator::LessOrEqual,
        ">" => Operator::Greater,
        ">=" => Operator::GreaterOrEqual,
        _ => Operator::Unknown,
    };
    let compare = Some((operator, operand(right)?));
    Ok((Step::Filter(Box::new(Filter { left: operand(left)?, compare })), rest))
}

fn number<'t>(text: &'t str, parts: &mut Vec<Part>) -> Result<&'t str, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let len =
        digits.find(|character: char| character != '.' && !character.is_numeric()).unwrap_or(digits.len());
    let (number, rest) = text.split_at(text.len() - digits.len() + len);
    let value = number.parse().map(Value::Int).or_else(|_| number.parse().map(Value::Float));
    parts.push(Part::Literal(value.map_err(|_| format!("cannot parse number {number}"))?));
    Ok(rest)
}

/// What follows an opening quote, up to the closing one.
fn quoted(text: &str, quote: char) -> Result<(SmolStr, &str), String> {
    let mut out = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '\n' => break,
            end if end == quote => return Ok((out.into(), &text[at + 1..])),
            '\\' => match characters.next().map(|(_, escaped)| escaped) {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some('r') => out.push('\r'),
                Some('\\') => out.push('\\'),
                Some(escaped) if escaped == quote => out.push(quote),
                _ => return Err(format!("unquote string {quote}{text} error invalid syntax")),
            },
            other => out.push(other),
        }
    }
    Err("unterminated quoted string".into())
}
