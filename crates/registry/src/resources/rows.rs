//! What the tests of kinds share: an object in; errors, cells or defaults out. One row a call, or a table of them.

use polder_auth::UserInfo;
use polder_model::Value;

use crate::behavior::{Behavior, Occasion, Print};

/// 2026-01-01T00:00:00Z.
pub(super) const NOW: i64 = 1_767_225_600;
/// Noon of the same day, as the server writes it.
pub(super) const NOON: &str = "2026-01-01T12:00:00Z";

#[track_caller]
pub(super) fn parse(text: &str) -> Value {
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn defaulted(behavior: &Behavior, text: &str) -> Value {
    let mut object = parse(text);
    (behavior.default)(&mut object);
    object
}

/// What is wrong with an object, or with a change, as the kind's own defaults leave it.
#[track_caller]
pub(super) fn errors(behavior: &Behavior, new: &str, old: Option<&str>) -> Vec<String> {
    let old = old.map(|old| defaulted(behavior, old));
    let mut errors = Vec::new();
    (behavior.validate)(&defaulted(behavior, new), old.as_ref(), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[track_caller]
pub(super) fn refuses(behavior: &Behavior, new: &str, old: Option<&str>, expected: &[&str]) {
    assert_eq!(errors(behavior, new, old), expected, "{new}");
}

/// Each row is a new object and its errors.
#[track_caller]
pub(super) fn check(behavior: &Behavior, rows: &[(&str, &[&str])]) {
    for (new, expected) in rows {
        refuses(behavior, new, None, expected);
    }
}

/// Each row is an old object, a new one, and the errors of the change.
#[track_caller]
pub(super) fn check_update(behavior: &Behavior, rows: &[(&str, &str, &[&str])]) {
    for (old, new, expected) in rows {
        refuses(behavior, new, Some(old), expected);
    }
}

/// The object with its defaults; a second time changes nothing.
#[track_caller]
pub(super) fn defaults(behavior: &Behavior, before: &str, after: &str) {
    let mut object = defaulted(behavior, before);
    assert_eq!(object.to_string(), parse(after).to_string(), "{before}");
    (behavior.default)(&mut object);
    assert_eq!(object.to_string(), parse(after).to_string(), "defaults are stable");
}

/// Each row is an object and how its defaults leave it.
#[track_caller]
pub(super) fn check_default(behavior: &Behavior, rows: &[(&str, &str)]) {
    for (before, after) in rows {
        defaults(behavior, before, after);
    }
}

#[track_caller]
pub(super) fn creates(behavior: &Behavior, before: &str, after: &str) {
    let mut object = parse(before);
    (behavior.prepare_create)(&mut object);
    assert_eq!(object.to_string(), parse(after).to_string());
}

#[track_caller]
pub(super) fn updates(behavior: &Behavior, new: &str, old: &str, after: &str) {
    let mut object = parse(new);
    (behavior.prepare_update)(&mut object, &parse(old));
    assert_eq!(object.to_string(), parse(after).to_string());
}

/// What a write through a subresource leaves, at noon by somebody called `ann`.
#[track_caller]
pub(super) fn updates_part(behavior: &Behavior, part: &str, new: &str, old: &str, after: &str) {
    let mut object = parse(new);
    let user = UserInfo::authenticated("ann", []);
    let occasion = Occasion { user: &user, now: NOON, part };
    (behavior.prepare_part)(&mut object, &parse(old), &occasion);
    assert_eq!(object.to_string(), parse(after).to_string());
}

#[track_caller]
pub(super) fn converts(behavior: &Behavior, from: &str, to: &str, before: &str, after: &str) {
    let mut object = parse(before);
    (behavior.convert)(&mut object, from, to);
    assert_eq!(object.to_string(), parse(after).to_string());
}

#[track_caller]
fn cells(behavior: &Behavior, object: &str, now: i64) -> Vec<Value> {
    let cells = (behavior.cells)(&parse(object), &Print { now });
    assert_eq!(cells.len(), behavior.columns.len(), "a cell for every column");
    cells
}

/// Every cell of a row at [`NOW`] as text, `|` between them.
#[track_caller]
pub(super) fn prints(behavior: &Behavior, object: &str, expected: &str) {
    let cells = cells(behavior, object, NOW);
    let texts: Vec<String> =
        cells.iter().map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned)).collect();
    assert_eq!(texts.join("|"), expected);
}

/// Each row is an object and its cells as JSON, a hundred seconds after [`NOW`].
#[track_caller]
pub(super) fn check_cells(behavior: &Behavior, rows: &[(&str, &str)]) {
    for (object, expected) in rows {
        let row = Value::Array(cells(behavior, object, NOW + 100));
        assert_eq!(row.to_string(), *expected, "{object}");
    }
}
