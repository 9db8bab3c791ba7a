//! Calls to the webhooks of planes, as far as the registry knows about them: which server is meant, how many calls a plane
//! has under way, how long they may take. Whoever starts the registry brings the client that posts.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use polder_admission::{Endpoint, Location};
use polder_model::{GroupResource, PlaneId, SmolStr, Value};
use polder_store::{ListQuery, ObjectName, Plane, Store, StoredObject, Turn, Turns};

use crate::conversion::Shared;
use crate::custom::Turns as PlaneTurns;
use crate::registry::Registry;

/// Calls one plane may have under way; the next one waits, and its time runs. Whoever converts holds what it is answered until
/// that is read.
const ADMISSION_CALLS_MAX: usize = 32;
const CONVERSION_CALLS_MAX: usize = 16;
/// All planes together.
const CALLS_MAX: usize = 8192;
/// All webhooks of one phase of one request together: upstream's bound for a request.
pub(crate) const PHASE_MAX: Duration = Duration::from_secs(34);
/// More endpoints of a service than this are not looked through.
const SLICES_BYTES_MAX: usize = 1 << 20;

/// Posts to webhooks.
pub trait WebhookClient: Send + Sync {
    /// The body of the answer, or why there is none, in the words of upstream. Ends within the time the call has.
    fn post<'a>(&'a self, call: WebhookCall<'a>) -> Posting<'a>;
}

pub type Posting<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>, String>> + Send + 'a>>;

/// One call.
#[derive(Debug)]
pub struct WebhookCall<'a> {
    pub plane: PlaneId,
    /// With its query.
    pub url: String,
    /// Where to connect to instead of the host of the URL, whose name the certificate has all the same.
    pub dial: Option<(String, u16)>,
    /// PEM; empty means those of the system.
    pub authorities: &'a [u8],
    pub body: Vec<u8>,
    pub timeout: Duration,
}

/// What a webhook is called for. Those who wait for one purpose take nothing from the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    Admission,
    Conversion,
}

/// The client, and who is calling.
pub(crate) struct Webhooks {
    store: Arc<Store>,
    client: OnceLock<Arc<dyn WebhookClient>>,
    /// When there are as many calls as there may be, planes take turns; for each purpose by itself.
    admission: Arc<Turns>,
    conversion: Arc<Turns>,
    /// Long answers about objects of a plane are read one at a time.
    pub(crate) reading: PlaneTurns,
    /// What was converted for those who watch.
    pub(crate) shared: Shared,
}

impl Webhooks {
    pub(crate) fn new(store: &Arc<Store>) -> Webhooks {
        Webhooks {
            store: store.clone(),
            client: OnceLock::new(),
            admission: Turns::new(CALLS_MAX, ADMISSION_CALLS_MAX),
            conversion: Turns::new(CALLS_MAX, CONVERSION_CALLS_MAX),
            reading: PlaneTurns::default(),
            shared: Shared::default(),
        }
    }

    /// Waits for a place among the calls of a plane. Whoever has it holds what it asks and what it is answered.
    pub(crate) async fn begin<'a>(
        &'a self,
        plane: &'a Arc<Plane>,
        purpose: Purpose,
        endpoint: &'a Endpoint,
        timeout: Duration,
    ) -> Result<Call<'a>, String> {
        // Rounded up, as upstream tells it.
        let seconds = timeout.as_millis().div_ceil(1000).max(1);
        let url = format!("{}?timeout={seconds}s", endpoint.url());
        let deadline = tokio::time::Instant::now() + timeout;
        let turns = match purpose {
            Purpose::Admission => &self.admission,
            Purpose::Conversion => &self.conversion,
        };
        match tokio::time::timeout_at(deadline, turns.take(plane.id)).await {
            Ok(turn) => Ok(Call { webhooks: self, plane, endpoint, url, deadline, _turn: turn }),
            Err(_) => Err(failed(&url, "context deadline exceeded")),
        }
    }
}

/// A call that has its place.
pub(crate) struct Call<'a> {
    webhooks: &'a Webhooks,
    plane: &'a Arc<Plane>,
    endpoint: &'a Endpoint,
    url: String,
    deadline: tokio::time::Instant,
    _turn: Turn,
}

impl Call<'_> {
    /// Posts a review, and gives the answer, or why there is none.
    pub(crate) async fn post(&self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let Some(client) = self.webhooks.client.get() else {
            return Err(failed(&self.url, "this server calls no webhooks"));
        };
        let call = async {
            let dial = match &self.endpoint.location {
                Location::Url(_) => None,
                Location::Service { namespace, name, port, .. } => {
                    let store = &self.webhooks.store;
                    let found = resolve_service(store, self.plane, namespace, name, *port).await;
                    Some(found.map_err(|why| failed(&self.url, &why))?)
                }
            };
            let timeout = self.deadline.saturating_duration_since(tokio::time::Instant::now());
            let authorities = &self.endpoint.authorities;
            let (plane, url) = (self.plane.id, self.url.clone());
            client.post(WebhookCall { plane, url, dial, authorities, body, timeout }).await
        };
        match tokio::time::timeout_at(self.deadline, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(failed(&self.url, "context deadline exceeded")),
        }
    }
}

fn failed(url: &str, why: &str) -> String {
    format!("Post {url:?}: {why}")
}

impl Registry {
    /// Gives the registry a way to call webhooks. Without one, every call fails. The first one counts.
    pub fn set_webhook_client(&self, client: Arc<dyn WebhookClient>) {
        self.webhooks.client.set(client).ok();
    }

    /// Posts a review. `began` is when the webhooks of the request were first asked.
    pub(crate) async fn call_webhook(
        &self,
        plane: &Arc<Plane>,
        endpoint: &Endpoint,
        body: Vec<u8>,
        timeout: Duration,
        began: Instant,
    ) -> Result<Vec<u8>, String> {
        let timeout = timeout.min(PHASE_MAX.saturating_sub(began.elapsed()));
        self.webhooks.begin(plane, Purpose::Admission, endpoint, timeout).await?.post(body).await
    }
}

/// A ready endpoint of a service of the plane.
pub(crate) async fn resolve_service(
    store: &Store,
    plane: &Arc<Plane>,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, u16), String> {
    let services = store.resource_id(&GroupResource::new("", "services"));
    let found = store.get(plane, services, &ObjectName::new(namespace, name)).await;
    let found = found.map_err(|error| error.to_string())?;
    let service = parse(&found.ok_or_else(|| format!("service {name:?} not found"))?);
    if service.str_at(&["spec", "type"]) == Some("ExternalName") {
        return Err("unsupported service type \"ExternalName\"".into());
    }
    let mut ports = service.array_at(&["spec", "ports"]).iter();
    let wanted = ports.find(|own| own.i64_at(&["port"]) == Some(i64::from(port)));
    let wanted = wanted.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let wanted = wanted.str_at(&["name"]).unwrap_or_default();
    let slices = store.resource_id(&GroupResource::new("discovery.k8s.io", "endpointslices"));
    let service = SmolStr::new(name);
    let is_own = move |slice: &StoredObject| {
        slice.record.label("kubernetes.io/service-name") == Some(service.as_str())
    };
    let query = ListQuery {
        namespace: Some(SmolStr::new(namespace)),
        bytes_max: SLICES_BYTES_MAX,
        filter: Some(Arc::new(is_own)),
        ..ListQuery::all(slices)
    };
    let page = store.list(plane, query).await.map_err(|error| error.to_string())?;
    page.objects
        .iter()
        .filter_map(|slice| ready(&parse(slice), wanted))
        .next()
        .ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

fn parse(stored: &Arc<StoredObject>) -> Value {
    Value::parse_own(stored.record.body()).unwrap_or_default()
}

/// An address of a slice that takes requests, and the number of a port by its name.
fn ready(slice: &Value, port: &str) -> Option<(String, u16)> {
    let mut ports = slice.array_at(&["ports"]).iter();
    let port = ports.find(|own| own.str_at(&["name"]).unwrap_or_default() == port)?;
    let port = u16::try_from(port.i64_at(&["port"])?).ok()?;
    let mut endpoints = slice.array_at(&["endpoints"]).iter();
    let takes =
        |endpoint: &&Value| endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool).unwrap_or(true);
    let endpoint = endpoints.find(takes)?;
    let address = endpoint.array_at(&["addresses"]).first()?.as_str()?;
    Some((address.to_owned(), port))
}
