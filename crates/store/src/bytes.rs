//! The small binary encoding that engines and journals write rows and entries with: LEB128 numbers and counted text.
//!
//! Reading never panics and never allocates more than the input holds; `None` means the bytes are damaged.

use polder_model::SmolStr;

pub fn put_number(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

pub fn put_text(text: &str, out: &mut Vec<u8>) {
    put_bytes(text.as_bytes(), out);
}

pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// What is left to read.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    pub fn number_u32(&mut self) -> Option<u32> {
        self.number().and_then(|number| u32::try_from(number).ok())
    }

    pub fn fixed_u32(&mut self) -> Option<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*head))
    }

    pub fn fixed_u64(&mut self) -> Option<u64> {
        let (head, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*head))
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (head, rest): (&'a [u8], _) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub fn text(&mut self) -> Option<SmolStr> {
        std::str::from_utf8(self.bytes()?).ok().map(SmolStr::new)
    }

    /// All was read.
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_number(number, &mut out);
            assert_eq!(Input(&out).number(), Some(number));
            assert_eq!(Input(&out[..out.len() - 1]).number(), None);
        }
        assert_eq!(Input(&[0xff; 10]).number(), None);
    }

    #[test]
    fn text_longer_than_the_input_is_damage() {
        assert_eq!(Input(&[3, b'a', b'b']).text(), None);
        assert_eq!(Input(&[2, b'a', 0xff]).text(), None);
        assert_eq!(Input(&[2, b'a', b'b']).text().as_deref(), Some("ab"));
    }
}
