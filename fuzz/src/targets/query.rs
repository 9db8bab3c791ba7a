//! Query strings: what was decoded can be encoded, and decodes to the same.

use std::fmt::Write as _;

use polder_registry::Query;
use polder_registry::context::WriteOptions;
use polder_server::route::{parse_query, percent_decode};

pub const WORDS: &[&str] = &[
    "&", "=", "+", "%", "%20", "%2", "%c3%a9", "%ff", "%00", "watch", "limit=500", "labelSelector=", "a%3Db",
    "dryRun=All", "fieldValidation=Strict", "fieldManager=", "true", "0", "é", ";", "&&", "==",
];

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let pairs = parse_query(text);
    assert!(pairs.len() <= text.matches('&').count() + 1);
    let printed: Vec<String> = pairs.iter().map(|(key, value)| format!("{}={}", encoded(key), encoded(value))).collect();
    assert_eq!(parse_query(&printed.join("&")), pairs);
    for (key, value) in &pairs {
        assert_eq!(percent_decode(&encoded(value)).as_deref(), Some(value.as_str()));
        assert!(value.len() + key.len() <= text.len());
    }

    let query = Query::new(pairs.clone());
    for (key, _) in &pairs {
        assert_eq!(query.get(key), query.all(key).next());
        assert!(!query.flag(key) || query.get(key).is_some());
    }
    if let Ok(options) = WriteOptions::from_query(&query, "CreateOptions") {
        assert!(options.field_manager.is_none_or(|manager| manager.len() <= 128));
        crate::accepted();
    }
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            byte => drop(write!(out, "%{byte:02X}")),
        }
        out
    })
}
