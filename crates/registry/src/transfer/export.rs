//! Out: a plane as lines.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use polder_model::{PlaneId, Status, Value, json};
use polder_store::{ListPage, ListQuery, ObjectName, Plane, Profile, ResourceId, Revision, StoredObject};
use sha2::{Digest as _, Sha256};

use crate::context::RequestContext;
use crate::custom;
use crate::definition::{ResourceDefinition, Target, type_meta};
use crate::registry::Registry;
use crate::status::{plane_not_found, read_failed};
use crate::transfer::{API_VERSION, END_KIND, FORMAT_VERSION, HEADER_KIND};

/// Objects read at once.
const PAGE_LEN: usize = 500;
/// How much is put together before it is sent.
const PIECE_BYTES: usize = 128 * 1024;

/// An export on its way. Costs nothing while nobody asks for the next piece.
pub struct Export {
    registry: Arc<Registry>,
    plane: Arc<Plane>,
    /// The state that is exported.
    at: Revision,
    header: Option<Value>,
    /// The collections still to be read, the current one first.
    collections: VecDeque<Collection>,
    page: std::vec::IntoIter<Arc<StoredObject>>,
    hash: Sha256,
    objects: u64,
    over: bool,
}

struct Collection {
    definition: Arc<ResourceDefinition>,
    type_meta: Box<[u8]>,
    after: Option<ObjectName>,
    /// Nothing follows what has been read.
    read: bool,
}

impl Registry {
    /// Begins an export of the plane the target names; the target is the `export` subresource.
    pub async fn export(
        self: &Arc<Self>,
        context: &RequestContext,
        target: &Target,
    ) -> Result<Export, Status> {
        self.authorize(context, "get", target).await?;
        // All that was acknowledged anywhere is in it.
        self.catch_up(&context.plane).await?;
        let whole = Target { subresource: Default::default(), ..target.clone() };
        let described = self.must_find(context, &whole).await?;
        let described = self.to_client(context, &whole, &described)?;
        let plane = self.store.plane(&target.name).ok_or_else(|| plane_not_found(&target.name))?;
        if plane.id == PlaneId::CORE {
            let planes = target.definition.group_resource();
            return Err(Status::forbidden(&planes, &target.name, "the core plane cannot be exported"));
        }
        let at = self.store.current();
        let mut spec = described.get("spec").cloned().unwrap_or_else(|| json!({}));
        // That of a fork is not in its own spec.
        if plane.profile != Profile::default() {
            spec.set_at(&["profile"], plane.profile.name());
        }
        let header = json!({
            "kind": HEADER_KIND, "apiVersion": API_VERSION, "formatVersion": FORMAT_VERSION,
            "plane": (target.name.clone()), "resourceVersion": (plane.resource_version(at).to_string()),
            "spec": spec,
        });
        let mut export = Export {
            registry: self.clone(),
            plane,
            at,
            header: Some(header),
            collections: VecDeque::new(),
            page: Vec::new().into_iter(),
            hash: Sha256::new(),
            objects: 0,
            over: false,
        };
        export.collections = export.find_collections().await?;
        Ok(export)
    }
}

impl Export {
    /// The next piece: whole lines. `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.over {
            return Ok(None);
        }
        let mut out = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
        if let Some(header) = self.header.take() {
            header.write(&mut out);
            out.push(b'\n');
        }
        while out.len() < PIECE_BYTES {
            if let Some(object) = self.page.next() {
                let version = self.plane.resource_version(object.revision);
                if let Some(collection) = self.collections.front() {
                    collection.write(&object, version, &mut out)?;
                }
                out.push(b'\n');
                self.objects += 1;
            } else if !self.turn_page().await? {
                self.over = true;
                break;
            }
        }
        self.hash.update(&out);
        if self.over {
            let digest = custom::hex(&self.hash.clone().finalize());
            let objects = i64::try_from(self.objects).unwrap_or(i64::MAX);
            json!({"kind": END_KIND, "objects": objects, "sha256": digest}).write(&mut out);
            out.push(b'\n');
        }
        Ok(Some(out.into()))
    }

    /// Reads on; false at the end of everything.
    async fn turn_page(&mut self) -> Result<bool, Status> {
        loop {
            let Some(collection) = self.collections.front_mut() else { return Ok(false) };
            if collection.read {
                self.collections.pop_front();
                continue;
            }
            let (resource, after) = (collection.definition.resource_id, collection.after.take());
            let page = read_page(&self.registry, &self.plane, resource, after, self.at).await?;
            if let Some(collection) = self.collections.front_mut() {
                collection.read = !page.more;
                collection.after = page.objects.last().map(|object| object.name.clone());
            }
            if !page.objects.is_empty() {
                self.page = page.objects.into_iter();
                return Ok(true);
            }
        }
    }

    /// What the plane could hold at the revision: definitions and namespaces first, because others need them.
    async fn find_collections(&self) -> Result<VecDeque<Collection>, Status> {
        let registry = &self.registry;
        let mut customs: Vec<Arc<ResourceDefinition>> = Vec::new();
        let mut after = None;
        loop {
            let page = read_page(registry, &self.plane, registry.crds, after, self.at).await?;
            for stored in &page.objects {
                let crd = Value::parse_own(stored.record.body()).unwrap_or_default();
                customs.extend(custom::served_definition(registry, &crd));
            }
            after = page.objects.last().map(|object| object.name.clone());
            if !page.more {
                break;
            }
        }
        let mut seen: HashSet<ResourceId> = HashSet::new();
        let builtin = registry.base(&self.plane).definitions();
        let all = builtin.chain(customs.iter()).filter(|definition| seen.insert(definition.resource_id));
        let mut collections: Vec<Collection> = all
            .map(|definition| Collection {
                definition: definition.clone(),
                type_meta: type_meta(&definition.kind, &definition.storage),
                after: None,
                read: false,
            })
            .collect();
        collections.sort_by_key(|collection| match collection.definition.resource_id {
            crds if crds == registry.crds => 0,
            namespaces if namespaces == registry.namespaces => 1,
            _ => 2,
        });
        Ok(collections.into())
    }
}

impl Collection {
    /// One object, in the version that is stored and as that reads today.
    fn write(&self, object: &StoredObject, version: u64, out: &mut Vec<u8>) -> Result<(), Status> {
        let storage = &self.definition.storage;
        if self.definition.conversion.is_some() {
            // Each in the version it is stored in: nobody needs a webhook for that, here or where it is imported.
            self.definition.to_convert(&object.record, version)?.write(out);
            return Ok(());
        }
        let Some(rereading) = self.definition.rereading(&storage.version, &object.record) else {
            object.record.splice(&self.type_meta, version, out);
            return Ok(());
        };
        let value = object.record.to_value(version);
        let mut value = value.map_err(|error| Status::internal(error.to_string()))?;
        rereading.apply(&mut value);
        value.set_at(&["kind"], self.definition.kind.clone());
        value.set_at(&["apiVersion"], storage.to_string());
        value.write(out);
        Ok(())
    }
}

async fn read_page(
    registry: &Registry,
    plane: &Arc<Plane>,
    resource: ResourceId,
    after: Option<ObjectName>,
    at: Revision,
) -> Result<ListPage, Status> {
    let all = ListQuery::all(resource);
    let query = ListQuery { after, at: Some(at), limit: PAGE_LEN, bytes_max: PIECE_BYTES, ..all };
    registry.store.list(plane, query).await.map_err(|error| read_failed(plane, error))
}
