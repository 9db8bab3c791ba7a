//! Which nodes have to do with which objects, by the pods that are bound to them.

use std::collections::{HashMap, HashSet};

use polder_model::pod::{self, Referent};
use polder_model::{SmolStr, Value};

/// A namespace and a name in it.
type Named = (SmolStr, SmolStr);

/// A pod that is bound to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedPod {
    node: SmolStr,
    references: Vec<(Referent, SmolStr)>,
}

impl PlacedPod {
    /// Nothing if it is bound to none.
    pub fn read(name: &str, pod: &Value) -> Option<PlacedPod> {
        let node = pod.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty())?;
        // A node makes those itself: they must not show it anything.
        let references = if pod::is_mirror(pod) { Vec::new() } else { pod::references(name, pod) };
        Some(PlacedPod { node: SmolStr::new(node), references })
    }

    /// What it takes up, about.
    fn bytes(&self) -> usize {
        let one = |(_, name): &(Referent, SmolStr)| size_of::<(Referent, SmolStr)>() + name.len();
        size_of::<PlacedPod>() + self.node.len() + self.references.iter().map(one).sum::<usize>()
    }
}

/// The pods of a plane that are bound to nodes, and what they refer to. It follows them one by one.
#[derive(Debug, Default)]
pub struct Graph {
    pods: HashMap<Named, PlacedPod>,
    nodes: HashMap<SmolStr, HashSet<Named>>,
    /// For each object, the nodes of pods that refer to it, and how many of those each has.
    related: HashMap<(Referent, Named), HashMap<SmolStr, usize>>,
    bytes: usize,
}

impl Graph {
    /// What a pod is by now; nothing if it is not there or bound to no node.
    pub fn set(&mut self, namespace: &SmolStr, name: &SmolStr, pod: Option<PlacedPod>) {
        let key = (namespace.clone(), name.clone());
        if self.pods.get(&key) == pod.as_ref() {
            return;
        }
        if let Some(old) = self.pods.remove(&key) {
            self.remove(&key, &old);
        }
        let Some(pod) = pod else { return };
        self.bytes += weight(&key, &pod);
        for (referent, name) in &pod.references {
            let nodes = self.related.entry((*referent, (namespace.clone(), name.clone()))).or_default();
            *nodes.entry(pod.node.clone()).or_default() += 1;
        }
        self.nodes.entry(pod.node.clone()).or_default().insert(key.clone());
        self.pods.insert(key, pod);
    }

    fn remove(&mut self, key: &Named, old: &PlacedPod) {
        self.bytes = self.bytes.saturating_sub(weight(key, old));
        for (referent, name) in &old.references {
            let place = (*referent, (key.0.clone(), name.clone()));
            let Some(nodes) = self.related.get_mut(&place) else { continue };
            if let Some(count) = nodes.get_mut(&old.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&old.node);
                }
            }
            if nodes.is_empty() {
                self.related.remove(&place);
            }
        }
        if let Some(own) = self.nodes.get_mut(&old.node) {
            own.remove(key);
            if own.is_empty() {
                self.nodes.remove(&old.node);
            }
        }
    }

    /// Whether a pod of a node refers to an object.
    pub fn relates(&self, node: &str, referent: Referent, namespace: &str, name: &str) -> bool {
        let place = (referent, (SmolStr::new(namespace), SmolStr::new(name)));
        self.related.get(&place).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// The claims to volumes that pods of a node have, each once.
    pub fn volume_claims(&self, node: &str) -> HashSet<Named> {
        let pods = self.nodes.get(node).into_iter().flatten();
        let pods = pods.filter_map(|key| Some((&key.0, self.pods.get(key)?)));
        let claims = pods.flat_map(|(namespace, pod)| {
            let own = pod.references.iter().filter(|(referent, _)| *referent == Referent::VolumeClaim);
            own.map(move |(_, name)| (namespace.clone(), name.clone()))
        });
        claims.collect()
    }

    pub fn len(&self) -> usize {
        self.pods.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// What it takes up, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A pod is in three maps, its references in two.
fn weight(key: &Named, pod: &PlacedPod) -> usize {
    3 * (2 * size_of::<SmolStr>() + key.0.len() + key.1.len()) + 3 * pod.bytes() + 128
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: &str, references: &[(Referent, &str)]) -> Option<PlacedPod> {
        let references = references.iter().map(|(referent, name)| (*referent, SmolStr::new(name))).collect();
        Some(PlacedPod { node: node.into(), references })
    }

    #[test]
    fn relations_follow_pods() {
        let (namespace, one, other) = (SmolStr::new("n"), SmolStr::new("one"), SmolStr::new("other"));
        let mut graph = Graph::default();
        let secret = (Referent::Secret, "s");
        graph.set(&namespace, &one, pod("a", &[secret, (Referent::VolumeClaim, "p")]));
        graph.set(&namespace, &other, pod("a", &[secret]));
        let sees = |graph: &Graph, node: &str| graph.relates(node, Referent::Secret, "n", "s");
        assert!(sees(&graph, "a") && !sees(&graph, "b"));
        assert!(
            !graph.relates("a", Referent::Secret, "m", "s")
                && !graph.relates("a", Referent::ConfigMap, "n", "s")
        );
        assert_eq!(graph.volume_claims("a"), HashSet::from([("n".into(), "p".into())]));
        graph.set(&namespace, &one, None);
        assert!(sees(&graph, "a"), "the other pod still needs it");
        graph.set(&namespace, &other, pod("b", &[secret]));
        assert!(!sees(&graph, "a") && sees(&graph, "b"));
        graph.set(&namespace, &other, pod("b", &[]));
        assert!(!sees(&graph, "b"));
        graph.set(&namespace, &other, None);
        graph.set(&namespace, &other, None);
        assert!(graph.is_empty() && graph.bytes() == 0, "{graph:?}");
        assert!(graph.related.is_empty() && graph.nodes.is_empty());
    }

    #[test]
    fn mirror_pods_show_nothing() {
        let mut pod =
            polder_model::json!({"metadata": {}, "spec": {"nodeName": "a", "serviceAccountName": "s"}});
        assert_eq!(PlacedPod::read("p", &pod).unwrap().references.len(), 1);
        pod.set_at(&["metadata", "annotations", "kubernetes.io/config.mirror"], "x");
        assert_eq!(PlacedPod::read("p", &pod).unwrap().references.len(), 0);
        pod.set_at(&["spec", "nodeName"], "");
        assert_eq!(PlacedPod::read("p", &pod), None);
    }
}
