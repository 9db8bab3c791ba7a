//! `cargo xtask layers`: crates use each other only along the arrows of the tree in docs/STYLE.md.
//!
//! The arrows are written here as data. An arrow means "may use that, and whatever that may use".

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use crate::workspace::{Package, Workspace};

const RULE: &str = "docs/STYLE.md (\"The tree\") draws the arrows, xtask/src/layers.rs holds them";

/// Who may use whom.
const ARROWS: &[(&str, &[&str])] = &[
    ("polder-model", &[]),
    ("polder-cel", &["polder-model"]),
    ("polder-machinery", &["polder-cel", "polder-model"]),
    ("polder-store", &["polder-model"]),
    ("polder-store-embedded", &["polder-store"]),
    // etcd is spoken to by gRPC, which client-http knows. Replicas are tested with the engine that they have.
    ("polder-store-etcd", &["polder-store", "polder-client-http", "polder-store-embedded"]),
    // It has TLS from client-http.
    ("polder-store-postgres", &["polder-store", "polder-client-http", "polder-store-embedded"]),
    ("polder-auth", &["polder-cel"]),
    ("polder-client", &["polder-model"]),
    ("polder-client-http", &["polder-model"]),
    ("polder-admission", &["polder-machinery"]),
    ("polder-registry", &["polder-store", "polder-auth", "polder-client", "polder-admission"]),
    ("polder-controllers", &["polder-client", "polder-admission"]),
    ("polder-server", &["polder-registry", "polder-auth"]),
    (
        "polder",
        &[
            "polder-server",
            "polder-controllers",
            "polder-store-embedded",
            "polder-store-etcd",
            "polder-store-postgres",
            "polder-client-http",
        ],
    ),
    ("polder-test-support", &["polder-server", "polder-controllers", "polder-client-http"]),
    ("polder-bench", &[]),
    ("polder-fleet", &[]),
    ("polder-fuzz", &["polder-server", "polder-client-http"]),
    ("polder-e2e-kube", &[]),
    ("xtask", &["polder-client-http"]),
];

/// Only ever a dev-dependency, and then of anybody.
const TEST_SUPPORT: &str = "polder-test-support";

/// No async, clock or I/O here: such crates may not reach any of [`IMPURE`], however far down.
const PURE: &[&str] = &["polder-model", "polder-cel", "polder-machinery", "polder-admission"];
const IMPURE: &[&str] = &["tokio", "mio", "hyper", "rustls", "rusqlite", "tempfile"];

/// Libraries that only some crates may use directly: one crate serves HTTP, one knows a database.
const RESERVED: &[(&str, &[&str])] = &[
    ("rusqlite", &["polder-store-embedded"]),
    ("hyper", &["polder-server", "polder-client-http", "polder-bench"]),
    ("tokio-postgres", &["polder-store-postgres"]),
    ("tokio-rustls", &["polder-server", "polder-client-http", "polder-store-postgres", "polder-bench"]),
];

pub(crate) fn run() -> anyhow::Result<()> {
    let workspace = Workspace::read()?;
    let mut problems = Vec::new();
    let is_member = |package: &&Package| workspace.workspace_members.contains(&package.id);
    for package in workspace.packages.iter().filter(is_member) {
        let edges =
            package.dependencies.iter().map(|one| (one.name.as_str(), one.kind.as_deref() == Some("dev")));
        problems.extend(broken_edges(&package.name, edges));
    }
    problems.extend(impure(&workspace));
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{}\n{RULE}", problems.join("\n"));
}

/// What is wrong with the direct dependencies of one of our crates, given as (name, is it for tests only).
fn broken_edges<'a>(package: &str, edges: impl Iterator<Item = (&'a str, bool)>) -> Vec<String> {
    let Some(allowed) = reachable(package) else {
        return vec![format!("{package} has no line among the arrows")];
    };
    let ours = |name: &str| ARROWS.iter().any(|(from, _)| *from == name);
    let mut problems = Vec::new();
    for (name, dev) in edges {
        if ours(name) && !allowed.contains(name) && !(dev && name == TEST_SUPPORT) {
            problems.push(format!("{package} -> {name}: there is no such arrow"));
        }
        let users = RESERVED.iter().find(|(library, _)| *library == name).map(|(_, users)| *users);
        if let Some(users) = users
            && !dev
            && !users.contains(&package)
        {
            problems.push(format!("{package} -> {name}: only {} may use it", users.join(" and ")));
        }
    }
    problems
}

/// Everything a crate may use: what its arrows reach.
fn reachable(package: &str) -> Option<BTreeSet<&'static str>> {
    let direct = |name: &str| ARROWS.iter().find(|(from, _)| *from == name).map(|(_, to)| *to);
    let mut found = BTreeSet::new();
    let mut next: Vec<&'static str> = direct(package)?.to_vec();
    while let Some(name) = next.pop() {
        if found.insert(name) {
            next.extend(direct(name).unwrap_or_default());
        }
    }
    Some(found)
}

/// Pure crates that reach something impure, with the way there.
fn impure(workspace: &Workspace) -> Vec<String> {
    let names: BTreeMap<&str, &str> =
        workspace.packages.iter().map(|one| (one.id.as_str(), one.name.as_str())).collect();
    let uses: BTreeMap<&str, Vec<&str>> = workspace
        .resolve
        .nodes
        .iter()
        .map(|node| {
            let normal = node.deps.iter().filter(|one| one.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            (node.id.as_str(), normal.map(|one| one.pkg.as_str()).collect())
        })
        .collect();
    let mut problems = Vec::new();
    for (start, _) in names.iter().filter(|(_, name)| PURE.contains(*name)) {
        let mut seen = BTreeSet::from([*start]);
        let mut paths = vec![vec![*start]];
        while let Some(path) = paths.pop() {
            let last = path[path.len() - 1];
            for next in uses.get(last).into_iter().flatten().copied() {
                if !seen.insert(next) {
                    continue;
                }
                let mut longer = path.clone();
                longer.push(next);
                if IMPURE.contains(&names[next]) {
                    let way: Vec<&str> = longer.iter().map(|id| names[id]).collect();
                    problems.push(format!(
                        "{}: a pure crate may not reach {}",
                        way.join(" -> "),
                        names[next]
                    ));
                } else {
                    paths.push(longer);
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(package: &str, edge: (&str, bool), expected: &str) {
        assert_eq!(broken_edges(package, std::iter::once(edge)).join("\n"), expected);
    }

    #[test]
    fn arrows() {
        check("polder-machinery", ("polder-model", false), "");
        check("polder-server", ("polder-store", false), "");
        check("polder-server", ("polder-test-support", true), "");
        check("polder-server", ("serde", false), "");
        check(
            "polder-model",
            ("polder-machinery", false),
            "polder-model -> polder-machinery: there is no such arrow",
        );
        check(
            "polder-server",
            ("polder-store-embedded", false),
            "polder-server -> polder-store-embedded: there is no such arrow",
        );
        check(
            "polder-server",
            ("polder-test-support", false),
            "polder-server -> polder-test-support: there is no such arrow",
        );
        check(
            "polder-registry",
            ("rusqlite", false),
            "polder-registry -> rusqlite: only polder-store-embedded may use it",
        );
        check("polder-new", ("serde", false), "polder-new has no line among the arrows");
    }

    #[test]
    fn this_workspace_keeps_the_rules() {
        run().unwrap();
    }
}
