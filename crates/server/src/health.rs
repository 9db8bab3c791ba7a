//! Is the server alive, and should it get traffic: `/livez`, `/readyz`, `/healthz`, whole or check by check.

use http::StatusCode;
use polder_registry::Query;

use crate::State;
use crate::answer::{self, Answer};
use crate::route::Route;

/// One thing to look at.
struct Check {
    name: &'static str,
    probe: fn(&State) -> bool,
    /// Part of readiness only.
    ready_only: bool,
}

const CHECKS: &[Check] = &[
    Check { name: "ping", probe: |_| true, ready_only: false },
    Check { name: "log", probe: |_| true, ready_only: false },
    Check { name: "store", probe: |state| state.registry.store.is_running(), ready_only: false },
    // Going on to serve what is whole is right; being restarted would not help.
    Check { name: "stored-data", probe: |state| state.registry.store.is_sound(), ready_only: true },
    Check { name: "shutdown", probe: |state| !state.draining(), ready_only: true },
];

/// Whether somebody asks how the server is.
pub(crate) fn is_probe(route: &Route) -> bool {
    matches!(route.first(), Some("healthz" | "livez" | "readyz" | "metrics"))
}

/// Answers a probe; `None` when the path is none.
pub(crate) fn answer(state: &State, path: &str, query: &Query) -> Option<Answer> {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let endpoint = parts.next().filter(|name| matches!(*name, "healthz" | "livez" | "readyz"))?;
    let ready = endpoint == "readyz";
    let checks = CHECKS.iter().filter(|check| ready || !check.ready_only);
    if let Some(name) = parts.next() {
        let check = checks.into_iter().find(|check| check.name == name)?;
        let ok = (check.probe)(state);
        let code = if ok { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        return Some(answer::text(code, if ok { "ok" } else { "internal server error: reason withheld" }));
    }
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut report = String::new();
    let mut passed = true;
    for check in checks {
        let name = check.name;
        if excluded.contains(&name) {
            report.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if (check.probe)(state) {
            report.push_str(&format!("[+]{name} ok\n"));
        } else {
            passed = false;
            report.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    if !passed {
        report.push_str(&format!("{endpoint} check failed\n"));
        return Some(answer::text(StatusCode::INTERNAL_SERVER_ERROR, report));
    }
    if query.get("verbose").is_some() {
        report.push_str(&format!("{endpoint} check passed\n"));
        return Some(answer::text(StatusCode::OK, report));
    }
    Some(answer::text(StatusCode::OK, "ok"))
}
