//! Compiled schemas of CRD versions, by content: a schema is checked and compiled once, whoever brings it.

use std::sync::Arc;

use parking_lot::Mutex;
use polder_cel::re2::Effort;
use polder_machinery::schema::{Schema, structural};
use polder_model::{FieldError, FieldPath, Value};
use sha2::{Digest, Sha256};

use super::definition::object_meta;
use super::form::Digests;
use super::intern::Interned;

/// A `Value` takes about this many times the bytes of its JSON.
const VALUE_FACTOR: usize = 8;

/// A schema without faults.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(super) schema: Schema,
    pub(super) digests: Digests,
    /// As OpenAPI documents show it.
    pub(super) written: Arc<Value>,
    /// About what both take.
    pub(super) bytes: usize,
}

pub(super) struct Schemas {
    known: Mutex<Interned<[u8; 32], Compiled>>,
}

impl Compiled {
    pub(super) fn new(schema: Schema, written: &Value, json_len: usize) -> Compiled {
        let bytes = schema.bytes() + VALUE_FACTOR * json_len;
        Compiled { digests: Digests::of(&schema), schema, written: Arc::new(written.clone()), bytes }
    }
}

impl Schemas {
    pub(super) fn new(bytes_max: usize) -> Schemas {
        Schemas { known: Mutex::new(Interned::new(bytes_max)) }
    }

    /// The compiled schema, or what is wrong with it at a path. Schemas of one definition share an effort.
    pub(super) fn compile(
        &self,
        written: &Value,
        path: &FieldPath<'_>,
        effort: &Effort,
    ) -> Result<Arc<Compiled>, Vec<FieldError>> {
        let json = written.to_vec();
        let digest: [u8; 32] = Sha256::digest(&json).into();
        if let Some(known) = self.known.lock().get(&digest) {
            return Ok(known);
        }
        let schema = structural::compile_at(written, &object_meta(), path, effort)?;
        let compiled = Compiled::new(schema, written, json.len());
        let bytes = compiled.bytes;
        Ok(self.known.lock().insert(digest, compiled, bytes))
    }

    /// The same for a schema that was accepted once: only rules may be wrong with it.
    pub(super) fn compile_stored(&self, written: &Value) -> Option<Arc<Compiled>> {
        let path = FieldPath::root("openAPIV3Schema");
        self.compile(written, &path, &Effort::default()).ok().or_else(|| {
            let schema = structural::compile_stored(written, &object_meta()).ok()?;
            Some(Arc::new(Compiled::new(schema, written, written.to_vec().len())))
        })
    }

    pub(super) fn sweep(&self) {
        self.known.lock().sweep();
    }

    pub(super) fn is_heavy(&self) -> bool {
        self.known.lock().is_heavy()
    }

    pub(super) fn is_light(&self) -> bool {
        self.known.lock().is_light()
    }

    /// Whether a schema can be had without compiling it.
    pub(super) fn knows(&self, written: &Value) -> bool {
        let digest: [u8; 32] = Sha256::digest(written.to_vec()).into();
        self.known.lock().get(&digest).is_some()
    }
}
