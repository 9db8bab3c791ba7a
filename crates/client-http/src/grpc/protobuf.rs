//! Protobuf by hand: fields are put one after the other, and read back as numbers and bytes.
//!
//! Reading passes over what it does not know, as protobuf asks, never panics, and allocates nothing.

const NUMBER: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// A field of bytes, text or a message; what is empty is left out.
pub fn put(field: u64, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        put_always(field, value, out);
    }
}

/// The same where an empty one means something: a message of a list, or one of a choice.
pub fn put_always(field: u64, value: &[u8], out: &mut Vec<u8>) {
    put_varint(field << 3 | BYTES, out);
    put_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// A field with a number, a truth or a choice; zero is left out.
pub fn put_number(field: u64, number: u64, out: &mut Vec<u8>) {
    if number != 0 {
        put_varint(field << 3 | NUMBER, out);
        put_varint(number, out);
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a type that nothing here has.
    Other,
}

impl<'a> Field<'a> {
    /// The bytes of a field that must have some.
    pub fn bytes(self) -> Option<&'a [u8]> {
        if let Field::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub fn text(self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub fn number(self) -> Option<u64> {
        if let Field::Number(number) = self { Some(number) } else { None }
    }
}

/// The fields of a message with their numbers. `None` ends what is no message.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            NUMBER => Field::Number(self.varint()?),
            FIXED_64 => self.take(8).map(|_| Field::Other)?,
            BYTES => {
                let len = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            FIXED_32 => self.take(4).map(|_| Field::Other)?,
            _ => return None,
        };
        Some((tag >> 3, value))
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }
}
