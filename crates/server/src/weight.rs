//! What a document takes in memory once it is parsed, and how many that take much are worked on at one time.
//!
//! Text grows when it is parsed: two bytes (`1,`) become a value, of which there are several while a write is on its way
//! (what was, what is asked for, what will be). Nobody is given room for the worst that can be sent, so the few
//! documents that are worse than an ordinary request take turns instead.
//!
//! **Invariant.** Who is let in waits for no room: it comes to an end by itself.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::budget::ORDINARY_BYTES;

/// A text, and copies of its strings, weigh together so many times what the text weighs.
pub(crate) const TEXT_WEIGHT: usize = 4;
/// What a value takes, with its copies.
const VALUE_BYTES: usize = 96;
/// What one who is let in may take is about this part of what all bodies may take at least.
const BYTES_EACH: usize = 64 * 1024 * 1024;

/// What JSON or YAML takes while a write is made of it. An estimate: every value but the first follows one of these.
pub(crate) fn parsed_bytes(text: &[u8]) -> usize {
    let values = text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{' | b'\n')).count();
    text.len().saturating_mul(TEXT_WEIGHT).saturating_add(values.saturating_mul(VALUE_BYTES))
}

/// The same for a message, in which a value may take two bytes and nothing tells them apart.
pub(crate) fn message_bytes(message: &[u8]) -> usize {
    message.len().saturating_mul(TEXT_WEIGHT + VALUE_BYTES / 2)
}

/// The turns of whatever is heavy.
pub(crate) struct Heavy(Arc<Semaphore>);

/// A turn, until it is dropped.
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Heavy {
    pub(crate) fn new(cores: usize, in_flight_bytes_max: usize) -> Heavy {
        let most = (in_flight_bytes_max / BYTES_EACH).max(2);
        Heavy(Arc::new(Semaphore::new(cores.clamp(2, most))))
    }

    /// Waits for a turn, if so much needs one.
    pub(crate) async fn enter(&self, bytes: usize) -> Turn {
        if bytes <= ORDINARY_BYTES {
            return Turn { _permit: None };
        }
        // Nobody closes it.
        Turn { _permit: self.0.clone().acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn weights() {
        let many_values = format!("[{}1]", "1,".repeat(700_000));
        let many_lines = "- 1\n".repeat(400_000);
        let ordinary = format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(1_500_000));
        for (text, is_heavy) in [(&many_values, true), (&many_lines, true), (&ordinary, false)] {
            assert_eq!(parsed_bytes(text.as_bytes()) > ORDINARY_BYTES, is_heavy, "{:.20}", text);
        }
        assert!(parsed_bytes(br#"{"metadata":{"name":"a"}}"#) < 1024);
    }

    #[test]
    fn what_is_heavy_takes_turns() {
        let heavy = Heavy::new(16, 128 << 20);
        let enter = |bytes: usize| heavy.enter(bytes).now_or_never();
        let (first, second) = (enter(ORDINARY_BYTES + 1).unwrap(), enter(usize::MAX).unwrap());
        assert!(enter(ORDINARY_BYTES + 1).is_none(), "a third");
        assert!(enter(ORDINARY_BYTES).is_some(), "what is ordinary goes on");
        drop(first);
        assert!(enter(usize::MAX).is_some());
        drop(second);
    }
}
