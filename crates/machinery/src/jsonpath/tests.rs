//! Paths of ours with what upstream finds.

use polder_model::json;

use super::*;
use crate::xorshift::XorShift;

const DOC: &str = r#"{"spec":{"a":{"b":"x"},"n":null,"s":"text","f":1.5,"i":7,"t":true,"l":[1,2,3,4],"e":[],"a.b":"dotted","k8s.io/x":"slashed","m":{"p":1,"q":2}},"status":{"conditions":[{"type":"Ready","status":"True","n":1},{"type":"Synced","status":"False","n":2},{"type":"Odd","status":null}],"mixed":[{"v":1},{"v":"1"}],"nested":[{"l":[1]},{"l":[2,3]}]}}"#;

/// Path, and what is found or the error. Where upstream fails while it looks, nothing is found.
const ROWS: &[(&str, Result<&str, &str>)] = &[
    (r#".spec.a.b"#, Ok(r#"["x"]"#)),
    (r#".spec.missing"#, Ok(r#"[]"#)),
    (r#".spec.missing.deeper"#, Ok(r#"[]"#)),
    (r#".spec.s.deeper"#, Ok(r#"[]"#)),
    (r#".spec.n"#, Ok(r#"[null]"#)),
    (r#".spec.n.x"#, Ok(r#"[]"#)),
    (r#".spec.a"#, Ok(r#"[{"b":"x"}]"#)),
    (r#"."#, Ok(r#"[]"#)),
    (r#"$.spec.i"#, Ok(r#"[7]"#)),
    (r#".spec['a'].b"#, Ok(r#"["x"]"#)),
    (r#".spec['a.b']"#, Ok(r#"["x"]"#)),
    (r#".spec['a\.b']"#, Ok(r#"["dotted"]"#)),
    (r#".spec.a\.b"#, Ok(r#"["dotted"]"#)),
    (r#".spec['k8s\.io/x']"#, Ok(r#"["slashed"]"#)),
    (r#".spec.k8s\.io/x"#, Ok(r#"["slashed"]"#)),
    (r#"['spec']['i']"#, Ok(r#"[7]"#)),
    (r#".spec["a"]"#, Err(r#"invalid array index "a""#)),
    (r#".spec.l[0]"#, Ok(r#"[1]"#)),
    (r#".spec.l[3]"#, Ok(r#"[4]"#)),
    (r#".spec.l[4]"#, Ok("[]")),
    (r#".spec.l[-1]"#, Ok(r#"[4]"#)),
    (r#".spec.l[-4]"#, Ok(r#"[1]"#)),
    (r#".spec.l[-5]"#, Ok("[]")),
    (r#".spec.l[]"#, Ok(r#"[1]"#)),
    (r#".spec.l[*]"#, Ok(r#"[1,2,3,4]"#)),
    (r#".spec.l[:]"#, Ok(r#"[1,2,3,4]"#)),
    (r#".spec.l[1:3]"#, Ok(r#"[2,3]"#)),
    (r#".spec.l[1:]"#, Ok(r#"[2,3,4]"#)),
    (r#".spec.l[:2]"#, Ok(r#"[1,2]"#)),
    (r#".spec.l[-2:]"#, Ok(r#"[3,4]"#)),
    (r#".spec.l[::2]"#, Ok(r#"[1,3]"#)),
    (r#".spec.l[1::2]"#, Ok(r#"[2,4]"#)),
    (r#".spec.l[0:4:3]"#, Ok(r#"[1,4]"#)),
    (r#".spec.l[0:4:0]"#, Ok("[]")),
    (r#".spec.l[0:4:-1]"#, Ok("[]")),
    (r#".spec.l[2:1]"#, Ok("[]")),
    (r#".spec.l[1:1]"#, Ok(r#"[]"#)),
    (r#".spec.l[0:5]"#, Ok("[]")),
    (r#".spec.l[0,2]"#, Ok(r#"[1,3]"#)),
    (r#".spec.l[0, 2]"#, Ok(r#"[1,3]"#)),
    (r#".spec.l[1:2,3]"#, Ok(r#"[2,4]"#)),
    (r#".spec.l[x]"#, Err(r#"invalid array index x"#)),
    (r#".spec.l[-]"#, Err(r#"array index - is not a number"#)),
    (r#".spec.l[1"#, Err(r#"unterminated array"#)),
    (r#".spec.l[0].x"#, Ok(r#"[]"#)),
    (r#".spec.e[*]"#, Ok(r#"[]"#)),
    (r#".spec.e[0]"#, Ok("[]")),
    (r#".spec.a[0]"#, Ok("[]")),
    (r#".spec.n[0]"#, Ok(r#"[]"#)),
    (r#".spec.missing[0]"#, Ok(r#"[]"#)),
    (r#".spec['s','i']"#, Ok(r#"["text",7]"#)),
    (r#".spec.m.*"#, Ok(r#"[1,2]"#)),
    (r#".spec.m[*]"#, Ok("[]")),
    (r#".spec.l.*"#, Ok(r#"[1,2,3,4]"#)),
    (r#"..p"#, Ok(r#"[1]"#)),
    (r#"..type"#, Ok(r#"["Ready","Synced","Odd"]"#)),
    (r#".spec.m.."#, Ok(r#"[{"p":1,"q":2}]"#)),
    (r#".spec..b"#, Ok(r#"["x"]"#)),
    (r#"....a"#, Err(r#"invalid multiple recursive descent"#)),
    (r#".status.conditions[*].type"#, Ok(r#"["Ready","Synced","Odd"]"#)),
    (r#".status.conditions[?(@.type=="Ready")].status"#, Ok(r#"["True"]"#)),
    (r#".status.conditions[?(@.type=='Ready')].status"#, Ok(r#"["True"]"#)),
    (r#".status.conditions[?(@.type == "Ready")].status"#, Ok(r#"["True"]"#)),
    (r#".status.conditions[?(@.type!="Ready")].type"#, Ok(r#"["Synced","Odd"]"#)),
    (r#".status.conditions[?(@.type=="None")].status"#, Ok(r#"[]"#)),
    (r#".status.conditions[?(@.n==2)].type"#, Ok(r#"["Synced"]"#)),
    (r#".status.conditions[?(@.n>1)].type"#, Ok(r#"["Synced"]"#)),
    (r#".status.conditions[?(@.n>=1)].type"#, Ok(r#"["Ready","Synced"]"#)),
    (r#".status.conditions[?(@.n<2)].type"#, Ok(r#"["Ready"]"#)),
    (r#".status.conditions[?(@.n<=2)].type"#, Ok(r#"["Ready","Synced"]"#)),
    (r#".status.conditions[?(@.n>1.5)].type"#, Ok("[]")),
    (r#".status.conditions[?(@.n)].type"#, Ok(r#"["Ready","Synced"]"#)),
    (r#".status.conditions[?(@.missing)].type"#, Ok(r#"[]"#)),
    (r#".status.conditions[?(@.status=="True")].type"#, Ok("[]")),
    (r#".status.conditions[?(.type=="Ready")].status"#, Ok(r#"["True"]"#)),
    (r#".status.conditions[?(@.type="Ready")].status"#, Ok("[]")),
    (
        r#".status.conditions[?(@.type=~"Ready")].status"#,
        Err(r#"unrecognized character in action: U+007E '~'"#),
    ),
    (r#".status.conditions[?(@.type=="a)b")].status"#, Ok(r#"[]"#)),
    (r#".status.conditions[?(@.type=="Ready"].status"#, Err(r#"unterminated filter"#)),
    (r#".status.conditions[?(@.type=="Ready")"#, Err(r#"unclosed array expect ]"#)),
    (r#".status.conditions[?(@.type==Ready)].status"#, Ok("[]")),
    (r#".status.conditions[?(@.type=="R\"y")].status"#, Ok(r#"[]"#)),
    (r#".status.mixed[?(@.v==1)].v"#, Ok("[]")),
    (r#".status.mixed[?(@.v=="1")].v"#, Ok("[]")),
    (r#".status.nested[?(@.l[0]==2)].l"#, Ok(r#"[[2,3]]"#)),
    (r#".status.nested[?(@.l[*]==2)].l"#, Ok("[]")),
    (r#".status.nested[*].l[0]"#, Ok(r#"[1,2]"#)),
    (r#".status.nested[*].l[1]"#, Ok("[]")),
    (r#".status.nested[*].l[*]"#, Ok(r#"[1,2,3]"#)),
    (r#".status.missing[?(@.a==1)]"#, Ok(r#"[]"#)),
    (r#".spec.s[?(@.a==1)]"#, Ok("[]")),
    (r#".spec.n[?(@.a==1)]"#, Ok("[]")),
    (r#".spec.l[?(@>2)]"#, Ok(r#"[3,4]"#)),
    (r#".spec.l[?(@==2)]"#, Ok(r#"[2]"#)),
    (r#".status.conditions[?(@.type==@.type)].n"#, Ok(r#"[1,2]"#)),
    (r#".status.conditions[?(@.t==true)].n"#, Ok(r#"[]"#)),
    (r#".status.nested[?(@.l[1])].l"#, Ok("[[1],[2,3]]")),
    (r#"spec.a"#, Ok("[]")),
    (r#".spec .a"#, Ok(r#"[{"b":"x"}]"#)),
    (r#".spec. a"#, Ok("[]")),
    (r#".spec.a-b"#, Ok(r#"[]"#)),
    (r#".spec.a,b"#, Err(r#"unrecognized character in action: U+002C ','"#)),
    (r#".spec#x"#, Ok(r#"[]"#)),
    (r#".spec.("#, Ok(r#"[]"#)),
    (r#".spec.t"#, Ok(r#"[true]"#)),
    (r#".spec[a]"#, Err(r#"invalid array index a"#)),
    (r#".spec.l[1:2:3:4]"#, Err(r#"invalid array index 1:2:3:4"#)),
    (r#".spec.a}"#, Ok(r#"[{"b":"x"}]"#)),
    (r#".spec{.a"#, Err(r#"unrecognized character in action: U+007B '{'"#)),
    (r#".spec.a[b"#, Err(r#"unterminated array"#)),
    (r#".é"#, Ok(r#"[]"#)),
];

#[test]
fn finds_like_upstream() {
    let doc = Value::parse(DOC.as_bytes()).unwrap();
    for (path, expected) in ROWS {
        let found = JsonPath::parse(path)
            .map(|parsed| Value::Array(parsed.find(&doc).into_iter().cloned().collect()).to_string());
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, expected.map(str::to_string).map_err(str::to_string), "{path}");
    }
    for whole in ["", "@", "$"] {
        assert_eq!(JsonPath::parse(whole).unwrap().find(&doc), [&doc]);
    }
}

#[test]
fn simple_paths() {
    let rows: [(&str, Option<&[&str]>); 6] = [
        (".spec.replicas", Some(&["spec", "replicas"])),
        (".spec['a\\.b']", Some(&["spec", "a.b"])),
        (".metadata.annotations.example\\.com/x", Some(&["metadata", "annotations", "example.com/x"])),
        (".spec.l[0]", None),
        (".spec.*", None),
        ("..a", None),
    ];
    for (path, expected) in rows {
        let path = JsonPath::parse(path).unwrap();
        assert_eq!(path.simple_members().as_deref(), expected);
    }
}

#[test]
fn hostile_searches_end() {
    let wide = json!({"l": (vec![json!({"l": (vec![Value::Int(1); 1000])}); 1000])});
    for path in ["..*..*..*", ".l[?(@.l[?(@>0)])]", ".l[*].l[*]", "..l[*]..*"] {
        if let Ok(path) = JsonPath::parse(path) {
            assert!(path.find(&wide).len() <= VISITS_MAX);
        }
    }
    assert!(JsonPath::parse(&".a".repeat(10_000)).is_err());
    assert_eq!(JsonPath::parse(&"[?(".repeat(1000)), Err(JsonPathError("unterminated filter".into())));
}

#[test]
fn no_path_panics() {
    let doc = Value::parse(DOC.as_bytes()).unwrap();
    let mut random = XorShift(0x9a7);
    let pieces = [
        ".spec",
        ".l",
        "..",
        ".",
        "*",
        "[",
        "]",
        "[0]",
        "[-1]",
        "[1:",
        ":",
        "[?(",
        ")]",
        "@",
        "==",
        "\"x\"",
        "'",
        "\"",
        "\\",
        "é",
        "7",
        "1.5",
        "-",
        ",",
        " ",
        "true",
        "}",
        "{",
        "99999999999999999999",
        "<",
        ".status.conditions",
        ".n",
    ];
    for _ in 0..30_000 {
        let path: String = (0..random.below(9)).map(|_| *random.pick(&pieces)).collect();
        if let Ok(path) = JsonPath::parse(&path) {
            path.find(&doc);
        }
    }
}
