//! JSON patch (RFC 6902), with the habits of upstream's implementation.
//!
//! The habits that clients can meet: negative indices count from the end, `replace` makes a member that was missing,
//! `test` of a missing member against null holds, and what stands before the first slash of a path is not read.
//! A patch is bounded in operations, in what it copies, in how deep it nests the object and in how many elements it
//! moves, so that ten thousand operations on a large object stay cheap.

use std::borrow::Cow;

use polder_model::{Object, Value};

use super::{COPY_BYTES_MAX, OPERATIONS_MAX, PatchError, go_json_type};

/// Deeper objects could not be read again: the parser stops at this nesting.
const DEPTH_MAX: usize = 127;
/// Elements moved aside by insertions and removals, and values looked at to measure nesting, in one patch.
const STEPS_MAX: usize = 100_000_000;

/// Applies the operations of `patch` one after the other; the first that fails fails the patch.
pub fn apply_json_patch(doc: Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = operations(patch)?;
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations { found: operations.len() });
    }
    let mut patched =
        Patched { doc, copied_bytes: 0, copied_bytes_max: COPY_BYTES_MAX, steps: 0, test_failed: false };
    for operation in operations {
        if let Err(text) = patched.apply(operation) {
            return Err(match patched.test_failed {
                true => PatchError::TestFailed(text),
                false => PatchError::NotApplicable(text),
            });
        }
    }
    Ok(patched.doc)
}

/// What strict field validation has to say about members no operation has, at most 32 of them.
pub fn json_patch_unknown_fields(patch: &Value) -> Vec<String> {
    let operations = patch.as_array().unwrap_or_default().iter().enumerate();
    let members = operations.filter_map(|(index, one)| Some((index, one.as_object()?)));
    members
        .flat_map(|(index, object)| object.keys().map(move |key| (index, key)))
        .filter(|(_, key)| !matches!(key.as_str(), "op" | "path" | "from" | "value"))
        .map(|(index, key)| format!("json patch unknown field \"[{index}].{key}\""))
        .take(32)
        .collect()
}

static NO_OPERATION: Object = Object::new();

/// The operations, once their members are known to have the right types.
fn operations(patch: &Value) -> Result<Vec<&Object>, PatchError> {
    let malformed = |value: &Value, target: &str| {
        let found = go_json_type(value);
        PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go {target}"
        ))
    };
    let items = match patch {
        Value::Null => &[],
        Value::Array(items) => items.as_slice(),
        other => return Err(malformed(other, "value of type []handlers.jsonPatchOp")),
    };
    let mut operations = Vec::with_capacity(items.len());
    for item in items {
        let operation = match item {
            Value::Null => &NO_OPERATION,
            Value::Object(object) => object,
            other => return Err(malformed(other, "value of type handlers.jsonPatchOp")),
        };
        for key in ["op", "path", "from"] {
            if let Some(value) = operation.get(key)
                && !matches!(value, Value::Null | Value::String(_))
            {
                return Err(malformed(value, &format!("struct field jsonPatchOp.{key} of type string")));
            }
        }
        operations.push(operation);
    }
    Ok(operations)
}

/// The object on its way, and what the patch has used up.
struct Patched {
    doc: Value,
    copied_bytes: usize,
    copied_bytes_max: usize,
    steps: usize,
    /// The last operation was a `test` that did not hold.
    test_failed: bool,
}

impl Patched {
    fn apply(&mut self, operation: &Object) -> Result<(), String> {
        let op = operation.str("op").unwrap_or("unknown");
        let path = operation.str("path").ok_or("operation missing path field: missing value");
        let from = operation.str("from").ok_or("operation, missing from field: missing value");
        let undecoded = |what: &str, why: &str| format!("{op} operation failed to decode {what}: {why}");
        let value = operation.get("value");
        match op {
            "add" => {
                let path = path.map_err(|_| undecoded("path", "missing value"))?;
                self.deepens(path, value.unwrap_or(&Value::Null))?;
                let place = self.place(path).ok_or_else(|| {
                    format!("add operation does not apply: doc is missing path: \"{path}\": missing value")
                })?;
                let moved = place.add(value.cloned().unwrap_or_default());
                self.spend(moved.map_err(|why| format!("error in add for path: '{path}': {why}"))?)
            }
            "remove" => {
                let path = path.map_err(|_| undecoded("path", "missing value"))?;
                let place = self.place(path).ok_or_else(|| {
                    format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
                })?;
                let removed = place.remove();
                let (_, moved) =
                    removed.map_err(|why| format!("error in remove for path: '{path}': {why}"))?;
                self.spend(moved)
            }
            "replace" => {
                let path = path.map_err(|why| undecoded("path", why))?;
                self.deepens(path, value.unwrap_or(&Value::Null))?;
                self.replace(path, value.cloned().unwrap_or_default())
            }
            "move" => {
                let from = from.map_err(|why| undecoded("from", why))?;
                let place = self.place(from).ok_or_else(|| {
                    format!("move operation does not apply: doc is missing from path: {from}: missing value")
                })?;
                let key = place.key.to_string();
                let (value, moved) =
                    place.remove().map_err(|why| format!("error in move for path: '{key}': {why}"))?;
                self.spend(moved)?;
                let path = path.map_err(|why| undecoded("path", why))?;
                self.deepens(path, &value)?;
                let place = self.place(path).ok_or_else(|| {
                    format!("move operation does not apply: doc is missing destination path: {path}: missing value")
                })?;
                let moved = place.add(value);
                self.spend(moved.map_err(|why| format!("error in move for path: '{path}': {why}"))?)
            }
            "test" => {
                let path = path.map_err(|why| undecoded("path", why))?;
                self.test(path, value)
            }
            "copy" => {
                let from = from.map_err(|why| undecoded("from", why))?;
                let place = self.place(from).ok_or_else(|| {
                    format!("copy operation does not apply: doc is missing from path: {from}: missing value")
                })?;
                let found = place.get().map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
                let value = found.cloned().unwrap_or_default();
                let path = path.map_err(|_| undecoded("path", "missing value"))?;
                if self.place(path).is_none() {
                    return Err(format!(
                        "copy operation does not apply: doc is missing destination path: {path}: missing value"
                    ));
                }
                self.copied_bytes += value.to_vec().len();
                if self.copied_bytes > self.copied_bytes_max {
                    return Err(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit {}",
                        self.copied_bytes, self.copied_bytes_max
                    ));
                }
                self.deepens(path, &value)?;
                let place = self.place(path).ok_or("the destination was there a moment ago")?;
                let moved = place.add(value);
                self.spend(moved.map_err(|why| format!("error while adding value during copy: {why}"))?)
            }
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn replace(&mut self, path: &str, value: Value) -> Result<(), String> {
        if path.is_empty() {
            if !matches!(value, Value::Object(_) | Value::Array(_)) {
                return Err("replace operation value must be object or array".into());
            }
            self.doc = value;
            return Ok(());
        }
        let Some(place) = self.place(path) else {
            return Err(format!(
                "replace operation does not apply: doc is missing path: {path}: missing value"
            ));
        };
        let key = place.key.clone();
        match place.container {
            Value::Array(items) => match index(&key, items.len()) {
                Ok(index) if index < items.len() => items[index] = value,
                _ => {
                    return Err(format!(
                        "replace operation does not apply: doc is missing key: {path}: missing value"
                    ));
                }
            },
            _ => {
                let moved = Place { container: place.container, key }.add(value)?;
                self.spend(moved)?;
            }
        }
        Ok(())
    }

    fn test(&mut self, path: &str, value: Option<&Value>) -> Result<(), String> {
        let failed = || format!("testing value {path} failed: test failed");
        if path.is_empty() {
            self.test_failed = value != Some(&self.doc);
            return if self.test_failed { Err(failed()) } else { Ok(()) };
        }
        let Some(place) = self.place(path) else {
            return Err(format!("test operation does not apply: is missing path: {path}: missing value"));
        };
        let found = place.get().map_err(|why| format!("error in test for path: '{path}': {why}"))?;
        let holds = found.unwrap_or(&Value::Null) == value.unwrap_or(&Value::Null);
        self.test_failed = !holds;
        if holds { Ok(()) } else { Err(failed()) }
    }

    /// The container a path leads to and the key in it; `None` when there is no such container.
    fn place<'p>(&mut self, path: &'p str) -> Option<Place<'_, 'p>> {
        let (_, path) = path.split_once('/')?;
        let (parents, key) = match path.rsplit_once('/') {
            Some((parents, key)) => (Some(parents), key),
            None => (None, path),
        };
        let mut container = &mut self.doc;
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            let part = decode(part);
            container = match container {
                Value::Object(object) => object.get_mut(&part)?,
                Value::Array(items) => {
                    let index = index(&part, items.len()).ok()?;
                    items.get_mut(index)?
                }
                _ => return None,
            };
        }
        matches!(container, Value::Object(_) | Value::Array(_)).then(|| Place { container, key: decode(key) })
    }

    /// Refuses a value that would nest the object deeper than it can be read again.
    fn deepens(&mut self, path: &str, value: &Value) -> Result<(), String> {
        let above = path.matches('/').count();
        let steps_left = STEPS_MAX.saturating_sub(self.steps);
        let mut steps = 0;
        let fits = fits_below(value, DEPTH_MAX.saturating_sub(above), &mut steps, steps_left);
        self.spend(steps)?;
        if fits { Ok(()) } else { Err(format!("the object would be nested deeper than {DEPTH_MAX} levels")) }
    }

    fn spend(&mut self, steps: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > STEPS_MAX {
            return Err("the patch moves too many elements of large lists or objects".into());
        }
        Ok(())
    }
}

/// Whether lists and objects in `value` are nested no deeper than `levels`.
fn fits_below(value: &Value, levels: usize, steps: &mut usize, steps_max: usize) -> bool {
    *steps += 1;
    let below = |child: &Value| *steps <= steps_max && fits_below(child, levels - 1, steps, steps_max);
    match value {
        Value::Object(object) => levels > 0 && object.values().all(below),
        Value::Array(items) => levels > 0 && items.iter().all(below),
        _ => true,
    }
}

/// A key in a list or an object, whether or not something stands there.
struct Place<'v, 'p> {
    container: &'v mut Value,
    key: Cow<'p, str>,
}

impl<'v> Place<'v, '_> {
    /// What stands here; a missing member of an object is no error, a missing element of a list is.
    fn get(self) -> Result<Option<&'v Value>, String> {
        match self.container {
            Value::Array(items) => {
                let index = index(&self.key, items.len())?;
                items.get(index).map(Some).ok_or_else(|| invalid_index(&self.key))
            }
            Value::Object(object) => Ok(object.get(&self.key)),
            _ => Ok(None),
        }
    }

    /// Puts a value here and says how many elements had to move.
    fn add(self, value: Value) -> Result<usize, String> {
        match self.container {
            Value::Array(items) => {
                let not_proper = |why| match why {
                    why if self.key.parse::<i64>().is_ok() => why,
                    why => format!("value was not a proper array index: '{}': {why}", self.key),
                };
                let at = match &*self.key {
                    "-" => items.len(),
                    key => index(key, items.len() + 1).map_err(not_proper)?,
                };
                if at > items.len() {
                    return Err(invalid_index(&self.key));
                }
                items.insert(at, value);
                Ok(items.len() - at)
            }
            Value::Object(object) => {
                let before = object.len();
                object.insert(self.key.as_ref(), value);
                Ok(object.len().saturating_sub(before).saturating_mul(before))
            }
            _ => Ok(0),
        }
    }

    /// Takes the value out and says how many elements had to move.
    fn remove(self) -> Result<(Value, usize), String> {
        match self.container {
            Value::Array(items) => {
                let at = index(&self.key, items.len())?;
                if at >= items.len() {
                    return Err(invalid_index(&self.key));
                }
                Ok((items.remove(at), items.len() - at))
            }
            Value::Object(object) => {
                let removed = object.remove(&self.key);
                let value = removed.ok_or_else(|| {
                    format!("Unable to remove nonexistent key: {}: missing value", self.key)
                })?;
                Ok((value, object.len()))
            }
            _ => Err(format!("Unable to remove nonexistent key: {}: missing value", self.key)),
        }
    }
}

/// An index as written; negative ones count from the end. May lie past the end.
fn index(key: &str, len: usize) -> Result<usize, String> {
    let digits = key.strip_prefix(['+', '-']).unwrap_or(key);
    let unparsed = |why| format!("strconv.Atoi: parsing {key:?}: {why}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(unparsed("invalid syntax"));
    }
    let number: i64 = key.parse().map_err(|_| unparsed("value out of range"))?;
    let index = if number < 0 { i64::try_from(len).unwrap_or(i64::MAX) + number } else { number };
    usize::try_from(index).map_err(|_| invalid_index(key))
}

fn invalid_index(key: &str) -> String {
    let number = key.parse::<i64>().unwrap_or_default();
    format!("Unable to access invalid index: {number}: invalid index referenced")
}

/// One step of a path, with `~1` read as a slash and `~0` as a tilde.
fn decode(part: &str) -> Cow<'_, str> {
    if !part.contains('~') {
        return Cow::Borrowed(part);
    }
    let mut decoded = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('~') {
        decoded.push_str(&rest[..at]);
        let (text, len) = match rest.as_bytes().get(at + 1) {
            Some(b'1') => ('/', 2),
            Some(b'0') => ('~', 2),
            _ => ('~', 1),
        };
        decoded.push(text);
        rest = &rest[at + len..];
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

#[cfg(test)]
#[path = "json_patch_tests.rs"]
mod tests;
