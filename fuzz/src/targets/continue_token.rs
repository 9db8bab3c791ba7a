//! Continue tokens: what is accepted stays inside its list, and encodes to a token that means the same.
//!
//! An input that starts with a brace is the JSON inside a token.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use polder_machinery::continue_token::ContinueToken;
use polder_model::json;

use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "{\"v\":\"meta.k8s.io/v1\",\"rv\":5,\"start\":\"a\"}", "\"rv\":", "\"start\":\"", "\"v\":", "meta.k8s.io/v1", "default/web\\u0000",
    "..", "/", "./", "../", "//", "\\u002e", "\\u0000", "-1", "0", "eyJ2Ijoi", "=", "-", "_", "{", "}",
];

pub fn make(random: &mut Random) -> Vec<u8> {
    let start = generate::words(&["a", "/", "default", "..", ".", "\0", "é", "//"], random);
    let revision = *random.pick(&[1, 5, -1, 0, i64::MAX, i64::MIN]);
    json!({"v": "meta.k8s.io/v1", "rv": revision, "start": (String::from_utf8_lossy(&start).into_owned())}).to_vec()
}

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let encoded = text.starts_with('{').then(|| URL_SAFE_NO_PAD.encode(text));
    let Ok(token) = ContinueToken::decode(encoded.as_deref().unwrap_or(text)) else { return };
    assert_ne!(token.revision, 0);
    let steps = token.start.split('/');
    assert!(token.start.is_empty() || steps.into_iter().all(|step| !matches!(step, "" | "." | "..")), "{token:?}");
    // A token never gets longer than its limit by being read and written, but for short escapes of control characters.
    if !token.start.is_empty() && !token.start.contains(['\u{8}', '\u{c}']) {
        assert_eq!(ContinueToken::decode(&token.encode()).as_ref(), Ok(&token));
    }
    let next = ContinueToken::after(&token.start, 7);
    if !token.start.is_empty() && token.start.len() < 1000 {
        assert_eq!(ContinueToken::decode(&next.encode()), Ok(next));
    }
    crate::accepted();
}
