//! Device classes: names for kinds of devices.

use polder_model::{FieldPath, Value};

use super::cells;
use super::checks::{Errors, each, same};
use super::device_claim::SELECTORS_MAX;
use super::device_rules::{Selectors, is_bounded, opaque_config};
use crate::behavior::{Behavior, Column};

const CONFIG_MAX: usize = 32;

pub(super) const DEVICE_CLASS: Behavior = Behavior {
    group: "resource.k8s.io",
    resource: "deviceclasses",
    generation: true,
    delete_returns_object: true,
    columns: &[Column::NAME, Column::AGE],
    cells: |object, print| vec![cells::name(object), cells::age(object, print)],
    validate,
    ..Behavior::PLAIN
};

fn validate(class: &Value, old: Option<&Value>, errors: &mut Errors) {
    let empty = Value::Null;
    let spec = class.get("spec").unwrap_or(&empty);
    let path = FieldPath::root("spec");
    // What was accepted stays so.
    let is_new = |key: &str| old.is_none_or(|old| !same(spec.get(key), old.at(&["spec", key])));
    if is_bounded(spec, "selectors", SELECTORS_MAX, &path, errors) && is_new("selectors") {
        let mut selectors = Selectors::default();
        each(spec, "selectors", &path, errors, |one, path, errors| selectors.validate(one, path, errors));
    }
    if is_bounded(spec, "config", CONFIG_MAX, &path, errors) && is_new("config") {
        each(spec, "config", &path, errors, opaque_config);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{check, errors};
    use super::*;

    #[test]
    fn selectors_and_configuration() {
        check(
            &DEVICE_CLASS,
            &[
                (
                    r#"{"spec":{"selectors":[{"cel":{"expression":"device.driver == 'a.example'"}},
                        {"cel":{"expression":"device.attributes['a.example'].healthy"}},
                        {"cel":{"expression":"cel.bind(a, device.attributes['a.example'], a.model.startsWith('x') && a.version.isGreaterThan(semver('1.0.0')))"}},
                        {"cel":{"expression":"device.capacity['a.example'].memory.compareTo(quantity('1Gi')) >= 0"}}]}}"#,
                    &[],
                ),
                (
                    r#"{"spec":{"selectors":[{"cel":{"expression":"device.driver"}},
                        {"cel":{"expression":"device.allowMultipleAllocations"}},
                        {"cel":{"expression":"device.driver == 1"}},
                        {"cel":{"expression":"device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, a + b == c + d))))"}},
                        {"cel":{"expression":"device.driver.matches('(')"}}]}}"#,
                    &[
                        r#"spec.selectors[0].cel.expression: Invalid value: "device.driver": must evaluate to bool or the unknown type, not string"#,
                        "spec.selectors[1].cel.expression: Invalid value: \"device.allowMultipleAllocations\": compilation failed: ERROR: <input>:1:7: undefined field 'allowMultipleAllocations'\n | device.allowMultipleAllocations\n | ......^",
                        "spec.selectors[2].cel.expression: Invalid value: \"device.driver == 1\": compilation failed: ERROR: <input>:1:15: found no matching overload for '_==_' applied to '(string, int)'\n | device.driver == 1\n | ..............^",
                        "spec.selectors[3].cel.expression: Forbidden: too complex, exceeds cost limit",
                        "spec.selectors[4].cel.expression: Invalid value: \"device.driver.matches('(')\": compilation failed: ERROR: <input>:1:23: invalid matches argument\n | device.driver.matches('(')\n | ......................^",
                    ],
                ),
                (
                    r#"{"spec":{"selectors":[{}],"config":[{"opaque":{"driver":"d.example"}}]}}"#,
                    &[
                        "spec.selectors[0].cel: Required value",
                        "spec.config[0].opaque.parameters: Required value",
                    ],
                ),
            ],
        );
    }

    /// Many long expressions are refused before they are compiled.
    #[test]
    fn the_work_of_selectors_is_bounded() {
        let long = format!(r#"{{"cel":{{"expression":"true{}"}}}}"#, " || true".repeat(1000));
        let spec = format!(r#"{{"spec":{{"selectors":[{}]}}}}"#, vec![long; 32].join(","));
        let refused = errors(&DEVICE_CLASS, &spec, None);
        let why = "Forbidden: the selectors of one object may have 65536 bytes together";
        assert_eq!(refused.len(), 24);
        assert_eq!(refused[0], format!("spec.selectors[8].cel.expression: {why}"));
    }
}
