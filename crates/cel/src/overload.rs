//! How functions are declared: one line each, with signature, implementation and cost together.
//!
//! Types in signatures have short names; a capital letter is a type that is found at the call. Checker, estimator and
//! planner read everything they know about a function from here.

use std::collections::HashMap;
use std::sync::LazyLock;

use polder_model::SmolStr;

use crate::cost::Cost;
use crate::library;
use crate::meter::{Meter, Outcome};
use crate::types::{Opaque, Type};
use crate::value::Value;

pub(crate) type Call = for<'a> fn(&mut Meter<'_>, &[Value<'a>]) -> Outcome<'a>;

pub(crate) struct Overload {
    pub function: SmolStr,
    pub id: &'static str,
    /// Called on its first argument.
    pub member: bool,
    pub args: Vec<Type>,
    pub result: Type,
    /// How many letters the signature has.
    pub letters: u32,
    pub call: Call,
    pub cost: Cost,
}

impl std::fmt::Debug for Overload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

/// `string.startsWith(string) -> bool`
pub(crate) fn member(id: &'static str, signature: &str, call: Call, cost: Cost) -> Overload {
    read(id, signature, true, call, cost)
}

/// `sets.contains(list(T), list(T)) -> bool`
pub(crate) fn global(id: &'static str, signature: &str, call: Call, cost: Cost) -> Overload {
    read(id, signature, false, call, cost)
}

fn read(id: &'static str, signature: &str, member: bool, call: Call, cost: Cost) -> Overload {
    let broken = || panic!("the signature of {id} cannot be read: {signature}");
    let (head, result) = signature.rsplit_once(" -> ").unwrap_or_else(broken);
    let open = match member {
        // The receiver may have parentheses of its own.
        true => head.rfind('.').and_then(|dot| head[dot..].find('(').map(|at| dot + at)),
        false => head.find('('),
    };
    let open = open.unwrap_or_else(|| panic!("the signature of {id} cannot be read: {signature}"));
    let mut letters = Vec::new();
    let mut args = Vec::new();
    let mut function = &head[..open];
    if member {
        let (receiver, name) =
            function.rsplit_once('.').unwrap_or_else(|| panic!("{id} is called on nothing"));
        args.push(read_type(receiver, &mut letters));
        function = name;
    }
    let inner = head[open + 1..].strip_suffix(')').unwrap_or_default();
    args.extend(split(inner).into_iter().map(|arg| read_type(arg, &mut letters)));
    let result = read_type(result, &mut letters);
    let letters = u32::try_from(letters.len()).unwrap_or(0);
    Overload { function: function.into(), id, member, args, result, letters, call, cost }
}

/// At commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, char) in text.char_indices() {
        match char {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        out.push(text[start..].trim());
    }
    out
}

fn read_type(text: &str, letters: &mut Vec<char>) -> Type {
    if let Some((outer, inner)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let inner: Vec<Type> = split(inner).into_iter().map(|inner| read_type(inner, letters)).collect();
        return match (outer, inner.as_slice()) {
            ("list", [item]) => Type::list(item.clone()),
            ("map", [key, value]) => Type::map(key.clone(), value.clone()),
            ("optional", [inner]) => Type::optional(inner.clone()),
            ("type", [inner]) => Type::Type(inner.clone().into()),
            _ => panic!("no type is called {text}"),
        };
    }
    match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "url" => Type::Opaque(Opaque::Url),
        "quantity" => Type::Opaque(Opaque::Quantity),
        "ip" => Type::Opaque(Opaque::Ip),
        "cidr" => Type::Opaque(Opaque::Cidr),
        "format" => Type::Opaque(Opaque::Format),
        "semver" => Type::Opaque(Opaque::Semver),
        "authorizer" => Type::Opaque(Opaque::Authorizer),
        "pathCheck" => Type::Opaque(Opaque::PathCheck),
        "groupCheck" => Type::Opaque(Opaque::GroupCheck),
        "resourceCheck" => Type::Opaque(Opaque::ResourceCheck),
        "decision" => Type::Opaque(Opaque::Decision),
        _ => {
            let letter = text.chars().next().filter(char::is_ascii_uppercase);
            let letter = letter.unwrap_or_else(|| panic!("no type is called {text}"));
            let at = letters.iter().position(|known| *known == letter).unwrap_or_else(|| {
                letters.push(letter);
                letters.len() - 1
            });
            Type::Variable(u32::try_from(at).unwrap_or(0))
        }
    }
}

impl Overload {
    /// Whether values fit the signature, as far as their outer type tells.
    pub(crate) fn accepts(&self, args: &[Value<'_>]) -> bool {
        self.args.len() == args.len() && self.args.iter().zip(args).all(|(wanted, value)| fits(wanted, value))
    }
}

fn fits(wanted: &Type, value: &Value<'_>) -> bool {
    match wanted {
        Type::Dyn | Type::Variable(_) => true,
        // An empty list is a list of anything.
        Type::List(item) => match value {
            Value::List(list) => match list.get(0) {
                Some(Ok(first)) => fits(item, &first),
                _ => true,
            },
            _ => false,
        },
        other => other.runtime_name() == value.type_name(),
    }
}

/// All overloads, by function, in the order they are tried.
static FUNCTIONS: LazyLock<HashMap<SmolStr, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<SmolStr, Vec<Overload>> = HashMap::new();
    for overload in library::all() {
        functions.entry(overload.function.clone()).or_default().push(overload);
    }
    functions
});

/// The overloads of a function; `None` when there is no such function.
pub(crate) fn function(name: &str) -> Option<&'static [Overload]> {
    FUNCTIONS.get(name).map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_signatures_readable() {
        let mut ids: Vec<&str> = library::all().iter().map(|overload| overload.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert!(count > 200, "{count}");
    }
}
