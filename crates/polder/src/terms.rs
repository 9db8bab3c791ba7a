//! Controllers run where the store leads, and nowhere else: always, where it is alone. Each term has controllers of its own, since
//! what the ones before knew is out of date.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use polder_client::Runner;
use polder_store::Store;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) struct Terms {
    make: Box<dyn Fn() -> Runner + Send + Sync>,
    current: Mutex<Option<Arc<Runner>>>,
    tells_new: AtomicBool,
}

impl Terms {
    pub(crate) fn new(make: impl Fn() -> Runner + Send + Sync + 'static) -> Terms {
        Terms { make: Box::new(make), current: Mutex::default(), tells_new: AtomicBool::new(false) }
    }

    /// See [`Runner::tell_new`].
    pub(crate) fn tell_new(&self) {
        let current = self.current.lock();
        self.tells_new.store(true, Ordering::Release);
        if let Some(runner) = &*current {
            runner.tell_new();
        }
    }

    /// See [`Runner::tell`]. Whoever leads does it for all.
    pub(crate) async fn tell(&self) -> bool {
        let current = self.current.lock().clone();
        match current {
            Some(runner) => runner.tell().await,
            None => false,
        }
    }

    /// Until told to stop.
    pub(crate) async fn run(
        self: Arc<Self>,
        store: Arc<Store>,
        tasks: TaskTracker,
        threads: [Handle; 2],
        stop: CancellationToken,
    ) {
        let mut leads = store.leading();
        loop {
            let elected = async { leads.wait_for(|leads| *leads).await.is_ok() };
            if stop.run_until_cancelled(elected).await != Some(true) {
                return;
            }
            let term = stop.child_token();
            let mut running = std::pin::pin!(self.begin().run(tasks.clone(), threads.clone(), term.clone()));
            let replaced = async { drop(leads.wait_for(|leads| !*leads).await) };
            tokio::select! {
                () = &mut running => {}
                () = replaced => {
                    tracing::info!("another replica leads: controllers stop here");
                    term.cancel();
                    running.await;
                }
            }
            term.cancel();
            *self.current.lock() = None;
        }
    }

    fn begin(&self) -> Arc<Runner> {
        let runner = Arc::new((self.make)());
        let mut current = self.current.lock();
        if self.tells_new.load(Ordering::Acquire) {
            runner.tell_new();
        }
        *current = Some(runner.clone());
        runner
    }
}
