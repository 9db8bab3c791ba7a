//! Lists: which state of a collection, which part of it, and how to go on.

use std::num::IntErrorKind;
use std::sync::Arc;
use std::time::Duration;

use polder_machinery::continue_token::ContinueToken;
use polder_model::{FieldError, SmolStr, Status};
use polder_store::{ListQuery, ObjectName, Plane, ReadError, Remaining, StoredObject};

use crate::context::{Query, RequestContext, invalid_options};
use crate::definition::Target;
use crate::listing::{Listing, ListingError, Source};
use crate::registry::Registry;
use crate::selection::Selection;
use crate::status::read_failed;

/// How long a read waits for a revision that has not been reached.
const FUTURE_PATIENCE: Duration = Duration::from_secs(3);

/// Options of list and watch, as far as both have them.
#[derive(Clone, Debug)]
pub struct ListOptions {
    pub selection: Arc<Selection>,
    pub version: VersionWanted,
    /// Zero means all.
    pub limit: usize,
    pub continue_token: Option<String>,
}

/// Which state a read wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionWanted {
    /// The newest.
    Newest,
    /// Any: what is at hand.
    Any,
    NotOlderThan(u64),
    Exactly(u64),
}

/// A page of objects and how to get the next.
#[derive(Debug)]
pub struct ListAnswer {
    pub objects: Vec<Arc<StoredObject>>,
    pub resource_version: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<u64>,
}

impl ListOptions {
    pub fn from_query(query: &Query, target: &Target) -> Result<ListOptions, Status> {
        let mut errors = Vec::new();
        let limit = integer(query, "limit")?.unwrap_or(0);
        integer(query, "timeoutSeconds")?;
        let continue_token = query.get("continue").filter(|token| !token.is_empty());
        let wanted = query.get("resourceVersion").unwrap_or_default();
        let wanted_match = query.get("resourceVersionMatch").unwrap_or_default();
        if !wanted_match.is_empty() {
            if wanted.is_empty() {
                errors.push(FieldError::forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                ));
            }
            if continue_token.is_some() {
                errors.push(FieldError::forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                ));
            }
            if !matches!(wanted_match, "Exact" | "NotOlderThan") {
                errors.push(FieldError::not_supported(
                    "resourceVersionMatch",
                    wanted_match,
                    ["Exact", "NotOlderThan", ""],
                ));
            }
            if wanted_match == "Exact" && wanted == "0" {
                errors.push(FieldError::forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
                ));
            }
        }
        if query.get("sendInitialEvents").is_some_and(|text| !text.is_empty()) {
            errors
                .push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        invalid_options("ListOptions", &errors)?;
        if continue_token.is_some() && !matches!(wanted, "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let number = |text| {
            resource_version(text)
                .map_err(|problem| Status::bad_request(format!("invalid resource version: {problem}")))
        };
        let version = match (wanted, wanted_match) {
            ("", _) => VersionWanted::Newest,
            ("0", _) => VersionWanted::Any,
            (text, "Exact") => VersionWanted::Exactly(number(text)?),
            // A limit without a match means exactly that version: the meaning from before there was a match.
            (text, "") if limit > 0 => VersionWanted::Exactly(number(text)?),
            (text, _) => VersionWanted::NotOlderThan(number(text)?),
        };
        Ok(ListOptions {
            selection: Arc::new(Selection::from_query(query, target)?),
            version,
            // Upstream serves "any version" from its cache, which does not page; what goes on does.
            limit: if version == VersionWanted::Any && continue_token.is_none() { 0 } else { limit },
            continue_token: continue_token.map(str::to_string),
        })
    }
}

/// A non-negative number of the query.
pub(crate) fn integer(query: &Query, key: &str) -> Result<Option<usize>, Status> {
    let number = signed(query, key)?;
    Ok(number.map(|number| usize::try_from(number.max(0)).unwrap_or(usize::MAX)))
}

/// A number of the query.
pub(crate) fn signed(query: &Query, key: &str) -> Result<Option<i64>, Status> {
    let Some(text) = query.get(key) else { return Ok(None) };
    let number = text.parse::<i64>().map_err(|error| {
        Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: {}", number_problem(&error)))
    })?;
    Ok(Some(number))
}

/// A resource version a client sent back.
pub(crate) fn resource_version(text: &str) -> Result<u64, String> {
    text.parse::<u64>().map_err(|error| {
        let problem = number_problem(&error);
        format!("resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: {problem}")
    })
}

fn number_problem(error: &std::num::ParseIntError) -> &'static str {
    match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}

impl Registry {
    pub async fn list(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &ListOptions,
    ) -> Result<ListAnswer, Status> {
        self.authorize_many(context, "list", target, &options.selection).await?;
        let plane = &context.plane;
        if self.converter(context, target).is_some() || target.definition.ledger.is_some() {
            let mut listing = match &target.definition.ledger {
                Some(ledger) => self.ledger_listing(context, ledger, options).await?,
                None => self.listing_unchecked(context, target, options).await?,
            };
            let mut objects = Vec::new();
            loop {
                match listing.objects.page().await? {
                    page if page.is_empty() => break,
                    page => objects.extend(page),
                }
            }
            let Listing { resource_version, continue_token, remaining, .. } = listing;
            return Ok(ListAnswer { objects, resource_version, continue_token, remaining });
        }
        let mut query = self.list_query(plane, target, options).await?;
        (query.limit, query.filter) = (options.limit, options.selection.filter());
        let continued = options.continue_token.is_some();
        let after = query.after.clone();
        let page = self.store.list(plane, query).await.map_err(|error| match error {
            ReadError::Compacted { .. } if continued => expired_token(after.as_ref(), target),
            error => read_failed(plane, error),
        })?;
        let resource_version = plane.resource_version(page.revision);
        let last = page.objects.last().filter(|_| page.more);
        let continue_token = last.map(|last| token(&last.name, target, resource_version, page.remaining));
        Ok(ListAnswer { objects: page.objects, resource_version, continue_token, remaining: page.remaining })
    }

    /// The same, read page by page: for answers, which may be of any length.
    pub async fn listing(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &ListOptions,
    ) -> Result<Listing, Status> {
        self.authorize_many(context, "list", target, &options.selection).await?;
        if let Some(ledger) = &target.definition.ledger {
            return self.ledger_listing(context, ledger, options).await;
        }
        let listing = self.listing_unchecked(context, target, options).await?;
        if !self.is_current(&context.plane, target).await? {
            let name = target.definition.group_resource();
            let text = format!("the definition of {name} has just changed: ask again");
            return Err(Status::unavailable(text).with_retry_after(1));
        }
        Ok(listing)
    }

    /// A listing for somebody whose right to it has been checked.
    pub(crate) async fn listing_unchecked(
        &self,
        context: &RequestContext,
        target: &Target,
        options: &ListOptions,
    ) -> Result<Listing, Status> {
        let plane = &context.plane;
        let query = self.list_query(plane, target, options).await?;
        let (after, continued) = (query.after.clone(), options.continue_token.is_some());
        // Part of a list is no name: a list by name has a field selector.
        let source = Source::new(&self.store, plane, &options.selection, &SmolStr::default(), query)
            .converted_by(self.converter(context, target));
        let begun = source.begin(options.limit).await.map_err(|error| match error {
            ListingError::Read(ReadError::Compacted { .. }) if continued => {
                expired_token(after.as_ref(), target)
            }
            error => error.status(plane),
        })?;
        let resource_version = plane.resource_version(begun.revision);
        let continue_token =
            begun.cut.as_ref().map(|cut| token(&cut.last, target, resource_version, cut.remaining));
        let remaining = begun.cut.and_then(|cut| cut.remaining);
        Ok(Listing { resource_version, continue_token, remaining, objects: begun.objects })
    }

    /// Which state is listed and where in it to begin; waits for a state that is about to come.
    async fn list_query(
        &self,
        plane: &Plane,
        target: &Target,
        options: &ListOptions,
    ) -> Result<ListQuery, Status> {
        let namespace = (!target.namespace.is_empty()).then(|| target.namespace.clone());
        let mut query = ListQuery {
            resource: target.definition.resource_id,
            namespace,
            after: None,
            at: None,
            limit: 0,
            bytes_max: 0,
            filter: None,
            remaining: Remaining::Count,
        };
        if let Some(token) = &options.continue_token {
            let token = ContinueToken::decode(token).map_err(|error| invalid_token(&error.to_string()))?;
            query.after = Some(position(&token.start, target)?);
            // Only at the revision of the page before is what followed it still what follows.
            (query.at, query.remaining) = match (u64::try_from(token.revision), token.remaining) {
                (Ok(version), Some(before)) => (Some(plane.revision(version)), Remaining::Before(before)),
                (Ok(version), None) => (Some(plane.revision(version)), Remaining::Count),
                (Err(_), _) => (None, Remaining::Count),
            };
        }
        match options.version {
            VersionWanted::Newest if query.at.is_none() => self.fresh(plane).await?,
            VersionWanted::Newest | VersionWanted::Any => {}
            VersionWanted::Exactly(version) => {
                self.wait_for(plane, version).await?;
                query.at = Some(plane.revision(version));
            }
            VersionWanted::NotOlderThan(version) => self.wait_for(plane, version).await?,
        }
        Ok(query)
    }

    /// Waits until nobody on another replica was told of anything that is not here.
    pub(crate) async fn fresh(&self, plane: &Plane) -> Result<(), Status> {
        self.store.fresh().await.map_err(|error| read_failed(plane, error))
    }

    /// Waits a moment for a version that other readers may have seen already.
    pub(crate) async fn wait_for(&self, plane: &Plane, version: u64) -> Result<(), Status> {
        let wanted = plane.revision(version);
        if wanted <= self.store.current() || self.store.wait_for(wanted, FUTURE_PATIENCE).await {
            return Ok(());
        }
        Err(Status::version_too_large(version, plane.resource_version(self.store.current())))
    }
}

fn token(last: &ObjectName, target: &Target, version: u64, remaining: Option<u64>) -> String {
    let version = i64::try_from(version).unwrap_or(i64::MAX);
    ContinueToken { remaining, ..ContinueToken::after(&position_text(last, target), version) }.encode()
}

/// The key suffix a continue token carries: relative to what is listed.
fn position_text(name: &ObjectName, target: &Target) -> String {
    if target.definition.namespaced && target.namespace.is_empty() {
        format!("{}/{}", name.namespace, name.name)
    } else {
        name.name.to_string()
    }
}

fn position(start: &str, target: &Target) -> Result<ObjectName, Status> {
    let start = start.strip_suffix('\0').unwrap_or(start);
    if target.definition.namespaced && target.namespace.is_empty() {
        let (namespace, name) = start
            .split_once('/')
            .ok_or_else(|| invalid_token("continue key is not valid: it has no namespace"))?;
        Ok(ObjectName::new(namespace, name))
    } else {
        Ok(ObjectName::new(target.namespace.clone(), SmolStr::new(start)))
    }
}

fn invalid_token(problem: &str) -> Status {
    Status::bad_request(format!("invalid continue token: {problem}"))
}

/// The state a continue token speaks of is gone; the answer carries a token that goes on at the newest state.
fn expired_token(after: Option<&ObjectName>, target: &Target) -> Status {
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token =
        after.map(|after| ContinueToken::after(&position_text(after, target), -1).encode());
    status
}
