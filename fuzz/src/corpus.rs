//! The seeds of a target: small files in `fuzz/corpus/<target>/`, one input each.

use std::io;
use std::path::{Path, PathBuf};

/// Where this package lives.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All seeds of a target with their file names, in the order of their names. A target without a folder has none.
pub fn seeds(target: &str) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let folder = home().join("corpus").join(target);
    let mut paths = match std::fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            std::fs::read(&path).map(|mut bytes| {
                // Editors end files with a newline that is no part of the input.
                if bytes.last() == Some(&b'\n') {
                    bytes.pop();
                }
                (path, bytes)
            })
        })
        .collect()
}
