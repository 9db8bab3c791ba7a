//! How types stand in protobuf, from the `#` words of the table.

use polder_model::SmolStr;

use super::TableError;
use super::lines::{FieldLine, Lines, Placing, TypeLines, broken};
use crate::protobuf::{Field, Layout, Message, MessageId, Presence, Shape, Union};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Builds the messages of all types, and of the two that only answers have.
pub(super) fn build(lines: &Lines<'_>) -> Result<Layout, TableError> {
    let mut layout = Layout::default();
    for own in &lines.types {
        add(&mut layout, own.name);
    }
    for own in &lines.types {
        let id = layout.by_type[own.name];
        for field in &own.fields {
            if let Some(placing) = &field.placing {
                field_add(&mut layout, lines, own, field, placing, id)?;
            }
        }
    }
    partial_metadata_add(&mut layout);
    for message in &mut layout.messages {
        message.fields.sort_by_key(|field| field.number);
        if let Some(pair) = message.fields.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(broken(0, format!("{}: number {} stands twice", message.name, pair[0].number)));
        }
    }
    Ok(layout)
}

fn add(layout: &mut Layout, name: &str) -> MessageId {
    let id = MessageId(u32::try_from(layout.messages.len()).unwrap_or(u32::MAX));
    layout.messages.push(Message { name: name.into(), fields: Vec::new() });
    layout.by_type.insert(name.into(), id);
    id
}

fn field_add(
    layout: &mut Layout,
    lines: &Lines<'_>,
    own: &TypeLines<'_>,
    field: &FieldLine<'_>,
    placing: &Placing,
    mut id: MessageId,
) -> Result<(), TableError> {
    let Some((number, outer)) = placing.numbers.split_last() else {
        return Err(broken(field.line, "a field has a number"));
    };
    // JSON has these fields in the enclosing object, protobuf has a message there.
    for &number in outer {
        let fields = &layout.messages[id.0 as usize].fields;
        let inlined = fields.iter().find(|field| field.number == number).map(|field| field.shape.clone());
        id = match inlined {
            Some(Shape::Inlined(inner)) => inner,
            Some(_) => return Err(broken(field.line, format!("number {number} is not inlined"))),
            None => {
                let name = format!("{}#{number}", layout.messages[id.0 as usize].name);
                let inner = add(layout, &name);
                let field = Field {
                    number,
                    name: SmolStr::default(),
                    presence: Presence::Always,
                    shape: Shape::Inlined(inner),
                };
                layout.messages[id.0 as usize].fields.push(field);
                inner
            }
        };
    }
    let package = own.name.rsplit_once('.').map_or("", |(package, _)| package);
    let shape = shape(layout, lines, field, field.expression, package)?;
    let field = Field { number: *number, name: SmolStr::new(field.name), presence: placing.presence, shape };
    layout.messages[id.0 as usize].fields.push(field);
    Ok(())
}

fn shape(
    layout: &Layout,
    lines: &Lines<'_>,
    field: &FieldLine<'_>,
    expression: &str,
    package: &str,
) -> Result<Shape, TableError> {
    let element = |open, close| expression.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let boxed = |inner: &str| -> Result<Box<Shape>, TableError> {
        Ok(Box::new(match shape(layout, lines, field, inner, package)? {
            Shape::List(inner) => Shape::Wrapped(inner),
            Shape::Map(_) => return Err(broken(field.line, "protobuf has no maps in lists or maps")),
            other => other,
        }))
    };
    if let Some(inner) = element('[', ']') {
        return Ok(Shape::List(boxed(inner)?));
    }
    if let Some(inner) = element('{', '}') {
        return Ok(Shape::Map(boxed(inner)?));
    }
    Ok(match expression {
        "string" => Shape::String,
        "integer" if field.format.as_deref() == Some("int32") => Shape::Int32,
        "integer" => Shape::Int64,
        "boolean" => Shape::Bool,
        "number" => Shape::Double,
        "bytes" => Shape::Bytes,
        "quantity" => Shape::Quantity,
        "int-or-string" => Shape::IntOrString,
        "time" => Shape::Time,
        "micro-time" => Shape::MicroTime,
        name => named(layout, lines, name, package)
            .ok_or_else(|| broken(field.line, format!("no message for {name}")))?,
    })
}

fn named(layout: &Layout, lines: &Lines<'_>, name: &str, package: &str) -> Option<Shape> {
    let local = format!("{package}.{name}");
    let (full, id) = layout
        .by_type
        .get_key_value(name)
        .or_else(|| layout.by_type.get_key_value(local.as_str()))
        .map(|(full, id)| (full.as_str(), *id))?;
    let schema = layout.by_type.get(format!("{package}.JSONSchemaProps").as_str()).copied();
    let union = match full.rsplit('.').next()? {
        "JSONSchemaPropsOrArray" => Some(Union::Array),
        "JSONSchemaPropsOrBool" => Some(Union::Bool),
        "JSONSchemaPropsOrStringArray" => Some(Union::Strings),
        _ => None,
    };
    if let Some(union) = union {
        return Some(Shape::Union(union, schema?));
    }
    // Messages were made in the order of the types.
    let scalar = lines.types.get(id.0 as usize).is_some_and(|own| own.scalar.is_some());
    Some(if scalar { Shape::Raw } else { Shape::Message(id) })
}

/// The metadata of any object, alone and in lists: forms of answers, not types of the API.
fn partial_metadata_add(layout: &mut Layout) {
    let find = |layout: &Layout, name: &str| layout.by_type.get(format!("{META}.{name}").as_str()).copied();
    let (Some(object), Some(list)) = (find(layout, "ObjectMeta"), find(layout, "ListMeta")) else { return };
    let field = |number, name: &str, presence, shape| Field { number, name: name.into(), presence, shape };
    let partial = add(layout, &format!("{META}.PartialObjectMetadata"));
    let metadata = field(1, "metadata", Presence::Always, Shape::Message(object));
    layout.messages[partial.0 as usize].fields.push(metadata);
    let partials = add(layout, &format!("{META}.PartialObjectMetadataList"));
    let metadata = field(1, "metadata", Presence::Always, Shape::Message(list));
    let items = Shape::List(Box::new(Shape::Message(partial)));
    let items = field(2, "items", Presence::Always, items);
    layout.messages[partials.0 as usize].fields.extend([metadata, items]);
}
