//! `docs/conformance.md`: a section for each group, each from its own latest run.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use super::group::{Group, by_area};
use super::outcome::Outcome;
use crate::workspace::root;

const INTRODUCTION: &str = "\
# Conformance

What upstream's own end-to-end tests (`e2e.test`) say about a plane, with upstream's clients as they are: protobuf,
the plane's own host name, kubectl of the same release. `cargo xtask conformance --group a|b1|extra` runs a group
and writes its section; `--focus` runs some tests of it and writes nothing, `--planes 2` runs it in two planes at
once. The tests are built from Go modules the first time, which takes about ten minutes; CI does not run them,
because a group takes from three to fifteen minutes. Logs and reports of a run are in `target/conformance/`.
";

/// One run of one group.
pub(crate) struct Run<'a> {
    pub(crate) group: Group,
    pub(crate) release: &'a str,
    pub(crate) date: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) build: &'a str,
    pub(crate) processes: u32,
    pub(crate) seconds: u64,
    /// By plane.
    pub(crate) outcomes: Vec<(String, Vec<Outcome>)>,
}

/// Replaces the group's section in the file.
pub(crate) fn write(run: &Run<'_>) -> anyhow::Result<PathBuf> {
    let path = root().join("docs/conformance.md");
    let old = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    std::fs::write(&path, merged(&old, run.group, &section(run)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn heading(group: Group) -> String {
    format!("## Group {}:", group.name())
}

fn merged(old: &str, group: Group, section: &str) -> String {
    let mut text = INTRODUCTION.to_string();
    for one in [Group::A, Group::B1, Group::Extra] {
        let kept = || old.split("\n## ").find(|part| format!("## {part}").starts_with(&heading(one)));
        let part =
            if one == group { Some(section.to_string()) } else { kept().map(|part| format!("## {part}")) };
        if let Some(part) = part {
            text = format!("{text}\n{}\n", part.trim_end());
        }
    }
    text
}

fn section(run: &Run<'_>) -> String {
    let mut text = heading(run.group);
    let counts = run.outcomes.iter().map(|(_, outcomes)| {
        let passed = outcomes.iter().filter(|outcome| outcome.failure.is_none()).count();
        format!("{passed} of {}", outcomes.len())
    });
    let counts: Vec<String> = counts.collect();
    let (minutes, seconds) = (run.seconds / 60, run.seconds % 60);
    let planes = match run.outcomes.len() {
        1 => "one plane".to_string(),
        count => format!("{count} planes at once"),
    };
    let (release, date, commit, build) = (run.release, run.date, run.commit, run.build);
    let (group, processes) = (run.group.about(), run.processes);
    write!(
        text,
        " {}\n\n{group}\n\nKubernetes {release}, {date}, commit {commit}, {build} build, {planes}, \
         {processes} test processes a plane, {minutes} min {seconds} s.\n\n",
        counts.join(", ")
    )
    .expect("a text takes all that is written to it");
    let passed = run.outcomes.iter().map(|(plane, _)| format!(" passed in {plane} |"));
    let rule = run.outcomes.iter().map(|_| " ---: |");
    text += &format!(
        "| area | tests |{}\n| --- | ---: |{}\n",
        passed.collect::<String>(),
        rule.collect::<String>()
    );
    let areas = run.outcomes.iter().map(|(_, outcomes)| {
        by_area(outcomes.iter().map(|outcome| (outcome.test, outcome.failure.is_none())))
    });
    let areas: Vec<_> = areas.collect();
    for (area, (all, _)) in areas.first().into_iter().flatten() {
        let passed =
            areas.iter().map(|areas| format!(" {} |", areas.get(area).map_or(0, |(_, passed)| *passed)));
        text += &format!("| {area} | {all} |{}\n", passed.collect::<String>());
    }
    let failed = run.outcomes.iter().flat_map(|(plane, outcomes)| {
        let failed = outcomes.iter().filter_map(|outcome| Some((outcome.test, outcome.failure.as_ref()?)));
        failed.map(move |(test, reason)| (test, plane, reason))
    });
    let mut failed: Vec<_> = failed.collect();
    failed.sort_unstable();
    if failed.is_empty() {
        text += "\nNo test fails.\n";
    } else {
        text += "\n| failing test | plane | why |\n| --- | --- | --- |\n";
        for (test, plane, reason) in failed {
            text += &format!("| {} | {plane} | {} |\n", cell(test), cell(reason));
        }
    }
    text
}

/// A text that a table shows as it is.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    for letter in text.chars() {
        if matches!(letter, '|' | '<' | '*' | '_' | '`' | '[' | ']' | '\\') {
            cell.push('\\');
        }
        cell.push(if letter.is_control() { ' ' } else { letter });
    }
    cell
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(failure: Option<&str>) -> Run<'static> {
        let outcome = Outcome { test: "[sig-x] A works", failure: failure.map(String::from) };
        Run {
            group: Group::B1,
            release: "1.35.8",
            date: "2026-01-02",
            commit: "abc",
            build: "debug",
            processes: 4,
            seconds: 61,
            outcomes: vec![("plane-1".into(), vec![outcome])],
        }
    }

    #[test]
    fn a_section_says_what_ran_and_what_failed() {
        let text = section(&run(Some("a | b")));
        assert!(text.starts_with("## Group b1: 0 of 1\n"), "{text}");
        assert!(text.contains("Kubernetes 1.35.8, 2026-01-02, commit abc, debug build, one plane, 4 test processes a plane, 1 min 1 s."));
        assert!(text.contains("| sig-x | 1 | 0 |\n"));
        assert!(text.contains("| \\[sig-x\\] A works | plane-1 | a \\| b |\n"));
        assert!(section(&run(None)).contains("No test fails."));
    }

    #[test]
    fn other_groups_keep_their_sections() {
        let first = merged("", Group::Extra, "## Group extra: 1 of 1\n\nold\n");
        let second = merged(&first, Group::A, "## Group a: 1 of 1\n");
        assert_eq!(second, format!("{INTRODUCTION}\n## Group a: 1 of 1\n\n## Group extra: 1 of 1\n\nold\n"));
        let third = merged(&second, Group::Extra, "## Group extra: 0 of 1\n");
        assert_eq!(third, format!("{INTRODUCTION}\n## Group a: 1 of 1\n\n## Group extra: 0 of 1\n"));
    }
}
