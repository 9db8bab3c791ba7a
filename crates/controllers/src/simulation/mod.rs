//! Simulated nodes, for development and tests: a plane with `spec.simulatedNodes` has that many nodes, pods are
//! scheduled to them and run there as far as the API can tell. Nothing is executed.
//!
//! Three controllers: [`nodes`] keeps the nodes of a plane, [`scheduler`] assigns pods, [`kubelet`] makes them run and stop. A
//! simulated node is known by its label; nodes of other origin are left alone, and a plane without simulated nodes has no
//! scheduler.

mod image;
mod kubelet;
mod nodes;
mod pod_status;
mod scheduler;

pub(crate) use self::kubelet::Kubelet;
pub(crate) use self::nodes::Nodes;
pub(crate) use self::scheduler::Scheduler;

use std::sync::Arc;

use polder_client::InPlane;
use polder_client::resource::NODES;
use polder_model::selector::LabelSelector;
use polder_model::{Status, Value};

/// Says that a node is simulated.
const LABEL: &str = "polder.dev/simulated";

/// The simulated nodes of a plane.
async fn simulated(plane: &InPlane) -> Result<Vec<Arc<Value>>, Status> {
    let labels = LabelSelector::parse(LABEL).map_err(|error| Status::internal(error.to_string()))?;
    plane.list_selected(&NODES, "", labels).await
}
