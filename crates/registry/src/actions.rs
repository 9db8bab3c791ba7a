//! Actions on pods that are not edits: binding to a node, eviction.

use polder_admission::Operation;
use polder_model::selector::LabelSelector;
use polder_model::{FieldPath, Reason, SmolStr, Status, Value, json};

use crate::context::{FieldValidation, Query, RequestContext, WriteOptions, dry_run, invalid_options};
use crate::decode;
use crate::definition::Target;
use crate::delete::{Asking, DeleteOptions};
use crate::list::ListOptions;
use crate::metadata::{check_namespace, validate_annotations, validate_labels};
use crate::registry::Registry;

/// A budget that has let go of more pods than this, none of which has gone, is not asked for another.
const DISRUPTED_PODS_MAX: usize = 2000;

/// What may be read to find the budget of a pod; more is nobody's honest need.
const BUDGETS_BYTES_MAX: usize = 4 << 20;

/// What an action answers with.
pub fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

impl Registry {
    /// Assigns the pod a binding names, sent to the collection of bindings. The caller has been authorized.
    pub(crate) async fn bind_named(
        &self,
        context: &RequestContext,
        target: &Target,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let name = binding.str_at(&["metadata", "name"]).unwrap_or_default();
        if name.is_empty() {
            return Err(Status::bad_request("Name parameter required."));
        }
        let pod = self.sibling(context, "", "pods").await?.with_name(&target.namespace, name);
        self.bind_shaped(context, (target, &pod), binding.clone(), options).await?;
        Ok(success())
    }

    /// Assigns a pod to a node, once. The caller has been authorized for the subresource.
    pub async fn bind(
        &self,
        context: &RequestContext,
        target: &Target,
        mut binding: Value,
        options: &WriteOptions,
    ) -> Result<(), Status> {
        shape_action(context, target, &mut binding, options.field_validation)?;
        self.bind_shaped(context, (target, target), binding, options).await
    }

    /// `asked` is where the binding was sent, `target` the pod it is about.
    async fn bind_shaped(
        &self,
        context: &RequestContext,
        (asked, target): (&Target, &Target),
        mut binding: Value,
        options: &WriteOptions,
    ) -> Result<(), Status> {
        check_namespace(&mut binding, target)?;
        let operation = Operation::Create;
        self.admit(context, asked, operation, &mut binding, None, options.into()).await?;
        check_sent(target, &binding, "Binding")?;
        let node = binding.str_at(&["target", "name"]).unwrap_or_default().to_string();
        let kind = binding.str_at(&["target", "kind"]).unwrap_or_default();
        if !matches!(kind, "" | "Node") {
            let problem =
                format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
            return Err(Status::untyped(500, problem));
        }
        if node.is_empty() {
            return Err(Status::untyped(500, "target.name: Required value"));
        }
        self.judge(context, asked, operation, Some(&binding), None, options.into()).await?;
        let pod = Target { subresource: Default::default(), ..target.clone() };
        let mut resource = target.definition.group_resource();
        resource.resource = "pods/binding".into();
        let assign = |pod: &mut Value| {
            if pod.at(&["metadata", "deletionTimestamp"]).is_some() {
                let why = format!("pod {} is being deleted, cannot be assigned to a host", target.name);
                return Err(Status::conflict(&resource, &target.name, &why));
            }
            if let Some(own) = pod.str_at(&["spec", "nodeName"]).filter(|own| !own.is_empty()) {
                let why = format!("pod {} is already assigned to node {own:?}", target.name);
                return Err(Status::conflict(&resource, &target.name, &why));
            }
            pod.set_at(&["spec", "nodeName"], node.as_str());
            for field in ["annotations", "labels"] {
                let Some(Value::Object(sent)) = binding.at(&["metadata", field]) else { continue };
                for (key, value) in sent.iter() {
                    pod.set_at(&["metadata", field, key], value.clone());
                }
            }
            let mut errors = Vec::new();
            validate_labels(
                pod.at(&["metadata", "labels"]),
                &FieldPath::root("metadata").member("labels"),
                &mut errors,
            );
            validate_annotations(pod.at(&["metadata", "annotations"]), &mut errors);
            if !errors.is_empty() {
                return Err(Status::invalid(&target.definition.error_kind(), &target.name, &errors));
            }
            set_condition(
                pod,
                json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": (self.now())}),
            );
            Ok(())
        };
        self.modify_with(context, &pod, options, assign).await?;
        Ok(())
    }

    /// Evicts a pod: a delete that disruption budgets have a say in.
    pub async fn evict(
        &self,
        context: &RequestContext,
        target: &Target,
        mut eviction: Value,
        query: &Query,
    ) -> Result<(), Status> {
        // Budgets have a say about the pod as it is, whichever replica has seen it last.
        self.catch_up(&context.plane).await?;
        shape_action(context, target, &mut eviction, FieldValidation::Ignore)?;
        let mut errors = Vec::new();
        let mut write =
            WriteOptions { dry_run: dry_run(query.all("dryRun"), &mut errors), ..WriteOptions::default() };
        invalid_options("CreateOptions", &errors)?;
        check_namespace(&mut eviction, target)?;
        let operation = Operation::Create;
        self.admit(context, target, operation, &mut eviction, None, (&write).into()).await?;
        check_sent(target, &eviction, "Eviction")?;
        let mut options = DeleteOptions::read(eviction.get("deleteOptions"), &Query::default())?;
        options.dry_run |= write.dry_run;
        write.dry_run = options.dry_run;
        self.judge(context, target, operation, Some(&eviction), None, (&write).into()).await?;
        let pod_target = Target { subresource: Default::default(), ..target.clone() };
        let stored = self.must_find_newest(context, &pod_target).await?;
        let pod = self.to_client(context, &pod_target, &stored)?;
        let is = |wanted: &Option<SmolStr>, field: &str| {
            wanted.as_deref().is_none_or(|wanted| pod.str_at(&["metadata", field]) == Some(wanted))
        };
        if !is(&options.uid, "uid") || !is(&options.resource_version, "resourceVersion") {
            // Another pod than the one that is meant: the delete says so, and nothing has been spent.
            return self.delete_asking(context, &pod_target, &options, Asking::Nobody).await.map(drop);
        }
        if !is_beyond_budgets(&pod) {
            self.spend(context, &pod_target, &pod, &write).await?;
        }
        if pod.at(&["metadata", "deletionTimestamp"]).is_none() {
            let mark = |pod: &mut Value| {
                set_condition(
                    pod,
                    json!({
                        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                        "message": "Eviction API: evicting", "lastTransitionTime": (self.now()),
                    }),
                );
                Ok(())
            };
            if options.resource_version.is_none() {
                self.modify_with(context, &pod_target, &write, mark).await?;
            }
        }
        self.delete_asking(context, &pod_target, &options, Asking::Nobody).await?;
        Ok(())
    }

    /// Asks plugins about a connection to something behind an object: `exec`, `proxy` and the like. The caller has been
    /// authorized.
    pub async fn admit_connection(
        &self,
        context: &RequestContext,
        target: &Target,
        query: &Query,
    ) -> Result<(), Status> {
        let part = target.served().subresource(&target.subresource).ok_or_else(Status::path_not_found)?;
        let mut wanted = connection_options(query);
        wanted.set_at(&["kind"], part.kind.kind.clone());
        wanted.set_at(&["apiVersion"], part.kind.group_version().to_string());
        let options = WriteOptions::default();
        let operation = Operation::Connect;
        self.admit(context, target, operation, &mut wanted, None, (&options).into()).await?;
        self.judge(context, target, operation, Some(&wanted), None, (&options).into()).await
    }

    /// Takes one disruption from the budget of a pod, if it has one.
    async fn spend(
        &self,
        context: &RequestContext,
        target: &Target,
        pod: &Value,
        write: &WriteOptions,
    ) -> Result<(), Status> {
        let budgets = self.sibling(context, "policy", "poddisruptionbudgets").await?;
        let budgets = budgets.with_name(&target.namespace, "");
        let all = ListOptions::from_query(&Query::default(), &budgets)?;
        let mut listing = self.listing_unchecked(context, &budgets, &all).await?;
        let (mut found, mut bytes) = (None, 0);
        loop {
            let page = listing.objects.page().await?;
            if page.is_empty() {
                break;
            }
            for stored in page {
                bytes += stored.record.len();
                if bytes > BUDGETS_BYTES_MAX {
                    let why = "the disruption budgets of its namespace are too large to look through";
                    return Err(Status::forbidden(&target.definition.group_resource(), &target.name, why));
                }
                let budget = self.to_client(context, &budgets, &stored)?;
                if !covers(&budget, pod) {
                    continue;
                }
                if found.is_some() {
                    return Err(Status::untyped(
                        500,
                        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
                    ));
                }
                found = Some((budgets.with_name(&target.namespace, &stored.name.name), budget));
            }
            // Selectors may be long: others want to go on meanwhile.
            tokio::task::yield_now().await;
        }
        let Some((own, budget)) = &found else { return Ok(()) };
        if !is_ready(pod) && may_go_unready(budget) {
            return Ok(());
        }
        let decrement = |budget: &mut Value| {
            refusal(budget)?;
            let left = budget.i64_at(&["status", "disruptionsAllowed"]).unwrap_or(0) - 1;
            budget.set_at(&["status", "disruptionsAllowed"], left);
            budget.set_at(&["status", "disruptedPods", &target.name], self.now());
            Ok(())
        };
        self.modify_with(context, own, write, decrement).await.map(drop)
    }

    /// A built-in collection of the same plane.
    async fn sibling(&self, context: &RequestContext, group: &str, resource: &str) -> Result<Target, Status> {
        let found = self.resolve(&context.plane, group, "v1", resource).await?;
        let (definition, version) = found.ok_or_else(Status::path_not_found)?;
        let (namespace, name, subresource) = Default::default();
        Ok(Target { definition, version, namespace, name, subresource })
    }
}

/// What the query of a connection asks for.
fn connection_options(query: &Query) -> Value {
    let mut options = json!({});
    for flag in ["stdin", "stdout", "stderr", "tty"] {
        if query.flag(flag) {
            options.set_at(&[flag], true);
        }
    }
    for text in ["container", "path"] {
        if let Some(given) = query.get(text).filter(|given| !given.is_empty()) {
            options.set_at(&[text], SmolStr::new(given));
        }
    }
    let command: Vec<Value> = query.all("command").map(Value::from).collect();
    let ports = query.all("ports").flat_map(|ports| ports.split(','));
    let ports: Vec<Value> = ports.filter_map(|port| port.parse::<i64>().ok()).map(Value::from).collect();
    for (name, list) in [("command", command), ("ports", ports)] {
        if !list.is_empty() {
            options.set_at(&[name], list);
        }
    }
    options
}

/// What is sent has the form of its kind.
fn shape_action(
    context: &RequestContext,
    target: &Target,
    sent: &mut Value,
    validation: FieldValidation,
) -> Result<(), Status> {
    let kind = target.served().subresource(&target.subresource).map(|part| part.kind.clone());
    let kind = kind.ok_or_else(Status::path_not_found)?;
    let shaped = decode::shape_part(context, target, sent, validation);
    shaped.map_err(|problem| problem.in_document(&kind.kind, &kind.version))
}

/// What is sent to a pod speaks of that pod.
fn check_sent(target: &Target, sent: &Value, kind: &str) -> Result<(), Status> {
    check_namespace(&mut sent.clone(), target)?;
    if sent.str_at(&["metadata", "name"]) == Some(&target.name) {
        return Ok(());
    }
    Err(Status::bad_request(format!("name in URL does not match name in {kind} object")))
}

/// Pods that have ended, have not begun or are on their way out disrupt nothing.
fn is_beyond_budgets(pod: &Value) -> bool {
    let idle = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed" | "Pending"));
    idle || pod.at(&["metadata", "deletionTimestamp"]).is_some()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod.array_at(&["status", "conditions"]).iter();
    conditions.any(|one| one.str_at(&["type"]) == Some("Ready") && one.str_at(&["status"]) == Some("True"))
}

/// Whether a budget lets pods go that are not ready: always, or when enough others are.
fn may_go_unready(budget: &Value) -> bool {
    if budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == Some("AlwaysAllow") {
        return true;
    }
    let number = |field: &str| budget.i64_at(&["status", field]).unwrap_or(0);
    number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy")
}

/// An empty selector is everybody's, none is nobody's.
fn covers(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = budget.at(&["spec", "selector"]) else { return false };
    LabelSelector::from_value(selector)
        .is_ok_and(|selector| selector.matches(|key| pod.str_at(&["metadata", "labels", key])))
}

/// Why a budget has nothing to spend.
fn refusal(budget: &Value) -> Result<(), Status> {
    let name = budget.str_at(&["metadata", "name"]).unwrap_or_default();
    let number = |path: &[&str]| budget.i64_at(path).unwrap_or(0);
    let status = |field: &str| number(&["status", field]);
    let refuse = |cause: String, seconds: u32| {
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut refused = Status::untyped(429, message).with_cause("DisruptionBudget", cause, "");
        refused.reason = Some(Reason::TooManyRequests);
        Err(if seconds == 0 { refused } else { refused.with_retry_after(seconds) })
    };
    if status("observedGeneration") < number(&["metadata", "generation"]) {
        return refuse(format!("The disruption budget {name} is still being processed by the server."), 10);
    }
    let gone =
        budget.at(&["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, |pods| pods.len());
    if gone > DISRUPTED_PODS_MAX || status("disruptionsAllowed") <= 0 {
        let (needed, healthy) = (status("desiredHealthy"), status("currentHealthy"));
        let cause =
            format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently");
        return refuse(cause, 0);
    }
    Ok(())
}

/// Sets a condition in the place of the one of its type.
fn set_condition(pod: &mut Value, condition: Value) {
    let mut conditions = pod.array_at(&["status", "conditions"]).to_vec();
    conditions.retain(|one| one.get("type") != condition.get("type"));
    conditions.push(condition);
    pod.set_at(&["status", "conditions"], conditions);
}
