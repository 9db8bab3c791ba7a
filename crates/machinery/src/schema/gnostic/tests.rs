use polder_model::json;

use super::*;

/// A field of a decoded message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

fn varint_read(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a varint ends");
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Splits a message into its fields; panics unless the bytes are exactly one.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint_read(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Varint(varint_read(&mut bytes)),
            1 => {
                let (double, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                Field::Double(f64::from_le_bytes(*double))
            }
            2 => {
                let length = usize::try_from(varint_read(&mut bytes)).unwrap();
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(content)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

/// The bytes reached by field numbers, taking the first of each number.
fn dig<'a>(bytes: &'a [u8], numbers: &[u64]) -> Field<'a> {
    numbers.iter().fold(Field::Bytes(bytes), |here, number| {
        let Field::Bytes(bytes) = here else { panic!("{here:?} is no message") };
        let found = fields(bytes).into_iter().find(|(own, _)| own == number);
        found.unwrap_or_else(|| panic!("no field {number} of {numbers:?}")).1
    })
}

fn check(document: &Value, numbers: &[u64], expected: Field<'_>) {
    assert_eq!(dig(&encode(document), numbers), expected, "{numbers:?}");
}

#[test]
fn messages_are_encoded() {
    let schema = |schema: Value| json!({"definitions": {"a.Foo": schema}});
    check(&json!({"swagger": "2.0"}), &[1], Field::Bytes(b"2.0"));
    check(&json!({"info": {"title": "K"}}), &[2, 1], Field::Bytes(b"K"));
    let foo = schema(json!({"type": "object"}));
    check(&foo, &[9, 1, 1], Field::Bytes(b"a.Foo"));
    check(&foo, &[9, 1, 2, 22, 1], Field::Bytes(b"object"));
    check(
        &schema(json!({"items": {"$ref": "#/definitions/b"}})),
        &[9, 1, 2, 23, 1, 1],
        Field::Bytes(b"#/definitions/b"),
    );
    let properties = schema(json!({"properties": {"b": {"minimum": (Value::Float(1.5))}}}));
    check(&properties, &[9, 1, 2, 25, 1, 1], Field::Bytes(b"b"));
    check(&properties, &[9, 1, 2, 25, 1, 2, 9], Field::Double(1.5));
    check(&schema(json!({"maxLength": 300})), &[9, 1, 2, 11], Field::Varint(300));
    check(&schema(json!({"required": ["x", "y"]})), &[9, 1, 2, 19], Field::Bytes(b"x"));
    check(&schema(json!({"additionalProperties": true})), &[9, 1, 2, 21, 2], Field::Varint(1));
    check(
        &schema(json!({"additionalProperties": {"type": "string"}})),
        &[9, 1, 2, 21, 1, 22, 1],
        Field::Bytes(b"string"),
    );
    check(&schema(json!({"enum": ["A"]})), &[9, 1, 2, 20, 2], Field::Bytes(b"\"A\""));
    let extension = schema(json!({"x-kubernetes-list-map-keys": ["name"]}));
    check(&extension, &[9, 1, 2, 31, 1], Field::Bytes(b"x-kubernetes-list-map-keys"));
    check(&extension, &[9, 1, 2, 31, 2, 2], Field::Bytes(b"[\"name\"]"));
    let path = json!({"paths": {"/api": {"patch": {
        "parameters": [{"in": "query", "name": "dryRun"}, {"in": "body", "name": "body"}],
        "responses": {"200": {"description": "OK", "schema": {"type": "string"}}}
    }}}});
    check(&path, &[8, 2, 1], Field::Bytes(b"/api"));
    check(&path, &[8, 2, 2, 8, 8, 1, 2, 3, 4], Field::Bytes(b"dryRun"));
    check(&path, &[8, 2, 2, 8, 9, 1, 1], Field::Bytes(b"200"));
    check(&path, &[8, 2, 2, 8, 9, 1, 2, 1, 2, 1, 22, 1], Field::Bytes(b"string"));
    let security = json!({"security": [{"BearerToken": []}]});
    check(&security, &[12, 1, 1], Field::Bytes(b"BearerToken"));
    check(&security, &[12, 1, 2], Field::Bytes(b""));
}

#[test]
fn repeated_fields_keep_their_order() {
    let bytes = encode(&json!({"schemes": ["a", "b", "c"]}));
    let texts: Vec<_> = fields(&bytes).into_iter().map(|(_, field)| field).collect();
    assert_eq!(texts, [Field::Bytes(b"a"), Field::Bytes(b"b"), Field::Bytes(b"c")]);
}
