//! Label selectors: what was parsed prints as what it means.

use polder_model::Value;
use polder_model::selector::LabelSelector;

pub const WORDS: &[&str] = &[
    "a", "b", "x.io/y", " in ", " notin ", "(", ")", "()", ",", "=", "==", "!=", "!", "<", ">", "1", "-1", " ", "\t", "é",
    "in", "notin", "9223372036854775808", "a-", "_", "{\"matchLabels\":{\"a\":\"b\"}}", "{\"matchExpressions\":[",
    "{\"key\":\"a\",\"operator\":\"In\",\"values\":[\"b\"]}", "]}",
];

const OBJECTS: [&[(&str, &str)]; 5] =
    [&[], &[("a", "b")], &[("a", ""), ("b", "a")], &[("a", "1"), ("x.io/y", "b")], &[("b", "-1"), ("in", "notin")]];

pub fn run(data: &[u8]) {
    let from_json = Value::parse(data).ok().and_then(|value| LabelSelector::from_value(&value).ok());
    if let Some(selector) = from_json {
        assert!(!(selector.is_everything() && selector.is_nothing()));
        if !selector.is_nothing() {
            check(&selector);
        }
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    match LabelSelector::parse(text) {
        Ok(selector) => check(&selector),
        Err(error) => assert!(error.to_string().len() <= 64 * (text.len() + 1024), "a bounded message"),
    }
}

fn check(selector: &LabelSelector) {
    let printed = selector.to_string();
    let again = LabelSelector::parse(&printed).unwrap_or_else(|error| panic!("cannot read {printed:?}: {error}"));
    assert_eq!(again.to_string(), printed);
    assert_eq!(again.is_everything(), selector.is_everything());
    for labels in OBJECTS {
        let lookup = |key: &str| labels.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
        assert_eq!(selector.matches(lookup), again.matches(lookup), "{printed:?} on {labels:?}");
    }
    crate::accepted();
}
