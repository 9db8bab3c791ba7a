//! Messages in their frames: a byte that says whether it is compressed, four with its length, and the message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

const HEAD_LEN: usize = 5;

pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + HEAD_LEN);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}

/// Puts messages together from what arrives.
pub(super) struct Frames {
    arrived: BytesMut,
    message_len_max: usize,
}

impl Frames {
    pub(super) fn new(message_len_max: usize) -> Frames {
        Frames { arrived: BytesMut::new(), message_len_max }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.arrived.extend_from_slice(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// The next message, if it is whole. Compressed ones were not asked for.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, &'static str> {
        let Some(&[compressed, a, b, c, d]) = self.arrived.first_chunk::<HEAD_LEN>() else { return Ok(None) };
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if compressed != 0 {
            return Err("its message is compressed");
        }
        if len > self.message_len_max {
            return Err("its message is too long");
        }
        if self.arrived.len() < HEAD_LEN + len {
            return Ok(None);
        }
        self.arrived.advance(HEAD_LEN);
        Ok(Some(self.arrived.split_to(len).freeze()))
    }
}
