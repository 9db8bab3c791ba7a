//! The way to a webhook of the provider's that answers reviews: who a token is of, what somebody may do.

use std::pin::Pin;

/// Asks the webhook. Whoever starts the server brings it.
pub trait ReviewClient: Send + Sync {
    /// The answer's body, or why there is none.
    fn review(&self, question: Vec<u8>) -> ReviewAnswer<'_>;
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewFailure {
    /// The webhook cannot be reached or has trouble of its own: it may help to ask again.
    #[error("{0}")]
    Passing(String),
    #[error("{0}")]
    Lasting(String),
}

pub type ReviewAnswer<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, ReviewFailure>> + Send + 'a>>;
