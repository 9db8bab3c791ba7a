//! A webhook that converts, or does what it should not.

use parking_lot::Mutex;
use polder_model::{Value, json};
use polder_registry::webhooks::{Posting, WebhookCall, WebhookClient};

/// What it does with a question.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Mode {
    #[default]
    Converts,
    /// Nobody is there.
    Dead,
    Hangs,
    Answer(&'static str),
    OtherUid,
    /// A status and a message instead of objects.
    Says(&'static str, &'static str),
    /// No objects.
    Drops,
    /// The first of several objects only.
    First,
    /// A member of every object is this text.
    Sets(&'static str, &'static str),
    /// Only to `v1`.
    OneWay,
    /// Every object becomes this much heavier.
    Swells(usize),
    /// The same, for those who ask about one object only; otherwise there are none.
    SwellsAlone(usize),
    /// So many spaces follow the answer.
    Pads(usize),
}

#[derive(Default)]
pub(crate) struct Hook {
    mode: Mutex<Mode>,
    /// How many objects each question was about.
    asked: Mutex<Vec<usize>>,
}

impl Hook {
    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
    }

    pub(crate) fn reset(&self) {
        self.asked.lock().clear();
    }

    pub(crate) fn calls(&self) -> usize {
        self.asked.lock().len()
    }

    pub(crate) fn objects(&self) -> usize {
        self.asked.lock().iter().sum()
    }
}

impl WebhookClient for Hook {
    fn post<'a>(&'a self, call: WebhookCall<'a>) -> Posting<'a> {
        let review = Value::parse(&call.body).unwrap();
        let objects = review.array_at(&["request", "objects"]);
        self.asked.lock().push(objects.len());
        let desired = review.str_at(&["request", "desiredAPIVersion"]).unwrap();
        let mut converted: Vec<Value> = objects.iter().map(|object| convert(object, desired)).collect();
        let mode = *self.mode.lock();
        let (mut status, mut message) = ("Success", "");
        let mut uid = review.at(&["request", "uid"]).cloned().unwrap();
        match mode {
            Mode::Converts | Mode::Pads(_) => {}
            Mode::Dead => {
                let why = format!("Post {:?}: nobody is there", call.url);
                return Box::pin(std::future::ready(Err(why)));
            }
            Mode::Hangs => return Box::pin(std::future::pending()),
            Mode::Answer(text) => return Box::pin(std::future::ready(Ok(text.into()))),
            Mode::OtherUid => uid = Value::from("another"),
            Mode::Says(own, text) => (status, message) = (own, text),
            Mode::Drops => converted.clear(),
            Mode::First => converted.truncate(1),
            Mode::Sets(path, text) => {
                let path: Vec<&str> = path.split('/').skip(1).collect();
                converted.iter_mut().for_each(|object| object.set_at(&path, text));
            }
            Mode::OneWay if desired.ends_with("v1") => {}
            Mode::OneWay => status = "Failed",
            Mode::SwellsAlone(_) if converted.len() > 1 => converted.clear(),
            Mode::Swells(len) | Mode::SwellsAlone(len) => {
                let text = "x".repeat(len);
                converted.iter_mut().for_each(|object| object.set_at(&["spec", "note"], text.clone()));
            }
        }
        let review = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": uid, "result": {"status": status, "message": message}, "convertedObjects": converted},
        });
        let mut body = review.to_vec();
        if let Mode::Pads(spaces) = mode {
            body.resize(body.len() + spaces, b' ');
        }
        Box::pin(std::future::ready(Ok(body)))
    }
}

/// `address` is `host:port`. The version stands in a label, except in the one that is stored first.
fn convert(object: &Value, desired: &str) -> Value {
    let mut object = object.clone();
    let old = desired.ends_with("v1");
    object.set_at(&["apiVersion"], desired.to_owned());
    if old {
        object.remove_at(&["metadata", "labels"]);
        let text = |field: &str| object.str_at(&["spec", field]).unwrap_or_default();
        let address = format!("{}:{}", text("host"), text("port"));
        let Some(Value::Object(spec)) = object.at_mut(&["spec"]) else { return object };
        spec.remove("port");
        if spec.remove("host").is_some() {
            spec.insert("address", address);
        }
    } else {
        object.set_at(&["metadata", "labels", "version"], "v2");
        let Some(Value::Object(spec)) = object.at_mut(&["spec"]) else { return object };
        if let Some(address) = spec.remove("address") {
            let (host, port) = address.as_str().unwrap_or_default().split_once(':').unwrap_or_default();
            spec.insert("host", host);
            spec.insert("port", port);
        }
    }
    object
}
