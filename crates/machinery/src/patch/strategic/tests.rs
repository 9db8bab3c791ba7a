//! Inputs of ours with the results upstream gave for a Deployment, and what a hostile patch may not do.

use polder_model::json;

use super::*;
use crate::schema::{Arena, Kind, Node, NodeId, PatchStrategy, Schema};
use crate::xorshift::XorShift;

/// Name, object, patch, and the result or the status class and text.
const ROWS: &[(&str, &str, &str, &str)] = &[
    (
        "a scalar is replaced",
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"replicas":3}}"#,
        r#"{"spec":{"replicas":3}}"#,
    ),
    (
        "null deletes, also what is not there",
        r#"{"spec":{"replicas":1,"paused":true}}"#,
        r#"{"spec":{"replicas":null,"minReadySeconds":null}}"#,
        r#"{"spec":{"paused":true}}"#,
    ),
    (
        "labels merge key by key",
        r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#,
        r#"{"metadata":{"labels":{"b":null,"c":"3"}}}"#,
        r#"{"metadata":{"labels":{"a":"1","c":"3"}}}"#,
    ),
    (
        "a new map loses its nulls",
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"labels":{"a":"1","b":null}}}"#,
        r#"{"metadata":{"labels":{"a":"1"}}}"#,
    ),
    (
        "a new map keeps nested order directives as members",
        r#"{"spec":{"template":{}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a"}]}}}}"#,
    ),
    (
        "a container is changed in place",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y:1"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"y:2"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"x:1","name":"a"},{"image":"y:2","name":"b"}]}}}}"#,
    ),
    (
        "a new container goes first without an order",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"z"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"z","name":"c"},{"name":"a"},{"name":"b"}]}}}}"#,
    ),
    (
        "a new and an old container follow the patch",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"z"},{"name":"a","image":"q"},{"name":"n"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b"},{"image":"z","name":"c"},{"image":"q","name":"a"},{"name":"n"}]}}}}"#,
    ),
    (
        "delete one element",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"c"}]}}}}"#,
    ),
    (
        "delete what is not there",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"z","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
    ),
    (
        "delete every element",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[]}}}}"#,
    ),
    (
        "delete and add the same key",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"delete"},{"name":"a","args":["x"]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"args":["x"],"name":"a"},{"name":"b"}]}}}}"#,
    ),
    (
        "replace a list",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"b","image":"2"},{"name":"n"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"2","name":"b"},{"name":"n"}]}}}}"#,
    ),
    (
        "replace a list by nothing",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[]}}}}"#,
    ),
    (
        "replace a list, directive last",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"q"},{"$patch":"replace"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"q","name":"n"}]}}}}"#,
    ),
    (
        "a replaced list gathers repeated keys",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"n","image":"1"},{"name":"m"},{"name":"n","image":"2"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"1","name":"n"},{"image":"2","name":"n"},{"name":"m"}]}}}}"#,
    ),
    (
        "merge is no list directive",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"merge"}]}}}}"#,
        r#"500: merging lists cannot yet be specified in the patch"#,
    ),
    (
        "unknown list directive",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"bogus"}]}}}}"#,
        r#"500: unknown patch type: bogus in map: map[$patch:bogus name:a]"#,
    ),
    (
        "replace a map",
        r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"$patch":"replace","type":"Recreate"}}}"#,
        r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
    ),
    (
        "a replaced map keeps its nulls",
        r#"{"spec":{"strategy":{"type":"RollingUpdate"}}}"#,
        r#"{"spec":{"strategy":{"$patch":"replace","type":"Recreate","rollingUpdate":null}}}"#,
        r#"{"spec":{"strategy":{"rollingUpdate":null,"type":"Recreate"}}}"#,
    ),
    (
        "delete a map",
        r#"{"spec":{"strategy":{"type":"RollingUpdate"},"replicas":1}}"#,
        r#"{"spec":{"strategy":{"$patch":"delete"}}}"#,
        r#"{"spec":{"replicas":1,"strategy":{}}}"#,
    ),
    (
        "delete a map that is not there",
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"strategy":{"$patch":"delete"}}}"#,
        r#"{"spec":{"replicas":1}}"#,
    ),
    (
        "unknown map directive",
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"$patch":"bogus","replicas":2}}"#,
        r#"500: unknown patch type: bogus in map: map[$patch:bogus replicas:2]"#,
    ),
    (
        "merge is no map directive",
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"$patch":"merge","replicas":2}}"#,
        r#"500: unknown patch type: merge in map: map[$patch:merge replicas:2]"#,
    ),
    (
        "replace the whole object",
        r#"{"metadata":{"name":"x"},"spec":{"replicas":1}}"#,
        r#"{"$patch":"replace","metadata":{"name":"y"}}"#,
        r#"{"metadata":{"name":"y"}}"#,
    ),
    (
        "the key is missing in the patch",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}"#,
        r#"500: map: map[image:x] does not contain declared merge key: name"#,
    ),
    (
        "the key is missing in the object",
        r#"{"spec":{"template":{"spec":{"imagePullSecrets":[{}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"imagePullSecrets":[{"name":"s"}]}}}}"#,
        r#"500: map: map[] does not contain declared merge key: name"#,
    ),
    (
        "the key is missing in a deletion",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","image":"x"}]}}}}"#,
        r#"500: map: map[$patch:delete image:x] does not contain declared merge key: name"#,
    ),
    (
        "numbers as keys",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":443}]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":443,"name":"https"},{"containerPort":9090}]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":443,"name":"https"},{"containerPort":9090}]}]}}}}"#,
    ),
    (
        "env merges, valueFrom is deleted by null",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"B","value":"b"}]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"A","value":"v","valueFrom":null}]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"env":[{"name":"A","value":"v"},{"name":"B","value":"b"}],"name":"a"}]}}}}"#,
    ),
    (
        "args are replaced",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","args":["x","y"]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","args":["z"]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"args":["z"],"name":"a"}]}}}}"#,
    ),
    (
        "atomic lists of maps are replaced with their nulls",
        r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"b","value":null},{"key":"c","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"b","value":null},{"$patch":"delete","key":"c"}]}}}}"#,
    ),
    (
        "an element that is new keeps its nulls and directives",
        r#"{"spec":{"template":{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"volumes":[{"name":"b","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"},"emptyDir":null}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"volumes":[{"$retainKeys":["name","hostPath"],"emptyDir":null,"hostPath":{"path":"/x"},"name":"b"},{"emptyDir":{},"name":"a"}]}}}}"#,
    ),
    (
        "primitive lists merge without repeats",
        r#"{"metadata":{"finalizers":["a/1","b/2"]}}"#,
        r#"{"metadata":{"finalizers":["c/3","b/2"]}}"#,
        r#"{"metadata":{"finalizers":["c/3","a/1","b/2"]}}"#,
    ),
    (
        "primitive lists keep the live order around the patch",
        r#"{"metadata":{"finalizers":["a/1","b/2","c/3","d/4"]}}"#,
        r#"{"metadata":{"finalizers":["c/3","a/1"]}}"#,
        r#"{"metadata":{"finalizers":["b/2","c/3","a/1","d/4"]}}"#,
    ),
    (
        "delete from a primitive list",
        r#"{"metadata":{"finalizers":["a/1","b/2","c/3"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["b/2","z/9"]}}"#,
        r#"{"metadata":{"finalizers":["a/1","c/3"]}}"#,
    ),
    (
        "delete from a primitive list that is not there",
        r#"{"metadata":{"name":"x"}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["b/2"]}}"#,
        r#"{"metadata":{"name":"x"}}"#,
    ),
    (
        "delete all from a primitive list",
        r#"{"metadata":{"finalizers":["a/1"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/1"]}}"#,
        r#"{"metadata":{"finalizers":[]}}"#,
    ),
    (
        "a null deletion list deletes the list",
        r#"{"metadata":{"finalizers":["a/1"],"name":"x"}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":null}}"#,
        r#"{"metadata":{"name":"x"}}"#,
    ),
    (
        "a deletion list without its list",
        r#"{"metadata":{"finalizers":["a/1"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList":["a/1"]}}"#,
        r#"400: invalid patch format of primitive list"#,
    ),
    (
        "order and deletion of a primitive list",
        r#"{"metadata":{"finalizers":["a/1","b/2","s/0"]}}"#,
        r#"{"metadata":{"$setElementOrder/finalizers":["b/2","c/3"],"$deleteFromPrimitiveList/finalizers":["a/1"],"finalizers":["c/3"]}}"#,
        r#"{"metadata":{"finalizers":["b/2","c/3","s/0"]}}"#,
    ),
    (
        "mixed element types",
        r#"{"metadata":{"finalizers":["a/1"]}}"#,
        r#"{"metadata":{"finalizers":[1]}}"#,
        r#"500: list element types are not identical: [[a/1] [1]]"#,
    ),
    (
        "lists of lists",
        r#"{"metadata":{"finalizers":[]}}"#,
        r#"{"metadata":{"finalizers":[["a"]]}}"#,
        r#"422: lists of lists are not supported"#,
    ),
    (
        "empty into empty",
        r#"{"metadata":{"finalizers":[]}}"#,
        r#"{"metadata":{"finalizers":[]}}"#,
        r#"{"metadata":{"finalizers":[]}}"#,
    ),
    (
        "empty into full",
        r#"{"metadata":{"finalizers":["a/1"]}}"#,
        r#"{"metadata":{"finalizers":[]}}"#,
        r#"{"metadata":{"finalizers":["a/1"]}}"#,
    ),
    (
        "order only",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}}}}"#,
    ),
    (
        "order with a new element last",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"},{"name":"c"}],"containers":[{"name":"c","image":"z"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"},{"image":"z","name":"c"}]}}}}"#,
    ),
    (
        "order with an element of the server between",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"s"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"},{"name":"c"}],"containers":[{"name":"c"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"s"},{"name":"b"},{"name":"a"},{"name":"c"}]}}}}"#,
    ),
    (
        "an element of the server stays before one that takes a deleted place",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"s"},{"name":"c"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"d"}],"containers":[{"name":"d","image":"z"},{"name":"c","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"s"},{"image":"z","name":"d"}]}}}}"#,
    ),
    (
        "an element of the server goes after one that takes no place",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"s"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"d"}],"containers":[{"name":"d","image":"z"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"image":"z","name":"d"},{"name":"s"}]}}}}"#,
    ),
    (
        "two deleted places, three new",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"x"},{"name":"s"},{"name":"y"},{"name":"t"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"e"},{"name":"f"}],"containers":[{"name":"d"},{"name":"e"},{"name":"f"},{"name":"x","$patch":"delete"},{"name":"y","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"s"},{"name":"t"},{"name":"d"},{"name":"e"},{"name":"f"}]}}}}"#,
    ),
    (
        "order of a list that is new",
        r#"{"spec":{"template":{"spec":{"nodeName":"n"}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"b"},{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b"},{"name":"a"}],"nodeName":"n"}}}}"#,
    ),
    (
        "order of a list that is new, with a deletion",
        r#"{"spec":{"template":{"spec":{"nodeName":"n"}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"a"},{"name":"b","$patch":"delete"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}],"nodeName":"n"}}}}"#,
    ),
    (
        "order of nothing",
        r#"{"spec":{"template":{"spec":{"nodeName":"n"}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"nodeName":"n"}}}}"#,
    ),
    (
        "order that contradicts the patch",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"},{"name":"b"}],"containers":[{"name":"b"},{"name":"a"}]}}}}"#,
        "500: The order in patch list:\n[map[name:b] map[name:a]]\n doesn't match $setElementOrder list:\n[map[name:a] map[name:b]]\n",
    ),
    (
        "order that lacks an element of the patch",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":[{"name":"b"}]}}}}"#,
        "500: The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
    ),
    (
        "empty order with new elements",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[],"containers":[{"name":"c"},{"name":"a","image":"q"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"q","name":"a"},{"name":"b"},{"name":"c"}]}}}}"#,
    ),
    (
        "order that is no list",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":"a"}}}}"#,
        r#"500: expected a []interface {}, but received a string"#,
    ),
    (
        "order without its list",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder":[{"name":"a"}]}}}}"#,
        r#"400: invalid patch format of setElementOrder list"#,
    ),
    (
        "order next to a null list",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"a"}],"containers":null}}}}"#,
        r#"500: expected a []interface {}, but received a %!s(<nil>)"#,
    ),
    (
        "order lacks the key",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"image":"a"}],"containers":[{"name":"a"}]}}}}"#,
        r#"500: map: map[image:a] does not contain declared merge key: name"#,
    ),
    (
        "order of an empty list",
        r#"{"spec":{"template":{"spec":{"containers":[]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[]}}}}"#,
        r#"500: no elements in any of the given slices"#,
    ),
    (
        "order with a replaced list",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],"containers":[{"$patch":"replace"},{"name":"c"},{"name":"a","image":"q"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c"},{"image":"q","name":"a"}]}}}}"#,
    ),
    (
        "nested orders",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}]},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","$setElementOrder/env":[{"name":"Z"},{"name":"Y"}],"env":[{"name":"Z","value":"3"},{"name":"X","$patch":"delete"}]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b"},{"env":[{"name":"Z","value":"3"},{"name":"Y","value":"2"}],"name":"a"}]}}}}"#,
    ),
    (
        "retain keys of a strategy",
        r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
        r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
    ),
    (
        "retain keys of a volume",
        r#"{"spec":{"template":{"spec":{"volumes":[{"name":"a","emptyDir":{}},{"name":"b","emptyDir":{}}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/volumes":[{"name":"a"},{"name":"b"}],"volumes":[{"$retainKeys":["name","configMap"],"name":"a","configMap":{"name":"c"}}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"volumes":[{"configMap":{"name":"c"},"name":"a"},{"emptyDir":{},"name":"b"}]}}}}"#,
    ),
    (
        "retain keys that lack a member of the patch",
        r#"{"spec":{"strategy":{"type":"RollingUpdate"}}}"#,
        r#"{"spec":{"strategy":{"$retainKeys":["rollingUpdate"],"type":"Recreate"}}}"#,
        r#"400: invalid patch format of retainKeys"#,
    ),
    (
        "retain keys next to a null",
        r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate","rollingUpdate":null}}}"#,
        r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
    ),
    (
        "retain keys that are no list",
        r#"{"spec":{"strategy":{"type":"RollingUpdate"}}}"#,
        r#"{"spec":{"strategy":{"$retainKeys":"type","type":"Recreate"}}}"#,
        r#"400: invalid patch format of retainKeys"#,
    ),
    (
        "retain keys of everything",
        r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"$retainKeys":[]}}}"#,
        r#"{"spec":{"strategy":{}}}"#,
    ),
    (
        "a scalar over a map",
        r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
        r#"{"spec":{"strategy":"x"}}"#,
        r#"{"spec":{"strategy":"x"}}"#,
    ),
    (
        "a map over a scalar",
        r#"{"spec":{"strategy":"x"}}"#,
        r#"{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}"#,
        r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
    ),
    (
        "a map over null",
        r#"{"metadata":{"labels":null}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
    ),
    (
        "a directive over a scalar",
        r#"{"spec":{"strategy":"x","replicas":1}}"#,
        r#"{"spec":{"strategy":{"$patch":"delete"}}}"#,
        r#"{"spec":{"replicas":1}}"#,
    ),
    (
        "owner references merge by uid",
        r#"{"metadata":{"ownerReferences":[{"uid":"1","name":"a"},{"uid":"2","name":"b"}]}}"#,
        r#"{"metadata":{"ownerReferences":[{"uid":"2","controller":true},{"uid":"1","$patch":"delete"}]}}"#,
        r#"{"metadata":{"ownerReferences":[{"controller":true,"name":"b","uid":"2"}]}}"#,
    ),
    (
        "the same new key twice",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"n","image":"1"},{"name":"n","args":["x"]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"args":["x"],"image":"1","name":"n"},{"name":"a"}]}}}}"#,
    ),
    (
        "the same old key twice",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"1"},{"name":"a","image":"2"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"3"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"3","name":"a"},{"image":"2","name":"a"}]}}}}"#,
    ),
    (
        "node selectors merge",
        r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"1"}}}}}"#,
        r#"{"spec":{"template":{"spec":{"nodeSelector":{"b":"2"}}}}}"#,
        r#"{"spec":{"template":{"spec":{"nodeSelector":{"a":"1","b":"2"}}}}}"#,
    ),
    (
        "an empty patch changes nothing",
        r#"{"spec":{"replicas":1},"metadata":{"labels":{}}}"#,
        r#"{}"#,
        r#"{"metadata":{"labels":{}},"spec":{"replicas":1}}"#,
    ),
    (
        "as kubectl apply writes it",
        r#"{"metadata":{"name":"web","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"old"}},"spec":{"replicas":2,"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":"25%"}},"template":{"spec":{"containers":[{"name":"web","image":"w:1","env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"ports":[{"containerPort":80}]},{"name":"mesh","image":"m:1"}],"volumes":[{"name":"v","emptyDir":{}},{"name":"mesh","emptyDir":{}}]}}}}"#,
        r#"{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"new"}},"spec":{"strategy":{"$retainKeys":["type"],"rollingUpdate":null,"type":"Recreate"},"template":{"spec":{"$setElementOrder/containers":[{"name":"web"},{"name":"log"}],"$setElementOrder/volumes":[{"name":"v"}],"containers":[{"$setElementOrder/env":[{"name":"B"},{"name":"C"}],"env":[{"name":"C","value":"3"},{"$patch":"delete","name":"A"}],"image":"w:2","name":"web"},{"image":"l:1","name":"log"}],"volumes":[{"$retainKeys":["name","configMap"],"configMap":{"name":"c"},"emptyDir":null,"name":"v"}]}}}}"#,
        r#"{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"new"},"name":"web"},"spec":{"replicas":2,"strategy":{"type":"Recreate"},"template":{"spec":{"containers":[{"env":[{"name":"B","value":"2"},{"name":"C","value":"3"}],"image":"w:2","name":"web","ports":[{"containerPort":80}]},{"image":"l:1","name":"log"},{"image":"m:1","name":"mesh"}],"volumes":[{"configMap":{"name":"c"},"name":"v"},{"emptyDir":{},"name":"mesh"}]}}}}"#,
    ),
];

/// As much of a Deployment as the rows need.
fn deployment() -> Schema {
    let mut arena = Arena::default();
    let any = arena.add(Node::default());
    let text_map = arena.add(Node { kind: Kind::Object, additional: Some(any), ..Node::default() });
    let container = object(&mut arena, &[("name", any), ("image", any), ("args", any)]);
    let with = |arena: &mut Arena, key: &str| {
        let item = object(arena, &[]);
        list(arena, item, Some(key))
    };
    for (name, key) in [("env", "name"), ("ports", "containerPort"), ("volumeMounts", "mountPath")] {
        let merged = with(&mut arena, key);
        add_property(&mut arena, container, name, merged);
    }
    let spec = object(&mut arena, &[("nodeSelector", text_map), ("tolerations", any)]);
    let containers = list(&mut arena, container, Some("name"));
    add_property(&mut arena, spec, "containers", containers);
    for (name, key) in [("volumes", "name"), ("imagePullSecrets", "name")] {
        let merged = with(&mut arena, key);
        add_property(&mut arena, spec, name, merged);
    }
    let metadata = object(&mut arena, &[("labels", text_map), ("annotations", text_map)]);
    let finalizers = list(&mut arena, any, None);
    add_property(&mut arena, metadata, "finalizers", finalizers);
    let owners = with(&mut arena, "uid");
    add_property(&mut arena, metadata, "ownerReferences", owners);
    let template = object(&mut arena, &[("metadata", metadata), ("spec", spec)]);
    let strategy = object(&mut arena, &[("type", any), ("rollingUpdate", any)]);
    let deployment_spec =
        object(&mut arena, &[("replicas", any), ("strategy", strategy), ("template", template)]);
    let whole = arena.add(Node {
        kind: Kind::Object,
        patch: PatchStrategy { replace: true, ..PatchStrategy::default() },
        ..Node::default()
    });
    let root = object(&mut arena, &[("metadata", metadata), ("spec", deployment_spec), ("whole", whole)]);
    Schema { arena: arena.into(), root }
}

fn object(arena: &mut Arena, properties: &[(&str, NodeId)]) -> NodeId {
    let id = arena.add(Node { kind: Kind::Object, ..Node::default() });
    for (name, node) in properties {
        add_property(arena, id, name, *node);
    }
    id
}

fn add_property(arena: &mut Arena, to: NodeId, name: &str, node: NodeId) {
    let properties = &mut arena.nodes[to.0 as usize].properties;
    properties.push((name.into(), node));
    properties.sort_by(|(left, _), (right, _)| left.cmp(right));
}

fn list(arena: &mut Arena, items: NodeId, merge_key: Option<&str>) -> NodeId {
    arena.add(Node {
        kind: Kind::Array,
        items: Some(items),
        patch: PatchStrategy { merge: true, ..PatchStrategy::default() },
        patch_merge_key: merge_key.map(SmolStr::new),
        ..Node::default()
    })
}

fn outcome(doc: Value, patch: Value) -> String {
    match apply_strategic_merge_patch(doc, patch, deployment().node()) {
        Ok(value) => value.to_string(),
        Err(PatchError::Malformed(text)) => format!("400: {text}"),
        Err(PatchError::NotApplicable(text)) => format!("422: {text}"),
        Err(PatchError::Unclassified(text)) => format!("500: {text}"),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn like_upstream() {
    for (name, doc, patch, expected) in ROWS {
        let doc = Value::parse(doc.as_bytes()).unwrap();
        let patch = Value::parse(patch.as_bytes()).unwrap();
        assert_eq!(outcome(doc, patch), *expected, "{name}");
    }
}

#[test]
fn what_the_schema_does_not_know() {
    let rows = [
        (
            json!({"x": {"a": 1, "l": [1]}}),
            json!({"x": {"b": 2, "l": [2]}}),
            r#"{"x":{"a":1,"b":2,"l":[2]}}"#,
        ),
        (json!({"x": [{"a": 1}]}), json!({"x": [{"b": 1}]}), r#"{"x":[{"b":1}]}"#),
        (json!({"x": ["a", "b"]}), json!({"$deleteFromPrimitiveList/x": ["a"]}), r#"{"x":["b"]}"#),
        (json!({"whole": {"a": 1}}), json!({"whole": {"b": null}}), r#"{"whole":{"b":null}}"#),
        (json!([]), json!({}), "400: invalid JSON document"),
    ];
    for (doc, patch, expected) in rows {
        assert_eq!(outcome(doc, patch), expected);
    }
}

#[test]
fn long_lists_are_merged_in_one_pass() {
    let named = |from: usize| (from..from + 50_000).map(|number| json!({"name": (format!("n{number}"))}));
    let doc = json!({"spec": {"template": {"spec": {"containers": (named(0).collect::<Vec<_>>())}}}});
    let patched: Vec<Value> = named(25_000).collect();
    let patch = json!({"spec": {"template": {"spec": {
        "$setElementOrder/containers": (patched.clone()), "containers": patched
    }}}});
    let merged = apply_strategic_merge_patch(doc, patch, deployment().node()).unwrap();
    assert_eq!(merged.array_at(&["spec", "template", "spec", "containers"]).len(), 75_000);
}

#[test]
fn no_patch_panics() {
    let schema = deployment();
    let mut random = XorShift(0xfeed);
    fn value(random: &mut XorShift, levels: usize) -> Value {
        const KEYS: [&str; 16] = [
            "metadata",
            "spec",
            "template",
            "containers",
            "finalizers",
            "name",
            "env",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "$setElementOrder/finalizers",
            "$setElementOrder",
            "volumes",
            "whole",
            "",
        ];
        match random.below(if levels == 0 { 5 } else { 14 }) {
            0 => Value::Null,
            1 => json!(1),
            2 => Value::Float(1.5),
            3 => Value::from(*random.pick(&["a", "b", "delete", "replace", "merge"])),
            4 => json!(true),
            5..8 => Value::Array((0..random.below(4)).map(|_| value(random, levels - 1)).collect()),
            _ => {
                let members = (0..random.below(5))
                    .map(|_| (SmolStr::new(*random.pick(&KEYS)), value(random, levels - 1)));
                Value::Object(members.collect())
            }
        }
    }
    for _ in 0..20_000 {
        let (doc, patch) = (value(&mut random, 5), value(&mut random, 5));
        let _outcome = apply_strategic_merge_patch(doc, patch, schema.node());
    }
}
