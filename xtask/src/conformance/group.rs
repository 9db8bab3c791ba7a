//! Which of upstream's tests make up a group. The lists are facts about one release: full names, one a line.
//!
//! A name that upstream no longer has shows up as a test that did not run, so a list cannot rot unseen.

use std::collections::BTreeMap;

use anyhow::Context as _;
use regex::Regex;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Group {
    /// Conformance tests that need no node: API machinery and built-in controllers.
    A,
    /// Conformance tests that need pods to run, but nothing inside of them: simulated nodes are enough.
    B1,
    /// Tests beyond conformance that need no node: server-side apply, validation rules, watch lists and more.
    Extra,
}

/// What a plane must have before its tests begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// A Node object nobody stands behind: some tests count nodes, none runs a pod.
    Object,
    /// Simulated ones, with a scheduler.
    Simulated(u32),
}

impl Group {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Group::A => "a",
            Group::B1 => "b1",
            Group::Extra => "extra",
        }
    }

    /// What the group is, for the reader of the report.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Group::A => {
                "Conformance tests that need no node: API machinery and built-in controllers. \
                 A real kube-apiserver with kube-controller-manager passes all of them."
            }
            Group::B1 => {
                "Conformance tests that need pods to be scheduled, to run and to go, but nothing inside of them. \
                 The plane has two simulated nodes."
            }
            Group::Extra => {
                "Upstream's tests beyond conformance that need no node: server-side apply, validation rules and ratcheting, \
                 watch lists, OpenAPI, tables, quota scopes. A real kube-apiserver with kube-controller-manager passes all of them."
            }
        }
    }

    pub(crate) fn nodes(self) -> Nodes {
        match self {
            Group::A | Group::Extra => Nodes::Object,
            Group::B1 => Nodes::Simulated(2),
        }
    }

    /// The names of its tests, of those only that match `focus`.
    pub(crate) fn tests(self, focus: Option<&str>) -> anyhow::Result<Vec<&'static str>> {
        let focus = focus.map(Regex::new).transpose().context("--focus is no regular expression")?;
        let text = match self {
            Group::A => include_str!("a.txt"),
            Group::B1 => include_str!("b1.txt"),
            Group::Extra => include_str!("extra.txt"),
        };
        let tests = text.lines().filter(|line| !line.is_empty());
        Ok(tests.filter(|name| focus.as_ref().is_none_or(|focus| focus.is_match(name))).collect())
    }
}

/// An expression for ginkgo that selects these tests and no others: it is matched against the suite's name, a space
/// and the test's.
pub(crate) fn selection(tests: &[&str]) -> String {
    let names: Vec<String> = tests.iter().map(|name| regex::escape(name)).collect();
    format!("^Kubernetes e2e suite (?:{})$", names.join("|"))
}

/// Counts by special interest group, the first word of a name.
pub(crate) fn by_area<'a>(
    tests: impl IntoIterator<Item = (&'a str, bool)>,
) -> BTreeMap<&'a str, (usize, usize)> {
    let mut areas = BTreeMap::new();
    for (name, passed) in tests {
        let area = name.split(' ').next().unwrap_or_default().trim_matches(['[', ']']);
        let (all, good): &mut (usize, usize) = areas.entry(area).or_default();
        *all += 1;
        *good += usize::from(passed);
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_as_many_names_as_issue_and_reference_say() {
        for (group, len) in [(Group::A, 144), (Group::B1, 64), (Group::Extra, 74)] {
            let mut tests = group.tests(None).unwrap();
            assert_eq!(tests.len(), len, "{}", group.name());
            assert!(tests.iter().all(|name| name.starts_with("[sig-") && name.trim() == *name));
            let conformance = tests.iter().filter(|name| name.contains("[Conformance]")).count();
            assert_eq!(conformance, if group == Group::Extra { 0 } else { len });
            tests.dedup();
            assert_eq!(tests.len(), len, "{} names a test twice", group.name());
        }
    }

    #[test]
    fn a_focus_chooses_within_the_group() {
        assert_eq!(Group::A.tests(Some("Garbage collector.*orphan")).unwrap().len(), 4);
        assert!(Group::A.tests(Some("(")).is_err());
    }

    #[test]
    fn a_selection_takes_names_literally_and_whole() {
        let selection = Regex::new(&selection(&["[sig-x] a (b) c.", "[sig-x] a"])).unwrap();
        assert!(selection.is_match("Kubernetes e2e suite [sig-x] a (b) c."));
        assert!(selection.is_match("Kubernetes e2e suite [sig-x] a"));
        assert!(!selection.is_match("Kubernetes e2e suite [sig-x] a (b) c. too"));
        assert!(!selection.is_match("Kubernetes e2e suite [sig-x] a (b) cd"));
    }

    #[test]
    fn areas_are_counted() {
        let areas = by_area([("[sig-x] a", true), ("[sig-x] b", false), ("[sig-y] c", true)]);
        assert_eq!(areas.into_iter().collect::<Vec<_>>(), [("sig-x", (2, 1)), ("sig-y", (1, 1))]);
    }
}
