//! Tables: what `kubectl get` prints. Columns and cells are the kind's; ages are computed when the answer is.

use polder_machinery::age::human_age;
use polder_model::{Object, Status, Value, json};
use polder_registry::behavior::{Column, Print};
use polder_registry::definition::{PathColumn, Target};

/// How much of each object goes along with its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    pub(crate) fn parse(text: Option<&str>) -> Result<IncludeObject, Status> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "None" => Ok(IncludeObject::None),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Status::bad_request(format!("unrecognized includeObject value: {other:?}"))),
        }
    }
}

/// The row of one object.
pub(crate) fn row(
    target: &Target,
    object: &Value,
    v1beta1: bool,
    include: IncludeObject,
    print: &Print,
) -> Value {
    let mut row = Object::new();
    row.insert("cells", cells(target, object, print));
    let shown = match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Metadata => partial(object, v1beta1),
        IncludeObject::Object => object.clone(),
    };
    let conditions = (target.definition.behavior.row_conditions)(object);
    if !conditions.is_empty() {
        row.insert("conditions", conditions);
    }
    row.insert("object", shown);
    Value::Object(row)
}

/// A table with its columns and no rows.
pub(crate) fn frame(target: &Target, meta: Object, v1beta1: bool) -> Value {
    let mut table = empty(meta, v1beta1);
    table.set_at(&["columnDefinitions"], column_definitions(target));
    table
}

/// A table that does not repeat its columns.
pub(crate) fn empty(meta: Object, v1beta1: bool) -> Value {
    let version = if v1beta1 { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" };
    json!({"kind": "Table", "apiVersion": version, "metadata": meta, "columnDefinitions": null, "rows": []})
}

/// Only the metadata of an object.
pub(crate) fn partial(object: &Value, v1beta1: bool) -> Value {
    let version = if v1beta1 { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" };
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| Value::Object(Object::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": version, "metadata": metadata})
}

/// The columns of a `Scale`, whatever it scales.
const SCALE_COLUMNS: [Column; 4] = [
    Column::NAME,
    Column { name: "Desired", kind: "integer", format: "", wide: false },
    Column { name: "Available", kind: "integer", format: "", wide: false },
    Column { name: "Age", kind: "date", format: "", wide: false },
];

fn scale_cells(scale: &Value, print: &Print) -> Vec<Value> {
    let created = scale.str_at(&["metadata", "creationTimestamp"]).and_then(|text| text.parse().ok());
    let age = created.map(|time: jiff::Timestamp| print.now - time.as_second());
    vec![
        Value::from(scale.str_at(&["metadata", "name"]).unwrap_or_default()),
        Value::from(scale.i64_at(&["spec", "replicas"]).unwrap_or(0)),
        Value::from(scale.i64_at(&["status", "replicas"]).unwrap_or(0)),
        Value::from(human_age(age)),
    ]
}

fn column_definitions(target: &Target) -> Vec<Value> {
    if target.subresource == "scale" {
        return SCALE_COLUMNS.iter().map(builtin_column).collect();
    }
    let behavior = target.definition.behavior;
    if !behavior.columns.is_empty() {
        return behavior.columns.iter().map(builtin_column).collect();
    }
    let name = builtin_column(&Column::NAME);
    if target.definition.is_custom() {
        let own = target.served().columns.iter().map(path_column);
        return std::iter::once(name).chain(own).collect();
    }
    vec![name, builtin_column(&Column { name: "Created At", kind: "date", format: "", wide: false })]
}

fn builtin_column(column: &Column) -> Value {
    let priority = i64::from(column.wide);
    json!({
        "name": (column.name), "type": (column.kind), "format": (column.format),
        "description": "", "priority": priority,
    })
}

fn path_column(column: &PathColumn) -> Value {
    json!({
        "name": (column.name.clone()), "type": (column.kind.clone()), "format": (column.format.clone()),
        "description": (column.description.as_str()), "priority": (column.priority),
    })
}

fn cells(target: &Target, object: &Value, print: &Print) -> Vec<Value> {
    if target.subresource == "scale" {
        return scale_cells(object, print);
    }
    let behavior = target.definition.behavior;
    if !behavior.columns.is_empty() {
        return (behavior.cells)(object, print);
    }
    let name = Value::from(object.str_at(&["metadata", "name"]).unwrap_or_default());
    if target.definition.is_custom() {
        let own = target.served().columns.iter().map(|column| path_cell(column, object, print));
        return std::iter::once(name).chain(own).collect();
    }
    vec![name, Value::from(object.str_at(&["metadata", "creationTimestamp"]).unwrap_or("<unknown>"))]
}

/// A cell by path, in the column's type; what does not fit is empty.
fn path_cell(column: &PathColumn, object: &Value, print: &Print) -> Value {
    let found = column.path.find(object);
    let Some(first) = found.first() else { return Value::Null };
    match (column.kind.as_str(), first) {
        ("date", Value::String(text)) if matches!(text.as_str(), "" | "null") => Value::from("<unknown>"),
        ("date", Value::String(text)) => {
            let seconds = text.parse::<jiff::Timestamp>().ok().map(|time| print.now - time.as_second());
            Value::from(seconds.map_or_else(|| "<invalid>".into(), |seconds| human_age(Some(seconds))))
        }
        ("integer", Value::Int(_))
        | ("number", Value::Int(_) | Value::Float(_))
        | ("boolean", Value::Bool(_)) => (*first).clone(),
        #[expect(clippy::cast_possible_truncation, reason = "a cell shows whole numbers")]
        ("integer", Value::Float(number)) => Value::Int(*number as i64),
        ("string", Value::String(text)) => Value::from(text.clone()),
        ("string", other) => Value::from(other.to_string()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use polder_machinery::jsonpath::JsonPath;

    use super::*;

    /// A column's type and path, an object, the cell; as upstream fills it.
    #[test]
    fn cells_by_path() {
        let object = json!({
            "list": ["a", "b"], "map": {"k": 1}, "number": 3, "half": (Value::Float(1.5)), "text": "x", "yes": true, "empty": "",
            "then": "2026-01-01T00:00:00Z", "none": null,
        });
        let rows = [
            ("string", ".text", json!("x")),
            ("string", ".list", json!(r#"["a","b"]"#)),
            // Of several results the first is shown.
            ("string", ".list[*]", json!("a")),
            ("string", ".map", json!(r#"{"k":1}"#)),
            ("string", ".number", json!("3")),
            ("string", ".nothing", Value::Null),
            ("integer", ".number", json!(3)),
            ("integer", ".half", json!(1)),
            ("integer", ".text", Value::Null),
            ("number", ".half", Value::Float(1.5)),
            ("boolean", ".yes", json!(true)),
            ("boolean", ".text", Value::Null),
            ("date", ".then", json!("60s")),
            ("date", ".text", json!("<invalid>")),
            ("date", ".empty", json!("<unknown>")),
            ("date", ".number", Value::Null),
            ("date", ".yes", Value::Null),
        ];
        for (kind, path, expected) in rows {
            let column = PathColumn {
                name: "c".into(),
                kind: kind.into(),
                format: Default::default(),
                description: String::new(),
                priority: 0,
                path: JsonPath::parse(path).unwrap(),
            };
            let print = Print { now: 1_767_225_660 };
            assert_eq!(path_cell(&column, &object, &print), expected, "{kind} {path}");
        }
    }

    #[test]
    fn scales_have_columns_of_their_own() {
        let scale = json!({
            "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"replicas": 3}, "status": {"replicas": 2},
        });
        let cells = scale_cells(&scale, &Print { now: 1_767_225_660 });
        assert_eq!(Value::Array(cells), json!(["web", 3, 2, "60s"]));
    }
}
