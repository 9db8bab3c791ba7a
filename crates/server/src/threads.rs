//! On which threads a connection is served. Planes that use much have threads of their own, which come after the others:
//! turns ([`crate::turns`]) are short, but while all cores compute for a flood, whoever wants little waits for several of them
//! and for the kernel to give a core back. A connection moves when its plane begins or ceases to use much.
//!
//! Invariant: a connection is in one task. What it waits for wakes that one, since a task polls all of it when it begins.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use polder_model::PlaneId;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::turns::{Lane, NEWCOMERS, Shared, Turns};

/// What a plane may have used to be served beside those that use little, and to be again.
const MUCH: Duration = Duration::from_millis(20);
const LITTLE: Duration = Duration::from_millis(5);
/// What was used is forgiven at this rate: whoever uses less than this part of a core uses little.
const FORGIVEN: u32 = 10;
/// No more is remembered.
const USED_MAX: Duration = Duration::from_millis(200);
/// Planes remembered before those are looked for that can be forgotten.
const SWEEP_LEN: usize = 1_024;

pub(crate) struct Threads {
    turns: [Arc<Turns>; 2],
    /// Where planes are served that use much; where all are if there is no such place.
    busy: Vec<Busy>,
    usage: Mutex<Usage>,
}

/// Threads for planes that use much, and a token that each connection there has a copy of.
struct Busy {
    handle: Handle,
    token: Arc<()>,
}

impl Threads {
    pub(crate) fn new(turns_at_once: usize, busy: Vec<Handle>) -> Threads {
        let turns = || Arc::new(Turns::new(turns_at_once));
        let busy = busy.into_iter().map(|handle| Busy { handle, token: Arc::default() }).collect();
        Threads { turns: [turns(), turns()], busy, usage: Mutex::default() }
    }

    /// The threads for planes that use much with the fewest connections.
    fn emptiest(&self) -> Option<&Busy> {
        self.busy.iter().min_by_key(|busy| Arc::strong_count(&busy.token))
    }

    /// Runs a connection to its end, here or there.
    pub(crate) fn spawn<F>(self: &Arc<Self>, tasks: &TaskTracker, lane: Arc<Lane>, connection: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let shared = self.turns[0].share(lane, connection);
        let (threads, tasks, light) = (self.clone(), tasks.clone(), Handle::current());
        let moving = Moving { shared: Some(shared), threads, tasks: tasks.clone(), light, place: None };
        tasks.spawn(moving);
    }
}

/// A connection that moves.
struct Moving<F> {
    /// `None` when it is elsewhere.
    shared: Option<Shared<F>>,
    threads: Arc<Threads>,
    tasks: TaskTracker,
    light: Handle,
    /// Its token among those of planes that use much.
    place: Option<Arc<()>>,
}

impl<F: Future<Output = ()> + Send + 'static> Future for Moving<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let own = &mut *self;
        let Some(shared) = &mut own.shared else { return Poll::Ready(()) };
        if own.threads.busy.is_empty() {
            return Pin::new(shared).poll(context);
        }
        let polled = Pin::new(&mut *shared).poll(context);
        let spent = shared.take_spent();
        let plane = shared.plane();
        // Who has not said yet which plane they want is nobody's flood.
        let was_busy = own.place.is_some();
        let is_busy =
            plane != NEWCOMERS && own.threads.usage.lock().spend(plane, spent, Instant::now(), was_busy);
        if polled.is_ready() || is_busy == was_busy {
            return polled;
        }
        let busy = own.threads.emptiest().filter(|_| is_busy);
        let turns = &own.threads.turns[usize::from(is_busy)];
        let moved = Moving {
            shared: own.shared.take().map(|shared| shared.moved(turns)),
            threads: own.threads.clone(),
            tasks: own.tasks.clone(),
            light: own.light.clone(),
            place: busy.map(|busy| busy.token.clone()),
        };
        own.tasks.spawn_on(moved, busy.map_or(&own.light, |busy| &busy.handle));
        Poll::Ready(())
    }
}

/// What planes have used lately.
#[derive(Default)]
struct Usage(HashMap<PlaneId, Used>);

/// What was used, less what has been forgiven, at a time.
struct Used {
    time: Duration,
    at: Instant,
}

impl Used {
    fn now(&self, now: Instant) -> Duration {
        self.time.saturating_sub(now.saturating_duration_since(self.at) / FORGIVEN)
    }
}

impl Usage {
    /// Adds what a plane has used. Whether that is much now, if it was or was not before.
    fn spend(&mut self, plane: PlaneId, spent: Duration, now: Instant, was_much: bool) -> bool {
        if self.0.len() >= SWEEP_LEN && !self.0.contains_key(&plane) {
            self.0.retain(|_, used| !used.now(now).is_zero());
        }
        let used = self.0.entry(plane).or_insert(Used { time: Duration::ZERO, at: now });
        *used = Used { time: (used.now(now) + spent).min(USED_MAX), at: now };
        used.time > if was_much { LITTLE } else { MUCH }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_client::slice::thread_time;

    #[test]
    fn who_uses_much_is_known_until_it_is_forgiven() {
        let (mut usage, begun) = (Usage::default(), Instant::now());
        let mut spend = |plane, ms, at, was_much| {
            usage.spend(
                PlaneId(plane),
                Duration::from_millis(ms),
                begun + Duration::from_millis(at),
                was_much,
            )
        };
        assert!(!spend(1, 20, 0, false));
        assert!(spend(1, 1, 0, false));
        assert!(!spend(2, 20, 0, false), "planes are counted apart");
        assert!(spend(1, 0, 159, true) && !spend(1, 0, 161, true));
        // A tenth of a core is little, however long.
        assert!((0..1_000).all(|round| !spend(3, 1, 10 * round, false)));
        // However much it was, two seconds later it is forgiven.
        assert!(spend(4, 60_000, 0, false) && !spend(4, 0, 2_000, true));
    }

    #[test]
    fn who_used_nothing_lately_is_forgotten() {
        let (mut usage, begun) = (Usage::default(), Instant::now());
        for plane in 0..100_000 {
            let now = begun + Duration::from_millis(plane);
            usage.spend(PlaneId(plane), Duration::from_millis(1), now, false);
            assert!(usage.0.len() <= SWEEP_LEN + 1);
        }
    }

    /// A connection that uses much goes on elsewhere, and comes back; nothing is lost on the way.
    #[test]
    fn connections_move() {
        let runtime = |name: &str| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(1).thread_name(name).enable_all().build().unwrap()
        };
        let (light, busy) = (runtime("light"), runtime("busy"));
        let threads = Arc::new(Threads::new(2, vec![busy.handle().clone()]));
        let (tasks, lane) = (TaskTracker::new(), Arc::new(Lane::default()));
        lane.set(PlaneId(7), 0);
        let (say, mut said) = tokio::sync::mpsc::channel(64);
        let connection = async move {
            for round in 0..4_u64 {
                let begun = thread_time();
                while round == 1 && thread_time() - begun < Duration::from_millis(30) {}
                let wait = if round == 2 { 600 } else { 1 };
                tokio::time::sleep(Duration::from_millis(wait)).await;
                let name = std::thread::current().name().map(String::from).unwrap_or_default();
                say.send((round, name)).await.unwrap();
            }
        };
        light.block_on(async {
            threads.spawn(&tasks, lane, connection);
            tasks.close();
            tasks.wait().await;
        });
        let mut rounds = Vec::new();
        while let Ok((round, name)) = said.try_recv() {
            rounds.push(format!("{round} {name}"));
        }
        // It is seen to use little when it is polled next, and moves then.
        assert_eq!(rounds, ["0 light", "1 busy", "2 busy", "3 light"]);
    }
}
