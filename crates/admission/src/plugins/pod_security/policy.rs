//! Which policy a namespace asks for, by its labels.

use std::fmt;

use polder_model::{FieldError, FieldPath, Value};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

/// A minor version of Kubernetes 1, whose rules are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    #[default]
    Latest,
    Minor(u32),
}

/// How strict, and by the rules of which version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) level: Level,
    pub(super) version: Version,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: Rules,
    pub(super) audit: Rules,
    pub(super) warn: Rules,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

impl Version {
    /// Whether the rules of this version have one that came with a minor version.
    pub(super) fn has(self, since: u32) -> bool {
        match self {
            Version::Latest => true,
            Version::Minor(minor) => minor >= since,
        }
    }
}

impl Policy {
    /// What the labels of a namespace say, and what is wrong with them. What cannot be read is enforced most strictly,
    /// and neither warned about nor audited.
    pub(super) fn read(namespace: &Value) -> (Policy, Vec<FieldError>) {
        let (mut policy, mut errors) = (Policy::default(), Vec::new());
        let Some(labels) = namespace.at(&["metadata", "labels"]) else { return (policy, errors) };
        let label = |name: &str| labels.str_at(&[&format!("pod-security.kubernetes.io/{name}")]);
        let mut problem = |name: &str, value: &str, text: &str| {
            let (metadata, key) = (FieldPath::root("metadata"), format!("pod-security.kubernetes.io/{name}"));
            errors.push(FieldError::invalid(metadata.member("labels").key(&key), value, text));
        };
        let mut given = false;
        for (name, fallback) in
            [("enforce", Level::Restricted), ("audit", Level::Privileged), ("warn", Level::Privileged)]
        {
            let rules = match name {
                "enforce" => &mut policy.enforce,
                "audit" => &mut policy.audit,
                _ => &mut policy.warn,
            };
            if let Some(text) = label(name) {
                let level = level(text);
                if level.is_none() {
                    problem(name, text, "must be one of privileged, baseline, restricted");
                }
                given |= name == "enforce" && level.is_some();
                rules.level = level.unwrap_or(fallback);
            }
            let name = format!("{name}-version");
            if let Some(text) = label(&name) {
                let version = version(text);
                if version.is_none() {
                    problem(&name, text, r#"must be "latest" or "v1.x""#);
                }
                rules.version = version.unwrap_or_default();
            }
        }
        // What is enforced is warned about too: whoever makes a deployment hears about its pods.
        if label("warn").is_none() && given && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if label("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    pub(super) fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|rules| rules.level == Level::Privileged)
    }
}

fn level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let digits = text.strip_prefix("v1.")?;
    let plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok().map(Version::Minor)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::parse;

    #[test]
    fn labels() {
        #[track_caller]
        fn check(labels: &str, expected: &str, problems: &[&str]) {
            let labels = labels.replace("\"ps/", "\"pod-security.kubernetes.io/");
            let namespace = parse(&format!(r#"{{"metadata":{{"labels":{labels}}}}}"#));
            let (policy, errors) = Policy::read(&namespace);
            assert_eq!(format!("{} {} {}", policy.enforce, policy.audit, policy.warn), expected);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, problems);
        }
        check("{}", "privileged:latest privileged:latest privileged:latest", &[]);
        check(
            r#"{"ps/enforce":"restricted","ps/enforce-version":"v1.30"}"#,
            "restricted:v1.30 privileged:latest restricted:v1.30",
            &[],
        );
        check(
            r#"{"ps/enforce":"restricted","ps/warn":"baseline","ps/audit":"restricted"}"#,
            "restricted:latest restricted:latest baseline:latest",
            &[],
        );
        check(
            r#"{"ps/enforce":"strict","ps/audit":"x","ps/warn-version":"v1.01"}"#,
            "restricted:latest privileged:latest privileged:latest",
            &[
                r#"metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted"#,
                r#"metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: "x": must be one of privileged, baseline, restricted"#,
                r#"metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "v1.01": must be "latest" or "v1.x""#,
            ],
        );
    }
}
