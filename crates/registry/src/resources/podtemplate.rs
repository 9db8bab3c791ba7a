//! Pod templates as objects of their own.

use polder_model::{FieldError, FieldPath, Value};

use super::{cells, pod_spec, pod_spec_rules};
use crate::behavior::{Behavior, Column, Print};

pub(super) const PODTEMPLATES: Behavior = Behavior {
    resource: "podtemplates",
    generation: true,
    delete_returns_object: true,
    columns: &[Column::NAME, Column::text("Containers"), Column::text("Images"), Column::text("Pod Labels")],
    cells,
    default: |object| pod_spec::default_template(object, &["template", "spec"]),
    validate,
    ..Behavior::PLAIN
};

fn cells(template: &Value, _: &Print) -> Vec<Value> {
    let [names, images] = cells::containers(template.at(&["template", "spec"]));
    vec![
        cells::name(template),
        names,
        images,
        cells::labels(template.at(&["template", "metadata", "labels"])),
    ]
}

fn validate(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let template = new.get("template").unwrap_or(&Value::Null);
    pod_spec_rules::validate_template(template, Default::default(), &FieldPath::root("template"), errors);
}

#[cfg(test)]
mod tests {
    use super::super::rows::{defaults, prints, refuses};
    use super::PODTEMPLATES;

    #[test]
    fn prints_defaults_checks() {
        let template = r#"{"metadata":{"name":"t"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}"#;
        prints(&PODTEMPLATES, template, "t|c|i|a=b");
        defaults(
            &PODTEMPLATES,
            r#"{"template":{"spec":{"containers":[{"image":"i"}]}}}"#,
            r#"{"template":{"spec":{"containers":[{"image":"i","imagePullPolicy":"Always"}]}}}"#,
        );
        refuses(&PODTEMPLATES, template, None, &[]);
        refuses(&PODTEMPLATES, "{}", None, &["template.spec.containers: Required value"]);
    }
}
