//! What came of each test, from ginkgo's report.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// A reason is one line of a table.
const REASON_LEN_MAX: usize = 220;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) test: &'static str,
    /// Why it did not pass, in a line; nothing if it did.
    pub(crate) failure: Option<String>,
}

/// The part of ginkgo's report that is used here.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
    forwarded_panic: String,
}

/// Reads how each of the tests went. One that is not in the report at all did not pass either.
pub(crate) fn read(report: &Path, tests: &[&'static str]) -> anyhow::Result<Vec<Outcome>> {
    let file = File::open(report).with_context(|| format!("there is no {}", report.display()))?;
    let suites: Vec<Suite> = serde_json::from_reader(BufReader::new(file))
        .with_context(|| format!("cannot read {}", report.display()))?;
    outcomes(suites, tests)
}

fn outcomes(suites: Vec<Suite>, tests: &[&'static str]) -> anyhow::Result<Vec<Outcome>> {
    let mut failures = HashMap::new();
    for spec in suites.into_iter().filter_map(|suite| suite.spec_reports).flatten() {
        let failure = spec.failure();
        if spec.leaf_node_type == "It" {
            let mut words = spec.container_hierarchy_texts.unwrap_or_default();
            words.push(spec.leaf_node_text);
            failures.insert(words.join(" "), failure);
        } else if let Some(failure) = failure.filter(|_| spec.leaf_node_type.contains("BeforeSuite")) {
            bail!("no test ran, because the suite could not be set up: {failure}");
        }
    }
    let outcomes = tests.iter().map(|test| Outcome {
        test,
        failure: failures.remove(*test).unwrap_or_else(|| Some("did not run".into())),
    });
    Ok(outcomes.collect())
}

impl Spec {
    fn failure(&self) -> Option<String> {
        if self.state == "passed" {
            return None;
        }
        let said = self.failure.as_ref();
        let said = said.map(|failure| reason(&format!("{}\n{}", failure.message, failure.forwarded_panic)));
        let said = said.unwrap_or_default();
        Some(match self.state.as_str() {
            "failed" => said,
            state => format!("{state}: {said}"),
        })
    }
}

/// The gist of a failure: without the types, addresses and dumped structures of Go values.
fn reason(message: &str) -> String {
    let lines = message.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with('{'));
    let telling =
        lines.filter(|line| !(line.is_empty() || line.starts_with('<') || *line == "Unexpected error:"));
    let text = telling.collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(REASON_LEN_MAX) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"[{"SpecReports": [
        {"LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "", "State": "passed", "ContainerHierarchyTexts": null},
        {"LeafNodeType": "It", "LeafNodeText": "works", "State": "passed", "ContainerHierarchyTexts": ["[sig-x] A"]},
        {"LeafNodeType": "It", "LeafNodeText": "fails", "State": "failed", "ContainerHierarchyTexts": ["[sig-x] A"],
         "Failure": {"Message": "Unexpected error:\n    <*errors.StatusError | 0xc0>: \n    no such | thing\n    {\n        ErrStatus: x\n"}},
        {"LeafNodeType": "It", "LeafNodeText": "waits", "State": "timedout", "ContainerHierarchyTexts": ["[sig-x] A"],
         "Failure": {"Message": "Timed out"}},
        {"LeafNodeType": "It", "LeafNodeText": "is another's", "State": "skipped", "ContainerHierarchyTexts": ["[sig-x] A"]}
    ]}]"#;

    #[test]
    fn every_test_has_an_outcome() {
        let suites = serde_json::from_str(REPORT).unwrap();
        let tests = ["[sig-x] A fails", "[sig-x] A works", "[sig-x] A waits", "[sig-x] A is missing"];
        let found: Vec<_> =
            outcomes(suites, &tests).unwrap().into_iter().map(|outcome| outcome.failure).collect();
        let expected = [Some("no such | thing"), None, Some("timedout: Timed out"), Some("did not run")];
        assert_eq!(found, expected.map(|reason| reason.map(String::from)));
    }

    #[test]
    fn a_suite_that_cannot_begin_is_an_error() {
        let text = r#"[{"SpecReports": [{"LeafNodeType": "SynchronizedBeforeSuite", "LeafNodeText": "",
            "State": "failed", "Failure": {"Message": "no service"}}]}]"#;
        let error = outcomes(serde_json::from_str(text).unwrap(), &["[sig-x] A"]).unwrap_err();
        assert!(error.to_string().ends_with("could not be set up: no service"), "{error}");
    }

    #[test]
    fn reasons_are_short() {
        assert_eq!(reason(&"ä".repeat(1000)).chars().count(), REASON_LEN_MAX + 1);
        assert_eq!(reason("failed to wait:\n  <*x | 0xc0>\n  timed out\n"), "failed to wait: timed out");
    }
}
