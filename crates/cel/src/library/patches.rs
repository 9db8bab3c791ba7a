//! What expressions that change objects need beside the objects: paths of JSON patches.

use super::opaque::text;
use crate::cost::Cost;
use crate::meter::{Meter, Outcome};
use crate::overload::{Overload, global};
use crate::value::Value;

pub(super) fn table() -> Vec<Overload> {
    let signature = "jsonpatch.escapeKey(string) -> string";
    vec![global("string_jsonpatch_escapeKey_string", signature, escape_key, Cost::Scan)]
}

/// A key as a step of a path.
fn escape_key<'a>(meter: &mut Meter<'_>, args: &[Value<'a>]) -> Outcome<'a> {
    let key = text(args, 0)?;
    meter.allocate(key.len().saturating_mul(2))?;
    Ok(Value::text(key.replace('~', "~0").replace('/', "~1")))
}
