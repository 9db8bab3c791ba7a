//! OpenAPI documents of a plane: v2 as JSON and protobuf, v3 by group version. Made on first use, kept with the
//! catalog, so that planes with the same kinds share them.
//!
//! What extension servers add to the v2 document goes between the bytes of the shared one on the way out: as members of the two
//! objects in JSON, and behind it in protobuf, where a message that comes twice is one message.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use parking_lot::Mutex;
use polder_machinery::schema::gnostic;
use polder_machinery::schema::openapi::{
    PublishedResource, PublishedSchema, SOURCES, v2_document, v3_document,
};
use polder_machinery::schema::table::builtin;
use polder_model::{GroupVersion, Object, SmolStr, Value, json};
use polder_registry::catalog::Catalog;
use sha2::{Digest, Sha512};

use crate::aggregator::{Piece, Swagger};
use crate::answer::{Answer, gzip};
use crate::body::AnswerBody;
use crate::discovery::hex;

const V2_SLOT: usize = 1;
const V3_SLOT: usize = 2;
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
const V2_PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

struct Document {
    plain: Bytes,
    zipped: Bytes,
    etag: String,
}

struct V2 {
    json: Document,
    protobuf: Document,
    /// Where the objects of paths and of definitions end in the JSON, in this order.
    paths_end: usize,
    definitions_end: usize,
    /// Of definitions.
    names: HashSet<SmolStr>,
}

/// What is sent of a long document at a time.
const PIECE_LEN: usize = 64 << 10;

/// Documents by group version, made one by one: a client that explains pods does not pay for the rest.
#[derive(Default)]
struct V3 {
    documents: Mutex<HashMap<GroupVersion, Arc<Document>>>,
}

/// `/openapi/v2`, with what other servers add to it.
pub(crate) fn v2(catalog: &Catalog, remote: Vec<Arc<Swagger>>, headers: &HeaderMap) -> Answer {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let wants = |media: &str| accept.split(',').any(|one| one.trim().starts_with(media));
    let protobuf = wants(V2_PROTOBUF) || wants(V2_PROTOBUF_OLD);
    if !protobuf
        && !accept.is_empty()
        && !wants("application/json")
        && !wants("*/*")
        && !wants("application/*")
    {
        let mut answer = Response::new(AnswerBody::empty());
        *answer.status_mut() = StatusCode::NOT_ACCEPTABLE;
        return answer;
    }
    let documents = catalog.document(V2_SLOT, || v2_of(&v2_document(builtin(), &published(catalog, None))));
    let (document, content_type) =
        if protobuf { (&documents.protobuf, V2_PROTOBUF) } else { (&documents.json, "application/json") };
    if remote.is_empty() {
        return send(document, content_type, headers);
    }
    let mut digest = Sha512::new_with_prefix(&document.etag);
    remote.iter().for_each(|one| digest.update(one.digest));
    let etag = format!("\"{}\"", hex(&digest.finalize()));
    let pieces = if protobuf { documents.protobuf_with(&remote) } else { documents.json_with(&remote) };
    let mut answer = Response::new(AnswerBody::empty());
    if !begin(&mut answer, &etag, headers) {
        let own = answer.headers_mut();
        own.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        *answer.body_mut() = AnswerBody::stream(|out| async move {
            for piece in pieces {
                let mut rest = piece;
                while !rest.is_empty() {
                    out.send(rest.split_to(rest.len().min(PIECE_LEN))).await;
                }
            }
            Ok(())
        });
    }
    answer
}

fn v2_of(value: &Value) -> V2 {
    let mut json = vec![b'{'];
    let (mut paths_end, mut definitions_end, mut names) = (0, 0, HashSet::new());
    for (key, member) in value.as_object().into_iter().flat_map(Object::iter) {
        if json.len() > 1 {
            json.push(b',');
        }
        json.extend_from_slice(format!("{key:?}:").as_bytes());
        member.write(&mut json);
        match key.as_str() {
            "paths" => paths_end = json.len() - 1,
            "definitions" => {
                definitions_end = json.len() - 1;
                names = member.as_object().into_iter().flat_map(Object::keys).cloned().collect();
            }
            _ => {}
        }
    }
    json.push(b'}');
    let etag = format!("\"{}\"", hex(&Sha512::digest(&json)));
    let protobuf = document(gnostic::encode(value), etag.clone());
    V2 { protobuf, json: document(json, etag), paths_end, definitions_end, names }
}

impl V2 {
    /// Definitions of others, each name once. What is defined here is defined here.
    fn added<'r>(&self, remote: &'r [Arc<Swagger>]) -> impl Iterator<Item = &'r Piece> {
        let mut seen = HashSet::new();
        let all = remote.iter().flat_map(|one| &one.definitions);
        all.filter(move |(name, _)| !self.names.contains(name) && seen.insert(name)).map(|(_, piece)| piece)
    }

    fn json_with(&self, remote: &[Arc<Swagger>]) -> Vec<Bytes> {
        let definitions: Vec<Bytes> = self.added(remote).map(|piece| piece.json.clone()).collect();
        let paths = remote.iter().map(|one| one.paths.json.clone()).collect();
        let mut cuts = [(self.paths_end, paths), (self.definitions_end, definitions)];
        cuts.sort_by_key(|(at, _)| *at);
        let (mut pieces, mut from) = (Vec::new(), 0);
        for (at, members) in cuts {
            pieces.push(self.json.plain.slice(from..at));
            // Neither object is ever empty here.
            pieces.extend(members);
            from = at;
        }
        pieces.push(self.json.plain.slice(from..));
        pieces
    }

    fn protobuf_with(&self, remote: &[Arc<Swagger>]) -> Vec<Bytes> {
        let paths = remote.iter().map(|one| &one.paths);
        let added = paths.chain(self.added(remote)).map(|piece| piece.protobuf.clone());
        std::iter::once(self.protobuf.plain.clone()).chain(added).collect()
    }
}

/// `/openapi/v3`. `prefix` is what the client put in front of paths in this plane; `remote` are groups and versions that
/// other servers serve, with the hashes of their documents.
pub(crate) fn v3_index(catalog: &Catalog, prefix: &str, remote: &[(SmolStr, SmolStr, SmolStr)]) -> Value {
    let mut paths = Object::new();
    for (group, versions) in catalog.group_versions() {
        for version in versions {
            let group_version = GroupVersion::new(group.clone(), version);
            let path = v3_path(&group_version);
            let url = format!("{prefix}/openapi/v3/{path}?hash={}", v3_hash(catalog, &group_version));
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    for (group, version, hash) in remote {
        let path = v3_path(&GroupVersion::new(group.clone(), version.clone()));
        let url = format!("{prefix}/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// `/openapi/v3/<path>`.
pub(crate) fn v3(
    catalog: &Catalog,
    path: &str,
    hash: Option<&str>,
    prefix: &str,
    headers: &HeaderMap,
) -> Option<Answer> {
    let group_version = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => GroupVersion::new("", *version),
        ["apis", group, version] => GroupVersion::new(*group, *version),
        _ => return None,
    };
    if !catalog.has_group(&group_version.group, Some(&group_version.version)) {
        return None;
    }
    let current = v3_hash(catalog, &group_version);
    if hash.is_some_and(|hash| hash != current) {
        let mut answer = Response::new(AnswerBody::empty());
        *answer.status_mut() = StatusCode::MOVED_PERMANENTLY;
        let location = format!("{prefix}/openapi/v3/{path}?hash={current}");
        if let Ok(location) = HeaderValue::from_str(&location) {
            answer.headers_mut().insert(header::LOCATION, location);
        }
        return Some(answer);
    }
    let documents = catalog.document(V3_SLOT, V3::default);
    let known = documents.documents.lock().get(&group_version).cloned();
    let document = known.unwrap_or_else(|| {
        let value = v3_document(builtin(), &group_version, &published(catalog, Some(&group_version)));
        let made = Arc::new(document(value.to_vec(), format!("\"{current}\"")));
        documents.documents.lock().insert(group_version.clone(), made.clone());
        made
    });
    let mut answer = send(&document, "application/json", headers);
    if hash.is_some() {
        answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
    }
    Some(answer)
}

fn v3_path(group_version: &GroupVersion) -> String {
    if group_version.group.is_empty() {
        format!("api/{}", group_version.version)
    } else {
        format!("apis/{}/{}", group_version.group, group_version.version)
    }
}

/// The program, as far as documents depend on it. Clients keep documents by their hash for good, so two builds of
/// one version that describe a field differently must not share it.
static PROGRAM: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Sha512::new_with_prefix(env!("CARGO_PKG_VERSION"));
    SOURCES.iter().for_each(|source| digest.update(source));
    hex(&digest.finalize())
});

/// Changes whenever the document may: built-in groups with the program, groups with custom kinds also with the catalog.
fn v3_hash(catalog: &Catalog, group_version: &GroupVersion) -> String {
    let custom = catalog
        .definitions()
        .any(|definition| definition.is_custom() && definition.group == group_version.group);
    let own = if custom { catalog.digest() } else { "" };
    let base = catalog.base_name();
    hex(&Sha512::digest(format!("{group_version} {base} {} {own}", *PROGRAM).as_bytes()))
}

fn published(catalog: &Catalog, only: Option<&GroupVersion>) -> Vec<PublishedResource> {
    let mut resources = Vec::new();
    for definition in catalog.definitions() {
        for (index, version) in definition.versions.iter().enumerate() {
            let group_version = definition.group_version(index);
            if only.is_some_and(|only| *only != group_version) {
                continue;
            }
            resources.push(PublishedResource {
                group_version,
                plural: definition.plural.clone(),
                kind: definition.kind.clone(),
                list_kind: definition.list_kind.clone(),
                namespaced: definition.namespaced,
                verbs: version.verbs.clone(),
                subresources: version.subresources.clone(),
                type_name: version.type_name.clone(),
                schema: version.published.clone().unwrap_or(PublishedSchema::Builtin),
            });
        }
    }
    resources
}

fn document(plain: Vec<u8>, etag: String) -> Document {
    Document { zipped: Bytes::from(gzip(&plain)), plain: Bytes::from(plain), etag }
}

fn send(document: &Document, content_type: &'static str, headers: &HeaderMap) -> Answer {
    let text =
        |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let mut answer = Response::new(AnswerBody::empty());
    if begin(&mut answer, &document.etag, headers) {
        return answer;
    }
    let own = answer.headers_mut();
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    let zipped = text(header::ACCEPT_ENCODING).split(',').any(|one| one.trim().starts_with("gzip"));
    if zipped {
        own.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    *answer.body_mut() =
        AnswerBody::shared(if zipped { document.zipped.clone() } else { document.plain.clone() });
    answer
}

/// Says which state of a document this is; and whether the client has that.
fn begin(answer: &mut Answer, etag: &str, headers: &HeaderMap) -> bool {
    let own = answer.headers_mut();
    if let Ok(etag) = HeaderValue::from_str(etag) {
        own.insert(header::ETAG, etag);
    }
    own.insert(header::VARY, HeaderValue::from_static("Accept-Encoding, Accept"));
    let known = headers.get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == etag.as_bytes());
    if known {
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    known
}
