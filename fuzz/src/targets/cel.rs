//! Expressions over documents: whatever they are, they end within their budget, and mean the same every time.
//!
//! The input is an expression, or an expression, a line `---` and a document.

use polder_cel::{Bindings, Budget, Environment, Type, Value as Cel};
use polder_model::{Value, json};

use crate::random::Random;
use crate::two_parts;

/// What results may take as JSON; escapes come on top of it.
const JSON_BYTES_MAX: usize = 64 << 10;

pub const WORDS: &[&str] = &[
    "x", "x.a", "x.l", "x.s", "x.m", "1", "-1", "1u", "1.5", "'a'", "''", "b'\\xff'", "true", "null", "[]", "{}", "[1, 2]", "{'a': 1}", "(", ")", "[", "]", ".",
    ".?a", "[?0]", ", ", " + ", " - ", " * ", " / ", " % ", " == ", " != ", " < ", " in ", " && ", " || ", "!", "-", " ? ", " : ", "has(x.a)", ".all(i, ", ".map(i, ",
    ".filter(i, ", ".exists(i, ", ".exists_one(i, ", ".transformMap(k, v, ", ".transformMapEntry(k, v, {v: k})", ".transformList(k, v, ", ".sortBy(i, ", "i", ".size()",
    ".matches('", ".find('[a-z]+')", ".findAll('.')", ".replace('', ", ".split('')", ".join(", ".substring(1)", ".charAt(0)", ".format([", "'%s %d %f'", ".sort()", ".distinct()",
    ".flatten()", ".slice(0, 1)", "lists.range(", ".sum()", ".max()", "quantity('1Gi')", "ip('1.2.3.4')", "cidr('10.0.0.0/8')", "url('https://a/b?c=d')", "semver('1.2.3')",
    "timestamp('2021-01-01T00:00:00Z')", "duration('1h')", ".getHours('Europe/Rome')", "string(", "int(", "double(", "bytes(", "dyn(", "type(", "optional.of(", ".optMap(i, ",
    ".orValue(", "format.dns1123Label()", ".validate(", "sets.contains(", "cel.bind(i, ", "Object{", "Object.spec{", "JSONPatch{", "a: ", "?a: ", "}", "jsonpatch.escapeKey(", "\n---\n", "\"", "//", "\\", "`", "é",
];

/// An expression that is likely to compile.
pub fn make(random: &mut Random) -> Vec<u8> {
    expression(4, random).into_bytes()
}

fn expression(depth: usize, random: &mut Random) -> String {
    const LEAVES: &[&str] = &[
        "x", "x.a", "x.l", "x.s", "x.m", "1", "-1", "2u", "1.5", "'a'", "'é%s'", "b'a'", "true", "null", "[1, 2, 3]", "['b', 'a']", "{'a': 1}", "x.q", "dyn(1)", "x.l[0]",
        "duration('1m')", "timestamp('2021-01-01T00:00:00Z')", "quantity('1.5Gi')", "optional.none()", "[]", "{}",
    ];
    if depth == 0 {
        return (*random.pick(LEAVES)).into();
    }
    let below = |random: &mut Random| expression(depth - 1, random);
    match random.below(14) {
        0 => format!("(dyn({}) ? dyn({}) : dyn({}))", below(random), below(random), below(random)),
        1 | 2 => {
            let operator = *random.pick(&["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"]);
            format!("dyn({}) {operator} dyn({})", below(random), below(random))
        }
        3 | 4 => {
            let fold = *random.pick(&["all", "exists", "exists_one", "map", "filter", "sortBy"]);
            format!("dyn({}).{fold}(i, dyn({}))", below(random), below(random))
        }
        5 => {
            let fold = *random.pick(&["all", "exists", "transformList", "transformMap", "transformMapEntry"]);
            format!("dyn({}).{fold}(k, v, dyn({}))", below(random), below(random))
        }
        6 | 7 => {
            let function = *random.pick(&[
                "size", "sort", "distinct", "reverse", "flatten", "sum", "max", "min", "isSorted", "first", "last", "join", "trim", "lowerAscii", "upperAscii", "hasValue", "value",
                "getHours", "family", "isInteger", "asApproximateFloat", "major", "getQuery", "unwrapOpt",
            ]);
            format!("dyn({}).{function}()", below(random))
        }
        8 => {
            let function = *random.pick(&[
                "contains", "startsWith", "matches", "find", "findAll", "split", "indexOf", "lastIndexOf", "charAt", "substring", "format", "orValue", "or", "add", "sub",
                "compareTo", "containsIP", "getDate", "flatten", "join",
            ]);
            format!("dyn({}).{function}(dyn({}))", below(random), below(random))
        }
        9 => {
            let function = *random.pick(&[
                "size", "string", "int", "uint", "double", "bytes", "bool", "type", "timestamp", "duration", "quantity", "ip", "cidr", "url", "semver", "isURL", "isIP",
                "lists.range", "optional.of", "optional.ofNonZeroValue", "strings.quote", "format.named", "sign",
            ]);
            format!("{function}(dyn({}))", below(random))
        }
        10 => {
            let name = *random.pick(&["Object", "Object.a", "Object.a.b", "JSONPatch", "Other"]);
            let field = *random.pick(&["a", "b", "op", "path", "value", "?a"]);
            format!("{name}{{{field}: {}, b: {}}}", below(random), below(random))
        }
        11 => format!("[JSONPatch{{op: jsonpatch.escapeKey({}), value: {}}}]", below(random), below(random)),
        12 => format!("[dyn({}), dyn({})][dyn({})]", below(random), below(random), below(random)),
        _ => format!("optional.of({}).optMap(i, {})", below(random), below(random)),
    }
}

pub fn run(data: &[u8]) {
    let (source, document) = two_parts(data);
    let Ok(source) = std::str::from_utf8(source) else { return };
    let env = Environment::new().variable_of("x", Type::Dyn).variable_of("i", Type::Dyn).with_bind().with_objects();
    let program = match env.compile(source) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.to_string().is_empty() && error.to_string().len() < 1 << 20);
            return;
        }
    };
    assert!(program.cost_estimate().min <= program.cost_estimate().max);
    assert!(program.memory_bytes() < 8 << 20);
    let document = Value::parse(document).unwrap_or_else(|_| {
        json!({"a": 1, "s": "hé llo 12", "l": [3, 1, 2, (Value::Float(2.5)), "x", null], "m": {"k": "v", "n": [1]}})
    });
    let budget = Budget { cost_max: 20_000, interrupt: None };
    let bindings = Bindings::new().with(Cel::json(&document)).with(Cel::Int(7));
    let first = program.evaluate(&bindings, budget);
    let second = program.evaluate(&bindings, budget);
    assert_eq!(first.cost, second.cost, "{source:?}");
    assert_eq!(format!("{:?}", first.value), format!("{:?}", second.value), "{source:?}");
    if let (Ok(first), Ok(second)) = (&first.value, &second.value) {
        let (first, second) = (first.to_json(JSON_BYTES_MAX), second.to_json(JSON_BYTES_MAX));
        assert_eq!(first, second, "{source:?}");
        if let Ok(json) = first {
            let text = json.to_vec();
            assert!(text.len() <= 8 * JSON_BYTES_MAX, "{source:?}");
            Value::parse(&text).unwrap_or_else(|error| panic!("{source:?}: {error}"));
        }
    }
    crate::accepted();
}
