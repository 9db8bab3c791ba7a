//! Files that say something about the running server: read at start, and again when they change.
//!
//! A changed file that is wrong is reported and not taken over: who could work before still can.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Longer files are something else.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What is followed, and what becomes of it.
pub(crate) trait Followed: Send + Sync + 'static {
    /// What the files hold.
    type Held: Clone + PartialEq + Send + 'static;

    /// What they are about, for people.
    const WHAT: &'static str;

    fn held(&self) -> anyhow::Result<Self::Held>;

    /// Takes over what they come to say, or says what is wrong with it.
    fn take(&self, held: Self::Held) -> anyhow::Result<()>;

    /// A change was taken over, or not.
    fn note(&self, taken: bool);
}

/// Takes over what files come to say, until told to stop.
pub(crate) async fn follow<F: Followed>(files: Arc<F>, mut seen: F::Held, stop: CancellationToken) {
    let mut was_unreadable = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        let own = files.clone();
        // A file may be on a disk that is away.
        let Ok(held) = tokio::task::spawn_blocking(move || own.held()).await else { continue };
        let is_unreadable = held.is_err();
        let outcome = match held {
            Ok(held) if seen == held => None,
            Ok(held) => {
                seen = held.clone();
                Some(files.take(held))
            }
            Err(_) if was_unreadable => None,
            Err(error) => Some(Err(error)),
        };
        was_unreadable = is_unreadable;
        match outcome {
            None => {}
            Some(Ok(())) => {
                files.note(true);
                tracing::info!("the {} configuration has changed", F::WHAT);
            }
            Some(Err(error)) => {
                files.note(false);
                tracing::error!("the {} configuration stays as it was: {error:#}", F::WHAT);
            }
        }
    }
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read {}", path.display());
    let len = std::fs::metadata(path).with_context(what)?.len();
    anyhow::ensure!(len <= FILE_BYTES_MAX, "{} is longer than {FILE_BYTES_MAX} bytes", path.display());
    std::fs::read_to_string(path).with_context(what)
}

/// A document in YAML or JSON.
pub(crate) fn document(text: &str) -> anyhow::Result<polder_model::Value> {
    // Without the piece of the file: that says the same again.
    serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!(error.without_snippet().to_string()))
}
