//! The checks of the pod security standards. Each says what it forbids, and in which words it tells about it.

use std::collections::BTreeSet;

use polder_model::Value;

use super::policy::{Level, Rules, Version};

/// What a check has against a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) reason: String,
    pub(super) detail: String,
}

/// One check, of baseline or of restricted pods.
struct Check {
    level: Level,
    /// The minor version it came with.
    since: u32,
    /// The check of a stricter level that takes its place, and since when.
    replaced: Option<u32>,
    run: fn(&Pod<'_>) -> Option<Violation>,
}

const fn baseline(since: u32, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { level: Level::Baseline, since, replaced: None, run }
}

const fn replaced(replaced: u32, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { level: Level::Baseline, since: 0, replaced: Some(replaced), run }
}

const fn restricted(since: u32, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { level: Level::Restricted, since, replaced: None, run }
}

/// In the order in which violations are told: baseline first, each level by the names upstream has for its checks.
static ALL: &[Check] = &[
    baseline(0, app_armor),
    replaced(22, capabilities_baseline),
    baseline(0, host_namespaces),
    replaced(0, host_path_volumes),
    baseline(0, host_ports),
    baseline(34, probe_hosts),
    baseline(0, privileged),
    replaced(35, proc_mount_baseline),
    baseline(0, selinux),
    replaced(19, seccomp_baseline),
    baseline(0, sysctls),
    baseline(0, windows_host_process),
    restricted(8, privilege_escalation),
    restricted(22, capabilities_restricted),
    restricted(35, proc_mount),
    restricted(0, restricted_volumes),
    restricted(0, run_as_non_root),
    restricted(23, run_as_user),
    restricted(19, seccomp_restricted),
];

/// Everything that is wrong with a pod under some rules. `pod` has the metadata and spec of one, as a template has.
pub(super) fn violations(rules: Rules, pod: &Value) -> Vec<Violation> {
    if rules.level == Level::Privileged {
        return Vec::new();
    }
    let pod = Pod { value: pod, version: rules.version };
    let runs = |check: &&Check| {
        let replaced =
            rules.level == Level::Restricted && check.replaced.is_some_and(|since| rules.version.has(since));
        check.level <= rules.level && rules.version.has(check.since) && !replaced
    };
    ALL.iter().filter(runs).filter_map(|check| (check.run)(&pod)).collect()
}

/// `privileged (container "a" must not ...), hostPort (...)`
pub(super) fn detail(violations: &[Violation]) -> String {
    let texts = violations.iter().map(|one| match one.detail.as_str() {
        "" => one.reason.clone(),
        detail => format!("{} ({detail})", one.reason),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// `privileged, hostPort`
pub(super) fn reasons(violations: &[Violation]) -> String {
    let reasons: Vec<&str> = violations.iter().map(|one| one.reason.as_str()).collect();
    reasons.join(", ")
}

struct Pod<'a> {
    value: &'a Value,
    version: Version,
}

impl<'a> Pod<'a> {
    fn spec(&self, path: &[&str]) -> Option<&'a Value> {
        self.value.get("spec")?.at(path)
    }

    fn list(&self, list: &str) -> &'a [Value] {
        self.spec(&[list]).and_then(Value::as_array).unwrap_or_default()
    }

    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainers", "containers", "ephemeralContainers"];
        lists.into_iter().flat_map(|list| self.list(list))
    }

    /// The names of the containers that something is true of.
    fn naming(&self, is: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(|container| is(container)).map(name).collect()
    }

    /// Checks that only make sense on Linux are not made for pods that say they run elsewhere.
    fn is_windows(&self) -> bool {
        self.version.has(25) && self.spec(&["os", "name"]).and_then(Value::as_str) == Some("windows")
    }

    /// Root in a user namespace of its own is nobody outside.
    fn has_own_users(&self) -> bool {
        self.version.has(35) && self.spec(&["hostUsers"]).and_then(Value::as_bool) == Some(false)
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let all = self.value.at(&["metadata", "annotations"]).and_then(Value::as_object);
        let all = all.into_iter().flat_map(|all| all.iter());
        all.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
    }
}

fn name(value: &Value) -> &str {
    value.str_at(&["name"]).unwrap_or_default()
}

fn security<'a>(holder: &'a Value, path: &[&str]) -> Option<&'a Value> {
    holder.get("securityContext")?.at(path).filter(|value| !value.is_null())
}

fn pod_security<'a>(pod: &Pod<'a>, path: &[&str]) -> Option<&'a Value> {
    security(pod.value.get("spec")?, path)
}

fn is_true(value: Option<&Value>) -> bool {
    value.and_then(Value::as_bool) == Some(true)
}

fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect();
    items.join(", ")
}

fn plural<'a>(one: &'a str, many: &'a str, len: usize) -> &'a str {
    if len == 1 { one } else { many }
}

/// `container "a"`, `containers "a", "b"`
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.into(), detail: detail.into() })
}

/// `pod and containers "a", "b"`: those who say something.
fn setters(pod: bool, names: &[&str]) -> Option<String> {
    let mut setters = Vec::new();
    if pod {
        setters.push("pod".to_owned());
    }
    if !names.is_empty() {
        setters.push(containers(names));
    }
    (!setters.is_empty()).then(|| setters.join(" and "))
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let path = ["appArmorProfile", "type"];
    let bad = |value: Option<&Value>| {
        let kind = value.and_then(Value::as_str).unwrap_or_default();
        (!["RuntimeDefault", "Localhost"].contains(&kind)).then(|| kind.to_owned())
    };
    let of = |profile: Option<&Value>, kind: Option<&Value>| profile.and_then(|_| bad(kind));
    let whole = of(pod_security(pod, &path[..1]), pod_security(pod, &path));
    let own = |container: &Value| of(security(container, &path[..1]), security(container, &path));
    let names = pod.naming(|container| own(container).is_some());
    let values: BTreeSet<String> = whole.iter().cloned().chain(pod.containers().filter_map(own)).collect();
    let mut values: Vec<String> = values.into_iter().collect();
    let allowed =
        |value: &str| value.is_empty() || value == "runtime/default" || value.starts_with("localhost/");
    let mut annotations: Vec<String> = pod
        .annotations()
        .filter(|(key, value)| {
            key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !allowed(value)
        })
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    annotations.sort();
    let mut who: Vec<String> = setters(whole.is_some(), &names).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", "annotations", annotations.len()).to_owned());
    }
    values.extend(annotations);
    if who.is_empty() {
        return None;
    }
    violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len()),
        format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values)),
    )
}

/// What a container adds to its capabilities that is not allowed.
fn added<'a>(container: &'a Value, allowed: &[&str]) -> Vec<&'a str> {
    let added = security(container, &["capabilities", "add"]).and_then(Value::as_array).unwrap_or_default();
    added.iter().filter_map(Value::as_str).filter(|one| !allowed.contains(one)).collect()
}

fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 13] = [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ];
    let names = pod.naming(|container| !added(container, &ALLOWED).is_empty());
    let bad: BTreeSet<&str> = pod.containers().flat_map(|container| added(container, &ALLOWED)).collect();
    if names.is_empty() {
        return None;
    }
    let (who, what) = (containers(&names), quoted(bad));
    violation(
        "non-default capabilities",
        format!("{who} must not include {what} in securityContext.capabilities.add"),
    )
}

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 1] = ["NET_BIND_SERVICE"];
    if pod.is_windows() {
        return None;
    }
    let keeps = |container: &Value| {
        let dropped = security(container, &["capabilities", "drop"]).and_then(Value::as_array);
        !dropped.unwrap_or_default().iter().any(|one| one.as_str() == Some("ALL"))
    };
    let (keeping, adding) = (pod.naming(keeps), pod.naming(|one| !added(one, &ALLOWED).is_empty()));
    let bad: BTreeSet<&str> = pod.containers().flat_map(|container| added(container, &ALLOWED)).collect();
    let mut details = Vec::new();
    if !keeping.is_empty() {
        let who = containers(&keeping);
        details.push(format!(r#"{who} must set securityContext.capabilities.drop=["ALL"]"#));
    }
    if !adding.is_empty() {
        let (who, what) = (containers(&adding), quoted(bad));
        details.push(format!("{who} must not include {what} in securityContext.capabilities.add"));
    }
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|one| is_true(pod.spec(&[one])));
    let shared: Vec<String> = shared.map(|one| format!("{one}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.list("volumes").iter().filter(|volume| volume.get("hostPath").is_some());
    let names: Vec<&str> = volumes.map(name).collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} {}", plural("volume", "volumes", names.len()), quoted(&names));
    violation("hostPath volumes", detail)
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let ports = |container: &Value| -> Vec<String> {
        let ports = container.array_at(&["ports"]).iter().filter_map(|port| port.i64_at(&["hostPort"]));
        ports.filter(|port| *port != 0).map(|port| port.to_string()).collect()
    };
    let names = pod.naming(|container| !ports(container).is_empty());
    let bad: BTreeSet<String> = pod.containers().flat_map(ports).collect();
    if names.is_empty() {
        return None;
    }
    let bad: Vec<String> = bad.into_iter().collect();
    violation(
        "hostPort",
        format!(
            "{} {} {} {}",
            containers(&names),
            plural("uses", "use", names.len()),
            plural("hostPort", "hostPorts", bad.len()),
            bad.join(", ")
        ),
    )
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    fn hosts(container: &Value) -> Vec<&str> {
        let handlers = HANDLERS.iter().filter_map(|path| container.at(path));
        let hosts = handlers.flat_map(|handler| {
            ["httpGet", "tcpSocket"].into_iter().filter_map(|kind| handler.str_at(&[kind, "host"]))
        });
        hosts.filter(|host| !host.is_empty()).collect()
    }
    let names: BTreeSet<&str> = pod.naming(|container| !hosts(container).is_empty()).into_iter().collect();
    let bad: BTreeSet<&str> = pod.containers().flat_map(hosts).collect();
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    violation(
        "probe or lifecycle host",
        format!(
            "{} {} {} {}",
            containers(&names),
            plural("uses", "use", names.len()),
            plural("probe or lifecycle host", "probe or lifecycle hosts", bad.len()),
            quoted(bad)
        ),
    )
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.naming(|container| is_true(security(container, &["privileged"])));
    if names.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

fn proc_mount_baseline(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() { None } else { proc_mount(pod) }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let bad = |container| {
        let mount = security(container, &["procMount"]).and_then(Value::as_str);
        mount.filter(|mount| *mount != "Default")
    };
    let names = pod.naming(|container| bad(container).is_some());
    let kinds: BTreeSet<&str> = pod.containers().filter_map(bad).collect();
    if names.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(kinds));
    violation("procMount", detail)
}

fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    let engine = pod.version.has(31);
    let allowed = |kind: &str| {
        matches!(kind, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (engine && kind == "container_engine_t")
    };
    fn text<'a>(options: &'a Value, field: &str) -> &'a str {
        options.str_at(&[field]).unwrap_or_default()
    }
    let bad = |options: &&Value| {
        !allowed(text(options, "type"))
            || !text(options, "user").is_empty()
            || !text(options, "role").is_empty()
    };
    let own = |container| security(container, &["seLinuxOptions"]).filter(bad);
    let whole = pod_security(pod, &["seLinuxOptions"]).filter(bad);
    let names = pod.naming(|container| own(container).is_some());
    let who = setters(whole.is_some(), &names)?;
    let all: Vec<&Value> = whole.into_iter().chain(pod.containers().filter_map(own)).collect();
    let kinds: BTreeSet<&str> =
        all.iter().map(|options| text(options, "type")).filter(|kind| !allowed(kind)).collect();
    let mut what = Vec::new();
    if !kinds.is_empty() {
        what.push(format!("{} {}", plural("type", "types", kinds.len()), quoted(kinds)));
    }
    for field in ["user", "role"] {
        if all.iter().any(|options| !text(options, field).is_empty()) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    violation("seLinuxOptions", detail)
}

/// Seccomp profiles that are set and not allowed: by whom, and which.
fn bad_seccomp<'a>(pod: &Pod<'a>) -> Option<(String, BTreeSet<&'a str>)> {
    fn bad(profile: Option<&Value>) -> Option<&str> {
        let kind = profile?.str_at(&["type"]).unwrap_or_default();
        (!["RuntimeDefault", "Localhost"].contains(&kind)).then_some(kind)
    }
    let own = |container: &'a Value| bad(security(container, &["seccompProfile"]));
    let whole = bad(pod_security(pod, &["seccompProfile"]));
    let who = setters(whole.is_some(), &pod.naming(|container| own(container).is_some()))?;
    Some((who, whole.into_iter().chain(pod.containers().filter_map(own)).collect()))
}

fn forbidden_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let (who, kinds) = bad_seccomp(pod)?;
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(kinds));
    violation("seccompProfile", detail)
}

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    const POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
    if pod.version.has(19) {
        return forbidden_seccomp(pod);
    }
    // Before there was a field there were annotations.
    let named = |key: &str| {
        key == POD
            || key.strip_prefix(CONTAINER).is_some_and(|own| pod.containers().any(|one| name(one) == own))
    };
    let allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let bad = pod.annotations().filter(|(key, value)| named(key) && !allowed(value));
    let bad: BTreeSet<String> = bad.map(|(key, value)| format!("{key}={value:?}")).collect();
    if bad.is_empty() {
        return None;
    }
    let bad: Vec<String> = bad.into_iter().collect();
    let word = plural("annotation", "annotations", bad.len());
    violation("seccompProfile", format!("forbidden {word} {}", bad.join(", ")))
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let forbidden = forbidden_seccomp(pod);
    if forbidden.is_some() {
        return forbidden;
    }
    if pod_security(pod, &["seccompProfile"]).is_some() {
        return None;
    }
    let names = pod.naming(|container| security(container, &["seccompProfile"]).is_none());
    if names.is_empty() {
        return None;
    }
    let who = containers(&names);
    violation(
        "seccompProfile",
        format!(
            r#"pod or {who} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#
        ),
    )
}

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [(u32, &str); 12] = [
        (0, "kernel.shm_rmid_forced"),
        (0, "net.ipv4.ip_local_port_range"),
        (0, "net.ipv4.tcp_syncookies"),
        (0, "net.ipv4.ping_group_range"),
        (0, "net.ipv4.ip_unprivileged_port_start"),
        (27, "net.ipv4.ip_local_reserved_ports"),
        (29, "net.ipv4.tcp_keepalive_time"),
        (29, "net.ipv4.tcp_fin_timeout"),
        (29, "net.ipv4.tcp_keepalive_intvl"),
        (29, "net.ipv4.tcp_keepalive_probes"),
        (32, "net.ipv4.tcp_rmem"),
        (32, "net.ipv4.tcp_wmem"),
    ];
    let allowed = |name: &str| ALLOWED.iter().any(|(since, own)| *own == name && pod.version.has(*since));
    let own = pod_security(pod, &["sysctls"]).and_then(Value::as_array).unwrap_or_default();
    let bad: Vec<&str> = own.iter().map(name).filter(|name| !allowed(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let path = ["windowsOptions", "hostProcess"];
    let names = pod.naming(|container| is_true(security(container, &path)));
    let who = setters(is_true(pod_security(pod, &path)), &names)?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let may = |container: &Value| {
        security(container, &["allowPrivilegeEscalation"]).and_then(Value::as_bool) != Some(false)
    };
    let names = pod.naming(may);
    if names.is_empty() {
        return None;
    }
    let who = containers(&names);
    violation(
        "allowPrivilegeEscalation != false",
        format!("{who} must set securityContext.allowPrivilegeEscalation=false"),
    )
}

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    const ALLOWED: [&str; 9] = [
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    ];
    const KNOWN: [&str; 21] = [
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "gitRepo",
        "nfs",
        "iscsi",
        "glusterfs",
        "rbd",
        "flexVolume",
        "cinder",
        "cephfs",
        "flocker",
        "fc",
        "azureFile",
        "vsphereVolume",
        "quobyte",
        "azureDisk",
        "photonPersistentDisk",
        "portworxVolume",
        "scaleIO",
        "storageos",
    ];
    let has = |volume: &Value, kind: &str| volume.get(kind).is_some_and(|source| !source.is_null());
    let volumes = pod.list("volumes").iter();
    let bad: Vec<&Value> = volumes.filter(|volume| !ALLOWED.iter().any(|kind| has(volume, kind))).collect();
    let kind = |volume: &&Value| KNOWN.into_iter().find(|kind| has(volume, kind)).unwrap_or("unknown");
    let kinds: BTreeSet<&str> = bad.iter().map(kind).collect();
    if bad.is_empty() {
        return None;
    }
    violation(
        "restricted volume types",
        format!(
            "{} {} {} {} {}",
            plural("volume", "volumes", bad.len()),
            quoted(bad.iter().map(|volume| name(volume))),
            plural("uses", "use", bad.len()),
            plural("restricted volume type", "restricted volume types", kinds.len()),
            quoted(kinds)
        ),
    )
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if pod.has_own_users() {
        return None;
    }
    let own = |container: &Value| security(container, &["runAsNonRoot"]).and_then(Value::as_bool);
    let whole = pod_security(pod, &["runAsNonRoot"]).and_then(Value::as_bool);
    let names = pod.naming(|container| own(container) == Some(false));
    if let Some(who) = setters(whole == Some(false), &names) {
        return violation(REASON, format!("{who} must not set securityContext.runAsNonRoot=false"));
    }
    let names = pod.naming(|container| own(container).is_none());
    if whole == Some(true) || names.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&names)))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_own_users() {
        return None;
    }
    let root = |user: Option<&Value>| user.and_then(Value::as_i64) == Some(0);
    let names = pod.naming(|container| root(security(container, &["runAsUser"])));
    let who = setters(root(pod_security(pod, &["runAsUser"])), &names)?;
    violation("runAsUser=0", format!("{who} must not set runAsUser=0"))
}
