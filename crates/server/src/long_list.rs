//! Long lists, written piece by piece as the client takes them: one answer holds a piece in memory, not the whole,
//! and other requests of the connection are answered in between.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderValue};
use polder_registry::Target;
use polder_registry::list::ListAnswer;
use polder_store::{Plane, StoredObject};

use crate::answer::Answer;
use crate::body::AnswerBody;
use crate::handler::Call;
use crate::present::{item_type_meta, list_head, list_meta};

/// Pieces are about this long: two frames of HTTP/2.
const PIECE_LEN: usize = 32 * 1024;

struct Pieces {
    /// The request's place among those in flight is held until the last piece is out.
    call: Call,
    target: Target,
    objects: std::vec::IntoIter<Arc<StoredObject>>,
    /// The first piece; taken when it has been sent.
    head: Option<Vec<u8>>,
    over: bool,
}

/// An answer with all objects of a list whose stored bytes need no conversion.
pub(crate) fn answer(call: Call, target: Target, list: ListAnswer) -> Answer {
    let mut head = Vec::with_capacity(PIECE_LEN);
    list_head(&target, &list_meta(&list), &mut head);
    let mut pieces =
        Pieces { call, target, objects: list.objects.into_iter(), head: Some(head), over: false };
    let mut answer = Response::new(AnswerBody::Stream(Box::new(move |_| Poll::Ready(pieces.next()))));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

impl Pieces {
    fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let plane: &Plane = &self.call.context.plane;
        let type_meta = item_type_meta(&self.target);
        let mut first = self.head.is_some();
        let mut out = self.head.take().unwrap_or_else(|| Vec::with_capacity(PIECE_LEN));
        // An object that does not fit begins the next piece, unless it would fit in none.
        while let Some(stored) = self.objects.as_slice().first() {
            if out.len() + stored.record.len() + 128 > PIECE_LEN && out.len() > PIECE_LEN / 4 {
                return Some(out.into());
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            stored.record.splice(type_meta, plane.resource_version(stored.revision), &mut out);
            self.objects.next();
        }
        self.over = true;
        out.extend_from_slice(b"]}\n");
        Some(out.into())
    }
}
