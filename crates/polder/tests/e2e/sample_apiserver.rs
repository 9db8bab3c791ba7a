//! Upstream's sample API server behind a plane, with an etcd of its own, used with kubectl: the judge of API aggregation.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use polder_test_support::extension::{ExtensionServer, ca_bundle, certificate};
use polder_test_support::{Value, eventually, json};

use crate::aggregation::networks;
use crate::process::Polder;
use crate::tools;

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn run(command: &mut Command, log: PathBuf) -> Running {
    let (out, err) = (File::create(&log).unwrap(), File::create(log.with_extension("err")).unwrap());
    Running(command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap())
}

fn etcd(program: &Path, directory: &Path) -> (Running, String) {
    let (client, peer) = (free_port(), free_port());
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    let mut command = Command::new(program);
    command
        .arg("--data-dir")
        .arg(directory.join("etcd"))
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("default={peer}")]);
    (run(&mut command, directory.join("etcd.log")), client)
}

const FLUNDER: &str = "
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata:
  name: my-first-flunder
  labels: {sample-label: 'true'}
";

/// A real extension server takes its users, and who may do what, from the plane; kubectl cannot tell the difference.
#[test]
fn sample_apiserver() {
    let Some(sample) = tools::find("POLDER_TEST_SAMPLE_APISERVER", "sample-apiserver") else { return };
    let Some(etcd_program) = tools::find("POLDER_TEST_ETCD", "etcd") else { return };
    let Some(kubectl) = tools::find("POLDER_TEST_KUBECTL_CURRENT", "kubectl") else { return };
    let polder = Polder::start_with(&networks());
    let acme = polder.plane("acme");
    let kubeconfig = polder.plane_kubeconfig("acme");
    let directory = polder.directory();
    let kubectl = |arguments: &[&str]| {
        let mut command = Command::new(&kubectl);
        command.arg("--kubeconfig").arg(&kubeconfig).args(["-n", "wardle"]).args(arguments);
        command.env("HOME", directory);
        command
    };
    #[track_caller]
    fn said(mut command: Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
    said(kubectl(&["create", "namespace", "wardle"]));
    // The plane knows where it will be before it is there.
    let (pem, key) = certificate("api.wardle.svc").unwrap();
    let port = free_port();
    let own = Ipv4Addr::LOCALHOST;
    let place = ExtensionServer { address: (own, port).into(), ca_bundle: ca_bundle(&pem) };
    for version in ["v1alpha1", "v1beta1"] {
        for (path, object) in place.objects("wardle", "api", "wardle.example.com", version) {
            let reply = acme.post(&path, &object);
            assert!(matches!(reply.code, 201 | 409), "{}", reply.text());
        }
    }
    let (_etcd, url) = etcd(&etcd_program, directory);
    let mut command = Command::new(sample);
    command
        .args([
            "--etcd-servers",
            &url,
            "--bind-address",
            &own.to_string(),
            "--secure-port",
            &port.to_string(),
        ])
        .arg("--tls-cert-file")
        .arg(polder.file("sample.crt", &pem))
        .arg("--tls-private-key-file")
        .arg(polder.file("sample.key", &key));
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&kubeconfig);
    }
    let _sample = run(&mut command, directory.join("sample.log"));
    let available = |version: &str| {
        let path = format!("/apis/apiregistration.k8s.io/v1/apiservices/{version}.wardle.example.com");
        let found: Value = acme.get(&path).json();
        found["status"]["conditions"][0]["status"] == json!("True")
    };
    eventually("it is there", || available("v1alpha1") && available("v1beta1"));
    let shown = said(kubectl(&["get", "apiservices"]));
    assert!(shown.contains("v1.apps") && shown.contains("Local"), "{shown}");
    let line = shown.lines().find(|line| line.starts_with("v1alpha1.wardle.example.com")).unwrap();
    assert_eq!(line.split_whitespace().take(3).last(), Some("True"), "{line}");

    let resources = || said(kubectl(&["api-resources", "--api-group", "wardle.example.com"]));
    eventually("it is discovered", || resources().contains("flunders"));
    let mut watching = kubectl(&["get", "flunders", "--watch", "--no-headers", "--output-watch-events"]);
    let mut watching = Running(watching.stdout(Stdio::piped()).spawn().unwrap());
    let mut events = BufReader::new(watching.0.stdout.take().unwrap()).lines();
    let file = polder.file("flunder.yaml", FLUNDER);
    said(kubectl(&["apply", "-f", file.to_str().unwrap()]));
    let mut event = || events.next().unwrap().unwrap();
    assert_eq!(event().split_whitespace().next(), Some("ADDED"));
    let listed = said(kubectl(&["get", "flunders"]));
    assert!(listed.contains("my-first-flunder"), "{listed}");
    said(kubectl(&["label", "flunder", "my-first-flunder", "more=yes"]));
    assert_eq!(event().split_whitespace().next(), Some("MODIFIED"));
    let selected =
        said(kubectl(&["get", "flunders", "-l", "more=yes", "-o", "jsonpath={.items[*].metadata.name}"]));
    assert_eq!(selected, "my-first-flunder");
    let explained = said(kubectl(&["explain", "flunders.spec"]));
    assert!(explained.contains("reference"), "{explained}");
    // Who asks is who the plane says it is, and is asked about there.
    let mut refused = kubectl(&["get", "flunders", "--as", "bob"]);
    assert!(!refused.output().unwrap().status.success());
    said(kubectl(&["delete", "flunder", "my-first-flunder"]));
    assert_eq!(event().split_whitespace().next(), Some("DELETED"));
    let left = said(kubectl(&["get", "flunders", "-o", "name"]));
    assert_eq!(left, "");

    // What it keeps goes, stays and is waited for as what the plane keeps.
    for (policy, stays) in [("background", false), ("orphan", true), ("foreground", false)] {
        said(kubectl(&["create", "configmap", policy]));
        let uid = said(kubectl(&["get", "configmap", policy, "-o", "jsonpath={.metadata.uid}"]));
        let owned = FLUNDER.replace("my-first-flunder", policy)
            + &format!(
                "  ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: {policy}, uid: {uid}, blockOwnerDeletion: true}}]\n"
            );
        let file = polder.file("owned.yaml", &owned);
        said(kubectl(&["create", "-f", file.to_str().unwrap()]));
        said(kubectl(&["delete", "configmap", policy, &format!("--cascade={policy}")]));
        let there =
            || said(kubectl(&["get", "flunder", policy, "--ignore-not-found", "-o", "jsonpath={.metadata}"]));
        match stays {
            true => assert!(!there().is_empty() && !there().contains("ownerReferences"), "{}", there()),
            // In the foreground kubectl has waited for both.
            false if policy == "foreground" => assert_eq!(there(), ""),
            false => eventually("it goes with its owner", || there().is_empty()),
        }
    }
}
