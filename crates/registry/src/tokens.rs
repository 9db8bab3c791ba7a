//! Tokens of service accounts: made on request, and good while what they name is there.

use polder_admission::Operation;
use polder_auth::UserInfo;
use polder_auth::authn::{Bound, Claims};
use polder_model::{FieldError, GroupKind, GroupResource, SmolStr, Status, Value, format_smolstr, json};
use polder_store::{ObjectName, Plane};

use crate::context::{RequestContext, WriteOptions};
use crate::decode::shape_part;
use crate::definition::Target;
use crate::registry::{Registry, timestamp};
use crate::status::read_failed;

/// Where it is told how tokens of a plane are verified, and by which keys.
pub const ISSUER_PATH: &str = "/.well-known/openid-configuration";
pub const KEYS_PATH: &str = "/openid/v1/jwks";

const SECONDS_MIN: i64 = 10 * 60;
const SECONDS_MAX: i64 = 1 << 32;
const SECONDS_DEFAULT: i64 = 60 * 60;
/// What kubelets ask for on behalf of programs that may not know that tokens end: such a token is good for a year, and whoever shows
/// it later than they asked for is noted.
const SECONDS_WARNED: i64 = 60 * 60 + 7;
const SECONDS_EXTENDED: i64 = 365 * 24 * 60 * 60;
/// What is being deleted for longer than this is gone.
const SECONDS_DELETED: i64 = 60;

fn request_kind() -> GroupKind {
    GroupKind { group: "authentication.k8s.io".into(), kind: "TokenRequest".into() }
}

/// A request that says whom it is for means the account of its path.
fn check_own(target: &Target, request: &Value) -> Result<(), Status> {
    let mut errors = Vec::new();
    for (field, own, what) in [("name", &target.name, "name"), ("namespace", &target.namespace, "namespace")]
    {
        let given = request.str_at(&["metadata", field]).unwrap_or_default();
        if !given.is_empty() && given != own {
            let why = format!("must match the service account {what} if specified");
            errors.push(FieldError::invalid(format!("metadata.{field}"), given, why));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(&request_kind(), &target.name, &errors)) }
}

impl Registry {
    /// Makes a token for a service account. The caller has been authorized for the subresource.
    pub async fn make_token(
        &self,
        context: &RequestContext,
        target: &Target,
        mut request: Value,
        options: &WriteOptions,
    ) -> Result<Value, Status> {
        let Some(accounts) = &self.options.authenticators.accounts else {
            return Err(Status::untyped(501, "this server has no key for service account tokens"));
        };
        if request.as_object().is_none() {
            return Err(Status::bad_request("a TokenRequest is an object"));
        }
        request.set_at(&["kind"], "TokenRequest");
        request.set_at(&["apiVersion"], "authentication.k8s.io/v1");
        shape_part(context, target, &mut request, options.field_validation)
            .map_err(|problem| problem.in_document("TokenRequest", "v1"))?;
        if matches!(request.i64_at(&["spec", "expirationSeconds"]), None | Some(0)) {
            request.set_at(&["spec", "expirationSeconds"], SECONDS_DEFAULT);
        }
        let operation = Operation::Create;
        self.admit(context, target, operation, &mut request, None, options.into()).await?;
        check_own(target, &request)?;
        let whole = Target { subresource: SmolStr::default(), ..target.clone() };
        let stored = self.must_find(context, &whole).await?;
        let account = self.to_client(context, &whole, &stored)?;
        let uid = |object: &Value| SmolStr::new(object.str_at(&["metadata", "uid"]).unwrap_or_default());
        let (wanted, own) = (uid(&request), uid(&account));
        if !wanted.is_empty() && wanted != own {
            let resource = GroupResource::new("authentication.k8s.io", "TokenRequest");
            let why = format!(
                "the UID in the token request ({wanted}) does not match the UID of the service account ({own})"
            );
            return Err(Status::conflict(&resource, &target.name, &why));
        }
        let mut seconds = request.i64_at(&["spec", "expirationSeconds"]).unwrap_or(SECONDS_DEFAULT);
        let audiences = request.array_at(&["spec", "audiences"]).iter().filter_map(Value::as_str);
        let mut audiences: Vec<SmolStr> = audiences.map(SmolStr::new).collect();
        let issuer = self.issuer(&context.plane);
        if audiences.is_empty() {
            audiences.push(issuer.clone());
        }
        let mut errors = Vec::new();
        let field = "spec.expirationSeconds";
        if seconds < SECONDS_MIN {
            let why = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(field, seconds, why));
        } else if seconds > SECONDS_MAX {
            let why = "may not specify a duration larger than 2^32 seconds";
            errors.push(FieldError::invalid(field, seconds, why));
        }
        if !errors.is_empty() {
            return Err(Status::invalid(&request_kind(), "", &errors));
        }
        let now = (self.options.clock)();
        for (member, value) in [
            ("name", Value::from(&target.name)),
            ("namespace", Value::from(&target.namespace)),
            ("uid", Value::from(&own)),
            ("creationTimestamp", Value::from(timestamp(now))),
        ] {
            request.set_at(&["metadata", member], value);
        }
        request.set_at(&["spec", "audiences"], audiences.iter().map(Value::from).collect::<Vec<_>>());
        request.remove_at(&["status"]);
        self.judge(context, target, operation, Some(&request), None, options.into()).await?;
        let (bound, node) = self.bound(context, target, &request).await?;
        let seconds_max = self.options.authenticators.account_seconds_max;
        if seconds > seconds_max {
            context.warn(format!(
                "requested expiration of {seconds} seconds shortened to {seconds_max} seconds"
            ));
            seconds = seconds_max;
            request.set_at(&["spec", "expirationSeconds"], seconds);
        }
        let is_extended = seconds == SECONDS_WARNED
            && audiences.contains(&issuer)
            && bound.as_ref().is_some_and(|(kind, _)| kind == "pod");
        let lives = if is_extended { SECONDS_EXTENDED.min(seconds_max) } else { seconds };
        let claims = Claims {
            plane: context.plane.id,
            issuer,
            audiences: audiences.clone(),
            namespace: target.namespace.clone(),
            account: Bound { name: target.name.clone(), uid: own },
            bound,
            node,
            warn_after: is_extended.then(|| now.saturating_add(seconds)),
            id: SmolStr::from(uuid::Uuid::new_v4().to_string()),
            issued: now,
            expires: now.saturating_add(lives),
        };
        let token = match options.dry_run {
            true => String::new(),
            false => accounts.sign(&claims).map_err(|error| Status::internal(error.to_string()))?,
        };
        if !options.dry_run {
            let id = format!("JTI={}", claims.id);
            context.annotate("authentication.kubernetes.io/issued-credential-id".into(), id);
        }
        let told = now.saturating_add(seconds);
        request.set_at(&["status"], json!({"token": token, "expirationTimestamp": (timestamp(told))}));
        Ok(request)
    }

    /// The object a token is to be bound to, if it is there and the account's; and the node it is on if it is a pod.
    async fn bound(
        &self,
        context: &RequestContext,
        target: &Target,
        request: &Value,
    ) -> Result<(Option<(SmolStr, Bound)>, Option<Bound>), Status> {
        let path = |field: &'static str| ["spec", "boundObjectRef", field];
        let text = |field| request.str_at(&path(field)).unwrap_or_default();
        let (api_version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        if kind.is_empty() && name.is_empty() {
            return Ok((None, None));
        }
        let resource = match (api_version, kind) {
            ("v1" | "", "Pod") => "pods",
            ("v1" | "", "Secret") => "secrets",
            ("v1" | "", "Node") => "nodes",
            _ => {
                let why = format!("cannot bind token to object of type {api_version}, Kind={kind}");
                return Err(Status::bad_request(why));
            }
        };
        let namespace = if resource == "nodes" { "" } else { &target.namespace };
        let resource = GroupResource::new("", resource);
        let found = self.named(&context.plane, &resource, namespace, name).await?;
        let found = found.ok_or_else(|| Status::not_found(&resource, name))?;
        let uid = found.str_at(&["metadata", "uid"]).unwrap_or_default();
        if !text("uid").is_empty() && text("uid") != uid {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                text("uid")
            );
            return Err(Status::conflict(&resource, name, &why));
        }
        let account = found.str_at(&["spec", "serviceAccountName"]).unwrap_or_default();
        if kind == "Pod" && account != target.name {
            let why = format!(
                "cannot bind token for serviceaccount {:?} to pod running with different serviceaccount name.",
                target.name
            );
            return Err(Status::bad_request(why));
        }
        let bound = Bound { name: SmolStr::new(name), uid: SmolStr::new(uid) };
        let node = found.str_at(&["spec", "nodeName"]).filter(|node| kind == "Pod" && !node.is_empty());
        let node = match node {
            Some(node) => {
                let found = self.named(&context.plane, &GroupResource::new("", "nodes"), "", node).await?;
                let uid = found.as_ref().and_then(|found| found.str_at(&["metadata", "uid"]));
                Some(Bound { name: SmolStr::new(node), uid: SmolStr::new(uid.unwrap_or_default()) })
            }
            None => None,
        };
        Ok((Some((SmolStr::from(kind.to_lowercase()), bound)), node))
    }

    /// Who a token is for, if it is one of a service account; nobody if what it names is not there any more.
    pub async fn account_user(&self, token: &str) -> Option<Result<(UserInfo, Claims), Status>> {
        let accounts = self.options.authenticators.accounts.as_ref()?;
        let claims = accounts.read(token, (self.options.clock)())?;
        Some(match claims {
            Ok(claims) => match self.is_good(&claims).await {
                Ok(true) => Ok((claims.user(), claims)),
                Ok(false) => Err(Status::unauthorized()),
                Err(status) => Err(status),
            },
            Err(_) => Err(Status::unauthorized()),
        })
    }

    async fn is_good(&self, claims: &Claims) -> Result<bool, Status> {
        let Some(plane) = self.store.plane_by_id(claims.plane) else { return Ok(false) };
        let now = (self.options.clock)();
        let namespaced = |kind: &str| if kind == "node" { "" } else { claims.namespace.as_str() };
        let account = (SmolStr::new_static("serviceaccount"), claims.account.clone());
        for (kind, bound) in std::iter::once(&account).chain(&claims.bound) {
            let resource = GroupResource::new("", format_smolstr!("{kind}s"));
            let found = self.named(&plane, &resource, namespaced(kind), &bound.name).await?;
            let Some(found) = found else { return Ok(false) };
            let deleted = found.str_at(&["metadata", "deletionTimestamp"]);
            let deleted = deleted.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            let is_gone = deleted.is_some_and(|at| at.as_second().saturating_add(SECONDS_DELETED) < now);
            if is_gone || found.str_at(&["metadata", "uid"]) != Some(&bound.uid) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Answers what a token proves in a plane.
    pub(crate) async fn review_token(&self, context: &RequestContext, question: &Value) -> Value {
        let token = question.str_at(&["spec", "token"]).unwrap_or_default();
        let wanted = question.array_at(&["spec", "audiences"]).iter().filter_map(Value::as_str);
        let mut wanted: Vec<SmolStr> = wanted.map(SmolStr::new).collect();
        if wanted.is_empty() {
            wanted.push(self.issuer(&context.plane));
        }
        let refused = |why: &str| json!({"authenticated": false, "user": {}, "error": why});
        let (user, audiences) = match self.account_user(token).await {
            Some(Ok((user, claims))) => (user, claims.audiences),
            Some(Err(_)) => return refused("invalid bearer token"),
            None => match self.token_user(Some(&context.plane), token).await {
                // Whatever else there is says nothing of audiences: it is for us.
                Ok(Some(user)) => (user, vec![self.issuer(&context.plane)]),
                _ => return refused("invalid bearer token"),
            },
        };
        // Somebody of another plane is nobody here, nor is somebody whom the plane does not know.
        let Some(user) = self.seen(&context.plane, user).await else {
            return refused("invalid bearer token");
        };
        let common: Vec<Value> =
            audiences.iter().filter(|audience| wanted.contains(audience)).map(Value::from).collect();
        if common.is_empty() {
            return refused("token audiences are not accepted here");
        }
        json!({"authenticated": true, "user": (crate::reviews::user_value(&user)), "audiences": common})
    }

    /// What somebody elsewhere must know to verify tokens of a plane: where its public keys are.
    pub fn issuer_configuration(&self, plane: &Plane) -> Value {
        let issuer = self.issuer(plane);
        json!({
            "issuer": (issuer.clone()),
            "jwks_uri": (format_smolstr!("{issuer}{KEYS_PATH}")),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// Those keys.
    pub fn issuer_keys(&self, plane: &Plane) -> Result<Value, Status> {
        let Some(accounts) = &self.options.authenticators.accounts else {
            return Err(Status::path_not_found());
        };
        accounts.public_keys(plane.id).map_err(|error| Status::internal(error.to_string()))
    }

    /// Who signs the tokens of a plane, as they say.
    fn issuer(&self, plane: &Plane) -> SmolStr {
        SmolStr::from(crate::planes::plane_url(self, plane.name.as_str()))
    }

    pub(crate) async fn named(
        &self,
        plane: &std::sync::Arc<Plane>,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let found =
            self.store.get(plane, self.store.resource_id(resource), &ObjectName::new(namespace, name)).await;
        let found = found.map_err(|error| read_failed(plane, error))?;
        Ok(found.and_then(|stored| stored.record.to_value(0).ok()))
    }
}
