//! The Python `kubernetes` client: create, read, update, patch, delete and watch, in two planes at once.

use std::process::Command;

use crate::process::Polder;
use crate::tools;

/// Python's client works unchanged.
#[test]
fn python_client() {
    let Some(python) = tools::find("POLDER_TEST_PYTHON", "Python client") else { return };
    let polder = Polder::start();
    let (_, _) = (polder.plane("acme"), polder.plane("globex"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/client.py");
    let (acme, globex) = (polder.plane_kubeconfig("acme"), polder.plane_kubeconfig("globex"));
    let output = Command::new(python).arg(script).args([acme, globex]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
