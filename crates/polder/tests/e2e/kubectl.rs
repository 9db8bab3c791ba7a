//! kubectl, as old as Debian's and as new as the release we serve, in two planes at once.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use polder_test_support::json;

use crate::process::{PLANES, Polder};
use crate::tools;

/// Debian's kubectl 1.20 works unchanged.
#[test]
fn kubectl_old() {
    session("POLDER_TEST_KUBECTL_OLD", "kubectl 1.20");
}

/// The kubectl of the release we serve works unchanged.
#[test]
fn kubectl_current() {
    session("POLDER_TEST_KUBECTL_CURRENT", "kubectl 1.35");
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'nginx:1'}
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports:
  - {port: 80}
";

const GADGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: gadgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget, shortNames: [gd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        description: Something small and useful.
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, description: How many of them., default: 2}
          status:
            type: object
            properties:
              phase: {type: string}
";

const GADGET: &str = "
apiVersion: example.com/v1
kind: Gadget
metadata: {name: g}
spec: {}
";

/// One kubectl, one plane.
struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

fn session(variable: &str, what: &str) {
    let Some(program) = tools::find(variable, what) else { return };
    let polder = Polder::start();
    let home = tempfile::tempdir().unwrap();
    let names = ["acme", "globex"];
    let planes = names.map(|name| {
        polder.plane(name);
        let nodes = json!({"spec": {"simulatedNodes": 1}});
        polder.admin.patch(&format!("{PLANES}/{name}"), "merge", &nodes).expect(200);
        let cache = home.path().join(name);
        Kubectl { program: program.clone(), kubeconfig: polder.plane_kubeconfig(name), cache }
    });
    std::thread::scope(|scope| {
        for kubectl in &planes {
            scope.spawn(|| {
                workload(kubectl, home.path());
                server_side(kubectl);
                config(kubectl);
                rights(kubectl);
                // The old one does not know it.
                if variable.ends_with("CURRENT") {
                    kubectl.contains("auth whoami --as ann --as-group team -o yaml", "username: ann");
                }
            });
        }
    });
    let [acme, globex] = planes;
    custom(&acme);
    globex.fails("get gadgets", "the server doesn't have a resource type \"gadgets\"");
    let admin = Kubectl {
        program,
        kubeconfig: polder.data().join("admin.kubeconfig"),
        cache: home.path().join("core"),
    };
    provider(&admin);
    for (path, kubectl) in [("/clusters/acme", &admin), ("/clusters/acme", &acme)] {
        confined(kubectl, &format!("https://{}{path}", polder.admin.address));
    }
}

/// A connection made for the host name of one plane, which nobody needs to resolve.
fn confined(kubectl: &Kubectl, url: &str) {
    let line = |url: &str| format!("--server {url} --tls-server-name acme.localhost get namespaces -o name");
    kubectl.contains(&line(url), "namespace/kube-system");
    kubectl.fails(&line(&url.replace("acme", "globex")), "");
}

/// apply, get, describe, edit, patch, scale, label, annotate, wait, delete.
fn workload(kubectl: &Kubectl, home: &Path) {
    kubectl.reads("apply -f -", WEB, "deployment.apps/web created\nservice/web created");
    kubectl.reads("apply -f -", WEB, "deployment.apps/web unchanged\nservice/web unchanged");
    kubectl.reads("apply -f -", &WEB.replace("nginx:1", "nginx:2"), "deployment.apps/web configured");
    kubectl.says("get deployment web -o jsonpath={.spec.template.spec.containers[0].image}", "nginx:2");
    let table = kubectl.ok("get deployments");
    let columns: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(columns, ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"], "{table}");
    kubectl.says("get deploy,svc -o name", "deployment.apps/web\nservice/kubernetes\nservice/web");
    kubectl.contains("get deploy -o wide -l app=web", "nginx:2");
    kubectl.contains("describe deployment web", "RollingUpdate");
    kubectl.contains("describe service web", "<unset>  80/TCP");
    kubectl.says("scale deployment web --replicas=3", "deployment.apps/web scaled");
    kubectl.says("get deployment web -o jsonpath={.spec.replicas}", "3");
    kubectl.says("set image deployment/web web=nginx:3", "deployment.apps/web image updated");
    let patch = r#"{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"x"}]}}}}"#;
    kubectl.says_args(&["patch", "deployment", "web", "-p", patch], "deployment.apps/web patched");
    kubectl.contains("get deployment web -o jsonpath={.spec.template.spec.containers[*].name}", "side");
    kubectl.says("label deployment web tier=front", "deployment.apps/web labeled");
    kubectl.says("annotate deployment web note=hello", "deployment.apps/web annotated");
    kubectl.says("get deployments -l tier=front -o name", "deployment.apps/web");
    // An editor that changes one word.
    let editor = home.join("editor");
    if !editor.exists() {
        let fresh =
            editor.with_extension(format!("{:?}", std::thread::current().id()).replace(['(', ')'], ""));
        std::fs::write(&fresh, "#!/bin/sh\nsed -i 's/note: hello/note: goodbye/' \"$1\"\n").unwrap();
        Command::new("chmod").arg("+x").arg(&fresh).status().unwrap();
        std::fs::rename(&fresh, &editor).unwrap();
    }
    let edited =
        kubectl.command(&["edit", "deployment", "web"]).env("KUBE_EDITOR", &editor).output().unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    kubectl.says("get deployment web -o jsonpath={.metadata.annotations.note}", "goodbye");
    // The plane has a simulated node, and so the pods come up.
    kubectl.says(
        "wait --for=condition=Available deployment/web --timeout=60s",
        "deployment.apps/web condition met",
    );
    kubectl.says("delete service web", "service \"web\" deleted");
    kubectl.contains("delete deployment web --wait=true --timeout=20s", "deployment.apps \"web\" deleted");
    kubectl.fails("get deployment web", "deployments.apps \"web\" not found");
}

const TEAM: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: team, namespace: default}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get, list, create]}
- {apiGroups: [''], resources: [secrets], resourceNames: [shared], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: team, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: team}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: team}
- {kind: ServiceAccount, name: robot, namespace: default}
";

/// Roles and bindings: auth reconcile, can-i, can-i --list, and what they give.
fn rights(kubectl: &Kubectl) {
    let ann = "--as ann --as-group team";
    kubectl.fails(&format!("get configmaps {ann}"), "User \"ann\" cannot list resource \"configmaps\"");
    let (made, said) = kubectl.run(&["auth", "reconcile", "-f", "-"], TEAM);
    assert!(made && said.contains("role.rbac.authorization.k8s.io/team reconciled"), "{said}");
    kubectl.contains(&format!("get configmaps {ann}"), "kube-root-ca.crt");
    kubectl.says(&format!("create configmap of-ann {ann}"), "configmap/of-ann created");
    kubectl.fails(&format!("delete configmap of-ann {ann}"), "cannot delete resource \"configmaps\"");
    let robot = "--as system:serviceaccount:default:robot";
    for (who, question, answer) in [
        (ann, "get configmaps", "yes"),
        (ann, "get secrets/shared", "yes"),
        (ann, "get secrets", "no"),
        (ann, "get configmaps -n kube-system", "no"),
        (robot, "create configmaps", "yes"),
        (robot, "get /apis", "yes"),
        (robot, "get /metrics", "no"),
        ("", "* *", "yes"),
    ] {
        let line = format!("auth can-i {question} {who}");
        let (_, said) = kubectl.run(&line.split_whitespace().collect::<Vec<_>>(), "");
        assert_eq!(said.lines().last(), Some(answer), "{line}: {said}");
    }
    let list = kubectl.ok(&format!("auth can-i --list {ann}"));
    assert!(
        list.lines().any(|line| line.starts_with("configmaps ") && line.ends_with("[get list create]")),
        "{list}"
    );
    assert!(list.contains("selfsubjectrulesreviews.authorization.k8s.io"), "{list}");
    let more = TEAM.replace("list, create", "list, create, delete");
    assert!(kubectl.run(&["auth", "reconcile", "-f", "-"], &more).0);
    kubectl.contains(&format!("delete configmap of-ann {ann}"), "configmap \"of-ann\" deleted");
    let role = "create role more --verb=get --resource=pods";
    kubectl.fails(&format!("{role} {ann}"), "cannot create resource \"roles\"");
    kubectl.says(
        "create rolebinding admin --clusterrole=admin --user=ann",
        "rolebinding.rbac.authorization.k8s.io/admin created",
    );
    kubectl.says(&format!("{role} {ann}"), "role.rbac.authorization.k8s.io/more created");
    kubectl.fails(
        &format!("create role too-much --verb=get --resource=nodes {ann}"),
        "is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\"]}",
    );
    kubectl.ok("delete rolebinding admin team");
    kubectl.fails(&format!("get configmaps {ann}"), "forbidden");
}

/// apply --server-side: owners, conflicts, force, and moving from client-side apply.
fn server_side(kubectl: &Kubectl) {
    const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: owned}\ndata: {a: '1', b: '2'}\n";
    let applied = "configmap/owned serverside-applied";
    kubectl.reads("apply --server-side -f -", CONFIG, applied);
    let version = kubectl.ok("get cm owned -o jsonpath={.metadata.resourceVersion}");
    kubectl.reads("apply --server-side -f -", CONFIG, applied);
    kubectl.says("get cm owned -o jsonpath={.metadata.resourceVersion}", &version);
    let other = CONFIG.replace("'2'", "'3'");
    let (taken, said) = kubectl.run(&["apply", "--server-side", "--field-manager=other", "-f", "-"], &other);
    let conflict = "Apply failed with 1 conflict: conflict with \"kubectl\": .data.b";
    assert!(!taken && said.contains(conflict), "{said}");
    kubectl.reads("apply --server-side --force-conflicts --field-manager=other -f -", &other, applied);
    kubectl.says("get cm owned -o jsonpath={.data.b}", "3");
    kubectl.says("get cm owned -o jsonpath={.metadata.managedFields[*].manager}", "kubectl other");
    // What client-side apply set, server-side apply takes over.
    let moved = CONFIG.replace("owned", "moved");
    kubectl.reads("apply -f -", &moved, "configmap/moved created");
    kubectl.reads(
        "apply --server-side -f -",
        &moved.replace("'1'", "'9'"),
        "configmap/moved serverside-applied",
    );
    kubectl.says("get cm moved -o jsonpath={.data.a}", "9");
    kubectl.says("delete cm owned moved", "configmap \"owned\" deleted\nconfigmap \"moved\" deleted");
}

/// create, get in other forms, api-resources, explain, version.
fn config(kubectl: &Kubectl) {
    kubectl.says("create namespace team", "namespace/team created");
    kubectl.says("create configmap c -n team --from-literal=a=b", "configmap/c created");
    kubectl.says("create secret generic s -n team --from-literal=a=b", "secret/s created");
    kubectl.says("create serviceaccount sa -n team", "serviceaccount/sa created");
    kubectl.contains("get configmap c -n team -o yaml", "a: b");
    kubectl.contains("get cm -A", "team");
    kubectl.contains("get namespaces", "team");
    kubectl.contains("describe configmap c -n team", "a:\n----\nb");
    kubectl.contains("describe namespace team", "Active");
    let resources = kubectl.ok("api-resources");
    for line in ["pods", "deployments", "customresourcedefinitions", "networkpolicies"] {
        assert!(resources.lines().any(|one| one.starts_with(line)), "{line} {resources}");
    }
    kubectl.contains("api-versions", "apps/v1\n");
    explain(kubectl);
    kubectl.contains("version", "v1.35");
    kubectl.contains("auth can-i create pods", "yes");
    kubectl.contains("delete namespace team --timeout=30s", "namespace \"team\" deleted");
    kubectl.fails("get configmap c -n team", "not found");
    kubectl.fails("create configmap Bad", "Invalid value");
}

/// Built-in kinds have descriptions: of kinds, of fields that are plain, and of fields that refer to another type.
fn explain(kubectl: &Kubectl) {
    let check = |path: &str, expected: &[&str]| {
        // kubectl breaks lines where it likes.
        let shown = kubectl.ok(&format!("explain {path}"));
        let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        for text in expected {
            assert!(words.contains(text), "explain {path} lacks {text:?}:\n{shown}");
        }
    };
    check("pods", &["The smallest thing that runs:", "What runs, and what it needs.", "APIVersion defines"]);
    check(
        "pods.spec.containers",
        &[
            "The containers; at least one.",
            "The container image, such as",
            "Asked again and again; when it fails",
        ],
    );
    check("deployment.spec", &["Number of pods wanted. Default: 1.", "How old pods give way to new ones."]);
    check("deployment.spec.strategy.type", &["RollingUpdate (default) replaces pods a few at a time"]);
    check(
        "pod.spec.containers.livenessProbe.httpGet",
        &["Sends an HTTP request.", "Path to ask for. Default: /."],
    );
    check("pods.spec.volumes.emptyDir.sizeLimit", &["Most it may hold; more gets the pod evicted."]);
    check("networkpolicies.spec.podSelector", &["Pods it is about, in the same namespace."]);
    check("deployment.metadata.labels", &["Names and values by which objects are grouped"]);
    kubectl.contains("explain deployment.spec --recursive", "maxSurge");
}

/// A new kind: served, explained, listed and written.
fn custom(kubectl: &Kubectl) {
    kubectl.reads(
        "apply -f -",
        GADGETS,
        "customresourcedefinition.apiextensions.k8s.io/gadgets.example.com created",
    );
    kubectl.says(
        "wait --for=condition=Established crd/gadgets.example.com --timeout=10s",
        "customresourcedefinition.apiextensions.k8s.io/gadgets.example.com condition met",
    );
    kubectl.reads("apply -f -", GADGET, "gadget.example.com/g created");
    let table = kubectl.ok("get gd");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().take(2).collect()).collect();
    assert_eq!(rows, [["NAME", "SIZE"], ["g", "2"]], "{table}");
    kubectl.contains("explain gadget", "Something small and useful.");
    kubectl.contains("explain gadget.spec.size", "How many of them.");
    kubectl.contains("get all", "gadget.example.com/g");
    kubectl.says_args(
        &["patch", "gadget", "g", "--type=merge", "-p", r#"{"spec":{"size":5}}"#],
        "gadget.example.com/g patched",
    );
    kubectl.contains("describe gadget g", "Size:  5");
    kubectl.says("label gadget g a=b", "gadget.example.com/g labeled");
    kubectl.says("delete gadget g", "gadget.example.com \"g\" deleted");
    kubectl.contains("delete crd gadgets.example.com --timeout=20s", "deleted");
}

/// Planes are objects of the core plane.
fn provider(kubectl: &Kubectl) {
    kubectl.contains("get planes", "acme");
    kubectl.contains("explain planes", "A control plane of a tenant");
    kubectl.contains("explain layer.spec.plane", "The plane whose present state is sealed.");
    kubectl.contains("get pl globex -o yaml", "phase: Ready");
    kubectl.reads(
        "apply -f -",
        "apiVersion: polder.dev/v1alpha1\nkind: Plane\nmetadata: {name: new}\nspec: {forkFrom: acme}\n",
        "plane.polder.dev/new created",
    );
    kubectl.contains("wait --for=condition=Ready plane/new --timeout=10s", "condition met");
    kubectl.contains("delete plane new --timeout=10s", "plane.polder.dev \"new\" deleted");
    kubectl.fails("get plane new", "not found");
}

impl Kubectl {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--cache-dir"]).arg(&self.cache).args(arguments);
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.cache).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), out + &String::from_utf8_lossy(&output.stderr))
    }

    #[track_caller]
    fn ok_args(&self, arguments: &[&str], input: &str) -> String {
        let (success, said) = self.run(arguments, input);
        assert!(success, "{arguments:?}: {said}");
        said
    }

    #[track_caller]
    fn ok(&self, line: &str) -> String {
        self.ok_args(&line.split(' ').collect::<Vec<_>>(), "")
    }

    /// What it says, apart from the names of namespaces newer versions add.
    #[track_caller]
    fn says_args(&self, arguments: &[&str], expected: &str) {
        let said = self.ok_args(arguments, "");
        let said = said.trim().replace(" from default namespace", "");
        assert_eq!(said, expected, "{arguments:?}");
    }

    #[track_caller]
    fn says(&self, line: &str, expected: &str) {
        self.says_args(&line.split(' ').collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn contains(&self, line: &str, part: &str) {
        let said = self.ok(line);
        assert!(said.contains(part), "{line}: no {part:?} in {said}");
    }

    #[track_caller]
    fn reads(&self, line: &str, input: &str, part: &str) {
        let said = self.ok_args(&line.split(' ').collect::<Vec<_>>(), input);
        assert!(said.contains(part), "{line}: no {part:?} in {said}");
    }

    #[track_caller]
    fn fails(&self, line: &str, part: &str) {
        let (success, said) = self.run(&line.split(' ').collect::<Vec<_>>(), "");
        assert!(!success && said.contains(part), "{line}: {said}");
    }
}
