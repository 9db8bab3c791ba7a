//! What extension servers say about themselves, for discovery and OpenAPI: asked for when somebody wants to know, kept for a
//! minute, and shown as stale when the server does not answer.
//!
//! Invariant: what is kept is bounded in number and bytes, whatever servers send, and so is what is read of one plane's at a
//! time. A server that does not answer is asked by one at a time, and not again for some seconds.

use std::sync::Arc;

use futures_util::future::join_all;
use http::StatusCode;
use polder_model::{SmolStr, Status, Value};
use polder_registry::extensions::Extension;
use polder_store::Plane;
use tokio::sync::Semaphore;

use super::cache::{Cache, Known};
use super::own::Question;
use super::{Aggregator, Swagger, resources};

/// What is read of a document.
const DOCUMENT_BYTES_MAX: usize = 512 << 10;
/// Text weighs so many times its length when it is parsed.
const PARSED_WEIGHT: usize = 8;
/// What is kept of lists of resources, in all and of one plane.
const RESOURCES_BYTES_MAX: usize = 32 << 20;
const PLANE_RESOURCES_BYTES_MAX: usize = 4 << 20;
/// The same of hashes.
const HASHES_BYTES_MAX: usize = 4 << 20;
const PLANE_HASHES_BYTES_MAX: usize = 256 << 10;
/// The same of OpenAPI v2 documents, and what is read of one: they are long, and say much about other groups.
const SWAGGER_BYTES_MAX: usize = 64 << 20;
const PLANE_SWAGGER_BYTES_MAX: usize = 4 << 20;
const SWAGGER_DOCUMENT_BYTES_MAX: usize = 2 << 20;
/// Documents of one plane that are read at a time.
const PARALLEL: usize = 4;

/// A group version that is served elsewhere, as discovery shows it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteVersion {
    pub(crate) group: SmolStr,
    pub(crate) version: SmolStr,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    /// In the aggregated form.
    pub(crate) resources: Arc<[Value]>,
    /// The server could not be asked: this is what it last said, if anything.
    pub(crate) stale: bool,
    /// What the resources weigh.
    pub(crate) bytes: usize,
}

pub(super) struct Documents {
    resources: Cache<Arc<[Value]>>,
    /// The hash of the OpenAPI document.
    openapi: Cache<SmolStr>,
    swagger: Cache<Arc<Swagger>>,
}

impl Default for Documents {
    fn default() -> Documents {
        Documents {
            resources: Cache::new(RESOURCES_BYTES_MAX, PLANE_RESOURCES_BYTES_MAX),
            openapi: Cache::new(HASHES_BYTES_MAX, PLANE_HASHES_BYTES_MAX),
            swagger: Cache::new(SWAGGER_BYTES_MAX, PLANE_SWAGGER_BYTES_MAX),
        }
    }
}

impl Aggregator {
    /// The group versions of a plane that are served elsewhere, without what is in them.
    pub(crate) async fn names(&self, plane: &Arc<Plane>) -> Result<Vec<RemoteVersion>, Status> {
        let version = |one: Arc<Extension>| RemoteVersion {
            group: one.group.clone(),
            version: one.version.clone(),
            group_priority: one.group_priority,
            version_priority: one.version_priority,
            resources: Arc::from([]),
            stale: one.available == Some(false),
            bytes: 0,
        };
        Ok(self.registry.remote_extensions(plane).await?.into_iter().map(version).collect())
    }

    /// The group versions of a plane that are served elsewhere, with what is in them.
    pub(crate) async fn versions(&self, plane: &Arc<Plane>) -> Result<Vec<RemoteVersion>, Status> {
        let remote = self.registry.remote_extensions(plane).await?;
        let known = self.known(plane, &self.documents.resources, &remote, |extension, _| async move {
            let path = format!("/apis/{}/{}", extension.group, extension.version);
            let reply = self.ask(plane, extension, Question::document(&path), DOCUMENT_BYTES_MAX).await?;
            let list = Value::parse(&reply.body).map_err(|error| error.to_string())?;
            let resources = resources::aggregated(&list, &extension.group, &extension.version)?;
            Ok((Arc::from(resources), reply.body.len() * PARSED_WEIGHT))
        });
        let known = known.await;
        let versions = remote.into_iter().zip(known).map(|(one, known)| RemoteVersion {
            group: one.group.clone(),
            version: one.version.clone(),
            group_priority: one.group_priority,
            version_priority: one.version_priority,
            resources: known.value.unwrap_or_else(|| Arc::from([])),
            stale: known.stale,
            bytes: known.bytes,
        });
        Ok(versions.collect())
    }

    /// Group versions of a plane that are served elsewhere and have an OpenAPI document, with its hash.
    pub(crate) async fn openapi(
        &self,
        plane: &Arc<Plane>,
    ) -> Result<Vec<(SmolStr, SmolStr, SmolStr)>, Status> {
        let remote = self.registry.remote_extensions(plane).await?;
        let known = self.known(plane, &self.documents.openapi, &remote, |extension, _| async move {
            let question = Question::document("/openapi/v3");
            let reply = self.ask(plane, extension, question, DOCUMENT_BYTES_MAX).await?;
            let index = Value::parse(&reply.body).map_err(|error| error.to_string())?;
            let path = format!("apis/{}/{}", extension.group, extension.version);
            let url = index.str_at(&["paths", &path, "serverRelativeURL"]);
            let hash = url.and_then(|url| url.split_once("?hash=")).map(|(_, hash)| hash);
            let plain =
                |hash: &&str| hash.len() <= 256 && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let hash = hash.filter(plain).ok_or("the answer has no document of this group version")?;
            Ok((SmolStr::new(hash), hash.len()))
        });
        let known = known.await;
        let documents = remote.into_iter().zip(known).filter_map(|(one, known)| {
            let hash = known.value.filter(|_| !known.stale)?;
            Some((one.group.clone(), one.version.clone(), hash))
        });
        Ok(documents.collect())
    }

    /// What the servers of a plane add to its OpenAPI v2 document, as far as they answer.
    pub(crate) async fn swagger(&self, plane: &Arc<Plane>) -> Result<Vec<Arc<Swagger>>, Status> {
        let remote = self.registry.remote_extensions(plane).await?;
        let known = self.known(plane, &self.documents.swagger, &remote, |extension, last| async move {
            let tag = last.as_ref().and_then(|last: &Arc<Swagger>| last.tag.clone());
            let question = Question { tag: tag.as_deref(), ..Question::document("/openapi/v2") };
            let reply = self.ask(plane, extension, question, SWAGGER_DOCUMENT_BYTES_MAX).await?;
            if let Some(last) = last.filter(|_| reply.status == StatusCode::NOT_MODIFIED) {
                let bytes = last.bytes();
                return Ok((last, bytes));
            }
            let (group, version) = (extension.group.clone(), extension.version.clone());
            // It may be long, and is looked through more than once.
            let read = tokio::task::spawn_blocking(move || {
                Swagger::read(&reply.body, reply.tag.clone(), &group, &version)
            });
            let read = Arc::new(read.await.map_err(|error| error.to_string())??);
            let bytes = read.bytes();
            Ok((read, bytes))
        });
        let known = known.await.into_iter();
        Ok(known.filter(|known| !known.stale).filter_map(|known| known.value).collect())
    }

    /// What is known about each, after asking those that must be asked.
    async fn known<'a, T: Clone, F>(
        &self,
        plane: &Arc<Plane>,
        cache: &Cache<T>,
        extensions: &'a [Arc<Extension>],
        ask: impl Fn(&'a Extension, Option<T>) -> F,
    ) -> Vec<Known<T>>
    where
        F: Future<Output = Result<(T, usize), String>>,
    {
        let look = || extensions.iter().map(|one| cache.look(plane.id, one)).collect::<Vec<_>>();
        let first = look();
        if first.iter().all(|look| !look.ask) {
            return first.into_iter().map(|look| look.known).collect();
        }
        let fetching = self.gates.fetching(plane.id);
        let _turn = fetching.lock().await;
        let (ask, places) = (&ask, &Semaphore::new(PARALLEL));
        let asking = extensions.iter().zip(look()).map(|(extension, look)| async move {
            if !look.ask {
                return look.known;
            }
            let _place = places.acquire().await;
            match ask(extension, look.known.value.clone()).await {
                Ok((value, bytes)) => cache.put(plane.id, extension, value, bytes),
                Err(why) => {
                    let (group, version) = (extension.group.as_str(), extension.version.as_str());
                    tracing::debug!(plane = %plane.name, group, version, why, "an extension server tells nothing");
                    cache.failed(plane.id, extension, look.known)
                }
            }
        });
        join_all(asking).await
    }
}
