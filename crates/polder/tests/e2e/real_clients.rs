//! What people really come with: kubectl and the Python client, with certificates that their plane signed, tokens and credential
//! plugins. Each is somebody at home and nobody next door.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_test_support::{Value, json};

use crate::process::{Polder, polder as command};
use crate::tools;

/// A kubeconfig for a plane and somebody with these credentials.
pub(crate) fn kubeconfig(polder: &Polder, plane: &str, name: &str, user: &Value) -> PathBuf {
    let text = fs::read_to_string(polder.plane_kubeconfig(plane)).unwrap();
    let cluster = text
        .lines()
        .filter(|line| line.contains("server:") || line.contains("certificate-authority-data:"))
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster:\n{cluster}\
         users:\n- name: u\n  user: {user}\ncontexts:\n- name: c\n  context: {{cluster: c, user: u}}\n"
    );
    polder.file(&format!("{name}-{plane}.kubeconfig"), &text)
}

/// Runs kubectl: whether it succeeded, and what it said.
pub(crate) fn kubectl(program: &Path, kubeconfig: &Path, arguments: &[&str]) -> (bool, String) {
    let home = kubeconfig.parent().unwrap();
    let output = Command::new(program)
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env("HOME", home)
        .output()
        .unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said)
}

/// A certificate that a plane's signer gave to somebody who asked with kubectl, and its key, both in PEM.
fn signed(program: &Path, admin: &Path, name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.distinguished_name.push(rcgen::DnType::OrganizationName, "dev");
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "request": STANDARD.encode(pem), "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"], "expirationSeconds": 3600,
        },
    });
    let file = admin.with_file_name(format!("{name}-request.json"));
    fs::write(&file, request.to_string()).unwrap();
    let run = |arguments: &[&str]| {
        let (success, said) = kubectl(program, admin, arguments);
        assert!(success, "{arguments:?}: {said}");
        said
    };
    run(&["create", "-f", file.to_str().unwrap()]);
    run(&["certificate", "approve", name]);
    let mut certificate = String::new();
    polder_test_support::eventually("the certificate is signed", || {
        certificate = run(&["get", "csr", name, "-o", "jsonpath={.status.certificate}"]);
        !certificate.is_empty()
    });
    (String::from_utf8(STANDARD.decode(certificate.trim()).unwrap()).unwrap(), key.serialize_pem())
}

const READ: &str = "import sys\nfrom kubernetes import client, config\nconfig.load_kube_config(sys.argv[1])\n\
                    print([item.metadata.name for item in client.CoreV1Api().list_namespace().items])\n";

/// A certificate of a plane, given or made by a credential plugin, and a token of a service account: kubectl and the Python client
/// are somebody with them in that plane, and nobody in another, whatever it has bound.
#[test]
fn clients_bring_certificates_and_tokens_of_their_plane() {
    let Some(program) = tools::find("POLDER_TEST_KUBECTL_CURRENT", "kubectl 1.35") else { return };
    let polder = Polder::start();
    let (acme, globex) = (polder.plane("acme"), polder.plane("globex"));
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    for plane in [&acme, &globex] {
        // As much as can be bound in both, so that nothing but the plane makes the difference.
        let binding = json!({
            "metadata": {"name": "dev"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "dev"},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:serviceaccounts"},
            ],
        });
        plane.post(bindings, &binding).expect(201);
    }
    let admin = polder.plane_kubeconfig("acme");
    let (certificate, key) = signed(&program, &admin, "ann");
    let (success, token) = kubectl(&program, &admin, &["create", "token", "default"]);
    assert!(success, "{token}");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {"clientCertificateData": certificate, "clientKeyData": key},
    });
    let told = polder.directory().join("told");
    let made = polder.file("credential.json", &credential.to_string());
    let plugin = format!(
        "#!/bin/sh\nprintf %s \"$KUBERNETES_EXEC_INFO\" > {}\ncat {}\n",
        told.display(),
        made.display()
    );
    let plugin = polder.file("plugin", &plugin);
    let exec = json!({"exec": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": [plugin],
        "interactiveMode": "Never", "provideClusterInfo": true,
    }});
    let given = json!({
        "client-certificate-data": STANDARD.encode(&certificate), "client-key-data": STANDARD.encode(&key),
    });
    let account = json!({"token": token.trim()});
    let rows = [
        ("certificate", &given, "ann"),
        ("plugin", &exec, "ann"),
        ("account", &account, "system:serviceaccount:default:default"),
    ];
    let old = tools::find("POLDER_TEST_KUBECTL_OLD", "kubectl 1.20");
    let python = tools::find("POLDER_TEST_PYTHON", "Python client");
    for (what, user, name) in rows {
        let (home, next_door) = ["acme", "globex"].map(|plane| kubeconfig(&polder, plane, what, user)).into();
        let (success, said) = kubectl(&program, &home, &["auth", "whoami"]);
        assert!(success && said.contains(name), "{what}: {said}");
        for program in [Some(&program), old.as_ref().filter(|_| what != "plugin")].into_iter().flatten() {
            let (success, said) = kubectl(program, &home, &["get", "namespaces"]);
            assert!(success && said.contains("kube-system"), "{what}: {said}");
            let (success, said) = kubectl(program, &next_door, &["get", "namespaces"]);
            assert!(!success && !said.contains("kube-system"), "{what} next door: {said}");
        }
        if let Some(python) = &python {
            let run = |config: &Path| Command::new(python).args(["-c", READ]).arg(config).output().unwrap();
            let output = run(&home);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let problem = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && said.contains("kube-system"), "{what}: {problem}");
            assert!(!run(&next_door).status.success(), "{what} next door");
        }
    }
    // The plugin was told which plane it is asked for.
    let told: Value = serde_json::from_str(&fs::read_to_string(&told).unwrap()).unwrap();
    let server = told["spec"]["cluster"]["server"].as_str().unwrap();
    assert!(server.ends_with("/clusters/globex"), "{told}");
}

/// Every file below a directory, with its mode and those of the directories above it.
fn files(directory: &Path, above: u32, found: &mut Vec<(PathBuf, u32, u32)>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let metadata = entry.metadata().unwrap();
        let mode = metadata.permissions().mode() & 0o777;
        match metadata.is_dir() {
            true => files(&entry.path(), above & mode, found),
            false => found.push((entry.path(), mode, above)),
        }
    }
}

/// Whatever the server and the command line write is for whoever runs them, though the shell they are started from is generous:
/// keys, tokens and kubeconfigs, but also everything else.
#[test]
fn what_is_written_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (policy, noted) = (directory.path().join("policy.yaml"), data.join("audit.log"));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n").unwrap();
    let configuration =
        format!("audit: {{policy: {}, log: {{path: {}}}, trail: {{}}}}\n", policy.display(), noted.display());
    let polder = Polder::start_generous(directory, &configuration);
    polder
        .plane("acme")
        .post("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}}))
        .expect(201);
    let admin = data.join("admin.kubeconfig");
    let out = polder.directory().join("out");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o777)).unwrap();
    // What somebody else left where a file is going to be made is not written to.
    for left in ["acme.new", "acme.export.part"] {
        fs::write(out.join(left), "").unwrap();
        fs::set_permissions(out.join(left), fs::Permissions::from_mode(0o666)).unwrap();
    }
    let watched =
        [out.join("acme.new"), out.join("acme.export.part")].map(|path| fs::File::open(path).unwrap());
    let run = |arguments: &[&str]| {
        let own = command();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg("umask 0 && exec \"$0\" \"$@\"").arg(own.get_program()).args(arguments);
        let output = shell.current_dir(&out).env("KUBECONFIG", &admin).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["plane", "kubeconfig", "acme", "-o", "acme.kubeconfig"]);
    run(&["plane", "export", "acme", "--file", "acme.export"]);
    run(&["store", "add-key", "more-keys.txt"]);
    for mut file in watched {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut file, &mut text).unwrap();
        assert_eq!(text, "", "written to what somebody else left");
    }
    let mut found = Vec::new();
    files(&data, 0o777, &mut found);
    files(&out, 0o777, &mut found);
    assert!(found.len() > 12, "{found:?}");
    for (path, mode, above) in &found {
        // Certificates are shown to everybody who connects.
        let is_certificate = path.extension().is_some_and(|extension| extension == "crt");
        if is_certificate && !fs::read_to_string(path).unwrap().contains("PRIVATE KEY") {
            continue;
        }
        // What is in a directory that nobody else may enter is as private as the directory.
        let is_private = mode & 0o077 == 0 || above & 0o077 == 0;
        assert!(is_private, "{} has mode {mode:o}", path.display());
        let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let is_key = ["PRIVATE KEY", "client-key-data", "token:"].iter().any(|word| text.contains(word));
        let name = path.file_name().unwrap().to_string_lossy();
        if is_key && !name.contains("store") || name.contains("key") {
            assert_eq!(*mode, 0o600, "{}", path.display());
        }
    }
}
