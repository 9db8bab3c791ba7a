//! By what two stores are known to hold the same, in whatever order they are read.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

use crate::journal::codec;
use crate::replica::Kept;

/// The sum of the digests of all that is kept, and how much it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    sum: u128,
    pub objects: u64,
    pub planes: u64,
    /// Of records, as they are kept.
    pub bytes: u64,
}

impl Digest {
    pub(super) fn from_parts(sum: u128, objects: u64, planes: u64, bytes: u64) -> Digest {
        Digest { sum, objects, planes, bytes }
    }

    pub(super) fn sum(&self) -> u128 {
        self.sum
    }

    pub fn add(&mut self, part: &[Kept]) {
        let mut bytes = Vec::new();
        for kept in part {
            bytes.clear();
            codec::put_kept(kept, &mut bytes);
            let hash = digest(&SHA256, &bytes);
            let half = hash.as_ref().first_chunk().copied().unwrap_or_default();
            self.sum = self.sum.wrapping_add(u128::from_le_bytes(half));
            match kept {
                Kept::Object { version, .. } => {
                    self.objects += u64::from(version.record.is_some());
                    self.bytes += version.len() as u64;
                }
                Kept::Plane(_) => self.planes += 1,
                Kept::Space(_) | Kept::Key(_) | Kept::Note(_) => {}
            }
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.sum)
    }
}
