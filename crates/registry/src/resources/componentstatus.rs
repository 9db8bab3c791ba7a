//! Component statuses: read-only, old, still asked for.

use polder_model::Value;

use super::cells;
use crate::behavior::{Behavior, Column, Print};

pub(super) const COMPONENTSTATUSES: Behavior = Behavior {
    resource: "componentstatuses",
    columns: &[Column::NAME, Column::text("Status"), Column::text("Message"), Column::text("Error")],
    cells,
    ..Behavior::PLAIN
};

fn cells(component: &Value, _: &Print) -> Vec<Value> {
    let healthy = component
        .array_at(&["conditions"])
        .iter()
        .find(|condition| condition.str_at(&["type"]) == Some("Healthy"));
    let status = match healthy.map(|condition| condition.str_at(&["status"])) {
        None => "Unknown",
        Some(Some("True")) => "Healthy",
        Some(_) => "Unhealthy",
    };
    let healthy = healthy.unwrap_or(&Value::Null);
    vec![
        cells::name(component),
        status.into(),
        cells::text(healthy, &["message"]),
        cells::text(healthy, &["error"]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::rows::prints;
    use super::COMPONENTSTATUSES;

    #[test]
    fn cells() {
        let row = |condition: &str, expected: &str| {
            let object = format!(r#"{{"metadata":{{"name":"c"}},"conditions":[{condition}]}}"#);
            prints(&COMPONENTSTATUSES, &object, expected);
        };
        row("", "c|Unknown||");
        row(r#"{"type":"Healthy","status":"True","message":"ok"}"#, "c|Healthy|ok|");
        row(r#"{"type":"Healthy","status":"False","message":"m","error":"e"}"#, "c|Unhealthy|m|e");
    }
}
