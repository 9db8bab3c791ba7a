//! What an error may repeat of a value or a text from outside: a bounded piece.

use std::borrow::Cow;

use polder_model::Value;

/// Larger values are not repeated in an error: more elements than this, or more text in all of them.
const SHOWN_NODES_MAX: usize = 1000;
pub(super) const SHOWN_BYTES_MAX: usize = 4096;

/// What may be shown of a value in an error.
pub(crate) fn shown(value: &Value) -> Value {
    /// What is left to show.
    struct Left {
        nodes: usize,
        bytes: usize,
    }
    impl Left {
        fn takes(&mut self, text: &str) -> bool {
            let left = self.bytes.checked_sub(text.len());
            self.bytes = left.unwrap_or_default();
            left.is_some()
        }
        fn shows(&mut self, value: &Value) -> bool {
            self.nodes = self.nodes.saturating_sub(1);
            self.nodes > 0
                && match value {
                    Value::String(text) => self.takes(text),
                    Value::Array(items) => items.iter().all(|item| self.shows(item)),
                    Value::Object(object) => {
                        object.iter().all(|(key, value)| self.takes(key) && self.shows(value))
                    }
                    _ => true,
                }
        }
    }
    match value {
        Value::String(text) => Value::from(clipped(text).as_ref()),
        value if (Left { nodes: SHOWN_NODES_MAX, bytes: SHOWN_BYTES_MAX }).shows(value) => value.clone(),
        _ => Value::from("(too large to show)"),
    }
}

pub(super) fn clipped(text: &str) -> Cow<'_, str> {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.into();
    }
    let end = (0..=SHOWN_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}...", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_values_are_bounded() {
        assert_eq!(shown(&Value::from("x".repeat(5000))).as_str().unwrap().len(), SHOWN_BYTES_MAX + 3);
        assert_eq!(shown(&Value::Array(vec![Value::Null; 2000])), Value::from("(too large to show)"));
        let texts = Value::Array(vec![Value::from("x".repeat(1000)); 10]);
        let keys = Value::Object([("x".repeat(5000).into(), Value::Null)].into_iter().collect());
        for large in [texts, keys] {
            assert_eq!(shown(&large), Value::from("(too large to show)"));
        }
    }
}
