//! Stories with a point each, most of them facts from upstream's own tests.

use super::*;

const SCHEMA: &str = r#"{"type":"object","properties":{
    "n":{"type":"integer"},"s":{"type":"string"},"b":{"type":"boolean"},"ignored":{"type":"object","properties":{"n":{"type":"integer"}}},
    "struct":{"type":"object","properties":{"name":{"type":"string"},"value":{"type":"integer"}}},
    "one":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"integer"},"b":{"type":"integer"}}},
    "map":{"type":"object","additionalProperties":{"type":"string"}},
    "maps":{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string"}}},
    "lists":{"type":"object","additionalProperties":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}},
    "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
    "atoms":{"type":"array","items":{"type":"string"}},
    "list":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"items":{"type":"object","required":["name"],"properties":{
        "name":{"type":"string"},"v":{"type":"integer"},"w":{"type":"integer"},
        "set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}}},
    "ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["port","protocol"],"items":{"type":"object","required":["port"],"properties":{
        "port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"},"name":{"type":"string"}}}},
    "any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}"#;

#[test]
fn leaves() {
    check(
        SCHEMA,
        "apply bob {n: 1, s: x}
         bob .n .s
         apply bob {n: 2, s: x}
         is {n: 2, s: x}
         apply amy {s: x, b: true}
         amy .b .s
         refused amy {s: y, b: true} => Apply failed with 1 conflict: conflict with \"bob\": .s
         is {b: true, n: 2, s: x}
         force amy {s: y, b: true}
         is {b: true, n: 2, s: y}
         bob .n
         amy .b .s
         apply amy {b: true}
         is {b: true, n: 2}
         apply amy {}
         amy
         is {n: 2}",
    );
}

#[test]
fn updates_take_over_and_leave_nothing_behind() {
    check(
        SCHEMA,
        "apply bob {n: 1, s: x}
         update kube {n: 2, s: x}
         bob .s
         update:kube .n
         refused bob {n: 1, s: x} => Apply failed with 1 conflict: conflict with \"kube\" using test.dev/v1: .n
         update amy/status {n: 3, s: x}
         update:kube
         update:amy/status .n
         refused bob {n: 1} => Apply failed with 1 conflict: conflict with \"amy\" with subresource \"status\" using test.dev/v1: .n
         update amy/status {s: x}
         update:amy/status
         is {s: x}
         apply bob {}
         is {}",
    );
}

#[test]
fn several_conflicts_are_told_by_owner() {
    check(
        SCHEMA,
        "apply bob {n: 1, s: x, list: [{name: a, v: 1}, {name: b, v: 1}]}
         update amy {n: 1, s: y, list: [{name: a, v: 1}, {name: b, v: 2}]}
         refused eve {n: 2, s: z, list: [{name: a, v: 9}, {name: b, v: 9}]} => Apply failed with 4 conflicts: conflicts with \"amy\" using test.dev/v1: | - .s | - .list[name=\"b\"].v | conflicts with \"bob\": | - .n | - .list[name=\"a\"].v
         eve",
    );
}

#[test]
fn structs_and_maps() {
    check(
        SCHEMA,
        "apply bob {struct: {name: a, value: 1}}
         bob .struct.name .struct.value
         apply bob {}
         is {}
         apply bob {struct: {name: a}}
         apply bob {struct: null}
         is {struct: null}
         bob .struct",
    );
    check(
        SCHEMA,
        "apply bob {struct: {name: a}}
         update kube {struct: {name: a, value: 1}}
         apply bob {struct: {}}
         is {struct: {value: 1}}
         apply bob {}
         is {struct: {value: 1}}
         update:kube .struct.value",
    );
    check(
        SCHEMA,
        "apply bob {struct: {name: a}}
         update kube {struct: {name: b, value: 1}}
         apply bob {struct: null}
         is {struct: {name: b, value: 1}}",
    );
    check(
        SCHEMA,
        "apply bob {map: {a: x, b: y}, maps: {a: {b: x, c: y}}, lists: {a: [b, c]}}
         bob .lists.a .lists.a[=\"b\"] .lists.a[=\"c\"] .map.a .map.b .maps.a .maps.a.b .maps.a.c
         apply bob {map: {b: z}, maps: {b: {a: x}}, lists: {a: [a, c]}}
         is {lists: {a: [a, c]}, map: {b: z}, maps: {b: {a: x}}}
         apply bob {map: {}}
         is {map: null}
         bob .map",
    );
    check(
        SCHEMA,
        "apply bob {one: {a: 1}}
         bob .one
         refused amy {one: {b: 1}} => Apply failed with 1 conflict: conflict with \"bob\": .one
         force amy {one: {b: 1}}
         is {one: {b: 1}}
         bob",
    );
}

#[test]
fn lists() {
    check(
        SCHEMA,
        "apply bob {set: [a, b], list: [{name: a}, {name: b, v: 1}], atoms: [x, y]}
         bob .atoms .list[name=\"a\"] .list[name=\"b\"] .list[name=\"a\"].name .list[name=\"b\"].name .list[name=\"b\"].v .set[=\"a\"] .set[=\"b\"]
         apply amy {set: [b, c], list: [{name: c}, {name: b, v: 1}]}
         is {atoms: [x, y], list: [{name: a}, {name: c}, {name: b, v: 1}], set: [a, b, c]}
         refused amy {list: [{name: b, v: 2}]} => Apply failed with 1 conflict: conflict with \"bob\": .list[name=\"b\"].v
         apply bob {list: [{name: a}]}
         is {list: [{name: a}, {name: c}, {name: b, v: 1}], set: [b, c]}
         apply amy {}
         is {list: [{name: a}]}
         apply bob {set: []}
         is {set: []}
         bob",
    );
    check(
        SCHEMA,
        "refused bob {list: [{name: a}, {name: a}]} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .list: duplicate entries for key [name=\"a\"]
         refused bob {set: [a, a]} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .set: duplicate entries for key [=\"a\"]
         refused bob {list: [{v: 1}]} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .list: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)
         refused bob {list: [a]} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .list: element 0: associative list with keys may not have non-map elements
         refused bob {set: [{}]} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .set: element 0: associative list without keys has an element that's a map type",
    );
}

#[test]
fn order_of_elements() {
    #[track_caller]
    fn order(live: &str, applied: &str, merged: &str) {
        let list = |text: &str| text.chars().map(|char| char.to_string()).collect::<Vec<_>>().join(",");
        check(
            SCHEMA,
            &format!(
                "update kube {{set: [{}]}}
                 apply bob {{set: [{}]}}
                 is {{set: [{}]}}",
                list(live),
                list(applied),
                list(merged)
            ),
        );
    }
    order("abc", "abc", "abc");
    order("abc", "cba", "cba");
    order("abc", "d", "abcd");
    order("abc", "da", "dabc");
    order("abc", "dc", "abdc");
    order("axbyc", "cb", "axycb");
    order("ab", "cd", "abcd");
    order("xaybz", "ba", "xybza");
    order("abcd", "bxd", "abcxd");
}

#[test]
fn key_defaults() {
    check(
        SCHEMA,
        "apply bob {ports: [{port: 80, name: foo}, {port: 80, protocol: UDP}]}
         bob .ports[port=80,protocol=\"TCP\"] .ports[port=80,protocol=\"UDP\"] .ports[port=80,protocol=\"TCP\"].name .ports[port=80,protocol=\"TCP\"].port .ports[port=80,protocol=\"UDP\"].port .ports[port=80,protocol=\"UDP\"].protocol
         refused amy {ports: [{port: 80, protocol: TCP, name: bar}]} => Apply failed with 1 conflict: conflict with \"bob\": .ports[port=80,protocol=\"TCP\"].name
         refused amy {ports: [{port: 80}, {port: 80, protocol: TCP}]} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .ports: duplicate entries for key [port=80,protocol=\"TCP\"]
         apply amy {ports: [{protocol: TCP, name: z}]}
         amy .ports[protocol=\"TCP\"] .ports[protocol=\"TCP\"].name .ports[protocol=\"TCP\"].protocol",
    );
}

#[test]
fn elements_that_stand_twice() {
    check(
        SCHEMA,
        "update one {set: [a, a, c]}
         update:one .set .set[=\"a\"] .set[=\"c\"]
         update two {set: [a, c]}
         update:one .set .set[=\"c\"]
         update:two .set[=\"a\"]",
    );
    check(
        SCHEMA,
        "update one {list: [{name: a, v: 1}, {name: b, v: 3}]}
         update two {list: [{name: a, v: 1}, {name: a, w: 3}, {name: b, v: 3}]}
         update:one .list .list[name=\"b\"] .list[name=\"b\"].name .list[name=\"b\"].v
         update:two .list[name=\"a\"]
         apply bob {n: 5}
         is {list: [{name: a, v: 1}, {name: a, w: 3}, {name: b, v: 3}], n: 5}
         refused bob {list: [{name: a, v: 3}]} => Apply failed with 1 conflict: conflict with \"two\" using test.dev/v1: .list[name=\"a\"]
         force bob {list: [{name: a, v: 3}]}
         is {list: [{name: a, v: 3}, {name: b, v: 3}]}
         bob .list[name=\"a\"] .list[name=\"a\"].name .list[name=\"a\"].v
         update:two",
    );
}

#[test]
fn what_the_schema_does_not_know() {
    check(
        SCHEMA,
        "apply bob {any: {x: {y: 1}, l: [1, {z: 2}]}}
         bob .any.l .any.x .any.x.y
         refused amy {any: {x: {y: 2}}} => Apply failed with 1 conflict: conflict with \"bob\": .any.x.y
         apply amy {any: {x: {z: 2}}}
         is {any: {l: [1, {z: 2}], x: {y: 1, z: 2}}}
         force amy {any: {x: [1]}}
         is {any: {l: [1, {z: 2}], x: [1]}}
         bob .any.l
         refused bob {unknown: 1} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): .unknown: field not declared in schema
         refused bob {n: x, s: 1, b: [1], list: {}, struct: 5} => failed to create typed patch object (/x; test.dev/v1, Kind=Thing): errors: |   .b: expected boolean, got &{[1]} |   .list: expected list, got &{map[]} |   .n: expected numeric (int or float), got string |   .s: expected string, got &value.valueUnstructured{Value:1} |   .struct: expected map, got &{5}",
    );
}

#[test]
fn nobody_owns_what_the_endpoint_ignores() {
    check(
        SCHEMA,
        "apply bob {n: 1, ignored: {n: 1}}
         bob .n
         update kube {n: 1, ignored: {n: 2}, metadata: {labels: {a: b}, uid: u, generation: 3}}
         update:kube .metadata.labels .metadata.labels.a
         apply amy {ignored: {n: 9}, metadata: {labels: {a: b}}}
         amy .metadata.labels.a",
    );
}

#[test]
fn ownership_follows_the_schema() {
    let mut world = World::new(SCHEMA, &[]);
    check_in(
        &mut world,
        "apply bob {struct: {name: a, value: 1}, set: [a], map: {a: b}}
         apply amy {struct: {name: a}, n: 1}",
    );
    let atomic = SCHEMA
        .replace(
            r#""struct":{"type":"object","#,
            r#""struct":{"type":"object","x-kubernetes-map-type":"atomic","#,
        )
        .replace(
            r#""set":{"type":"array","x-kubernetes-list-type":"set""#,
            r#""set":{"type":"array","x-kubernetes-list-type":"atomic""#,
        );
    world.schema = schema_of(&atomic);
    check_in(
        &mut world,
        "update kube {struct: {name: a, value: 1}, set: [a], map: {a: b}, n: 2}
         bob .set .struct .map.a
         amy .struct
         update:kube .n
         refused amy {struct: {name: b}} => Apply failed with 1 conflict: conflict with \"bob\": .struct",
    );
}

#[test]
fn an_endpoint_may_ignore_all_of_the_metadata() {
    let mut world = World::new(SCHEMA, &[&["metadata"], &["ignored"]]);
    check_in(
        &mut world,
        "apply bob {n: 1, metadata: {labels: {a: b}}}
         bob .n
         update kube {n: 2, metadata: {labels: {a: c}}, ignored: {n: 1}}
         update:kube .n
         bob",
    );
}
