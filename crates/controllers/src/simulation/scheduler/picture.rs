//! The nodes of a plane and who is on them, as one turn of the scheduler sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use polder_model::quantity::Quantity;
use polder_model::selector::LabelSelector;
use polder_model::{SmolStr, Value};

pub(super) struct Picture {
    pub(super) nodes: Vec<NodeView>,
    /// Labels of namespaces, for terms that select by them.
    pub(super) namespaces: BTreeMap<SmolStr, Value>,
    /// Who protects pods from having to go.
    pub(super) budgets: Vec<Budget>,
}

/// A disruption budget: whose pods, and how many of them may go.
pub(super) struct Budget {
    pub(super) namespace: SmolStr,
    pub(super) selector: LabelSelector,
    pub(super) allowed: i64,
}

impl Budget {
    pub(super) fn of(budget: &Value) -> Budget {
        let selector = budget.at(&["spec", "selector"]).map(LabelSelector::from_value);
        Budget {
            namespace: SmolStr::new(budget.str_at(&["metadata", "namespace"]).unwrap_or_default()),
            selector: selector.and_then(Result::ok).unwrap_or(LabelSelector::nothing()),
            allowed: budget.i64_at(&["status", "disruptionsAllowed"]).unwrap_or(0),
        }
    }
}

/// A node with what is on it.
pub(super) struct NodeView {
    pub(super) node: Arc<Value>,
    pub(super) name: SmolStr,
    pub(super) pods: Vec<Arc<Value>>,
    /// What it offers and what its pods asked for, in thousandths.
    pub(super) offers: Amounts,
    pub(super) asked: Amounts,
}

/// Amounts by resource, in thousandths.
pub(super) type Amounts = BTreeMap<SmolStr, i128>;

impl Picture {
    pub(super) fn new(nodes: Vec<Arc<Value>>, pods: &[Arc<Value>], namespaces: &[Arc<Value>]) -> Picture {
        let view = |node: Arc<Value>| NodeView {
            name: SmolStr::new(node.str_at(&["metadata", "name"]).unwrap_or_default()),
            offers: amounts(node.at(&["status", "allocatable"])),
            asked: Amounts::new(),
            pods: Vec::new(),
            node,
        };
        let labels = |namespace: &Arc<Value>| {
            let name = SmolStr::new(namespace.str_at(&["metadata", "name"]).unwrap_or_default());
            (name, namespace.at(&["metadata", "labels"]).cloned().unwrap_or_default())
        };
        let mut picture = Picture {
            nodes: nodes.into_iter().map(view).collect(),
            namespaces: namespaces.iter().map(labels).collect(),
            budgets: Vec::new(),
        };
        for pod in pods {
            let is_over = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
            let node = pod.str_at(&["spec", "nodeName"]).filter(|node| !node.is_empty());
            if let Some(node) = node.filter(|_| !is_over) {
                picture.put(node, pod);
            }
        }
        picture
    }

    /// All nodes, one of them as this view shows it: it may lack pods that the picture has.
    pub(super) fn with<'a>(&'a self, view: &'a NodeView) -> impl Iterator<Item = &'a NodeView> {
        self.nodes.iter().map(move |other| if other.name == view.name { view } else { other })
    }

    pub(super) fn put(&mut self, node: &str, pod: &Arc<Value>) {
        if let Some(view) = self.nodes.iter_mut().find(|view| view.name == node) {
            view.put(pod);
        }
    }

    pub(super) fn take(&mut self, node: &str, pod: &Arc<Value>) {
        if let Some(view) = self.nodes.iter_mut().find(|view| view.name == node) {
            view.take(pod);
        }
    }
}

impl NodeView {
    fn put(&mut self, pod: &Arc<Value>) {
        for (resource, amount) in requests(pod) {
            *self.asked.entry(resource).or_default() += amount;
        }
        self.pods.push(pod.clone());
    }

    fn take(&mut self, pod: &Arc<Value>) {
        let uid = |pod: &Value| pod.str_at(&["metadata", "uid"]).map(SmolStr::new);
        let before = self.pods.len();
        self.pods.retain(|own| uid(own) != uid(pod));
        if self.pods.len() < before {
            for (resource, amount) in requests(pod) {
                *self.asked.entry(resource).or_default() -= amount;
            }
        }
    }

    /// Without some of its pods.
    pub(super) fn without(&self, pods: &[Arc<Value>]) -> NodeView {
        let mut view = NodeView {
            node: self.node.clone(),
            name: self.name.clone(),
            pods: self.pods.clone(),
            offers: self.offers.clone(),
            asked: self.asked.clone(),
        };
        pods.iter().for_each(|pod| view.take(pod));
        view
    }

    /// The first resource of which a pod wants more than is left.
    pub(super) fn lacks(&self, wanted: &Amounts) -> Option<SmolStr> {
        let left = |resource: &str| {
            let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0);
            of(&self.offers) - of(&self.asked)
        };
        wanted
            .iter()
            .find(|(resource, amount)| **amount > left(resource))
            .map(|(resource, _)| resource.clone())
    }
}

pub(super) fn priority(pod: &Value) -> i64 {
    pod.i64_at(&["spec", "priority"]).unwrap_or(0)
}

/// What a pod asks for: the sum of its containers, or what starting it takes if that is more, and its overhead.
pub(super) fn requests(pod: &Value) -> Amounts {
    let add = |sum: &mut Amounts, more: &Amounts| {
        for (resource, amount) in more {
            *sum.entry(resource.clone()).or_default() += amount;
        }
    };
    let at_least = |sum: &mut Amounts, other: &Amounts| {
        for (resource, amount) in other {
            let own = sum.entry(resource.clone()).or_default();
            *own = (*own).max(*amount);
        }
    };
    let of = |container: &Value| amounts(container.at(&["resources", "requests"]));
    let mut sum = Amounts::new();
    for container in pod.array_at(&["spec", "containers"]) {
        add(&mut sum, &of(container));
    }
    // Those that go on beside the others count with them; the rest run one after the other, before.
    let (mut beside, mut before) = (Amounts::new(), Amounts::new());
    for container in pod.array_at(&["spec", "initContainers"]) {
        let own = of(container);
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            add(&mut beside, &own);
            at_least(&mut before, &beside);
        } else {
            let mut own = own;
            add(&mut own, &beside);
            at_least(&mut before, &own);
        }
    }
    add(&mut sum, &beside);
    at_least(&mut sum, &before);
    add(&mut sum, &amounts(pod.at(&["spec", "overhead"])));
    at_least(&mut sum, &amounts(pod.at(&["spec", "resources", "requests"])));
    sum.insert(SmolStr::new_static("pods"), 1_000);
    sum
}

fn amounts(list: Option<&Value>) -> Amounts {
    let list = list.and_then(Value::as_object);
    let entries = list.into_iter().flat_map(|list| list.iter());
    let amount = |value: &Value| Some(i128::from(Quantity::from_value(value).ok()?.as_milli()));
    entries.filter_map(|(resource, value)| Some((resource.clone(), amount(value)?))).collect()
}
