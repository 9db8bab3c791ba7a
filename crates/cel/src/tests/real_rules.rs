//! Rules of definitions in use compile against their schemas and judge objects.

use std::sync::Arc;

use polder_model::Value as Json;

use super::run_in;
use crate::{Bindings, Environment, Field, ListKind, Shape, Value};

fn object(name: &str, fields: Vec<(&str, Shape)>) -> Shape {
    let fields = fields.into_iter().filter_map(|(name, shape)| Field::new(name, Arc::new(shape))).collect();
    Shape::object(name, fields, 0)
}

fn list(items: Shape, max: Option<u64>) -> Shape {
    Shape::list(Arc::new(items), ListKind::Atomic, max)
}

fn text() -> Shape {
    Shape::string(None)
}

#[track_caller]
fn check(shape: &Arc<Shape>, rule: &str, good: &[&str], bad: &[&str]) {
    let env = Environment::new().document("self", shape).document("oldSelf", shape);
    for (documents, expected) in [(good, "true"), (bad, "false")] {
        for document in documents {
            let document = Json::parse(document.as_bytes()).unwrap();
            let found = run_in(&env, rule, |()| {
                let value = Value::shaped(&document, shape).unwrap();
                Bindings::new().with(value.clone()).with(value)
            });
            assert_eq!(found, expected, "{rule} on {document}");
        }
    }
}

#[test]
fn gateway_api() {
    let listener = object(
        "listener",
        vec![
            ("name", Shape::string(Some(253))),
            ("port", Shape::int()),
            ("protocol", Shape::string(Some(255))),
            ("hostname", Shape::string(Some(253))),
            (
                "tls",
                object(
                    "tls",
                    vec![
                        ("mode", Shape::string_of(["Terminate", "Passthrough"].into_iter())),
                        ("certificateRefs", list(object("ref", vec![("name", text())]), Some(64))),
                        ("options", Shape::map(Arc::new(Shape::string(Some(4096))), Some(16))),
                    ],
                ),
            ),
        ],
    );
    let listeners = Arc::new(list(listener, Some(64)));
    check(
        &listeners,
        "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)",
        &[
            r#"[{"name":"a","port":80,"protocol":"HTTP"}]"#,
            r#"[{"name":"a","port":443,"protocol":"HTTPS","tls":{}}]"#,
        ],
        &[r#"[{"name":"a","port":80,"protocol":"HTTP","tls":{}}]"#],
    );
    check(
        &listeners,
        "self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)",
        &[r#"[{"name":"a","port":443,"protocol":"HTTPS","tls":{"mode":"Terminate"}}]"#],
        &[r#"[{"name":"a","port":443,"protocol":"HTTPS","tls":{"mode":"Passthrough"}}]"#],
    );
    check(
        &listeners,
        "self.all(l1, self.exists_one(l2, l1.name == l2.name))",
        &[r#"[{"name":"a","port":1,"protocol":"x"},{"name":"b","port":1,"protocol":"x"}]"#],
        &[r#"[{"name":"a","port":1,"protocol":"x"},{"name":"a","port":1,"protocol":"x"}]"#],
    );
    check(
        &listeners,
        "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))",
        &[
            r#"[{"name":"a","port":80,"protocol":"HTTP","hostname":"x"},{"name":"b","port":80,"protocol":"HTTP"}]"#,
        ],
        &[r#"[{"name":"a","port":80,"protocol":"HTTP"},{"name":"b","port":80,"protocol":"HTTP"}]"#],
    );
    let filter = object(
        "filter",
        vec![
            ("type", text()),
            ("urlRewrite", object("rewrite", vec![("hostname", text())])),
            ("requestMirror", object("mirror", vec![])),
        ],
    );
    let rule = Arc::new(object(
        "rule",
        vec![
            ("filters", list(filter, Some(16))),
            ("timeouts", object("timeouts", vec![("request", text()), ("backendRequest", text())])),
        ],
    ));
    check(
        &rule,
        "!has(self.filters) || self.filters.filter(f, f.type == 'URLRewrite').size() <= 1",
        &[r#"{"filters":[{"type":"URLRewrite"}]}"#, "{}"],
        &[r#"{"filters":[{"type":"URLRewrite"},{"type":"URLRewrite"}]}"#],
    );
    let timeouts = Arc::new(object("timeouts", vec![("request", text()), ("backendRequest", text())]));
    check(
        &timeouts,
        "!(has(self.request) && has(self.backendRequest) && duration(self.request) != duration('0s') && duration(self.backendRequest) > duration(self.request))",
        &[r#"{"request":"10s","backendRequest":"5s"}"#, r#"{"request":"0s","backendRequest":"5s"}"#],
        &[r#"{"request":"1s","backendRequest":"5s"}"#],
    );
}

#[test]
fn others() {
    let issuer = Arc::new(object(
        "spec",
        vec![
            ("acme", object("acme", vec![("server", text())])),
            ("ca", object("ca", vec![("secretName", text())])),
            ("selfSigned", object("selfSigned", vec![])),
        ],
    ));
    check(
        &issuer,
        "(has(self.acme) ? 1 : 0) + (has(self.ca) ? 1 : 0) + (has(self.selfSigned) ? 1 : 0) == 1",
        &[r#"{"ca":{"secretName":"x"}}"#],
        &["{}", r#"{"ca":{"secretName":"x"},"selfSigned":{}}"#],
    );
    let immutable = Arc::new(object("spec", vec![("storageClass", text()), ("replicas", Shape::int())]));
    check(
        &immutable,
        "self.storageClass == oldSelf.storageClass && self.replicas >= oldSelf.replicas",
        &[r#"{"storageClass":"a","replicas":1}"#],
        &[],
    );
    let endpoint = Arc::new(object(
        "spec",
        vec![
            ("url", text()),
            ("ports", list(Shape::int_or_string(None), Some(8))),
            ("limit", text()),
            ("labels", Shape::map(Arc::new(text()), None)),
        ],
    ));
    check(
        &endpoint,
        "isURL(self.url) && url(self.url).getScheme() in ['http', 'https'] && url(self.url).getHostname() != ''",
        &[r#"{"url":"https://a.example/x"}"#],
        &[r#"{"url":"ftp://a"}"#, r#"{"url":"x"}"#],
    );
    check(
        &endpoint,
        "self.ports.all(p, type(p) == int ? p > 0 && p < 65536 : p.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
        &[r#"{"ports":[80,"http"]}"#],
        &[r#"{"ports":[0]}"#, r#"{"ports":["HTTP"]}"#],
    );
    check(
        &endpoint,
        "quantity(self.limit).isLessThan(quantity('2Gi'))",
        &[r#"{"limit":"1Gi"}"#],
        &[r#"{"limit":"3Gi"}"#],
    );
    check(
        &endpoint,
        "self.labels.all(k, !format.qualifiedName().validate(k).hasValue() && self.labels[k].size() <= 63)",
        &[r#"{"labels":{"a.b/c":"d"}}"#],
        &[r#"{"labels":{"a b":"d"}}"#],
    );
}
