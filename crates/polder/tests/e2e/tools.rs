//! Programs that tests drive: where they are, and a line for the reader when one is not there.

use std::io::Write as _;
use std::path::PathBuf;

/// Where `cargo xtask test` put a program.
pub(crate) fn find(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if found.is_none() {
        // Not `eprintln!`: the line must be seen although the test passes.
        writeln!(std::io::stderr(), "left out: no {what} ({variable} is not set)").ok();
    }
    found
}
