//! Who somebody with a bearer token is, where that depends on a plane: its bootstrap tokens, the issuers it has of its own; and
//! whom the provider's issuers and webhook confine to a plane.
//!
//! Order: static tokens, bootstrap tokens, issuers of the plane, issuers of the provider, the provider's webhook. (Tokens of
//! service accounts come first: [`crate::tokens`].) Invariant: whoever is known by something of a plane has that plane as
//! home, and what a plane has is asked for requests to that plane only.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use polder_auth::UserInfo;
use polder_auth::authn::{self, BOOTSTRAP_NAMESPACE, BOOTSTRAP_PREFIX, BootstrapToken, Issuer, PLANE_EXTRA};
use polder_model::{FieldPath, GroupResource, PlaneId, SmolStr, Status};
use polder_store::{ListQuery, ObjectName, Plane};

use crate::memo::Memo;
use crate::planes;
use crate::registry::Registry;
use crate::status::read_failed;
use crate::tokens::CredentialNotes;
use crate::written::Written;

/// Planes whose issuers are kept at hand; most have none.
const PLANES_LEN_MAX: usize = 8192;
/// Compiled issuers that are looked through for dead ones when there are more.
const SHARED_LEN_MAX: usize = 1024;

/// Names of bootstrap tokens that are kept of a plane; where there are more, each is looked up.
const BOOTSTRAP_NAMES_LEN_MAX: usize = 512;
/// What is read of such secrets to know their names.
const BOOTSTRAP_BYTES_MAX: usize = 1 << 20;

type Issuers = Arc<[Arc<Issuer>]>;

/// The names of a plane's bootstrap secrets, sorted; `None` where there are too many to keep.
type BootstrapNames = Option<Arc<[SmolStr]>>;

/// The issuers of planes: compiled when a token is shown, shared by those who have the same, kept while they are used.
pub(crate) struct IssuersOfPlanes {
    planes: Memo<Issuers>,
    shared: Mutex<HashMap<[u8; 32], Weak<Issuer>>>,
    none: Issuers,
    /// So that tokens which name nothing cost nothing: anybody can send them.
    bootstrap: Memo<BootstrapNames>,
    no_bootstrap: Arc<[SmolStr]>,
}

impl Default for IssuersOfPlanes {
    fn default() -> IssuersOfPlanes {
        IssuersOfPlanes {
            planes: Memo::default(),
            shared: Mutex::default(),
            none: Arc::new([]),
            bootstrap: Memo::default(),
            no_bootstrap: Arc::new([]),
        }
    }
}

impl IssuersOfPlanes {
    /// A plane may have other bootstrap tokens by now.
    pub(crate) fn forget_bootstrap(&self, plane: PlaneId) {
        self.bootstrap.forget(plane);
    }

    /// The same issuer of another plane, if there is one.
    fn shared(&self, issuer: Arc<Issuer>) -> Arc<Issuer> {
        let mut shared = self.shared.lock();
        if shared.len() > SHARED_LEN_MAX {
            shared.retain(|_, known| known.strong_count() > 0);
        }
        if let Some(known) = shared.get(&issuer.digest()).and_then(Weak::upgrade) {
            return known;
        }
        shared.insert(issuer.digest(), Arc::downgrade(&issuer));
        issuer
    }
}

/// A `Plane` was written: it may name other issuers now. Or a bootstrap secret.
pub(crate) fn committed(registry: &Registry, written: &Written<'_>) {
    let Written { plane, resource, name, .. } = written;
    if resource.group.is_empty()
        && resource.resource == "secrets"
        && name.namespace == BOOTSTRAP_NAMESPACE
        && name.name.starts_with(BOOTSTRAP_PREFIX)
    {
        registry.issuers.forget_bootstrap(*plane);
    }
    if let Some(plane) = written.plane_of(registry) {
        registry.issuers.planes.forget(plane);
    }
}

impl Registry {
    /// Who shows a bearer token in a request to a plane, which need not exist.
    pub async fn bearer_user(
        &self,
        plane: Option<&Arc<Plane>>,
        token: &str,
        notes: &mut CredentialNotes,
    ) -> Result<UserInfo, Status> {
        if let Some(outcome) = self.account_user(token).await {
            let account = outcome?;
            // A token made for somebody else to read is none for us.
            if !account.claims.audiences.contains(&account.claims.issuer) {
                return Err(Status::unauthorized());
            }
            *notes = account.notes;
            return Ok(account.user);
        }
        self.token_user(plane, token).await?.ok_or_else(Status::unauthorized)
    }

    /// Who a token is of that is no service account's.
    pub(crate) async fn token_user(
        &self,
        plane: Option<&Arc<Plane>>,
        token: &str,
    ) -> Result<Option<UserInfo>, Status> {
        let authenticators = &self.options.authenticators;
        let sources = authenticators.sources();
        if let Some(user) = sources.tokens.user(token) {
            return Ok(Some(user));
        }
        if let Some(plane) = plane
            && let Some(bootstrap) = BootstrapToken::parse(token)
            && let Some(user) = self.bootstrap_user(plane, bootstrap).await?
        {
            return Ok(Some(user));
        }
        let clock = self.options.clock;
        if authenticators.is_issuer_token(token) {
            if let Some(plane) = plane.filter(|plane| plane.id != PlaneId::CORE) {
                let issuers = self.issuers_of(plane).await?;
                let issued = authenticators.issued(Some(plane.id), &issuers, token, clock).await;
                if let Some((user, _)) = issued {
                    return Ok(Some(user));
                }
            }
            if let Some((user, issuer)) = authenticators.issued(None, &sources.issuers, token, clock).await {
                // One that says which plane its people are of says it of all of them.
                return Ok(self.confined(user, issuer.maps_extra(PLANE_EXTRA)));
            }
        }
        let audience = &self.options.base_url;
        let reviewed =
            authenticators.reviewed(&sources, plane.map(|plane| plane.id), token, audience, clock).await;
        Ok(reviewed.and_then(|user| self.confined(user, false)))
    }

    /// Somebody of the provider's, or of one plane if an extra says so; nobody if there is no such plane.
    pub fn confined(&self, mut user: UserInfo, is_required: bool) -> Option<UserInfo> {
        let Some(at) = user.extra.iter().position(|(key, _)| key == PLANE_EXTRA) else {
            return (!is_required).then_some(user);
        };
        let (_, values) = user.extra.remove(at);
        let [name] = values.as_slice() else { return None };
        // Tenants' people are confined; nobody becomes one of the provider's by what a tenant is called.
        user.home = Some(self.store.plane(name)?.id).filter(|id| *id != PlaneId::CORE);
        user.home.is_some().then_some(user)
    }

    async fn bootstrap_user(
        &self,
        plane: &Arc<Plane>,
        token: BootstrapToken<'_>,
    ) -> Result<Option<UserInfo>, Status> {
        let secrets = GroupResource::new("", "secrets");
        let name = token.secret_name();
        let names = self.bootstrap_names(plane).await?;
        if names.is_some_and(|names| names.binary_search_by(|own| own.as_str().cmp(&name)).is_err()) {
            return Ok(None);
        }
        let Some(secret) = self.named(plane, &secrets, BOOTSTRAP_NAMESPACE, &name).await? else {
            return Ok(None);
        };
        match token.user(plane.id, &secret, (self.options.clock)()) {
            Ok(user) => Ok(Some(user)),
            Err(why) => {
                tracing::debug!(plane = %plane.id, secret = name, why, "a bootstrap token is refused");
                Ok(None)
            }
        }
    }

    /// The names of a plane's bootstrap secrets. Read once, and again when one was written.
    async fn bootstrap_names(&self, plane: &Arc<Plane>) -> Result<BootstrapNames, Status> {
        let memo = &self.issuers.bootstrap;
        if let Some(known) = memo.get(plane.id) {
            return Ok(known);
        }
        // Whoever comes while they are read waits for what is being read.
        let _turn = self.bootstrap_turns.take(plane.id).await;
        if let Some(known) = memo.get(plane.id) {
            return Ok(known);
        }
        let epoch = memo.epoch(plane.id);
        let secrets = self.store.resource_id(&GroupResource::new("", "secrets"));
        let query = ListQuery {
            namespace: Some(BOOTSTRAP_NAMESPACE.into()),
            after: Some(ObjectName::new(BOOTSTRAP_NAMESPACE, BOOTSTRAP_PREFIX)),
            limit: BOOTSTRAP_NAMES_LEN_MAX,
            bytes_max: BOOTSTRAP_BYTES_MAX,
            ..ListQuery::all(secrets)
        };
        let page = self.store.list(plane, query).await.map_err(|error| read_failed(plane, error))?;
        let names = page.objects.iter().map(|found| found.name.name.clone());
        let names: Vec<SmolStr> = names.take_while(|name| name.starts_with(BOOTSTRAP_PREFIX)).collect();
        let names: BootstrapNames = match names.len() {
            // All of the page, and there may be more.
            len if page.more && len == page.objects.len() => None,
            0 => Some(self.issuers.no_bootstrap.clone()),
            _ => Some(names.into()),
        };
        if memo.len() >= PLANES_LEN_MAX {
            memo.let_go(|_| true);
        }
        memo.keep(plane.id, names.clone(), epoch);
        Ok(names)
    }

    /// The issuers that a plane's `spec.authentication` names.
    async fn issuers_of(&self, plane: &Arc<Plane>) -> Result<Issuers, Status> {
        if let Some(known) = self.issuers.planes.get(plane.id) {
            return Ok(known);
        }
        let epoch = self.issuers.planes.epoch(plane.id);
        let Some(core) = self.store.plane_by_id(PlaneId::CORE) else { return Ok(self.issuers.none.clone()) };
        let resource = GroupResource::new(planes::GROUP, "planes");
        let object = self.named(&core, &resource, "", plane.name.as_str()).await?;
        let authentication = object.as_ref().and_then(|object| object.at(&["spec", "authentication"]));
        let path = FieldPath::root("spec");
        // What is wrong was told when it was written.
        let named = authentication.map(|own| authn::plane_issuers(own, &path).0).unwrap_or_default();
        let issuers: Issuers = match named.is_empty() {
            true => self.issuers.none.clone(),
            false => named.into_iter().map(|issuer| self.issuers.shared(issuer)).collect(),
        };
        if self.issuers.planes.len() >= PLANES_LEN_MAX {
            self.issuers.planes.let_go(|_| true);
        }
        self.issuers.planes.keep(plane.id, issuers.clone(), epoch);
        Ok(issuers)
    }
}

#[cfg(test)]
mod tests {
    use polder_model::json;

    use super::*;

    #[test]
    fn equal_issuers_are_one() {
        let issuer = |url: &str| {
            let entry = json!({"issuer": {"url": url, "audiences": ["a"]}, "claimMappings": {"username": {"claim": "sub", "prefix": ""}}});
            authn::plane_issuers(&json!({"jwt": [entry]}), &FieldPath::ROOT).0.remove(0)
        };
        let issuers = IssuersOfPlanes::default();
        let one = issuers.shared(issuer("https://a"));
        assert!(Arc::ptr_eq(&one, &issuers.shared(issuer("https://a"))));
        assert!(!Arc::ptr_eq(&one, &issuers.shared(issuer("https://b"))));
        drop(one);
        for number in 0..2 * SHARED_LEN_MAX {
            issuers.shared(issuer(&format!("https://{number}")));
        }
        assert!(issuers.shared.lock().len() <= SHARED_LEN_MAX + 1, "those nobody has are let go");
    }
}
