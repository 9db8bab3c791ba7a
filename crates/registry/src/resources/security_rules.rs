//! Checks of security contexts, of containers and of pods.

use std::collections::HashSet;

use polder_model::{FieldError, FieldPath, Value};

use super::checks::{self, Errors, one_of, some, text};
use super::volume_rules::descending_path;

const SECCOMP_TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const SYSCTL_LEN_MAX: usize = 253;
const GMSA_SPEC_LEN_MAX: usize = 64 << 10;
const WINDOWS_USER_LEN_MAX: usize = 104;
const WINDOWS_DOMAIN_LEN_MAX: usize = 256;
pub(super) const APP_ARMOR_LEN_MAX: usize = 4095;

/// Checks a container's context. `host_users` says that the pod shares user names with its host.
pub(super) fn validate_container(
    context: &Value,
    host_users: bool,
    path: &FieldPath<'_>,
    errors: &mut Errors,
) {
    ids(context, &["runAsUser", "runAsGroup"], path, errors);
    one_of(context, "procMount", &["Default", "Unmasked"], path, errors);
    if host_users && text(context, "procMount") == "Unmasked" {
        let text = "`hostUsers` must be false to use `Unmasked`";
        errors.push(FieldError::invalid(path.member("procMount"), "Unmasked", text));
    }
    profiles(context, path, errors, |context, errors| {
        if flag(context, "allowPrivilegeEscalation") != Some(false) {
            return;
        }
        let mut conflict = |with: &str| {
            let text = format!("cannot set `allowPrivilegeEscalation` to false and {with}");
            errors.push(FieldError::invalid(path, context.clone(), text));
        };
        if flag(context, "privileged") == Some(true) {
            conflict("`privileged` to true");
        }
        let added = context.array_at(&["capabilities", "add"]);
        if added.iter().any(|capability| capability.as_str() == Some("CAP_SYS_ADMIN")) {
            conflict("`capabilities.Add` CAP_SYS_ADMIN");
        }
    });
}

/// Checks the context of a whole pod.
pub(super) fn validate_pod(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let Some(context) = some(spec, "securityContext") else { return };
    ids(context, &["fsGroup", "runAsUser", "runAsGroup"], path, errors);
    let groups = path.member("supplementalGroups");
    for (index, group) in context.array_at(&["supplementalGroups"]).iter().enumerate() {
        id(group.as_i64(), &groups.index(index), errors);
    }
    if flag(spec, "hostPID") == Some(true) && flag(spec, "shareProcessNamespace") == Some(true) {
        let text = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(FieldError::invalid(path.member("shareProcessNamespace"), true, text));
    }
    sysctls(spec, context, &path.member("sysctls"), errors);
    one_of(context, "fsGroupChangePolicy", &["Always", "OnRootMismatch"], path, errors);
    profiles(context, path, errors, |_, _| {});
    one_of(context, "supplementalGroupsPolicy", &["Merge", "Strict"], path, errors);
    one_of(context, "seLinuxChangePolicy", &["Recursive"], path, errors);
}

fn flag(object: &Value, key: &str) -> Option<bool> {
    object.get(key).and_then(Value::as_bool)
}

fn ids(context: &Value, keys: &[&str], path: &FieldPath<'_>, errors: &mut Errors) {
    for key in keys {
        id(context.get(key).and_then(Value::as_i64), &path.member(key), errors);
    }
}

fn id(id: Option<i64>, path: &FieldPath<'_>, errors: &mut Errors) {
    if let Some(id) = id.filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.push(FieldError::invalid(path, id, "must be between 0 and 2147483647, inclusive"));
    }
}

/// What pods and containers have in common; `between` is checked after seccomp.
fn profiles(
    context: &Value,
    path: &FieldPath<'_>,
    errors: &mut Errors,
    between: impl FnOnce(&Value, &mut Errors),
) {
    if let Some(profile) = some(context, "seccompProfile") {
        seccomp(profile, &path.member("seccompProfile"), errors);
    }
    between(context, errors);
    if let Some(options) = some(context, "windowsOptions") {
        windows_options(options, &path.member("windowsOptions"), errors);
    }
    if let Some(profile) = some(context, "appArmorProfile") {
        app_armor(profile, &path.member("appArmorProfile"), errors);
    }
}

fn seccomp(profile: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let kind = text(profile, "type");
    if kind.is_empty() {
        let text = "type is required when seccompProfile is set";
        errors.push(FieldError::required(path.member("type"), text));
    } else if !SECCOMP_TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(path.member("type"), kind, SECCOMP_TYPES));
    }
    let file = path.member("localhostProfile");
    match (kind, some(profile, "localhostProfile").and_then(Value::as_str)) {
        ("Localhost", None) => {
            errors.push(FieldError::required(file, "must be set when seccomp type is Localhost"));
        }
        ("Localhost", Some(name)) => descending_path(name, &file, errors),
        (_, Some(_)) => {
            let text = "can only be set when seccomp type is Localhost";
            errors.push(FieldError::invalid(file, profile.clone(), text));
        }
        _ => {}
    }
}

fn app_armor(profile: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const LOCAL: &str = "must be set when AppArmor type is Localhost";
    let file = path.member("localhostProfile");
    let name = some(profile, "localhostProfile").and_then(Value::as_str);
    match (text(profile, "type"), name) {
        ("", _) => {
            let text = "type is required when appArmorProfile is set";
            errors.push(FieldError::required(path.member("type"), text));
        }
        ("Localhost", None | Some("")) => errors.push(FieldError::required(file, LOCAL)),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.push(FieldError::invalid(file, name, "must not be padded with whitespace"));
            }
            if name.len() > APP_ARMOR_LEN_MAX {
                errors.push(FieldError::too_long(file, APP_ARMOR_LEN_MAX));
            }
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let text = "can only be set when AppArmor type is Localhost";
            errors.push(FieldError::invalid(file, name, text));
        }
        (kind, _) => errors.push(FieldError::not_supported(path.member("type"), kind, SECCOMP_TYPES)),
    }
}

fn windows_options(options: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let member = |key: &str| some(options, key).and_then(Value::as_str);
    if let Some(name) = member("gmsaCredentialSpecName") {
        checks::dns_subdomain(name, &path.member("gmsaCredentialSpecName"), errors);
    }
    if let Some(spec) = member("gmsaCredentialSpec") {
        let problem = match spec.len() {
            0 => Some("gmsaCredentialSpec cannot be an empty string"),
            len if len > GMSA_SPEC_LEN_MAX => Some("gmsaCredentialSpec size must be under 64 KiB"),
            _ => None,
        };
        checks::problem(spec, problem, &path.member("gmsaCredentialSpec"), errors);
    }
    if let Some(name) = member("runAsUserName") {
        for problem in user_name_problems(name) {
            checks::problem(name, Some(problem), &path.member("runAsUserName"), errors);
        }
    }
}

/// What is wrong with `user` or `DOMAIN\user`.
fn user_name_problems(name: &str) -> Vec<&'static str> {
    if name.is_empty() {
        return vec!["runAsUserName cannot be an empty string"];
    }
    if name.chars().any(|char| char.is_ascii_control()) {
        return vec!["runAsUserName cannot contain control characters"];
    }
    let (domain, user) = name.split_once('\\').map_or((None, name), |(domain, user)| (Some(domain), user));
    if user.contains('\\') {
        return vec!["runAsUserName cannot contain more than one backslash"];
    }
    let mut problems = Vec::new();
    if domain.is_some_and(|domain| domain.len() >= WINDOWS_DOMAIN_LEN_MAX) {
        problems.push("runAsUserName's Domain length must be under 256 characters");
    }
    if user.is_empty() {
        problems.push("runAsUserName's User cannot be empty");
    } else if user.len() > WINDOWS_USER_LEN_MAX {
        problems.push("runAsUserName's User length must not be longer than 104 characters");
    }
    if !user.is_empty() && user.chars().all(|char| char == '.' || char == ' ') {
        problems.push("runAsUserName's User cannot contain only periods or spaces");
    }
    if user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        problems.push(r#"runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#);
    }
    problems
}

fn sysctls(spec: &Value, context: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    const NAME: &str = "must have at most 253 characters and match regex \
        ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut seen = HashSet::new();
    for (index, sysctl) in context.array_at(&["sysctls"]).iter().enumerate() {
        let path = path.index(index);
        let path = path.member("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !is_sysctl(name) {
            errors.push(FieldError::invalid(path, name, NAME));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(path, name));
        }
        // The host's own settings are not a pod's to change.
        for (key, prefixes) in [
            ("hostNetwork", &["net."][..]),
            ("hostIPC", &["fs.mqueue.", "kernel.shm", "kernel.msg", "kernel.sem"][..]),
        ] {
            let dotted = name.replace('/', ".");
            if flag(spec, key) == Some(true) && prefixes.iter().any(|prefix| dotted.starts_with(prefix)) {
                let text = format!("may not be specified when '{key}' is true");
                errors.push(FieldError::invalid(path, name, text));
            }
        }
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: &u8| edge(Some(byte)) || *byte == b'-' || *byte == b'_';
    name.len() <= SYSCTL_LEN_MAX
        && name
            .as_bytes()
            .split(|byte| *byte == b'.' || *byte == b'/')
            .all(|part| edge(part.first()) && edge(part.last()) && part.iter().all(inner))
}

/// Whether users of the pod are the host's; only an explicit `false` says otherwise.
pub(super) fn has_host_users(spec: &Value) -> bool {
    flag(spec, "hostUsers") != Some(false)
}

/// A pod with users of its own shares no other name space with its host.
pub(super) fn validate_host_users(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    if has_host_users(spec) {
        return;
    }
    for (key, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if flag(spec, key) == Some(true) {
            errors.push(FieldError::forbidden(path.member(shown), "when `hostUsers` is false"));
        }
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.member(list);
        for (index, container) in spec.array_at(&[list]).iter().enumerate() {
            if !container.array_at(&["volumeDevices"]).is_empty() {
                let path = list_path.index(index);
                let text = "when `hostUsers` is false";
                errors.push(FieldError::forbidden(path.member("volumeDevices"), text));
            }
        }
    }
}

/// Fields of Windows processes on the host, which need the host's network.
pub(super) fn validate_host_process(spec: &Value, path: &FieldPath<'_>, errors: &mut Errors) {
    let of = |object: &Value| {
        object.at(&["securityContext", "windowsOptions", "hostProcess"]).and_then(Value::as_bool)
    };
    let of_pod = of(spec);
    let (mut all, mut on_host) = (0, 0);
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        let list_path = path.member(list);
        for (index, container) in spec.array_at(&[list]).iter().enumerate() {
            let own = of(container);
            if let (Some(of_pod), Some(own)) = (of_pod, own)
                && of_pod != own
            {
                let path = list_path.index(index);
                let path = path.member("securityContext");
                let path = path.member("windowsOptions");
                let text =
                    format!("pod hostProcess value must be identical if both are specified, was {of_pod}");
                errors.push(FieldError::invalid(path.member("hostProcess"), own, text));
            }
            all += 1;
            on_host += usize::from(own.or(of_pod) == Some(true));
        }
    }
    if on_host == 0 {
        return;
    }
    if on_host != all {
        let text =
            "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        errors.push(FieldError::invalid(path, "", text));
    }
    if flag(spec, "hostNetwork") != Some(true) {
        let text = "hostNetwork must be true if pod contains any hostProcess containers";
        errors.push(FieldError::invalid(path.member("hostNetwork"), false, text));
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::parse;
    use super::*;

    #[track_caller]
    fn check(rows: &[(&str, &[&str])], validate: impl Fn(&Value, &mut Errors)) {
        for (context, expected) in rows {
            let mut errors = Errors::new();
            validate(&parse(context), &mut errors);
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(texts, *expected, "{context}");
        }
    }

    #[test]
    fn containers() {
        check(
            &[
                (r#"{"runAsUser":0,"runAsNonRoot":true}"#, &[]),
                (
                    r#"{"runAsUser":-1,"runAsGroup":4294967296}"#,
                    &[
                        "c.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                        "c.runAsGroup: Invalid value: 4294967296: must be between 0 and 2147483647, inclusive",
                    ],
                ),
                (
                    r#"{"procMount":"Unmasked"}"#,
                    &[
                        r#"c.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`"#,
                    ],
                ),
                (
                    r#"{"allowPrivilegeEscalation":false,"privileged":true}"#,
                    &[
                        r#"c: Invalid value: {"allowPrivilegeEscalation":false,"privileged":true}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true"#,
                    ],
                ),
                (
                    r#"{"seccompProfile":{},"appArmorProfile":{}}"#,
                    &[
                        "c.seccompProfile.type: Required value: type is required when seccompProfile is set",
                        "c.appArmorProfile.type: Required value: type is required when appArmorProfile is set",
                    ],
                ),
                (
                    r#"{"seccompProfile":{"type":"Localhost"},"appArmorProfile":{"type":"Localhost","localhostProfile":" "}}"#,
                    &[
                        "c.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
                        r#"c.appArmorProfile.localhostProfile: Invalid value: " ": must not be padded with whitespace"#,
                    ],
                ),
                (
                    r#"{"seccompProfile":{"type":"Localhost","localhostProfile":"../x"}}"#,
                    &[r#"c.seccompProfile.localhostProfile: Invalid value: "../x": must not contain '..'"#],
                ),
                (
                    r#"{"windowsOptions":{"gmsaCredentialSpec":"","runAsUserName":"a:b"}}"#,
                    &[
                        r#"c.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string"#,
                        r#"c.windowsOptions.runAsUserName: Invalid value: "a:b": runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]"#,
                    ],
                ),
            ],
            |context, errors| validate_container(context, true, &FieldPath::root("c"), errors),
        );
    }

    #[test]
    fn pods() {
        check(
            &[
                (r#"{"securityContext":{"sysctls":[{"name":"kernel.shm_rmid_forced","value":"0"}]}}"#, &[]),
                (
                    r#"{"hostPID":true,"shareProcessNamespace":true,"hostNetwork":true,"securityContext":{"fsGroup":-1,"supplementalGroups":[-1],
                        "sysctls":[{"name":"a"},{"name":"a"},{"name":"A b"},{"name":"net.ipv4.tcp_syncookies"}],"seLinuxChangePolicy":"x"}}"#,
                    &[
                        "s.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                        "s.supplementalGroups[0]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
                        "s.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
                        r#"s.sysctls[1].name: Duplicate value: "a""#,
                        r#"s.sysctls[2].name: Invalid value: "A b": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
                        r#"s.sysctls[3].name: Invalid value: "net.ipv4.tcp_syncookies": may not be specified when 'hostNetwork' is true"#,
                        r#"s.seLinuxChangePolicy: Unsupported value: "x": supported values: "Recursive""#,
                    ],
                ),
            ],
            |spec, errors| validate_pod(spec, &FieldPath::root("s"), errors),
        );
        check(
            &[
                (r#"{"hostUsers":true,"hostPID":true}"#, &[]),
                (
                    r#"{"hostUsers":false,"hostPID":true,"hostNetwork":true}"#,
                    &[
                        "spec.hostNetwork: Forbidden: when `hostUsers` is false",
                        "spec.HostPID: Forbidden: when `hostUsers` is false",
                    ],
                ),
            ],
            |spec, errors| validate_host_users(spec, &FieldPath::root("spec"), errors),
        );
        check(
            &[(
                r#"{"containers":[{"securityContext":{"windowsOptions":{"hostProcess":true}}},{}]}"#,
                &[
                    r#"spec: Invalid value: "": If pod contains any hostProcess containers then all containers must be HostProcess containers"#,
                    "spec.hostNetwork: Invalid value: false: hostNetwork must be true if pod contains any hostProcess containers",
                ],
            )],
            |spec, errors| validate_host_process(spec, &FieldPath::root("spec"), errors),
        );
    }
}
