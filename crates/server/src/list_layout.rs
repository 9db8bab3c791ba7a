//! How a list is written around its items, in JSON, indented JSON, YAML or protobuf: so that items can be written
//! one by one, and the whole still is what one writer of the whole would have written.

use polder_machinery::protobuf::envelope::ListMessage;
use polder_model::{Status, Value};

use crate::answer::Style;
use crate::indent::{indented_len, write_indented, yaml};
use crate::negotiate::Media;

/// What stands around the items of one list.
pub(crate) struct Layout {
    head: Vec<u8>,
    tail: Vec<u8>,
    notation: Notation,
    any: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    Compact,
    Indented,
    Yaml,
    Messages,
}

const PRETTY: Style = Style { media: Media::Json, pretty: true, gzip: false };
const YAML: Style = Style { media: Media::Yaml, ..PRETTY };

/// Indented items stand this deep.
const ITEM_DEPTH: usize = 2;

impl Layout {
    /// `frame` is the list as JSON with an empty array as its member `key`.
    pub(crate) fn text(key: &str, frame: Vec<u8>, style: Style) -> Result<Layout, Status> {
        // The empty array in each notation. In JSON no text can contain it, because quotes are escaped; in YAML
        // nothing else of the document begins a line with it.
        let (notation, document, array) = match (style.media, style.pretty) {
            (Media::Yaml, _) => (Notation::Yaml, yaml(&frame), format!("\n{key}: []\n")),
            (_, true) => {
                let mut document = Vec::new();
                write_indented(&frame, 0, frame.len() * 2, &mut document);
                document.push(b'\n');
                (Notation::Indented, document, format!("\"{key}\": []"))
            }
            (_, false) => {
                let mut document = frame;
                document.push(b'\n');
                (Notation::Compact, document, format!("\"{key}\":[]"))
            }
        };
        let at = document.windows(array.len()).position(|part| part == array.as_bytes());
        let at = at.ok_or_else(|| Status::internal("a list has no place for its items"))?;
        // Between the brackets, or where the empty array would stand.
        let split = match notation {
            Notation::Yaml => at + array.len() - " []\n".len(),
            _ => at + array.len() - 1,
        };
        let (head, tail) = (document[..split].to_vec(), document[split..].to_vec());
        Ok(Layout { head, tail, notation, any: false })
    }

    /// A list in protobuf. `items_len` is what its items take.
    pub(crate) fn message(list: &Value, message: ListMessage<'_>, items_len: u64) -> Layout {
        let (mut head, mut tail) = (Vec::new(), Vec::new());
        message.head(list, items_len, &mut head);
        ListMessage::tail(&mut tail);
        Layout { head, tail, notation: Notation::Messages, any: false }
    }

    pub(crate) fn write_head(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
    }

    /// Writes one item. `write` appends it as compact JSON, or as its message.
    pub(crate) fn write_item(
        &mut self,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Status>,
    ) -> Result<(), Status> {
        let first = !std::mem::replace(&mut self.any, true);
        match self.notation {
            Notation::Messages => write(out),
            Notation::Compact => {
                if !first {
                    out.push(b',');
                }
                write(out)
            }
            Notation::Indented => {
                if !first {
                    out.push(b',');
                }
                out.push(b'\n');
                out.extend(std::iter::repeat_n(b' ', ITEM_DEPTH * 2));
                let item = written(write)?;
                match indented_len(&item, PRETTY, ITEM_DEPTH) {
                    Some(len) => write_indented(&item, ITEM_DEPTH, len, out),
                    None => push(&item, out),
                }
                Ok(())
            }
            Notation::Yaml => {
                if first {
                    out.push(b'\n');
                }
                // As the only item of a list it is written as it would be among others.
                let item = written(write)?;
                let is_indented = indented_len(&item, YAML, ITEM_DEPTH).is_some();
                let inner: &[u8] = if is_indented { &item } else { b"0" };
                let text = yaml(&[b"{\"a\":[", inner, b"]}"].concat());
                let text = text.strip_prefix(b"a:\n").unwrap_or(&text);
                match text.strip_suffix(b"0\n").filter(|_| !is_indented) {
                    Some(mark) => {
                        out.extend_from_slice(mark);
                        push(&item, out);
                        out.push(b'\n');
                    }
                    None => push(text, out),
                }
                Ok(())
            }
        }
    }

    pub(crate) fn write_tail(&self, out: &mut Vec<u8>) {
        match (self.notation, self.any) {
            (Notation::Indented, true) => {
                out.extend_from_slice(b"\n  ");
                out.extend_from_slice(&self.tail);
            }
            (Notation::Yaml, true) => {
                out.extend_from_slice(self.tail.strip_prefix(b" []\n").unwrap_or(&self.tail));
            }
            _ => out.extend_from_slice(&self.tail),
        }
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> Result<(), Status>) -> Result<Vec<u8>, Status> {
    let mut bytes = Vec::with_capacity(1024);
    write(&mut bytes)?;
    Ok(bytes)
}

/// Appends bytes that may be many: what is counted is what they take.
fn push(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve_exact(bytes.len() + 1);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_model::json;

    /// The list, written at once and item by item.
    #[track_caller]
    fn check(key: &str, frame: &Value, items: &[Value]) {
        for (media, pretty) in [(Media::Json, false), (Media::Json, true), (Media::Yaml, false)] {
            let style = Style { media, pretty, gzip: false };
            let mut whole = frame.clone();
            whole.set_at(&[key], items.to_vec());
            let expected = match (media, pretty) {
                (Media::Yaml, _) => yaml(&whole.to_vec()),
                (_, pretty) => {
                    let mut out = Vec::new();
                    if pretty {
                        write_indented(&whole.to_vec(), 0, 0, &mut out)
                    } else {
                        whole.write(&mut out)
                    }
                    out.push(b'\n');
                    out
                }
            };
            let mut layout = Layout::text(key, frame.to_vec(), style).unwrap();
            let mut found = Vec::new();
            layout.write_head(&mut found);
            for item in items {
                layout
                    .write_item(&mut found, |out| {
                        item.write(out);
                        Ok(())
                    })
                    .unwrap();
            }
            layout.write_tail(&mut found);
            assert_eq!(String::from_utf8(found).unwrap(), String::from_utf8(expected).unwrap());
        }
    }

    #[test]
    fn item_by_item_is_as_at_once() {
        let items = [
            json!({"metadata": {"name": "a", "labels": {}}, "data": {"k": "v\nw\n", "items": "\"items\":[]"}}),
            json!({}),
            json!({"a": [1, [2, {"b": null}], []], "text": "items: []", "on": "yes", "n": "1.0"}),
            json!({"cells": ["x", 1, true], "object": {"kind": "PartialObjectMetadata"}}),
        ];
        let meta = json!({"resourceVersion": "7", "continue": "items: []\nrows: []\n\"items\":[]"});
        let list = json!({"kind": "DikeList", "apiVersion": "v1", "metadata": (meta.clone()), "items": []});
        let table = json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "rows": [],
            "columnDefinitions": [{"name": "Name", "description": "\nrows: []\n"}],
        });
        for count in 0..=items.len() {
            check("items", &list, &items[..count]);
            check("rows", &table, &items[..count]);
        }
    }

    /// An item that would be far longer when indented is not; the list is the same.
    #[test]
    fn deep_items_are_not_indented() {
        let deep = (0..58).fold(Value::from(vec![json!(1); 50_000]), |inner, _| json!([inner]));
        let items = [json!({"a": 1}), json!({"a": deep, "text": "a: b\n# c"}), json!({"a": 2})];
        for (media, pretty) in [(Media::Json, true), (Media::Yaml, false)] {
            let style = Style { media, pretty, gzip: false };
            let frame = json!({"apiVersion": "v1", "items": []});
            let mut layout = Layout::text("items", frame.to_vec(), style).unwrap();
            let mut out = Vec::new();
            layout.write_head(&mut out);
            for item in &items {
                let write = |out: &mut Vec<u8>| {
                    item.write(out);
                    Ok(())
                };
                layout.write_item(&mut out, write).unwrap();
            }
            layout.write_tail(&mut out);
            assert!(out.len() < 110_000, "{}", out.len());
            let text = String::from_utf8(out).unwrap();
            let read: Value = match media {
                Media::Yaml => serde_saphyr::from_str(&text).unwrap(),
                _ => Value::parse(text.as_bytes()).unwrap(),
            };
            assert_eq!(read, json!({"apiVersion": "v1", "items": (items.to_vec())}));
        }
    }
}
