//! Pods, the levels they pass, and the words in which they do not.

use super::*;
use crate::attributes::Operation;
use crate::fake::{Fake, Request, parse};

/// What each level has against a spec, by the newest rules.
#[track_caller]
fn check(spec: &str, baseline: &str, restricted: &str) {
    check_at(None, spec, baseline, restricted);
}

#[track_caller]
fn check_at(minor: Option<u32>, spec: &str, baseline: &str, restricted: &str) {
    let pod = parse(&format!(r#"{{"spec":{spec}}}"#));
    let version = minor.map_or(policy::Version::Latest, policy::Version::Minor);
    let said = |level| detail(&violations(Rules { level, version }, &pod));
    assert_eq!(said(Level::Privileged), "");
    assert_eq!(said(Level::Baseline), baseline, "{spec}");
    assert_eq!(said(Level::Restricted), restricted, "{spec}");
}

/// A container that passes everywhere, with something more.
fn safe(more: &str) -> String {
    format!(
        r#"{{"securityContext":{{"runAsNonRoot":true,"seccompProfile":{{"type":"RuntimeDefault"}}}},"containers":[{{"name":"a",{more}"securityContext":{{"allowPrivilegeEscalation":false,"capabilities":{{"drop":["ALL"]}}}}}}]}}"#
    )
}

/// The same, with something more in its security context.
fn secured(more: &str) -> String {
    safe("").replace(r#""allowPrivilegeEscalation""#, &format!(r#"{more},"allowPrivilegeEscalation""#))
}

/// The same, with something more in the spec.
fn within(more: &str) -> String {
    safe("").replacen('{', &format!("{{{more},"), 1)
}

#[test]
fn a_plain_pod_is_not_restricted() {
    check(
        r#"{"containers":[{"name":"a"},{"name":"b"}]}"#,
        "",
        r#"allowPrivilegeEscalation != false (containers "a", "b" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers "a", "b" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or containers "a", "b" must set securityContext.runAsNonRoot=true), seccompProfile (pod or containers "a", "b" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
    );
    check(&safe(""), "", "");
    check(
        r#"{"os":{"name":"windows"},"securityContext":{"runAsNonRoot":true},"containers":[{"name":"a"}]}"#,
        "",
        "",
    );
}

#[test]
fn both_levels() {
    #[track_caller]
    fn same(spec: &str, said: &str) {
        check(spec, said, said);
    }
    same(
        &within(r#""hostNetwork":true,"hostPID":true,"hostIPC":true"#),
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    );
    same(
        &safe(r#""ports":[{"hostPort":80},{"hostPort":443}],"#),
        r#"hostPort (container "a" uses hostPorts 443, 80)"#,
    );
    same(
        &safe(r#""livenessProbe":{"httpGet":{"host":"10.0.0.1"}},"#),
        r#"probe or lifecycle host (container "a" uses probe or lifecycle host "10.0.0.1")"#,
    );
    same(
        &secured(r#""privileged":true"#),
        r#"privileged (container "a" must not set securityContext.privileged=true)"#,
    );
    same(
        &secured(r#""procMount":"Unmasked""#),
        r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
    );
    same(
        &secured(r#""seLinuxOptions":{"type":"spc_t","user":"u"}"#),
        r#"seLinuxOptions (container "a" set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set)"#,
    );
    same(
        &secured(r#""seccompProfile":{"type":"Unconfined"}"#),
        r#"seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")"#,
    );
    same(
        &secured(r#""appArmorProfile":{"type":"Unconfined"}"#),
        r#"forbidden AppArmor profile (container "a" must not set AppArmor profile type to "Unconfined")"#,
    );
    same(
        &secured(r#""windowsOptions":{"hostProcess":true}"#),
        r#"hostProcess (container "a" must not set securityContext.windowsOptions.hostProcess=true)"#,
    );
    let sysctl = safe("").replacen(
        r#""runAsNonRoot""#,
        r#""sysctls":[{"name":"net.ipv4.tcp_rmem"},{"name":"kernel.x"}],"runAsNonRoot""#,
        1,
    );
    same(&sysctl, "forbidden sysctls (kernel.x)");
}

#[test]
fn one_level_or_the_other() {
    check(
        &within(r#""volumes":[{"name":"h","hostPath":{}},{"name":"n","nfs":{}},{"name":"e","emptyDir":{}}]"#),
        r#"hostPath volumes (volume "h")"#,
        r#"restricted volume types (volumes "h", "n" use restricted volume types "hostPath", "nfs")"#,
    );
    check(
        &safe("").replace(r#""drop":["ALL"]"#, r#""drop":["ALL"],"add":["NET_ADMIN","CHOWN"]"#),
        r#"non-default capabilities (container "a" must not include "NET_ADMIN" in securityContext.capabilities.add)"#,
        r#"unrestricted capabilities (container "a" must not include "CHOWN", "NET_ADMIN" in securityContext.capabilities.add)"#,
    );
    check(&secured(r#""runAsUser":0"#), "", r#"runAsUser=0 (container "a" must not set runAsUser=0)"#);
    check(
        &secured(r#""runAsNonRoot":false"#),
        "",
        r#"runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false)"#,
    );
}

#[test]
fn rules_have_their_time() {
    let probe = safe(r#""livenessProbe":{"httpGet":{"host":"10.0.0.1"}},"#);
    check_at(Some(33), &probe, "", "");
    let users = within(r#""hostUsers":false"#).replace(r#""runAsNonRoot":true,"#, r#""runAsUser":0,"#);
    check(&users, "", "");
    check_at(
        Some(34),
        &users,
        "",
        r#"runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), runAsUser=0 (pod must not set runAsUser=0)"#,
    );
    let windows = r#"{"os":{"name":"windows"},"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"a","securityContext":{"capabilities":{"drop":["ALL"]}}}]}"#;
    let escalation = r#"allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)"#;
    check_at(Some(24), windows, "", escalation);
}

#[track_caller]
fn ask(
    labels: &str,
    path: &str,
    object: &str,
    old: Option<&str>,
) -> (Option<String>, Vec<String>, Vec<(String, String)>) {
    let labels = labels.replace("\"ps/", "\"pod-security.kubernetes.io/");
    let namespace = format!(r#"{{"metadata":{{"name":"ns","labels":{labels}}}}}"#);
    let world = Fake::of(&[
        ("namespaces", &namespace),
        ("pods", r#"{"metadata":{"name":"p","namespace":"ns"},"spec":{"hostPID":true}}"#),
        ("pods", r#"{"metadata":{"name":"q","namespace":"ns"},"spec":{"hostIPC":true}}"#),
    ]);
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Request { plugin: &PodSecurity, world: &world, path, operation };
    match request.validate(object, old) {
        Err(text) => (Some(text), Vec::new(), Vec::new()),
        Ok(notes) => (None, notes.warnings, notes.audit),
    }
}

#[test]
fn pods_and_what_makes_them() {
    let pod = r#"{"metadata":{"name":"p"},"spec":{"hostPID":true,"containers":[{"name":"a","image":"i"}]}}"#;
    let enforce = r#"{"ps/enforce":"baseline"}"#;
    let refusal =
        r#"pods "p" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true)"#;
    assert_eq!(ask(enforce, "pods", pod, None).0.as_deref(), Some(refusal));
    assert_eq!(ask("{}", "pods", pod, None), (None, vec![], vec![]));
    assert_eq!(ask(enforce, "pods/status", pod, Some(pod)).0, None);
    assert_eq!(ask(enforce, "pods", pod, Some(pod)).0, None);
    let other = pod.replace(r#""image":"i""#, r#""image":"j""#);
    assert_eq!(ask(enforce, "pods", &other, Some(pod)).0.as_deref(), Some(refusal));

    let would = r#"would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)"#;
    let (refused, warnings, audit) =
        ask(r#"{"ps/warn":"baseline","ps/audit":"baseline"}"#, "pods", pod, None);
    assert_eq!((refused, warnings), (None, vec![would.to_owned()]));
    assert!(
        audit.contains(&("pod-security.kubernetes.io/audit-violations".into(), would.into())),
        "{audit:?}"
    );

    // A deployment is warned about by what will be enforced.
    let deployment = r#"{"metadata":{"name":"d"},"spec":{"template":{"spec":{"hostPID":true}}}}"#;
    let (refused, warnings, _) = ask(enforce, "deployments.apps", deployment, None);
    assert_eq!((refused, warnings), (None, vec![would.to_owned()]));
}

#[test]
fn namespaces() {
    let old = r#"{"metadata":{"name":"ns"}}"#;
    let new = |level: &str| {
        format!(
            r#"{{"metadata":{{"name":"ns","labels":{{"pod-security.kubernetes.io/enforce":"{level}"}}}}}}"#
        )
    };
    let (_, warnings, _) = ask("{}", "namespaces", &new("baseline"), Some(old));
    assert_eq!(
        warnings,
        [
            r#"existing pods in namespace "ns" violate the new PodSecurity enforce level "baseline:latest""#,
            "p (and 1 other pod): host namespaces",
        ]
    );
    assert_eq!(ask("{}", "namespaces", &new("baseline"), Some(&new("restricted"))).1, [""; 0]);
    let (refused, _, _) = ask("{}", "namespaces", &new("x"), None);
    let text = r#"Kind "ns" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "x": must be one of privileged, baseline, restricted"#;
    assert_eq!(refused.as_deref(), Some(text));
    assert_eq!(ask("{}", "namespaces", &new("x"), Some(&new("x"))).0, None);
}
