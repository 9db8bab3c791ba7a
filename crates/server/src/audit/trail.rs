//! What planes can read of what happened in them: entries in a few files that all planes share, found by the plane's number.
//!
//! One thread writes; anybody reads. When the files hold more than they may, or what is in them is too old, `retain` makes room.
//! What is lost, there or because it came too fast, stands in the trail of its plane as an entry that says how much.
//!
//! Invariant: an idle plane has nothing here but its entries. Numbers only grow, also over restarts; they are times, so that nobody
//! learns from the numbers of its own entries how many others have.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use polder_model::PlaneId;
use polder_registry::ledger::{Ledger, LedgerError, Most, entry_name};
use polder_store::{Record, Revision, SpaceId, StoredObject};
use tokio::sync::watch;

use super::event;
use super::segment::{self, Active, Opened, Place, Sealed};

/// What the trail may take.
#[derive(Clone, Copy, Debug)]
pub struct TrailOptions {
    pub bytes_max: u64,
    /// Older entries are forgotten.
    pub age_seconds_max: i64,
}

impl Default for TrailOptions {
    fn default() -> TrailOptions {
        TrailOptions { bytes_max: 1 << 30, age_seconds_max: 30 * 24 * 60 * 60 }
    }
}

/// So many files share what there is; none is longer than offsets can say.
const SEGMENTS: u64 = 16;
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Trail {
    pub(super) directory: PathBuf,
    pub(super) options: TrailOptions,
    pub(super) files: RwLock<Files>,
    newest: AtomicU64,
    /// Microseconds since 1970.
    clock: fn() -> u64,
    /// Whoever waits for entries of a plane.
    followers: Mutex<HashMap<PlaneId, watch::Sender<u64>>>,
    /// Room is being made.
    retaining: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(super) struct Files {
    /// Oldest first.
    pub(super) sealed: Vec<Arc<Sealed>>,
    pub(super) active: Active,
}

/// Entries that are about to be written.
#[derive(Default)]
pub(super) struct Batch {
    frames: Vec<u8>,
    planes: Vec<PlaneId>,
    /// The number of the last one.
    last: u64,
    seconds: i64,
    payload: Vec<u8>,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.planes.is_empty()
    }

    pub(super) fn planes(&self) -> &[PlaneId] {
        &self.planes
    }
}

impl Trail {
    pub(crate) fn open(directory: &Path, options: TrailOptions) -> io::Result<Trail> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            match path.extension().and_then(|end| end.to_str()) {
                Some("seg") => names.push(path),
                // Half of a file that was being made.
                Some("tmp") => std::fs::remove_file(&path)?,
                _ => {}
            }
        }
        names.sort();
        let mut sealed: Vec<Arc<Sealed>> = Vec::new();
        let mut newest = 0;
        for path in names {
            let one = match segment::open(&path) {
                Ok(Opened::Sealed(sealed)) => sealed,
                Ok(Opened::Unsealed(active, cut)) => {
                    if cut > 0 {
                        let path = path.display();
                        tracing::warn!(%path, bytes = cut, "the end of the audit trail was not whole: it is cut off");
                    }
                    active.seal()?
                }
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a file of the audit trail cannot be read: it is set aside");
                    std::fs::rename(&path, path.with_extension("damaged"))?;
                    continue;
                }
            };
            newest = newest.max(one.last).max(one.base);
            // Two files were being made one: what is in this one is in the one before, too.
            if sealed.last().is_some_and(|before| before.last >= one.last && one.last > one.base) {
                std::fs::remove_file(&path)?;
                continue;
            }
            sealed.push(Arc::new(one));
        }
        // What is empty is only in the way; the numbers it says are known.
        sealed.retain(|one| {
            let empty = one.last == one.base;
            if empty {
                std::fs::remove_file(&one.path).ok();
            }
            !empty
        });
        let active = Active::create(directory.join(segment::file_name(newest)), newest)?;
        Ok(Trail {
            directory: directory.to_path_buf(),
            options,
            files: RwLock::new(Files { sealed, active }),
            newest: AtomicU64::new(newest),
            clock: || u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default(),
            followers: Mutex::default(),
            retaining: Arc::default(),
        })
    }

    /// Puts an entry into a batch. `tail` is an event without its head.
    pub(super) fn add(&self, batch: &mut Batch, plane: PlaneId, seconds: i64, tail: &[u8], gap: bool) {
        let before = self.newest.load(Ordering::Relaxed).max(batch.last);
        let number = (self.clock)().max(before + 1);
        batch.payload.clear();
        entry(number, seconds, tail, &mut batch.payload);
        if batch.payload.len() > segment::PAYLOAD_LEN_MAX {
            return;
        }
        segment::write_frame(plane.0, number, gap, &batch.payload, &mut batch.frames);
        batch.planes.push(plane);
        batch.last = number;
        batch.seconds = batch.seconds.max(seconds);
    }

    /// An entry that says that others are missing.
    pub(super) fn add_gap(&self, batch: &mut Batch, plane: PlaneId, seconds: i64, lost: u64) {
        let mut tail = Vec::new();
        event::write_gap(seconds, lost, "too many at once", &mut tail);
        self.add(batch, plane, seconds, &tail, true);
    }

    /// Writes a batch. If it cannot be written, nothing of it was.
    pub(super) fn write(self: &Arc<Self>, batch: &mut Batch) -> io::Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let (file, len) = {
            let files = self.files.read();
            (files.active.file.clone(), files.active.len)
        };
        if let Err(error) = file.write_all_at(&batch.frames, len) {
            // Half of a frame must not stand before the next.
            file.set_len(len).ok();
            return Err(error);
        }
        {
            let mut files = self.files.write();
            files.active.wrote(&batch.frames, batch.seconds);
            self.newest.store(files.active.last, Ordering::Release);
        }
        self.tell(&mut batch.planes);
        let seconds = batch.seconds;
        batch.frames.clear();
        batch.planes.clear();
        self.tend(seconds)
    }

    fn tell(&self, planes: &mut Vec<PlaneId>) {
        planes.sort_unstable();
        planes.dedup();
        let newest = self.newest.load(Ordering::Acquire);
        let mut followers = self.followers.lock();
        if followers.is_empty() {
            return;
        }
        for plane in planes {
            if let Some(sender) = followers.get(plane)
                && sender.send(newest).is_err()
            {
                followers.remove(plane);
            }
        }
    }

    /// How long a file becomes.
    pub(super) fn segment_bytes(&self) -> u64 {
        (self.options.bytes_max / SEGMENTS).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Begins a new file when this one is full or old, and makes room when there is too much.
    pub(super) fn tend(self: &Arc<Self>, now: i64) -> io::Result<()> {
        let (full, old) = {
            let active = &self.files.read().active;
            let age = active.first_seconds.map_or(0, |first| now - first);
            (active.bytes() >= self.segment_bytes(), age > (self.options.age_seconds_max / 8).max(1))
        };
        if full || old {
            self.seal()?;
        }
        let too_much = self.bytes() > self.options.bytes_max;
        if (too_much || self.is_aged(now)) && !self.retaining.swap(true, Ordering::AcqRel) {
            let trail = self.clone();
            let spawned = std::thread::Builder::new().name("audit-retain".into()).spawn(move || {
                if let Err(error) = super::retain::retain(&trail, now) {
                    tracing::error!(%error, "cannot make room in the audit trail");
                }
                trail.retaining.store(false, Ordering::Release);
            });
            if spawned.is_err() {
                self.retaining.store(false, Ordering::Release);
            }
        }
        Ok(())
    }

    fn seal(&self) -> io::Result<()> {
        let newest = self.newest.load(Ordering::Acquire);
        // Only the writer seals: nothing is added meanwhile.
        let sealed = {
            let files = self.files.read();
            if files.active.is_empty() {
                return Ok(());
            }
            files.active.seal()?
        };
        let active = Active::create(self.directory.join(segment::file_name(newest)), newest)?;
        let mut files = self.files.write();
        files.sealed.push(Arc::new(sealed));
        files.active = active;
        Ok(())
    }

    fn is_aged(&self, now: i64) -> bool {
        let oldest = self.files.read().sealed.first().map(|one| one.newest_seconds);
        oldest.is_some_and(|seconds| now - seconds > self.options.age_seconds_max)
    }

    pub(super) fn bytes(&self) -> u64 {
        let files = self.files.read();
        files.sealed.iter().map(|one| one.bytes).sum::<u64>() + files.active.bytes()
    }

    /// There is so much more than there may be that nothing is added until room has been made.
    pub(super) fn is_overfull(&self) -> bool {
        self.bytes() > self.options.bytes_max.saturating_add(self.options.bytes_max / 4)
    }
}

impl Ledger for Trail {
    fn read(&self, plane: PlaneId, after: Revision, most: Most) -> Result<Vec<StoredObject>, LedgerError> {
        let (sealed, active, file) = {
            let files = self.files.read();
            let sealed: Vec<_> = files.sealed.iter().filter(|one| one.last > after.0).cloned().collect();
            (sealed, files.active.places(plane.0, after.0, most.entries), files.active.file.clone())
        };
        let failed = |error: io::Error| {
            tracing::error!(?plane, %error, "cannot read the audit trail");
            LedgerError("the audit trail cannot be read".into())
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        let mut take = |found: &mut Vec<StoredObject>, place: &Place, read: io::Result<Vec<u8>>| {
            match read {
                Ok(payload) => {
                    bytes += payload.len();
                    found.extend(stored(place.number, &payload));
                }
                // What is damaged hides nothing of the rest.
                Err(error) => {
                    tracing::error!(?plane, number = place.number, %error, "an audit event is lost")
                }
            }
            found.len() >= most.entries || bytes >= most.bytes
        };
        for one in sealed {
            let mut after = after.0;
            loop {
                let places = one.places(plane.0, after, most.entries - found.len()).map_err(failed)?;
                let Some(last) = places.last() else { break };
                after = last.number;
                for place in &places {
                    if take(&mut found, place, one.payload(place)) {
                        return Ok(found);
                    }
                }
            }
        }
        for place in &active {
            if take(&mut found, place, segment::payload(&file, place)) {
                break;
            }
        }
        Ok(found)
    }

    fn newest(&self, plane: PlaneId) -> Revision {
        let (sealed, active) = {
            let files = self.files.read();
            (files.sealed.clone(), files.active.last_of(plane.0))
        };
        let floor = self.floor();
        let mut older = sealed.iter().rev().map(|one| one.last_of(plane.0)).filter_map(Result::transpose);
        let own = match active {
            Some(number) => number,
            // What cannot be read is no reason to go back.
            None => {
                older.next().map_or(0, |found| found.unwrap_or_else(|_| self.newest.load(Ordering::Acquire)))
            }
        };
        Revision(own).max(floor)
    }

    fn floor(&self) -> Revision {
        let files = self.files.read();
        Revision(files.sealed.first().map_or(files.active.base, |one| one.base))
    }

    fn follow(&self, plane: PlaneId) -> watch::Receiver<u64> {
        let mut followers = self.followers.lock();
        // Whoever has gone is forgotten when somebody comes, now and then.
        if followers.len().is_power_of_two() {
            followers.retain(|_, sender| sender.receiver_count() > 0);
        }
        followers.entry(plane).or_insert_with(|| watch::channel(0).0).subscribe()
    }
}

/// An entry as it is kept: as objects are, so that reads copy it.
pub(super) fn entry(number: u64, seconds: i64, tail: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metadata\":{\"name\":\"");
    out.extend_from_slice(entry_name(number).name.as_bytes());
    out.extend_from_slice(b"\",\"creationTimestamp\":\"");
    event::write_seconds(seconds, out);
    out.extend_from_slice(b"\"},");
    out.extend_from_slice(tail);
}

fn stored(number: u64, payload: &[u8]) -> Option<StoredObject> {
    let mut bytes = Vec::with_capacity(payload.len() + 4);
    bytes.extend_from_slice(&4_u32.to_le_bytes());
    bytes.extend_from_slice(payload);
    let record = Record::from_bytes(bytes.into()).ok()?;
    Some(StoredObject { name: entry_name(number), revision: Revision(number), space: SpaceId(0), record })
}

#[cfg(test)]
#[path = "trail_tests.rs"]
mod tests;
