//! YAML bodies: what is accepted is a JSON document, and YAML answers read as what they say.

use polder_model::Value;

use super::json_value::check_canonical;
use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "a: ", "- ", "\n", "  ", "b: |\n", ">-\n", "&x ", "*x", "<<: ", "!!str ", "!!int ", "!!binary ", "? ", ": ", "{", "}",
    "[", "]", ",", "---\n", "...", "yes", "on", "~", "null", "1_000", "0x1f", "0o17", "010", ".inf", ".nan", "1e3", "'",
    "\"", "\\x41", "#", "%YAML 1.1\n", "\t", "2024-01-01",
];

const TEXTS: &[&str] = &[
    "a", "yes", "no", "on", "~", "null", "1", "1e3", "0x1f", "0o17", ".5", "-", "- a", "a: b", "a #b", " a", "a ", "\n", "a\nb\n",
    "#", "!x", "&x", "*x", "|", ">", "'", "\"", "%", "@", "`", "\t", "\u{0}", "\u{85}", "\u{2028}", "\u{feff}", "é", "=", "<<", "---", "1_0",
    "2024-01-01", "12:30:45", "", "\\", "{", "]", ",", "?", "? a", ":", "true", "False", ".nan", "+1", "0b1", "-0", "a\r\nb",
];

pub fn make(random: &mut Random) -> Vec<u8> {
    generate::json(TEXTS, 4, random).to_vec()
}

pub fn run(data: &[u8]) {
    // Answers: any JSON document, written as YAML.
    if let Ok(value) = Value::parse(data) {
        let printed = serde_saphyr::to_string(&value).unwrap_or_else(|error| panic!("cannot print {value}: {error}"));
        let again: Value = serde_saphyr::from_str(&printed)
            .unwrap_or_else(|error| panic!("cannot read the YAML of {value} again: {error}\n{printed}"));
        assert_eq!(again.to_string(), value.to_string(), "as YAML:\n{printed}");
    }
    // Bodies.
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(value) = serde_saphyr::from_str::<Value>(text) else { return };
    check_canonical(&value);
    crate::accepted();
}
