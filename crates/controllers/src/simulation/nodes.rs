//! Keeps as many simulated nodes in a plane as its `spec.simulatedNodes` says.

use polder_client::resource::{LEASES, NODES};
use polder_client::{Answer, Change, Controller, Delete, InPlane, Interest, Next, Wake};
use polder_model::{GroupResource, PlaneId, SmolStr, Status, Value, format_smolstr, json};

use crate::timestamp;

/// What a node offers. Much more than the machine has: nothing runs there.
const CAPACITY: [(&str, &str); 5] = [
    ("cpu", "16"),
    ("memory", "64Gi"),
    ("pods", "110"),
    ("ephemeral-storage", "100Gi"),
    ("hugepages-2Mi", "0"),
];
const HEALTHY: [(&str, &str, &str, &str); 4] = [
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
];
/// More is refused by the schema of planes.
const NODES_MAX: i64 = 1_000;

/// What the names of simulated nodes begin with.
const PREFIX: &str = "simulated-";
/// Somebody has deleted a node.
const LOST: SmolStr = SmolStr::new_static("lost");

pub(crate) struct Nodes;

impl Controller for Nodes {
    fn name(&self) -> &'static str {
        "simulated-nodes"
    }

    fn interest(&self) -> Interest {
        Interest::In(vec![GroupResource::new("polder.dev", "planes"), NODES.group_resource()])
    }

    fn observe(&self, change: &Change, wake: Wake<'_>) {
        if change.is(&NODES) {
            if change.plane != PlaneId::CORE && change.new.is_none() && change.name.starts_with(PREFIX) {
                wake(LOST);
            }
            return;
        }
        let wanted = |snapshot: &Option<polder_client::Snapshot>| {
            let snapshot = snapshot.as_ref().filter(|snapshot| snapshot.may_contain("\"simulatedNodes\""))?;
            snapshot.value().i64_at(&["spec", "simulatedNodes"])
        };
        if change.plane == PlaneId::CORE && change.new.is_some() && wanted(&change.new) != wanted(&change.old)
        {
            wake(change.name.clone());
        }
    }

    /// Keys are names of planes in the core plane, and [`LOST`] in others.
    fn reconcile<'a>(&'a self, core: &'a InPlane, key: &'a str) -> Answer<'a, Next> {
        Box::pin(async move {
            let plane = match core.plane {
                PlaneId::CORE => core.client.plane(key),
                plane => Some(plane),
            };
            let Some(plane) = plane else { return Ok(Next::Done) };
            let object = core.client.plane_object(plane).await?;
            let wanted = object.and_then(|object| object.i64_at(&["spec", "simulatedNodes"])).unwrap_or(0);
            let wanted = wanted.clamp(0, NODES_MAX);
            let plane = InPlane { client: core.client.clone(), plane };
            let there = super::simulated(&plane).await?;
            let named = |number: i64| {
                there.iter().any(|node| node.str_at(&["metadata", "name"]) == Some(&name(number)))
            };
            for number in (0..wanted).filter(|number| !named(*number)) {
                make(&plane, number).await?;
            }
            for node in &there {
                let own = node.str_at(&["metadata", "name"]).unwrap_or_default();
                let number = own.strip_prefix(PREFIX).and_then(|number| number.parse::<i64>().ok());
                if number.is_none_or(|number| number >= wanted) {
                    plane.delete(&NODES, "", own, Delete::default()).await?;
                    plane.delete(&LEASES, "kube-node-lease", own, Delete::default()).await?;
                }
            }
            Ok(Next::Done)
        })
    }
}

fn name(number: i64) -> SmolStr {
    format_smolstr!("{PREFIX}{number}")
}

async fn make(plane: &InPlane, number: i64) -> Result<(), Status> {
    let (name, now) = (name(number), timestamp::text(plane.client.now()));
    let capacity = || -> Value {
        CAPACITY
            .iter()
            .map(|(resource, amount)| (SmolStr::new_static(resource), Value::from(*amount)))
            .collect::<polder_model::Object>()
            .into()
    };
    let condition = |(kind, status, reason, message): &(&str, &str, &str, &str)| {
        json!({
            "type": (*kind), "status": (*status), "reason": (*reason), "message": (*message),
            "lastHeartbeatTime": (now.as_str()), "lastTransitionTime": (now.as_str()),
        })
    };
    let conditions: Vec<Value> = HEALTHY.iter().map(condition).collect();
    let node = json!({
        "metadata": {"name": (name.clone()), "labels": {
            "polder.dev/simulated": "true",
            "kubernetes.io/hostname": (name.clone()),
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
        }},
        "status": {
            "capacity": (capacity()),
            "allocatable": (capacity()),
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": (address(number))},
                {"type": "Hostname", "address": (name.clone())},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10_250}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "simulated", "osImage": "simulated",
                "containerRuntimeVersion": "simulated://0", "kubeletVersion": "v1.35.8", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        },
    });
    match plane.create(&NODES, "", node).await {
        Ok(_) => {}
        Err(status) if status.code == 409 => {}
        Err(status) => return Err(status),
    }
    // New nodes are kept free until somebody has seen that they are ready, which these are.
    plane.merge(&NODES, "", &name, json!({"spec": {"taints": null}})).await?;
    Ok(())
}

/// Where a simulated node would be.
fn address(number: i64) -> String {
    format!("10.0.{}.{}", (number / 250) % 250, number % 250 + 1)
}
