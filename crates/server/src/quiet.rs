//! Refusals that do not tell by the time they take whether a plane exists.
//!
//! For a plane that exists something may have to be read before somebody is turned away: its bootstrap tokens, its bindings. That
//! takes longer than to find out that there is none, so whoever is turned away is told at the end of a beat that began with the
//! request, not when the answer is known. What takes longer than a beat shows at the end of a later one.

use std::time::Duration;

use tokio::time::Instant;

/// Longer than what is read usually takes, and so short that nobody who made a mistake waits.
const BEAT: Duration = Duration::from_millis(20);

/// Waits for the end of the beat.
pub(crate) async fn turn_away(started: Instant) {
    tokio::time::sleep_until(started + rounded(started.elapsed())).await;
}

fn rounded(elapsed: Duration) -> Duration {
    let beats = elapsed.as_nanos().div_ceil(BEAT.as_nanos()).max(1);
    BEAT * u32::try_from(beats).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_turned_away_is_told_at_the_end_of_a_beat() {
        let nano = Duration::from_nanos(1);
        for (elapsed, beats) in [(Duration::ZERO, 1), (nano, 1), (BEAT, 1), (BEAT + nano, 2), (BEAT * 7, 7)] {
            assert_eq!(rounded(elapsed), BEAT * beats, "{elapsed:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_before_does_not_show() {
        for read in [0, 1, 7, 19] {
            let started = Instant::now();
            tokio::time::sleep(Duration::from_millis(read)).await;
            turn_away(started).await;
            assert_eq!(started.elapsed(), BEAT, "{read} ms");
        }
    }
}
