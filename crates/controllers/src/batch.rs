//! Many writes of one turn: so many at a time share a commit, and so many a turn let others have theirs.

use futures_util::future::join_all;
use polder_model::Status;

/// Writes in flight at once.
const PARALLEL: usize = 64;
/// Writes of one turn.
pub(crate) const TURN_LEN_MAX: usize = 500;

/// Does all of them, and tells the first error when all have been tried.
pub(crate) async fn all<F: Future<Output = Result<(), Status>>>(
    writes: impl IntoIterator<Item = F>,
) -> Result<(), Status> {
    let mut outcome = Ok(());
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        for one in join_all(writes.by_ref().take(PARALLEL)).await {
            outcome = outcome.and(one);
        }
    }
    outcome
}
