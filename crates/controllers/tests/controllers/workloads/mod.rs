//! Workloads over HTTP: objects are made, controllers act, and the test plays kubelet by writing the status of pods.
//!
//! Every wait is bounded, and ends as soon as what is waited for is there.

mod cronjob;
mod daemonset;
mod deployment;
mod job;
mod replicaset;
mod statefulset;

use std::time::{Duration, Instant};

use polder_test_support::{Client, TestServer, Value, json};

const PATIENCE: Duration = Duration::from_secs(20);

/// A plane of a server of its own.
struct World {
    plane: Client,
    server: TestServer,
}

impl World {
    fn start() -> World {
        let server = TestServer::start();
        World { plane: server.plane("acme"), server }
    }

    /// Makes an object of `apps/v1 replicasets` or `v1 pods` in the default namespace.
    #[track_caller]
    fn create(&self, resource: &str, object: &Value) -> Value {
        self.plane.post(&path(resource, ""), object).expect(201).json()
    }

    #[track_caller]
    fn get(&self, resource: &str, name: &str) -> Value {
        self.plane.get(&path(resource, name)).expect(200).json()
    }

    #[track_caller]
    fn list(&self, resource: &str) -> Vec<Value> {
        let list = self.plane.get(&path(resource, "")).expect(200).json();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// The pods there are and that are not on their way out.
    #[track_caller]
    fn pods(&self) -> Vec<Value> {
        let mut pods = self.list("v1 pods");
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        pods
    }

    #[track_caller]
    fn merge(&self, resource: &str, name: &str, patch: &Value) -> Value {
        self.plane.patch(&path(resource, name), "merge", patch).expect(200).json()
    }

    /// Waits until an object is as wanted, and returns it.
    #[track_caller]
    fn until(&self, resource: &str, name: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = within(|| {
            last = self.plane.get(&path(resource, name)).json();
            is_right(&last)
        });
        assert!(found, "{resource} {name} is not as it should be:\n{last:#}");
        last
    }

    /// Waits until the pods are as wanted, and returns them.
    #[track_caller]
    fn until_pods(&self, is_right: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut last = Vec::new();
        let found = within(|| {
            last = self.pods();
            is_right(&last)
        });
        let names: Vec<String> = last.iter().map(name).collect();
        assert!(found, "the pods are not as they should be: {names:?}");
        last
    }

    /// Plays kubelet: the pod runs and is ready.
    #[track_caller]
    fn run(&self, pod: &Value) {
        self.report(
            pod,
            &json!({"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]}),
        );
    }

    /// Plays kubelet: the pod's status is this. A pod that is gone has none.
    #[track_caller]
    fn report(&self, pod: &Value, status: &Value) {
        let path = format!("{}/status", path("v1 pods", &name(pod)));
        let code = self.plane.patch(&path, "merge", &json!({"status": status})).code;
        assert!(code == 200 || code == 404, "status of {}: {code}", name(pod));
    }

    /// All pods run and are ready.
    #[track_caller]
    fn run_all(&self) {
        self.pods().iter().filter(|pod| pod["status"]["phase"] == "Pending").for_each(|pod| self.run(pod));
    }

    /// Runs pods as they come until an object is as wanted.
    #[track_caller]
    fn run_until(&self, resource: &str, name: &str, is_right: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = within(|| {
            self.run_all();
            last = self.plane.get(&path(resource, name)).json();
            is_right(&last)
        });
        assert!(found, "{resource} {name} does not become what it should be:\n{last:#}");
        last
    }
}

fn within(mut is_right: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_right() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

fn path(resource: &str, name: &str) -> String {
    let (version, resource) = resource.split_once(' ').unwrap_or(("v1", resource));
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let name = if name.is_empty() { String::new() } else { format!("/{name}") };
    format!("{root}/{version}/namespaces/default/{resource}{name}")
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_string()
}

/// A template of pods with a label `app`.
fn template(app: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "example.test/app:1"}]},
    })
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|one| one["type"] == kind).unwrap_or(&Value::Null)
}
