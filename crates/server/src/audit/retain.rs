//! Makes room in the trail, fairly: planes keep up to a *level*, as high as the room allows. A plane that has less than the level
//! loses nothing, however much others write; one that has more loses its oldest entries first, and an entry that says how
//! many stands where they were.
//!
//! Files are written anew one by one, and each takes the place of the old one at once. Neighbors that became small become
//! one: however little is left of many files, there are only so many. What is too old goes with its file.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use polder_model::Value;

use super::event;
use super::segment::{self, Active, Sealed};
use super::trail::{Trail, entry};

/// How far a plane loses entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cut {
    /// Entries up to this one go.
    number: u64,
    entries: u64,
    /// Counted from zero.
    file: usize,
    excess: u64,
}

/// As much as each may keep so that all together keep no more than there is room for.
fn level(sizes: impl Iterator<Item = u64>, room: u64) -> u64 {
    let mut sizes: Vec<u64> = sizes.collect();
    sizes.sort_unstable();
    let (mut room, mut left) = (room, sizes.len() as u64);
    for size in sizes {
        let share = room / left.max(1);
        if size > share {
            return share;
        }
        room -= size;
        left -= 1;
    }
    u64::MAX
}

pub(super) fn retain(trail: &Arc<Trail>, now: i64) -> io::Result<()> {
    forget_old(trail, now)?;
    if trail.bytes() <= trail.options.bytes_max {
        return Ok(());
    }
    let sealed = trail.files.read().sealed.clone();
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    let mut count = |plane: u64, bytes: u64| *sizes.entry(plane).or_default() += bytes;
    for one in &sealed {
        one.each_place(|place| count(place.plane, place.bytes()))?;
    }
    trail.files.read().active.all_places().for_each(|place| count(place.plane, place.bytes()));
    // More than needed, so that this is not to be done again soon.
    let level = level(sizes.values().copied(), trail.options.bytes_max / 8 * 7);
    let mut cuts: HashMap<u64, Cut> = HashMap::new();
    for (plane, bytes) in sizes.into_iter().filter(|(_, bytes)| *bytes > level) {
        cuts.insert(plane, Cut { excess: bytes - level, ..Cut::default() });
    }
    for (file, one) in sealed.iter().enumerate() {
        let mut gaps = Vec::new();
        one.each_place(|place| {
            let Some(cut) = cuts.get_mut(&place.plane).filter(|cut| cut.excess > 0) else { return };
            cut.excess = cut.excess.saturating_sub(place.bytes());
            (cut.number, cut.file) = (place.number, file);
            match place.is_gap() {
                true => gaps.push(*place),
                false => cut.entries += 1,
            }
        })?;
        for place in gaps {
            let lost = lost(&one.payload(&place).unwrap_or_default());
            if let Some(cut) = cuts.get_mut(&place.plane) {
                cut.entries += lost;
            }
        }
    }
    for (file, one) in sealed.iter().enumerate() {
        rewrite(trail, one, file, &cuts, now)?;
    }
    join_small(trail)?;
    let lost: u64 = cuts.values().map(|cut| cut.entries).sum();
    tracing::info!(
        planes = cuts.len(),
        entries = lost,
        "the audit trail is full: the oldest entries of the largest planes are gone"
    );
    Ok(())
}

/// Forgets files whose newest entry is too old.
fn forget_old(trail: &Arc<Trail>, now: i64) -> io::Result<()> {
    let horizon = now - trail.options.age_seconds_max;
    let mut files = trail.files.write();
    while files.sealed.first().is_some_and(|one| one.newest_seconds < horizon) {
        let one = files.sealed.remove(0);
        std::fs::remove_file(&one.path)?;
    }
    Ok(())
}

/// How many entries one that tells of missing ones stands for.
fn lost(payload: &[u8]) -> u64 {
    let value = Value::parse(payload).unwrap_or_default();
    let text = value.str_at(&["annotations", event::LOST]).unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// Writes a file without what its planes lose.
fn rewrite(
    trail: &Arc<Trail>,
    one: &Arc<Sealed>,
    file: usize,
    cuts: &HashMap<u64, Cut>,
    now: i64,
) -> io::Result<()> {
    let (mut kept, mut drops) = (Vec::new(), false);
    one.each_place(|place| match cuts.get(&place.plane) {
        Some(cut) if place.number <= cut.number => drops = true,
        _ => kept.push(*place),
    })?;
    if !drops {
        return Ok(());
    }
    let temporary = one.path.with_extension("tmp");
    let mut new = Active::create(temporary.clone(), one.base)?;
    let (mut frames, mut payload) = (Vec::new(), Vec::new());
    let mut flush = |frames: &mut Vec<u8>| -> io::Result<()> {
        new.file.write_all_at(frames, new.len)?;
        new.wrote(frames, one.newest_seconds);
        frames.clear();
        Ok(())
    };
    for (plane, cut) in cuts.iter().filter(|(_, cut)| cut.file == file && cut.entries > 0) {
        let mut tail = Vec::new();
        event::write_gap(now, cut.entries, "no room", &mut tail);
        payload.clear();
        entry(cut.number, now, &tail, &mut payload);
        segment::write_frame(*plane, cut.number, true, &payload, &mut frames);
    }
    for place in kept {
        // What is damaged is gone already.
        let Ok(payload) = one.payload(&place) else { continue };
        segment::write_frame(place.plane, place.number, place.is_gap(), &payload, &mut frames);
        if frames.len() > 1 << 20 {
            flush(&mut frames)?;
        }
    }
    if !frames.is_empty() {
        flush(&mut frames)?;
    }
    if new.is_empty() {
        std::fs::remove_file(&temporary)?;
        let mut files = trail.files.write();
        files.sealed.retain(|other| !Arc::ptr_eq(other, one));
        return std::fs::remove_file(&one.path);
    }
    let mut sealed = new.seal()?;
    std::fs::rename(&temporary, &one.path)?;
    sealed.path.clone_from(&one.path);
    let mut files = trail.files.write();
    if let Some(place) = files.sealed.iter_mut().find(|other| Arc::ptr_eq(other, one)) {
        *place = Arc::new(sealed);
    }
    Ok(())
}

/// Makes one file of two neighbors wherever they fit into one. A crash between the steps leaves a file whose entries are all in the
/// one before it: it is seen as such when the trail is opened.
fn join_small(trail: &Arc<Trail>) -> io::Result<()> {
    let mut at = 0;
    loop {
        let pair = match trail.files.read().sealed.get(at..at + 2) {
            Some([first, second]) => [first.clone(), second.clone()],
            _ => return Ok(()),
        };
        let [first, second] = &pair;
        if first.bytes + second.bytes > trail.segment_bytes() {
            at += 1;
            continue;
        }
        let temporary = first.path.with_extension("tmp");
        let mut new = Active::create(temporary.clone(), first.base)?;
        let mut frames = Vec::new();
        for one in &pair {
            let mut places = Vec::new();
            one.each_place(|place| places.push(*place))?;
            for place in places {
                let Ok(payload) = one.payload(&place) else { continue };
                segment::write_frame(place.plane, place.number, place.is_gap(), &payload, &mut frames);
            }
            new.file.write_all_at(&frames, new.len)?;
            new.wrote(&frames, one.newest_seconds);
            frames.clear();
        }
        let mut sealed = new.seal()?;
        std::fs::rename(&temporary, &first.path)?;
        sealed.path.clone_from(&first.path);
        let mut files = trail.files.write();
        files.sealed.retain(|other| !Arc::ptr_eq(other, second));
        if let Some(place) = files.sealed.iter_mut().find(|other| Arc::ptr_eq(other, first)) {
            *place = Arc::new(sealed);
        }
        drop(files);
        std::fs::remove_file(&second.path)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_as_high_as_the_room_allows() {
        for (sizes, room, expected) in [
            (&[][..], 100, u64::MAX),
            (&[10, 20], 100, u64::MAX),
            (&[1000], 100, 100),
            (&[10, 1000], 100, 90),
            (&[10, 60, 1000], 100, 45),
            (&[50, 50, 50], 120, 40),
        ] {
            assert_eq!(level(sizes.iter().copied(), room), expected, "{sizes:?}");
        }
    }
}
