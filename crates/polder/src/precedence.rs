//! Which threads come first. Threads that serve planes which use much run when no other thread of the process wants to: the
//! kernel takes the core from them at once. The others have short slices, so that they soon have it among themselves, too.
//!
//! Threads that always come last never come where something else keeps all cores busy. So they are looked at: one that waits
//! and gets next to nothing shares with the others for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Pid;

/// How long a thread that comes first computes before others like it have their turn. Kernels before 6.12 have their own.
const SLICE: Duration = Duration::from_micros(100);
/// What threads give way by when they share with the others.
const NICE: i32 = 10;
/// The same where they may not go back once they come last.
const NICE_FOR_EVER: i32 = 19;
const LOOK: Duration = Duration::from_secs(1);
/// How long a thread that got nothing shares with the others.
const SHARING: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Precedence {
    First,
    /// With the others, but less than they.
    Shares(i32),
    Last,
}

/// Makes this thread, and all that it starts, come first.
pub(crate) fn come_first() {
    set(rustix::thread::gettid(), Precedence::First);
}

/// Threads that give way to the others of the process.
#[derive(Clone)]
pub(crate) struct Yielding {
    last: Precedence,
    threads: Arc<Mutex<Vec<Thread>>>,
}

struct Thread {
    id: Pid,
    seen: Seen,
    shares_until: Option<Instant>,
}

/// What the kernel has counted for a thread: how long it ran, and how long it waited for a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    ran: Duration,
    waited: Duration,
}

impl Yielding {
    pub(crate) fn new() -> Yielding {
        let last = if can_return() { Precedence::Last } else { Precedence::Shares(NICE_FOR_EVER) };
        Yielding { last, threads: Arc::default() }
    }

    /// Lets this thread give way from now on.
    pub(crate) fn enter(&self) {
        let id = rustix::thread::gettid();
        set(id, self.last);
        if self.last == Precedence::Last {
            self.threads.lock().push(Thread { id, seen: Seen::default(), shares_until: None });
        }
    }

    /// Looks after them, as long as it is polled.
    pub(crate) async fn look_after(self) {
        let mut ticks = tokio::time::interval(LOOK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // A thread that has ended has no figures.
            self.threads.lock().retain_mut(|thread| {
                seen(thread.id).is_some_and(|seen| {
                    look(thread, seen, Instant::now());
                    true
                })
            });
        }
    }
}

fn look(thread: &mut Thread, now: Seen, at: Instant) {
    let before = std::mem::replace(&mut thread.seen, now);
    match thread.shares_until {
        Some(until) if at < until => {}
        Some(_) => {
            thread.shares_until = None;
            set(thread.id, Precedence::Last);
        }
        None if before != Seen::default() && is_starving(before, now) => {
            thread.shares_until = Some(at + SHARING);
            set(thread.id, Precedence::Shares(NICE));
        }
        None => {}
    }
}

/// Whether it waited for most of a look, and got nearly nothing.
fn is_starving(before: Seen, now: Seen) -> bool {
    let (ran, waited) = (now.ran.saturating_sub(before.ran), now.waited.saturating_sub(before.waited));
    waited > LOOK * 3 / 4 && ran < LOOK / 20
}

fn seen(thread: Pid) -> Option<Seen> {
    let path = format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero());
    let text = std::fs::read_to_string(path).ok()?;
    let mut figures =
        text.split_ascii_whitespace().map(|figure| figure.parse().ok().map(Duration::from_nanos));
    Some(Seen { ran: figures.next()??, waited: figures.next()?? })
}

/// Whether a thread that comes last may share with the others again: not everywhere without a right to.
fn can_return() -> bool {
    let probe = std::thread::spawn(|| {
        let id = rustix::thread::gettid();
        apply(id, Precedence::Last).is_ok() && apply(id, Precedence::Shares(NICE)).is_ok()
    });
    probe.join().unwrap_or(false)
}

fn set(thread: Pid, precedence: Precedence) {
    if let Err(error) = apply(thread, precedence) {
        tracing::debug!(%error, ?precedence, "a thread keeps its precedence");
    }
}

#[expect(unsafe_code, reason = "no crate sets the slice of a thread")]
fn apply(thread: Pid, precedence: Precedence) -> std::io::Result<()> {
    let (policy, nice, slice) = match precedence {
        Precedence::First => (libc::SCHED_OTHER, 0, SLICE),
        Precedence::Shares(nice) => (libc::SCHED_OTHER, nice, Duration::ZERO),
        Precedence::Last => (libc::SCHED_IDLE, 0, Duration::ZERO),
    };
    // SAFETY: all members are numbers; zeros are the kernel's own defaults.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0);
    attributes.sched_policy = policy.unsigned_abs();
    attributes.sched_nice = nice;
    attributes.sched_runtime = u64::try_from(slice.as_nanos()).unwrap_or(0);
    let (thread, flags) = (thread.as_raw_nonzero().get(), 0_u32);
    // SAFETY: the kernel reads `size` bytes of what the pointer leads to, which lives until the call returns.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, flags) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_get_nothing_share_for_a_while() {
        let ms = Duration::from_millis;
        let seen = |ran, waited| Seen { ran: ms(ran), waited: ms(waited) };
        let mut thread = Thread { id: rustix::thread::gettid(), seen: seen(1, 1), shares_until: None };
        let begun = Instant::now();
        // One that sleeps, one that computes, one that waits and computes.
        for now in [seen(1, 2), seen(900, 50), seen(1_100, 850)] {
            look(&mut thread, now, begun);
            assert_eq!(thread.shares_until, None);
        }
        look(&mut thread, seen(1_110, 1_840), begun);
        assert_eq!(thread.shares_until, Some(begun + SHARING));
        look(&mut thread, seen(1_120, 1_840), begun + SHARING - ms(1));
        assert_eq!(thread.shares_until, Some(begun + SHARING));
        look(&mut thread, seen(1_120, 1_840), begun + SHARING);
        assert_eq!(thread.shares_until, None);
    }

    #[test]
    fn the_kernel_takes_it() {
        let policy = |id: Pid| {
            let stat =
                std::fs::read_to_string(format!("/proc/self/task/{}/stat", id.as_raw_nonzero())).unwrap();
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
            (fields[16].parse::<i32>().unwrap(), fields[38].parse::<i32>().unwrap())
        };
        let thread = std::thread::spawn(move || {
            let id = rustix::thread::gettid();
            apply(id, Precedence::First).unwrap();
            assert_eq!(policy(id), (0, libc::SCHED_OTHER));
            let child = std::thread::spawn(rustix::thread::gettid).join().unwrap();
            assert_ne!(child, id);
            let before = super::seen(id).unwrap();
            assert!(before.ran > Duration::ZERO);
            apply(id, Precedence::Last).unwrap();
            assert_eq!(policy(id).1, libc::SCHED_IDLE);
            if can_return() {
                apply(id, Precedence::Shares(NICE)).unwrap();
                assert_eq!(policy(id), (NICE, libc::SCHED_OTHER));
            }
        });
        thread.join().unwrap();
    }
}
