//! The wire format: tags, varints, lengths. Knows nothing about types.

use super::ProtobufError;

/// One field as it stands in the bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

impl Payload<'_> {
    pub(super) fn wire_type(self) -> u8 {
        match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Bytes(_) => 2,
            Payload::Fixed32(_) => 5,
        }
    }
}

/// Reads fields from the front of a message; groups, which nobody uses, are skipped.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next field and its number; `None` at the end.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        let mut groups_open = 0_usize;
        while !self.rest.is_empty() {
            let tag = self.varint()?;
            let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
            let number = number.ok_or(ProtobufError::Tag(tag))?;
            let payload = match tag & 7 {
                0 => Payload::Varint(self.varint()?),
                1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                    Payload::Bytes(self.take(length)?)
                }
                3 => {
                    groups_open += 1;
                    continue;
                }
                4 => {
                    groups_open = groups_open.checked_sub(1).ok_or(ProtobufError::Group)?;
                    continue;
                }
                5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
                _ => return Err(ProtobufError::Tag(tag)),
            };
            if groups_open == 0 {
                return Ok(Some((number, payload)));
            }
        }
        if groups_open == 0 { Ok(None) } else { Err(ProtobufError::Truncated) }
    }

    /// The numbers of a packed list, one by one.
    pub(super) fn packed(&mut self) -> Result<Option<u64>, ProtobufError> {
        if self.rest.is_empty() { Ok(None) } else { self.varint().map(Some) }
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            // The tenth byte has room for one bit; the rest of it falls off, as in Go.
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { ProtobufError::Truncated } else { ProtobufError::Overflow })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }
}

pub(super) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

pub(super) fn write_int(number: u32, value: i64, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3, out);
    write_varint(value.cast_unsigned(), out);
}

pub(super) fn write_double(number: u32, value: f64, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 1, out);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn write_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 2, out);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes a field whose length is known when it is written. Long ones are moved by the size of their length.
pub(super) fn write_nested(number: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    write_varint(u64::from(number) << 3 | 2, out);
    let start = out.len();
    // One byte holds the length of most messages.
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length.to_le_bytes()[0];
        return;
    }
    let mut prefix = Vec::with_capacity(10);
    write_varint(length as u64, &mut prefix);
    out.splice(start..=start, prefix);
}
