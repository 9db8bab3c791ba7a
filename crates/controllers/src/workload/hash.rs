//! Short hashes that become parts of names and labels: stable, and of the form upstream's have.

use polder_model::Value;

/// Letters and digits that cannot spell a word.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A hash of some values, and of how often it collided with another's before.
pub(crate) fn of(value: &Value, collisions: Option<i64>) -> String {
    let mut bytes = value.to_vec();
    if let Some(collisions) = collisions {
        bytes.extend_from_slice(&collisions.to_le_bytes());
    }
    safe(&fnv(&bytes).to_string())
}

/// A text in letters that cannot spell a word.
pub(crate) fn safe(text: &str) -> String {
    text.bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// FNV-1a in 32 bits.
pub(crate) fn fnv(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn hashes_are_stable_and_collisions_change_them() {
        let value = json!({"a": 1});
        assert_eq!(fnv(b"foobar"), 0xbf9c_f968);
        assert_eq!(of(&value, None), of(&json!({"a": 1}), None));
        assert_ne!(of(&value, None), of(&json!({"a": 2}), None));
        assert_ne!(of(&value, Some(1)), of(&value, Some(2)));
        assert!(of(&value, None).bytes().all(|byte| ALPHABET.contains(&byte)));
    }
}
