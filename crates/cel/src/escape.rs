//! Member names of documents as identifiers, and back: `my-field` is `my__dash__field`.

use crate::parser::is_reserved;

const ESCAPES: [(&str, &str); 4] = [("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")];

/// The identifier for a member; `None` when there is none.
pub fn escape(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(char) = rest.chars().next() {
        if let Some((plain, word)) = ESCAPES.iter().find(|(plain, _)| rest.starts_with(plain)) {
            out.push_str("__");
            out.push_str(word);
            out.push_str("__");
            rest = &rest[plain.len()..];
        } else if char.is_ascii_alphanumeric() || char == '_' {
            out.push(char);
            rest = &rest[1..];
        } else {
            return None;
        }
    }
    Some(out)
}

/// The member an identifier stands for; `None` for escapes that mean nothing.
pub fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("__") {
        // `__x__` is an escape only where something without underscores stands between.
        let inner = &rest[at + 2..];
        let len = inner.find('_').filter(|len| *len > 0 && inner[*len..].starts_with("__"));
        let Some(len) = len else {
            let step = at + 1;
            out.push_str(&rest[..step]);
            rest = &rest[step..];
            continue;
        };
        let word = &inner[..len];
        out.push_str(&rest[..at]);
        match ESCAPES.iter().find(|(_, escape)| *escape == word) {
            Some((plain, _)) => out.push_str(plain),
            None if is_reserved(word) && name.len() == word.len() + 4 => out.push_str(word),
            None => return None,
        }
        rest = &inner[len + 2..];
    }
    out.push_str(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let rows = [
            ("a", "a"),
            ("my_field", "my_field"),
            ("a__b", "a__underscores__b"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("namespace", "__namespace__"),
            ("_", "_"),
            ("___", "__underscores___"),
            ("____", "__underscores____underscores__"),
            ("for1", "for1"),
        ];
        for (name, escaped) in rows {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
        for name in ["", "1a", "a b", "é", "a$"] {
            assert_eq!(escape(name), None, "{name}");
        }
        assert_eq!(unescape("__what__"), None);
        assert_eq!(unescape("a__in__"), None);
    }
}
