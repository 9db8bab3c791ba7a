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
    Check { name: "store", probe: store, ready_only: false },
    // What upstream calls it; dashboards ask by that name.
    Check { name: "etcd", probe: store, ready_only: false },
    Check { name: "etcd-readiness", probe: in_touch, ready_only: true },
    Check { name: "informer-sync", probe: |_| true, ready_only: true },
    in_place("poststarthook/start-apiserver-admission-initializer"),
    in_place("poststarthook/generic-apiserver-start-informers"),
    in_place("poststarthook/priority-and-fairness-config-consumer"),
    in_place("poststarthook/priority-and-fairness-filter"),
    in_place("poststarthook/storage-object-count-tracker-hook"),
    in_place("poststarthook/start-apiextensions-informers"),
    in_place("poststarthook/start-apiextensions-controllers"),
    in_place("poststarthook/crd-informer-synced"),
    in_place("poststarthook/start-system-namespaces-controller"),
    in_place("poststarthook/start-cluster-authentication-info-controller"),
    in_place("poststarthook/start-kube-apiserver-identity-lease-controller"),
    in_place("poststarthook/start-kube-apiserver-identity-lease-garbage-collector"),
    in_place("poststarthook/start-legacy-token-tracking-controller"),
    in_place("poststarthook/start-service-ip-repair-controllers"),
    in_place("poststarthook/rbac/bootstrap-roles"),
    in_place("poststarthook/scheduling/bootstrap-system-priority-classes"),
    in_place("poststarthook/priority-and-fairness-config-producer"),
    in_place("poststarthook/bootstrap-controller"),
    in_place("poststarthook/start-kube-aggregator-informers"),
    in_place("poststarthook/apiservice-status-local-available-controller"),
    in_place("poststarthook/apiservice-status-remote-available-controller"),
    in_place("poststarthook/apiservice-registration-controller"),
    in_place("poststarthook/apiservice-discovery-controller"),
    in_place("poststarthook/kube-apiserver-autoregistration"),
    in_place("autoregister-completion"),
    in_place("poststarthook/apiservice-openapi-controller"),
    in_place("poststarthook/apiservice-openapiv3-controller"),
    in_place("poststarthook/storage-readiness"),
    // Going on to serve what is whole is right; being restarted would not help.
    Check { name: "stored-data", probe: |state| state.registry.store.is_sound(), ready_only: true },
    Check { name: "shutdown", probe: |state| !state.draining(), ready_only: true },
];

/// Something upstream's server sets up after it has begun to listen, and ours has before its first request. Tests and
/// dashboards written for upstream's server want to see it named.
const fn in_place(name: &'static str) -> Check {
    Check { name, probe: |_| true, ready_only: false }
}

fn store(state: &State) -> bool {
    state.registry.store.is_running()
}

/// A replica that cannot reach what all share answers little: others should be asked.
fn in_touch(state: &State) -> bool {
    store(state) && state.registry.store.is_in_touch()
}

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

/// The checks as a scraper reads them: `/metrics/slis`.
pub(crate) fn indicators(state: &State) -> String {
    let mut text = String::from(
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
         # TYPE kubernetes_healthcheck gauge\n",
    );
    for check in CHECKS {
        let (name, value) = (check.name, u8::from((check.probe)(state)));
        text.push_str(&format!("kubernetes_healthcheck{{name={name:?},type=\"readyz\"}} {value}\n"));
    }
    text
}
