//! Names as text that a server keeps keys in. `/`, `%` and what is no plain letter is written `%xx`: whatever somebody is
//! called, the key says it and nothing else.

use polder_model::{GroupResource, SmolStr};

use crate::key::ObjectName;

/// `resource/group/namespace/name`.
pub fn put_object(resource: &GroupResource, name: &ObjectName, out: &mut String) {
    let parts = [&*resource.resource, &*resource.group, &*name.namespace, &*name.name];
    for (index, part) in parts.into_iter().enumerate() {
        if index > 0 {
            out.push('/');
        }
        escape(part, out);
    }
}

pub fn parse_object(text: &str) -> Option<(GroupResource, ObjectName)> {
    let mut parts = text.split('/');
    let mut part = || unescape(parts.next()?);
    let (resource, group, namespace, name) = (part()?, part()?, part()?, part()?);
    let is_whole = parts.next().is_none();
    is_whole.then(|| (GroupResource::new(group, resource), ObjectName::new(namespace, name)))
}

pub fn escape(text: &str, out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._:~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

pub fn unescape(text: &str) -> Option<SmolStr> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = (digit()?, digit()?);
        out.push(high << 4 | low);
    }
    String::from_utf8(out).ok().map(SmolStr::from)
}
