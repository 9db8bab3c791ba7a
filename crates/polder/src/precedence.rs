//! Which threads come first. Threads that serve planes which use much run when no other thread of the process wants to: the
//! kernel takes the core from them at once. The others have short slices, so that they soon have it among themselves, too.
//!
//! Threads that always come last never come where something else keeps all cores busy. So they are looked at: one that wants to
//! run and gets next to nothing shares with the others for a while (ADR 0021).

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

/// What the kernel says of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// How long it has run since it began.
    ran: Duration,
    /// It runs, or would.
    wants: bool,
}

impl Yielding {
    pub(crate) fn new() -> Yielding {
        let last = if can_return() { Precedence::Last } else { Precedence::Shares(NICE_FOR_EVER) };
        Yielding { last, threads: Arc::default() }
    }

    /// Lets this thread give way from now on.
    pub(crate) fn enter(&self) {
        let id = rustix::thread::gettid();
        // Before it gives way: whoever looks after them must not wait for one that does.
        if self.last == Precedence::Last {
            self.threads.lock().push(Thread { id, seen: Seen::default(), shares_until: None });
        }
        set(id, self.last);
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
        None if is_starving(before, now) => {
            thread.shares_until = Some(at + SHARING);
            set(thread.id, Precedence::Shares(NICE));
        }
        None => {}
    }
}

/// Whether it wanted to run at two looks, and got nearly nothing in between. How long it waited is not asked for: the kernel counts
/// that only when a thread has got its core.
fn is_starving(before: Seen, now: Seen) -> bool {
    before.wants && now.wants && now.ran.saturating_sub(before.ran) < LOOK / 20
}

fn seen(thread: Pid) -> Option<Seen> {
    let of = |file: &str| {
        std::fs::read_to_string(format!("/proc/self/task/{}/{file}", thread.as_raw_nonzero())).ok()
    };
    let (counted, state) = (of("schedstat")?, of("stat")?);
    let ran = Duration::from_nanos(counted.split_ascii_whitespace().next()?.parse().ok()?);
    let (_, state) = state.rsplit_once(')')?;
    Some(Seen { ran, wants: state.trim_start().starts_with('R') })
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
        let seen = move |ran, wants| Seen { ran: ms(ran), wants };
        // On a thread of its own: what is looked at is also set.
        let looks = move || {
            let id = rustix::thread::gettid();
            let mut thread = Thread { id, seen: Seen::default(), shares_until: None };
            let begun = Instant::now();
            // One that begins, sleeps, computes, and wants to at one look only.
            for now in [seen(1, true), seen(900, true), seen(901, false), seen(902, true), seen(1_000, true)]
            {
                look(&mut thread, now, begun);
                assert_eq!(thread.shares_until, None, "{now:?}");
            }
            look(&mut thread, seen(1_000, true), begun);
            assert_eq!(thread.shares_until, Some(begun + SHARING));
            look(&mut thread, seen(1_001, true), begun + SHARING - ms(1));
            assert_eq!(thread.shares_until, Some(begun + SHARING));
            look(&mut thread, seen(1_001, true), begun + SHARING);
            assert_eq!(thread.shares_until, None);
        };
        std::thread::spawn(looks).join().unwrap();
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
            // Whoever was made to give way from outside, or sees no kernel, is left as it is.
            if apply(id, Precedence::First).is_err() {
                return;
            }
            assert_eq!(policy(id), (0, libc::SCHED_OTHER));
            let child = std::thread::spawn(rustix::thread::gettid).join().unwrap();
            assert_ne!(child, id);
            let before = super::seen(id).unwrap();
            assert!(before.wants && before.ran > Duration::ZERO);
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
