//! An object as it is stored: JSON bytes that reads copy into answers without parsing.

use std::sync::Arc;

use polder_model::Value;
use polder_model::value::write_string;

use crate::key::{ObjectName, Revision, SpaceId};

/// Every stored body starts with this, so that the resource version can be spliced in at one fixed place.
const BODY_HEAD: &[u8] = b"{\"metadata\":{";

/// The stored form of one version of an object: its labels (so that selectors need no parsing), then its JSON
/// without `kind`, `apiVersion` and `metadata.resourceVersion`, which depend on the reader, and with `metadata`
/// first, so that those three can be spliced in. It may carry a *form*: a few bytes that say what the JSON was made
/// to fit. They stand among the labels, under the empty name, which no label has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    bytes: Arc<[u8]>,
    body_at: u32,
}

/// How a sealed record starts: no body begins there.
const SEALED_HEAD: [u8; 4] = [0; 4];
/// How much longer a record is when it is sealed: head, format, nonce, tag.
const SEALED_EXCESS: usize = SEALED_HEAD.len() + crate::sealed::EXCESS;

/// Bytes on disk that are no record.
#[derive(Debug, thiserror::Error)]
#[error("not an object record: {0}")]
pub struct RecordError(&'static str);

impl Record {
    /// Encodes an object. What stands under the spliced names is left out.
    pub fn encode(object: &Value) -> Record {
        Record::encode_as(object, &[])
    }

    /// The same, with a form. Longer ones than 64 KiB are left out.
    pub fn encode_as(object: &Value, form: &[u8]) -> Record {
        let empty = polder_model::Object::new();
        let root = object.as_object().unwrap_or(&empty);
        let metadata = root.get("metadata").and_then(Value::as_object).unwrap_or(&empty);

        let mut bytes = Vec::with_capacity(512);
        bytes.extend_from_slice(&[0; 4]);
        if let Ok(form_len @ 1..) = u16::try_from(form.len()) {
            bytes.extend_from_slice(&0_u16.to_le_bytes());
            bytes.extend_from_slice(&form_len.to_le_bytes());
            bytes.extend_from_slice(form);
        }
        if let Some(Value::Object(labels)) = metadata.get("labels") {
            for (key, value) in labels.iter().filter(|(key, _)| !key.is_empty()) {
                let value = value.as_str().unwrap_or_default();
                // Label keys and values are validated to at most 317 and 63 bytes before they get here.
                let (Ok(key_len), Ok(value_len)) = (u16::try_from(key.len()), u16::try_from(value.len()))
                else {
                    continue;
                };
                bytes.extend_from_slice(&key_len.to_le_bytes());
                bytes.extend_from_slice(&value_len.to_le_bytes());
                bytes.extend_from_slice(key.as_bytes());
                bytes.extend_from_slice(value.as_bytes());
            }
        }
        let body_at = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&body_at.to_le_bytes());

        bytes.extend_from_slice(BODY_HEAD);
        write_members(metadata, &["resourceVersion"], &mut bytes);
        bytes.push(b'}');
        let before = bytes.len();
        bytes.push(b',');
        write_members(root, &["kind", "apiVersion", "metadata"], &mut bytes);
        if bytes.len() == before + 1 {
            bytes.pop();
        }
        bytes.push(b'}');
        Record { bytes: bytes.into(), body_at }
    }

    /// A record that only a key opens ([`crate::sealed`]): its head, then `rest`. It has neither labels nor a body.
    pub(crate) fn from_sealed(rest: &[u8]) -> Record {
        let bytes = [&SEALED_HEAD[..], rest].concat();
        Record { bytes: bytes.into(), body_at: 0 }
    }

    /// What is sealed, when this record is.
    pub(crate) fn sealed(&self) -> Option<&[u8]> {
        self.is_sealed().then(|| self.bytes.get(SEALED_HEAD.len()..)).flatten()
    }

    pub fn is_sealed(&self) -> bool {
        self.body_at == 0
    }

    /// Takes bytes back from an engine. Checks the frame, not the JSON: engines checksum.
    pub fn from_bytes(bytes: Arc<[u8]>) -> Result<Record, RecordError> {
        let head = bytes.first_chunk::<4>().ok_or(RecordError("too short"))?;
        let body_at = u32::from_le_bytes(*head);
        if body_at == 0 && bytes.len() >= SEALED_EXCESS {
            return Ok(Record { bytes, body_at });
        }
        let body = bytes.get(body_at as usize..).ok_or(RecordError("bad body offset"))?;
        if body_at < 4 || !body.starts_with(BODY_HEAD) || body.len() < BODY_HEAD.len() + 2 {
            return Err(RecordError("bad body"));
        }
        Ok(Record { bytes, body_at })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the record counts for against a plane's limit. Sealed or not, it is the same.
    pub fn len(&self) -> usize {
        match self.is_sealed() {
            true => self.bytes.len().saturating_sub(SEALED_EXCESS),
            false => self.bytes.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let mut labels = self.label_bytes();
        let (_, value) = labels.find(|(own, _)| *own == key.as_bytes() && !own.is_empty())?;
        std::str::from_utf8(value).ok()
    }

    /// What the JSON was made to fit, as the writer said; empty when it said nothing.
    pub fn form(&self) -> &[u8] {
        match self.label_bytes().next() {
            Some(([], form)) => form,
            _ => &[],
        }
    }

    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.label_bytes().filter(|(key, _)| !key.is_empty()).filter_map(|(key, value)| {
            Some((std::str::from_utf8(key).ok()?, std::str::from_utf8(value).ok()?))
        })
    }

    fn label_bytes(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.get(4..self.body_at as usize).unwrap_or_default();
        std::iter::from_fn(move || {
            let (head, tail) = rest.split_first_chunk::<4>()?;
            let key_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let value_len = usize::from(u16::from_le_bytes([head[2], head[3]]));
            let (key, tail) = tail.split_at_checked(key_len)?;
            let (value, tail) = tail.split_at_checked(value_len)?;
            rest = tail;
            Some((key, value))
        })
    }

    /// The JSON as stored: no kind, apiVersion or resourceVersion.
    pub fn body(&self) -> &[u8] {
        if self.is_sealed() { &[] } else { &self.bytes[self.body_at as usize..] }
    }

    /// Appends the whole object as a reader gets it. `type_meta` is either empty (items of a typed list) or the
    /// members `"kind":"X","apiVersion":"Y",` with their trailing comma.
    pub fn splice(&self, type_meta: &[u8], resource_version: u64, out: &mut Vec<u8>) {
        self.splice_head(type_meta, resource_version, out);
        out.extend_from_slice(self.body().get(BODY_HEAD.len()..).unwrap_or_default());
    }

    fn splice_head(&self, type_meta: &[u8], resource_version: u64, out: &mut Vec<u8>) {
        out.reserve(self.body().len() + type_meta.len() + 44);
        out.push(b'{');
        out.extend_from_slice(type_meta);
        out.extend_from_slice(b"\"metadata\":{\"resourceVersion\":\"");
        push_decimal(resource_version, out);
        out.push(b'"');
        if self.body().get(BODY_HEAD.len()) != Some(&b'}') {
            out.push(b',');
        }
    }

    /// Parses the body and puts the resource version in.
    pub fn to_value(&self, resource_version: u64) -> Result<Value, RecordError> {
        let mut value = Value::parse_own(self.body()).map_err(|_| RecordError("bad JSON"))?;
        value.set_at(&["metadata", "resourceVersion"], resource_version.to_string());
        Ok(value)
    }

    /// The same without `metadata.managedFields`, which are half of many objects and nothing to most readers.
    pub fn to_unmanaged_value(&self, resource_version: u64) -> Result<Value, RecordError> {
        let parsed = Value::parse_own_except(self.body(), &["metadata", "managedFields"]);
        let mut value = parsed.map_err(|_| RecordError("bad JSON"))?;
        value.set_at(&["metadata", "resourceVersion"], resource_version.to_string());
        Ok(value)
    }
}

/// One version of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    pub name: ObjectName,
    /// The commit that wrote this version.
    pub revision: Revision,
    /// Where it was found: the plane's overlay, or a layer below it, which may have been merged into another since.
    pub space: SpaceId,
    pub record: Record,
}

fn write_members(object: &polder_model::Object, without: &[&str], out: &mut Vec<u8>) {
    let mut first = true;
    for (key, value) in object.iter().filter(|(key, _)| !without.contains(&key.as_str())) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        write_string(key, out);
        out.push(b':');
        value.write(out);
    }
}

fn push_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    #[test]
    fn splicing_equals_serializing() {
        let mut object = json!({
            "kind": "ConfigMap", "apiVersion": "v1", "data": {"a": "1"},
            "metadata": {"name": "x", "labels": {"app": "web", "tier": ""}, "resourceVersion": "7"},
        });
        let record = Record::encode(&object);
        let mut out = Vec::new();
        record.splice(br#""kind":"ConfigMap","apiVersion":"v1","#, 42, &mut out);
        object.set_at(&["metadata", "resourceVersion"], "42");
        assert_eq!(Value::parse(&out).unwrap(), object);

        assert_eq!(record.label("app"), Some("web"));
        assert_eq!(record.label("tier"), Some(""));
        assert_eq!(record.label("none"), None);
        assert_eq!(Record::from_bytes(record.bytes.clone()).unwrap(), record);
    }

    #[test]
    fn a_form_is_no_label() {
        let object = json!({"metadata": {"name": "x", "labels": {"": "none", "app": "web"}}});
        let (plain, formed) = (Record::encode(&object), Record::encode_as(&object, b"\xff\0v1"));
        assert_eq!((plain.form(), formed.form()), (&b""[..], &b"\xff\0v1"[..]));
        for record in [&plain, &formed] {
            assert_eq!(record.labels().collect::<Vec<_>>(), [("app", "web")]);
            assert_eq!((record.label(""), record.label("app")), (None, Some("web")));
        }
        assert_eq!(plain.body(), formed.body());
        let again = Record::from_bytes(formed.as_bytes().into()).unwrap();
        assert_eq!(again.form(), formed.form());
        assert_eq!(Record::encode(&json!({})).form(), b"");
    }

    #[test]
    fn empty_metadata_splices_too() {
        let record = Record::encode(&json!({}));
        let mut out = Vec::new();
        record.splice(b"", 1, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"metadata":{"resourceVersion":"1"}}"#);
    }

    #[test]
    fn damaged_records_are_refused() {
        for bytes in
            [&b""[..], b"\0\0\0", b"\xff\xff\xff\xff{}", b"\x04\0\0\0[]", b"\x04\0\0\0{\"metadata\":{"]
        {
            assert!(Record::from_bytes(bytes.into()).is_err(), "{bytes:?}");
        }
    }
}
