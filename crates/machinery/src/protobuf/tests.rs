//! Against Go's own bytes, against ourselves over every type, and against noise.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use polder_model::{GroupVersion, Object, SmolStr, Value, json};

use super::envelope::{ListMessage, decode_envelope, decode_enveloped, encode_envelope, encode_event};
use super::*;
use crate::schema::table::builtin;
use crate::xorshift::XorShift;

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

fn message(name: &str) -> MessageRef<'static> {
    builtin().message(name).unwrap_or_else(|| panic!("no message {name}"))
}

fn message_of(api_version: &str, kind: &str) -> MessageRef<'static> {
    if api_version == "meta.k8s.io/v1" || kind == "DeleteOptions" {
        return message(&format!("{META}.{kind}"));
    }
    let own = GroupVersion::parse(api_version).unwrap().kind(kind);
    message(builtin().type_name(&own).unwrap_or_else(|| panic!("no type {own:?}")))
}

/// Name, object and enveloped bytes.
fn vectors() -> Vec<(&'static str, Value, Vec<u8>)> {
    let mut lines =
        include_str!("vectors.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut vectors = Vec::new();
    while let Some(name) = lines.next() {
        let value = Value::parse(lines.next().unwrap().as_bytes()).unwrap();
        vectors.push((name, value, STANDARD.decode(lines.next().unwrap()).unwrap()));
    }
    vectors
}

#[test]
fn bytes_are_those_of_go() {
    let vectors = vectors();
    assert!(vectors.len() >= 45);
    for (name, value, bytes) in vectors {
        let envelope = decode_envelope(&bytes).unwrap();
        let message = message_of(&envelope.api_version, &envelope.kind);
        let decoded = decode_enveloped(&envelope, message).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(decoded.to_string(), value.to_string(), "{name}");
        let mut encoded = Vec::new();
        encode_envelope(&value, message, &mut encoded);
        assert_eq!(STANDARD.encode(&encoded), STANDARD.encode(&bytes), "{name}");
        if envelope.kind.ends_with("List") {
            let mut list = value.clone();
            let items = list.remove_at(&["items"]).unwrap();
            let writer = ListMessage::new(message).unwrap();
            let mut written = Vec::new();
            for item in items.as_array().unwrap_or_default() {
                writer.item(item, &mut written);
            }
            let mut encoded = Vec::new();
            writer.head(&list, written.len() as u64, &mut encoded);
            encoded.extend(written);
            ListMessage::tail(&mut encoded);
            assert_eq!(STANDARD.encode(&encoded), STANDARD.encode(&bytes), "{name} item by item");
        }
    }
}

/// Makes objects as Go would write them: values that are never omitted are there, others are not empty.
struct Maker {
    random: XorShift,
    layout: &'static Layout,
    /// Schemas of schemas would grow without end.
    messages_left: u32,
}

impl Maker {
    fn message(&mut self, id: MessageId, depth: u32) -> Object {
        let mut out = Object::new();
        self.messages_left = self.messages_left.saturating_sub(1);
        let depth = if self.messages_left == 0 { 0 } else { depth };
        self.members(id, depth, &mut out);
        out
    }

    fn members(&mut self, id: MessageId, depth: u32, out: &mut Object) {
        let layout = self.layout;
        for field in &layout.get(id).fields {
            if let Shape::Inlined(inner) = field.shape {
                self.members(inner, depth, out);
                continue;
            }
            let leave_out = depth == 0 || self.random.below(3) == 0;
            let value = match field.presence {
                Presence::NullPointer if leave_out => Value::Null,
                Presence::Pointer | Presence::OmitEmpty if leave_out => continue,
                Presence::Always if depth == 0 && !matches!(field.shape, Shape::Message(_)) => {
                    match &field.shape {
                        Shape::String => Value::from(""),
                        Shape::Quantity => Value::from("0"),
                        Shape::Bool => Value::Bool(false),
                        Shape::Int32 | Shape::Int64 | Shape::IntOrString => Value::Int(0),
                        _ => Value::Null,
                    }
                }
                _ => self.value(&field.shape, depth.saturating_sub(1)),
            };
            out.insert(field.name.clone(), value);
        }
    }

    fn text(&mut self) -> SmolStr {
        let texts =
            ["a", "polder-1", "water/é", "x\u{1d11e}y", "A long text that does not fit in place, at all"];
        SmolStr::new(self.random.pick(&texts))
    }

    fn value(&mut self, shape: &Shape, depth: u32) -> Value {
        match shape {
            Shape::String => Value::String(self.text()),
            Shape::Int32 => {
                Value::Int(*self.random.pick(&[1, -1, 300, i64::from(i32::MAX), i64::from(i32::MIN)]))
            }
            Shape::Int64 => Value::Int(*self.random.pick(&[1, -7, 1 << 40, i64::MAX, i64::MIN])),
            Shape::Bool => Value::Bool(true),
            Shape::Double => Value::Float(*self.random.pick(&[0.5, -2.25, 1e100])),
            Shape::Bytes => Value::from(*self.random.pick(&["AA==", "cG9sZGVy"])),
            Shape::Quantity => Value::from(*self.random.pick(&["0", "100m", "2", "1Gi", "-5"])),
            Shape::IntOrString => self.random.pick(&[json!(0), json!(8080), json!("25%"), json!(-1)]).clone(),
            Shape::Time => Value::from(*self.random.pick(&["2031-05-06T07:08:09Z", "1901-01-01T00:00:00Z"])),
            Shape::MicroTime => Value::from(
                *self.random.pick(&["2031-05-06T07:08:09.000001Z", "1969-12-31T23:59:59.250000Z"]),
            ),
            Shape::Raw => self.random.pick(&[json!({"a": [1, "b"]}), json!({}), json!({"n": 2})]).clone(),
            Shape::Message(id) | Shape::Inlined(id) => Value::Object(self.message(*id, depth)),
            Shape::List(element) | Shape::Wrapped(element) => {
                let count = 1 + self.random.below(2);
                Value::Array((0..count).map(|_| self.value(element, depth)).collect())
            }
            Shape::Map(element) => {
                let count = 1 + self.random.below(3);
                Value::Object((0..count).map(|_| (self.text(), self.value(element, depth))).collect())
            }
            Shape::Union(Union::Bool, _) if depth == 0 => Value::Bool(true),
            Shape::Union(Union::Strings, _) => json!(["a", "b"]),
            Shape::Union(_, id) => Value::Object(self.message(*id, depth)),
        }
    }
}

#[test]
fn every_type_survives_the_round_trip() {
    let mut names: Vec<&SmolStr> = builtin().type_names().collect();
    names.sort();
    assert!(names.len() > 500);
    let mut maker =
        Maker { random: XorShift(20_310_506), layout: message(names[0]).layout, messages_left: 0 };
    for name in names {
        let message = message(name);
        for round in 0..6 {
            maker.messages_left = 200;
            let value = Value::Object(maker.message(message.id, round));
            let mut bytes = Vec::new();
            encode(&value, message, &mut bytes);
            let decoded = decode(&bytes, message).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(decoded.to_string(), value.to_string(), "{name}");
        }
    }
}

#[test]
fn wire_freedoms_are_taken() {
    fn check(type_name: &str, bytes: &[u8], expected: &str) {
        let found = match decode(bytes, message(type_name)) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{type_name} {bytes:?}");
    }
    const CONTEXT: &str = "io.k8s.api.core.v1.PodSecurityContext";
    const ROLE_REF: &str = "io.k8s.api.core.v1.ConfigMapKeySelector";
    const DELETE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
    // Numbers in one packed piece, one by one, and both.
    check(CONTEXT, b"\x22\x03\x01\x96\x01", r#"{"supplementalGroups":[1,150]}"#);
    check(CONTEXT, b"\x20\x01\x20\x02\x22\x01\x03", r#"{"supplementalGroups":[1,2,3]}"#);
    // A message in two pieces is one message; of scalars the last one counts.
    check(
        DELETE,
        b"\x12\x03\x0a\x01u\x12\x03\x12\x01v",
        r#"{"preconditions":{"resourceVersion":"v","uid":"u"}}"#,
    );
    check(ROLE_REF, b"\x12\x01a\x12\x00\x0a\x03\x0a\x01n", r#"{"key":"","name":"n"}"#);
    // Unknown fields, groups among them, are skipped.
    check(DELETE, b"\xa3\x06\x08\x01\xa4\x06\xaa\x06\x01x\x08\x05", r#"{"gracePeriodSeconds":5}"#);
    check(DELETE, b"\x09\0\0\0\0\0\0\0\0", "proto: wrong wireType = 1 for field gracePeriodSeconds");
    check(DELETE, b"\x08", "unexpected EOF");
    check(DELETE, b"\x12\x7f", "unexpected EOF");
    check(DELETE, b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "unexpected EOF");
    check(DELETE, b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow");
    check(DELETE, b"\x00", "proto: illegal tag 0");
    check(DELETE, b"\x0f", "proto: illegal tag 15");
    check(DELETE, b"\x0c", "proto: unexpected end of group");
    check(DELETE, b"\x0b", "unexpected EOF");
    check(DELETE, b"\x22\x02\xff\xfe", "{\"propagationPolicy\":\"\u{fffd}\u{fffd}\"}");
}

#[test]
fn envelopes() {
    fn check(bytes: &[u8], expected: &str) {
        let found = match decode_envelope(bytes) {
            Ok(envelope) => format!("{} {} {:?}", envelope.api_version, envelope.kind, envelope.raw),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{bytes:?}");
    }
    check(b"", "empty data");
    check(b"k8s\0", "empty body");
    check(
        b"{\"kind\":\"Pod\"}",
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    );
    check(b"k8s\0\x0a\x07\x0a\x02v1\x12\x01P\x12\x01\x05\x1a\x00\x22\x00", "v1 P [5]");
    check(b"k8s\0\x10\x05", "proto: wrong wireType = 0 for field Unknown");
}

#[test]
fn events_are_framed() {
    let object = json!({"apiVersion": "v1", "kind": "Status", "code": 410});
    let mut out = Vec::new();
    encode_event("ERROR", &object, message(&format!("{META}.Status")), &mut out);
    let (length, event) = out.split_first_chunk::<4>().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
    let rest = event.strip_prefix(b"\x0a\x05ERROR\x12").unwrap();
    let enveloped = &rest[3..];
    assert_eq!((usize::from(rest[0]), usize::from(rest[2])), (enveloped.len() + 2, enveloped.len()));
    let envelope = decode_envelope(enveloped).unwrap();
    assert_eq!(envelope.kind, "Status");
    let status = decode(envelope.raw, message(&format!("{META}.Status"))).unwrap();
    assert_eq!(status.to_string(), r#"{"code":410,"metadata":{}}"#);
}

/// Three mebibytes, the largest body there is, spent as badly as possible.
#[test]
fn hostile_bodies_cost_little() {
    const BYTES_MAX: usize = 3 << 20;
    let check = |type_name: &str, bytes: &[u8]| decode(bytes, message(type_name)).map(|_| ());
    // A million empty containers would be tens of millions of members.
    let pods = b"\x12\x00".repeat(BYTES_MAX / 2);
    assert_eq!(check("io.k8s.api.core.v1.PodSpec", &pods), Err(ProtobufError::Work));
    // The same message again and again.
    assert_eq!(check("io.k8s.api.core.v1.Pod", &b"\x0a\x00".repeat(BYTES_MAX / 2)), Ok(()));
    // As many map entries as fit.
    assert_eq!(check("io.k8s.api.core.v1.ConfigMap", &b"\x12\x00".repeat(BYTES_MAX / 2)), Ok(()));
    // Schemas in schemas, and pieces of them that are joined at every level.
    let mut deep: Vec<u8> = Vec::new();
    for _ in 0..200 {
        let mut outer = Vec::new();
        wire::write_bytes(28, &deep, &mut outer);
        wire::write_bytes(28, &[], &mut outer);
        deep = outer;
    }
    let schema = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    assert_eq!(check(schema, &deep), Err(ProtobufError::Depth));
}

/// Damaged messages are refused or read as something else, and never more.
#[test]
fn noise_is_survived() {
    let mut random = XorShift(77);
    let vectors = vectors();
    for _ in 0..20_000 {
        let (_, _, bytes) = random.pick(&vectors);
        let mut bytes = bytes.clone();
        for _ in 0..=random.below(4) {
            let index = random.below(bytes.len());
            match random.below(4) {
                0 => bytes[index] = random.below(256).to_le_bytes()[0],
                1 => bytes.truncate(index.max(5)),
                2 => bytes.insert(index, random.below(256).to_le_bytes()[0]),
                _ => bytes[index] ^= 1 << random.below(8),
            }
        }
        let Ok(envelope) = decode_envelope(&bytes) else { continue };
        let (_, original, _) = random.pick(&vectors);
        let (version, kind) =
            (original.str_at(&["apiVersion"]).unwrap(), original.str_at(&["kind"]).unwrap());
        let message = message_of(version, kind);
        if let Ok(value) = decode(envelope.raw, message) {
            // What was understood can be said, and stays as it is; only a pointer to nothing gets lost.
            let mut again = Vec::new();
            encode(&value, message, &mut again);
            let value = decode(&again, message).unwrap();
            let mut third = Vec::new();
            encode(&value, message, &mut third);
            assert_eq!(third, again);
        }
    }
}
