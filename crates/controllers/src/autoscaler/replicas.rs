//! How many replicas a metric asks for. Pure: samples and pods in, a proposal out. All values are in thousandths.
//!
//! Pods whose numbers say nothing yet are left out; those without numbers are taken to use what makes a change smaller, so
//! that what is not known never makes a change larger.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use polder_model::quantity::Quantity;
use polder_model::{SmolStr, Value};

use crate::{meta, timestamp};

/// A pod that has run for less may still be starting, and uses more than it will.
const STARTING_SECONDS: i64 = 300;
/// A pod that was not ready in this time after its start was never ready.
const NEVER_READY_SECONDS: i64 = 30;
pub(super) const REPLICAS_MAX: i64 = i32::MAX as i64;

/// What one pod used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub value: i64,
    /// When the time over which it was measured ended, and how long that was; seconds.
    pub at: i64,
    pub window: i64,
}

pub(super) type Samples = HashMap<SmolStr, Sample>;

/// How far from its target a metric may be before anything is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tolerance {
    pub down: f64,
    pub up: f64,
}

impl Tolerance {
    fn has(&self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// What pods are to use on average.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A percentage of what each asks for.
    Utilization {
        percent: i64,
        requests: HashMap<SmolStr, i64>,
    },
    Average(i64),
}

/// What a metric says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub replicas: i64,
    /// What pods use on average, or what the whole is.
    pub usage: i64,
    /// The same as a percentage of what they ask for.
    pub percent: Option<i64>,
}

/// The share of a target that is used.
struct Usage {
    ratio: f64,
    average: i64,
    percent: Option<i64>,
}

impl Target {
    fn usage(&self, samples: &Samples) -> Result<Usage, String> {
        match self {
            Target::Average(target) => {
                let total: i128 = samples.values().map(|sample| i128::from(sample.value)).sum();
                let average = narrow(total / i128::try_from(samples.len().max(1)).unwrap_or(1));
                Ok(Usage { ratio: ratio(average, *target), average, percent: None })
            }
            Target::Utilization { percent, requests } => {
                let known = samples.iter().filter_map(|(name, sample)| Some((sample, requests.get(name)?)));
                let (mut used, mut asked, mut count) = (0_i128, 0_i128, 0_i128);
                for (sample, request) in known {
                    used += i128::from(sample.value);
                    asked += i128::from(*request);
                    count += 1;
                }
                if asked == 0 {
                    return Err("no metrics returned matched known pods".into());
                }
                let current = narrow(used * 100 / asked);
                let average = narrow(used / count.max(1));
                Ok(Usage { ratio: ratio(current, *percent), average, percent: Some(current) })
            }
        }
    }

    /// What a pod is taken to use whose numbers are missing while others use too little.
    fn assumed(&self, pod: &str) -> i64 {
        match self {
            Target::Average(target) => *target,
            Target::Utilization { percent, requests } => {
                let request = requests.get(pod).copied().unwrap_or_default();
                narrow(i128::from(request) * i128::from((*percent).max(100)) / 100)
            }
        }
    }
}

/// How many replicas a metric of each pod asks for.
pub(super) fn by_pods(
    mut samples: Samples,
    pods: &[Arc<Value>],
    current: i64,
    target: &Target,
    resource: &str,
    tolerance: Tolerance,
    now: i64,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".into());
    }
    let groups = Groups::of(pods, &samples, resource, now);
    samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".into());
    }
    let first = target.usage(&samples)?;
    let proposal = |replicas| Proposal { replicas, usage: first.average, percent: first.percent };
    let starting = !groups.unready.is_empty() && first.ratio > 1.0;
    if !starting && groups.missing.is_empty() {
        let replicas =
            if tolerance.has(first.ratio) { current } else { ceil(first.ratio * float(groups.ready)) };
        return Ok(proposal(replicas));
    }
    let assume = |value| Sample { value, at: now, window: 0 };
    for name in &groups.missing {
        if first.ratio < 1.0 {
            samples.insert(name.clone(), assume(target.assumed(name)));
        } else if first.ratio > 1.0 {
            samples.insert(name.clone(), assume(0));
        }
    }
    if starting {
        samples.extend(groups.unready.iter().map(|name| (name.clone(), assume(0))));
    }
    let second = target.usage(&samples)?.ratio;
    let turned = (first.ratio < 1.0 && second > 1.0) || (first.ratio > 1.0 && second < 1.0);
    if tolerance.has(second) || turned {
        return Ok(proposal(current));
    }
    let replicas = ceil(second * float(i64::try_from(samples.len()).unwrap_or(REPLICAS_MAX)));
    let backwards = (second < 1.0 && replicas > current) || (second > 1.0 && replicas < current);
    Ok(proposal(if backwards { current } else { replicas }))
}

/// How many replicas a metric of something else asks for, when it is to be a value.
pub(super) fn by_value(
    usage: i64,
    target: i64,
    pods: &[Arc<Value>],
    current: i64,
    tolerance: Tolerance,
) -> Result<Proposal, String> {
    let ratio = ratio(usage, target);
    let replicas = if current == 0 {
        ceil(ratio)
    } else if tolerance.has(ratio) {
        current
    } else if pods.is_empty() {
        return Err(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count"
                .into(),
        );
    } else {
        let is_ready = |pod: &&Arc<Value>| {
            pod.str_at(&["status", "phase"]) == Some("Running")
                && meta::condition(pod, "Ready") == Some("True")
        };
        ceil(ratio * float(i64::try_from(pods.iter().filter(is_ready).count()).unwrap_or(REPLICAS_MAX)))
    };
    Ok(Proposal { replicas, usage, percent: None })
}

/// The same, when it is to be a value for each of the replicas there are.
pub(super) fn by_average(usage: i64, target: i64, replicas: i64, tolerance: Tolerance) -> Proposal {
    let share = float(usage) / (float(target) * float(replicas));
    let wanted = if tolerance.has(share) { replicas } else { ceil(ratio(usage, target)) };
    let average = if replicas > 0 {
        narrow((i128::from(usage) + i128::from(replicas) - 1) / i128::from(replicas))
    } else {
        usage
    };
    Proposal { replicas: wanted, usage: average, percent: None }
}

/// What each pod asks for of a resource: all its containers, or one of them.
pub(super) fn requests(
    pods: &[Arc<Value>],
    container: &str,
    resource: &str,
) -> Result<HashMap<SmolStr, i64>, String> {
    let mut all = HashMap::with_capacity(pods.len());
    for pod in pods {
        let name = meta::name(pod);
        let quantity = |value: Option<&Value>| value.and_then(|value| Quantity::from_value(value).ok());
        let whole = pod
            .at(&["spec", "resources", "requests"])
            .filter(|own| container.is_empty() && own.as_object().is_some_and(|own| !own.is_empty()));
        if let Some(request) = whole.and_then(|whole| quantity(whole.get(resource))) {
            all.insert(name.into(), request.as_milli());
            continue;
        }
        let lasting = pod.array_at(&["spec", "initContainers"]).iter();
        let lasting = lasting.filter(|one| one.str_at(&["restartPolicy"]) == Some("Always"));
        let mut sum = 0_i64;
        let mut found = false;
        for one in pod.array_at(&["spec", "containers"]).iter().chain(lasting) {
            let own = one.str_at(&["name"]).unwrap_or_default();
            if !container.is_empty() && container != own {
                continue;
            }
            found = true;
            let request = quantity(one.at(&["resources", "requests", resource]))
                .ok_or_else(|| format!("missing request for {resource} in container {own} of Pod {name}"))?;
            sum = sum.saturating_add(request.as_milli());
        }
        if !container.is_empty() && !found {
            return Err(format!("container {container} not found in Pod {name}"));
        }
        all.insert(name.into(), sum);
    }
    Ok(all)
}

/// Pods by what their numbers are worth.
#[derive(Debug, Default)]
struct Groups {
    ready: i64,
    unready: HashSet<SmolStr>,
    missing: HashSet<SmolStr>,
    ignored: HashSet<SmolStr>,
}

impl Groups {
    fn of(pods: &[Arc<Value>], samples: &Samples, resource: &str, now: i64) -> Groups {
        let mut groups = Groups::default();
        for pod in pods {
            let name = SmolStr::new(meta::name(pod));
            let phase = pod.str_at(&["status", "phase"]).unwrap_or_default();
            if meta::is_deleting(pod) || phase == "Failed" {
                groups.ignored.insert(name);
            } else if matches!(phase, "Pending" | "") {
                groups.unready.insert(name);
            } else if let Some(sample) = samples.get(&name) {
                if resource == "cpu" && is_starting(pod, sample, now) {
                    groups.unready.insert(name);
                } else {
                    groups.ready += 1;
                }
            } else {
                groups.missing.insert(name);
            }
        }
        groups
    }
}

/// Whether what a pod used of the processor says nothing about what it will use.
fn is_starting(pod: &Value, sample: &Sample, now: i64) -> bool {
    let started = pod.str_at(&["status", "startTime"]).and_then(timestamp::seconds);
    let (Some(condition), Some(started)) = (meta::find_condition(pod, "Ready"), started) else { return true };
    let changed = condition.str_at(&["lastTransitionTime"]).and_then(timestamp::seconds).unwrap_or_default();
    let unready = condition.str_at(&["status"]) == Some("False");
    if started + STARTING_SECONDS > now {
        unready || sample.at < changed + sample.window
    } else {
        unready && started + NEVER_READY_SECONDS > changed
    }
}

fn ratio(usage: i64, target: i64) -> f64 {
    float(usage) / float(target)
}

#[expect(clippy::cast_precision_loss, reason = "shares need not be exact")]
fn float(number: i64) -> f64 {
    number as f64
}

/// The next whole number of replicas, within what there can be.
#[expect(clippy::cast_possible_truncation, reason = "it is clamped; what is no number becomes zero")]
fn ceil(number: f64) -> i64 {
    number.ceil().clamp(0.0, float(REPLICAS_MAX)) as i64
}

fn narrow(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    const TOLERANCE: Tolerance = Tolerance { down: 0.1, up: 0.1 };

    /// Pods by a letter each: ready, pending, failed; with what each uses, or nothing.
    fn world(letters: &str, used: &[i64]) -> (Vec<Arc<Value>>, Samples) {
        let pods = letters.chars().enumerate().map(|(index, letter)| {
            let phase = match letter {
                'p' => "Pending",
                'f' => "Failed",
                _ => "Running",
            };
            let ready = if letter == 'u' { "False" } else { "True" };
            Arc::new(json!({
                "metadata": {"name": (format!("p{index}"))},
                "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {
                    "phase": phase, "startTime": "2026-01-01T00:00:00Z",
                    "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:10Z"}],
                },
            }))
        });
        let pods: Vec<Arc<Value>> = pods.collect();
        let now = timestamp::seconds("2026-01-02T00:00:00Z").unwrap();
        let used = used.iter().enumerate().filter(|(_, value)| **value >= 0);
        let samples = used.map(|(index, value)| {
            (SmolStr::from(format!("p{index}")), Sample { value: *value, at: now, window: 60 })
        });
        (pods, samples.collect())
    }

    fn propose(letters: &str, used: &[i64], percent: i64) -> Result<Proposal, String> {
        let (pods, samples) = world(letters, used);
        let requests = requests(&pods, "", "cpu")?;
        let target = Target::Utilization { percent, requests };
        let now = timestamp::seconds("2026-01-02T00:00:00Z").unwrap();
        let current = i64::try_from(letters.len()).unwrap();
        by_pods(samples, &pods, current, &target, "cpu", TOLERANCE, now)
    }

    #[test]
    fn utilization() {
        #[track_caller]
        fn check(letters: &str, used: &[i64], percent: i64, replicas: i64, found: i64) {
            let proposal = propose(letters, used, percent).unwrap();
            assert_eq!((proposal.replicas, proposal.percent), (replicas, Some(found)));
        }
        // The rows are those that upstream's calculator is tested with.
        check("rrr", &[300, 500, 700], 30, 5, 50);
        check("rru", &[300, 500, 700], 30, 3, 40);
        check("rrrr", &[400, 500, 600, -1], 30, 5, 50);
        check("rrr", &[1000, 1000, 1000], 100, 3, 100);
        check("rrr", &[1020, 1020, 1020], 100, 3, 102);
        check("rrrrr", &[100, 300, 500, 250, 250], 50, 3, 28);
        check("rrrrrf", &[100, 300, 500, 250, 250, 9000], 50, 3, 28);
        check("rrp", &[500, 700, -1], 30, 4, 60);
        check("rrrrr", &[100, 300, 500, 250, -1], 50, 5, 28);
    }

    #[test]
    fn what_cannot_be_said() {
        let none = propose("rr", &[-1, -1], 50).unwrap_err();
        assert_eq!(none, "did not receive metrics for targeted pods (pods might be unready)");
        assert_eq!(
            propose("", &[], 50).unwrap_err(),
            "no pods returned by selector while calculating replica count"
        );
        let (pods, _) = world("r", &[]);
        let missing = requests(&pods, "", "memory").unwrap_err();
        assert_eq!(missing, "missing request for memory in container c of Pod p0");
        assert_eq!(requests(&pods, "d", "cpu").unwrap_err(), "container d not found in Pod p0");
    }

    #[test]
    fn averages() {
        #[track_caller]
        fn check(letters: &str, used: &[i64], target: i64, replicas: i64, usage: i64) {
            let (pods, samples) = world(letters, used);
            let now = timestamp::seconds("2026-01-02T00:00:00Z").unwrap();
            let current = i64::try_from(letters.len()).unwrap();
            let found =
                by_pods(samples, &pods, current, &Target::Average(target), "", TOLERANCE, now).unwrap();
            assert_eq!((found.replicas, found.usage), (replicas, usage));
        }
        check("rrr", &[20_000, 10_000, 30_000], 15_000, 4, 20_000);
        check("rrr", &[12_000, 12_000, 12_000], 20_000, 2, 12_000);
        check("rrr", &[20_000, -1, 20_000], 10_000, 4, 20_000);
    }

    #[test]
    fn values() {
        let (pods, _) = world("rrr", &[]);
        let of =
            |usage, target, current| by_value(usage, target, &pods, current, TOLERANCE).unwrap().replicas;
        assert_eq!(of(20_000, 15_000, 3), 4);
        assert_eq!(of(15_500, 15_000, 3), 3);
        assert_eq!(of(5_000, 15_000, 3), 1);
        assert_eq!(of(30_000, 15_000, 0), 2);
        assert_eq!(of(i64::MAX, 1, 3), REPLICAS_MAX);
        assert_eq!(
            by_average(20_000, 5_000, 3, TOLERANCE),
            Proposal { replicas: 4, usage: 6_667, percent: None }
        );
        assert_eq!(by_average(15_000, 5_000, 3, TOLERANCE).replicas, 3);
        assert_eq!(by_average(15_000, 5_000, 0, TOLERANCE).replicas, 3);
    }

    #[test]
    fn pods_that_start() {
        let now = timestamp::seconds("2026-01-01T00:01:00Z").unwrap();
        let pod = |status: &str, changed: &str| {
            json!({"status": {
                "startTime": "2026-01-01T00:00:00Z",
                "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": changed}],
            }})
        };
        let sample = |at: &str| Sample { value: 1, at: timestamp::seconds(at).unwrap(), window: 30 };
        let ready = pod("True", "2026-01-01T00:00:20Z");
        assert!(is_starting(&ready, &sample("2026-01-01T00:00:40Z"), now), "measured while it started");
        assert!(!is_starting(&ready, &sample("2026-01-01T00:00:55Z"), now));
        let late = now + 3600;
        assert!(!is_starting(&ready, &sample("2026-01-01T00:00:40Z"), late));
        assert!(
            is_starting(&pod("False", "2026-01-01T00:00:20Z"), &sample("2026-01-01T00:00:55Z"), late),
            "never ready"
        );
        assert!(!is_starting(&pod("False", "2026-01-01T00:10:00Z"), &sample("2026-01-01T00:00:55Z"), late));
        assert!(is_starting(&json!({}), &sample("2026-01-01T00:00:55Z"), late));
    }
}
