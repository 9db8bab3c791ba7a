//! The command line against real servers: the binary as users run it, in directories of its own, on free ports.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use polder_client_http::Client;
use polder_model::{Value, json};

const POLDER: &str = env!("CARGO_BIN_EXE_polder");
const PATIENCE: Duration = Duration::from_secs(60);

/// A server in a directory. Killed when dropped; a test that cares stops it in good order.
struct Server {
    child: Child,
    directory: PathBuf,
    url: String,
}

impl Server {
    fn start(directory: &Path) -> Server {
        let mut child = serve(directory, "127.0.0.1:0").spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some(rest) = line.strip_prefix("polder: ready at ") else {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("not ready: {line}{why}");
        };
        let url = rest.split(' ').next().unwrap().to_string();
        // Nobody reads the log; a full pipe must not stop the server.
        let mut log = child.stderr.take().unwrap();
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Server { child, directory: directory.into(), url }
    }

    /// SIGTERM, and how it ended.
    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the server did not stop");
    }

    fn kubeconfig(&self) -> PathBuf {
        self.directory.join("admin.kubeconfig")
    }

    fn plane(&self, arguments: &[&str]) -> Output {
        self.plane_with_input(arguments, b"")
    }

    fn plane_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        self.noun("plane", arguments, input)
    }

    fn layer(&self, arguments: &[&str]) -> Output {
        self.noun("layer", arguments, b"")
    }

    fn noun(&self, noun: &str, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(POLDER);
        command.arg(noun).args(arguments).arg("--kubeconfig").arg(self.kubeconfig());
        run(command, input)
    }

    /// Runs a command that must work; gives its stdout.
    fn ok(&self, arguments: &[&str]) -> String {
        let output = self.plane(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail; gives its stderr.
    fn fails(&self, arguments: &[&str]) -> String {
        failed(&self.plane(arguments), arguments)
    }

    fn client(&self) -> Client {
        Client::from_kubeconfig(&self.kubeconfig(), None).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn serve(directory: &Path, listen: &str) -> Command {
    let mut command = Command::new(POLDER);
    command.arg("serve").arg("--data-dir").arg(directory).args(["--listen", listen]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command line to its end, without the caller's kubeconfig.
fn run(mut command: Command, input: &[u8]) -> Output {
    command.env_remove("KUBECONFIG").env_remove("POLDER_KUBECONFIG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap().ok();
    output
}

fn failed(output: &Output, arguments: &[&str]) -> String {
    let error = text(&output.stderr);
    assert!(!output.status.success(), "{arguments:?} worked: {}", text(&output.stdout));
    assert!(error.starts_with("error: "), "{error}");
    error
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// A plane with a definition, an object of it, and many objects.
fn fill(server: &Server, plane: &str, count: usize) {
    let client = server.client();
    let in_plane = |path: &str| format!("/clusters/{plane}{path}");
    let crd = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    block_on(async {
        let crds = in_plane("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
        client.create(&crds, &crd).await.unwrap();
        let widget = json!({
            "kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}, "spec": {"size": 3},
        });
        let widgets = in_plane("/apis/example.com/v1/namespaces/default/widgets");
        client.create(&widgets, &widget).await.unwrap();
        let configmaps = in_plane("/api/v1/namespaces/default/configmaps");
        for number in 0..count {
            let configmap = json!({
                "kind": "ConfigMap", "apiVersion": "v1", "data": {"text": ("x".repeat(10_000))},
                "metadata": {"name": (format!("c{number}")), "finalizers": ["example.com/hold"]},
            });
            client.create(&configmaps, &configmap).await.unwrap();
        }
        // One that waits to be deleted, one that is gone.
        client.delete(&format!("{configmaps}/c0")).await.unwrap();
        let free = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "gone"}});
        client.create(&configmaps, &free).await.unwrap();
        client.delete(&format!("{configmaps}/gone")).await.unwrap();
    });
    // What a controller makes of the definition.
    let service = in_plane("/apis/apiregistration.k8s.io/v1/apiservices/v1.example.com");
    for _ in 0..1_000 {
        if block_on(client.get(&service)).is_ok() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no {service}");
}

/// The objects of an export, without what must differ between two stores.
fn objects(export: &str) -> Vec<Value> {
    let lines: Vec<&str> = export.lines().collect();
    let objects = lines[1..lines.len() - 1].iter().map(|line| {
        let mut value = Value::parse(line.as_bytes()).unwrap();
        value.remove_at(&["metadata", "resourceVersion"]);
        value
    });
    // What tells of the server is the server's.
    let of_site = |value: &Value| {
        let name = value.str_at(&["metadata", "name"]).unwrap_or_default();
        let kind = value.str_at(&["kind"]).unwrap_or_default();
        ["kube-root-ca.crt", "extension-apiserver-authentication"].contains(&name)
            || (kind.starts_with("Endpoint") && name == "kubernetes")
            || kind == "ComponentStatus"
    };
    objects.filter(|value| !of_site(value)).collect()
}

#[test]
fn planes_live_and_die() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let empty = server.plane(&["list"]);
    assert!(empty.status.success() && empty.stdout.is_empty());
    assert!(text(&empty.stderr).contains("polder plane create"));

    assert_eq!(
        server.ok(&["create", "acme", "--display-name", "Acme Ltd", "--limit", "objects=500"]),
        "plane/acme created\n"
    );
    let error = server.fails(&["create", "acme"]);
    assert!(error.contains("\"acme\" already exists"), "{error}");
    let error = server.fails(&["create", "Not_A_Name"]);
    assert!(error.contains("Not_A_Name"), "{error}");

    let table = server.ok(&["list"]);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "PHASE", "OBJECTS", "BYTES", "AGE"]);
    assert_eq!(lines[1][..2], ["acme", "Ready"]);
    assert!(lines[1][2].parse::<u64>().unwrap() > 0, "{table}");
    assert!(server.ok(&["list", "-o", "wide"]).contains("Acme Ltd"));
    assert_eq!(server.ok(&["list", "-o", "name"]), "plane/acme\n");
    let list = Value::parse(server.ok(&["list", "-o", "json"]).as_bytes()).unwrap();
    assert_eq!(list.array_at(&["items"]).len(), 1);
    let plane = Value::parse(server.ok(&["get", "acme", "-o", "json"]).as_bytes()).unwrap();
    assert_eq!(plane.i64_at(&["spec", "limits", "objects"]), Some(500));
    assert!(server.ok(&["get", "acme", "-o", "yaml"]).contains("displayName: Acme Ltd"));
    let error = server.fails(&["get", "nobody"]);
    assert!(error.contains("\"nobody\" not found"), "{error}");

    // Forks and snapshots start with what was there.
    fill(&server, "acme", 2);
    assert_eq!(server.ok(&["snapshot", "acme", "golden"]), "layer/golden made of plane acme\n");
    assert_eq!(server.ok(&["fork", "acme", "copy"]), "plane/copy forked from acme\n");
    server.ok(&["fork", "layer/golden", "third"]);
    server.ok(&["create", "fourth", "--fork-from", "layer/golden"]);
    let client = server.client();
    for plane in ["copy", "third", "fourth"] {
        let path = format!("/clusters/{plane}/apis/example.com/v1/namespaces/default/widgets/w");
        let widget = block_on(client.get(&path)).unwrap();
        assert_eq!(widget.i64_at(&["spec", "size"]), Some(3), "{plane}");
    }
    let error = server.fails(&["fork", "nobody", "fifth"]);
    assert!(error.contains("\"nobody\" not found"), "{error}");

    assert_eq!(server.ok(&["delete", "copy", "third"]), "plane/copy deleted\nplane/third deleted\n");
    let error = server.fails(&["delete", "copy"]);
    assert!(error.contains("not found"), "{error}");
    server.stop();
}

#[test]
fn many_planes_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let made = server.ok(&["create", "--count", "150", "--prefix", "t"]);
    assert!(made.starts_with("150 planes created in ") && made.contains("/s)"), "{made}");
    let made = server.ok(&["create", "--count", "200", "--prefix", "t-"]);
    assert!(made.starts_with("50 planes created in ") && made.contains("150 were there already"), "{made}");
    server.ok(&["create", "kept"]);
    assert_eq!(server.ok(&["list", "-o", "name"]).lines().count(), 201);

    let error = server.fails(&["delete", "--prefix", "t-"]);
    assert!(error.contains("200 planes would be deleted") && error.contains("--yes"), "{error}");
    assert_eq!(server.ok(&["list", "-o", "name"]).lines().count(), 201);
    assert_eq!(server.ok(&["delete", "--prefix", "t-", "--yes"]), "200 planes deleted\n");
    assert_eq!(server.ok(&["list", "-o", "name"]), "plane/kept\n");
    let nothing = server.plane(&["delete", "--prefix", "t-", "--yes"]);
    assert!(nothing.status.success() && nothing.stdout.is_empty());
    server.stop();
}

#[test]
fn so_many_planes_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    for count in ["0", "1000001", "-1", "many"] {
        let error = server.fails(&["create", "--prefix", "t", &format!("--count={count}")]);
        assert!(error.contains(count) && error.contains("--count"), "{error}");
    }
    // One without the other says which.
    let error = server.fails(&["create", "--prefix", "t"]);
    assert!(error.contains("say how many with --count"), "{error}");
    let error = server.fails(&["create", "--count", "3"]);
    assert!(error.contains("--prefix"), "{error}");
    assert_eq!(server.ok(&["list", "-o", "name"]), "");
    server.stop();
}

/// What finalizers hold is told, and what is missing does not keep the rest.
#[test]
fn deletions_tell_what_they_did() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    for plane in ["one", "held", "last"] {
        server.ok(&["create", plane]);
    }
    let client = server.client();
    let held = json!({"metadata": {"finalizers": ["example.org/a", "example.org/b"]}});
    let path = "/apis/polder.dev/v1alpha1/planes/held";
    block_on(client.patch(path, "application/merge-patch+json", &held)).unwrap();

    let output = server.plane(&["delete", "one", "nobody", "held", "last"]);
    assert!(!output.status.success());
    assert_eq!(
        text(&output.stdout),
        "plane/one deleted\nplane/held will be deleted when its finalizers are gone: example.org/a, example.org/b\n\
         plane/last deleted\n"
    );
    let error = text(&output.stderr);
    assert!(error.contains("\"nobody\" not found"), "{error}");
    assert!(error.ends_with("error: 1 of 4 planes were not deleted\n"), "{error}");
    assert!(server.ok(&["list"]).contains("Deleting"));
    let said = server.ok(&["delete", "--prefix", "he", "--yes"]);
    assert_eq!(said, "0 planes deleted, 1 wait for their finalizers or were gone\n");
    let free = json!({"metadata": {"finalizers": null}});
    block_on(client.patch(path, "application/merge-patch+json", &free)).unwrap();
    assert_eq!(server.ok(&["list", "-o", "name"]), "");
    server.stop();
}

#[test]
fn layers_are_listed_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    let empty = server.layer(&["list"]);
    assert!(empty.status.success() && empty.stdout.is_empty());
    assert!(text(&empty.stderr).contains("polder plane snapshot"));
    server.ok(&["create", "acme"]);
    for layer in ["gold", "silver", "lead"] {
        server.ok(&["snapshot", "acme", layer]);
    }
    server.ok(&["fork", "layer/gold", "copy"]);
    let table = text(&server.layer(&["list"]).stdout);
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "PLANE", "OBJECTS", "BYTES", "AGE"]);
    assert_eq!(lines[1][..2], ["gold", "acme"]);
    assert!(lines[1][2].parse::<u64>().unwrap() > 100, "{table}");
    let json = Value::parse(&server.layer(&["list", "-o", "json"]).stdout).unwrap();
    assert_eq!(json.array_at(&["items"]).len(), 3);

    let output = server.layer(&["delete", "gold", "nothing", "layer/silver"]);
    assert!(!output.status.success());
    assert_eq!(text(&output.stdout), "layer/gold deleted\nlayer/silver deleted\n");
    let error = text(&output.stderr);
    assert!(error.contains("\"nothing\" not found"), "{error}");
    assert!(error.ends_with("error: 1 of 3 layers were not deleted\n"), "{error}");
    let error = failed(&server.layer(&["delete", "../planes/acme"]), &["delete"]);
    assert!(error.contains("is no name of a layer"), "{error}");
    assert_eq!(text(&server.layer(&["list", "-o", "name"]).stdout), "layer/lead\n");
    // Whoever was forked from one has what it had.
    let client = server.client();
    block_on(client.get("/clusters/copy/api/v1/namespaces/default")).unwrap();
    server.stop();
}

/// A plane that begins with more than it may hold, or is left with it, is made, and that is told.
#[test]
fn full_planes_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.ok(&["create", "acme"]);
    let client = server.client();
    let acme = block_on(client.get("/apis/polder.dev/v1alpha1/planes/acme")).unwrap();
    // Every plane begins with as many.
    let count = acme.i64_at(&["status", "objectCount"]).unwrap();
    let (exact, more) = (format!("objects={count}"), format!("objects={}", count + 1));
    let rows: [(&[&str], &str); 4] = [
        (
            &["fork", "acme", "a", "--limit", "objects=100"],
            &format!("plane a holds {count} objects and its limit is 100"),
        ),
        (
            &["create", "b", "--limit", &exact],
            &format!("plane b holds {count} objects and its limit is {count}"),
        ),
        (&["create", "c", "--limit", "storedBytes=1000"], "stored bytes and its limit is 1000"),
        (&["create", "d", "--limit", &more], ""),
    ];
    for (arguments, expected) in rows {
        let output = server.plane(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        let said = text(&output.stderr);
        if expected.is_empty() {
            assert_eq!(said, "");
        } else {
            assert!(said.starts_with("warning: plane ") && said.contains(expected), "{said}");
        }
    }
    let limit = json!({"spec": {"limits": {"objects": 10}}});
    let path = "/apis/polder.dev/v1alpha1/planes/d";
    let body = ("application/merge-patch+json", bytes::Bytes::from(limit.to_vec()));
    let answer = block_on(client.send(polder_client_http::Method::PATCH, path, Some(body))).unwrap();
    let expected = format!("plane d holds {count} objects and its limit is 10");
    assert!(answer.warnings[0].contains(&expected), "{answer:?}");
    server.stop();
}

/// A plane with simulated nodes moves with them: nobody writes into the copy before all of it is there.
#[test]
fn simulated_nodes_move() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.ok(&["create", "acme"]);
    let client = server.client();
    let nodes = json!({"spec": {"simulatedNodes": 1}});
    let path = "/apis/polder.dev/v1alpha1/planes/acme";
    block_on(client.patch(path, "application/merge-patch+json", &nodes)).unwrap();
    for _ in 0..1_000 {
        if block_on(client.get("/clusters/acme/api/v1/nodes/simulated-0")).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let file = directory.path().join("acme.jsonl");
    std::fs::write(&file, server.ok(&["export", "acme"])).unwrap();
    for name in ["one", "two", "three"] {
        server.ok(&["import", name, "--file", file.to_str().unwrap()]);
        let made = block_on(client.get(&format!("/apis/polder.dev/v1alpha1/planes/{name}"))).unwrap();
        assert_eq!(made.i64_at(&["spec", "simulatedNodes"]), Some(1));
        block_on(client.get(&format!("/clusters/{name}/api/v1/nodes/simulated-0"))).unwrap();
    }
    server.stop();
}

#[test]
fn a_kubeconfig_opens_one_plane() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.ok(&["create", "mine"]);
    server.ok(&["create", "theirs"]);
    let file = directory.path().join("mine.kubeconfig");
    let output = server.plane(&["kubeconfig", "mine", "-o", file.to_str().unwrap()]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(server.ok(&["kubeconfig", "mine"]).contains("current-context: mine"));

    let config = polder_client_http::Kubeconfig::read(&file).unwrap();
    let mut access = config.access(None).unwrap();
    assert_eq!(access.server, format!("{}/clusters/mine", server.url));
    let get = |access: &polder_client_http::Access, path: &str| {
        let client = Client::new(access, Default::default()).unwrap();
        block_on(client.get(path)).map_err(|error| error.code())
    };
    assert!(get(&access, "/api/v1/namespaces").is_ok());
    for elsewhere in [format!("{}/clusters/theirs", server.url), server.url.clone()] {
        access.server = elsewhere;
        let code = get(&access, "/api/v1/namespaces").unwrap_err();
        assert!(matches!(code, 403 | 404), "{code} from {}", access.server);
    }
    // And it is no kubeconfig to manage planes with.
    let mut command = Command::new(POLDER);
    command.args(["plane", "list", "--kubeconfig"]).arg(&file);
    let error = failed(&run(command, b""), &["list"]);
    assert!(error.contains("use a kubeconfig whose context is the core plane"), "{error}");
    let error = server.fails(&["kubeconfig", "nobody"]);
    assert!(error.contains("\"nobody\" not found"), "{error}");
    server.stop();
}

#[test]
fn planes_move_between_servers() {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| Server::start(&directory.path().join(name)));
    from.ok(&["create", "acme", "--display-name", "Acme", "--limit", "objects=5000"]);
    // Larger than what an ordinary request may carry.
    fill(&from, "acme", 500);
    let file = directory.path().join("acme.jsonl");
    let file_name = file.to_str().unwrap();
    let output = from.plane(&["export", "acme", "-f", file_name]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let export = std::fs::read_to_string(&file).unwrap();
    assert!(export.len() > 4 << 20);
    // But for the revision, which goes on with the controllers' own notes.
    assert_eq!(objects(&from.ok(&["export", "acme"])), objects(&export), "stdout and file are the same");

    let said = to.ok(&["import", "moved", "-f", file_name]);
    assert!(said.starts_with("plane/moved imported, "), "{said}");
    let again = to.ok(&["export", "moved"]);
    assert_eq!(objects(&again), objects(&export));
    let plane = Value::parse(to.ok(&["get", "moved", "-o", "json"]).as_bytes()).unwrap();
    assert_eq!(plane.str_at(&["status", "phase"]), Some("Ready"));
    assert_eq!(plane.str_at(&["spec", "displayName"]), Some("Acme"));
    assert_eq!(plane.i64_at(&["spec", "limits", "objects"]), Some(5000));
    let header = |export: &str| Value::parse(export.lines().next().unwrap().as_bytes()).unwrap();
    let version = |value: &Value| value.str_at(&["resourceVersion"]).unwrap().parse::<u64>().unwrap();
    assert!(version(&header(&again)) > version(&header(&export)));
    // The moved plane works: its own kinds are served, and writes go on.
    let widgets = "/clusters/moved/apis/example.com/v1/namespaces/default/widgets";
    let patch = json!({"spec": {"size": 4}});
    let client = to.client();
    let path = format!("{widgets}/w");
    let widget = client.patch(&path, "application/merge-patch+json", &patch);
    assert_eq!(block_on(widget).unwrap().i64_at(&["metadata", "generation"]), Some(2));

    // From stdin, into a plane that was made before.
    to.ok(&["create", "piped"]);
    let piped = to.plane_with_input(&["import", "piped"], export.as_bytes());
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    assert_eq!(objects(&to.ok(&["export", "piped"])), objects(&export));

    // A plane in use is left alone, and is still there afterwards.
    let error = to.fails(&["import", "moved", "-f", file_name]);
    assert!(error.contains("already holds objects"), "{error}");
    assert!(to.ok(&["list", "-o", "name"]).contains("plane/moved"));

    // Half a file, a changed file and no file leave nothing behind.
    let cut = &export[..export.len() / 2];
    let changed = export.replacen("xxxx", "xyxx", 1);
    let rows =
        [(cut, "not JSON"), (changed.as_str(), "checksum is wrong"), ("{}\n", "not an export of a plane")];
    for (input, expected) in rows {
        let error = failed(&to.plane_with_input(&["import", "broken"], input.as_bytes()), &["import"]);
        assert!(error.contains(expected), "{expected}: {error}");
        assert!(!to.ok(&["list", "-o", "name"]).contains("broken"), "{expected}");
    }
    from.stop();
    to.stop();
}

#[test]
fn everything_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    server.ok(&["create", "acme"]);
    fill(&server, "acme", 3);
    let export = server.ok(&["export", "acme"]);
    server.stop();
    let server = Server::start(directory.path());
    assert_eq!(objects(&server.ok(&["export", "acme"])), objects(&export));
    server.stop();
}

#[test]
fn mistakes_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());

    // The same directory twice.
    let second = run(serve(directory.path(), "127.0.0.1:0"), b"");
    let error = failed(&second, &["serve"]);
    assert!(error.contains(directory.path().to_str().unwrap()), "{error}");
    // The same port twice.
    let other = tempfile::tempdir().unwrap();
    let address = server.url.trim_start_matches("https://").to_string();
    let error = failed(&run(serve(other.path(), &address), b""), &["serve"]);
    assert!(error.contains(&format!("cannot listen on {address}")), "{error}");
    // Neither disturbed the first.
    server.ok(&["create", "acme"]);

    // No kubeconfig, one that is not there, one that is something else.
    let elsewhere = tempfile::tempdir().unwrap();
    let list = |kubeconfig: Option<&Path>| {
        let mut command = Command::new(POLDER);
        command.args(["plane", "list"]).current_dir(elsewhere.path());
        if let Some(path) = kubeconfig {
            command.arg("--kubeconfig").arg(path);
        }
        failed(&run(command, b""), &["list"])
    };
    assert!(list(None).contains("polder serve --data-dir"));
    assert!(list(Some(Path::new("/nonexistent"))).contains("cannot read /nonexistent"));
    let wrong = elsewhere.path().join("wrong");
    std::fs::write(&wrong, "[1, 2]").unwrap();
    assert!(list(Some(&wrong)).contains("is not a kubeconfig"));
    // What is wrong with a file is said once, on one line.
    std::fs::write(&wrong, "clusters: [\n").unwrap();
    let error = list(Some(&wrong));
    assert_eq!((error.lines().count(), error.matches("bracket").count()), (1, 1), "{error}");
    let config = "apiVersion: config.polder.dev/v1alpha1\nkind: ServerConfiguration\nflavor: 1\n";
    std::fs::write(&wrong, config).unwrap();
    let mut command = serve(other.path(), "127.0.0.1:0");
    command.arg("--config").arg(&wrong);
    let error = failed(&run(command, b""), &["serve"]);
    assert_eq!((error.lines().count(), error.matches("unknown field").count()), (1, 1), "{error}");
    // An address without its port; a log level that is none.
    let error = failed(&run(serve(other.path(), "127.0.0.1"), b""), &["serve"]);
    assert!(error.contains("such as 127.0.0.1:6443"), "{error}");
    let mut command = serve(other.path(), "127.0.0.1:0");
    command.env("POLDER_LOG", "loud");
    let error = failed(&run(command, b""), &["serve"]);
    assert!(error.contains("POLDER_LOG: \"loud\" is no level"), "{error}");
    // Another server's certificate.
    let third = Server::start(other.path());
    let text = std::fs::read_to_string(server.kubeconfig()).unwrap().replace(&server.url, &third.url);
    std::fs::write(&wrong, text).unwrap();
    assert!(list(Some(&wrong)).contains("is the kubeconfig from this server?"));
    let error = server.fails(&["list", "--context", "nowhere"]);
    assert!(error.contains("\"nowhere\"") && error.contains("\"core\""), "{error}");

    // A server that is gone.
    let kubeconfig = server.kubeconfig();
    server.stop();
    let error = list(Some(&kubeconfig));
    assert!(error.contains("is the server running?"), "{error}");
}
