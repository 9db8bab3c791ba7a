//! Bodies in protobuf: what is read can be written, and what is written is read as the same again.

use polder_machinery::protobuf::MessageRef;
use polder_machinery::protobuf::envelope::{decode_envelope, decode_enveloped, encode_envelope};
use polder_machinery::schema::table::builtin;
use polder_model::{GroupVersion, SmolStr, Value};

use super::json_value::check_canonical;
use crate::generate;
use crate::random::Random;

pub const WORDS: &[&str] = &[
    "k8s\0", "\n", "\u{12}", "\u{1a}", "\"", "v1", "\u{2}v1", "Pod", "\u{3}Pod", "ConfigMap", "apps/v1", "Deployment", "\u{0}", "\u{1}", "\u{8}",
    "\u{7f}", "\u{b}", "\u{c}",
];

const NAMES: &[&str] = &["a", "b", "x.io/y", "Always", "TCP", "", "10.0.0.1", "YQ=="];
const KINDS: [(&str, &str); 8] = [
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "PodList"),
    ("apps/v1", "Deployment"),
    ("batch/v1", "CronJob"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
];

fn type_name(api_version: &str, kind: &str) -> Option<&'static str> {
    builtin().type_name(&GroupVersion::parse(api_version)?.kind(kind)).map(SmolStr::as_str)
}

fn message(api_version: &str, kind: &str) -> Option<MessageRef<'static>> {
    builtin().message(type_name(api_version, kind)?)
}

pub fn make(random: &mut Random) -> Vec<u8> {
    let (api_version, kind) = *random.pick(&KINDS);
    let name = type_name(api_version, kind).unwrap_or_default();
    let mut object = generate::of_schema(generate::builtin(name).node(), NAMES, 8, random);
    object.set_at(&["apiVersion"], api_version);
    object.set_at(&["kind"], kind);
    let mut out = Vec::new();
    if let Some(message) = message(api_version, kind) {
        encode_envelope(&object, message, &mut out);
    }
    out
}

pub fn run(data: &[u8]) {
    let envelope = match decode_envelope(data) {
        Ok(envelope) => envelope,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let Some(message) = message(&envelope.api_version, &envelope.kind) else { return };
    let value = match decode_enveloped(&envelope, message) {
        Ok(value) => value,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    check_canonical(&value);
    // A zero time is `null` in JSON, and no time at all in a message: so what is written once may lack it.
    let once = rewritten(&value, message);
    assert_eq!(rewritten(&once, message).to_string(), once.to_string());
    crate::accepted();
}

fn rewritten(value: &Value, message: MessageRef<'_>) -> Value {
    let mut bytes = Vec::new();
    encode_envelope(value, message, &mut bytes);
    let read = decode_envelope(&bytes).and_then(|envelope| decode_enveloped(&envelope, message));
    read.unwrap_or_else(|error| panic!("what was written is not read: {error}\n{value}"))
}
